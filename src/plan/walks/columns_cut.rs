//! How norms over columns are cut: column tiles, tiles of rows, and ranges of columns.

use super::division::Division;
use crate::element::DType;
use crate::plan::axes::ByColumn;
use crate::plan::limits::{
    Cannot, MAX_SEQUENTIAL, MOST_ITERATIONS, Unfit, check, check_dispatches,
};
use crate::plan::planner::Planner;
use crate::plan::sizes::{div_ceil, most_vectors};
use crate::plan::windows::alignment;
use std::collections::BTreeMap;
use std::ops::Range;

/// The most vec4s of a row that an invocation has.
const MOST_VEC4S: u32 = 16;

/// All columns of some batches, or some columns of one.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub batches: Range<u64>,
    pub columns: Range<u64>,
    /// Column tiles of a batch, and the number of the first.
    pub tiles: u64,
    pub first_tile: u64,
}

/// A tensor's columns, cut.
pub(crate) struct Cut {
    pub division: Division,
    /// Rows in a tile.
    pub tile_rows: u64,
    /// The division of the elementwise pass, and the rows in its tiles.
    pub applied: (Division, u64),
    /// Ranges of the statistics, done one after another, and the pieces of each, by its start.
    pub ranges: Vec<Range<u64>>,
    pub pieces: BTreeMap<u64, Vec<Piece>>,
    /// Column tiles that a workgroup walks, and groups of as many that have partial sums of a row.
    pub walked_tiles: u64,
    pub row_groups: u64,
    pub threads_per_partial: u64,
}

impl Cut {
    /// Partial sums of a row.
    pub fn partials_per_row(&self) -> u64 {
        self.row_groups * (self.division.threads_per_row / self.threads_per_partial)
    }
}

/// What walks over columns have in common.
#[derive(Clone, Copy)]
pub(crate) struct Columns<'a> {
    pub planner: Planner<'a>,
    pub by: ByColumn,
}

impl<'a> Columns<'a> {
    pub fn new(planner: Planner<'a>) -> Result<Self, Cannot> {
        let by = planner.problem.axes.by_column();
        let by = by.ok_or_else(|| Cannot::Because("statistics are not by column".to_owned()))?;
        Ok(Self { planner, by })
    }

    /// Why a dispatch cannot read and write whole batches, and statistics, if it cannot.
    pub fn check_whole(&self) -> Result<(), Cannot> {
        let (planner, profile) = (&self.planner, self.planner.profile);
        let batch = u64::from(self.by.rows) * u64::from(self.by.columns) * planner.data.size();
        check(
            profile.window_holds(batch),
            format_args!("{batch} bytes of a batch do not fit one binding"),
        )?;
        let bound = || {
            planner
                .tensors
                .written_statistics()
                .chain(&planner.tensors.statistics)
        };
        check(
            bound().all(|one| one.padded_bytes() <= profile.max_binding),
            "statistics do not fit one binding",
        )?;
        let mut statistics = planner.tensors.written_statistics();
        let halves = statistics.any(|one| one.dtype.size() < DType::F32.size());
        check(
            !halves || self.by.is_aligned(),
            "statistics of 16 bits share words with those of other columns",
        )
    }

    /// Records of the workspace that statistics and partial sums of columns may use; those of rows may use a third.
    pub fn room(&self) -> u64 {
        self.records().max(4096) / 4 * 3
    }

    /// Records that the workspace may have.
    pub fn records(&self) -> u64 {
        let Planner { profile, data, .. } = self.planner;
        let streamed = 8 * profile.max_window.min(profile.max_binding);
        let room = self.planner.few_records().min(self.planner.held_records(0));
        room.min(streamed / (4 * data.accumulator().size()))
    }

    /// Records of the partial sums of rows.
    pub fn row_records(&self, cut: &Cut) -> u64 {
        let summed = u64::from(self.planner.tensors.param_grads());
        summed * self.by.parameters() * cut.partials_per_row()
    }

    /// Records between the partial sums of two tiles of rows.
    pub fn partial_stride(&self, range: &Range<u64>) -> u64 {
        (range.end - range.start).next_multiple_of(8) * self.halves_of_a_partial() / 2
    }

    /// Half records of a column that a tile of rows leaves.
    pub fn halves_of_a_partial(&self) -> u64 {
        2 - u64::from(self.by.is_aligned() && self.planner.body.pairs())
    }

    /// The most rows that an invocation walks, of all its column tiles together.
    pub fn longest_walk(&self, division: &Division) -> u64 {
        let rows = MOST_ITERATIONS / 4 / (division.of_a_row() + 8);
        rows.min(self.planner.body.block_rows() * MAX_SEQUENTIAL)
    }

