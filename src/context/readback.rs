//! Results back to the host, without blocking the executor.

use super::GpuContext;
use super::scope::Watch;
use crate::Error;
use futures_intrusive::channel::shared::oneshot_channel;

/// Drives the device while a read-back waits: on native a thread that polls for one submission after
/// the other, started with the first; in a browser nothing, for the browser does it.
#[derive(Debug)]
pub(super) struct Poller {
    #[cfg(not(target_arch = "wasm32"))]
    device: wgpu::Device,
    #[cfg(not(target_arch = "wasm32"))]
    running: std::sync::Mutex<Option<Running>>,
}

/// The thread that polls.
#[cfg(not(target_arch = "wasm32"))]
#[derive(Debug)]
struct Running {
    sender: std::sync::mpsc::Sender<wgpu::SubmissionIndex>,
    thread: std::thread::JoinHandle<()>,
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
            running: std::sync::Mutex::new(None),
        }
    }

    /// Has the device polled until a submission is done.
    #[cfg(not(target_arch = "wasm32"))]
    fn poll_for(&self, submission: wgpu::SubmissionIndex) -> Result<(), Error> {
        let mut running = self
            .running
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let sender = match &*running {
            Some(running) => &running.sender,
            None => &running.insert(self.start()?).sender,
        };
        sender.send(submission).map_err(|_| Error::Gpu {
            operation: "waiting for the device".to_owned(),
            message: "the polling thread has ended".to_owned(),
        })
    }

    #[cfg(not(target_arch = "wasm32"))]
    fn start(&self) -> Result<Running, Error> {
        let (sender, submissions) = std::sync::mpsc::channel();
        let device = self.device.clone();
        // The thread ends when the sender is dropped.
        let poll = move || {
            for submission in submissions {
                wait_for(&device, submission);
            }
        };
        let thread = std::thread::Builder::new()
            .name("wgpu-norm poll".to_owned())
            .spawn(poll)
            .map_err(|error| Error::Gpu {
                operation: "starting the polling thread".to_owned(),
                message: error.to_string(),
            })?;
        Ok(Running { sender, thread })
    }
}

/// Waits for the thread, which would else let go of the device at any later time: while the process
/// ends, for example, when drivers have already torn down what that needs.
#[cfg(not(target_arch = "wasm32"))]
impl Drop for Poller {
    fn drop(&mut self) {
        let running = self
            .running
            .get_mut()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(Running { sender, thread }) = running.take() {
            drop(sender);
            // A callback may hold the last context; a thread cannot wait for itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

/// Polls until a submission is done. On GL a poll holds the context that other threads need, so there
/// it waits in short turns.
#[cfg(not(target_arch = "wasm32"))]
fn wait_for(device: &wgpu::Device, submission: wgpu::SubmissionIndex) {
    loop {
        let turn = super::scope::gl_turn(device);
        let wait = wgpu::PollType::Wait {
            submission_index: Some(submission.clone()),
            timeout: turn.as_ref().map(|_| std::time::Duration::from_millis(20)),
        };
        match device.poll(wait) {
            Ok(_) => return,
            Err(wgpu::PollError::Timeout) => {}
            // What waits for the submission learns of it from its own map.
            Err(error) => return log::error!("polling the device: {error}"),
        }
    }
}

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
    gpu.inner.poller.poll_for(submission)?;
    if let Err(error) = watch.end().await {
        // What was compiled meanwhile may be what is wrong.
        gpu.forget_pipelines();
        return Err(error);
    }
    let lost = |reason: String| match gpu.check_alive() {
        Err(known) => known,
        Ok(()) => Error::DeviceLost { reason },
    };
    let mut ready = Vec::new();
    for (what, buffer, bytes, receiver) in mapped {
        match receiver.receive().await {
            Some(Ok(())) => ready.push((what, buffer, bytes)),
            Some(Err(error)) => return Err(lost(format!("reading {what}: {error}"))),
            None => return Err(lost(format!("reading {what}: no answer"))),
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
