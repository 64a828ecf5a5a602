//! Walks over rows of channels: columns, tiles of rows, splits and windows.

use super::channels::Channels;
use super::{Known, Reduced, Walk};
use crate::kernels::{
    ChannelsLastApply, ChannelsLastApplyUniforms, ChannelsLastReduce, ChannelsLastReduceUniforms,
    ColumnTiles, TileRange,
};
use crate::plan::axes::{Grid, LONE_PLANE, Layout};
use crate::plan::dispatch::{Binding, Dispatch};
use crate::plan::limits::{
    Cannot, MAX_SEQUENTIAL, MOST_ITERATIONS, Unfit, check, check_dispatches,
};
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
struct Columns {
    repeats: u64,
    width_vectors: u64,
    rows: u64,
    /// The number of indices over the kept leading axes, if axes are general: each has its own rows.
    batches: u64,
    /// Channels in a batch.
    channels: u32,
    /// Whether the rows of all batches follow each other.
    in_one_piece: bool,
    threads_per_row: u64,
    /// Vec4s in a vector.
    vector_vec4s: u64,
    /// Vectors of a row that an invocation owns.
    column_vectors: u64,
}

impl Columns {
    /// Vectors of a row that a workgroup owns.
    fn tile(&self) -> u64 {
        self.threads_per_row * self.column_vectors
    }

    /// Elements in a vector.
    fn vector(&self) -> u64 {
        4 * self.vector_vec4s
    }

    /// Elements in a row's vectors.
    fn width(&self) -> u64 {
        self.vector() * self.width_vectors
    }

    /// Columns of all batches; a split has a record for each.
    fn all(&self) -> u64 {
        self.batches * self.width()
    }

    /// Whether the last row is complete.
    fn complete(&self, layout: &Layout) -> bool {
        layout.grid.elements().is_multiple_of(self.width())
    }

    /// Whether the tensor ends with a vector.
    fn whole(&self, layout: &Layout) -> bool {
        layout.grid.elements().is_multiple_of(self.vector())
    }
}

/// How the channels-last reduction is split.
struct SplitColumns {
    columns: Columns,
    workgroup_size: u32,
    /// Invocations of a workgroup that own the same columns.
    thread_rows: u64,
    tile_rows: u64,
    by_channel: bool,
    paired: bool,
    rounds: Rounds,
}

impl SplitColumns {
    fn partials(&self, layout: &Layout, region: Region, splits: u64) -> Partials {
        let grid = &layout.grid;
        let channels = u64::from(grid.channels);
        match (self.by_channel, self.paired) {
            (true, _) => Partials::plain(region, grid.channels, splits, channels),
            (_, true) => Partials::paired(region, grid.channels, splits),
            (false, false) => Partials {
                paired: false,
                region,
                channels: grid.channels,
                channel_stride: u64::from(grid.inner),
                count: splits * self.columns.repeats * u64::from(grid.inner),
                partial_stride: self.columns.all(),
                repeats: self.columns.repeats,
                inner: grid.inner,
                mixed: None,
            },
        }
    }
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

/// Tiles of rows: the number of rows in each, and of tiles.
#[derive(Clone, Copy)]
struct Blocks {
    rows: u64,
    count: u64,
}

impl Tiles {
    /// The uniforms of both kernels.
    fn uniforms(
        &self,
        layout: &Layout,
        columns: &Columns,
        blocks: Blocks,
        range: TileRange,
        stats: Region,
    ) -> ColumnTiles {
        ColumnTiles {
            channels: layout.grid.channels,
            row_channels: columns.channels,
            inner: layout.grid.inner,
            width_vectors: word(columns.width_vectors),
            tile_rows: word(blocks.rows),
            rows: word(columns.rows),
            threads_per_row: word(columns.threads_per_row),
            range,
            column_tiles: word(self.column_tiles),
            first_vector: word(self.vectors.start),
            end_vector: word(self.vectors.end),
            row_tiles: word(blocks.count),
            stats: stats.first,
            axes: layout.sizes(),
        }
    }
}

/// A walk over rows of columns.
pub(crate) struct ChannelsLast<'a> {
    over: Channels<'a>,
}

