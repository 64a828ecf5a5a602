//! Norms over an axis that is not the last one, like layer norm over channels (NCX): statistics belong to columns,
//! parameters to rows.
//!
//! A workgroup that has all rows of its columns reads them twice, in one dispatch. Otherwise a reduction takes the sums
//! of columns and of rows in one reading, and the elementwise pass has a column's statistics in registers and loads a
//! row's parameters. Where there is no room for the records of all columns, ranges of columns are done one after
//! another, with a workspace for one range. Ranges begin at aligned positions of the statistics, wherever that is in a
//! batch.

use super::axes::ByColumn;
use super::columns_cut::{Columns, Piece, pieces_of};
use super::finish::{Derived, Partials, Route};
use super::passes::Slice;
use super::problem::Problem;
use super::rounds::Rounds;
use super::rows_split::{RowParams, elementwise};
use super::tensors::Tensors;
use super::windows::{Share, Window, alignment, windows_of};
use super::workspace::{Region, Workspace};
use super::{Binding, Dispatch, Planner, Requirement, check_dispatches, div_ceil, word};
use crate::kernels::{BatchTiles, ColumnsWalk, ColumnsWalkUniforms, Scalars, TileRange};
use crate::{Algorithm, DType, Error};
use std::ops::Range;

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

/// A walk over a range of columns.
struct Walk<'a> {
    range: &'a Range<u64>,
    /// Where the partial sums of some tiles of rows go, if sums are taken.
    reduced: Option<(Region, Range<u64>)>,
    applied: bool,
}

