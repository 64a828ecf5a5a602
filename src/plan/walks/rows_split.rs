//! Rows that registers do not hold, or for which the adapter allows too few bindings: a reduction and an elementwise
//! pass.

use super::channels_first::Planes;
use super::rows::{RowWalk, Rows};
use super::{Known, Reduced, Walk};
use crate::kernels::{RowsApply, RowsApplyUniforms, RowsReduce, RowsReduceUniforms};
use crate::plan::dispatch::{Binding, Dispatch};
use crate::plan::limits::{MAX_SEQUENTIAL, Unfit};
use crate::plan::planner::Planner;
use crate::plan::rounds::Rounds;
use crate::plan::sizes::{div_ceil, word};
use crate::plan::stages::finish::Partials;
use crate::plan::windows::{Window, alignment};
use crate::plan::workspace::{Region, Workspace};
use std::ops::Range;

/// The most vec4s of a row that an invocation holds: more were not faster on the software drivers measured. And the
/// fewest: with fewer, partial sums of rows would be as many bytes as the rows.
const MOST_VEC4S: u32 = 8;
const FEWEST_VEC4S: u32 = 4;

/// Rows cut into tiles: the rows of a walk by a workgroup's vectors of columns.
pub(crate) struct SplitRows {
    rows: Rows,
    walk: RowWalk,
    column_tiles: u64,
    /// Whether each sample has parameters of its own.
    of_samples: bool,
    /// Neighbouring invocations in a row that write one partial sum of it.
    threads_per_partial: u64,
    /// Whether a workgroup walks all rows, and writes the parameters' gradients.
    direct: bool,
    /// The rounds of the partial sums of columns, where it does not.
    rounds: Rounds,
}

impl SplitRows {
    /// Cuts rows, with room for the sums that are asked for.
    fn new(planner: &Planner<'_>) -> Self {
        let (axes, tensors) = (&planner.problem.axes, planner.tensors);
        let (by_row, rows_of_a_sample) = (&axes.by_row(), axes.rows_of_a_sample());
        let tuning = &planner.profile.tuning;
        let most = tuning.row_vec4s.clamp(FEWEST_VEC4S, MOST_VEC4S);
        let (room, for_rows) = if rows_of_a_sample.is_some() {
            let few = planner
                .few_records()
                .saturating_sub(planner.copied_params())
                / 8
                * 7;
            let few = few.max(1);
            (few, few / 4)
        } else {
            let rows = u64::from(by_row.channels);
            let for_rows = planner.allowed_records(rows) / 4;
            (planner.partial_records(rows), for_rows)
        };
        let mut workgroup_size = planner.workgroup(tuning.workgroup);
        // As few invocations to a row as possible, so that it has the fewest partial sums.
        let mut rows = Rows::new(planner, by_row, workgroup_size, 1, most);
        let mut threads_per_partial = planner
            .threads_per_partial(workgroup_size)
            .clamp(1, rows.threads_per_row);
        let row_records = |rows: &Rows, threads_per_partial| {
            rows.rows * partials_per_row(rows, threads_per_partial)
        };
        // Fewer partial sums of rows, each of more elements, if there is no room for them besides those of each column:
        // a split's, a block of rounds', and the totals.
        let of_columns = match tensors.param_grads() {
            true => 3 * (rows.columns.next_multiple_of(4) / 2),
            false => 0,
        };
        let held = planner
            .held_records(2 * rows.rows)
            .saturating_sub(of_columns);
        let for_rows = held.min(for_rows);
        while row_records(&rows, threads_per_partial) > for_rows
            && threads_per_partial < rows.threads_per_row
        {
            threads_per_partial *= 2;
        }
        while row_records(&rows, threads_per_partial) > for_rows
            && partials_per_row(&rows, threads_per_partial) > 1
            && planner.workgroup(2 * workgroup_size) > workgroup_size
        {
            workgroup_size *= 2;
            rows = Rows::new(planner, by_row, workgroup_size, 1, most);
            threads_per_partial = rows.threads_per_row;
        }
        if row_records(&rows, threads_per_partial) > for_rows
            && partials_per_row(&rows, threads_per_partial) > 1
            && most < MOST_VEC4S
        {
            rows = Rows::new(planner, by_row, workgroup_size, 1, MOST_VEC4S);
            threads_per_partial = rows.threads_per_row;
        }
        let room = room
            .saturating_sub(row_records(&rows, threads_per_partial))
            .max(1);
        let column_tiles = div_ceil(rows.row_vectors(), rows.tile_vectors());
        let mut split = Self {
            walk: RowWalk::one_by_one(planner, &rows, column_tiles).of_samples(rows_of_a_sample),
            column_tiles,
            of_samples: rows_of_a_sample.is_some(),
            threads_per_partial,
            direct: !planner.is_slice && rows_of_a_sample.is_none() && tensors.gate.is_none(),
            rounds: Rounds::new(0, 0, 0, 0),
            rows,
        };
        split.make_room(planner, room);
        split
    }

