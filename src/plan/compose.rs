//! What gradients and forward passes are put together from.

use super::finish::{Derived, Partials, Route};
use super::tensors::{Applied, Tensors};
use super::workspace::Workspace;
use super::{Dispatch, Phases, Plan, Planner};
use crate::geometry::{Grid, Layout};
use crate::kernels::Scalars;
use crate::{Algorithm, DTypes, Error, Tensor};

/// Channels with fewer elements side by side are read as rows of columns, unless one dispatch does it all: of a small
/// tensor, or of planes of 8 elements and more that are channels of their own.
const SHORT_PLANE: u32 = 32;

/// Whether an algorithm over channels walks planes; else it walks rows of columns.
pub(super) fn walks_planes(algorithm: Algorithm, layout: &Layout) -> bool {
    match &layout.general {
        Some(general) => !general.keeps_last,
        None => algorithm == Algorithm::ChannelsFirst,
    }
}

impl Planner<'_> {
    /// Whether planes are long enough to be read as such; else they are read as rows of columns.
    pub fn reads_planes(&self, layout: &Layout) -> bool {
        layout.grid.inner >= SHORT_PLANE
    }

    /// The dispatches of a fused algorithm; none of another.
    pub(super) fn fused(
        &self,
        algorithm: Algorithm,
        grid: &Grid,
        tensors: &Tensors,
        scalars: Scalars,
    ) -> Result<Vec<Dispatch>, Error> {
        match algorithm {
            Algorithm::FusedChannelsFirst => self.channels_first_fused(grid, tensors, scalars),
            Algorithm::FusedChannelsLast => {
                Ok(vec![self.channels_last_fused(grid, tensors, scalars)?])
            }
            _ => Ok(vec![]),
        }
    }

    /// The dispatches of the two halves, and of the whole those that are fused, if there are any.
    pub(super) fn with_fused(
        &self,
        fused: Vec<Dispatch>,
        split: Vec<(Phases, Dispatch)>,
        tensors: &mut Tensors,
        workspace: &mut Workspace,
    ) -> Vec<(Phases, Dispatch)> {
        if fused.is_empty() {
            return split;
        }
        let halves = split
            .into_iter()
            .filter_map(|(phases, dispatch)| Some((phases.without(Phases::WHOLE)?, dispatch)));
        let mut dispatches: Vec<_> = halves.collect();
        // A fused kernel needs no workspace: where there is no room for that of the halves, there are none.
        if workspace.bytes() > self.profile.max_binding {
            *workspace = Workspace::new(self.data.accumulator());
            dispatches.clear();
            tensors.sums = None;
        }
        dispatches.extend(fused.into_iter().map(|dispatch| (Phases::WHOLE, dispatch)));
        dispatches
    }

    /// The last sums of the whole, of which results may not be `wanted`, and of its two halves.
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
                let finish = self.finish(partials, derived, route)?;
                dispatches.extend(finish.into_iter().map(|dispatch| (phases, dispatch)));
            }
        }
        Ok(dispatches)
    }

    /// The elementwise pass over channels.
    pub(super) fn apply(
        &self,
        planes: bool,
        layout: &Layout,
        tensors: &Tensors,
        applied: Applied,
    ) -> Result<Vec<Dispatch>, Error> {
        match planes {
            true => self.channels_first_apply(layout, tensors, applied),
            false => self.channels_last_apply(layout, tensors, applied),
        }
    }

    /// The plan, checked.
    pub(super) fn complete(
        &self,
        algorithm: Algorithm,
        types: DTypes,
        tensors: &Tensors,
        workspace: &Workspace,
        mut dispatches: Vec<(Phases, Dispatch)>,
    ) -> Result<Plan, Error> {
        let workspace_bytes = workspace.bytes();
        for binding in dispatches.iter_mut().flat_map(|(_, d)| &mut d.bindings) {
            if binding.tensor == Tensor::Workspace {
                binding.bytes = 0..workspace_bytes;
            }
        }
        let plan = Plan {
            body: self.body,
            algorithm,
            types,
            tensors: tensors.all(),
            workspace_bytes,
            word_bits: self.profile.word_bits(),
            dispatches,
        };
        super::check_dispatches(plan.dispatches.len() as u64)?;
        plan.check_bindings(self.profile.max_binding)?;
        plan.check_buffers(self.profile.max_storage_buffers)?;
        plan.check_iterations()?;
        Ok(plan)
    }
}
