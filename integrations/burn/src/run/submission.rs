//! wgpu-norm's own submission on the queue that CubeCL submits to.

use super::{Memory, Prepared};
use burn::backend::CubeDevice;
use burn::backend::wgpu::WgpuSetup;
use burn::tensor::Device;
use cubecl::client::Client;
use cubecl::wgpu::{AutoCompiler, WgpuServer};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use wgpu_norm::{BufferRange, DeviceOptions, Error, GpuContext};

static CONTEXTS: Mutex<Option<HashMap<CubeDevice, GpuContext>>> = Mutex::new(None);

/// The context on a device's handles, if they were registered.
pub fn context(device: &CubeDevice) -> Option<GpuContext> {
    let contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    contexts.as_ref()?.get(device).cloned()
}

/// Tells the handles of a device of Burn's, as [`init`](crate::init) does: for those who initialize it themselves.
pub fn register(device: &Device, setup: &WgpuSetup) {
    let Some(device) = crate::way::cube_device(device) else {
        return;
    };
    let gpu = GpuContext::from_device(
        setup.device.clone(),
        setup.queue.clone(),
        DeviceOptions::default(),
    );
    let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    contexts.get_or_insert_default().insert(device, gpu);
}

/// Records and submits a plan. What CubeCL has queued is submitted before, so that the queue's order is that of the
/// program.
pub fn run(
    client: &Client,
    device: &CubeDevice,
    prepared: &Prepared,
    handles: Vec<Memory>,
) -> Result<(), Error> {
    let gpu = context(device).ok_or(Error::Argument {
        argument: "device",
        expected: "one that was registered".to_owned(),
        got: format!("{device:?}"),
    })?;
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
