//! Rows (layer norm) and how workgroups divide them, for the fused kernel and the split ones.

use crate::kernels::{RowTiles, TileRange};
use crate::plan::axes::{Grid, MixedAxes};
use crate::plan::limits::MAX_SEQUENTIAL;
use crate::plan::planner::Planner;
use crate::plan::sizes::{div_ceil, most_vectors, vectors_held, word};
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

/// Rows and columns of a tensor, and how a workgroup divides them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rows {
    pub rows: u64,
    pub columns: u64,
    /// The most vec4s that a row touches.
    pub row_vec4s: u64,
    pub workgroup_size: u32,
    /// Invocations that share a row.
    pub threads_per_row: u64,
    /// Vec4s in a vector: one, if rows do not begin at vectors of two.
    pub vector_vec4s: u64,
    /// Vectors of a row that each of them holds.
    pub column_vectors: u64,
}

impl Rows {
    /// Rows that `sharing` invocations or more share, each of which holds at most `most_vec4s` vec4s, or one vector.
    pub fn new(
        planner: &Planner<'_>,
        by_row: &Grid,
        workgroup_size: u32,
        sharing: u32,
        most_vec4s: u32,
    ) -> Self {
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
        let tiles = div_ceil(vectors, threads_per_row * most);
        Self {
            rows: u64::from(by_row.channels),
            columns,
            row_vec4s,
            workgroup_size,
            threads_per_row,
            vector_vec4s,
            column_vectors: vectors_held(vectors, threads_per_row * tiles, most),
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

    /// Rows that a workgroup does at once.
    pub fn at_once(&self) -> u64 {
        u64::from(self.workgroup_size) / self.threads_per_row
    }

    /// Elements in a vector.
    pub fn vector(&self) -> u64 {
        4 * self.vector_vec4s
    }

    /// The most vectors that a row touches.
    pub fn row_vectors(&self) -> u64 {
        self.row_vec4s / self.vector_vec4s
    }

    /// Vectors of a row that a workgroup holds.
    pub fn tile_vectors(&self) -> u64 {
        self.threads_per_row * self.column_vectors
    }

    /// Whether every vector of every invocation is in the row.
    pub fn complete(&self) -> bool {
        self.aligned() && self.row_vectors().is_multiple_of(self.tile_vectors())
    }
}

/// The rows that a workgroup does. In the fused kernels, all rows that an invocation walks begin at the same position
/// in a vec4.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RowWalk {
    /// The distance between two rows that an invocation walks.
    pub step: u64,
    /// Workgroups that share `tile_rows` rows, divided by the rows' positions in a vec4.
    pub misalignments: u64,
    pub tile_rows: u64,
    /// The neighbouring rows that share parameters, which tiles keep apart.
    pub param_rows: u64,
    /// Whether a workgroup adds up its sums of a column before it writes them.
    pub add_thread_rows: bool,
}

impl RowWalk {
    /// The rows of a workgroup, where `column_tiles` workgroups side by side hold a row.
    pub fn new(planner: &Planner<'_>, rows: &Rows, column_tiles: u64) -> Self {
        let at_once = rows.at_once();
        let step = match rows.aligned() {
            true => at_once,
            false => at_once.max(4),
        };
        let (step, walked) = match Self::walked(planner, rows, column_tiles, step) {
            // An invocation with one row needs no other row with the same misalignment.
            0 => (at_once, 1),
            walked => (step, walked),
        };
        Self {
            step,
            misalignments: step / at_once,
            tile_rows: walked * step,
            param_rows: rows.rows,
            add_thread_rows: at_once > 1 && planner.profile.adds_up_walks(walked),
        }
    }

    /// Walks rows one after another, wherever they begin in a vec4.
    pub fn one_by_one(planner: &Planner<'_>, rows: &Rows, column_tiles: u64) -> Self {
        let at_once = rows.at_once();
        let walked = Self::walked(planner, rows, column_tiles, at_once).max(1);
        Self {
            step: at_once,
            misalignments: 1,
            tile_rows: walked * at_once,
            param_rows: rows.rows,
            add_thread_rows: at_once > 1 && planner.profile.adds_up_walks(walked),
        }
    }

    /// The number of rows that an invocation walks, `step` apart: enough that its sums of columns are worth writing,
    /// few enough that all workgroups have some, for cut rows no more than pages that are prefetched, and no more than
    /// an accumulator adds. 0 if a window cannot hold even one step.
    fn walked(planner: &Planner<'_>, rows: &Rows, column_tiles: u64, step: u64) -> u64 {
        let tuning = &planner.profile.tuning;
        let splits = div_ceil(u64::from(tuning.busy_workgroups), column_tiles);
        let busy = div_ceil(rows.rows, rows.at_once() * splits);
        let worth = div_ceil(u64::from(tuning.tile), rows.at_once() * rows.columns);
        let sums = (rows.elements() / SUM_OF).max(FEW_SUMS);
        let few_sums = div_ceil(rows.elements(), sums * rows.at_once());
        let idle = div_ceil(rows.rows, rows.at_once() * div_ceil(splits, 8));
        let few_sums = few_sums.min(idle.max(div_ceil(FEWEST, rows.at_once())));
        // Windows of a few rows would leave as many partial sums as there are elements.
        let unit = planner.profile.most_between_cuts(rows.elements());
        let unit = unit
            .max(FEWEST_STEPS * step * rows.columns)
            .min(planner.profile.held_unit());
        let window = unit / (step * rows.columns);
        let apart = if column_tiles > 1 {
            step * rows.columns
        } else {
            0
        };
        let fitting = div_ceil(rows.elements(), MOST_SUMS * rows.at_once());
        let pages = planner.most_apart(apart).max(fitting);
        busy.max(worth)
            .max(few_sums)
            .max(u64::from(tuning.row_walk))
            .min(MAX_SEQUENTIAL)
            .min(pages)
            .min(window)
    }

