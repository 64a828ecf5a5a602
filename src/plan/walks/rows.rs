//! Rows (layer norm) and how workgroups divide them, in registers or read twice.

use super::division::Division;
use crate::kernels::{BatchTiles, TileRange};
use crate::plan::limits::MAX_SEQUENTIAL;
use crate::plan::planner::Planner;
use crate::plan::problem::Family;
use crate::plan::rounds::Rounds;
use crate::plan::sizes::{div_ceil, most_vectors, word};
use crate::plan::stages::finish::Partials;
use crate::plan::windows::Window;
use crate::plan::workspace::Region;

/// Each partial sum of a column adds up at least `SUM_OF` elements, so that writing the sums costs little. Up to
/// `FEW_SUMS` sums are always allowed, and as few as `FEWEST` elements where there would otherwise not be an eighth of
/// the workgroups that keep the adapter busy. Where a walk over pages is best cut shorter, `MOST_SUMS` keeps the
/// workspace within a binding.
const SUM_OF: u64 = 32;
const FEW_SUMS: u64 = 1 << 18;
const FEWEST: u64 = 4;
const MOST_SUMS: u64 = 1 << 21;

/// The fewest steps of a walk that a window holds, if a binding does.
const FEWEST_STEPS: u64 = 16;

/// Whether a gradient has sums of columns: their parameters'. Groups that are rows have parameters of planes.
pub(super) fn sums_columns(planner: &Planner<'_>) -> bool {
    planner.tensors.param_grads() && planner.problem.family != Family::Groups
}

/// Rows and columns of a tensor, and how a workgroup divides them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rows {
    pub rows: u64,
    pub columns: u64,
    /// The most vec4s that a row touches.
    pub row_vec4s: u64,
    /// Vectors are one vec4, if rows do not begin at vectors of two.
    pub division: Division,
    /// Whether a record holds the sums of two columns.
    pub pairs: bool,
}

impl Rows {
    /// Rows that `sharing` invocations or more share, each of which holds at most `most_vec4s` vec4s, or one vector.
    pub fn new(planner: &Planner<'_>, workgroup_size: u32, sharing: u32, most_vec4s: u32) -> Self {
        let by_row = planner.problem.axes.by_row();
        let columns = u64::from(by_row.inner).max(1);
        let row_vec4s = match columns % 4 {
            0 => columns / 4,
            2 => div_ceil(columns + 2, 4), // rows begin 0 or 2 elements into a vec4
            _ => div_ceil(columns + 3, 4),
        };
        let vector_vec4s = u64::from(planner.vector_vec4s(columns));
        let vectors = row_vec4s / vector_vec4s;
        let most = most_vectors(most_vec4s, vector_vec4s);
        let fewest = div_ceil(vectors, most).next_power_of_two();
        let threads_per_row = u64::from(sharing)
            .min(vectors.next_power_of_two())
            .max(fewest)
            .min(u64::from(workgroup_size));
        let threads = (workgroup_size, threads_per_row);
        Self {
            rows: u64::from(by_row.channels),
            columns,
            row_vec4s,
            division: Division::new(threads, (vectors, vector_vec4s), most).compiled(most),
            pairs: planner.body.pairs(),
        }
    }

    /// Elements of the tensor.
    pub fn elements(&self) -> u64 {
        self.rows * self.columns
    }

    /// Whether every row begins at a vec4.
    pub fn aligned(&self) -> bool {
        self.columns.is_multiple_of(4)
    }

    /// The most vectors that a row touches.
    pub fn row_vectors(&self) -> u64 {
        self.row_vec4s / self.division.vector_vec4s
    }

    /// Workgroups side by side that hold a row.
    pub fn column_tiles(&self) -> u64 {
        div_ceil(self.row_vectors(), self.division.tile_vectors())
    }

    /// Partial sums of a row, of so many neighbouring invocations each.
    pub fn partials_of_a_row(&self, threads_per_partial: u64) -> u64 {
        self.column_tiles() * self.division.threads_per_row / threads_per_partial
    }

    /// Records of a sum of every column, where two columns may share one.
    pub fn records_of_a_sum(&self) -> u64 {
        if self.pairs {
            self.columns.next_multiple_of(4) / 2
        } else {
            self.columns
        }
    }

