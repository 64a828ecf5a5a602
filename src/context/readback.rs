//! Results back to the host, without blocking the executor.

use super::scope::Watch;
use super::{GpuContext, mapped};
use crate::Error;
use crate::kernels::Tensor;
use futures_intrusive::channel::shared::{OneshotReceiver, oneshot_channel};

/// What to write into a buffer before work is submitted, and what to read of one after it.
pub(crate) struct Transfers<'a> {
    pub uploads: Vec<(Tensor, &'a wgpu::Buffer, &'a [u8])>,
    /// With the bytes to read.
    pub downloads: Vec<(Tensor, &'a wgpu::Buffer, u64)>,
}

/// Asks for a buffer's bytes. The receiver learns when they are there.
fn map(buffer: &wgpu::Buffer) -> OneshotReceiver<Result<(), wgpu::BufferAsyncError>> {
    let (sender, receiver) = oneshot_channel();
    buffer.map_async(wgpu::MapMode::Read, .., move |result| {
        // The receiver is gone if the caller dropped the future: nobody wants the result.
        let _ = sender.send(result);
    });
    receiver
}

/// Uploads, submits what `record` records, and gives what was read to `take`.
pub(super) async fn submit_and_read(
    gpu: &GpuContext,
    watch: Watch,
    transfers: &Transfers<'_>,
    record: impl FnOnce(&mut wgpu::CommandEncoder),
    mut take: impl FnMut(Tensor, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let sources = &transfers.downloads;
    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
    let mut staging = gpu.held::<Vec<_>>();
    for &(tensor, _, bytes) in sources {
        staging.push(gpu.create_buffer(tensor.name(), bytes, usage)?);
    }
    // Last, since what is written is kept until something is submitted.
    for &(tensor, buffer, bytes) in &transfers.uploads {
        if let Err(error) = gpu.write_buffer(tensor.name(), buffer, bytes) {
            gpu.flush();
            return Err(error);
        }
    }
    // In scopes to the last call: the device may end at any time, and all that is created after that is invalid.
    let (submission, receivers) = gpu.scoped("submitting", || {
        let descriptor = wgpu::CommandEncoderDescriptor {
            label: Some("wgpu-norm"),
        };
        let mut encoder = gpu.device().create_command_encoder(&descriptor);
        record(&mut encoder);
        for (&(_, source, bytes), buffer) in sources.iter().zip(&*staging) {
            // Buffers are created with padding, so whole words can be copied.
            encoder.copy_buffer_to_buffer(source, 0, buffer, 0, bytes.next_multiple_of(4));
        }
        let submission = gpu.queue().submit([encoder.finish()]);
        let receivers: Vec<_> = staging.iter().map(map).collect();
        (submission, receivers)
    })?;
    let done = gpu.inner.poller.poll_for(submission);
    if let Err(error) = watch.end().await {
        // What was compiled meanwhile may be what is wrong.
        gpu.forget_pipelines();
        return Err(error);
    }
    done.await.map_err(|error| gpu.or_lost(error))?;
    let lost = |reason: String| match gpu.check_alive() {
        Err(known) => known,
        Ok(()) => Error::DeviceLost { reason },
    };
    for (&(tensor, ..), receiver) in sources.iter().zip(receivers) {
        let what = tensor.name();
        match receiver.receive().await {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(lost(format!("reading {what}: {error}"))),
            // Whoever polled did not get as far: a callback before ours panicked.
            None => {
                return Err(gpu.or_lost(Error::Gpu {
                    operation: format!("reading {what}"),
                    message: "another callback of the device panicked".to_owned(),
                }));
            }
        }
    }
    gpu.scoped("reading", || {
        for (&(tensor, _, bytes), buffer) in sources.iter().zip(&*staging) {
            let size = usize::try_from(bytes).unwrap_or(usize::MAX);
            // Nobody else has the buffer, so only the device's end can take it away.
            let taken = mapped::read(gpu.device(), buffer, |all| {
                take(tensor, all.get(..size).unwrap_or(all))
            });
            taken.map_err(|error| lost(format!("reading {}: {error}", tensor.name())))??;
        }
        Ok(())
    })?
}
