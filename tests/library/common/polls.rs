//! Calls that are polled some times only.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a call at most so many times, each time when it has asked for it; returns what it ends with, if it does.
pub fn poll_times<F: Future>(mut call: Pin<&mut F>, polls: u64) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    for _ in 0..polls {
        if let Poll::Ready(end) = call.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(end);
        }
        thread::park_timeout(Duration::from_secs(60));
    }
    None
}
