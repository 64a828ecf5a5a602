//! Norms over an axis that is not the last one, like layer norm over channels (NCX): statistics belong to columns,
//! parameters to rows.
//!
//! A workgroup that has all rows of its columns reads them twice, in one dispatch. Otherwise a reduction takes the sums
//! of columns and of rows in one reading, and the elementwise pass has a column's statistics in registers and loads a
//! row's parameters. Where there is no room for the records of all columns, ranges of columns are done one after
//! another, with a workspace for one range. Ranges begin at aligned positions of the statistics, wherever that is in a
//! batch.

use super::axes::ByColumn;
use super::finish::{Derived, Partials, Route};
use super::passes::Slice;
use super::problem::Problem;
use super::rounds::Rounds;
use super::rows_split::{RowParams, THREADS_PER_PARTIAL, elementwise};
use super::tensors::Tensors;
use super::windows::{Window, alignment, windows_of};
use super::workspace::{Region, Workspace};
use super::{
    Binding, Dispatch, MAX_SEQUENTIAL, MOST_ITERATIONS, Planner, div_ceil, most_vectors, word,
};
use crate::kernels::{
    BatchTiles, ColumnsApply, ColumnsApplyUniforms, ColumnsReduce, ColumnsReduceUniforms, Scalars,
};
use crate::{Algorithm, DType, Error};
use std::ops::Range;

/// The most vec4s of a row that an invocation has.
const MOST_VEC4S: u32 = 16;

/// How workgroups divide rows, and how many rows a tile has.
#[derive(Clone)]
pub(super) struct Division {
    pub workgroup_size: u32,
    pub threads_per_row: u64,
    pub vector_vec4s: u64,
    pub column_vectors: u64,
    pub tile_rows: u64,
}

impl Division {
    /// Rows that a workgroup does at once.
    pub fn at_once(&self) -> u64 {
        u64::from(self.workgroup_size) / self.threads_per_row
    }

    /// Elements of a row that a workgroup has.
    pub fn tile_columns(&self) -> u64 {
        4 * self.vector_vec4s * self.column_vectors * self.threads_per_row
    }

    /// Tiles along the rows of a batch.
    fn row_tiles(&self, of: &ByColumn) -> u64 {
        div_ceil(of.rows.into(), self.tile_rows)
    }

    /// Iterations of an invocation's loops over its vectors of a row.
    fn of_a_row(&self) -> u64 {
        2 + self.column_vectors * (1 + self.vector_vec4s)
    }
}

/// All columns of some batches, or some columns of one.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    batches: Range<u64>,
    columns: Range<u64>,
    /// Column tiles of a batch, and the number of the first.
    tiles: u64,
    first_tile: u64,
}

/// The columns of a dispatch or of several, one after another, and the rows that are summed.
pub(super) struct Columns {
    pub division: Division,
    /// Ranges of the statistics, each with its pieces.
    pub ranges: Vec<(Range<u64>, Vec<Piece>)>,
    /// Column tiles that a workgroup walks, and groups of as many that have partial sums of a row.
    walked_tiles: u64,
    row_groups: u64,
    threads_per_partial: u64,
}

impl Columns {
    fn partials_per_row(&self) -> u64 {
        self.row_groups * (self.division.threads_per_row / self.threads_per_partial)
    }

    /// Whether all columns are done at once.
    fn at_once(&self) -> bool {
        self.ranges.len() == 1
    }

    /// The most statistics of a range.
    fn longest(&self) -> u64 {
        let lengths = self.ranges.iter().map(|(range, _)| range.end - range.start);
        lengths.max().unwrap_or(0)
    }
}

/// What the dispatches of a norm over columns have in common.
struct Common<'a> {
    of: &'a ByColumn,
    tensors: &'a Tensors,
    columns: Columns,
    params: RowParams,
    scalars: Scalars,
    /// Whether one dispatch does everything but the last sums of rows.
    fused: bool,
    /// Regions of the workspace: statistics, a gradient's means, partial sums of rows.
    stats: Region,
    means: Option<Region>,
    of_rows: Region,
}

