//! The three ways to run a layer, and how often each was taken.

use crate::device::{context, cube_device};
use burn::tensor::Device;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// How a layer's passes run on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// wgpu-norm's WGSL as CubeCL kernels: where CubeCL compiles WGSL.
    Kernels,
    /// wgpu-norm's own submission on the device's queue: where CubeCL compiles SPIR-V or MSL, and [`init`](crate::init)
    /// or [`register`](crate::register) was called. Each pass flushes what Burn has queued, makes bind groups and
    /// submits once.
    Submission,
    /// Burn's own operations: elsewhere, and for cases without a plan of wgpu-norm's.
    Burn,
}

/// The ways to run wgpu-norm's plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Launch {
    /// [`Way::Kernels`].
    Kernels,
    /// [`Way::Submission`].
    Submission,
}

impl From<Launch> for Way {
    fn from(launch: Launch) -> Self {
        match launch {
            Launch::Kernels => Self::Kernels,
            Launch::Submission => Self::Submission,
        }
    }
}

/// The number of passes that ran each way in this process. A forward pass and its gradient count as one each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By [`Way::Kernels`].
    pub kernels: u64,
    /// By [`Way::Submission`].
    pub submission: u64,
    /// By [`Way::Burn`]: only forward passes, since Burn runs the gradients itself then.
    pub burn: u64,
}

static COUNTS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// The number of passes that ran each way so far. Burn runs lazily: passes that nobody has waited for may not be
/// counted yet.
pub fn counts() -> Counts {
    let [kernels, submission, burn] = [Way::Kernels, Way::Submission, Way::Burn]
        .map(|way| COUNTS[way as usize].load(Ordering::Relaxed));
    Counts {
        kernels,
        submission,
        burn,
    }
}

pub(crate) fn count(way: Way) {
    COUNTS[way as usize].fetch_add(1, Ordering::Relaxed);
}

const UNFORCED: u8 = u8::MAX;
static FORCED: AtomicU8 = AtomicU8::new(UNFORCED);

/// Makes all layers of the process run one way if the device can; `None` restores the choice. For tests, for
/// measurements, and to find out whether a fault is in this crate.
pub fn force(way: Option<Way>) {
    let way = way.map_or(UNFORCED, |way| way as u8);
    FORCED.store(way, Ordering::Relaxed);
}

/// The way in which layers run on a device, if wgpu-norm has plans for them.
pub fn way(device: &Device) -> Way {
    choose(device).map_or(Way::Burn, Way::from)
}

/// The same, or the reason why Burn runs them.
pub(crate) fn choose(device: &Device) -> Result<Launch, String> {
    let Some(device) = cube_device(device) else {
        return Err("the device is not one of wgpu's".to_owned());
    };
    let forced = FORCED.load(Ordering::Relaxed);
    if forced == Way::Burn as u8 {
        return Err("Burn's own operations were asked for".to_owned());
    }
    let registered = context(&device).is_ok();
    match device.client().name() {
        "wgpu<wgsl>" if registered && forced == Way::Submission as u8 => Ok(Launch::Submission),
        "wgpu<wgsl>" => Ok(Launch::Kernels),
        "wgpu<spirv>" | "wgpu<msl>" if registered => Ok(Launch::Submission),
        name @ ("wgpu<spirv>" | "wgpu<msl>") => Err(format!(
            "on {name}, burn_wgpu_norm::init must be called before the device is used"
        )),
        name => Err(format!("the device's runtime is {name}, not wgpu")),
    }
}

/// Logs a reason why Burn's own operations run, once for each reason.
pub(crate) fn say(reason: &str) {
    static SAID: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.get_or_insert_default().insert(reason.to_owned()) {
        log::warn!("Burn's own operations run normalization layers: {reason}");
    }
}