    /// Makes walks longer where there is no room for the sums of columns, a single walk if that is possible; else makes
    /// rounds.
    fn make_room(&mut self, planner: &Planner<'_>, room: u64) {
        let tensors = planner.tensors;
        let rows = self.rows;
        if !tensors.param_grads() {
            self.direct = false;
            self.rounds = Rounds::new(self.walk.splits(&rows), 0, 0, room);
            return;
        }
        let records = self.records_of_a_partial();
        let needed =
            |split: &Self| split.walk.splits(&split.rows) * split.partials_of_a_split() * records;
        if needed(self) > room {
            self.walk.add_thread_rows = rows.at_once() > 1;
        }
        if needed(self) > room {
            let held = planner.profile.held_unit() / (rows.columns * rows.at_once());
            let longest = div_ceil(self.walk.param_rows, rows.at_once()).min(MAX_SEQUENTIAL);
            let fitting = div_ceil(rows.rows * records, room * rows.at_once());
            let before = self.walk.tile_rows / rows.at_once();
            let walked = fitting.min(longest).min(held).max(before);
            self.walk.tile_rows = walked * rows.at_once();
        }
        let bound = tensors.src.padded_bytes() + 2 * alignment(planner.profile);
        let read = tensors.inputs.len() + tensors.params().count();
        let with_results = read + 1 + tensors.results.len();
        let single = self.walk.splits(&rows) == 1 || {
            let all = div_ceil(rows.rows, rows.at_once());
            needed(self) > room && all <= MAX_SEQUENTIAL
        };
        self.direct &= single
            && bound <= planner.profile.longest_window()
            && planner.profile.binds(with_results);
        if self.direct {
            self.walk.tile_rows = rows.rows.next_multiple_of(rows.at_once());
            self.walk.add_thread_rows = rows.at_once() > 1;
        }
        let records = match self.direct {
            true => 0,
            false => records * self.partials_of_a_split(),
        };
        self.rounds = Rounds::new(
            self.walk.splits(&rows),
            records,
            planner.subtotal_records(word(rows.columns)),
            // Sums of samples are not added up in rounds.
            if self.of_samples { u64::MAX } else { room },
        );
    }

    /// Sums of each column that a split of the rows leaves.
    fn partials_of_a_split(&self) -> u64 {
        match self.walk.add_thread_rows {
            true => 1,
            false => self.rows.at_once(),
        }
    }

    /// Records of one of them: two columns share one, but not where parameters of samples begin inside a vec4.
    fn records_of_a_partial(&self) -> u64 {
        if self.of_samples && !self.rows.aligned() {
            return self.rows.columns;
        }
        self.rows.columns.next_multiple_of(4) / 2
    }

    /// The partial sums of columns that `splits` splits of the rows leave.
    fn column_partials(&self, region: Region, splits: u64) -> Partials {
        if self.of_samples {
            return (self.walk).sample_partials(&self.rows, region, self.partials_of_a_split());
        }
        let columns = word(self.rows.columns);
        let stride = self.rows.columns.next_multiple_of(4) / 2;
        Partials {
            partial_stride: stride,
            ..Partials::paired(region, columns, splits * self.partials_of_a_split())
        }
    }
}

