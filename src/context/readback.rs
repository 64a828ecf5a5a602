//! Results back to the host, without blocking the executor.

use super::GpuContext;
use super::scope::Watch;
use crate::Error;
use futures_intrusive::channel::shared::oneshot_channel;

pub(super) async fn submit_and_read(
    gpu: &GpuContext,
    watch: Watch,
    mut encoder: wgpu::CommandEncoder,
    sources: &[(&'static str, &wgpu::Buffer, u64)],
) -> Result<Vec<Vec<u8>>, Error> {
    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
    let mut staging = Vec::new();
    for &(what, source, bytes) in sources {
        let buffer = gpu.create_buffer(what, bytes, usage)?;
        // Buffers are created with padding, so whole words can be copied.
        encoder.copy_buffer_to_buffer(source, 0, &buffer, 0, bytes.next_multiple_of(4));
        staging.push((what, buffer, bytes));
    }
    let queue = gpu.queue();
    let submission = gpu.scoped("submitting", || queue.submit([encoder.finish()]))?;
    let mut mapped = Vec::new();
    for (what, buffer, bytes) in staging {
        let (sender, receiver) = oneshot_channel();
        buffer.map_async(wgpu::MapMode::Read, .., move |result| {
            // The receiver is gone if the caller dropped the future: nobody wants the result.
            let _ = sender.send(result);
        });
        mapped.push((what, buffer, bytes, receiver));
    }
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
    let mut ready = Vec::new();
    for (what, buffer, bytes, receiver) in mapped {
        match receiver.receive().await {
            Some(Ok(())) => ready.push((what, buffer, bytes)),
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
    // Reading unmaps and frees the buffers, which needs the GL context too.
    let read = |(what, buffer, bytes): (&str, wgpu::Buffer, u64)| {
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        // Nobody else has the buffer, so only the device's end can take it away.
        let view = buffer
            .get_mapped_range(..)
            .map_err(|error| lost(format!("reading {what}: {error}")))?;
        Ok(view.get(..size).unwrap_or(&view).to_vec())
    };
    gpu.scoped("reading", || ready.into_iter().map(read).collect())?
}
