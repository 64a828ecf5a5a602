//! Norms over an axis that is not the last one, like layer norm over channels (NCX): statistics belong to columns,
//! parameters to rows.
//!
//! A reduction takes the sums of columns and of rows in one reading, and the elementwise pass has a column's
//! statistics in registers and loads a row's parameters. Where there is no room for the records of all columns, ranges
//! of columns are done one after another, with a workspace for one range. Ranges begin at aligned positions of the
//! statistics, wherever that is in a batch.

use super::columns_cut::{Columns, Cut, Piece, pieces_of};
use super::division::Pass;
use super::{Known, Reduced, Walk};
use crate::kernels::{BatchTiles, ColumnsWalk, ColumnsWalkUniforms};
use crate::plan::dispatch::{Binding, Dispatch};
use crate::plan::limits::{Cannot, Unfit, check_dispatches};
use crate::plan::planner::Planner;
use crate::plan::rounds::Rounds;
use crate::plan::sizes::{div_ceil, word};
use crate::plan::stages::finish::Partials;
use crate::plan::windows::{Share, Window, windows_of};
use crate::plan::workspace::{Region, Workspace};
use std::ops::Range;

/// A dispatch's share of a piece, and its tiles, but for their range.
pub(crate) struct ColumnShare {
    pub window: Window,
    pub tiles: BatchTiles,
}

impl Share for ColumnShare {
    fn window(&self) -> &Window {
        &self.window
    }
}

/// A walk over columns: a reduction, and an elementwise pass.
pub(crate) struct WalkedColumns<'a> {
    over: Columns<'a>,
    cut: Cut,
}

impl<'a> WalkedColumns<'a> {
    pub fn new(planner: Planner<'a>) -> Result<Self, Cannot> {
        let over = Columns::new(planner)?;
        let cut = over.cut()?;
        Ok(Self { over, cut })
    }

    /// Whether it can be done in pieces, with room for the records of all columns.
    pub fn has_room_in_pieces(planner: Planner<'a>) -> bool {
        Self::new(planner).is_ok_and(|walk| walk.cut.ranges.len() == 1)
    }

    /// The dispatches over a part: a reduction of some tiles of rows, whose partial sums begin at a region; without
    /// those, the elementwise pass.
    fn dispatches(
        &self,
        known: &Known,
        partials: Option<(Region, Range<u64>)>,
    ) -> Result<Vec<Dispatch>, Unfit> {
        let Self { over, cut } = self;
        let Columns { planner, by } = over;
        let params = &known.params;
        let (applied, reduced) = (partials.is_none(), partials.is_some());
        let (region, row_tiles) = partials.unwrap_or((known.stats, 0..1));
        let (division, tile_rows) = if reduced {
            (cut.division, cut.tile_rows)
        } else {
            cut.applied
        };
        // No more loads of 16 bits than of f32, unlike channels last: twice as many would cost a third of Ampere's warps,
        // and spill on Intel.
        let loads = planner.profile.tuning.loads_at_once;
        let pass = if reduced { Pass::Sums } else { Pass::Results };
        let kernel = ColumnsWalk {
            of_batches: true,
            threads_per_partial: word(if reduced { cut.threads_per_partial } else { 1 }),
            one_tile: !reduced || cut.walked_tiles == 1,
            aligned: by.is_aligned(),
            shares_words: applied && planner.shares_words(by.columns.into()),
            of_samples: by.of_samples,
            summed: reduced && planner.tensors.param_grads(),
            paired_columns: over.halves_of_a_partial() == 1,
            ..division.columns_walk(planner, (pass, known), (tile_rows, loads))
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
            let stats = from_part(known.stats, start);
            let shares = over.shares(piece, &row_tiles, tile_rows, walked_tiles)?;
            let kernel = (kernel, division.workgroup_size);
            dispatches.extend(planner.over(&shares, kernel, |share, range| {
                let uniforms = ColumnsWalkUniforms {
                    tiles: BatchTiles {
                        range,
                        stats,
                        copies: params.copies,
                        ..share.tiles
                    },
                    row_groups: word(cut.row_groups),
                    partials_per_row: word(cut.partials_per_row()),
                    row_partials: known.kept.first,
                    means: known.means.map_or(0, |means| from_part(means, start)),
                    partials,
                    partial_stride: word(over.partial_stride(&known.part)),
                    scalars: planner.problem.scalars(),
                };
                let bindings = over.bindings(applied, known, &share.window);
                (bindings, uniforms)
            })?);
            check_dispatches(dispatches.len() as u64)?;
        }
        Ok(dispatches)
    }

    /// The partial sums of rows.
    fn sums_of_rows(&self, region: Region) -> Partials {
        let rows = word(self.over.by.parameters());
        Partials::side_by_side(region, rows, self.cut.partials_per_row())
    }
}