    /// The walk with tiles that do not go beyond a sample's rows, if each sample has parameters of its own.
    pub fn of_samples(self, rows_of_a_sample: Option<u64>) -> Self {
        let Some(param_rows) = rows_of_a_sample else {
            return self;
        };
        Self {
            tile_rows: self.tile_rows.min(param_rows.next_multiple_of(self.step)),
            param_rows,
            ..self
        }
    }

    /// The walk with so few tiles of a sample that their partial sums of columns take no more than `room` records,
    /// if tiles of `longest` rows or fewer do.
    pub fn within(self, rows: &Rows, room: u64, longest: u64) -> Self {
        let samples = rows.rows / self.param_rows.max(1);
        let added = Self {
            add_thread_rows: rows.at_once() > 1,
            ..self
        };
        let is_within = |walk: &Self| walk.splits(rows) * walk.column_records(rows) <= room;
        if is_within(&self) || is_within(&added) {
            return if is_within(&self) { self } else { added };
        }
        let splits = (room / (samples * added.column_records(rows)).max(1)).max(1);
        let longest = longest / self.step * self.step;
        let tile_rows = div_ceil(self.param_rows, splits).next_multiple_of(self.step);
        Self {
            tile_rows: tile_rows.min(longest).max(self.tile_rows),
            ..added
        }
    }

    /// The number of splits of `tile_rows` rows.
    pub fn splits(&self, rows: &Rows) -> u64 {
        rows.rows / self.param_rows.max(1) * self.splits_of_a_sample()
    }

    /// The number of splits of rows that share parameters.
    pub fn splits_of_a_sample(&self) -> u64 {
        div_ceil(self.param_rows, self.tile_rows)
    }

    /// The first element of a split.
    pub fn start(&self, rows: &Rows, split: u64) -> u64 {
        let splits = self.splits_of_a_sample().max(1);
        let row = split / splits * self.param_rows + split % splits * self.tile_rows;
        (row * rows.columns).min(rows.elements())
    }

    /// Partial sums of a column that a split leaves.
    fn partials_of_a_column(&self, rows: &Rows) -> u64 {
        // Where rows do not begin at vec4s, every fourth of the rows that a workgroup does at once has the same columns
        // in a vec4.
        let apart = match (self.add_thread_rows, rows.aligned()) {
            (true, true) => 1,
            (true, false) => rows.at_once().min(4),
            (false, _) => rows.at_once(),
        };
        self.misalignments * apart
    }

    /// The uniforms that describe the rows and a window's tiles to the row kernels.
    pub fn uniforms(&self, rows: &Rows, window: &Window, range: TileRange) -> RowTiles {
        RowTiles {
            rows: word(rows.rows),
            columns: word(rows.columns),
            row_vec4s: word(rows.row_vec4s),
            tile_rows: word(self.tile_rows),
            row_step: word(self.step),
            misalignments: word(self.misalignments),
            parameters: word(rows.columns * (rows.rows / self.param_rows.max(1)).max(1)),
            param_rows: word(self.param_rows),
            param_tiles: word(self.splits_of_a_sample()),
            range,
            last_vector: window.last_vector(rows.vector()),
        }
    }

    /// Records of the partial sums of columns that a split leaves.
    pub fn column_records(&self, rows: &Rows) -> u64 {
        let sums = self.partials_of_a_column(rows) * rows.columns;
        if rows.aligned() { sums / 2 } else { sums }
    }

    /// The partial sums of columns that `splits` splits leave.
    pub fn column_partials(&self, rows: &Rows, region: Region, splits: u64) -> Partials {
        let of_a_split = self.partials_of_a_column(rows);
        if self.param_rows != rows.rows {
            return self.sample_partials(rows, region, of_a_split);
        }
        let (columns, count) = (word(rows.columns), splits * of_a_split);
        match rows.aligned() {
            true => Partials::paired(region, columns, count),
            false => Partials::plain(region, columns, count, rows.columns),
        }
    }

    /// The partial sums of columns that all splits leave, `of_a_split` each, where each sample has its own.
    pub fn sample_partials(&self, rows: &Rows, region: Region, of_a_split: u64) -> Partials {
        let samples = word(rows.rows / self.param_rows.max(1));
        let of_a_sample = self.splits_of_a_sample() * of_a_split;
        let mut axes = MixedAxes::default();
        let sizes = [samples, word(of_a_sample), word(rows.columns)];
        for (axis, size) in axes.sizes.iter_mut().zip(sizes) {
            *axis = size;
        }
        let parameters = word(u64::from(samples) * rows.columns);
        Partials {
            mixed: Some((axes, 0b101)),
            paired: rows.aligned(),
            ..Partials::paired(region, parameters, of_a_sample)
        }
    }
}
