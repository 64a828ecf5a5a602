//! Drives the device while a read-back waits. On native, a thread polls for one submission after the other; it starts
//! with the first. A browser drives the device itself.

#[cfg(not(target_arch = "wasm32"))]
pub(super) use native::Poller;
#[cfg(target_arch = "wasm32")]
pub(super) use web::Poller;

#[cfg(target_arch = "wasm32")]
mod web {
    use crate::error::Error;
    use std::future::{Ready, ready};

    #[derive(Debug)]
    pub struct Poller;

    impl Poller {
        pub fn new(_device: wgpu::Device) -> Self {
            Self
        }

        pub fn poll_for(&self, _submission: wgpu::SubmissionIndex) -> Ready<Result<(), Error>> {
            ready(Ok(()))
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod native {
    use super::super::gl_lock::{holds_gl_lock, lock_gl};
    use crate::error::Error;
    use futures_intrusive::channel::shared::{OneshotReceiver, OneshotSender, oneshot_channel};
    use std::any::Any;
    use std::future::Future;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Mutex, PoisonError, mpsc};
    use std::thread;
    use std::time::Duration;

    #[derive(Debug)]
    pub struct Poller {
        device: wgpu::Device,
        running: Mutex<Option<Running>>,
    }

    /// The thread that polls.
    #[derive(Debug)]
    struct Running {
        requests: mpsc::Sender<Request>,
        thread: thread::JoinHandle<()>,
    }

    #[derive(Debug)]
    struct Request {
        submission: wgpu::SubmissionIndex,
        answer: OneshotSender<Result<(), String>>,
    }

    impl Poller {
        pub fn new(device: wgpu::Device) -> Self {
            Self {
                device,
                running: Mutex::new(None),
            }
        }

        /// Has the device polled until a submission is done, even if the future is not polled or is dropped.
        pub fn poll_for(
            &self,
            submission: wgpu::SubmissionIndex,
        ) -> impl Future<Output = Result<(), Error>> + use<> {
            let asked = self.ask(submission);
            async move {
                let answer = asked?.receive().await;
                let ended = || Err("the polling thread has ended".to_owned());
                answer.unwrap_or_else(ended).map_err(|message| Error::Gpu {
                    operation: "waiting for the device".to_owned(),
                    message,
                })
            }
        }

        fn ask(
            &self,
            submission: wgpu::SubmissionIndex,
        ) -> Result<OneshotReceiver<Result<(), String>>, Error> {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            if running.as_ref().is_some_and(|r| r.thread.is_finished()) {
                *running = None;
            }
            let requests = match &*running {
                Some(running) => &running.requests,
                None => &running.insert(self.start()?).requests,
            };
            let (answer, receiver) = oneshot_channel();
            // If nobody takes the request, it is dropped together with its sender, and the receiver is told.
            let _ = requests.send(Request { submission, answer });
            Ok(receiver)
        }

        fn start(&self) -> Result<Running, Error> {
            let (requests, receiver) = mpsc::channel();
            let device = self.device.clone();
            // The thread ends when the sender is dropped.
            let poll = move || {
                for Request { submission, answer } in receiver {
                    // wgpu panics if the device is lost, and the caller's callbacks run here too. Going on is sound:
                    // wgpu holds no lock of its own around either, and no data of this crate changes in between.
                    let waited = catch_unwind(AssertUnwindSafe(|| wait_for(&device, submission)));
                    let panicked = |panic| Err(format!("polling panicked: {}", text_of(panic)));
                    // The receiver is gone if the caller dropped the future.
                    let _ = answer.send(waited.unwrap_or_else(panicked));
                }
            };
            let thread = thread::Builder::new()
                .name("wgpu-norm poll".to_owned())
                .spawn(poll)
                .map_err(|error| Error::Gpu {
                    operation: "starting the polling thread".to_owned(),
                    message: error.to_string(),
                })?;
            Ok(Running { requests, thread })
        }
    }

    /// Waits for the thread. Otherwise it might drop the device at any later time, for example while the process ends,
    /// when drivers have already torn down what the device needs.
    impl Drop for Poller {
        fn drop(&mut self) {
            let running = self.running.get_mut();
            let running = running.unwrap_or_else(PoisonError::into_inner).take();
            if let Some(Running { requests, thread }) = running {
                drop(requests);
                // A callback may hold the last context. Its thread cannot wait for itself. Under the lock of GL it must
                // not wait for a thread that may wait for the lock.
                if thread.thread().id() != thread::current().id() && !holds_gl_lock() {
                    let _ = thread.join();
                }
            }
        }
    }

    /// Polls until a submission is done. On GL a poll holds the context that other threads need, so it holds the lock
    /// only for a short time at once.
    fn wait_for(device: &wgpu::Device, submission: wgpu::SubmissionIndex) -> Result<(), String> {
        loop {
            let lock = lock_gl(device);
            let wait = wgpu::PollType::Wait {
                submission_index: Some(submission.clone()),
                timeout: lock.as_ref().map(|_| Duration::from_millis(20)),
            };
            match device.poll(wait) {
                Ok(_) => return Ok(()),
                Err(wgpu::PollError::Timeout) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// The message of a panic.
    fn text_of(panic: Box<dyn Any + Send>) -> String {
        match panic.downcast::<String>() {
            Ok(text) => *text,
            Err(panic) => match panic.downcast::<&str>() {
                Ok(text) => (*text).to_owned(),
                Err(_) => "without a message".to_owned(),
            },
        }
    }
}
