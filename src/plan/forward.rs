//! Forward passes by the statistics of src.

use super::axes::Layout;
use super::choose::RowsOf;
use super::finish::{Derived, Partials, Route};
use super::passes::{Slice, in_phases};
use super::problem::{Family, Problem};
use super::rounds::RunningSums;
use super::rows_split::elementwise;
use super::tensors::{Applied, Tensors};
use super::walk::Walk;
use super::workspace::{Region, Workspace};
use super::{Dispatch, Phases, Planner};
use crate::{Algorithm, Error};

impl Planner<'_> {
    /// Statistics and an elementwise pass, or a fused kernel where that is faster.
    pub(super) fn forward(
        &self,
        problem: &Problem,
        tensors: &Tensors,
        running: &mut Option<RunningSums>,
        workspace: &mut Workspace,
    ) -> Result<Slice, Error> {
        match problem.family {
            Family::Channels => {
                let chosen = self.choose_halves(problem, tensors)?;
                let split = self.split_forward(problem, chosen.halves, tensors, workspace)?;
                self.with_fused(problem, tensors, chosen, split, workspace)
            }
            Family::Groups => self.groups_by_own_statistics(problem, tensors, running, workspace),
            Family::Rows => self.rows_forward(problem, workspace),
            Family::Columns(of) => self.over_all_columns(problem, &of, tensors, workspace),
        }
    }

    /// Statistics, what follows from them, elementwise pass: for the whole, and for the two halves.
    fn split_forward(
        &self,
        problem: &Problem,
        algorithm: Algorithm,
        tensors: &Tensors,
        workspace: &mut Workspace,
    ) -> Result<Vec<(Phases, Dispatch)>, Error> {
        let layout = &problem.axes.layout();
        let grid = &layout.grid;
        let empty = tensors.src.elements == 0;
        let planes = layout.walks_planes(algorithm);
        let walk = &*self.walk_over(planes, layout, &tensors.src, false);
        let stats = workspace.reserve(grid.channels.into())?;
        let mut dispatches = Vec::new();
        if grid.channels > 0 {
            let (reduce, partials) = match empty {
                true => (vec![], Partials::none(grid.channels, stats)),
                false => self.reduce_statistics(walk, tensors, stats, workspace)?,
            };
            let summed = Phases::WHOLE.with(Phases::REDUCE);
            dispatches.extend(in_phases(summed, reduce));
            let derived = Derived {
                operands: vec![
                    tensors.params().copied().collect(),
                    tensors.results.clone(),
                    tensors.running.clone(),
                ],
                means: (!empty).then_some(stats),
                shards: problem.shards,
                ..problem.derived(tensors)
            };
            dispatches.extend(self.finish_halves(&partials, &derived, true)?);
        }
        if !empty {
            let applied = Applied {
                src: true,
                stats,
                means: None,
                samples: None,
            };
            let applies = Phases::WHOLE.with(Phases::APPLY);
            let apply = self.apply(walk, layout, tensors, applied)?;
            dispatches.extend(in_phases(applies, apply));
        }
        Ok(dispatches)
    }

    /// The reduction to channels' statistics, and the partial statistics that it leaves.
    pub(super) fn reduce_statistics(
        &self,
        walk: &dyn Walk,
        tensors: &Tensors,
        stats: Region,
        workspace: &mut Workspace,
    ) -> Result<(Vec<Dispatch>, Partials), Error> {
        let (mut dispatches, partials) = walk.reduce(tensors, stats, workspace)?;
        let (groups, partials) = self.add_subtotals(partials, workspace)?;
        dispatches.extend(groups);
        Ok((dispatches, partials))
    }

    /// Forward over rows: in one reading where rows fit registers; else statistics, unless they are given, then the
    /// elementwise pass.
    pub(super) fn rows_forward(
        &self,
        problem: &Problem,
        workspace: &mut Workspace,
    ) -> Result<Slice, Error> {
        let in_registers = self.in_registers();
        let tensors = problem.tensors();
        let rows = RowsOf::new(problem, &tensors);
        let by_row = rows.by_row;
        let algorithm = in_registers.choose_rows(&rows)?;
        let derived = problem.derived(&tensors);
        let keeps_statistics = !tensors.results.is_empty();
        let mut dispatches = Vec::new();
        if by_row.elements() == 0 {
            if keeps_statistics && by_row.channels > 0 {
                let none = Partials::none(by_row.channels, workspace.reserve(0)?);
                dispatches.extend(self.finish(&none, &derived, Route::Whole)?);
            }
        } else if algorithm == Algorithm::RowsInRegisters {
            let kept = match keeps_statistics && !in_registers.stores_statistics(&tensors) {
                true => Some(workspace.reserve(by_row.channels.into())?),
                false => None,
            };
            let (fused, _) = in_registers.rows_fused(&rows, derived.scalars, kept, workspace)?;
            dispatches.extend(fused);
            if let Some(kept) = kept {
                let rows = by_row.channels;
                let records = Partials::plain(kept, rows, 1, rows.into());
                dispatches.extend(self.finish(&records, &derived, Route::Whole)?);
            }
        } else {
            dispatches.extend(self.split_rows_forward(&rows, derived, workspace)?);
        }
        Ok(Slice::whole(algorithm, dispatches))
    }

    /// Statistics of rows, computed as those of channels, what follows from them, and the elementwise pass.
    fn split_rows_forward(
        &self,
        problem: &RowsOf,
        derived: Derived,
        workspace: &mut Workspace,
    ) -> Result<Vec<Dispatch>, Error> {
        let RowsOf {
            by_row, tensors, ..
        } = problem;
        let layout = Layout::from(*by_row);
        let (params, mut dispatches) = self.row_params(tensors, elementwise(tensors), workspace)?;
        let stats = workspace.reserve(by_row.channels.into())?;
        if self.body.is_inference() {
            let epsilon = derived.scalars.epsilon;
            dispatches.extend(self.pack_statistics(tensors, &[], epsilon, stats)?);
        } else {
            let walk = self.walk_over(true, &layout, &tensors.src, false);
            let (reduce, partials) = self.reduce_statistics(&*walk, tensors, stats, workspace)?;
            dispatches.extend(reduce);
            let means = Some(stats);
            let derived = Derived { means, ..derived };
            dispatches.extend(self.finish(&partials, &derived, Route::Whole)?);
        }
        let split = self.split_rows(problem, false);
        dispatches.extend(self.rows_apply(&split, tensors, stats, None, params)?);
        Ok(dispatches)
    }
}
