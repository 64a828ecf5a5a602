//! Results back to the host, without blocking the executor.

use super::GpuContext;
use crate::Error;
use futures_intrusive::channel::shared::oneshot_channel;

/// Drives the device while a read-back waits: on native a thread that polls for one submission after
/// the other, started with the first; in a browser nothing, for the browser does it.
#[derive(Debug)]
pub(super) struct Poller {
    #[cfg(not(target_arch = "wasm32"))]
    device: wgpu::Device,
    #[cfg(not(target_arch = "wasm32"))]
    thread: std::sync::Mutex<Option<PollThread>>,
}

#[cfg(not(target_arch = "wasm32"))]
#[derive(Debug)]
struct PollThread {
    sender: std::sync::mpsc::Sender<wgpu::SubmissionIndex>,
    handle: std::thread::JoinHandle<()>,
}

/// The thread has a handle of the device, so it must not outlive the context: a driver does not
/// survive that a device is torn down while the process exits.
#[cfg(not(target_arch = "wasm32"))]
impl Drop for Poller {
    fn drop(&mut self) {
        let thread = self.thread.get_mut();
        let thread = thread.unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(PollThread { sender, handle }) = thread.take() {
            drop(sender);
            // A waker that the thread runs may drop the last context.
            if handle.thread().id() != std::thread::current().id() && handle.join().is_err() {
                log::error!("the polling thread panicked");
            }
        }
    }
}

impl Poller {
    #[cfg(target_arch = "wasm32")]
    pub fn new(_device: wgpu::Device) -> Self {
        Self {}
    }

    #[cfg(target_arch = "wasm32")]
    fn poll_for(&self, _submission: wgpu::SubmissionIndex) -> Result<(), Error> {
        Ok(())
    }

    #[cfg(not(target_arch = "wasm32"))]
    pub fn new(device: wgpu::Device) -> Self {
        Self {
            device,
            thread: std::sync::Mutex::new(None),
        }
    }

    /// Has the device polled until a submission is done.
    #[cfg(not(target_arch = "wasm32"))]
    fn poll_for(&self, submission: wgpu::SubmissionIndex) -> Result<(), Error> {
        let mut thread = self
            .thread
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let running = match &*thread {
            Some(running) => running,
            None => &*thread.insert(self.start()?),
        };
        running.sender.send(submission).map_err(|_| Error::Gpu {
            operation: "waiting for the device".to_owned(),
            message: "the polling thread has ended".to_owned(),
        })
    }

    #[cfg(not(target_arch = "wasm32"))]
    fn start(&self) -> Result<PollThread, Error> {
        let (sender, submissions) = std::sync::mpsc::channel();
        let device = self.device.clone();
        // The thread ends when the context, and with it the sender, is dropped.
        let poll = move || {
            for submission in submissions {
                let wait = wgpu::PollType::Wait {
                    submission_index: Some(submission),
                    timeout: None,
                };
                if let Err(error) = device.poll(wait) {
                    // What waits for the submission learns of it from its own map.
                    log::error!("polling the device: {error}");
                }
            }
        };
        let handle = std::thread::Builder::new()
            .name("wgpu-norm poll".to_owned())
            .spawn(poll)
            .map_err(|error| Error::Gpu {
                operation: "starting the polling thread".to_owned(),
                message: error.to_string(),
            })?;
        Ok(PollThread { sender, handle })
    }
}

pub(super) async fn submit_and_read(
    gpu: &GpuContext,
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
    gpu.inner.poller.poll_for(submission)?;
    let mut results = Vec::new();
    for (what, buffer, bytes, receiver) in mapped {
        let lost = |reason: String| match gpu.check_alive() {
            Err(known) => known,
            Ok(()) => Error::DeviceLost { reason },
        };
        match receiver.receive().await {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(lost(format!("reading {what}: {error}"))),
            None => return Err(lost(format!("reading {what}: no answer"))),
        }
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        // Nobody else has the buffer, so only the device's end can take it away.
        let view = buffer
            .get_mapped_range(..)
            .map_err(|error| lost(format!("reading {what}: {error}")))?;
        results.push(view.get(..size).unwrap_or(&view).to_vec());
    }
    Ok(results)
}
