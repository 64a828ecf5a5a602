//! Norms over an axis that is not the last one, like layer norm over channels (NCX): statistics belong to columns,
//! parameters to rows.
//!
//! A workgroup that has all rows of its columns reads them twice, in one dispatch. Otherwise a reduction takes the sums
//! of columns and of rows in one reading, and the elementwise pass has a column's statistics in registers and loads a
//! row's parameters. Where there is no room for the records of all columns, ranges of columns are done one after
//! another, with a workspace for one range. Ranges begin at aligned positions of the statistics, wherever that is in a
//! batch.

use super::columns_cut::{Columns, Cut, Piece, pieces_of};
use super::{Known, Reduced, Walk};
use crate::kernels::{BatchTiles, ColumnChannels, ColumnsWalk, ColumnsWalkUniforms, TileRange};
use crate::plan::axes::ByColumn;
use crate::plan::dispatch::{Binding, Dispatch};
use crate::plan::limits::{Cannot, Unfit, check, check_dispatches};
use crate::plan::planner::Planner;
use crate::plan::rounds::Rounds;
use crate::plan::sizes::{div_ceil, word};
use crate::plan::stages::finish::Partials;
use crate::plan::stages::params::LoadedParams;
use crate::plan::windows::{Share, Window, alignment, windows_of};
use crate::plan::workspace::{Region, Workspace};
use std::ops::Range;

/// The column tiles and tiles of rows that some dispatches do.
pub(crate) struct Tiles<'a> {
    pub piece: &'a Piece,
    pub row_tiles: Range<u64>,
    pub tile_rows: u64,
    pub walked_tiles: u64,
    /// The record of statistic 0.
    pub stats: u32,
}

/// A dispatch's share of a piece.
pub(crate) struct ColumnShare {
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
        params: &LoadedParams,
        range: TileRange,
    ) -> BatchTiles {
        BatchTiles {
            rows: of.rows,
            columns: of.columns,
            statistics: word(of.statistics()),
            parameters: word(of.parameters()),
            channels: ColumnChannels::none(),
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
            copies: params.copies,
        }
    }
}

/// A walk over columns: everything but the last sums of rows in one dispatch, or in pieces.
pub(crate) struct WalkedColumns<'a> {
    over: Columns<'a>,
    cut: Cut,
    fused: bool,
}

impl<'a> WalkedColumns<'a> {
    /// The walk in pieces.
    pub fn read_twice(planner: Planner<'a>) -> Result<Self, Cannot> {
        Self::of(planner, false)
    }

    /// The walk in one dispatch.
    pub fn fused(planner: Planner<'a>) -> Result<Self, Cannot> {
        let walk = Self::of(planner, true)?;
        let (profile, tensors) = (planner.profile, planner.tensors);
        let has_workspace = tensors.param_grads() || !tensors.params.is_empty();
        let bound = tensors.inputs.len() + tensors.outputs.len() + usize::from(has_workspace);
        profile.check_bound(bound + walk.bound_statistics())?;
        let by = &walk.over.by;
        if planner.problem.is_inference() {
            let row = u64::from(by.columns) * planner.data.size();
            let fits = row + 2 * alignment(profile) <= profile.longest_window();
            check(
                fits,
                format_args!("{row} bytes of a row do not fit one binding"),
            )?;
            return Ok(walk);
        }
        walk.over.check_whole()?;
        let division = &walk.cut.division;
        let walked = div_ceil(by.rows.into(), division.at_once());
        check(
            walked <= walk.over.longest_walk(division),
            format_args!("{} elements of a column are too many", by.rows),
        )?;
        let has_room = walk.over.row_records(&walk.cut) <= walk.over.room();
        check(
            has_room,
            "its partial sums of rows would outgrow the tensor",
        )?;
        Ok(walk)
    }

    fn of(planner: Planner<'a>, fused: bool) -> Result<Self, Cannot> {
        let over = Columns::new(planner)?;
        let cut = over.cut(fused)?;
        Ok(Self { over, cut, fused })
    }

    /// Whether it can be done in pieces, with room for the records of all columns.
    pub fn has_room_in_pieces(planner: Planner<'a>) -> bool {
        Self::read_twice(planner).is_ok_and(|walk| walk.cut.ranges.len() == 1)
    }

    /// The tensors of statistics that a fused kernel binds.
    fn bound_statistics(&self) -> usize {
        let tensors = self.over.planner.tensors;
        tensors.statistics.len() + tensors.written_statistics().count()
    }

