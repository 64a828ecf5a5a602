//! Walks over rows of channels: columns, tiles of rows, splits and windows.

use super::channels::Channels;
use super::division::{Division, Pass};
use super::{Known, Reduced, Walk};
use crate::kernels::{
    BatchTiles, ColumnChannels, ColumnsWalk, ColumnsWalkUniforms, Sharing, TileRange,
};
use crate::plan::axes::LONE_PLANE;
use crate::plan::dispatch::Dispatch;
use crate::plan::limits::{Cannot, MAX_SEQUENTIAL, Unfit, check, check_dispatches};
use crate::plan::planner::Planner;
use crate::plan::problem::Family;
use crate::plan::rounds::Rounds;
use crate::plan::sizes::{div_ceil, most_vectors, word};
use crate::plan::stages::finish::Partials;
use crate::plan::windows::{Share, Window};
use crate::plan::workspace::{Region, Workspace};
use std::ops::Range;

/// The most vec4s of a row that an invocation can own.
const MAX_VEC4S: u32 = 16;

/// A grid read as rows of columns: a row is `repeats` outer indices, as many as make it whole vectors and wide enough
/// for a workgroup, or all there are.
struct ChannelRows {
    repeats: u64,
    /// Elements from one row to the next, and the vectors that hold them.
    columns: u64,
    width_vectors: u64,
    /// Whether every row begins at a vector. With general axes, batches may begin elsewhere.
    aligned: bool,
    rows: u64,
    /// The number of indices over the kept leading axes, if axes are general: each has its own rows.
    batches: u64,
    /// Channels in a batch.
    channels: u32,
    /// Whether the rows of all batches follow each other.
    in_one_piece: bool,
    /// Whether the last row is complete.
    complete: bool,
    /// Whether the tensor ends with a vector.
    ends_with_vector: bool,
    division: Division,
    /// The most vectors of a row that are never cut apart.
    segment: u64,
}

impl ChannelRows {
    fn new(over: &Channels<'_>) -> Self {
        let (planner, layout) = (&over.planner, &over.layout);
        let tuning = &planner.profile.tuning;
        let workgroup_size = planner.workgroup(tuning.workgroup);
        let threads_per_row = u64::from(planner.threads_per_row(workgroup_size));
        let (mut grid, mut batches, mut in_one_piece) = (layout.grid, 1, true);
        if let Some(general) = &layout.general {
            let channels = general.width.max(1);
            batches = u64::from(grid.channels / channels);
            grid.channels = channels;
            in_one_piece = general.batches_in_one_piece();
        }
        let outer_elements = (u64::from(grid.channels) * u64::from(grid.inner)).max(1);
        let together = if in_one_piece {
            grid.elements()
        } else {
            outer_elements
        };
        let aligned = batches == 1 || together.is_multiple_of(4);
        let vector_vec4s = u64::from(planner.vector_vec4s(together));
        // The same number of elements side by side whatever a vector holds, where other invocations can do other rows.
        let threads_per_row = if threads_per_row < u64::from(workgroup_size) {
            (threads_per_row / vector_vec4s).max(1)
        } else {
            threads_per_row
        };
        let vector = 4 * vector_vec4s;
        let whole_vectors = if aligned {
            vector >> outer_elements.trailing_zeros().min(vector.ilog2())
        } else {
            1
        };
        let vectors = |repeats: u64| div_ceil(outer_elements * repeats, vector);
        // Rows wide enough that all invocations have work, and, if registers allow, equal work; no wider than the
        // tensor, which may end inside the last vector.
        let most_owned = most_vectors(tuning.channels_last_vec4s.min(MAX_VEC4S), vector_vec4s);
        let outer = u64::from(grid.outer).max(1);
        let owned = threads_per_row * most_owned / vectors(whole_vectors);
        // Each of a row's indices has partial sums of its own: where rows need not be whole vectors, few.
        let most_repeats = if aligned { outer } else { (outer / 16).max(1) };
        let most = div_ceil(most_repeats, whole_vectors).min(owned.max(1));
        let busy = |repeats: u64| {
            let width = vectors(whole_vectors * repeats);
            width as f64 / (div_ceil(width, threads_per_row) * threads_per_row) as f64
        };
        let busier = |best, more| if busy(more) > busy(best) { more } else { best };
        // The next batch begins after a batch's last row. Rows in several pieces are as long as those.
        let fits = |more: &u64| {
            in_one_piece && (batches == 1 || outer.is_multiple_of(whole_vectors * more))
        };
        let all = (1..=most.min(threads_per_row)).filter(fits);
        let repeats = (whole_vectors * all.fold(1, busier)).min(outer);
        let width_vectors = vectors(repeats);
        let columns = if aligned {
            vector * width_vectors
        } else {
            outer_elements * repeats
        };
        // A row's vectors are divided among invocations: first one for each, then several.
        let threads_per_row = threads_per_row.min(width_vectors.next_power_of_two());
        let threads = (workgroup_size, threads_per_row);
        let elements = layout.grid.elements();
        Self {
            repeats,
            columns,
            width_vectors,
            aligned,
            rows: div_ceil(grid.elements(), outer_elements * repeats),
            batches,
            channels: grid.channels,
            in_one_piece,
            complete: elements.is_multiple_of(columns),
            ends_with_vector: elements.is_multiple_of(vector),
            division: Division::new(threads, (width_vectors, vector_vec4s), most_owned),
            segment: (planner.profile.most_between_cuts(elements) / vector).max(1),
        }
    }