impl Common<'_> {
    /// The bindings of a dispatch that reads and writes element by element.
    fn bindings_of_all(&self, window: &Window, has_workspace: bool) -> Vec<Binding> {
        let tensors = self.tensors;
        let inputs = tensors.inputs.iter();
        let mut bindings: Vec<_> = inputs.map(|tensor| window.bind(tensor)).collect();
        if self.fused {
            let given = tensors.statistics.all();
            bindings.extend(given.map(|statistic| Binding::whole(&statistic)));
        }
        bindings.extend(self.params.bindings());
        if has_workspace {
            bindings.push(Binding::workspace());
        }
        bindings.extend(tensors.outputs.iter().map(|tensor| window.bind(tensor)));
        if self.fused {
            let written = tensors.results.iter();
            let written = written.filter(|result| result.tensor.is_statistic());
            bindings.extend(written.map(Binding::whole));
        }
        bindings
    }
}

/// The column tiles and tiles of rows that some dispatches do.
pub(super) struct Tiles<'a> {
    pub piece: &'a Piece,
    pub row_tiles: Range<u64>,
    pub tile_rows: u64,
    pub walked_tiles: u64,
    /// The record of statistic 0.
    pub stats: u32,
}

/// A region that no kernel reads.
fn nowhere() -> Region {
    Region { first: 0 }
}

/// The tensors of statistics that a fused kernel binds.
fn bound_statistics(tensors: &Tensors) -> usize {
    let mut results = tensors.results.iter().map(|result| result.tensor);
    let written = results.by_ref().filter(|tensor| tensor.is_statistic());
    tensors.statistics.tensors.len() + written.count()
}

