//! Tiles and windows of the kernels over rows (layer norm), in which an invocation walks rows and keeps
//! the sums of its columns.

use super::finish::Partials;
use super::pack::{whole, workspace};
use super::runs::MAX_SERIAL;
use super::windows::windows;
use super::workspace::{Part, Workspace};
use super::{Dispatch, Phases, Planner, Requirement, div_ceil, word};
use crate::geometry::Grid;
use crate::kernels::{Kernel, Uniforms};
use crate::{DType, Error};

/// Quads that an invocation of the reduction holds at most: more do not pay on any adapter measured.
const REDUCED_QUADS: u64 = 16;

/// Rows that an invocation walks at least, so that partial sums of columns stay a small part of the
/// bytes moved.
const MIN_WALK: u64 = 8;

/// The tensors of a gradient of rows.
#[derive(Clone, Copy)]
pub(crate) struct RowTensors<'a> {
    pub src: &'a Requirement,
    pub diff_dst: &'a Requirement,
    pub mean: &'a Requirement,
    pub variance: &'a Requirement,
    pub gamma: Option<&'a Requirement>,
    pub diff_src: &'a Requirement,
}

/// Rows and columns of a tensor, and how a workgroup divides them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rows {
    rows: u64,
    columns: u64,
    width_quads: u64,
    workgroup_size: u32,
    /// Invocations side by side in a row.
    lanes: u64,
    /// Quads of a row that each of them holds.
    column_quads: u64,
}

impl Rows {
    /// Rows that a workgroup does at once.
    fn at_once(&self) -> u64 {
        u64::from(self.workgroup_size) / self.lanes
    }

    /// The constants of the kernels' texts.
    fn sizes(&self) -> Vec<(&'static str, u32)> {
        vec![
            ("lanes", word(self.lanes)),
            ("column_quads", word(self.column_quads)),
        ]
    }

    /// The override constants that are true.
    fn enabled(&self, affine: bool) -> Vec<&'static str> {
        let tile = self.lanes * self.column_quads;
        let facts = [
            (
                "complete",
                self.columns.is_multiple_of(4) && self.width_quads.is_multiple_of(tile),
            ),
            ("affine", affine),
        ];
        facts
            .into_iter()
            .filter_map(|(name, on)| on.then_some(name))
            .collect()
    }
}

