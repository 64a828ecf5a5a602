//! A pass over columns in one reading, where registers hold them.

use super::columns::WalkedColumns;
use super::columns_cut::{Columns, Cut};
use super::division::Division;
use super::{Known, Reduced, Walk};
use crate::kernels::{BatchTiles, InRegisters, InRegistersUniforms};
use crate::plan::dispatch::Binding;
use crate::plan::limits::{Cannot, Unfit, check, check_dispatches};
use crate::plan::planner::Planner;
use crate::plan::sizes::{div_ceil, most_vectors, vectors_held, word};
use crate::plan::stages::finish::Partials;
use crate::plan::windows::Window;
use crate::plan::workspace::Workspace;
use crate::tuning::MOST_ROW_VEC4S;

/// The fewest vec4s side by side in a row that a workgroup reads: a sector of memory in f32.
const FEWEST_VEC4S: u64 = 2;

/// A walk over columns in registers.
pub(crate) struct ColumnsInRegisters<'a> {
    over: Columns<'a>,
    cut: Cut,
    /// Rows that an invocation holds.
    held_rows: u64,
}

impl<'a> ColumnsInRegisters<'a> {
    pub fn new(planner: Planner<'a>) -> Result<Self, Cannot> {
        let (problem, tensors) = (planner.problem, planner.tensors);
        check(!problem.is_inference(), "statistics are given")?;
        let over = Columns::new(planner.in_registers())?;
        over.check_whole()?;
        let rows = over.by.rows;
        let too_many = "elements of a column are more than a workgroup's registers hold";
        let (division, held_rows) =
            columns_held(&over).ok_or_else(|| Cannot::Because(format!("{rows} {too_many}")))?;
        let busy = planner.profile.tuning.busy_workgroups.into();
        let all = over.by.statistics();
        let walk = Self {
            cut: over.in_ranges((division, rows.into()), all, (over.records(), busy))?,
            over,
            held_rows,
        };
        let has_room = walk.kept_records() <= over.records();
        check(
            has_room,
            "its partial sums of rows would outgrow the tensor",
        )?;
        let workspace = usize::from(!tensors.params.is_empty() && !tensors.param_grads());
        planner.profile.check_bound(workspace + walk.bound())?;
        Ok(walk)
    }

    /// The buffers that the kernel binds besides gamma, beta and gate.
    fn bound(&self) -> usize {
        let tensors = self.over.planner.tensors;
        let statistics = tensors.statistics.len() + tensors.written_statistics().count();
        let workspace = usize::from(tensors.param_grads());
        tensors.inputs.len() + tensors.outputs.len() + statistics + workspace
    }
}

/// How workgroups hold columns, and the rows that an invocation holds: the widest pieces of rows with which
/// registers hold all rows.
fn columns_held(over: &Columns<'_>) -> Option<(Division, u64)> {
    let Columns { planner, by: of } = over;
    let tuning = &planner.profile.tuning;
    let sizes = [tuning.workgroup, tuning.fused_workgroup].map(|size| planner.workgroup(size));
    // With two vec4s, NVIDIA's compiler keeps what an invocation holds in memory, which takes four times as long.
    let vector_vec4s = 1;
    let width_vectors = div_ceil(of.columns.into(), 4).max(1);
    // A forward pass with a residual holds both, like a gradient, of which more rows are held than of layer norm.
    let times = if planner.problem.epilogue.residual {
        1
    } else {
        2
    };
    let vec4s = (times * tuning.row_vec4s).min(MOST_ROW_VEC4S);
    let most = most_vectors(vec4s, vector_vec4s);
    let widest = u64::from(tuning.channels_last_threads.max(1));
    let mut threads_per_row = (1 << widest.ilog2()).min(width_vectors.next_power_of_two());
    let fewest = FEWEST_VEC4S.min(threads_per_row);
    while threads_per_row >= fewest {
        for size in sizes.map(u64::from) {
            let at_once = size / threads_per_row.min(size);
            let held = vectors_held(of.rows.into(), at_once, most);
            if held <= most && threads_per_row <= size {
                let division = Division {
                    workgroup_size: word(size),
                    threads_per_row,
                    vector_vec4s,
                    column_vectors: 1,
                };
                return Some((division, held));
            }
        }
        threads_per_row /= 2;
    }
    None
}

