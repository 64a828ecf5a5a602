//! Error scopes around synchronous calls that create objects.

use crate::Error;
use std::future::Future;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// What wgpu complained of.
pub(super) struct Complaint(wgpu::Error);

impl Complaint {
    pub fn typed(self, what: &'static str, bytes: u64) -> Error {
        match self.0 {
            wgpu::Error::OutOfMemory { .. } => Error::OutOfMemory { what, bytes },
            _ => self.in_operation(what),
        }
    }

    pub fn in_operation(self, operation: &str) -> Error {
        Error::Gpu {
            operation: operation.to_owned(),
            message: self.0.to_string(),
        }
    }
}

/// wgpu's GL backend panics in a thread that waits a few seconds for the one GL context of the process
/// while another thread's work holds it. So our threads wait for each other here, without a limit.
static GL: Mutex<()> = Mutex::new(());

/// Held around calls that may need the GL context; nothing on other backends.
pub(super) fn gl_turn(device: &wgpu::Device) -> Option<MutexGuard<'static, ()>> {
    match device.adapter_info().backend {
        wgpu::Backend::Gl => Some(GL.lock().unwrap_or_else(PoisonError::into_inner)),
        _ => None,
    }
}

/// Runs `create` inside of error scopes. The scopes belong to this thread and are closed before
/// returning.
pub(super) fn scoped<T>(device: &wgpu::Device, create: impl FnOnce() -> T) -> Result<T, Complaint> {
    let _turn = gl_turn(device);
    let filters = [
        wgpu::ErrorFilter::Validation,
        wgpu::ErrorFilter::Internal,
        wgpu::ErrorFilter::OutOfMemory,
    ];
    let mut scopes = filters.map(|filter| Some(device.push_error_scope(filter)));
    let result = create();
    let mut complaint = None;
    for scope in scopes.iter_mut().rev() {
        // The innermost scope is popped first.
        let popped = scope.take().map(|scope| now(scope.pop()));
        complaint = popped.flatten().or(complaint);
    }
    match complaint {
        None => Ok(result),
        Some(error) => Err(Complaint(error)),
    }
}

/// The scope's verdict. On native it is there at once; in a browser it comes later, and what it says
/// then is for the device's own handler of uncaptured errors to tell.
fn now(verdict: impl Future<Output = Option<wgpu::Error>>) -> Option<wgpu::Error> {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(verdict).poll(&mut context) {
        Poll::Ready(error) => error,
        Poll::Pending => None,
    }
}