impl<'a> ChannelsLast<'a> {
    /// The walk, if there is room for its partial sums.
    pub fn new(planner: Planner<'a>) -> Result<Self, Cannot> {
        let walk = Self {
            over: Channels::new(planner),
        };
        let has_room = walk.over.layout.general.is_some()
            || !planner.problem.has_sums(planner.tensors)
            || walk.split_columns().rounds.fit();
        check(has_room, "its partial sums would outgrow the tensor")?;
        Ok(walk)
    }
}

impl ChannelsLast<'_> {
    fn columns(&self, workgroup_size: u32) -> Columns {
        let (planner, layout) = (&self.over.planner, &self.over.layout);
        let threads_per_row = planner
            .profile
            .tuning
            .channels_last_threads
            .clamp(1, workgroup_size);
        let threads_per_row = 1u64 << threads_per_row.ilog2(); // a power of two, as the kernels' trees of sums need it
        // The same number of elements side by side whatever a vector holds, where other invocations can do other rows.
        let beside = |vector_vec4s: u64| match threads_per_row < u64::from(workgroup_size) {
            true => (threads_per_row / vector_vec4s).max(1),
            false => threads_per_row,
        };
        let mut grid = layout.grid;
        let mut batches = 1;
        if let Some(general) = &layout.general {
            let width = general.width.max(1);
            batches = u64::from(grid.channels / width);
            grid.channels = width;
            if !general.batches_in_one_piece() {
                let width = u64::from(width);
                let vector_vec4s = u64::from(planner.vector_vec4s(width));
                return Columns {
                    rows: u64::from(grid.outer),
                    batches,
                    channels: grid.channels,
                    ..self.divide(
                        width / (4 * vector_vec4s),
                        vector_vec4s,
                        beside(vector_vec4s),
                    )
                };
            }
        }
        let vector_vec4s = u64::from(planner.vector_vec4s(grid.elements()));
        let threads_per_row = beside(vector_vec4s);
        let outer_elements = (u64::from(grid.channels) * u64::from(grid.inner)).max(1);
        let vector = 4 * vector_vec4s;
        let whole_vectors = vector >> outer_elements.trailing_zeros().min(vector.ilog2());
        let vectors = outer_elements * whole_vectors / vector;
        // Rows wide enough that all invocations have work, and, if registers allow, equal work; no wider than the
        // tensor, which may end inside the last vector.
        let widest = threads_per_row * self.most_column_vectors(vector_vec4s);
        let most = div_ceil(u64::from(grid.outer).max(1), whole_vectors);
        let most = most.min((widest / vectors).max(1));
        let busy = |repeats: u64| {
            let width = vectors * repeats;
            width as f64 / (div_ceil(width, threads_per_row) * threads_per_row) as f64
        };
        let busier = |best, more| if busy(more) > busy(best) { more } else { best };
        // The next batch begins after a batch's last row.
        let fits =
            |more: &u64| batches == 1 || u64::from(grid.outer).is_multiple_of(whole_vectors * more);
        let all = (1..=most.min(threads_per_row)).filter(fits);
        let repeats = whole_vectors * all.fold(1, busier);
        let repeats = repeats.min(u64::from(grid.outer).max(1));
        let width = outer_elements * repeats;
        Columns {
            repeats,
            rows: div_ceil(grid.elements(), width),
            batches,
            channels: grid.channels,
            in_one_piece: true,
            ..self.divide(div_ceil(width, vector), vector_vec4s, threads_per_row)
        }
    }

    /// The most vectors of a row that an invocation owns.
    fn most_column_vectors(&self, vector_vec4s: u64) -> u64 {
        let vec4s = self
            .over
            .planner
            .profile
            .tuning
            .channels_last_vec4s
            .min(MAX_VEC4S);
        most_vectors(vec4s, vector_vec4s)
    }

    /// Divides a row's vectors among invocations: first one for each, then several.
    fn divide(&self, width_vectors: u64, vector_vec4s: u64, threads_per_row: u64) -> Columns {
        let threads_per_row = threads_per_row.min(width_vectors.next_power_of_two());
        let most = self.most_column_vectors(vector_vec4s);
        let tiles = div_ceil(width_vectors, threads_per_row * most);
        Columns {
            repeats: 1,
            width_vectors,
            rows: 0,
            batches: 1,
            channels: 0,
            in_one_piece: false,
            threads_per_row,
            vector_vec4s,
            column_vectors: div_ceil(width_vectors, threads_per_row * tiles),
        }
    }

    /// The most vectors of a row that are never cut apart.
    fn segment(&self, grid: &Grid, columns: &Columns) -> u64 {
        (self.over.planner.profile.most_between_cuts(grid.elements()) / columns.vector()).max(1)
    }

    /// Whether a workgroup adds up the columns of a channel before it writes them: with few channels there would be far
    /// more partial sums than workgroups to add them up. It does so only where it has barriers anyway: on a software
    /// driver, whose workgroups may have none, they cost more than the sums (measured: 1.03 times the time of the whole
    /// gradient).
    fn adds_by_channel(&self, columns: &Columns, workgroup_size: u32) -> bool {
        let layout = &self.over.layout;
        let of_channel = columns.repeats * u64::from(layout.grid.inner);
        let workgroup = u64::from(workgroup_size);
        let whole_rows = columns.tile().min(self.segment(&layout.grid, columns));
        columns.width_vectors <= whole_rows
            && columns.width_vectors * columns.vector_vec4s <= workgroup
            && columns.threads_per_row < workgroup
            && (2..=MAX_SEQUENTIAL).contains(&of_channel)
    }

    /// Workgroups that keep the adapter busy: fewer than elsewhere, and fewer the smaller the elements are. Compared
    /// with small elements, partial sums and the coefficients that each workgroup loads weigh more.
    fn busy_workgroups(&self) -> u64 {
        let planner = &self.over.planner;
        let all = u64::from(planner.profile.tuning.busy_workgroups);
        (all * planner.data.size() / 8).max(all.min(64)).max(1)
    }

    /// Dispatches over some of the tiles of `block` rows.
    fn shares(
        &self,
        columns: &Columns,
        block: u64,
        blocks: Range<u64>,
    ) -> Result<Vec<Tiles>, Unfit> {
        let (planner, layout) = (&self.over.planner, &self.over.layout);
        let grid = &layout.grid;
        if layout.general.is_some() {
            let column_tiles = div_ceil(columns.width_vectors, columns.tile());
            let row_blocks = div_ceil(columns.rows, block);
            let all = columns.batches * row_blocks;
            // Nothing can be cut where the rows of a batch are not in one piece.
            let (units, unit_tiles) = match columns.in_one_piece {
                true => (all, column_tiles),
                false => (1, all * column_tiles),
            };
            let start = |unit: u64| match unit == units {
                true => grid.elements(),
                false => {
                    let row = unit / row_blocks.max(1) * columns.rows;
                    (row + unit % row_blocks.max(1) * block) * columns.width()
                }
            };
            let cut = planner.windows(0..units, unit_tiles, start)?;
            let shares = cut.into_iter().map(|window| Tiles {
                vectors: 0..columns.width_vectors,
                column_tiles,
                window,
            });
            return Ok(shares.collect());
        }
        let width = columns.width();
        // Units between two cuts: tiles of whole rows, or segments of a row.
        let segment = self.segment(&layout.grid, columns);
        let segments = match block {
            1 => div_ceil(columns.width_vectors, segment),
            _ => 1,
        };
        let start = |unit: u64| {
            let row = (unit / segments * block) * width;
            (row + unit % segments * segment * columns.vector()).min(grid.elements())
        };
        let units = blocks.start * segments..blocks.end * segments;
        if segments > 1 {
            check_dispatches(units.end - units.start)?;
        }
        let column_tiles = div_ceil(columns.width_vectors, columns.tile());
        let windows = planner.windows(units, column_tiles, start)?;
        let mut shares = Vec::new();
        for window in windows {
            let whole_rows = segments == 1;
            if whole_rows {
                shares.push(Tiles {
                    vectors: 0..columns.width_vectors,
                    column_tiles,
                    window,
                });
                continue;
            }
            for unit in window.units.clone() {
                let first = unit % segments * segment;
                let vectors = first..(first + segment).min(columns.width_vectors);
                let column_tiles = div_ceil(vectors.end - vectors.start, columns.tile());
                let row = unit / segments;
                shares.push(Tiles {
                    vectors,
                    column_tiles,
                    window: Window {
                        tiles: row * column_tiles..(row + 1) * column_tiles,
                        ..window.clone()
                    },
                });
            }
        }
        Ok(shares)
    }

    /// Splits of the channels-last reduction: enough to keep the adapter busy, none too small, no more partial sums
    /// than there is room for, no tile of rows larger than a window may be, and no invocation adding too many numbers
    /// in a row.
    fn split_columns(&self) -> SplitColumns {
        let (planner, layout) = (&self.over.planner, &self.over.layout);
        let grid = &layout.grid;
        let tuning = &planner.profile.tuning;
        let workgroup_size = planner.workgroup(tuning.workgroup);
        let columns = self.columns(workgroup_size);
        let thread_rows = u64::from(workgroup_size) / columns.threads_per_row;
        let by_channel = self.adds_by_channel(&columns, workgroup_size);
        let paired =
            planner.body.pairs() && !by_channel && columns.repeats * u64::from(grid.inner) == 1;
        let channels = u64::from(grid.channels);
        let records = match (by_channel, paired) {
            (true, _) => channels,
            // The last row's last vector may end after the channels.
            (_, true) => channels.max(columns.width()) / 2,
            (false, false) => columns.all(),
        };
        let subtotal_records = planner.subtotal_records(grid.channels);
        let column_tiles = columns.batches * div_ceil(columns.width_vectors, columns.tile());
        let tile_elements = columns.vector() * columns.tile() * columns.rows;
        let room = planner.partial_records(channels);
        let held = |unit: u64| match columns.in_one_piece {
            false => u64::MAX,
            true => (unit / columns.width()).max(1),
        };
        let splits = div_ceil(self.busy_workgroups(), column_tiles)
            .min(div_ceil(tile_elements, u64::from(tuning.tile)))
            .min((room / records.max(1)).max(1))
            .max(div_ceil(columns.rows, thread_rows * MAX_SEQUENTIAL))
            .max(1);
        let tile_rows = div_ceil(columns.rows, splits);
        // Larger windows than usual, where they have room for fewer partial sums.
        let mut unit = planner.profile.most_between_cuts(grid.elements());
        if div_ceil(columns.rows, tile_rows.min(held(unit))) * records > room {
            unit = planner.profile.held_unit();
        }
        let tile_rows = tile_rows.min(held(unit)).max(1);
        let splits = div_ceil(columns.rows, tile_rows);
        SplitColumns {
            columns,
            workgroup_size,
            thread_rows,
            tile_rows,
            by_channel,
            paired,
            rounds: match layout.general {
                Some(_) => Rounds::new(splits, records, subtotal_records, u64::MAX),
                None => Rounds::new(splits, records, subtotal_records, room),
            },
        }
    }

    /// The reduction of some splits.
    fn reduce_some_columns(
        &self,
        split: &SplitColumns,
        stats: Region,
        region: Region,
        splits: Range<u64>,
    ) -> Result<Vec<Dispatch>, Unfit> {
        let (planner, layout) = (&self.over.planner, &self.over.layout);
        let columns = &split.columns;
        let loads = planner.profile.tuning.loads_at_once * 4 / planner.data.size().min(4) as u32;
        let kernel = ChannelsLastReduce {
            column_vectors: word(columns.column_vectors),
            vector_vec4s: word(columns.vector_vec4s),
            rows_at_once: word(planner.rows_at_once(loads, columns.column_vectors)),
            general: layout.general.is_some(),
            in_one_piece: columns.in_one_piece,
            complete: columns.complete(layout),
            whole: columns.whole(layout),
            add_thread_rows: split.thread_rows > 1,
            by_channel: split.by_channel,
            paired: split.paired,
        };
        let blocks = Blocks {
            rows: split.tile_rows,
            count: split.rounds.splits,
        };
        let shares = self.shares(columns, split.tile_rows, splits)?;
        let kernel = (kernel, split.workgroup_size);
        planner.over(&shares, kernel, |share, range| {
            let mut bindings = planner.tensors.reduced(&share.window);
            bindings.push(Binding::workspace());
            let uniforms = ChannelsLastReduceUniforms {
                tiles: share.uniforms(layout, columns, blocks, range, stats),
                partials: region.first,
            };
            (bindings, uniforms)
        })
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

    fn writes_in_one_pass(&self) -> bool {
        let planner = &self.over.planner;
        planner.problem.needs_no_sums(planner.tensors)
    }

    fn reduce(&self, known: &Known, workspace: &mut Workspace) -> Result<Reduced, Unfit> {
        let split = self.split_columns();
        let reduced = self.over.planner.in_rounds(
            &split.rounds,
            workspace,
            |region, splits| self.reduce_some_columns(&split, known.stats, region, splits),
            |region, splits| split.partials(&self.over.layout, region, splits),
        )?;
        Ok(Reduced::of_statistics(reduced))
    }

    fn apply(&self, known: &Known) -> Result<Vec<Dispatch>, Unfit> {
        if self.over.writes_mask() {
            return self.over.apply_with_mask(known);
        }
        let (planner, layout) = (&self.over.planner, &self.over.layout);
        let tuning = &planner.profile.tuning;
        let workgroup_size = planner.workgroup(tuning.workgroup);
        let columns = self.columns(workgroup_size);
        // The reduction walks more pieces of rows than this, since its sums of each column cost more.
        let cut = columns.width_vectors > columns.tile();
        let apart = if cut { columns.width() } else { 0 };
        // The loop iterations that an invocation makes for a row.
        let of_a_row = 1 + columns.column_vectors * (1 + columns.vector_vec4s);
        let thread_rows = u64::from(workgroup_size) / columns.threads_per_row;
        // A tile loads its coefficients once, so it grows while enough tiles are left to keep the adapter busy.
        let tile = u64::from(tuning.tile);
        let left = layout.grid.elements() / self.busy_workgroups();
        let tile_rows = (left.clamp(tile, 8 * tile) / (columns.vector() * columns.tile()))
            .min(thread_rows * (MOST_ITERATIONS / 2 / of_a_row))
            .min(planner.most_apart(apart))
            .min(planner.profile.most_between_cuts(layout.grid.elements()) / columns.width())
            .max(1);
        let kernel = ChannelsLastApply {
            column_vectors: word(columns.column_vectors),
            vector_vec4s: word(columns.vector_vec4s),
            general: layout.general.is_some(),
            in_one_piece: columns.in_one_piece,
            complete: columns.complete(layout),
            whole: columns.whole(layout),
            batch_statistics: known.means.is_some(),
        };
        let blocks = Blocks {
            rows: tile_rows,
            count: div_ceil(columns.rows, tile_rows),
        };
        let shares = self.shares(&columns, tile_rows, 0..blocks.count)?;
        let kernel = (kernel, workgroup_size);
        planner.over(&shares, kernel, |share, range| {
            let uniforms = ChannelsLastApplyUniforms {
                tiles: share.uniforms(layout, &columns, blocks, range, known.stats),
                means: known.means.map_or(0, |region| region.first),
            };
            (self.over.applied(known, &share.window), uniforms)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::plan::problem::Problem;
    use crate::{Algorithm, Backward, DType, DataFormat, Norm, Operation, Profile};

    /// Channels last, samples whose elements are whole vec4s are read as rows of whole vectors, which are cut anywhere.
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
        ] {
            let norm = Norm::Group {
                groups: 1,
                format: DataFormat::Nxc,
            };
            let operation = Operation::new(norm, Backward::default(), &shape, DType::F16);
            let problem = Problem::new(&operation);
            let tensors = problem.tensors();
            let planner = Planner::new(&profile, &problem, &tensors);
            let walk = ChannelsLast {
                over: Channels::new(planner),
            };
            let columns = walk.columns(64);
            let width = columns.width();
            assert!(
                width.is_multiple_of(u64::from(columns.channels)),
                "{shape:?}"
            );
            let sample = columns.rows * width;
            assert_eq!(sample, (shape[1] * shape[2]) as u64, "{shape:?}");
            assert_eq!(columns.batches, shape[0] as u64, "{shape:?}");
            let split = walk.split_columns();
            let all = 0..split.rounds.splits;
            let shares = walk.shares(&columns, split.tile_rows, all).unwrap();
            let mut tile = 0;
            for share in &shares {
                assert_eq!(share.window.tiles.start, tile);
                tile = share.window.tiles.end;
            }
            let column_tiles = div_ceil(columns.width_vectors, columns.tile());
            assert_eq!(
                tile,
                columns.batches * split.rounds.splits * column_tiles,
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
            let operation = Operation::new(norm, crate::Pass::Inference, &shape, DType::F32);
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
            let walk = ChannelsLast { over };
            let grid = walk.over.layout.grid;
            let columns = walk.columns(256);
            let what = format!("{outer}x{channels}x{inner}");
            let rest = columns.rows * columns.width() - grid.elements();
            assert!(rest < columns.width(), "{what}");
            if columns.rows == 1 {
                assert!(rest < columns.vector(), "{what}: {}", columns.width());
            }
        }
    }
}