    /// How columns are cut: done at once where that leaves few records and windows hold whole rows, or else in ranges.
    pub fn cut(&self) -> Result<Cut, Unfit> {
        let Self { planner, by: of } = self;
        let width = u64::from(of.columns);
        let statistics = of.statistics();
        let (division, tile_rows) = self.divide_for_sums(width);
        let room = self.room();
        let halves = self.halves_of_a_partial();
        let fixed = if planner.body.is_gradient() { 2 } else { 1 };
        // Fewer tiles of rows where there is room for those.
        let most_tiles = (2 * room / statistics.max(1)).saturating_sub(2 * fixed) / halves;
        let longest = division.at_once() * MAX_SEQUENTIAL;
        let fitting = div_ceil(of.rows.into(), most_tiles.max(1));
        let tile_rows = if most_tiles > 0 && fitting <= longest {
            tile_rows.max(fitting)
        } else {
            tile_rows
        };
        let needed = statistics * (2 * fixed + halves * of.row_tiles(tile_rows)).div_ceil(2);
        let profile = planner.profile;
        let (window, slack) = (profile.longest_window(), 2 * alignment(profile));
        let row_bytes = width * planner.data.size();
        let walks = (room / 3, u64::MAX);
        // By given statistics kernels that bind these need no records.
        let tensors = planner.tensors;
        let bound = planner.elementwise() + tensors.statistics.len() + tensors.params.len();
        let mut statistics_bound = tensors.statistics.iter();
        let held = statistics_bound.all(|one| one.padded_bytes() <= profile.max_binding);
        let (needed, held_rows) = if planner.problem.is_inference() && held && profile.binds(bound)
        {
            (0, 1)
        } else {
            (needed, tile_rows)
        };
        if needed <= room && held_rows * row_bytes + slack <= window {
            return self.in_ranges((division, tile_rows), statistics, walks);
        }
        let unit = alignment(profile) / 2;
        let of_window = window.saturating_sub(slack) / planner.data.size();
        let length = (room / (fixed + 4 * halves)).min(of_window).max(unit) / unit * unit;
        let (division, _) = self.divide_for_sums(length.min(width));
        // A stream reads whole windows: then each is a piece of one row.
        let streamed = profile.max_window < profile.max_binding;
        let held = window / (row_bytes + slack);
        let most = (division.at_once() * MAX_SEQUENTIAL).min(of.rows.into());
        let tile_rows = most.min(if streamed { 1 } else { held }).max(1);
        self.in_ranges((division, tile_rows), length, walks)
    }

    /// Ranges of `length` statistics. Their column tiles are numbered, and so many of them share the partial sums of
    /// rows that those take `room` records, and that there are no more than twice `busy` walks.
    pub fn in_ranges(
        &self,
        (division, tile_rows): (Division, u64),
        length: u64,
        (room, busy): (u64, u64),
    ) -> Result<Cut, Unfit> {
        let Self { planner, by: of } = self;
        let (statistics, length) = (of.statistics(), length.max(1));
        let count = div_ceil(statistics, length);
        // Every range has a dispatch.
        check_dispatches(count)?;
        let range = |index: u64| index * length..((index + 1) * length).min(statistics);
        let ranges: Vec<Range<u64>> = (0..count).map(range).collect();
        let pieces = |range: &Range<u64>| pieces_of(of, range, division.tile_columns());
        let with_start = |range: &Range<u64>| (range.start, pieces(range));
        let mut pieces: BTreeMap<_, _> = ranges.iter().map(with_start).collect();
        // Column tiles of each sample with parameters of its own, or of all batches together. A piece of several
        // samples is the only one that these have.
        let sample = |piece: &Piece| u64::from(of.of_samples) * piece.batches.start;
        let mut tiles: BTreeMap<_, u64> = BTreeMap::new();
        for piece in pieces.values_mut().flatten() {
            let batches = piece.batches.end - piece.batches.start;
            let done = tiles.entry(sample(piece)).or_default();
            piece.first_tile = *done;
            *done += piece.tiles * if of.of_samples { 1 } else { batches };
        }
        let most = tiles.values().copied().max().unwrap_or(0).max(1);
        let mut threads_per_partial = planner.threads_per_partial(division.workgroup_size);
        threads_per_partial = threads_per_partial.min(division.threads_per_row);
        let mut walked_tiles = 1;
        if planner.tensors.param_grads() {
            let of_a_thread = of.parameters() * most * division.threads_per_row;
            while of_a_thread / threads_per_partial > room
                && threads_per_partial < division.threads_per_row
            {
                threads_per_partial *= 2;
            }
            let walk = div_ceil(tile_rows, division.at_once());
            let longest = self.longest_walk(&division) / walk.max(1);
            let samples = if of.of_samples { of.batches.into() } else { 1 };
            walked_tiles = div_ceil(of_a_thread / threads_per_partial, room)
                .max(most * samples / busy)
                .min(longest.min(MAX_SEQUENTIAL))
                .max(1);
        }
        let padded = most.next_multiple_of(walked_tiles);
        for piece in pieces.values_mut().flatten() {
            let own = sample(piece);
            // A sample's last piece has tiles past its columns, so that all partial sums are written.
            let end = piece.first_tile + piece.tiles;
            if of.of_samples && tiles.get(&own) == Some(&end) {
                piece.tiles += padded - end;
            }
            piece.first_tile += own * padded;
        }
        Ok(Cut {
            applied: self.divide_for_apply(length.min(of.columns.into()), count == 1),
            division,
            tile_rows,
            ranges,
            pieces,
            walked_tiles,
            row_groups: padded / walked_tiles,
            threads_per_partial,
        })
    }

