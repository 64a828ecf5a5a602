//! The lock of the one GL context of a process, and wgpu objects that are freed under it.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// wgpu's GL backend has one GL context for the process. A thread that waits a few seconds for it while another
/// thread's work holds it panics. So the threads of this crate wait for each other here, without a time limit.
static GL: Mutex<()> = Mutex::new(());

thread_local! {
    /// Whether this thread holds the lock. Callbacks run under it, and may drop a [`Held`].
    static LOCKED: Cell<bool> = const { Cell::new(false) };
}

/// The lock of the GL context, until dropped.
pub(super) struct GlLock {
    _guard: MutexGuard<'static, ()>,
}

impl Drop for GlLock {
    fn drop(&mut self) {
        LOCKED.set(false);
    }
}

/// Whether this thread holds the lock.
pub(super) fn holds_gl_lock() -> bool {
    LOCKED.get()
}

/// The lock around calls that may need the GL context; none on other backends, or if this thread holds it already.
pub(super) fn lock_gl(device: &wgpu::Device) -> Option<GlLock> {
    if device.adapter_info().backend != wgpu::Backend::Gl || LOCKED.get() {
        return None;
    }
    let guard = GL.lock().unwrap_or_else(PoisonError::into_inner);
    LOCKED.set(true);
    Some(GlLock { _guard: guard })
}

/// Owns wgpu objects and drops them under the lock, because freeing them needs the GL context. This also covers a
/// future that is dropped while it waits, and a function that returns early.
#[derive(Debug)]
pub(crate) struct Held<T: Default> {
    /// Taken on drop: this may be the device's last owner.
    device: Option<wgpu::Device>,
    objects: T,
}

impl<T: Default> Held<T> {
    pub fn new(device: &wgpu::Device) -> Self {
        Self {
            device: Some(device.clone()),
            objects: T::default(),
        }
    }
}

impl<T: Default> Drop for Held<T> {
    fn drop(&mut self) {
        let device = self.device.take();
        let lock = device.as_ref().and_then(lock_gl);
        drop(std::mem::take(&mut self.objects));
        drop(device);
        drop(lock);
    }
}

impl<T: Default> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.objects
    }
}

impl<T: Default> DerefMut for Held<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.objects
    }
}

#[cfg(all(test, not(target_arch = "wasm32")))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use pollster::block_on;
    use std::future::Future;
    use std::sync::Arc;
    use std::task::{Context, Waker};

    /// Records whether it is dropped under the lock.
    struct Probe(Arc<Mutex<Vec<bool>>>);

    impl Drop for Probe {
        fn drop(&mut self) {
            self.0.lock().unwrap().push(LOCKED.get());
        }
    }

    /// When polled, waits forever with the objects that it holds.
    async fn waits(device: wgpu::Device, seen: Arc<Mutex<Vec<bool>>>) {
        let mut held = Held::<Vec<_>>::new(&device);
        held.push(Probe(seen));
        std::future::pending().await
    }

    #[test]
    fn what_a_dropped_future_holds_is_freed_under_the_lock() {
        for adapter in block_on(crate::context::adapters(wgpu::Backends::all())) {
            let descriptor = wgpu::DeviceDescriptor {
                required_limits: adapter.limits(),
                ..Default::default()
            };
            let (device, _queue) = block_on(adapter.request_device(&descriptor)).unwrap();
            let seen = Arc::default();
            let mut future = Box::pin(waits(device.clone(), Arc::clone(&seen)));
            let mut context = Context::from_waker(Waker::noop());
            assert!(future.as_mut().poll(&mut context).is_pending());
            drop(future);
            // Also drops under the lock, as in a callback, without waiting for itself.
            let lock = lock_gl(&device);
            let mut held = Held::<Vec<_>>::new(&device);
            held.push(Probe(Arc::clone(&seen)));
            drop(held);
            drop(lock);
            assert!(!LOCKED.get());
            let on_gl = adapter.get_info().backend == wgpu::Backend::Gl;
            assert_eq!(*seen.lock().unwrap(), [on_gl, on_gl]);
        }
    }
}