impl Planner<'_> {
    /// Whether two rows share words of elements.
    pub(super) fn shares_words(&self, of: &ByColumn) -> bool {
        !(u64::from(of.columns) * self.data.size()).is_multiple_of(4)
    }

    /// Why a dispatch cannot read and write whole batches, and statistics, if it cannot.
    pub(super) fn whole_columns_unsupported_reason(
        &self,
        of: &ByColumn,
        tensors: &Tensors,
    ) -> Option<String> {
        let batch = u64::from(of.rows) * u64::from(of.columns) * self.data.size();
        if batch + 2 * alignment(self.profile) > self.profile.window_limit().1 {
            return Some(format!("{batch} bytes of a batch do not fit one binding"));
        }
        let mut written = tensors.results.iter().filter(|r| r.tensor.is_statistic());
        let halves = written.any(|statistic| statistic.dtype.size() < DType::F32.size());
        (halves && !of.is_aligned())
            .then(|| "statistics of 16 bits share words with those of other columns".to_owned())
    }

    /// Why one dispatch cannot do everything but the last sums of rows, if it cannot.
    pub fn fused_columns_unsupported_reason(
        &self,
        of: &ByColumn,
        tensors: &Tensors,
    ) -> Option<String> {
        let has_workspace = tensors.param_grads() || tensors.params().count() > 0;
        let bound = tensors.inputs.len() + tensors.outputs.len() + usize::from(has_workspace);
        let reason = self.more_bindings_than_allowed(bound + bound_statistics(tensors));
        if reason.is_some() {
            return reason;
        }
        if self.body.is_inference() {
            let row = u64::from(of.columns) * self.data.size();
            let fits = row + 2 * alignment(self.profile) <= self.profile.window_limit().1;
            return (!fits).then(|| format!("{row} bytes of a row do not fit one binding"));
        }
        if let Some(reason) = self.whole_columns_unsupported_reason(of, tensors) {
            return Some(reason);
        }
        let columns = self.cut_columns(of, tensors, true);
        let division = &columns.division;
        if div_ceil(of.rows.into(), division.at_once()) > self.longest_walk(division) {
            return Some(format!("{} elements of a column are too many", of.rows));
        }
        (self.row_records(of, tensors, &columns) > self.room_of_columns(tensors))
            .then(|| "its partial sums of rows would outgrow the tensor".to_owned())
    }

    /// Whether a reduction and an elementwise pass have room for the records of all columns.
    pub fn columns_have_room(&self, of: &ByColumn, tensors: &Tensors) -> bool {
        self.cut_columns(of, tensors, false).at_once()
    }

    /// The most rows that an invocation of a fused kernel walks.
    fn longest_walk(&self, division: &Division) -> u64 {
        let rows = MOST_ITERATIONS / 4 / (division.of_a_row() + 8);
        rows.min(self.body.block_rows() * MAX_SEQUENTIAL)
    }

    /// The whole of a norm over columns.
    pub(super) fn over_all_columns(
        &self,
        problem: &Problem,
        of: &ByColumn,
        tensors: &Tensors,
        workspace: &mut Workspace,
    ) -> Result<Slice, Error> {
        let algorithm = self.choose_columns(of, tensors)?;
        let dispatches = match algorithm {
            _ if problem.axes.elements() == 0 => {
                let region = workspace.reserve(0)?;
                let results = tensors.results.iter().map(|r| r.elements).max();
                let none = Partials::none(word(results.unwrap_or(0)), region);
                self.finish_written(none, tensors, problem, &mut None, workspace)?
            }
            Algorithm::ColumnsInRegisters => {
                self.columns_in_registers(of, tensors, problem.scalars(), workspace)?
            }
            _ => {
                let fused = algorithm == Algorithm::FusedColumns;
                self.columns_read_twice(problem, of, tensors, fused, workspace)?
            }
        };
        Ok(Slice::whole(algorithm, dispatches))
    }

    fn columns_read_twice(
        &self,
        problem: &Problem,
        of: &ByColumn,
        tensors: &Tensors,
        fused: bool,
        workspace: &mut Workspace,
    ) -> Result<Vec<Dispatch>, Error> {
        let columns = self.cut_columns(of, tensors, fused);
        let bound = elementwise(tensors) + if fused { bound_statistics(tensors) } else { 0 };
        let (params, mut dispatches) = self.row_params(tensors, bound, workspace)?;
        let records = if fused { 0 } else { columns.longest() };
        let is_gradient = self.body.is_gradient();
        let has_means = is_gradient && !fused;
        let common = &Common {
            of,
            tensors,
            params,
            scalars: problem.scalars(),
            fused,
            stats: workspace.reserve(records)?,
            means: has_means.then(|| workspace.reserve(records)).transpose()?,
            of_rows: workspace.reserve(self.row_records(of, tensors, &columns))?,
            columns,
        };
        let before = workspace.clone();
        for (range, pieces) in &common.columns.ranges {
            let mut own = before.clone();
            let of_range = tensors.of_statistics(range);
            let mut of_statistics = Vec::new();
            if !fused && !tensors.statistics.tensors.is_empty() {
                of_statistics =
                    self.pack_statistics(&of_range, &[], problem.epsilon, common.stats)?;
            }
            let mut elementwise = Vec::new();
            if fused && !self.body.is_inference() {
                elementwise = self.reduce_columns(common, range, pieces, nowhere(), 0..1)?;
            } else {
                if !self.body.is_inference() {
                    dispatches.extend(bound_to(range, tensors, std::mem::take(&mut of_statistics)));
                    let (reduce, partials) =
                        self.sums_of_columns(common, range, pieces, &mut own)?;
                    dispatches.extend(reduce);
                    let derived = if has_means {
                        Derived::of(of.rows.into())
                    } else {
                        problem.derived(&of_range)
                    };
                    let derived = Derived {
                        means: common.means.or(Some(common.stats)),
                        ..derived
                    };
                    of_statistics = self.finish(&partials, &derived, Route::Whole)?;
                }
                elementwise.extend(self.apply_to_columns(common, range, pieces)?);
            }
            dispatches.extend(bound_to(range, tensors, of_statistics));
            dispatches.extend(elementwise);
            workspace.grow_to(&own);
        }
        if is_gradient {
            let partials = common.columns.partials_per_row();
            let of_rows = Partials {
                channel_stride: partials,
                ..Partials::plain(common.of_rows, word(of.parameters()), partials, 1)
            };
            dispatches
                .extend(self.finish_written(of_rows, tensors, problem, &mut None, workspace)?);
        }
        Ok(dispatches)
    }

    /// Records of the workspace that statistics and partial sums of columns may use; those of rows may use a third.
    fn room_of_columns(&self, tensors: &Tensors) -> u64 {
        let streamed = 8 * self.profile.max_window.min(self.profile.max_binding);
        let room = self.few_records(&tensors.src).min(self.held_records(0));
        let room = room.min(streamed / (4 * self.data.accumulator().size()));
        room.max(4096) / 4 * 3
    }

    /// Records of the partial sums of rows.
    fn row_records(&self, of: &ByColumn, tensors: &Tensors, columns: &Columns) -> u64 {
        if !tensors.param_grads() {
            return 0;
        }
        of.parameters() * columns.partials_per_row()
    }

    /// Records between the partial sums of two tiles of rows.
    fn partial_stride(&self, of: &ByColumn, range: &Range<u64>) -> u64 {
        (range.end - range.start).next_multiple_of(8) * self.halves_of_a_partial(of) / 2
    }

    /// Half records of a column that a tile of rows leaves.
    fn halves_of_a_partial(&self, of: &ByColumn) -> u64 {
        if of.is_aligned() && self.body.pairs() {
            1
        } else {
            2
        }
    }

    /// How columns are divided: all at once where that leaves few records and windows hold whole rows, or else in
    /// ranges.
    fn cut_columns(&self, of: &ByColumn, tensors: &Tensors, fused: bool) -> Columns {
        let room = self.room_of_columns(tensors);
        let statistics = of.statistics();
        let mut division = self.divide_for_sums(of, of.columns.into());
        let fixed = if self.body.is_gradient() { 2 } else { 1 };
        let halves = self.halves_of_a_partial(of);
        let mut length = statistics.max(1);
        let (window, slack) = (self.profile.window_limit().1, 2 * alignment(self.profile));
        if fused {
            division = self.divide_columns(of);
            division.tile_rows = of.rows.into();
        } else {
            let split = statistics * halves / 2;
            let needed = fixed * statistics + split * division.row_tiles(of);
            let row_bytes = u64::from(of.columns) * self.data.size();
            let fits = division.tile_rows * row_bytes + slack <= window;
            if needed > room || !fits {
                let unit = alignment(self.profile) / 2;
                let of_room = room / (fixed + 4 * halves);
                let of_window = (window.saturating_sub(slack) / self.data.size()).max(1);
                length = (of_room.min(of_window) / unit * unit).max(unit);
                // A stream reads whole windows: then each is a piece of one row.
                let streamed = self.profile.max_window < self.profile.max_binding;
                let rows = if streamed {
                    1
                } else {
                    window / (row_bytes + slack)
                };
                division = self.divide_for_sums(of, length.min(of.columns.into()));
                division.tile_rows = (division.at_once() * MAX_SEQUENTIAL)
                    .min(of.rows.into())
                    .min(rows)
                    .max(1);
            }
        }
        let starts = (0..div_ceil(statistics, length)).map(|index| index * length);
        let ranges = starts.map(|start| start..(start + length).min(statistics));
        let mut ranges: Vec<_> = ranges
            .map(|range| {
                let pieces = pieces_of(of, &range, division.tile_columns());
                (range, pieces)
            })
            .collect();
        self.number_tiles(of, tensors, division, &mut ranges, fused)
    }

    /// Numbers the column tiles, and says how many of them share the partial sums of rows, so that those are few.
    fn number_tiles(
        &self,
        of: &ByColumn,
        tensors: &Tensors,
        division: Division,
        ranges: &mut Vec<(Range<u64>, Vec<Piece>)>,
        fused: bool,
    ) -> Columns {
        let subgroup = self.subgroup(division.workgroup_size);
        let threads_per_partial = match subgroup {
            0 if self.cheap_barriers() => THREADS_PER_PARTIAL,
            0 => 1,
            subgroup => subgroup,
        };
        let mut threads_per_partial = threads_per_partial.min(division.threads_per_row);
        let mut walked_tiles = 1;
        // The tiles of a sample, or of all batches.
        let mut tiles = vec![
            0;
            if of.of_samples {
                of.batches as usize
            } else {
                1
            }
        ];
        let sample = |batch: u64| if of.of_samples { batch as usize } else { 0 };
        for piece in ranges.iter().flat_map(|(_, pieces)| pieces) {
            for batch in piece.batches.clone() {
                if let Some(tiles) = tiles.get_mut(sample(batch)) {
                    *tiles += piece.tiles;
                }
            }
        }
        let most = tiles.iter().copied().max().unwrap_or(0).max(1);
        if tensors.param_grads() {
            let room = self.room_of_columns(tensors) / 3;
            let records = |threads_per_partial: u64, walked: u64| {
                let of_a_tile = division.threads_per_row / threads_per_partial;
                of.parameters() * of_a_tile * div_ceil(most, walked)
            };
            while records(threads_per_partial, 1) > room
                && threads_per_partial < division.threads_per_row
            {
                threads_per_partial *= 2;
            }
            let walk = div_ceil(division.tile_rows, division.at_once());
            let longest = if fused {
                (self.longest_walk(&division) / walk.max(1)).clamp(1, MAX_SEQUENTIAL)
            } else {
                MOST_ITERATIONS / 4 / (walk * (division.of_a_row() + 8)).max(1)
            };
            let longest = longest.clamp(1, MAX_SEQUENTIAL);
            let wanted = div_ceil(records(threads_per_partial, 1), room.max(1));
            walked_tiles = wanted.clamp(1, longest);
        }
        let padded = most.next_multiple_of(walked_tiles);
        let mut done = vec![0; tiles.len()];
        for piece in ranges.iter_mut().flat_map(|(_, pieces)| pieces) {
            let first = sample(piece.batches.start);
            let Some((done, &tiles)) = done.get_mut(first).zip(tiles.get(first)) else {
                continue;
            };
            piece.first_tile = *done
                + if of.of_samples {
                    piece.batches.start * padded
                } else {
                    0
                };
            *done += piece.tiles
                * if of.of_samples {
                    1
                } else {
                    piece.batches.end - piece.batches.start
                };
            // The last piece of a sample has the tiles that it has not, so that all partial sums are written.
            if of.of_samples && *done == tiles {
                piece.tiles += padded - tiles;
            }
        }
        Columns {
            division,
            ranges: std::mem::take(ranges),
            walked_tiles,
            row_groups: padded / walked_tiles,
            threads_per_partial,
        }
    }

    /// Divides rows among invocations: first a vector for each, then several.
    fn divide_columns(&self, of: &ByColumn) -> Division {
        self.divide_some_columns(of, of.columns.into())
    }

    /// The same for `width` columns of a batch.
    fn divide_some_columns(&self, of: &ByColumn, width: u64) -> Division {
        let tuning = &self.profile.tuning;
        let workgroup_size = self.workgroup(tuning.workgroup);
        let vector_vec4s = u64::from(self.vector_vec4s(of.columns.into()));
        let width_vectors = div_ceil(width, 4 * vector_vec4s).max(1);
        let threads_per_row = tuning.channels_last_threads.clamp(1, workgroup_size);
        let threads_per_row =
            (1u64 << threads_per_row.ilog2()).min(width_vectors.next_power_of_two());
        // Twice as many as in channels last: a row's parameters are loaded for each of them.
        let vec4s = (2 * tuning.channels_last_vec4s).min(MOST_VEC4S);
        let most = most_vectors(vec4s, vector_vec4s);
        let column_tiles = div_ceil(width_vectors, threads_per_row * most);
        Division {
            workgroup_size,
            threads_per_row,
            vector_vec4s,
            column_vectors: div_ceil(width_vectors, threads_per_row * column_tiles),
            tile_rows: 1,
        }
    }

    /// The division of a reduction over `width` columns of each batch: enough tiles to keep the adapter busy, none too
    /// small or larger than a window, and no invocation adds too many numbers in a row.
    fn divide_for_sums(&self, of: &ByColumn, width: u64) -> Division {
        let division = self.divide_some_columns(of, width);
        let tuning = &self.profile.tuning;
        let rows = u64::from(of.rows);
        let beside = div_ceil(width, division.tile_columns()) * u64::from(of.batches);
        let splits = div_ceil(tuning.busy_workgroups.into(), beside)
            .min(div_ceil(rows * division.tile_columns(), tuning.tile.into()))
            .max(div_ceil(rows, division.at_once() * MAX_SEQUENTIAL))
            .max(1);
        Division {
            tile_rows: div_ceil(rows, splits)
                .min(self.window_unit(of.elements()) / u64::from(of.columns).max(1))
                .max(1),
            ..division
        }
    }

    /// The rows of a tile of the elementwise pass: a tile loads its coefficients once, so it grows while enough tiles are
    /// left to keep the adapter busy.
    fn rows_of_apply(&self, of: &ByColumn, columns: &Columns) -> u64 {
        let division = &columns.division;
        let tuning = &self.profile.tuning;
        let tile = u64::from(tuning.tile);
        let left = of.elements() / u64::from(tuning.busy_workgroups.max(1));
        let row_bytes = u64::from(of.columns) * self.data.size() + 2 * alignment(self.profile);
        // Some columns of several rows are not in one piece, as a stream writes them.
        let held = if columns.at_once() {
            self.profile.window_limit().1 / row_bytes
        } else {
            1
        };
        (left.clamp(tile, 8 * tile) / division.tile_columns())
            .min(division.at_once() * (MOST_ITERATIONS / 2 / division.of_a_row()))
            .min(self.window_unit(of.elements()) / u64::from(of.columns).max(1))
            .min(held)
            .max(1)
    }

    /// The partial sums of columns, and of rows.
    fn sums_of_columns(
        &self,
        common: &Common<'_>,
        range: &Range<u64>,
        pieces: &[Piece],
        workspace: &mut Workspace,
    ) -> Result<(Vec<Dispatch>, Partials), Error> {
        let length = range.end - range.start;
        let stride = self.partial_stride(common.of, range);
        let rounds = Rounds::new(
            common.columns.division.row_tiles(common.of),
            stride,
            self.subtotal_records(word(length)),
            self.room_of_columns(common.tensors)
                .saturating_sub(2 * length),
        );
        let (mut dispatches, partials) = self.in_rounds(
            &rounds,
            workspace,
            |region, splits| self.reduce_columns(common, range, pieces, region, splits),
            |region, splits| Partials {
                paired: self.halves_of_a_partial(common.of) == 1,
                ..Partials::plain(region, word(length), splits, stride)
            },
        )?;
        let (added, partials) = self.add_subtotals(partials, workspace)?;
        dispatches.extend(added);
        Ok((dispatches, partials))
    }

    /// The reduction of some tiles of rows.
    fn reduce_columns(
        &self,
        common: &Common<'_>,
        range: &Range<u64>,
        pieces: &[Piece],
        region: Region,
        row_tiles: Range<u64>,
    ) -> Result<Vec<Dispatch>, Error> {
        let Common {
            of,
            tensors,
            columns,
            params,
            fused,
            ..
        } = common;
        let division = &columns.division;
        let subgroup = self.subgroup(division.workgroup_size);
        let kernel = ColumnsReduce {
            threads_per_row: word(division.threads_per_row),
            threads_per_partial: word(columns.threads_per_partial),
            column_vectors: word(division.column_vectors),
            vector_vec4s: word(division.vector_vec4s),
            subgroups: (2..=subgroup).contains(&columns.threads_per_partial),
            aligned: of.is_aligned(),
            shares_words: self.shares_words(of) && *fused,
            recorded: !fused && !tensors.statistics.tensors.is_empty(),
            applied: *fused,
            scaled: params.is_scaled(),
            offset: params.is_offset(),
            weighted: params.weighted(),
            of_samples: of.of_samples,
            summed: tensors.param_grads(),
            add_thread_rows: division.at_once() > 1,
        };
        // Statistics are counted from the first of all on.
        let before = range.start * self.halves_of_a_partial(of) / 2;
        let dispatch = |window: &Window, tiles, workgroups| {
            let uniforms = ColumnsReduceUniforms {
                tiles,
                row_groups: word(columns.row_groups),
                partials_per_row: word(columns.partials_per_row()),
                row_partials: common.of_rows.first,
                partials: region.first.wrapping_sub(word(before)),
                partial_stride: word(self.partial_stride(of, range)),
                scalars: common.scalars,
            };
            let has_workspace = !fused || params.weighted() || tensors.param_grads();
            let bindings = if *fused {
                common.bindings_of_all(window, has_workspace)
            } else {
                let mut bindings = tensors.reduced(window);
                bindings.extend(params.bindings());
                bindings.push(Binding::workspace());
                bindings
            };
            self.dispatch(
                kernel,
                division.workgroup_size,
                bindings,
                &uniforms,
                workgroups,
            )
        };
        let mut dispatches = Vec::new();
        for piece in pieces {
            let tiles = Tiles {
                piece,
                row_tiles: row_tiles.clone(),
                tile_rows: division.tile_rows,
                walked_tiles: columns.walked_tiles,
                stats: common.stats.first.wrapping_sub(word(range.start)),
            };
            dispatches.extend(self.over_columns(of, tensors, &tiles, *params, dispatch)?);
        }
        Ok(dispatches)
    }

    fn apply_to_columns(
        &self,
        common: &Common<'_>,
        range: &Range<u64>,
        pieces: &[Piece],
    ) -> Result<Vec<Dispatch>, Error> {
        let Common {
            of,
            tensors,
            columns,
            params,
            fused,
            ..
        } = common;
        let division = &columns.division;
        let kernel = ColumnsApply {
            threads_per_row: word(division.threads_per_row),
            column_vectors: word(division.column_vectors),
            vector_vec4s: word(division.vector_vec4s),
            aligned: of.is_aligned(),
            shares_words: self.shares_words(of),
            recorded: !fused,
            scaled: params.is_scaled(),
            offset: params.is_offset(),
            weighted: params.weighted(),
            of_samples: of.of_samples,
            batch_statistics: common.means.is_some(),
        };
        let before = word(range.start);
        let dispatch = |window: &Window, tiles, workgroups| {
            let means = common
                .means
                .map_or(0, |means| means.first.wrapping_sub(before));
            let uniforms = ColumnsApplyUniforms {
                tiles,
                means,
                epsilon: common.scalars.epsilon,
            };
            let bindings = common.bindings_of_all(window, !fused || params.weighted());
            self.dispatch(
                kernel,
                division.workgroup_size,
                bindings,
                &uniforms,
                workgroups,
            )
        };
        let tile_rows = self.rows_of_apply(of, columns);
        let mut dispatches = Vec::new();
        for piece in pieces {
            let tiles = Tiles {
                piece,
                row_tiles: 0..div_ceil(of.rows.into(), tile_rows),
                tile_rows,
                walked_tiles: 1,
                stats: common.stats.first.wrapping_sub(before),
            };
            dispatches.extend(self.over_columns(of, tensors, &tiles, *params, dispatch)?);
        }
        Ok(dispatches)
    }

    /// A dispatch for each window of some tiles of rows of a piece. Whole batches share windows that hold them.
    pub(super) fn over_columns(
        &self,
        of: &ByColumn,
        tensors: &Tensors,
        tiles: &Tiles<'_>,
        params: RowParams,
        dispatch: impl Fn(&Window, BatchTiles, [u32; 2]) -> Dispatch,
    ) -> Result<Vec<Dispatch>, Error> {
        let Tiles {
            piece,
            row_tiles,
            tile_rows,
            walked_tiles,
            stats,
        } = tiles;
        let (rows, width) = (u64::from(of.rows), u64::from(of.columns));
        // The elements of some tiles of rows of some batches.
        let span = |batches: Range<u64>, tiles: Range<u64>| {
            let last_row = (tiles.end * tile_rows).min(rows).saturating_sub(1);
            let first = (batches.start * rows + tiles.start * tile_rows) * width;
            let last = (batches.end.saturating_sub(1) * rows + last_row) * width;
            first + piece.columns.start..last + piece.columns.end
        };
        let one = span(0..1, row_tiles.clone());
        let bytes = (one.end - one.start) * self.data.size() + 2 * alignment(self.profile);
        let mut parts = Vec::new();
        let src = &tensors.src;
        if bytes <= self.profile.window_limit().1 {
            let of_batches = |batches: Range<u64>| span(batches, row_tiles.clone());
            for window in windows_of(self.profile, src, piece.batches.clone(), of_batches)? {
                let owned = Some(of_batches(window.units.clone()));
                parts.push((
                    window.units.clone(),
                    row_tiles.clone(),
                    Window { owned, ..window },
                ));
            }
        } else {
            for batch in piece.batches.clone() {
                let of_tiles = |tiles: Range<u64>| span(batch..batch + 1, tiles);
                for window in windows_of(self.profile, src, row_tiles.clone(), of_tiles)? {
                    let owned = Some(of_tiles(window.units.clone()));
                    parts.push((
                        batch..batch + 1,
                        window.units.clone(),
                        Window { owned, ..window },
                    ));
                }
            }
        }
        let dispatches = parts.iter().map(|(batches, row_tiles, window)| {
            let first = piece.first_tile + (batches.start - piece.batches.start) * piece.tiles;
            let end = first + (batches.end - batches.start) * piece.tiles;
            let beside = div_ceil(end, *walked_tiles) - first / walked_tiles;
            let tiles = beside * (row_tiles.end - row_tiles.start);
            let workgroups = self.workgroups(tiles)?;
            let vector_vec4s = u64::from(self.vector_vec4s(width));
            let tiles = BatchTiles {
                rows: of.rows,
                columns: of.columns,
                statistics: word(of.statistics()),
                parameters: word(of.parameters()),
                first_column: word(piece.columns.start),
                end_column: word(piece.columns.end),
                first_batch: word(batches.start),
                column_tiles: word(piece.tiles),
                first_column_tile: word(first),
                end_column_tile: word(end),
                walked_tiles: word(*walked_tiles),
                beside: word(beside),
                tile_rows: word(*tile_rows),
                first_row_tile: word(row_tiles.start),
                range: window.tile_range(src, 0..tiles, workgroups),
                last_vector: window.last_vector(4 * vector_vec4s),
                stats: *stats,
                weights: params.weights(),
                offsets: params.offsets(),
            };
            Ok(dispatch(window, tiles, workgroups))
        });
        dispatches.collect()
    }
}