impl Common<'_> {
    /// The bindings of a walk in a window.
    fn bindings(&self, window: &Window, applied: bool, is_summed: bool) -> Vec<Binding> {
        let tensors = self.tensors;
        let mut bindings = if applied {
            let inputs = tensors.inputs.iter();
            inputs.map(|tensor| window.bind(tensor)).collect()
        } else {
            tensors.reduced(window)
        };
        if self.fused {
            bindings.extend(tensors.statistics.all().map(|given| Binding::whole(&given)));
        }
        bindings.extend(self.params.bindings());
        if !self.fused || self.params.weighted() || is_summed {
            bindings.push(Binding::workspace());
        }
        if applied {
            bindings.extend(tensors.outputs.iter().map(|tensor| window.bind(tensor)));
        }
        if self.fused {
            bindings.extend(written_statistics(tensors).map(Binding::whole));
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

/// A dispatch's share of a piece.
pub(super) struct ColumnShare {
    pub window: Window,
    /// Elements in a vector.
    vector: u64,
    first_batch: u64,
    /// The numbers of the column tiles, which walks go through.
    column_tiles: Range<u64>,
    walks_of_a_row: u64,
    row_tiles: Range<u64>,
}

impl Share for ColumnShare {
    fn window(&self) -> &Window {
        &self.window
    }
}

impl ColumnShare {
    /// The uniforms that describe it to both kernels.
    pub fn uniforms(
        &self,
        of: &ByColumn,
        tiles: &Tiles<'_>,
        params: RowParams,
        range: TileRange,
    ) -> BatchTiles {
        BatchTiles {
            rows: of.rows,
            columns: of.columns,
            statistics: word(of.statistics()),
            parameters: word(of.parameters()),
            first_column: word(tiles.piece.columns.start),
            end_column: word(tiles.piece.columns.end),
            first_batch: word(self.first_batch),
            column_tiles: word(tiles.piece.tiles),
            first_column_tile: word(self.column_tiles.start),
            end_column_tile: word(self.column_tiles.end),
            walked_tiles: word(tiles.walked_tiles),
            walks_of_a_row: word(self.walks_of_a_row),
            tile_rows: word(tiles.tile_rows),
            first_row_tile: word(self.row_tiles.start),
            row_tiles: word(self.row_tiles.end - self.row_tiles.start),
            range,
            last_vector: self.window.last_vector(self.vector),
            stats: tiles.stats,
            weights: params.weights(),
            offsets: params.offsets(),
        }
    }
}

/// The statistics that a forward pass writes.
fn written_statistics(tensors: &Tensors) -> impl Iterator<Item = &Requirement> {
    let results = tensors.results.iter();
    results.filter(|result| result.tensor.is_statistic())
}

/// The tensors of statistics that a fused kernel binds.
fn bound_statistics(tensors: &Tensors) -> usize {
    tensors.statistics.tensors.len() + written_statistics(tensors).count()
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
        let halves = written_statistics(tensors).any(|one| one.dtype.size() < DType::F32.size());
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
        let columns = match self.cut_columns(of, tensors, true) {
            Ok(columns) => columns,
            Err(error) => return Some(error.to_string()),
        };
        let division = &columns.division;
        if div_ceil(of.rows.into(), division.at_once()) > self.longest_walk(division) {
            return Some(format!("{} elements of a column are too many", of.rows));
        }
        (self.row_records(of, tensors, &columns) > self.room_of_columns(tensors))
            .then(|| "its partial sums of rows would outgrow the tensor".to_owned())
    }

    /// Whether a reduction and an elementwise pass have room for the records of all columns.
    pub fn columns_have_room(&self, of: &ByColumn, tensors: &Tensors) -> bool {
        let columns = self.cut_columns(of, tensors, false);
        columns.is_ok_and(|columns| columns.at_once())
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
        let columns = self.cut_columns(of, tensors, fused)?;
        let bound = elementwise(tensors) + if fused { bound_statistics(tensors) } else { 0 };
        let (params, mut dispatches) = self.row_params(tensors, bound, workspace)?;
        let records = if fused { 0 } else { columns.longest() };
        let has_means = self.body.is_gradient() && !fused;
        let common = &Common {
            of,
            tensors,
            params,
            scalars: problem.scalars(),
            fused,
            stats: workspace.reserve(records)?,
            means: has_means.then(|| workspace.reserve(records)).transpose()?,
            of_rows: match self.row_records(of, tensors, &columns) {
                0 => Region { first: 0 },
                records => workspace.reserve(records)?,
            },
            columns,
        };
        let reduced = !self.body.is_inference();
        let before = workspace.clone();
        for (range, pieces) in &common.columns.ranges {
            if fused {
                let nowhere = Region { first: 0 };
                let walk = Walk {
                    range,
                    reduced: reduced.then_some((nowhere, 0..1)),
                    applied: true,
                };
                dispatches.extend(self.walk_columns(common, pieces, &walk)?);
                check_dispatches(dispatches.len() as u64)?;
                continue;
            }
            let mut own = before.clone();
            let of_range = tensors.of_statistics(range);
            if !self.body.statistics().is_empty() {
                let pack = self.pack_statistics(&of_range, &[], problem.epsilon, common.stats)?;
                dispatches.extend(bound_to(range, tensors, pack));
            }
            if reduced {
                let (reduce, partials) = self.sums_of_columns(common, range, pieces, &mut own)?;
                dispatches.extend(reduce);
                let derived = if has_means {
                    Derived::of(of.rows.into())
                } else {
                    problem.derived(&of_range)
                };
                let means = common.means.or(Some(common.stats));
                let derived = Derived { means, ..derived };
                let finish = self.finish(&partials, &derived, Route::Whole)?;
                dispatches.extend(bound_to(range, tensors, finish));
            }
            let walk = Walk {
                range,
                reduced: None,
                applied: true,
            };
            dispatches.extend(self.walk_columns(common, pieces, &walk)?);
            check_dispatches(dispatches.len() as u64)?;
            workspace.grow_to(&own);
        }
        if self.body.is_gradient() {
            let partials = common.columns.partials_per_row();
            let of_rows = Partials {
                channel_stride: partials,
                ..Partials::plain(common.of_rows, word(of.parameters()), partials, 1)
            };
            let finish = self.finish_written(of_rows, tensors, problem, &mut None, workspace)?;
            dispatches.extend(finish);
        }
        Ok(dispatches)
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
        let room = self.room_of_columns(common.tensors);
        let rounds = Rounds::new(
            common.columns.division.row_tiles(common.of),
            stride,
            self.subtotal_records(word(length)),
            room.saturating_sub(2 * length),
        );
        let (mut dispatches, partials) = self.in_rounds(
            &rounds,
            workspace,
            |region, splits| {
                let walk = Walk {
                    range,
                    reduced: Some((region, splits)),
                    applied: false,
                };
                self.walk_columns(common, pieces, &walk)
            },
            |region, splits| Partials {
                paired: self.halves_of_a_partial(common.of) == 1,
                ..Partials::plain(region, word(length), splits, stride)
            },
        )?;
        let (added, partials) = self.add_subtotals(partials, workspace)?;
        dispatches.extend(added);
        Ok((dispatches, partials))
    }

    /// The dispatches of a walk.
    fn walk_columns(
        &self,
        common: &Common<'_>,
        pieces: &[Piece],
        walk: &Walk<'_>,
    ) -> Result<Vec<Dispatch>, Error> {
        let (of, tensors, params) = (common.of, common.tensors, common.params);
        let columns = &common.columns;
        let reduced = walk.reduced.is_some();
        let division = if reduced {
            &columns.division
        } else {
            &columns.applied
        };
        let is_summed = reduced && tensors.param_grads();
        // Rows of 16 bits as few as others: twice as many take a third of Ampere's warps, and Intel spills.
        let rows_at_once = if reduced {
            let loads = self.profile.tuning.loads_at_once;
            let walked = div_ceil(division.tile_rows, division.at_once()).max(1);
            self.rows_at_once(loads, division.column_vectors)
                .min(1 << walked.ilog2())
        } else {
            1
        };
        let kernel = ColumnsWalk {
            threads_per_row: word(division.threads_per_row),
            threads_per_partial: word(columns.threads_per_partial),
            column_vectors: word(division.column_vectors),
            vector_vec4s: word(division.vector_vec4s),
            rows_at_once: word(rows_at_once),
            aligned: of.is_aligned(),
            shares_words: walk.applied && self.shares_words(of),
            reduced,
            applied: walk.applied,
            recorded: !common.fused && (walk.applied || !tensors.statistics.tensors.is_empty()),
            batch_statistics: walk.applied && common.means.is_some(),
            scaled: params.is_scaled(),
            offset: params.is_offset(),
            weighted: params.weighted(),
            of_samples: of.of_samples,
            summed: is_summed,
            add_thread_rows: reduced && division.at_once() > 1,
        };
        // Statistics are counted from the first of all on.
        let from_range = |region: Region, records: u64| region.first.wrapping_sub(word(records));
        let start = walk.range.start;
        let (region, row_tiles, tile_rows) = match &walk.reduced {
            Some((region, row_tiles)) => (*region, row_tiles.clone(), division.tile_rows),
            None => {
                let tile_rows = self.rows_of_apply(of, columns);
                let row_tiles = 0..div_ceil(of.rows.into(), tile_rows);
                (common.stats, row_tiles, tile_rows)
            }
        };
        let applied_pieces = pieces_of(of, walk.range, columns.applied.tile_columns());
        let mut dispatches = Vec::new();
        for piece in if reduced { pieces } else { &applied_pieces } {
            let tiles = Tiles {
                piece,
                row_tiles: row_tiles.clone(),
                tile_rows,
                walked_tiles: if reduced { columns.walked_tiles } else { 1 },
                stats: from_range(common.stats, start),
            };
            let shares = self.shares_of_columns(of, tensors, &tiles)?;
            let kernel = (kernel, division.workgroup_size);
            dispatches.extend(self.over(&shares, &tensors.src, kernel, |share, range| {
                let uniforms = ColumnsWalkUniforms {
                    tiles: share.uniforms(of, &tiles, params, range),
                    row_groups: word(columns.row_groups),
                    partials_per_row: word(columns.partials_per_row()),
                    row_partials: common.of_rows.first,
                    means: common.means.map_or(0, |means| from_range(means, start)),
                    partials: from_range(region, start * self.halves_of_a_partial(of) / 2),
                    partial_stride: word(self.partial_stride(of, walk.range)),
                    scalars: common.scalars,
                };
                (
                    common.bindings(&share.window, walk.applied, is_summed),
                    uniforms,
                )
            })?);
            check_dispatches(dispatches.len() as u64)?;
        }
        Ok(dispatches)
    }

    /// The shares of some tiles of rows of a piece. Whole batches share windows that hold them.
    pub(super) fn shares_of_columns(
        &self,
        of: &ByColumn,
        tensors: &Tensors,
        tiles: &Tiles<'_>,
    ) -> Result<Vec<ColumnShare>, Error> {
        let (piece, tile_rows, src) = (tiles.piece, tiles.tile_rows, &tensors.src);
        let (rows, width) = (u64::from(of.rows), u64::from(of.columns));
        // The elements of some tiles of rows of some batches.
        let span = |(batches, tiles): &(Range<u64>, Range<u64>)| {
            let last_row = (tiles.end * tile_rows).min(rows).saturating_sub(1);
            let first = (batches.start * rows + tiles.start * tile_rows) * width;
            let last = (batches.end.saturating_sub(1) * rows + last_row) * width;
            first + piece.columns.start..last + piece.columns.end
        };
        let one = span(&(0..1, tiles.row_tiles.clone()));
        let bytes = (one.end - one.start) * self.data.size() + 2 * alignment(self.profile);
        let fits = bytes <= self.profile.window_limit().1;
        let all = piece.batches.clone();
        let step = if fits { all.end - all.start } else { 1 };
        let vector = 4 * u64::from(self.vector_vec4s(width));
        let mut shares = Vec::new();
        for batch in all.clone().step_by(step.max(1) as usize) {
            let units = if fits {
                all.clone()
            } else {
                tiles.row_tiles.clone()
            };
            let part = |some: Range<u64>| {
                if fits {
                    (some, tiles.row_tiles.clone())
                } else {
                    (batch..batch + 1, some)
                }
            };
            for window in windows_of(self.profile, src, units, |some| span(&part(some)))? {
                let (batches, row_tiles) = &part(window.units.clone());
                let owned = Some(span(&part(window.units.clone())));
                let first = piece.first_tile + (batches.start - all.start) * piece.tiles;
                let end = first + (batches.end - batches.start) * piece.tiles;
                let walks = div_ceil(end, tiles.walked_tiles) - first / tiles.walked_tiles;
                let walks_of_a_row =
                    div_ceil(piece.tiles, tiles.walked_tiles).clamp(1, walks.max(1));
                let rows_of_walks = div_ceil(walks, walks_of_a_row) * walks_of_a_row;
                let tiles = 0..rows_of_walks * (row_tiles.end - row_tiles.start);
                shares.push(ColumnShare {
                    vector,
                    first_batch: batches.start,
                    column_tiles: first..end,
                    walks_of_a_row,
                    row_tiles: row_tiles.clone(),
                    window: Window {
                        owned,
                        tiles,
                        ..window
                    },
                });
            }
            // Every batch has a dispatch.
            let left = if fits { 0 } else { all.end - batch - 1 };
            check_dispatches(shares.len() as u64 + left)?;
        }
        Ok(shares)
    }
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