    /// Whether each column is a channel, and they come in whole vec4s.
    fn are_channels(&self) -> bool {
        self.batches == 1
            && self.columns == u64::from(self.channels)
            && self.columns.is_multiple_of(4)
    }

    /// Tiles in a row.
    fn column_tiles(&self) -> u64 {
        div_ceil(self.width_vectors, self.division.tile_vectors())
    }
}

/// How the channels-last reduction is split.
struct Split {
    tile_rows: u64,
    by_channel: bool,
    paired: bool,
    rounds: Rounds,
}

impl Split {
    /// Enough splits to keep the adapter busy, none too small, no more partial sums than there is room for, no tile of
    /// rows larger than a window may be, and no invocation adding too many numbers in a row.
    fn new(over: &Channels<'_>, columns: &ChannelRows) -> Self {
        let (planner, layout) = (&over.planner, &over.layout);
        let (profile, grid) = (planner.profile, &layout.grid);
        let of_channel = columns.repeats * u64::from(grid.inner);
        // A workgroup adds up the columns of a channel before it writes them: with few channels there would be far more
        // partial sums than workgroups to add them up. It does so only where it has barriers anyway: on a software
        // driver, whose workgroups may have none, they cost more than the sums (measured: 1.03 times the time of the
        // whole gradient).
        let by_channel = columns.width_vectors
            <= columns.division.tile_vectors().min(columns.segment)
            && columns.width_vectors * columns.division.vector_vec4s
                <= u64::from(columns.division.workgroup_size)
            && columns.division.at_once() > 1
            && (2..=MAX_SEQUENTIAL).contains(&of_channel);
        let paired = planner.body.pairs() && of_channel == 1 && columns.aligned;
        let channels = u64::from(grid.channels);
        let records = match (by_channel, paired) {
            (true, _) => channels,
            // The last row's last vector may end after the channels.
            (_, true) => channels.max(columns.columns) / 2,
            (false, false) => columns.batches * columns.columns,
        };
        let column_tiles = columns.batches * columns.column_tiles();
        let tile_elements = columns.division.tile_columns() * columns.rows;
        let room = planner.partial_records(channels);
        let held = |unit: u64| {
            if columns.in_one_piece {
                (unit / columns.columns).max(1)
            } else {
                u64::MAX
            }
        };
        let splits = div_ceil(busy_workgroups(planner), column_tiles)
            .min(div_ceil(tile_elements, u64::from(profile.tuning.tile)))
            .min((room / records.max(1)).max(1))
            .max(div_ceil(
                columns.rows,
                columns.division.at_once() * MAX_SEQUENTIAL,
            ))
            .max(1);
        let tile_rows = div_ceil(columns.rows, splits);
        // Larger windows than usual, where they have room for fewer partial sums.
        let mut unit = profile.most_between_cuts(grid.elements());
        if div_ceil(columns.rows, tile_rows.min(held(unit))) * records > room {
            unit = profile.held_unit();
        }
        let tile_rows = tile_rows.min(held(unit)).max(1);
        let splits = div_ceil(columns.rows, tile_rows);
        let room = layout.general.map_or(room, |_| u64::MAX);
        Self {
            tile_rows,
            by_channel,
            paired,
            rounds: Rounds::new(
                splits,
                records,
                planner.subtotal_records(grid.channels),
                room,
            ),
        }
    }
}

/// Workgroups that keep the adapter busy: fewer than elsewhere, and fewer the smaller the elements are. Compared
/// with small elements, partial sums and the coefficients that each workgroup loads weigh more.
fn busy_workgroups(planner: &Planner<'_>) -> u64 {
    let all = u64::from(planner.profile.tuning.busy_workgroups);
    (all * planner.data.size() / 8).max(all.min(64)).max(1)
}