/// A walk over rows in pieces.
pub(crate) struct RowsReadTwice<'a> {
    planner: Planner<'a>,
    split: SplitRows,
}

impl<'a> RowsReadTwice<'a> {
    pub fn new(planner: Planner<'a>) -> Self {
        Self {
            planner,
            split: SplitRows::new(&planner),
        }
    }
}

impl RowsReadTwice<'_> {
    /// The number of partial sums of a row.
    fn partials_per_row(&self) -> u64 {
        partials_per_row(&self.split.rows, self.split.threads_per_partial)
    }
}

impl Walk for RowsReadTwice<'_> {
    fn bound_besides_params(&self) -> Option<usize> {
        Some(self.planner.elementwise())
    }

    fn has_means(&self) -> bool {
        self.partials_per_row() > 1
    }

    /// The partial sums of rows.
    fn kept_records(&self) -> u64 {
        let of_rows = self.planner.body.is_gradient() && self.has_means();
        if of_rows {
            self.split.rows.rows * self.partials_per_row()
        } else {
            0
        }
    }

    /// A gradient's sums of rows and columns alike. Forward, rows have statistics like channels.
    fn reduce(&self, known: &Known, workspace: &mut Workspace) -> Result<Reduced, Unfit> {
        let Self { planner, split, .. } = self;
        if !planner.body.is_gradient() {
            return Planes::over_rows(*planner).reduce(known, workspace);
        }
        let (rows, tensors, params) = (&split.rows, planner.tensors, &known.params);
        let partials_per_row = self.partials_per_row();
        let kernel = RowsReduce {
            threads_per_row: word(rows.threads_per_row),
            threads_per_partial: word(split.threads_per_partial),
            column_vectors: word(rows.column_vectors),
            vector_vec4s: word(rows.vector_vec4s),
            one_partial: partials_per_row == 1,
            aligned: rows.aligned(),
            complete: rows.complete(),
            of_samples: split.of_samples,
            scaled: params.scaled,
            offset: params.offset,
            weighted: params.weighted,
            summed: tensors.param_grads(),
            add_thread_rows: split.walk.add_thread_rows && tensors.param_grads(),
            direct: split.direct,
        };
        let reduce = |region: Region, splits: Range<u64>| {
            let windows = self.windows(splits)?;
            let kernel = (kernel, rows.workgroup_size);
            planner.over(&windows, kernel, |window, range| {
                let mut bindings = tensors.reduced(window);
                bindings.extend(params.bindings.clone());
                bindings.push(Binding::workspace());
                if split.direct {
                    bindings.extend(tensors.result_bindings());
                }
                let uniforms = RowsReduceUniforms {
                    tiles: split.walk.uniforms(rows, window, range),
                    column_tiles: word(split.column_tiles),
                    partials_per_row: word(partials_per_row),
                    stats: known.stats.first,
                    weights: params.weights,
                    offsets: params.offsets,
                    row_partials: known.kept.first,
                    partials: region.first,
                    inverse_count: 1.0 / rows.columns.max(1) as f64,
                };
                (bindings, uniforms)
            })
        };
        let (dispatches, of_columns) =
            planner.in_rounds(&split.rounds, workspace, reduce, |region, splits| {
                split.column_partials(region, splits)
            })?;
        let of_rows = Partials {
            channel_stride: partials_per_row,
            ..Partials::plain(known.kept, word(rows.rows), partials_per_row, 1)
        };
        let unfinished = tensors.param_grads() && !split.direct;
        Ok(Reduced {
            dispatches,
            statistics: self.has_means().then_some(of_rows),
            parameters: unfinished.then_some(of_columns),
        })
    }

    fn apply(&self, known: &Known) -> Result<Vec<Dispatch>, Unfit> {
        let Self { planner, split, .. } = self;
        let (rows, tensors, params) = (&split.rows, planner.tensors, &known.params);
        let kernel = RowsApply {
            threads_per_row: word(rows.threads_per_row),
            column_vectors: word(rows.column_vectors),
            vector_vec4s: word(rows.vector_vec4s),
            one_partial: known.means.is_none(),
            aligned: rows.aligned(),
            complete: rows.complete(),
            of_samples: split.of_samples,
            scaled: params.scaled,
            offset: params.offset,
            weighted: params.weighted,
            narrow: rows.columns < 4,
            whole: rows.elements().is_multiple_of(rows.vector()),
        };
        let (read, written) = (&tensors.inputs, &tensors.outputs);
        let bound = planner.elementwise() + params.bindings.len();
        // Outputs are written one after another where the adapter binds too few buffers for both.
        let at_once = if planner.profile.binds(bound) {
            written.len()
        } else {
            1
        };
        let windows = self.windows(0..split.walk.splits(rows))?;
        let kernel = (kernel, rows.workgroup_size);
        let mut dispatches = Vec::new();
        for written in written.chunks(at_once) {
            let pass = planner.over(&windows, kernel, |window, range| {
                let mut bindings: Vec<_> = read.iter().map(|tensor| window.bind(tensor)).collect();
                bindings.extend(params.bindings.clone());
                bindings.push(Binding::workspace());
                bindings.extend(written.iter().map(|tensor| window.bind(tensor)));
                let uniforms = RowsApplyUniforms {
                    tiles: split.walk.uniforms(rows, window, range),
                    column_tiles: word(split.column_tiles),
                    stats: known.stats.first,
                    means: known.means.map_or(0, |region| region.first),
                    weights: params.weights,
                    offsets: params.offsets,
                };
                (bindings, uniforms)
            })?;
            dispatches.extend(pass);
        }
        Ok(dispatches)
    }
}

