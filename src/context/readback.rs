//! Reads results back to the host without blocking the executor.

use super::scope::Watch;
use super::{GpuContext, mapped};
use crate::error::Error;
use crate::tensor::Tensor;
use futures_intrusive::channel::shared::{OneshotReceiver, oneshot_channel};
use std::future::Future;
use std::ops::Range;

/// Data to write into buffers before work is submitted, and buffers to read after it.
pub(crate) struct Transfers<'a> {
    pub uploads: Vec<(Tensor, &'a wgpu::Buffer, &'a [u8])>,
    /// Each with the number of bytes to read.
    pub downloads: Vec<(Tensor, &'a wgpu::Buffer, u64)>,
}

type Receiver = OneshotReceiver<Result<(), wgpu::BufferAsyncError>>;

/// Requests a buffer's bytes. The receiver is told when they are there.
fn map(buffer: &wgpu::Buffer) -> Receiver {
    let (sender, receiver) = oneshot_channel();
    #[cfg(test)]
    if super::refused_step::error().is_some() {
        let _ = sender.send(Err(wgpu::BufferAsyncError));
        return receiver;
    }
    buffer.map_async(wgpu::MapMode::Read, .., move |result| {
        // The receiver is gone if the caller dropped the future. Nobody wants the result then.
        let _ = sender.send(result);
    });
    receiver
}

/// Submitted work, and the buffers that will be mapped after it.
pub(crate) struct Submitted {
    submission: wgpu::SubmissionIndex,
    receivers: Vec<(Tensor, Receiver)>,
}

impl GpuContext {
    /// Submits the commands that `record` records, and has the buffers `staging` mapped when they are done.
    pub(crate) fn submit(
        &self,
        staging: &[(Tensor, wgpu::Buffer)],
        record: impl FnOnce(&mut wgpu::CommandEncoder),
    ) -> Result<Submitted, Error> {
        // All calls are inside the error scopes: the device may end at any time, and whatever is created after that is
        // invalid.
        self.scoped("submitting", || {
            let descriptor = wgpu::CommandEncoderDescriptor {
                label: Some("wgpu-norm"),
            };
            let mut encoder = self.device().create_command_encoder(&descriptor);
            record(&mut encoder);
            let submission = self.queue().submit([encoder.finish()]);
            let staging = staging.iter();
            let receivers = staging.map(|(tensor, buffer)| (*tensor, map(buffer)));
            Submitted {
                submission,
                receivers: receivers.collect(),
            }
        })
    }

    /// Ends when the submitted work is done and its buffers are mapped.
    pub(crate) fn done(
        &self,
        watch: Watch,
        submitted: Submitted,
    ) -> impl Future<Output = Result<(), Error>> + use<> {
        let Submitted {
            submission,
            receivers,
        } = submitted;
        let done = self.inner.poller.poll_for(submission);
        let verdict = watch.end();
        let gpu = self.clone();
        async move {
            if let Err(error) = verdict.await {
                // A pipeline that was compiled meanwhile may be the invalid object.
                gpu.forget_pipelines();
                return Err(error);
            }
            done.await.map_err(|error| gpu.or_lost(error))?;
            for (tensor, receiver) in receivers {
                let what = tensor.name();
                match receiver.receive().await {
                    Some(Ok(())) => {}
                    Some(Err(error)) => return Err(unreadable(&gpu, tensor, error)),
                    // The poll did not get as far: an earlier callback panicked.
                    None => {
                        return Err(gpu.or_lost(Error::gpu(
                            format!("reading {what}"),
                            "another callback of the device panicked",
                        )));
                    }
                }
            }
            Ok(())
        }
    }

    /// Passes some bytes of a mapped buffer, from a multiple of 8 on, to `take`.
    pub(crate) fn read_mapped<T>(
        &self,
        tensor: Tensor,
        buffer: &wgpu::Buffer,
        bytes: &Range<u64>,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, Error> {
        let size = bytes.end.saturating_sub(bytes.start);
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        // What is mapped begins at a multiple of 8 bytes and consists of whole words, with which buffers end.
        let before = bytes.start % wgpu::MAP_ALIGNMENT;
        let words = bytes.start - before..bytes.end.next_multiple_of(4);
        self.scoped("reading", || {
            // No other code has the buffer, so only the device's end can take it away.
            mapped::read(self.device(), buffer, words, |all| {
                let own = all.get(before as usize..).unwrap_or_default();
                take(own.get(..size).unwrap_or(own))
            })
        })?
        .map_err(|error| unreadable(self, tensor, error))
    }

    /// Uploads, submits the commands that `record` records, and passes the bytes of each download to `take`.
    pub(crate) async fn transfer(
        &self,
        watch: Watch,
        transfers: &Transfers<'_>,
        record: impl FnOnce(&mut wgpu::CommandEncoder),
        mut take: impl FnMut(Tensor, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let sources = &transfers.downloads;
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let mut staging = self.held::<Vec<_>>();
        for &(tensor, _, bytes) in sources {
            let buffer = self.create_buffer(tensor.name(), bytes, usage)?;
            staging.push((tensor, buffer));
        }
        // Uploads come last, since written data is kept until something is submitted.
        for &(tensor, buffer, bytes) in &transfers.uploads {
            if let Err(error) = self.write_buffer(tensor.name(), buffer, 0, bytes) {
                self.flush();
                return Err(error);
            }
        }
        let submitted = self.submit(&staging, |encoder| {
            record(encoder);
            for (&(_, source, bytes), (_, buffer)) in sources.iter().zip(&*staging) {
                // Buffers are created with padding, so whole words can be copied.
                encoder.copy_buffer_to_buffer(source, 0, buffer, 0, bytes.next_multiple_of(4));
            }
        })?;
        self.done(watch, submitted).await?;
        for (&(tensor, _, bytes), (_, buffer)) in sources.iter().zip(&*staging) {
            self.read_mapped(tensor, buffer, &(0..bytes), |bytes| take(tensor, bytes))??;
        }
        Ok(())
    }
}

/// The error of a buffer that cannot be mapped or read. In a browser nobody says whether the device is lost, but no
/// other reason is known.
fn unreadable(gpu: &GpuContext, tensor: Tensor, error: impl std::fmt::Display) -> Error {
    match gpu.or_lost(Error::gpu(format!("reading {}", tensor.name()), error)) {
        Error::Gpu { message, .. } if cfg!(target_arch = "wasm32") => {
            Error::DeviceLost { reason: message }
        }
        error => error,
    }
}
