//! Rows that registers do not hold, whose statistics are given, or for which the adapter allows too few bindings: a
//! reduction and an elementwise pass.

use super::channels_first::Planes;
use super::division::Pass;
use super::rows::{RowWalk, Rows};
use super::{Known, Reduced, Walk};
use crate::kernels::{BatchTiles, ColumnsWalk, ColumnsWalkUniforms};
use crate::plan::dispatch::{Binding, Dispatch, Requirement};
use crate::plan::limits::{MAX_SEQUENTIAL, Unfit};
use crate::plan::planner::Planner;
use crate::plan::rounds::Rounds;
use crate::plan::sizes::{div_ceil, word};
use crate::plan::stages::finish::Partials;
use crate::plan::windows::Window;
use crate::plan::workspace::{Region, Workspace};
use std::ops::Range;

/// The most vec4s of a row that an invocation holds: more were not faster on the software drivers measured. And the
/// fewest: with fewer, partial sums of rows would be as many bytes as the rows.
const MOST_VEC4S: u32 = 8;
const FEWEST_VEC4S: u32 = 4;

/// A walk over rows cut into tiles: the rows of a walk by a workgroup's vectors of columns.
pub(crate) struct RowsReadTwice<'a> {
    planner: Planner<'a>,
    walk: RowWalk,
    /// Neighbouring invocations in a row that write one partial sum of it.
    threads_per_partial: u64,
    partials_per_row: u64,
    /// Whether a workgroup walks all rows, and writes the parameters' gradients.
    direct: bool,
    /// The rounds of the partial sums of columns, where it does not.
    rounds: Rounds,
}

impl<'a> RowsReadTwice<'a> {
    /// Cuts rows, with room for the sums that are asked for.
    pub fn new(planner: Planner<'a>) -> Self {
        let (axes, profile, tensors) = (&planner.problem.axes, planner.profile, planner.tensors);
        let summed = tensors.param_grads();
        let (room, for_rows) = if axes.rows_of_a_sample().is_some() {
            let copied = planner.copied_params();
            let few = (planner.few_records().saturating_sub(copied) / 8 * 7).max(1);
            (few, few / 4)
        } else {
            let rows = u64::from(axes.by_row().channels);
            let for_rows = planner.allowed_records(rows) / 4;
            (planner.partial_records(rows), for_rows)
        };
        let mut most = (profile.tuning.row_vec4s).clamp(FEWEST_VEC4S, MOST_VEC4S);
        let mut workgroup_size = planner.workgroup(profile.tuning.workgroup);
        // As few invocations to a row as possible, so that it has the fewest partial sums.
        let mut rows = Rows::new(&planner, workgroup_size, 1, most);
        let mut threads_per_partial = planner.threads_per_partial(workgroup_size);
        threads_per_partial = threads_per_partial.clamp(1, rows.division.threads_per_row);
        let mut partials = rows.partials_of_a_row(threads_per_partial);
        // Fewer partial sums of rows, each of more elements, if there is no room for them besides those of each column:
        // a split's, a block of rounds', and the totals.
        let of_columns = u64::from(summed) * 3 * rows.records_of_a_sum();
        let held = planner.held_records(2 * rows.rows);
        let for_rows = held.saturating_sub(of_columns).min(for_rows);
        while partials > 1 && rows.rows * partials > for_rows {
            if threads_per_partial < rows.division.threads_per_row {
                threads_per_partial *= 2;
            } else {
                if planner.workgroup(2 * workgroup_size) > workgroup_size {
                    workgroup_size *= 2;
                } else if most < MOST_VEC4S {
                    most = MOST_VEC4S;
                } else {
                    break;
                }
                rows = Rows::new(&planner, workgroup_size, 1, most);
                threads_per_partial = rows.division.threads_per_row;
            }
            partials = rows.partials_of_a_row(threads_per_partial);
        }
        let room = room.saturating_sub(rows.rows * partials).max(1);
        // Walks are longer where there is no room for the sums of columns, a single walk if that is possible.
        let mut walk = RowWalk::new(&planner, rows, false);
        let at_once = rows.division.at_once();
        if summed && walk.records() > room {
            let records = rows.rows * walk.records_of_a_partial();
            let walked = div_ceil(records, room * at_once)
                .min(div_ceil(walk.param_rows, at_once).min(MAX_SEQUENTIAL))
                .min(profile.held_unit() / (rows.columns * at_once));
            walk.tile_rows = walk.tile_rows.max(walked * at_once);
        }
        let read = tensors.inputs.len() + tensors.params.len();
        let crowded = walk.records() > room;
        let single = crowded && div_ceil(rows.rows, at_once) <= MAX_SEQUENTIAL;
        let direct = summed
            && !(planner.is_slice || walk.of_samples || planner.problem.epilogue.gated)
            && (single || walk.splits() == 1)
            && profile.window_holds(tensors.src.padded_bytes())
            && profile.binds(read + 1 + tensors.results.len());
        if direct {
            walk.tile_rows = rows.rows.next_multiple_of(at_once);
        }
        Self {
            planner,
            rounds: walk.rounds(&planner, summed && !direct, room),
            walk,
            threads_per_partial,
            partials_per_row: partials,
            direct,
        }
    }