/// A dispatch's tiles: all columns of some tiles of rows, or some columns of one row.
struct Tiles {
    vectors: Range<u64>,
    column_tiles: u64,
    window: Window,
}

impl Share for Tiles {
    fn window(&self) -> &Window {
        &self.window
    }
}

/// A walk over rows of columns.
pub(crate) struct ChannelsLast<'a> {
    over: Channels<'a>,
    columns: ChannelRows,
    split: Split,
}

impl<'a> ChannelsLast<'a> {
    /// The walk, if there is room for its partial sums.
    pub fn new(planner: Planner<'a>) -> Result<Self, Cannot> {
        let over = Channels::new(planner);
        let columns = ChannelRows::new(&over);
        let split = Split::new(&over, &columns);
        let has_room = over.layout.general.is_some()
            || !planner.problem.has_sums(planner.tensors)
            || split.rounds.fit();
        check(has_room, "its partial sums would outgrow the tensor")?;
        Ok(Self {
            over,
            columns,
            split,
        })
    }
}

impl ChannelsLast<'_> {
    /// Dispatches over some of the tiles of `tile_rows` rows.
    fn shares(&self, tile_rows: u64, tiles: Range<u64>) -> Result<Vec<Tiles>, Unfit> {
        let (planner, layout, columns) = (&self.over.planner, &self.over.layout, &self.columns);
        let column_tiles = columns.column_tiles();
        let of_rows = |window: Window| Tiles {
            vectors: 0..columns.width_vectors,
            column_tiles,
            window,
        };
        let row_tiles = div_ceil(columns.rows, tile_rows).max(1);
        // Nothing can be cut where the rows of a batch are not in one piece.
        if !columns.in_one_piece {
            let windows = planner.uncut(columns.batches * row_tiles * column_tiles)?;
            return Ok(windows.into_iter().map(of_rows).collect());
        }
        // Units between two cuts: tiles of whole rows, or segments of a row.
        let segment = columns.segment;
        let segments = match (tile_rows, layout.general) {
            (1, None) => div_ceil(columns.width_vectors, segment),
            _ => 1,
        };
        let start = |unit: u64| {
            let tile = unit / segments;
            let row = tile / row_tiles * columns.rows + tile % row_tiles * tile_rows;
            let first = unit % segments * segment;
            (row * columns.columns + first * columns.division.vector()).min(layout.grid.elements())
        };
        // Where there are several batches, `tiles` are all of each.
        let of_a_tile = columns.batches * segments;
        let units = tiles.start * of_a_tile..tiles.end * of_a_tile;
        if segments > 1 {
            check_dispatches(units.end - units.start)?;
        }
        let windows = planner.windows(units, column_tiles, start)?;
        if segments == 1 {
            return Ok(windows.into_iter().map(of_rows).collect());
        }
        let of_a_row = |window: &Window, unit: u64| {
            let (row, first) = (unit / segments, unit % segments * segment);
            let vectors = first..(first + segment).min(columns.width_vectors);
            let column_tiles =
                div_ceil(vectors.end - vectors.start, columns.division.tile_vectors());
            let tiles = row * column_tiles..(row + 1) * column_tiles;
            Tiles {
                vectors,
                column_tiles,
                window: Window {
                    tiles,
                    ..window.clone()
                },
            }
        };
        let units = windows
            .iter()
            .flat_map(|window| window.units.clone().map(move |unit| (window, unit)));
        Ok(units.map(|(window, unit)| of_a_row(window, unit)).collect())
    }

    /// Dispatches over shares: a reduction to partial sums that begin at a region; without one, the elementwise pass.
    fn dispatches(
        &self,
        known: &Known,
        tile_rows: u64,
        shares: &[Tiles],
        partials: Option<Region>,
    ) -> Result<Vec<Dispatch>, Unfit> {
        let (planner, layout) = (&self.over.planner, &self.over.layout);
        let (columns, split) = (&self.columns, &self.split);
        let (division, reduced) = (&columns.division, partials.is_some());
        let pass = if reduced { Pass::Sums } else { Pass::Results };
        let loads = planner.profile.tuning.loads_at_once * 4 / planner.data.size().min(4) as u32;
        let kernel = ColumnsWalk {
            of_channels: true,
            general: layout.general.is_some(),
            in_one_piece: columns.in_one_piece,
            complete: columns.complete,
            ends_with_vector: columns.ends_with_vector,
            aligned: columns.aligned,
            shares_words: planner.shares_words(columns.columns),
            columns_are_channels: columns.are_channels()
                && planner.problem.family == Family::Channels,
            by_channel: reduced && split.by_channel,
            paired_columns: reduced && split.paired,
            ..division.columns_walk(planner, (pass, known), (tile_rows, loads))
        };
        planner.over(shares, (kernel, division.workgroup_size), |share, range| {
            let bindings = if reduced {
                self.over.reduced(known, &share.window)
            } else {
                self.over.applied(known, &share.window)
            };
            let uniforms = ColumnsWalkUniforms {
                tiles: self.tiles(share, tile_rows, range, known.stats),
                means: known.means.map_or(0, |region| region.first),
                partials: partials.map_or(0, |region| region.first),
                partial_stride: word(split.rounds.records),
                scalars: planner.problem.scalars(),
                ..ColumnsWalkUniforms::default()
            };
            (bindings, uniforms)
        })
    }

    fn tiles(&self, share: &Tiles, tile_rows: u64, range: TileRange, stats: Region) -> BatchTiles {
        let (layout, columns) = (&self.over.layout, &self.columns);
        let vector = columns.division.vector();
        let (channels, column_tiles) = (layout.grid.channels, word(share.column_tiles));
        let (rows, width) = (word(columns.rows), word(columns.columns));
        let Sharing {
            group_channels,
            statistics,
            parameters,
        } = self.over.planner.problem.groups.sizes().sharing;
        BatchTiles {
            statistics,
            parameters,
            channels: ColumnChannels {
                channels,
                row_channels: columns.channels,
                inner: layout.grid.inner,
                group_channels,
                axes: layout.sizes(),
            },
            first_column: word(share.vectors.start * vector),
            end_column: word((share.vectors.end * vector).min(columns.columns)),
            end_column_tile: word(columns.batches * share.column_tiles),
            tile_rows: word(tile_rows),
            row_tiles: word(div_ceil(columns.rows, tile_rows)),
            last_vector: share.window.last_vector(vector),
            stats: stats.first,
            range,
            ..BatchTiles::of_whole_rows(rows, width, column_tiles)
        }
    }
}