impl RowsReadTwice<'_> {
    /// The windows of some splits.
    fn windows(&self, splits: Range<u64>) -> Result<Vec<Window>, Unfit> {
        let split = &self.split;
        let (rows, walk) = (&split.rows, &split.walk);
        // Between two cuts: the rows of a tile, or where that is one row, a tile of its columns.
        let split_tiles = split.column_tiles;
        let unit_tiles = if walk.tile_rows == 1 { 1 } else { split_tiles };
        let units = splits.start * split_tiles / unit_tiles..splits.end * split_tiles / unit_tiles;
        let start = |unit: u64| {
            let (block, tile) = match unit_tiles {
                1 => (unit / split_tiles, unit % split_tiles),
                _ => (unit, 0),
            };
            let first = walk.start(rows, block);
            // Not past the row's end: its last tile may hold only a vec4 that begins in the next row.
            let inside = (tile * rows.tile_vectors() * rows.vector()).min(rows.columns);
            (first + inside).min(rows.elements())
        };
        self.planner.windows(units, unit_tiles, start)
    }
}

/// The number of partial sums of a row, from all invocations that hold some of it.
fn partials_per_row(rows: &Rows, threads_per_partial: u64) -> u64 {
    let before = div_ceil(rows.row_vectors(), rows.tile_vectors()).saturating_sub(1);
    let rest = rows.row_vectors() - before * rows.tile_vectors();
    let invocations = before * rows.threads_per_row + rest.min(rows.threads_per_row);
    div_ceil(invocations, threads_per_partial)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::with_planner;
    use crate::{Backward, DType, Norm, Operation, Profile, Tuning};

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
                RowsReadTwice::new(planner).split
            })
        };
        let long = split(512, 4096);
        assert!(long.column_tiles > 1);
        assert_eq!(long.walk.tile_rows, 16);
        // There are so many rows that the sums of columns would outgrow a binding.
        assert_eq!(split(65536, 8192).walk.tile_rows, 192);
        assert_eq!(split(512, 4097).walk.tile_rows, 16);
        // Each row has one partial sum: wider workgroups would not leave fewer.
        assert_eq!(split(200_000, 3).rows.workgroup_size, 8);
        let uncut = split(4096, 128);
        assert_eq!(uncut.column_tiles, 1);
        assert!(uncut.walk.tile_rows > 16 * uncut.rows.at_once());
    }
}