    /// Whether every vector of every invocation is in the row.
    pub fn complete(&self) -> bool {
        self.aligned()
            && self
                .row_vectors()
                .is_multiple_of(self.division.tile_vectors())
    }
}

/// The rows that a workgroup does. Where it holds them in registers, all rows that an invocation walks begin at the same
/// position in a vec4.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RowWalk {
    pub rows: Rows,
    /// The distance between two rows that an invocation walks.
    pub step: u64,
    /// Workgroups that share `tile_rows` rows, divided by the rows' positions in a vec4.
    pub misalignments: u64,
    pub tile_rows: u64,
    /// Whether sums of columns are kept apart by the rows' positions in a vec4.
    by_position: bool,
    /// The neighbouring rows that share parameters, which tiles keep apart.
    pub param_rows: u64,
    /// Whether each sample has parameters of its own.
    pub of_samples: bool,
    /// Whether a workgroup adds up its sums of a column before it writes them.
    pub add_thread_rows: bool,
}

impl RowWalk {
    /// The rows of a workgroup.
    pub fn new(planner: &Planner<'_>, rows: Rows, in_registers: bool) -> Self {
        let at_once = rows.division.at_once();
        let by_position = in_registers && !rows.aligned();
        let step = at_once.max(if by_position { 4 } else { 1 });
        let (step, walked) = match Self::walked(planner, &rows, step) {
            // An invocation with one row needs no other row with the same misalignment.
            0 => (at_once, 1),
            walked => (step, walked),
        };
        let mut walk = Self {
            rows,
            step,
            misalignments: step / at_once,
            tile_rows: walked * step,
            by_position,
            param_rows: rows.rows,
            of_samples: false,
            add_thread_rows: at_once > 1
                && (!in_registers || planner.profile.adds_up_walks(walked)),
        };
        // Tiles do not go beyond a sample's rows.
        if let Some(param_rows) = planner.problem.axes.rows_of_a_sample() {
            walk.tile_rows = walk.tile_rows.min(param_rows.next_multiple_of(step));
            walk.param_rows = param_rows;
            walk.of_samples = true;
        }
        walk
    }

    /// The number of rows that an invocation walks, `step` apart: enough that its sums of columns, if it takes any, are
    /// worth writing, few enough that all workgroups have some, for cut rows no more than pages that are prefetched, and
    /// no more than an accumulator adds. 0 if a window cannot hold even one step.
    fn walked(planner: &Planner<'_>, rows: &Rows, step: u64) -> u64 {
        let (profile, tuning) = (planner.profile, &planner.profile.tuning);
        let column_tiles = rows.column_tiles();
        let (at_once, of_a_step) = (rows.division.at_once(), step * rows.columns);
        let splits = div_ceil(u64::from(tuning.busy_workgroups), column_tiles);
        let busy = div_ceil(rows.rows, at_once * splits);
        let worth = div_ceil(u64::from(tuning.tile), at_once * rows.columns);
        let sums = (rows.elements() / SUM_OF).max(FEW_SUMS);
        let few_sums = div_ceil(rows.elements(), sums * at_once);
        let idle = div_ceil(rows.rows, at_once * div_ceil(splits, 8));
        let few_sums = few_sums.min(idle.max(div_ceil(FEWEST, at_once)));
        let few_sums = u64::from(sums_columns(planner)) * few_sums;
        // Windows of a few rows would leave as many partial sums as there are elements.
        let unit = profile.most_between_cuts(rows.elements());
        let unit = unit.max(FEWEST_STEPS * of_a_step).min(profile.held_unit());
        let fitting = div_ceil(rows.elements(), MOST_SUMS * at_once);
        let pages = planner.most_apart(if column_tiles > 1 { of_a_step } else { 0 });
        busy.max(worth)
            .max(few_sums)
            .max(u64::from(tuning.row_walk))
            .min(MAX_SEQUENTIAL)
            .min(pages.max(fitting))
            .min(unit / of_a_step)
    }

