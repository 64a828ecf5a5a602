//! Error scopes: around synchronous calls that create objects, and in a browser around async calls.

use super::gl_lock::lock_gl;
use crate::error::Error;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// An error that wgpu reported.
pub(super) struct Complaint(wgpu::Error);

impl Complaint {
    pub fn typed(self, what: &'static str, bytes: u64) -> Error {
        match self.0 {
            wgpu::Error::OutOfMemory { .. } => Error::out_of_memory(what, bytes),
            _ => self.in_operation(what),
        }
    }

    pub fn in_operation(self, operation: &str) -> Error {
        Error::gpu(operation, self.0)
    }
}

const FILTERS: [wgpu::ErrorFilter; 3] = [
    wgpu::ErrorFilter::Validation,
    wgpu::ErrorFilter::Internal,
    wgpu::ErrorFilter::OutOfMemory,
];

/// Runs `create` inside error scopes. The scopes belong to this thread and are closed before the function returns.
///
/// In a browser, errors are known only later, so there are no scopes here. Errors go to the [`Watch`] around the call
/// or, if a caller binds buffers of its own, to the device's handler of uncaptured errors.
pub(super) fn scoped<T>(device: &wgpu::Device, create: impl FnOnce() -> T) -> Result<T, Complaint> {
    let _lock = lock_gl(device);
    if cfg!(target_arch = "wasm32") {
        return Ok(create());
    }
    let mut scopes = FILTERS.map(|filter| Some(device.push_error_scope(filter)));
    let result = create();
    let mut complaint = None;
    for scope in scopes.iter_mut().rev() {
        // The innermost scope is popped first.
        let popped = scope.take().map(|scope| now(scope.pop()));
        complaint = popped.flatten().or(complaint);
    }
    #[cfg(test)]
    let complaint = super::refused_step::error().or(complaint);
    match complaint {
        None => Ok(result),
        Some(error) => Err(Complaint(error)),
    }
}

/// A scope's result, which on native is there at once.
fn now(verdict: impl Future<Output = Option<wgpu::Error>>) -> Option<wgpu::Error> {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(verdict).poll(&mut context) {
        Poll::Ready(error) => error,
        Poll::Pending => None,
    }
}

/// Error scopes around the part of an async call before its first wait: in a browser, where [`scoped`] sees no errors.
/// Elsewhere it does nothing.
pub(crate) struct Watch {
    #[cfg(target_arch = "wasm32")]
    scopes: Vec<wgpu::ErrorScopeGuard>,
    #[cfg(target_arch = "wasm32")]
    bytes: u64,
}

#[cfg(not(target_arch = "wasm32"))]
impl Watch {
    pub fn begin(_device: &wgpu::Device, _bytes: u64) -> Self {
        Self {}
    }

    pub fn end(self) -> impl Future<Output = Result<(), Error>> {
        std::future::ready(Ok(()))
    }
}

#[cfg(target_arch = "wasm32")]
impl Watch {
    /// Begins the scopes of a call that needs this many bytes of the device.
    pub fn begin(device: &wgpu::Device, bytes: u64) -> Self {
        let scopes = FILTERS.map(|filter| device.push_error_scope(filter));
        Self {
            scopes: scopes.into(),
            bytes,
        }
    }

    /// Closes the scopes now. The result comes later.
    pub fn end(mut self) -> impl Future<Output = Result<(), Error>> {
        let bytes = self.bytes;
        let mut verdicts = Vec::new();
        while let Some(scope) = self.scopes.pop() {
            verdicts.push(scope.pop());
        }
        async move {
            let mut complaint = None;
            for verdict in verdicts {
                complaint = verdict.await.or(complaint);
            }
            let typed = |error| Err(Complaint(error).typed("the call's buffers together", bytes));
            complaint.map_or(Ok(()), typed)
        }
    }
}

/// The innermost scope must be popped first.
#[cfg(target_arch = "wasm32")]
impl Drop for Watch {
    fn drop(&mut self) {
        while self.scopes.pop().is_some() {}
    }
}
