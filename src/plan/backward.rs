//! Gradients.

use super::choose::RowsOf;
use super::finish::{Derived, Partials, Route};
use super::passes::{Slice, in_phases};
use super::problem::{Family, Problem};
use super::rounds::RunningSums;
use super::rows_split::elementwise;
use super::tensors::{Applied, Tensors};
use super::workspace::Workspace;
use super::{Binding, Dispatch, Phases, Planner, word};
use crate::kernels::{Constant, ROWS_AT_ONCE};
use crate::{Algorithm, Error, Tensor};

/// A reduction that also writes `results`, where it reads diff_dst.
fn writing(results: &[Tensor], reduction: &Dispatch) -> Dispatch {
    let mut dispatch = reduction.clone();
    let read = reduction
        .bindings
        .iter()
        .find(|b| b.tensor == Tensor::DiffDst);
    let written = results.iter().zip(std::iter::repeat(read));
    dispatch
        .bindings
        .extend(written.filter_map(|(&tensor, read)| {
            Some(Binding {
                tensor,
                bytes: read?.bytes.clone(),
                owned: None,
            })
        }));
    // Results need registers, so only one row is loaded at a time.
    for (name, value) in &mut dispatch.constants {
        if *name == ROWS_AT_ONCE {
            *value = Constant::Size(1);
        }
    }
    dispatch
}

