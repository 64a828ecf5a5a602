//! Plans, made once for a problem on a device.

use crate::problem::Problem;
use crate::profile::profile;
use crate::way::Launch;
use burn::backend::CubeDevice;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wgpu_norm::Error;
use wgpu_norm::export::{Dispatch, Plan};
use wgpu_norm::Tensor;

/// Bytes that may be bound of each tensor's buffer.
type Rooms = Vec<(Tensor, u64)>;

/// A plan, and its dispatches for the rooms that its tensors' buffers had so far.
#[derive(Debug)]
pub struct Prepared {
    pub plan: Plan,
    dispatches: Mutex<HashMap<Rooms, Arc<Vec<Dispatch>>>>,
}

impl Prepared {
    /// The plan's dispatches on buffers with this much room.
    pub fn dispatches(&self, rooms: Rooms) -> Result<Arc<Vec<Dispatch>>, Error> {
        let mut known = lock(&self.dispatches);
        if let Some(dispatches) = known.get(&rooms) {
            return Ok(dispatches.clone());
        }
        let room = |tensor| {
            rooms
                .iter()
                .find(|(t, _)| *t == tensor)
                .map(|(_, room)| *room)
        };
        let dispatches = Arc::new(self.plan.dispatches(room)?);
        known.insert(rooms, dispatches.clone());
        Ok(dispatches)
    }
}

type Known = HashMap<(CubeDevice, Problem), Result<Arc<Prepared>, Error>>;

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

/// Plans that are kept; beyond that, as where every batch has another shape, all are made anew.
const MOST: usize = 4096;

/// The plan of a problem on a device.
pub fn prepare(device: &CubeDevice, problem: &Problem) -> Result<Arc<Prepared>, Error> {
    let mut known = lock(&KNOWN);
    let known = known.get_or_insert_default();
    let key = (device.clone(), problem.clone());
    if let Some(prepared) = known.get(&key) {
        return prepared.clone();
    }
    if known.len() >= MOST {
        known.clear();
    }
    let profile = match problem.launch {
        Launch::Kernels => profile(device.client().properties()),
        Launch::Submission => super::context(device)?.profile().clone(),
    };
    let prepared = problem.plan(&profile).map(|plan| {
        Arc::new(Prepared {
            plan,
            dispatches: Mutex::default(),
        })
    });
    known.insert(key, prepared.clone());
    prepared
}

/// Nothing is half-done while a lock is held, so a panic there does no harm.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
