//! Results back to the host, without blocking the executor.

use super::GpuContext;
use super::scope::Watch;
use crate::Error;
use futures_intrusive::channel::shared::oneshot_channel;

pub(super) async fn submit_and_read(
    gpu: &GpuContext,
    watch: Watch,
    record: impl FnOnce(&mut wgpu::CommandEncoder),
    sources: &[(&'static str, &wgpu::Buffer, u64)],
) -> Result<Vec<Vec<u8>>, Error> {
    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
    let mut staging = gpu.held::<Vec<_>>();
    for &(what, _, bytes) in sources {
        staging.push(gpu.create_buffer(what, bytes, usage)?);
    }
    let submission = gpu.scoped("submitting", || {
        let descriptor = wgpu::CommandEncoderDescriptor {
            label: Some("wgpu-norm"),
        };
        let mut encoder = gpu.device().create_command_encoder(&descriptor);
        record(&mut encoder);
        for (&(_, source, bytes), buffer) in sources.iter().zip(&*staging) {
            // Buffers are created with padding, so whole words can be copied.
            encoder.copy_buffer_to_buffer(source, 0, buffer, 0, bytes.next_multiple_of(4));
        }
        gpu.queue().submit([encoder.finish()])
    })?;
    let mut receivers = Vec::new();
    for buffer in &*staging {
        let (sender, receiver) = oneshot_channel();
        buffer.map_async(wgpu::MapMode::Read, .., move |result| {
            // The receiver is gone if the caller dropped the future: nobody wants the result.
            let _ = sender.send(result);
        });
        receivers.push(receiver);
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
    for (&(what, ..), receiver) in sources.iter().zip(receivers) {
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
    let read = |(&(what, _, bytes), buffer): (&(&str, &wgpu::Buffer, u64), &wgpu::Buffer)| {
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        // Nobody else has the buffer, so only the device's end can take it away.
        let view = buffer
            .get_mapped_range(..)
            .map_err(|error| lost(format!("reading {what}: {error}")))?;
        Ok(view.get(..size).unwrap_or(&view).to_vec())
    };
    let pairs = sources.iter().zip(&*staging);
    gpu.scoped("reading", || pairs.map(read).collect())?
}