impl Planner<'_> {
    /// A reduction and an elementwise pass, or a fused kernel where that is faster.
    pub(super) fn backward(
        &self,
        problem: &Problem,
        tensors: &Tensors,
        running: &mut Option<RunningSums>,
        workspace: &mut Workspace,
    ) -> Result<Slice, Error> {
        match problem.family {
            Family::Channels => {
                let chosen = self.choose_halves(problem, tensors)?;
                let split = self.split_backward(problem, chosen.halves, tensors, workspace)?;
                self.with_fused(problem, tensors, chosen, split, workspace)
            }
            Family::Groups => self.groups_by_own_statistics(problem, tensors, running, workspace),
            Family::Rows => self.rows_backward(problem, tensors, running, workspace),
            Family::Columns(of) => self.over_all_columns(problem, &of, tensors, workspace),
        }
    }

    /// Reduction, sums, elementwise pass: for the whole, and for the two halves.
    fn split_backward(
        &self,
        problem: &Problem,
        algorithm: Algorithm,
        tensors: &Tensors,
        workspace: &mut Workspace,
    ) -> Result<Vec<(Phases, Dispatch)>, Error> {
        let layout = &problem.axes.layout();
        let grid = &layout.grid;
        let empty = tensors.src.elements == 0;
        let batch = !problem.by_constants();
        let both = tensors.param_grads();
        let planes = layout.walks_planes(algorithm);
        // With constant statistics diff_src does not need the sums, so the reduction writes it, too.
        let one_pass = !batch && both && (grid.inner.is_multiple_of(4) || !planes);
        let (reduces, applies) = match one_pass {
            true => (Phases::REDUCE, Phases::APPLY),
            false => (
                Phases::WHOLE.with(Phases::REDUCE),
                Phases::WHOLE.with(Phases::APPLY),
            ),
        };
        let walk = &*self.walk_over(planes, layout, &tensors.src, one_pass);
        let stats = workspace.reserve(tensors.statistics.groups)?;
        let means = match batch {
            true => Some(workspace.reserve(tensors.statistics.groups)?),
            false => None,
        };
        let mut dispatches = Vec::new();
        if grid.channels > 0 {
            if !empty {
                let all = Phases::WHOLE.with(Phases::REDUCE).with(Phases::APPLY);
                let params: Vec<_> = tensors.params().copied().collect();
                let pack = self.pack_statistics(tensors, &params, problem.epsilon, stats)?;
                dispatches.extend(in_phases(all, pack));
            }
            let (reduce, partials) = if empty || !(both || batch) {
                (vec![], Partials::none(grid.channels, stats))
            } else {
                walk.reduce(tensors, stats, workspace)?
            };
            if one_pass {
                let outputs: Vec<_> = tensors.outputs.iter().map(|one| one.tensor).collect();
                let all = reduce.iter().map(|reduction| writing(&outputs, reduction));
                dispatches.extend(all.map(|dispatch| (Phases::WHOLE, dispatch)));
            }
            dispatches.extend(in_phases(reduces, reduce));
            let (groups, partials) = self.add_subtotals(partials, workspace)?;
            let summed = Phases::WHOLE.with(Phases::REDUCE);
            dispatches.extend(in_phases(summed, groups));
            let derived = Derived {
                means: means.filter(|_| !empty),
                ..problem.derived(tensors)
            };
            let wanted = both || derived.means.is_some();
            dispatches.extend(self.finish_halves(&partials, &derived, wanted)?);
        }
        if !empty {
            let applied = Applied {
                src: batch || self.epilogue.is_recomputed(),
                stats,
                means,
                samples: None,
            };
            let apply = self.apply(walk, layout, tensors, applied)?;
            dispatches.extend(in_phases(applies, apply));
        }
        Ok(dispatches)
    }

    /// Gradients over rows: everything in one reading where rows fit registers; else a reduction of rows and columns
    /// alike, then the elementwise pass.
    fn rows_backward(
        &self,
        problem: &Problem,
        tensors: &Tensors,
        running: &mut Option<RunningSums>,
        workspace: &mut Workspace,
    ) -> Result<Slice, Error> {
        let rows = RowsOf::new(problem, tensors);
        let by_row = rows.by_row;
        let algorithm = self.choose_rows(&rows)?;
        let (mut dispatches, of_columns) = match algorithm {
            _ if by_row.elements() == 0 => {
                let parameters = word(problem.axes.parameters());
                let none = Partials::none(parameters, workspace.reserve(0)?);
                (vec![], Some(none))
            }
            Algorithm::RowsInRegisters => {
                let scalars = problem.scalars();
                let (dispatches, partials) = self.rows_fused(&rows, scalars, None, workspace)?;
                (dispatches, Some(partials))
            }
            _ => {
                let direct = running.is_none();
                self.split_rows_backward(&rows, problem.epsilon, direct, workspace)?
            }
        };
        if let Some(of_columns) = of_columns {
            let finish = self.finish_written(of_columns, tensors, problem, running, workspace)?;
            dispatches.extend(finish);
        }
        Ok(Slice::whole(algorithm, dispatches))
    }

    /// A reduction of rows and columns, the rows' sums, the elementwise pass. The sums of columns may be left as
    /// partial sums. Where they are `direct`, which means that no other rows add to them, they may be written at once.
    fn split_rows_backward(
        &self,
        problem: &RowsOf,
        epsilon: f64,
        direct: bool,
        workspace: &mut Workspace,
    ) -> Result<(Vec<Dispatch>, Option<Partials>), Error> {
        let RowsOf {
            by_row, tensors, ..
        } = problem;
        let split = self.split_rows(problem, direct);
        let (params, mut dispatches) = self.row_params(tensors, elementwise(tensors), workspace)?;
        let stats = workspace.reserve(tensors.statistics.groups)?;
        let means = match split.has_means() {
            true => Some(workspace.reserve(tensors.statistics.groups)?),
            false => None,
        };
        dispatches.extend(self.pack_statistics(tensors, &[], epsilon, stats)?);
        let reduced = self.rows_reduce(&split, tensors, stats, params, workspace)?;
        dispatches.extend(reduced.dispatches);
        if let Some(of_rows) = reduced.of_rows {
            let derived = Derived {
                means,
                ..Derived::of(by_row.inner.into())
            };
            let (groups, of_rows) = self.add_subtotals(of_rows, workspace)?;
            dispatches.extend(groups);
            dispatches.extend(self.finish(&of_rows, &derived, Route::Whole)?);
        }
        let apply = self.rows_apply(&split, tensors, stats, means, params)?;
        dispatches.extend(apply);
        Ok((dispatches, reduced.of_columns))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::{Backward, Channels, DType, Norm, Operation, Profile, Tuning};

    /// If tensors leave room in a binding, their workspace fits one.
    #[test]
    fn a_workspace_fits_where_its_tensor_does() {
        for (shape, params, data) in [
            // Fewer outer indices than fill whole vectors.
            (&[1, 300_001, 7][..], &[1, 300_001, 1][..], DType::F32),
            (&[1, 100_001, 31], &[1, 100_001, 1], DType::F32),
            (&[1, 1_000_000, 8], &[1, 1_000_000, 1], DType::F32),
            // Axes that do not fold: planes of single elements, and rows of a million.
            (&[1024, 60, 1025], &[1024, 1, 1025], DType::F16),
            (&[2, 14, 1 << 20], &[2, 1, 1 << 20], DType::F16),
        ] {
            for tuning in [Tuning::GPU, Tuning::SOFTWARE] {
                let profile = Profile {
                    tuning,
                    ..Profile::usual()
                };
                let norm = Norm::Batch(Channels::Broadcast(params.to_vec()));
                let operation = Operation::new(norm, Backward::default(), shape, data);
                let plan = operation.planned(&profile);
                assert!(plan.is_ok(), "{shape:?}: {:?}", plan.err());
            }
        }
    }
}
