//! Burn's normalization layers, computed by [wgpu-norm](wgpu_norm)'s kernels: the same model, one `use` changed, trains
//! faster with the same results.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use burn_wgpu_norm::nn::{BatchNorm, BatchNormConfig}; // was burn::nn
//!
//! let device = Device::default().autodiff();
//! let layer: BatchNorm = BatchNormConfig::new(3).init(&device);
//! let dst = layer.forward(Tensor::<4>::ones([2, 3, 4, 4], &device));
//! assert_eq!(dst.dims(), [2, 3, 4, 4]);
//! ```
//!
//! [`way`] says how layers run on a device, [`counts`] how often each way was taken. Nothing has to be set up where Burn
//! compiles its kernels to WGSL, as it does with its feature `wgpu`; with `vulkan` or `metal` it compiles to SPIR-V or MSL, and
//! [`init`] is to make the device.
//!
//! Native only: a browser gives its device asynchronously, and nobody has tried these layers there.

#![recursion_limit = "256"]

mod device;
mod forward;
pub mod nn;
mod ops;
mod plans;
mod profile;
mod run;
mod way;

pub use device::{RegisterError, register};
pub use way::{Counts, Way, counts, force, way};

use burn::tensor::Device;
use burn::tensor::wgpu::WgpuInitError;

/// Makes Burn's default wgpu device with its handles known to wgpu-norm. To be called before the device is used.
///
/// # Errors
///
/// Where there is no device, or it is in use already.
pub fn init() -> Result<Device, WgpuInitError> {
    let (device, setup) = Device::wgpu_options().init_with_setup()?;
    register(&device, &setup).map_err(|error| WgpuInitError::Registration {
        message: error.to_string(),
    })?;
    Ok(device)
}