impl ColumnsInRegisters<'_> {
    fn bindings(&self, known: &Known, window: &Window) -> Vec<Binding> {
        let tensors = self.over.planner.tensors;
        let read = tensors.inputs.iter().chain(&tensors.statistics);
        let mut bindings: Vec<_> = window.bind_all(read).collect();
        bindings.extend(known.params.bindings.clone());
        let has_workspace = known.params.copied != 0 || tensors.param_grads();
        bindings.extend(has_workspace.then(Binding::workspace));
        let written = tensors.outputs.iter().chain(tensors.written_statistics());
        bindings.extend(window.bind_all(written));
        bindings
    }
}

impl Walk for ColumnsInRegisters<'_> {
    /// It takes 0.55 of the time on an H200; on drivers for the CPU, which hold little and read pieces of rows slowly,
    /// 3 times.
    fn is_profitable(&self) -> bool {
        let planner = self.over.planner;
        let body = planner.problem.body;
        let has_room = WalkedColumns::has_room_in_pieces(Planner { body, ..planner });
        planner.profile.cheap_barriers() || !has_room
    }

    fn kept_records(&self) -> u64 {
        self.over.row_records(&self.cut)
    }

    fn bound_besides_params(&self) -> Option<usize> {
        Some(self.bound())
    }

    fn reduce(&self, known: &Known, _workspace: &mut Workspace) -> Result<Reduced, Unfit> {
        let Self { over, cut, .. } = self;
        let division = &cut.division;
        let Columns { planner, by: of } = over;
        let params = &known.params;
        let kernel = InRegisters {
            threads_per_row: word(division.threads_per_row),
            column_vectors: 1,
            held_rows: word(self.held_rows),
            vector_vec4s: word(division.vector_vec4s),
            aligned: of.is_aligned(),
            shares_words: planner.shares_words(of.columns.into()),
            copied_params: params.copied,
            of_samples: of.of_samples,
            add_thread_rows: division.at_once() > 1,
            summed: planner.tensors.param_grads(),
            threads_per_partial: word(cut.threads_per_partial),
            one_tile: cut.walked_tiles == 1,
            ..InRegisters::default()
        };
        let kernel = (kernel, division.workgroup_size);
        let mut reduced = Reduced::default();
        let dispatches = &mut reduced.dispatches;
        for piece in cut.pieces.values().flatten() {
            let shares = over.shares(piece, &(0..1), of.rows.into(), cut.walked_tiles)?;
            dispatches.extend(planner.over(&shares, kernel, |share, range| {
                let uniforms = InRegistersUniforms {
                    tiles: BatchTiles {
                        range,
                        copies: params.copies,
                        ..share.tiles
                    },
                    row_step: 1,
                    misalignments: 1,
                    row_groups: word(cut.row_groups),
                    partials_per_row: word(cut.partials_per_row()),
                    row_partials: known.kept.first,
                    scalars: planner.problem.scalars(),
                    ..InRegistersUniforms::default()
                };
                (self.bindings(known, &share.window), uniforms)
            })?);
            check_dispatches(dispatches.len() as u64)?;
        }
        let is_summed = planner.tensors.param_grads();
        let rows = word(of.parameters());
        let sums = || Partials::side_by_side(known.kept, rows, cut.partials_per_row());
        reduced.parameters = is_summed.then(sums);
        Ok(reduced)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::algorithm::Algorithm;
    use crate::element::DType;
    use crate::operation::{Forward, Norm, Operation};
    use crate::profile::Profile;

    #[test]
    fn batches_beyond_a_window_are_read_twice() {
        let norm = Norm::Axes {
            axes: vec![1],
            param_axes: vec![1],
            centered: true,
        };
        let forward =
            |dtype| Operation::new(norm.clone(), Forward::default(), &[2, 96, 1 << 20], dtype);
        let algorithm = |dtype, max_window| {
            let profile = Profile {
                max_window,
                max_binding: 1 << 31,
                ..Profile::usual()
            };
            forward(dtype).planned(&profile).unwrap().algorithm
        };
        assert_eq!(
            algorithm(DType::F32, 1 << 29),
            Algorithm::ColumnsInRegisters
        );
        assert_eq!(
            algorithm(DType::F32, 300 << 20),
            Algorithm::ColumnsReadTwice
        );
    }
}
