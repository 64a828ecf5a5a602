//! The limits of all plans, and what plans ask of a profile.

use super::sizes::{div_ceil, threads, word};
use crate::element::DType;
use crate::error::Error;
use crate::profile::Profile;

/// The most loop iterations that an invocation of any dispatch makes. Mesa's software drivers end an invocation's loops
/// after 65,535 iterations, counting all its loops together, without an error: the rest is not added, or not written.
pub(super) const MOST_ITERATIONS: u64 = 49_152;

/// About the most numbers that one accumulator adds in a row. Where all are alike, their rounding errors are too, and
/// the error is a quarter of this in unit roundoffs: three quarters of the error that `SUM_ULPS` of wgpu-norm-verify
/// allows, which leaves the rest to a kernel's other steps.
pub(super) const MAX_SEQUENTIAL: u64 = 192;

/// The most dispatches that a plan has: more would take seconds to plan and to bind, and each would do little.
pub(super) const MOST_DISPATCHES: u64 = 1 << 15;

/// An error if a plan would have more dispatches than it may.
pub(super) fn check_dispatches(dispatches: u64) -> Result<(), Error> {
    let what = "a plan (larger windows need fewer: max_window, max_storage_buffer_binding_size)";
    Error::check_limit(what, "number of dispatches", dispatches, MOST_DISPATCHES)
}

/// An invocation with more vec4s of a plane than this shares it with others, if there are others, whatever the tuning
/// says.
const MOST_PLANE_VEC4S: u32 = 256;

/// Why there is no plan.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// A binding has too little room; fewer rows or samples at a time may need less.
    Room(Error),
    /// Windows are shorter than what one dispatch must bind, which has so many bytes.
    Window { needed: u64, error: Error },
    /// Something else, which smaller pieces do not change.
    Other(Error),
}

impl From<Error> for Unfit {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl From<Unfit> for Error {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Room(error) | Unfit::Window { error, .. } | Unfit::Other(error) => error,
        }
    }
}

/// Why a walk cannot do a problem.
pub(crate) enum Cannot {
    Because(String),
    /// It could in smaller pieces, or with larger limits.
    Fit(Unfit),
}

impl From<Unfit> for Cannot {
    fn from(unfit: Unfit) -> Self {
        Self::Fit(unfit)
    }
}

/// An error with a reason, unless a walk can do a problem.
pub(super) fn check(can: bool, reason: impl std::fmt::Display) -> Result<(), Cannot> {
    if can {
        Ok(())
    } else {
        Err(Cannot::Because(reason.to_string()))
    }
}

impl Profile {
    /// Whether so many buffers can be bound at once.
    pub(super) fn binds(&self, buffers: usize) -> bool {
        buffers <= self.max_storage_buffers as usize
    }

    /// Why they cannot, if they cannot.
    pub(super) fn check_bound(&self, buffers: usize) -> Result<(), Cannot> {
        let allowed = self.max_storage_buffers;
        let reason =
            format_args!("it binds {buffers} storage buffers, the device allows {allowed}");
        check(self.binds(buffers), reason)
    }

    /// Whether a tensor is so small that its dispatches take most of the time.
    pub(super) fn is_small(&self, elements: u64) -> bool {
        elements <= u64::from(self.tuning.small_tensor)
    }

    /// Elements of any type that a window holds, so that tensors of all types are cut alike.
    pub(super) fn held_unit(&self) -> u64 {
        // A window grows: down to an aligned offset, up to a pair of vec4s, by a chunk of a plane rounded up.
        let around = self.alignment.max(256) + 72 * DType::F64.size();
        let held = self.max_binding.saturating_sub(around) / DType::F64.size();
        held.max(1)
    }

    /// The most elements between two neighbouring positions where a tensor of `elements` elements may be cut. They are
    /// enough that a plan has no more than some hundred windows because of them.
    pub(super) fn most_between_cuts(&self, elements: u64) -> u64 {
        let unit = u64::from(self.window_unit).max(elements / 256);
        unit.min(self.held_unit())
    }

    /// A workgroup for each tile, folded into two dimensions where one does not hold them all: a loop over tiles in the
    /// kernel would keep a software driver from holding anything in registers around a barrier (measured: the reduction
    /// took 1.7 times as long).
    pub(super) fn workgroups(&self, tiles: u64) -> Result<[u32; 2], Error> {
        let most = u64::from(self.max_workgroups.max(1));
        let tiles = tiles.max(1);
        let height = div_ceil(tiles, most);
        let limit = "max_compute_workgroups_per_dimension";
        Error::check_limit("a dispatch", limit, height, most)?;
        Ok([word(div_ceil(tiles, height)), word(height)])
    }

    pub(super) fn cheap_barriers(&self) -> bool {
        self.tuning.cheap_barriers == 1
    }

    /// Whether a workgroup adds up its invocations' sums of columns, with barriers, before it writes them. Otherwise
    /// each invocation writes its own, one for as many elements as it walks rows.
    pub(super) fn adds_up_walks(&self, walked: u64) -> bool {
        // After a long walk, such sums are less than a tenth of the bytes moved, and on a driver for the CPU barriers
        // cost more (measured with 32 columns: 1.2 to 1.6 times the time).
        const LONG_WALK: u64 = 8;
        self.cheap_barriers() || walked < LONG_WALK
    }

    /// Invocations that share a plane's chunk: as many as have work there, at least `vec4s` vec4s each, within a
    /// workgroup.
    pub(super) fn threads_per_plane(&self, workgroup_size: u32, chunk: u64, vec4s: u32) -> u32 {
        let fewest = self.tuning.channels_first_vec4s.min(MOST_PLANE_VEC4S);
        threads(workgroup_size, chunk, fewest.max(vec4s))
    }
}