/// The pieces of a range of statistics: a batch's last columns, whole batches, a batch's first columns.
pub(super) fn pieces_of(of: &ByColumn, range: &Range<u64>, tile_columns: u64) -> Vec<Piece> {
    let width = u64::from(of.columns).max(1);
    let mut pieces = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let (batch, column) = (start / width, start % width);
        let whole = (range.end - start) / width;
        let (batches, columns) = if column == 0 && whole > 0 {
            (batch..batch + whole, 0..width)
        } else {
            (
                batch..batch + 1,
                column..(column + range.end - start).min(width),
            )
        };
        start += (batches.end - batches.start) * (columns.end - columns.start);
        pieces.push(Piece {
            tiles: div_ceil(columns.end - columns.start, tile_columns),
            first_tile: 0,
            batches,
            columns,
        });
    }
    pieces
}

/// Dispatches over a range of statistics, whose tensors are bound from the first of them on.
fn bound_to(range: &Range<u64>, tensors: &Tensors, mut dispatches: Vec<Dispatch>) -> Vec<Dispatch> {
    for binding in dispatches
        .iter_mut()
        .flat_map(|dispatch| &mut dispatch.bindings)
    {
        let mut all = tensors.all().into_iter();
        let bound = all.find(|r| r.tensor == binding.tensor && r.tensor.is_statistic());
        let skipped = bound.map_or(0, |statistic| range.start * statistic.dtype.size());
        binding.shift(skipped);
    }
    dispatches
}
