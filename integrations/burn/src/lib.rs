//! Burn's normalization layers, computed by [wgpu-norm](wgpu_norm)'s kernels: with one `use` changed, the same model
//! trains faster, with the same results.
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
//! [`way`] tells how layers run on a device, [`counts`] how often each way was taken. No setup is needed where Burn
//! compiles its kernels to WGSL, as with its feature `wgpu`. With `vulkan` or `metal` it compiles to SPIR-V or MSL;
//! create the device with [`init`] then.
//!
//! Native only: browsers provide devices asynchronously, and nobody has tried these layers there.

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

/// Creates Burn's default wgpu device and registers its handles with wgpu-norm. Call it before the device is used.
///
/// # Errors
///
/// If there is no device, or it is already in use.
pub fn init() -> Result<Device, WgpuInitError> {
    let (device, setup) = Device::wgpu_options().init_with_setup()?;
    register(&device, &setup).map_err(|error| WgpuInitError::Registration {
        message: error.to_string(),
    })?;
    Ok(device)
}
