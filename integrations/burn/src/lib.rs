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
//! In a browser, create the device with [`init_async`] before it is used, and read tensors with `into_data_async`.

#![recursion_limit = "256"]

mod device;
mod f16;
mod forward;
mod launch;
pub mod nn;
mod ops;
mod plans;
mod profile;
mod run;
mod way;

pub use device::{RegisterError, register};
pub use way::{Counts, Way, counts, force, way};

use burn::tensor::Device;
use burn::tensor::wgpu::{WgpuInitError, WgpuSetup};

/// Creates Burn's default wgpu device and registers its handles with wgpu-norm. Call it before the device is used.
///
/// # Errors
///
/// If there is no device, or it is already in use.
#[cfg(not(target_family = "wasm"))]
pub fn init() -> Result<Device, WgpuInitError> {
    registered(Device::wgpu_options().init_with_setup()?)
}

/// The same, asynchronously. In a browser nothing else creates a device: Burn panics if one is used before.
///
/// ```no_run
/// use burn::tensor::Tensor;
/// use burn_wgpu_norm::nn::RmsNormConfig;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let device = burn_wgpu_norm::init_async().await?;
/// let layer = RmsNormConfig::new(8).init(&device);
/// let dst = layer.forward(Tensor::<2>::ones([3, 8], &device));
/// let data = dst.into_data_async().await?; // into_data panics in a browser
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If there is no device, or it is already in use.
pub async fn init_async() -> Result<Device, WgpuInitError> {
    registered(Device::wgpu_options().init_with_setup_async().await?)
}

fn registered((device, setup): (Device, WgpuSetup)) -> Result<Device, WgpuInitError> {
    register(&device, &setup).map_err(|error| WgpuInitError::Registration {
        message: error.to_string(),
    })?;
    Ok(device)
}
