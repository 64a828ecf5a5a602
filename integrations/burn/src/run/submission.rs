//! wgpu-norm's own submission on the queue that CubeCL submits to.

use super::{Memory, Prepared};
use burn::backend::CubeDevice;
use burn::backend::wgpu::WgpuSetup;
use burn::tensor::Device;
use cubecl::client::Client;
use cubecl::wgpu::{AutoCompiler, WgpuServer};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use wgpu_norm::{BufferRange, DeviceOptions, Error, GpuContext};

static CONTEXTS: Mutex<Option<HashMap<CubeDevice, GpuContext>>> = Mutex::new(None);

/// Whether a device's handles were registered.
pub fn is_registered(device: &CubeDevice) -> bool {
    context(device).is_ok()
}

/// The context on a device's handles; an error unless they were registered.
pub fn context(device: &CubeDevice) -> Result<GpuContext, Error> {
    let contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    let gpu = contexts.as_ref().and_then(|contexts| contexts.get(device));
    gpu.cloned().ok_or_else(|| Error::Argument {
        argument: "device",
        expected: "one that was registered".to_owned(),
        got: format!("{device:?}"),
    })
}

/// A device that has no handles of wgpu's.
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

/// Tells the handles of a device of Burn's, as [`init`](crate::init) does: for those who initialize it themselves, as where
/// an adapter is chosen.
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
/// Where the device is none of wgpu's.
pub fn register(device: &Device, setup: &WgpuSetup) -> Result<(), RegisterError> {
    let of_wgpu = |cube: &CubeDevice| cube.client().name().starts_with("wgpu<");
    let cube = crate::way::cube_device(device).filter(of_wgpu);
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

/// Records and submits a plan. What CubeCL has queued is submitted before, so that the queue's order is that of the
/// program.
pub fn run(
    client: &Client,
    device: &CubeDevice,
    prepared: &Prepared,
    handles: Vec<Memory>,
) -> Result<(), Error> {
    let gpu = context(device)?;
    // They pin the memory: held until all is submitted.
    let mut held = Vec::new();
    for (role, handle) in handles {
        let resource = client
            .get_resource::<WgpuServer<AutoCompiler>>(handle)
            .map_err(|error| Error::Argument {
                argument: role.name(),
                expected: "memory of the device".to_owned(),
                got: error.to_string(),
            })?;
        held.push((role, resource));
    }
    let ranges: Vec<_> = held
        .iter()
        .map(|(role, resource)| {
            let resource = resource.resource();
            let range = BufferRange {
                buffer: &resource.buffer,
                offset: resource.offset,
                size: Some(resource.size.next_multiple_of(4)),
            };
            (*role, range)
        })
        .collect();
    let bound = prepared.plan.bind(&gpu, &ranges)?;
    let mut encoder = gpu.device().create_command_encoder(&Default::default());
    bound.record(&mut encoder);
    gpu.queue().submit([encoder.finish()]);
    Ok(())
}