    /// Divides `width` columns of each batch among invocations: first a vector for each, then several. `for_sums` says
    /// that sums alone are taken.
    fn divide(&self, width: u64, for_sums: bool) -> Division {
        let planner = &self.planner;
        let tuning = &planner.profile.tuning;
        let workgroup_size = planner.workgroup(tuning.workgroup);
        let vector_vec4s = u64::from(planner.vector_vec4s(self.by.columns.into()));
        let width_vectors = div_ceil(width, 4 * vector_vec4s).max(1);
        let widest = u64::from(planner.threads_per_row(workgroup_size));
        let threads_per_row = widest.min(width_vectors.next_power_of_two());
        // Twice as many as in channels last, since an invocation loads a row's parameters once for all its vectors. A
        // forward pass takes its sums without parameters, and has more registers of sums.
        let no_params = for_sums && !planner.body.is_gradient();
        let times = if no_params { 1 } else { 2 };
        let vec4s = (times * tuning.channels_last_vec4s).min(MOST_VEC4S);
        let most = most_vectors(vec4s, vector_vec4s);
        let threads = (workgroup_size, threads_per_row);
        Division::new(threads, (width_vectors, vector_vec4s), most)
    }

    /// The division of a reduction over `width` columns of each batch, and the rows of its tiles: enough tiles to keep
    /// the adapter busy, none too small, none larger than a window, and short enough sums.
    fn divide_for_sums(&self, width: u64) -> (Division, u64) {
        let Self { planner, by: of } = self;
        let division = self.divide(width, true);
        let (profile, tuning) = (planner.profile, &planner.profile.tuning);
        let rows = u64::from(of.rows);
        let beside = div_ceil(width, division.tile_columns()) * u64::from(of.batches);
        let splits = div_ceil(tuning.busy_workgroups.into(), beside)
            .min(div_ceil(rows * division.tile_columns(), tuning.tile.into()))
            .max(div_ceil(rows, division.at_once() * MAX_SEQUENTIAL))
            .max(1);
        let between_cuts = profile.most_between_cuts(of.elements()) / u64::from(of.columns).max(1);
        let tile_rows = div_ceil(rows, splits).min(between_cuts).max(1);
        (division, tile_rows)
    }

    /// The same for the elementwise pass over `width` columns of each batch. `at_once` says that all columns are done at
    /// once.
    fn divide_for_apply(&self, width: u64, at_once: bool) -> (Division, u64) {
        let Self { planner, by: of } = self;
        let division = self.divide(width, false);
        let (profile, tuning) = (planner.profile, &planner.profile.tuning);
        let columns = u64::from(of.columns);
        let row_bytes = columns * planner.data.size() + 2 * alignment(profile);
        let held = profile.longest_window() / row_bytes;
        let busy = u64::from(tuning.busy_workgroups.max(1));
        let tile_rows = division
            .rows_applied(planner, of.elements(), columns, busy)
            // Some columns of several rows are not in one piece, as a stream writes them.
            .min(if at_once { held } else { 1 })
            .max(1);
        (division, tile_rows)
    }
}

/// The pieces of a range of statistics: a batch's last columns, whole batches, a batch's first columns.
pub(super) fn pieces_of(of: &ByColumn, range: &Range<u64>, tile_columns: u64) -> Vec<Piece> {
    let width = u64::from(of.columns).max(1);
    let mut pieces = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let (batch, column, left) = (start / width, start % width, range.end - start);
        let whole = if column == 0 { left / width } else { 0 };
        let batches = batch..batch + whole.max(1);
        let columns = column..(column + left).min(width);
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