    /// The bindings of a dispatch in a window. One that is `applied` writes tensors element by element.
    fn bindings(&self, applied: bool, params: &LoadedParams, window: &Window) -> Vec<Binding> {
        let tensors = self.over.planner.tensors;
        let bind = |tensor| window.bind(tensor);
        let mut bindings: Vec<_> = if applied {
            tensors.inputs.iter().map(bind).collect()
        } else {
            tensors.reduced(window)
        };
        if self.fused {
            bindings.extend(tensors.statistics.iter().map(Binding::whole));
        }
        bindings.extend(params.bindings.clone());
        if !self.fused || params.copied != 0 || tensors.param_grads() {
            bindings.push(Binding::workspace());
        }
        if applied {
            bindings.extend(tensors.outputs.iter().map(bind));
        }
        if self.fused {
            bindings.extend(tensors.written_statistics().map(Binding::whole));
        }
        bindings
    }

    /// The dispatches over a part: a reduction of some tiles of rows, whose partial sums begin at a region; without
    /// those, the elementwise pass, or everything.
    fn dispatches(
        &self,
        known: &Known,
        partials: Option<(Region, Range<u64>)>,
    ) -> Result<Vec<Dispatch>, Unfit> {
        let Self { over, cut, fused } = self;
        let Columns { planner, by } = over;
        let params = &known.params;
        let applied = partials.is_none();
        // A forward pass by given statistics takes no sums.
        let reduced = (*fused || !applied) && !planner.problem.is_inference();
        let (region, row_tiles) = partials.unwrap_or((known.stats, 0..1));
        let (division, tile_rows) = if reduced {
            (cut.division, cut.tile_rows)
        } else {
            cut.applied
        };
        // Rows of 16 bits as few as others: twice as many take a third of Ampere's warps, and Intel spills.
        let loads = planner.profile.tuning.loads_at_once;
        let kernel = ColumnsWalk {
            of_batches: true,
            threads_per_partial: word(cut.threads_per_partial),
            one_tile: !reduced || cut.walked_tiles == 1,
            aligned: by.is_aligned(),
            shares_words: applied && over.shares_words(),
            reduced,
            applied,
            recorded: !fused && (applied || !planner.body.statistics().is_empty()),
            batch_statistics: applied && known.means.is_some(),
            copied_params: params.copied,
            of_samples: by.of_samples,
            summed: reduced && planner.tensors.param_grads(),
            add_thread_rows: reduced && division.at_once() > 1,
            paired_columns: over.halves_of_a_partial() == 1,
            ..division.columns_walk(planner, tile_rows, if reduced { loads } else { 0 })
        };
        // Statistics are counted from the first of all on.
        let start = known.part.start;
        let from_part = |region: Region, records: u64| region.first.wrapping_sub(word(records));
        let partials = from_part(region, start * over.halves_of_a_partial() / 2);
        let (row_tiles, walked_tiles, pieces) = if reduced {
            let pieces = cut.pieces.get(&start).cloned().unwrap_or_default();
            (row_tiles, cut.walked_tiles, pieces)
        } else {
            let pieces = pieces_of(by, &known.part, division.tile_columns());
            (0..by.row_tiles(tile_rows), 1, pieces)
        };
        let mut dispatches = Vec::new();
        for piece in &pieces {
            let tiles = Tiles {
                piece,
                row_tiles: row_tiles.clone(),
                tile_rows,
                walked_tiles,
                stats: from_part(known.stats, start),
            };
            let shares = over.shares(&tiles)?;
            let kernel = (kernel, division.workgroup_size);
            dispatches.extend(planner.over(&shares, kernel, |share, range| {
                let uniforms = ColumnsWalkUniforms {
                    tiles: share.uniforms(by, &tiles, params, range),
                    row_groups: word(cut.row_groups),
                    partials_per_row: word(cut.partials_per_row()),
                    row_partials: known.kept.first,
                    means: known.means.map_or(0, |means| from_part(means, start)),
                    partials,
                    partial_stride: word(over.partial_stride(&known.part)),
                    scalars: planner.problem.scalars(),
                };
                (self.bindings(applied, params, &share.window), uniforms)
            })?);
            check_dispatches(dispatches.len() as u64)?;
        }
        Ok(dispatches)
    }

    /// The partial sums of rows.
    fn sums_of_rows(&self, region: Region) -> Partials {
        let partials = self.cut.partials_per_row();
        Partials {
            channel_stride: partials,
            ..Partials::plain(region, word(self.over.by.parameters()), partials, 1)
        }
    }
}

