//! Burn's devices, and contexts on the handles of registered ones.

use burn::backend::wgpu::WgpuSetup;
use burn::backend::{CubeDevice, DispatchDevice};
use burn::tensor::Device;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use wgpu_norm::{DeviceOptions, Error, GpuContext};

/// The CubeCL device behind a Burn device.
pub(crate) fn cube_device(device: &Device) -> Option<CubeDevice> {
    match device.as_dispatch().clone().inner() {
        DispatchDevice::Cube(device) => Some(device),
        #[allow(unreachable_patterns)]
        _ => None,
    }
}

static CONTEXTS: Mutex<Option<HashMap<CubeDevice, GpuContext>>> = Mutex::new(None);

/// The context on a device's handles; an error if they are not registered.
pub(crate) fn context(device: &CubeDevice) -> Result<GpuContext, Error> {
    let contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    let gpu = contexts.as_ref().and_then(|contexts| contexts.get(device));
    let expected = "one that was registered";
    gpu.cloned()
        .ok_or_else(|| Error::argument("device", expected, format_args!("{device:?}")))
}

/// The error for a device that is not one of wgpu's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterError {
    device: String,
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device: expected one of wgpu's, got {}", self.device)
    }
}

impl std::error::Error for RegisterError {}

/// Registers the handles of a Burn device, as [`init`](crate::init) does: for programs that initialize the device
/// themselves, for example to choose an adapter.
///
/// ```
/// use burn::tensor::{Device, DeviceKind};
///
/// let options = Device::wgpu_options().device_kind(DeviceKind::IntegratedGpu(0));
/// let device = match options.init_with_setup() {
///     Ok((device, setup)) => {
///         burn_wgpu_norm::register(&device, &setup)?;
///         device
///     }
///     Err(_) => Device::default(), // a machine without one
/// };
/// # drop(device);
/// # Ok::<(), burn_wgpu_norm::RegisterError>(())
/// ```
///
/// # Errors
///
/// If the device is not one of wgpu's.
pub fn register(device: &Device, setup: &WgpuSetup) -> Result<(), RegisterError> {
    let of_wgpu = |cube: &CubeDevice| cube.client().name().starts_with("wgpu<");
    let cube = cube_device(device).filter(of_wgpu);
    let device = cube.ok_or_else(|| RegisterError {
        device: format!("{device:?}"),
    })?;
    let gpu = GpuContext::from_device(
        setup.device.clone(),
        setup.queue.clone(),
        DeviceOptions::default(),
    );
    let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    contexts.get_or_insert_default().insert(device, gpu);
    Ok(())
}
