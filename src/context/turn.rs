//! Turns at the one GL context of a process, and wgpu objects that are freed in one.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// wgpu's GL backend panics in a thread that waits a few seconds for the one GL context of the process
/// while another thread's work holds it. So our threads wait for each other here, without a limit.
static GL: Mutex<()> = Mutex::new(());

thread_local! {
    /// Whether this thread has the turn: callbacks run inside of one, and may let go of a [`Held`].
    static IN_TURN: Cell<bool> = const { Cell::new(false) };
}

/// A turn at the GL context, until dropped.
pub(super) struct Turn {
    _guard: MutexGuard<'static, ()>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        IN_TURN.set(false);
    }
}

/// Whether this thread has a turn.
pub(super) fn in_turn() -> bool {
    IN_TURN.get()
}

/// Held around calls that may need the GL context; nothing on other backends and inside of a turn.
pub(super) fn gl_turn(device: &wgpu::Device) -> Option<Turn> {
    if device.adapter_info().backend != wgpu::Backend::Gl || IN_TURN.get() {
        return None;
    }
    let guard = GL.lock().unwrap_or_else(PoisonError::into_inner);
    IN_TURN.set(true);
    Some(Turn { _guard: guard })
}

/// Owns wgpu objects and lets go of them in a turn, for freeing them needs the GL context: also where a
/// future is dropped while it waits, or a function returns early.
#[derive(Debug)]
pub(crate) struct Held<T: Default> {
    /// Taken when dropped: it may be the device's last owner.
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
        let turn = device.as_ref().and_then(gl_turn);
        drop(std::mem::take(&mut self.objects));
        drop(device);
        drop(turn);
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

    /// Notes whether it is dropped in a turn.
    struct Probe(Arc<Mutex<Vec<bool>>>);

    impl Drop for Probe {
        fn drop(&mut self) {
            self.0.lock().unwrap().push(IN_TURN.get());
        }
    }

    /// Polled once: it waits with what it holds.
    async fn waits(device: wgpu::Device, seen: Arc<Mutex<Vec<bool>>>) {
        let mut held = Held::<Vec<_>>::new(&device);
        held.push(Probe(seen));
        std::future::pending().await
    }

    #[test]
    fn what_a_dropped_future_holds_is_freed_in_a_turn() {
        for adapter in block_on(crate::adapters(wgpu::Backends::all())) {
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
            // And inside of a turn, as in a callback, without waiting for itself.
            let turn = gl_turn(&device);
            let mut held = Held::<Vec<_>>::new(&device);
            held.push(Probe(Arc::clone(&seen)));
            drop(held);
            drop(turn);
            assert!(!IN_TURN.get());
            let on_gl = adapter.get_info().backend == wgpu::Backend::Gl;
            assert_eq!(*seen.lock().unwrap(), [on_gl, on_gl]);
        }
    }
}