impl Planner<'_> {
    /// Whether a workgroup of this size is one subgroup whose invocations can add up their numbers.
    fn one_subgroup(&self, workgroup_size: u32) -> bool {
        self.profile.subgroup_size == workgroup_size && self.data != DType::F64
    }

    fn rows(&self, by_row: &Grid, most_quads: u64) -> Rows {
        let tuning = &self.profile.tuning;
        let workgroup_size = self.profile.workgroup(tuning.runs_workgroup);
        let columns = u64::from(by_row.inner);
        let width_quads = div_ceil(columns, 4).max(1);
        let fewest = width_quads.div_ceil(most_quads.max(1)).next_power_of_two();
        let lanes = u64::from(self.lanes(workgroup_size, columns))
            .max(fewest)
            .min(u64::from(workgroup_size));
        Rows {
            rows: u64::from(by_row.channels),
            columns,
            width_quads,
            workgroup_size,
            lanes,
            column_quads: width_quads.div_ceil(lanes).min(most_quads),
        }
    }

    /// Rows of a tile: enough for its sums of columns to be worth writing, so few that all workgroups
    /// have some, no more than an accumulator adds or a window holds.
    fn tile_rows(&self, rows: &Rows, column_tiles: u64) -> u64 {
        let tuning = &self.profile.tuning;
        let at_once = rows.at_once();
        let splits = div_ceil(u64::from(tuning.busy_workgroups), column_tiles);
        let busy = div_ceil(rows.rows, at_once * splits);
        let worth = div_ceil(u64::from(tuning.min_split), at_once * rows.columns);
        let walk = busy.max(worth).clamp(MIN_WALK, MAX_SERIAL);
        let window = u64::from(tuning.window_unit) / (at_once * rows.columns.max(1));
        walk.min(window).max(1) * at_once
    }

    /// How the fused kernel divides rows, if it can: rows begin at quads, are short enough for registers,
    /// and the adapter allows the bindings.
    pub fn fused_rows_of(&self, by_row: &Grid) -> Option<Rows> {
        let most = u64::from(self.profile.tuning.row_quads);
        let mut rows = self.rows(by_row, most);
        let workgroup = u64::from(rows.workgroup_size);
        if rows.width_quads >= workgroup && self.one_subgroup(rows.workgroup_size) {
            rows.lanes = workgroup;
            rows.column_quads = div_ceil(rows.width_quads, rows.lanes);
        }
        let fits = rows.columns.is_multiple_of(4)
            && rows.column_quads <= most
            && rows.lanes * rows.column_quads >= rows.width_quads
            && self.profile.max_storage_buffers as usize >= Kernel::FusedRows.entry().tensors.len();
        fits.then_some(rows)
    }

    /// The whole gradient but for the last sums of columns, which are left as partial sums.
    pub fn fused_rows(
        &self,
        rows: &Rows,
        tensors: &RowTensors<'_>,
        epsilon: f64,
        area: &mut Workspace,
    ) -> Result<(Vec<Dispatch>, Partials), Error> {
        let affine = tensors.gamma.is_some();
        let tile_rows = self.tile_rows(rows, 1);
        let tiles = div_ceil(rows.rows, tile_rows);
        let partials = self.column_partials(rows, tiles, affine, area)?;
        let elements = rows.rows * rows.columns;
        let start = |tile: u64| (tile * tile_rows * rows.columns).min(elements);
        let kernel = match self.one_subgroup(rows.workgroup_size) {
            true => Kernel::FusedRowsSubgroup,
            false => Kernel::FusedRows,
        };
        let enabled = rows.enabled(affine);
        let dispatches = windows(self.profile, tensors.src, tiles, start)?
            .into_iter()
            .map(|window| {
                let workgroups = self.workgroups(window.units.end - window.units.start)?;
                let mut bindings = vec![
                    window.bind(tensors.src),
                    window.bind(tensors.diff_dst),
                    whole(tensors.mean),
                    whole(tensors.variance),
                ];
                bindings.extend(tensors.gamma.map(whole));
                bindings.extend([workspace(), window.bind(tensors.diff_src)]);
                Ok(Dispatch {
                    kernel,
                    phases: Phases::WHOLE,
                    workgroup_size: rows.workgroup_size,
                    sizes: rows.sizes(),
                    enabled: enabled.clone(),
                    bindings,
                    uniforms: Uniforms::new(
                        kernel,
                        &[
                            ("channels", word(rows.rows)),
                            ("gamma_length", word(rows.columns)),
                            ("width_quads", word(rows.width_quads)),
                            ("tile_rows", word(tile_rows)),
                            ("first_tile", word(window.units.start)),
                            ("end_tile", word(window.units.end)),
                            ("grid_width", workgroups[0]),
                            ("window", word(window.elements.start)),
                            ("length", word(elements - window.elements.start)),
                            ("partials", partials.part.first),
                        ],
                        &[
                            ("epsilon", epsilon),
                            ("inverse_count", 1.0 / rows.columns.max(1) as f64),
                        ],
                    ),
                    workgroups,
                })
            })
            .collect::<Result<_, Error>>()?;
        Ok((dispatches, partials))
    }

    /// The reduction of rows and columns into partial sums: dispatches, partial sums of rows, and of
    /// columns if gamma's `weights` are given.
    pub fn reduce_rows(
        &self,
        by_row: &Grid,
        src: &Requirement,
        diff_dst: &Requirement,
        stats: Part,
        weights: Option<Part>,
        area: &mut Workspace,
    ) -> Result<(Vec<Dispatch>, Partials, Partials), Error> {
        let most = u64::from(self.profile.tuning.row_quads).min(REDUCED_QUADS);
        let rows = self.rows(by_row, most);
        let tile_quads = rows.lanes * rows.column_quads;
        let column_tiles = div_ceil(rows.width_quads, tile_quads);
        let tile_rows = self.tile_rows(&rows, column_tiles);
        let splits = div_ceil(rows.rows, tile_rows);
        let row_parts = div_ceil(rows.width_quads, rows.column_quads);
        let of_rows = Partials {
            channel_stride: row_parts,
            ..Partials::plain(
                area.reserve(rows.rows * row_parts)?,
                by_row.channels,
                row_parts,
                1,
            )
        };
        let affine = weights.is_some();
        let of_columns = self.column_partials(&rows, splits, affine, area)?;
        let elements = by_row.elements();
        // Between two cuts: a block of rows, or where that is one row, a tile of its columns.
        let unit_tiles = if tile_rows == 1 { 1 } else { column_tiles };
        let units = splits * column_tiles / unit_tiles;
        let start = |unit: u64| {
            let (split, tile) = match unit_tiles {
                1 => (unit / column_tiles, unit % column_tiles),
                _ => (unit, 0),
            };
            let row = split * tile_rows;
            (row * rows.columns + tile * tile_quads * 4).min(elements)
        };
        let kernel = Kernel::ReduceRows;
        let mut enabled = rows.enabled(affine);
        enabled.extend(rows.columns.is_multiple_of(4).then_some("aligned"));
        let dispatches = windows(self.profile, src, units, start)?
            .into_iter()
            .map(|window| {
                let (first, end) = (
                    window.units.start * unit_tiles,
                    window.units.end * unit_tiles,
                );
                let workgroups = self.workgroups(end - first)?;
                Ok(Dispatch {
                    kernel,
                    phases: Phases::WHOLE,
                    workgroup_size: rows.workgroup_size,
                    sizes: rows.sizes(),
                    enabled: enabled.clone(),
                    bindings: vec![window.bind(src), window.bind(diff_dst), workspace()],
                    uniforms: Uniforms::new(
                        kernel,
                        &[
                            ("rows", by_row.channels),
                            ("columns", by_row.inner),
                            ("width_quads", word(rows.width_quads)),
                            ("tile_rows", word(tile_rows)),
                            ("column_tiles", word(column_tiles)),
                            ("row_parts", word(row_parts)),
                            ("first_tile", word(first)),
                            ("end_tile", word(end)),
                            ("grid_width", workgroups[0]),
                            ("window", word(window.elements.start)),
                            ("length", word(elements - window.elements.start)),
                            (
                                "last_quad",
                                word(
                                    ((window.elements.end - window.elements.start) / 4)
                                        .saturating_sub(1),
                                ),
                            ),
                            ("stats", stats.first),
                            ("weights", weights.map_or(0, |part| part.first)),
                            ("row_partials", of_rows.part.first),
                            ("partials", of_columns.part.first),
                        ],
                        &[],
                    ),
                    workgroups,
                })
            })
            .collect::<Result<_, Error>>()?;
        Ok((dispatches, of_rows, of_columns))
    }

    /// Place for so many partial sums of every column.
    fn column_partials(
        &self,
        rows: &Rows,
        splits: u64,
        affine: bool,
        area: &mut Workspace,
    ) -> Result<Partials, Error> {
        let width = 4 * rows.width_quads;
        let records = if affine { splits * width } else { 0 };
        let part = area.reserve(records)?;
        Ok(Partials::plain(part, word(rows.columns), splits, width))
    }
}