    /// The windows of some splits.
    fn windows(&self, splits: Range<u64>) -> Result<Vec<Window>, Unfit> {
        let (rows, walk) = (&self.walk.rows, &self.walk);
        // Between two cuts: the rows of a tile, or where that is one row, a tile of its columns.
        let of_a_split = match walk.tile_rows {
            1 => self.walk.rows.column_tiles(),
            _ => 1,
        };
        let start = |unit: u64| {
            let first = walk.start(unit / of_a_split);
            let tile = unit % of_a_split;
            // Not past the row's end: its last tile may hold only a vec4 that begins in the next row.
            let inside =
                (tile * rows.division.tile_vectors() * rows.division.vector()).min(rows.columns);
            (first + inside).min(rows.elements())
        };
        let units = splits.start * of_a_split..splits.end * of_a_split;
        (self.planner).windows(units, self.walk.rows.column_tiles() / of_a_split, start)
    }

    /// Dispatches over some splits that write some tensors: a reduction to partial sums of columns that begin at a
    /// region; without one, the elementwise pass.
    fn dispatches(
        &self,
        known: &Known,
        splits: Range<u64>,
        partials: Option<Region>,
        written: &[Requirement],
    ) -> Result<Vec<Dispatch>, Unfit> {
        let (planner, walk, rows) = (&self.planner, &self.walk, &self.walk.rows);
        let (tensors, params, division) = (planner.tensors, &known.params, &rows.division);
        let reduced = partials.is_some();
        let pass = if reduced { Pass::Sums } else { Pass::Results };
        let summed = reduced && tensors.param_grads();
        let kernel = ColumnsWalk {
            threads_per_partial: word(if reduced { self.threads_per_partial } else { 1 }),
            of_rows: true,
            aligned: rows.aligned(),
            shares_words: !reduced && planner.shares_words(rows.columns),
            complete: rows.complete(),
            of_samples: walk.of_samples,
            summed,
            one_partial: reduced && self.partials_per_row == 1,
            direct: reduced && self.direct,
            paired_columns: summed && !self.direct && walk.pairs_columns(),
            ..division.columns_walk(planner, (pass, known), (walk.tile_rows, 0))
        };
        let windows = self.windows(splits)?;
        planner.over(
            &windows,
            (kernel, division.workgroup_size),
            |window, range| {
                let mut bindings = if reduced {
                    tensors.reduced(window)
                } else {
                    window.bind_all(&tensors.inputs).collect()
                };
                bindings.extend(params.bindings.iter().chain(&known.given).cloned());
                if reduced || known.has_workspace() {
                    bindings.push(Binding::workspace());
                }
                bindings.extend(window.bind_all(written));
                let uniforms = ColumnsWalkUniforms {
                    tiles: BatchTiles {
                        stats: known.stats.first,
                        copies: params.copies,
                        ..walk.tiles(window, range)
                    },
                    row_groups: word(self.walk.rows.column_tiles()),
                    partials_per_row: word(self.partials_per_row),
                    row_partials: known.kept.first,
                    means: known.means.map_or(0, |region| region.first),
                    partials: partials.map_or(0, |region| region.first),
                    partial_stride: word(walk.partial_stride()),
                    scalars: planner.problem.scalars(),
                };
                (bindings, uniforms)
            },
        )
    }
}

