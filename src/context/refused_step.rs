//! Refuses a step of a call on request, as a driver does that has no memory left. Only tests have it.

use std::cell::Cell;

thread_local! {
    /// Steps of this thread that are still let through before one is refused.
    static STEPS_BEFORE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Runs `call`, whose step after so many is refused; also says whether it had so many.
pub fn after<T>(steps: u64, call: impl FnOnce() -> T) -> (T, bool) {
    STEPS_BEFORE.set(Some(steps));
    let result = call();
    (result, STEPS_BEFORE.take().is_none())
}

/// The error of a step that is refused.
pub(super) fn error() -> Option<wgpu::Error> {
    let before = STEPS_BEFORE.get()?;
    STEPS_BEFORE.set(before.checked_sub(1));
    let source = "refused by a test".into();
    (before == 0).then_some(wgpu::Error::OutOfMemory { source })
}