impl Walk for WalkedColumns<'_> {
    fn bound_besides_params(&self) -> Option<usize> {
        Some(self.over.planner.elementwise())
    }

    fn bound_besides_given(&self) -> Option<usize> {
        let planner = &self.over.planner;
        Some(if planner.problem.has_sums(planner.tensors) {
            planner.tensors.reads_to_reduce().count() + 1
        } else {
            planner.elementwise()
        })
    }

    fn parts(&self) -> &[Range<u64>] {
        &self.cut.ranges
    }

    fn kept_records(&self) -> u64 {
        self.over.row_records(&self.cut)
    }

    fn reduce(&self, known: &Known, workspace: &mut Workspace) -> Result<Reduced, Unfit> {
        let (over, planner) = (&self.over, &self.over.planner);
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
        let mut reduced = Reduced::of_statistics(sums);
        let is_gradient = planner.body.is_gradient();
        reduced.parameters = is_gradient.then(|| self.sums_of_rows(known.kept));
        Ok(reduced)
    }

    fn apply(&self, known: &Known) -> Result<Vec<Dispatch>, Unfit> {
        self.dispatches(known, None)
    }
}

impl Columns<'_> {
    /// The bindings of a dispatch in a window. One that is `applied` writes tensors element by element.
    fn bindings(&self, applied: bool, known: &Known, window: &Window) -> Vec<Binding> {
        let tensors = self.planner.tensors;
        let mut bindings = if applied {
            window.bind_all(&tensors.inputs).collect()
        } else {
            tensors.reduced(window)
        };
        let given = known.params.bindings.iter().chain(&known.given);
        bindings.extend(given.cloned());
        if !applied || known.has_workspace() {
            bindings.push(Binding::workspace());
        }
        if applied {
            bindings.extend(window.bind_all(&tensors.outputs));
        }
        bindings
    }

    /// The shares of some tiles of rows of a piece. If all of them fit a window, windows are cut between batches;
    /// otherwise those of each batch are cut between its tiles of rows.
    pub fn shares(
        &self,
        piece: &Piece,
        row_tiles: &Range<u64>,
        tile_rows: u64,
        walked_tiles: u64,
    ) -> Result<Vec<ColumnShare>, Unfit> {
        let Self { planner, by } = self;
        let profile = planner.profile;
        let (rows, width) = (u64::from(by.rows), u64::from(by.columns));
        // The elements of some tiles of rows of some batches.
        let span = |(batches, tiles): &(Range<u64>, Range<u64>)| {
            let last_row = (tiles.end * tile_rows).min(rows).saturating_sub(1);
            let first = (batches.start * rows + tiles.start * tile_rows) * width;
            let last = (batches.end.saturating_sub(1) * rows + last_row) * width;
            first + piece.columns.start..last + piece.columns.end
        };
        let of_a_batch = span(&(0..1, row_tiles.clone()));
        let batch_bytes = (of_a_batch.end - of_a_batch.start) * planner.data.size();
        let batch_fits = profile.window_holds(batch_bytes);
        let batches = &piece.batches;
        let step = if batch_fits {
            batches.end - batches.start
        } else {
            1
        };
        let vector = 4 * u64::from(planner.vector_vec4s(width));
        let mut shares = Vec::new();
        for batch in batches.clone().step_by(step.max(1) as usize) {
            let units = if batch_fits { batches } else { row_tiles };
            let part = |some| {
                if batch_fits {
                    (some, row_tiles.clone())
                } else {
                    (batch..batch + 1, some)
                }
            };
            let of_units = |some| span(&part(some));
            for mut window in windows_of(profile, &planner.tensors.src, units.clone(), of_units)? {
                let (own_batches, own_rows) = part(window.units.clone());
                let first = piece.first_tile + (own_batches.start - batches.start) * piece.tiles;
                let end = first + (own_batches.end - own_batches.start) * piece.tiles;
                let walks = div_ceil(end, walked_tiles) - first / walked_tiles;
                let of_a_row = div_ceil(piece.tiles, walked_tiles);
                let walks_of_a_row = of_a_row.clamp(1, walks.max(1));
                let rows_of_walks = div_ceil(walks, walks_of_a_row) * walks_of_a_row;
                window.owned = Some(of_units(window.units.clone()));
                window.tiles = 0..rows_of_walks * (own_rows.end - own_rows.start);
                let tiles = BatchTiles {
                    statistics: word(by.statistics()),
                    parameters: word(by.parameters()),
                    first_column: word(piece.columns.start),
                    end_column: word(piece.columns.end),
                    first_batch: word(own_batches.start),
                    first_column_tile: word(first),
                    end_column_tile: word(end),
                    walked_tiles: word(walked_tiles),
                    walks_of_a_row: word(walks_of_a_row),
                    tile_rows: word(tile_rows),
                    first_row_tile: word(own_rows.start),
                    row_tiles: word(own_rows.end - own_rows.start),
                    last_vector: window.last_vector(vector),
                    ..BatchTiles::of_whole_rows(by.rows, by.columns, word(piece.tiles))
                };
                shares.push(ColumnShare { window, tiles });
            }
            // Every batch has a dispatch.
            let left = if batch_fits {
                0
            } else {
                batches.end - batch - 1
            };
            check_dispatches(shares.len() as u64 + left)?;
        }
        Ok(shares)
    }
}
