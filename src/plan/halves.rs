//! Batch norm as a whole, which may be one dispatch, and its two halves, with the sums between them.

use super::choose::Chosen;
use super::finish::{Derived, Partials, Route};
use super::passes::{Slice, in_phases};
use super::problem::Problem;
use super::tensors::Tensors;
use super::workspace::Workspace;
use super::{Dispatch, Phases, Planner};
use crate::{Algorithm, Error};

impl Planner<'_> {
    /// The dispatches of the whole and of its halves. `split` are those of the halves, and of the whole unless that is
    /// fused. A fused kernel needs no workspace: where there is no room for that of the halves, there are no halves.
    pub(super) fn with_fused(
        &self,
        problem: &Problem,
        tensors: &Tensors,
        chosen: Chosen,
        split: Vec<(Phases, Dispatch)>,
        workspace: &mut Workspace,
    ) -> Result<Slice, Error> {
        let (grid, scalars) = (&problem.axes.layout().grid, problem.scalars());
        let fused = match chosen.whole {
            Algorithm::FusedChannelsFirst => self.channels_first_fused(grid, tensors, scalars)?,
            Algorithm::FusedChannelsLast => {
                vec![self.channels_last_fused(grid, tensors, scalars)?]
            }
            _ => vec![],
        };
        let mut slice = Slice {
            algorithm: chosen.whole,
            dispatches: split,
            has_halves: true,
        };
        if fused.is_empty() {
            return Ok(slice);
        }
        let split = slice.dispatches.into_iter();
        let halves =
            split.filter_map(|(phases, dispatch)| Some((phases.without(Phases::WHOLE)?, dispatch)));
        slice.dispatches = halves.collect();
        if workspace.bytes() > self.profile.max_binding {
            *workspace = Workspace::new(self.data.accumulator());
            slice.dispatches.clear();
            slice.has_halves = false;
        }
        slice.dispatches.extend(in_phases(Phases::WHOLE, fused));
        Ok(slice)
    }

    /// The last sums of the whole and of its two halves, or if no results are `wanted`, only of the first half.
    pub(super) fn finish_halves(
        &self,
        partials: &Partials,
        derived: &Derived,
        wanted: bool,
    ) -> Result<Vec<(Phases, Dispatch)>, Error> {
        let mut dispatches = Vec::new();
        for (phases, route) in [
            (Phases::WHOLE, Route::Whole),
            (Phases::REDUCE, Route::ToSums),
            (Phases::APPLY, Route::FromSums),
        ] {
            if wanted || route == Route::ToSums {
                dispatches.extend(in_phases(phases, self.finish(partials, derived, route)?));
            }
        }
        Ok(dispatches)
    }
}
