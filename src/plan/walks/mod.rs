//! Walks: the ways that kernels go through the tensors. A walk is only made where its kernels can do the problem.

pub(super) mod channels;
pub(super) mod channels_first;
pub(super) mod channels_first_fused;
pub(super) mod channels_last;
pub(super) mod channels_last_fused;
pub(super) mod columns;
pub(super) mod columns_cut;
pub(super) mod columns_in_registers;
pub(super) mod division;
pub(super) mod groups_as_rows;
pub(super) mod rows;
pub(super) mod rows_in_registers;
pub(super) mod rows_read_twice;

use super::dispatch::{Binding, Dispatch};
use super::stages::finish::Partials;
use super::stages::params::LoadedParams;
use super::workspace::{Region, Workspace};
use crate::plan::limits::Unfit;
use std::ops::Range;

/// What is known where a dispatch begins: regions of the workspace, and more.
#[derive(Clone)]
pub(crate) struct Known {
    /// A record of each channel, row or column: what is known before the sums, or follows from them.
    pub stats: Region,
    /// The statistics, and of channels the parameters, that kernels read before there are records: a reduction leaves
    /// those for the elementwise pass.
    pub given: Vec<Binding>,
    /// Whether `stats` are records of what shares statistics, to which kernels add a channel's parameters.
    pub of_statistics: bool,
    /// The means of a gradient's sums, where `stats` does not hold them.
    pub means: Option<Region>,
    /// Partial sums that the elementwise pass adds up itself, and their number.
    pub few_sums: Option<(Region, u64)>,
    /// The records that the walk keeps until all parts are done.
    pub kept: Region,
    /// Where kernels load parameters; others find them in `stats`, or bind all.
    pub params: LoadedParams,
    /// The part of the statistics that is done.
    pub part: Range<u64>,
}

impl Known {
    /// Whether an elementwise pass over rows or columns needs anything from the workspace.
    pub fn has_workspace(&self) -> bool {
        self.given.is_empty() || self.means.is_some() || self.params.copied != 0
    }
}

/// A reduction, or a kernel that does all at once.
#[derive(Default)]
pub(crate) struct Reduced {
    pub dispatches: Vec<Dispatch>,
    /// Partial sums of what shares statistics, where they are not complete.
    pub statistics: Option<Partials>,
    /// Partial sums of the other results: gradients of parameters, or statistics that were kept.
    pub parameters: Option<Partials>,
}

impl Reduced {
    /// Partial sums of what shares statistics alone.
    pub fn of_statistics((dispatches, partials): (Vec<Dispatch>, Partials)) -> Self {
        Self {
            dispatches,
            statistics: Some(partials),
            parameters: None,
        }
    }
}

pub(crate) trait Walk {
    /// Whether it is taken where it can be: it is faster than those after it in the list.
    fn is_profitable(&self) -> bool {
        true
    }

    /// The number of buffers that its kernels bind besides the parameters, where they load those by their locations.
    fn bound_besides_params(&self) -> Option<usize> {
        None
    }

    /// The number of buffers that its kernels bind besides statistics and parameters, where they can read these before
    /// there are records.
    fn bound_besides_given(&self) -> Option<usize> {
        None
    }

    /// The parts of the statistics that are done one after another, in the same records; all, if there are none.
    fn parts(&self) -> &[Range<u64>] {
        &[]
    }

    /// Whether a gradient's sums are added up before the elementwise pass.
    fn has_means(&self) -> bool {
        true
    }

    /// Whether its elementwise pass adds so few partial sums up itself, and writes the results.
    fn adds_up(&self, _partials: &Partials) -> bool {
        false
    }

    /// Whether its reduction can write diff_src, too, which needs no sums.
    fn writes_in_one_pass(&self) -> bool {
        false
    }

    /// The number of records that it keeps until all parts are done.
    fn kept_records(&self) -> u64 {
        0
    }

    /// The reduction to partial sums, or, in a walk that is all of the operation, everything but the last sums.
    fn reduce(&self, known: &Known, workspace: &mut Workspace) -> Result<Reduced, Unfit>;

    /// The elementwise pass.
    fn apply(&self, _known: &Known) -> Result<Vec<Dispatch>, Unfit> {
        Ok(vec![])
    }
}
