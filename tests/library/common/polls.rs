//! Calls that are polled some times only.

use std::future::{Future, poll_fn};
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
/// `waits` says whether it has asked for one more when this returns; else what it waits for is still under way.
pub fn poll_times<F: Future + ?Sized>(
    mut call: Pin<&mut F>,
    polls: u64,
    waits: bool,
) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    for poll in 1..=polls {
        if let Poll::Ready(end) = call.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(end);
        }
        if waits || poll < polls {
            thread::park_timeout(Duration::from_secs(60));
        }
    }
    None
}

/// Ends when it is polled for the second time.
pub async fn one_more_poll() {
    let mut is_first = true;
    let poll = |context: &mut Context<'_>| {
        if std::mem::take(&mut is_first) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    };
    poll_fn(poll).await;
}
