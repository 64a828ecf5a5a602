//! wgpu-norm's own submission on the queue that CubeCL submits to.

use super::Memory;
use crate::device::context;
use crate::plans::Prepared;
use burn::backend::CubeDevice;
use cubecl::client::Client;
use cubecl::wgpu::{AutoCompiler, WgpuServer};
use wgpu_norm::{BufferRange, Error};

/// Records and submits a plan. Everything that CubeCL has queued is submitted first, so that the queue has the
/// program's order.
pub fn run(
    client: &Client,
    device: &CubeDevice,
    prepared: &Prepared,
    handles: Vec<Memory>,
) -> Result<(), Error> {
    let gpu = context(device)?;
    // These pin the memory and are held until everything is submitted.
    let mut held = Vec::new();
    for (role, handle) in handles {
        let resource = client
            .get_resource::<WgpuServer<AutoCompiler>>(handle)
            .map_err(|error| Error::argument(role.name(), "memory of the device", error))?;
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