impl Walk for RowsReadTwice<'_> {
    fn bound_besides_params(&self) -> Option<usize> {
        Some(self.planner.elementwise())
    }

    fn bound_besides_given(&self) -> Option<usize> {
        let tensors = self.planner.tensors;
        Some(if self.planner.problem.has_sums(tensors) {
            let written = if self.direct {
                tensors.results.len()
            } else {
                0
            };
            tensors.reads_to_reduce().count() + 1 + written
        } else {
            self.planner.elementwise()
        })
    }

    fn has_means(&self) -> bool {
        self.partials_per_row > 1
    }

    /// The partial sums of rows.
    fn kept_records(&self) -> u64 {
        let of_rows = self.planner.body.is_gradient() && self.has_means();
        u64::from(of_rows) * self.walk.rows.rows * self.partials_per_row
    }

    /// A gradient's sums of rows and columns alike. Forward, rows have statistics like channels.
    fn reduce(&self, known: &Known, workspace: &mut Workspace) -> Result<Reduced, Unfit> {
        let (planner, walk, rows) = (&self.planner, &self.walk, &self.walk.rows);
        if !planner.body.is_gradient() {
            return Planes::over_rows(*planner).reduce(known, workspace);
        }
        let reduce = |region, splits| {
            let results = if self.direct {
                &planner.tensors.results[..]
            } else {
                &[]
            };
            self.dispatches(known, splits, Some(region), results)
        };
        let partials = |region, splits| walk.column_partials(region, splits);
        let (dispatches, sums) = planner.in_rounds(&self.rounds, workspace, reduce, partials)?;
        let of_rows = Partials::side_by_side(known.kept, word(rows.rows), self.partials_per_row);
        let summed = planner.tensors.param_grads() && !self.direct;
        Ok(Reduced {
            dispatches,
            statistics: self.has_means().then_some(of_rows),
            parameters: summed.then_some(sums),
        })
    }

    fn apply(&self, known: &Known) -> Result<Vec<Dispatch>, Unfit> {
        let (planner, outputs) = (&self.planner, &self.planner.tensors.outputs);
        // Outputs are written one after another where the adapter binds too few buffers for both.
        let bound = planner.elementwise() + known.params.bindings.len();
        let fits = planner.profile.binds(bound);
        let at_once = if fits { outputs.len() } else { 1 };
        let mut dispatches = Vec::new();
        for written in outputs.chunks(at_once) {
            let splits = 0..self.walk.splits();
            dispatches.extend(self.dispatches(known, splits, None, written)?);
        }
        Ok(dispatches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::DType;
    use crate::operation::{Backward, Norm, Operation};
    use crate::plan::tests::with_planner;
    use crate::profile::Profile;
    use crate::tuning::Tuning;

    #[test]
    fn pieces_of_rows_are_walked_few_at_a_time() {
        let profile = Profile {
            tuning: Tuning::SOFTWARE,
            ..Profile::usual()
        };
        let split = |rows, columns| {
            let norm = Norm::layer(-1);
            let operation = Operation::new(norm, Backward::default(), &[rows, columns], DType::F32);
            with_planner(&profile, &operation, |planner| {
                let split = RowsReadTwice::new(planner);
                (
                    split.walk.rows.column_tiles(),
                    split.walk.tile_rows,
                    split.walk.rows,
                )
            })
        };
        let (column_tiles, tile_rows, _) = split(512, 4096);
        assert!(column_tiles > 1);
        assert_eq!(tile_rows, 16);
        // There are so many rows that the sums of columns would outgrow a binding.
        assert_eq!(split(65536, 8192).1, 192);
        assert_eq!(split(512, 4097).1, 16);
        // Each row has one partial sum: wider workgroups would not leave fewer.
        assert_eq!(split(200_000, 3).2.division.workgroup_size, 8);
        let (column_tiles, tile_rows, rows) = split(4096, 128);
        assert_eq!(column_tiles, 1);
        assert!(tile_rows > 16 * rows.division.at_once());
    }
}