impl Walk for WalkedColumns<'_> {
    /// One dispatch is taken where there is no room for the records of all columns in pieces.
    fn is_profitable(&self) -> bool {
        !self.fused || !Self::has_room_in_pieces(self.over.planner)
    }

    fn bound_besides_params(&self) -> Option<usize> {
        let fused = usize::from(self.fused);
        Some(self.over.planner.elementwise() + fused * self.bound_statistics())
    }

    fn parts(&self) -> &[Range<u64>] {
        &self.cut.ranges
    }

    fn kept_records(&self) -> u64 {
        self.over.row_records(&self.cut)
    }

    fn reduce(&self, known: &Known, workspace: &mut Workspace) -> Result<Reduced, Unfit> {
        let (over, planner) = (&self.over, &self.over.planner);
        let mut reduced = Reduced::default();
        if self.fused {
            reduced.dispatches = self.dispatches(known, None)?;
        } else {
            let length = known.part.end - known.part.start;
            let stride = over.partial_stride(&known.part);
            let row_tiles = over.by.row_tiles(self.cut.tile_rows);
            let subtotal_records = planner.subtotal_records(word(length));
            let room = over.room().saturating_sub(2 * length);
            let rounds = Rounds::new(row_tiles, stride, subtotal_records, room);
            let reduce = |region, tiles| self.dispatches(known, Some((region, tiles)));
            let partials = |region, tiles| Partials {
                paired: over.halves_of_a_partial() == 1,
                ..Partials::plain(region, word(length), tiles, stride)
            };
            let sums = planner.in_rounds(&rounds, workspace, reduce, partials)?;
            reduced = Reduced::of_statistics(sums);
        }
        let is_gradient = planner.body.is_gradient();
        reduced.parameters = is_gradient.then(|| self.sums_of_rows(known.kept));
        Ok(reduced)
    }

    fn apply(&self, known: &Known) -> Result<Vec<Dispatch>, Unfit> {
        self.dispatches(known, None)
    }
}

impl Columns<'_> {
    /// The shares of some tiles of rows of a piece. Whole batches share windows that hold them.
    pub fn shares(&self, tiles: &Tiles<'_>) -> Result<Vec<ColumnShare>, Unfit> {
        let Self { planner, by: of } = self;
        let profile = planner.profile;
        let (piece, tile_rows) = (tiles.piece, tiles.tile_rows);
        let (rows, width) = (u64::from(of.rows), u64::from(of.columns));
        // The elements of some tiles of rows of some batches.
        let span = |(batches, tiles): &(Range<u64>, Range<u64>)| {
            let last_row = (tiles.end * tile_rows).min(rows).saturating_sub(1);
            let first = (batches.start * rows + tiles.start * tile_rows) * width;
            let last = (batches.end.saturating_sub(1) * rows + last_row) * width;
            first + piece.columns.start..last + piece.columns.end
        };
        let one = span(&(0..1, tiles.row_tiles.clone()));
        let bytes = (one.end - one.start) * planner.data.size() + 2 * alignment(profile);
        let fits = bytes <= profile.longest_window();
        let all = piece.batches.clone();
        let step = if fits { all.end - all.start } else { 1 };
        let vector = 4 * u64::from(planner.vector_vec4s(width));
        let mut shares = Vec::new();
        for batch in all.clone().step_by(step.max(1) as usize) {
            let units = if fits { &all } else { &tiles.row_tiles };
            let part = |some| {
                if fits {
                    (some, tiles.row_tiles.clone())
                } else {
                    (batch..batch + 1, some)
                }
            };
            let of_units = |some| span(&part(some));
            for mut window in windows_of(profile, &planner.tensors.src, units.clone(), of_units)? {
                let (batches, row_tiles) = part(window.units.clone());
                let first = piece.first_tile + (batches.start - all.start) * piece.tiles;
                let end = first + (batches.end - batches.start) * piece.tiles;
                let walks = div_ceil(end, tiles.walked_tiles) - first / tiles.walked_tiles;
                let of_a_row = div_ceil(piece.tiles, tiles.walked_tiles);
                let walks_of_a_row = of_a_row.clamp(1, walks.max(1));
                let rows_of_walks = div_ceil(walks, walks_of_a_row) * walks_of_a_row;
                window.owned = Some(of_units(window.units.clone()));
                window.tiles = 0..rows_of_walks * (row_tiles.end - row_tiles.start);
                shares.push(ColumnShare {
                    window,
                    vector,
                    first_batch: batches.start,
                    column_tiles: first..end,
                    walks_of_a_row,
                    row_tiles,
                });
            }
            // Every batch has a dispatch.
            let left = if fits { 0 } else { all.end - batch - 1 };
            check_dispatches(shares.len() as u64 + left)?;
        }
        Ok(shares)
    }
}