    /// The walk with so few tiles of a sample that their partial sums of columns take few records, if tiles that a
    /// window holds do.
    pub fn with_few_records(mut self, planner: &Planner<'_>) -> Self {
        let room = planner.few_records();
        if self.records() > room {
            self.add_thread_rows = self.rows.division.at_once() > 1;
        }
        if self.records() > room {
            let splits = room / (self.samples() * self.column_records()).max(1);
            let fitting = div_ceil(div_ceil(self.param_rows, splits), self.step);
            let held = planner.profile.held_unit() / self.rows.columns / self.step;
            let walked = fitting.min(held).min(MAX_SEQUENTIAL);
            self.tile_rows = self.tile_rows.max(walked * self.step);
        }
        self
    }

    /// The samples that have parameters of their own, or one.
    pub fn samples(&self) -> u64 {
        (self.rows.rows / self.param_rows.max(1)).max(1)
    }

    /// The number of splits of `tile_rows` rows.
    pub fn splits(&self) -> u64 {
        self.samples() * self.splits_of_a_sample()
    }

    /// The number of splits of rows that share parameters.
    pub fn splits_of_a_sample(&self) -> u64 {
        div_ceil(self.param_rows, self.tile_rows)
    }

    /// The first element of a split.
    pub fn start(&self, split: u64) -> u64 {
        let splits = self.splits_of_a_sample().max(1);
        let row = split / splits * self.param_rows + split % splits * self.tile_rows;
        (row * self.rows.columns).min(self.rows.elements())
    }

    /// The tiles of a window. Rows that share parameters are a batch.
    pub fn tiles(&self, window: &Window, range: TileRange) -> BatchTiles {
        let (columns, column_tiles) = (word(self.rows.columns), word(self.rows.column_tiles()));
        let samples = self.samples();
        BatchTiles {
            statistics: word(self.rows.rows),
            parameters: word(samples * self.rows.columns),
            end_column_tile: word(samples * self.rows.column_tiles()),
            tile_rows: word(self.tile_rows),
            row_tiles: word(self.splits_of_a_sample()),
            last_vector: window.last_vector(self.rows.division.vector()),
            range,
            ..BatchTiles::of_whole_rows(word(self.param_rows), columns, column_tiles)
        }
    }

    /// Partial sums of a column that a split leaves.
    fn partials_of_a_column(&self) -> u64 {
        // By position, every fourth of the rows that a workgroup does at once has the same columns in a vec4.
        let apart = match (self.add_thread_rows, self.by_position) {
            (true, false) => 1,
            (true, true) => self.rows.division.at_once().min(4),
            (false, _) => self.rows.division.at_once(),
        };
        self.misalignments * apart
    }

    /// Whether a record holds the sums of two columns: not by position, nor where parameters of samples begin inside a
    /// vec4.
    pub fn pairs_columns(&self) -> bool {
        self.rows.pairs && (self.rows.aligned() || !(self.by_position || self.of_samples))
    }

    /// Records of a partial sum of every column.
    pub fn records_of_a_partial(&self) -> u64 {
        if self.pairs_columns() {
            self.rows.records_of_a_sum()
        } else {
            self.rows.columns
        }
    }

    /// Records between two partial sums of a column.
    pub fn partial_stride(&self) -> u64 {
        self.samples() * self.records_of_a_partial()
    }

    /// Records of the partial sums of columns that a split leaves.
    fn column_records(&self) -> u64 {
        self.partials_of_a_column() * self.records_of_a_partial()
    }

    /// Records of the partial sums of columns that all splits leave.
    pub fn records(&self) -> u64 {
        self.splits() * self.column_records()
    }

    /// The rounds of splits whose partial sums of columns, if they are `summed`, take no more than `room` records; all
    /// at once where each sample has its own.
    pub fn rounds(&self, planner: &Planner<'_>, summed: bool, room: u64) -> Rounds {
        let records = u64::from(summed) * self.column_records();
        let room = if self.of_samples { u64::MAX } else { room };
        let subtotal_records = planner.subtotal_records(word(self.rows.columns));
        Rounds::new(self.splits(), records, subtotal_records, room)
    }

    /// The partial sums of columns that `splits` splits leave, or all splits, where each sample has its own.
    pub fn column_partials(&self, region: Region, splits: u64) -> Partials {
        let splits = if self.of_samples {
            self.splits_of_a_sample()
        } else {
            splits
        };
        let columns = word(self.samples() * self.rows.columns);
        let count = splits * self.partials_of_a_column();
        Partials {
            paired: self.pairs_columns(),
            ..Partials::plain(region, columns, count, self.partial_stride())
        }
    }
}