impl Walk for ChannelsLast<'_> {
    /// Where all planes of groups are in one row, a column would have a sum of its own.
    fn is_profitable(&self) -> bool {
        let grid = &self.over.layout.grid;
        match self.over.planner.problem.family {
            _ if self.over.layout.general.is_some() => true,
            Family::Groups => grid.outer > 1 || grid.inner < LONE_PLANE,
            _ => !grid.has_planes(),
        }
    }

    /// Finding each column's statistics is a long text, for which drivers for the CPU take memory.
    fn bound_besides_given(&self) -> Option<usize> {
        let bound = self.over.bound_besides_given(self.writes_in_one_pass());
        bound.filter(|_| self.over.planner.profile.cheap_barriers())
    }

    fn writes_in_one_pass(&self) -> bool {
        let planner = &self.over.planner;
        planner.problem.needs_no_sums(planner.tensors)
    }

    fn reduce(&self, known: &Known, workspace: &mut Workspace) -> Result<Reduced, Unfit> {
        let (planner, grid) = (&self.over.planner, &self.over.layout.grid);
        let (columns, split) = (&self.columns, &self.split);
        let reduce = |region: Region, splits: Range<u64>| {
            let shares = self.shares(split.tile_rows, splits)?;
            self.dispatches(known, split.tile_rows, &shares, Some(region))
        };
        let partials = |region, splits| match (split.by_channel, split.paired) {
            (true, _) => Partials::plain(region, grid.channels, splits, grid.channels.into()),
            (_, true) => Partials::paired(region, grid.channels, splits),
            (false, false) => {
                let count = splits * columns.repeats * u64::from(grid.inner);
                Partials {
                    channel_stride: u64::from(grid.inner),
                    repeats: columns.repeats,
                    inner: grid.inner,
                    ..Partials::plain(region, grid.channels, count, split.rounds.records)
                }
            }
        };
        let reduced = planner.in_rounds(&split.rounds, workspace, reduce, partials)?;
        Ok(Reduced::of_statistics(reduced))
    }

    fn apply(&self, known: &Known) -> Result<Vec<Dispatch>, Unfit> {
        if self.over.writes_mask() {
            return self.over.apply_with_mask(known);
        }
        let (planner, layout, columns) = (&self.over.planner, &self.over.layout, &self.columns);
        let division = &columns.division;
        // The reduction walks more pieces of rows than this, since its sums of each column cost more.
        let cut = columns.width_vectors > division.tile_vectors();
        let apart = if cut { columns.columns } else { 0 };
        let (elements, busy) = (layout.grid.elements(), busy_workgroups(planner));
        let tile_rows = division
            .rows_applied(planner, elements, columns.columns, busy)
            .min(planner.most_apart(apart))
            .max(1);
        let shares = self.shares(tile_rows, 0..div_ceil(columns.rows, tile_rows))?;
        self.dispatches(known, tile_rows, &shares, None)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::algorithm::Algorithm;
    use crate::element::DType;
    use crate::operation::{Backward, Norm, Operation};
    use crate::options::DataFormat;
    use crate::plan::problem::Problem;
    use crate::profile::Profile;

    /// Channels last, samples are read as whole rows, which are cut anywhere.
    #[test]
    fn batches_are_made_of_whole_rows() {
        let profile = Profile {
            max_binding: 1 << 20,
            window_unit: 4096,
            ..Profile::usual()
        };
        for shape in [
            [4, 224 * 224, 3],
            [2, 36, 10],
            [3, 8, 2],
            [3, 1 << 20, 6],
            [2, 100, 4096],
            [3, 37, 10],
            [2, (1 << 19) + 1, 6],
            [2, 101, 4099],
        ] {
            let norm = Norm::Group {
                groups: 1,
                format: DataFormat::Nxc,
            };
            let operation = Operation::new(norm, Backward::default(), &shape, DType::F16);
            let problem = Problem::new(&operation);
            let tensors = problem.tensors();
            let planner = Planner::new(&profile, &problem, &tensors);
            let walk = ChannelsLast::new(planner).ok().unwrap();
            let (columns, split) = (&walk.columns, &walk.split);
            let width = columns.columns;
            assert!(
                width.is_multiple_of(u64::from(columns.channels)),
                "{shape:?}"
            );
            let sample = columns.rows * width;
            assert_eq!(sample, (shape[1] * shape[2]) as u64, "{shape:?}");
            assert_eq!(columns.batches, shape[0] as u64, "{shape:?}");
            let all = 0..split.rounds.splits;
            let shares = walk.shares(split.tile_rows, all).unwrap();
            let mut tile = 0;
            for share in &shares {
                assert_eq!(share.window.tiles.start, tile);
                tile = share.window.tiles.end;
            }
            assert_eq!(
                tile,
                columns.batches * split.rounds.splits * columns.column_tiles(),
                "{shape:?}"
            );
            assert_eq!(shares.len() > 1, tensors.src.bytes() > profile.max_binding);
        }
    }

    /// By given statistics there are no sums, for which 4 million channels would leave no room.
    #[test]
    fn inference_is_not_judged_by_sums() {
        let profile = Profile {
            max_binding: 1 << 27,
            ..Profile::usual()
        };
        let algorithms = [true, false].map(|centered| {
            let norm = Norm::Axes {
                axes: vec![0],
                param_axes: vec![1],
                centered,
            };
            let shape = [64, 4_000_000];
            let operation =
                Operation::new(norm, crate::operation::Pass::Inference, &shape, DType::F32);
            operation.planned(&profile).unwrap().algorithm
        });
        assert_eq!(algorithms, [Algorithm::ChannelsLast; 2]);
    }

    #[test]
    fn rows_are_no_wider_than_the_tensor() {
        let profile = Profile::usual();
        for (outer, channels, inner) in [
            (1, 300_001, 7),
            (1, 100_001, 31),
            (1, 1_000_003, 1),
            (3, 100_001, 5),
            (5, 33, 27),
            (9, 6, 20),
        ] {
            let shape = [outer, channels, inner].map(|size| size as usize);
            let norm = Norm::batch(DataFormat::Ncx);
            let operation = Operation::new(norm, Backward::default(), &shape, DType::F32);
            let problem = Problem::new(&operation);
            let tensors = problem.tensors();
            let planner = Planner::new(&profile, &problem, &tensors);
            let over = Channels::new(planner);
            let grid = over.layout.grid;
            let columns = ChannelRows::new(&over);
            let what = format!("{outer}x{channels}x{inner}");
            let rest = columns.rows * columns.columns - grid.elements();
            assert!(rest < columns.columns, "{what}");
            if columns.rows == 1 {
                assert!(
                    rest < columns.division.vector(),
                    "{what}: {}",
                    columns.columns
                );
            }
        }
    }
}
