//! Walks over planes: tiles, splits and windows.

use super::channels::Channels;
use super::{Known, Reduced, Walk};
use crate::kernels::{
    ChannelsFirstApply, ChannelsFirstApplyUniforms, ChannelsFirstReduce,
    ChannelsFirstReduceUniforms, PlaneTiles, TileRange,
};
use crate::plan::axes::{Grid, Layout};
use crate::plan::dispatch::Dispatch;
use crate::plan::limits::{MAX_SEQUENTIAL, MOST_ITERATIONS, Unfit};
use crate::plan::planner::Planner;
use crate::plan::problem::Family;
use crate::plan::rounds::Rounds;
use crate::plan::sizes::{div_ceil, word};
use crate::plan::stages::finish::{MOST_ADDED, Partials};
use crate::plan::workspace::{Region, Workspace};
use std::ops::Range;

/// Invocations of a workgroup that may have no plane.
pub(super) const MOST_IDLE: u32 = 32;

/// The most partial sums of all tiles that the elementwise pass adds up itself.
const MOST_ADDED_OF_TILES: u64 = 1 << 16;

/// How a grid's planes lie in vectors.
pub(crate) struct PlaneAlignment {
    pub vector_vec4s: u32,
    /// Every plane begins at a vector, or at a vec4.
    pub vector_aligned: bool,
    pub vec4_aligned: bool,
    /// Planes are shorter than a vec4.
    pub narrow: bool,
    /// The tensor ends with a vector.
    pub ends_with_vector: bool,
}

impl PlaneAlignment {
    pub fn of(grid: &Grid, vector_vec4s: u32) -> Self {
        let vector = 4 * vector_vec4s;
        Self {
            vector_vec4s,
            vector_aligned: grid.inner.is_multiple_of(vector),
            vec4_aligned: grid.inner.is_multiple_of(4),
            narrow: grid.inner < 4,
            ends_with_vector: grid.elements().is_multiple_of(u64::from(vector)),
        }
    }

    /// The most vectors in which some neighbouring elements of a plane lie.
    pub fn vectors_of(&self, elements: u64) -> u64 {
        let vector = 4 * u64::from(self.vector_vec4s);
        let before = if self.vector_aligned { 0 } else { vector - 1 };
        div_ceil(before + elements, vector)
    }
}

/// How planes are cut into tiles: some planes, or one chunk of a plane.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tiles {
    planes: u64,
    chunk: u64,
    chunks: u64,
}

impl Tiles {
    /// Tiles of so many planes, or of one that is cut into about `chunks` chunks, each a multiple of 64 elements.
    fn new(planes: u64, inner: u64, chunks: u64) -> Self {
        let chunk = div_ceil(inner, chunks).next_multiple_of(64);
        Self {
            planes,
            chunk: chunk.min(inner),
            chunks: div_ceil(inner, chunk),
        }
    }

    /// Tiles in a channel.
    fn of_a_channel(&self, grid: &Grid) -> u64 {
        div_ceil(u64::from(grid.outer).max(1), self.planes) * self.chunks
    }

    /// The first element of a tile, of so many planes of `inner` elements.
    fn start(&self, tile: u64, planes: u64, inner: u64) -> u64 {
        let plane = (tile / self.chunks * self.planes).min(planes);
        plane * inner + tile % self.chunks * self.chunk
    }

    /// The uniforms that describe the tiles to both kernels.
    fn uniforms(
        &self,
        planner: &Planner<'_>,
        layout: &Layout,
        threads_per_plane: u32,
        range: TileRange,
        stats: Region,
    ) -> PlaneTiles {
        PlaneTiles {
            channels: layout.grid.channels,
            inner: layout.grid.inner,
            chunk: word(self.chunk),
            chunks: word(self.chunks),
            threads_per_plane,
            range,
            stats: stats.first,
            sharing: planner.problem.groups.sizes().sharing,
            axes: layout.sizes(),
        }
    }
}

/// A walk over planes, each the consecutive elements of one channel at one outer index.
pub(crate) struct Planes<'a> {
    over: Channels<'a>,
    /// Whether the reduction may write diff_src, too: then every vector belongs to one plane, even in a half that does
    /// not write, so that sums agree to the bit.
    one_pass: bool,
    workgroup_size: u32,
    /// The alignment to the vectors of the reduction.
    alignment: PlaneAlignment,
}

impl<'a> Planes<'a> {
    pub fn new(planner: Planner<'a>) -> Self {
        let over = Channels::new(planner);
        let has_vec4s = over.layout.grid.inner.is_multiple_of(4);
        let one_pass = has_vec4s && planner.problem.needs_no_sums(planner.tensors);
        Self::by(over, one_pass)
    }

    /// The walk over rows, or groups that are rows, as channels, for their statistics.
    pub fn over_rows(planner: Planner<'a>) -> Self {
        let over = Channels {
            planner,
            layout: Layout::from(planner.problem.axes.by_row()),
            samples: None,
        };
        Self::by(over, false)
    }

    fn by(over: Channels<'a>, one_pass: bool) -> Self {
        let (planner, grid) = (&over.planner, &over.layout.grid);
        let vector_vec4s = if one_pass && !grid.inner.is_multiple_of(8) {
            1
        } else {
            planner.vector_of_planes(grid)
        };
        Self {
            one_pass,
            workgroup_size: planner.workgroup(planner.profile.tuning.workgroup),
            alignment: PlaneAlignment::of(grid, vector_vec4s),
            over,
        }
    }
}

impl Planes<'_> {
    /// The tiles of the elementwise pass, and the alignment to its vectors.
    fn applied(&self) -> (Tiles, PlaneAlignment) {
        let (planner, grid) = (&self.over.planner, &self.over.layout.grid);
        let (profile, workgroup_size) = (planner.profile, u64::from(self.workgroup_size));
        let inner = u64::from(grid.inner).max(1);
        // An invocation makes up to 3 loop iterations for a vec4, and 7 for a plane shorter than that.
        let target = u64::from(profile.tuning.tile)
            .min(profile.most_between_cuts(grid.elements()))
            .min(8192 * workgroup_size)
            .max(64);
        let tile_planes = (target / inner).clamp(1, 4096 * workgroup_size);
        let tiles = Tiles::new(tile_planes, inner, div_ceil(inner, target));
        (
            tiles,
            PlaneAlignment::of(grid, planner.vector_of_planes(grid)),
        )
    }

    /// Splits of a channel's reduction: enough to keep the adapter busy, no split too small, no more partial
    /// sums than there is room for, no tile larger than a window may be, and no invocation adding too many numbers in a
    /// row. And the invocations that share a plane's chunk.
    fn split_planes(&self) -> (Tiles, u32) {
        let (planner, layout) = (&self.over.planner, &self.over.layout);
        let tuning = &planner.profile.tuning;
        let grid = &layout.grid;
        let count = grid.count().max(1);
        let outer = u64::from(grid.outer).max(1);
        let inner = u64::from(grid.inner).max(1);
        let channels = u64::from(grid.channels).max(1);
        let sample = channels * inner;
        // With general axes a channel's planes may lie anywhere.
        let (apart, mut window) = match layout.general {
            Some(_) => (0, u64::MAX),
            None => (sample, planner.profile.most_between_cuts(grid.elements())),
        };
        let room = (planner.partial_records(channels) / channels).max(1);
        // Planes are cut alike.
        let room = if room > outer {
            room / outer * outer
        } else {
            room
        };
        let wanted = div_ceil(u64::from(tuning.busy_workgroups), channels)
            .min(div_ceil(count, u64::from(tuning.tile)));
        let blocks = div_ceil(outer, planner.most_apart(apart)).min(outer);
        let mut splits = wanted.max(blocks).min(room).max(1);
        // At least `splits` tiles in a channel, each of which fits a window.
        let cut = |splits: u64, window: u64| {
            let planes = div_ceil(outer, splits).min((window / sample).max(1));
            let chunks = div_ceil(inner, window).max(div_ceil(splits, outer));
            Tiles::new(planes, inner, chunks)
        };
        // Larger windows than usual, where they have room for fewer partial sums.
        if cut(splits, window).of_a_channel(grid) > room {
            window = window.max(planner.profile.held_unit());
        }
        loop {
            let tiles = cut(splits, window);
            let (threads_per_plane, adds) = self.threads_and_adds(&tiles);
            let smallest = tiles.planes == 1 && tiles.chunk <= 64;
            if adds <= MAX_SEQUENTIAL || smallest {
                return (tiles, threads_per_plane);
            }
            splits = tiles.of_a_channel(grid) * div_ceil(adds, MAX_SEQUENTIAL).max(2);
        }
    }

    /// The number of invocations that share a plane's chunk, and of numbers that an accumulator then adds: as few
    /// invocations as the tuning wants, unless another number is needed to bound the additions.
    fn threads_and_adds(&self, tiles: &Tiles) -> (u32, u64) {
        let (workgroup_size, vector_vec4s) = (self.workgroup_size, self.alignment.vector_vec4s);
        let vectors = self.alignment.vectors_of(tiles.chunk);
        let adds = |threads_per_plane: u32| {
            let planes = div_ceil(tiles.planes, u64::from(workgroup_size / threads_per_plane));
            planes * div_ceil(vectors, u64::from(threads_per_plane)) * u64::from(vector_vec4s)
        };
        let profile = self.over.planner.profile;
        let tuned = profile.threads_per_plane(workgroup_size, tiles.chunk, vector_vec4s);
        if adds(tuned) <= MAX_SEQUENTIAL {
            return (tuned, adds(tuned));
        }
        let powers = (0..=workgroup_size.ilog2()).map(|bit| 1 << bit);
        let fewest = powers
            .min_by_key(|&threads_per_plane| adds(threads_per_plane))
            .unwrap_or(tuned);
        (fewest, adds(fewest))
    }
}

impl Walk for Planes<'_> {
    fn bound_besides_given(&self) -> Option<usize> {
        self.over.bound_besides_given(self.one_pass)
    }

    /// Where that takes less time than a dispatch: some 15 ns for each partial sum of a tile, and more for a tile
    /// whose vectors belong to two planes, with a thousand tiles side by side.
    fn adds_up(&self, partials: &Partials) -> bool {
        let (problem, tensors) = (self.over.planner.problem, self.over.planner.tensors);
        let (profile, grid) = (self.over.planner.profile, &self.over.layout.grid);
        let (tiles, alignment) = self.applied();
        let of_a_tile = partials.count * if alignment.vector_aligned { 1 } else { 2 };
        let count = div_ceil(grid.planes(), tiles.planes) * tiles.chunks;
        let read = tensors.inputs.iter().chain(&tensors.mask);
        let bound = read.chain(&tensors.outputs).chain(&tensors.results).count() + 1;
        let fits = profile.binds(bound) && profile.window_holds(tensors.src.padded_bytes());
        let is_plain = partials.is_plain() && self.over.layout.general.is_none();
        let takes_means = problem.family == Family::Channels && problem.has_means();
        let is_few = partials.count <= MOST_ADDED && of_a_tile * count <= MOST_ADDED_OF_TILES;
        // Four channels' results are an invocation's.
        let threads =
            profile.threads_per_plane(self.workgroup_size, tiles.chunk, alignment.vector_vec4s);
        let planes = div_ceil(
            tiles.planes,
            u64::from(self.workgroup_size / threads.max(1)),
        );
        let fits = fits && 4 * planes * partials.count <= MOST_ITERATIONS / 4;
        let fits = fits && 4 * count * u64::from(self.workgroup_size) >= u64::from(grid.channels);
        takes_means && !problem.epilogue.gated && is_plain && !alignment.narrow && fits && is_few
    }

    fn writes_in_one_pass(&self) -> bool {
        self.one_pass
    }

    fn reduce(&self, known: &Known, workspace: &mut Workspace) -> Result<Reduced, Unfit> {
        let (planner, layout) = (&self.over.planner, &self.over.layout);
        let (grid, alignment) = (&layout.grid, &self.alignment);
        let (tiles, threads_per_plane) = self.split_planes();
        // No more invocations than have planes, of which a tile may have few.
        let busy = word(u64::from(threads_per_plane) * tiles.planes).min(self.workgroup_size);
        let fewest = planner
            .profile
            .subgroup_size
            .max(MOST_IDLE)
            .min(self.workgroup_size);
        let workgroup_size = busy.next_power_of_two().max(fewest);
        let channels = u64::from(grid.channels);
        let inner = u64::from(grid.inner);
        let all = tiles.of_a_channel(grid);
        // Between two cuts: some outer indices, or if that is one, a single tile. With general axes neither is
        // in one piece.
        let (unit_tiles, pieces, piece) = match tiles.planes {
            1 => (1, grid.planes(), inner),
            _ => (channels, u64::from(grid.outer), channels * inner),
        };
        let units = div_ceil(pieces, tiles.planes) * tiles.chunks;
        let kernel = ChannelsFirstReduce {
            vector_vec4s: alignment.vector_vec4s,
            block_vectors: planner.body.block_vectors(div_ceil(
                alignment.vectors_of(tiles.chunk),
                threads_per_plane.into(),
            )),
            general: layout.general.is_some(),
            vector_aligned: alignment.vector_aligned,
            vec4_aligned: alignment.vec4_aligned,
            recorded: known.given.is_empty(),
        };
        let reduce = |region: Region, splits: Range<u64>| {
            let units = splits.start * units / all..splits.end * units / all;
            let windows = match layout.general {
                Some(_) => planner.uncut(all * channels)?,
                None => {
                    planner.windows(units, unit_tiles, |unit| tiles.start(unit, pieces, piece))?
                }
            };
            planner.over(&windows, (kernel, workgroup_size), |window, range| {
                let uniforms = ChannelsFirstReduceUniforms {
                    outer: grid.outer,
                    tile_planes: word(tiles.planes),
                    tiles: tiles.uniforms(planner, layout, threads_per_plane, range, known.stats),
                    partials: region.first,
                    scalars: planner.problem.scalars(),
                };
                (self.over.reduced(known, window), uniforms)
            })
        };
        // Chunks of a plane are splits, too, and not in the order of the tensor; they are long.
        let room = match (tiles.chunks, &layout.general) {
            (1, None) => planner.partial_records(channels),
            _ => u64::MAX,
        };
        let rounds = Rounds::new(all, channels, planner.subtotal_records(grid.channels), room);
        let reduced = planner.in_rounds(&rounds, workspace, reduce, |region, splits| {
            Partials::plain(region, grid.channels, splits, channels)
        })?;
        Ok(Reduced::of_statistics(reduced))
    }

    fn apply(&self, known: &Known) -> Result<Vec<Dispatch>, Unfit> {
        if self.over.writes_mask() {
            return self.over.apply_with_mask(known);
        }
        let (planner, layout) = (&self.over.planner, &self.over.layout);
        let (profile, grid, workgroup_size) = (planner.profile, &layout.grid, self.workgroup_size);
        let inner = u64::from(grid.inner).max(1);
        let (tiles, alignment) = self.applied();
        let vector_vec4s = alignment.vector_vec4s;
        let threads_per_plane =
            profile.threads_per_plane(workgroup_size, tiles.chunk, vector_vec4s);
        let planes = grid.planes();
        let units = div_ceil(planes, tiles.planes) * tiles.chunks;
        // A plane's coefficients are two records in the workgroup's memory.
        let held = 8 * u64::from(workgroup_size) * planner.data.accumulator().size();
        let by_vectors = profile.cheap_barriers()
            && alignment.vector_aligned
            && layout.general.is_none()
            && tiles.planes <= u64::from(workgroup_size)
            && held <= u64::from(profile.max_workgroup_storage);
        let kernel = ChannelsFirstApply {
            vector_vec4s,
            general: layout.general.is_some(),
            vector_aligned: alignment.vector_aligned,
            vec4_aligned: alignment.vec4_aligned,
            narrow: alignment.narrow,
            ends_with_vector: alignment.ends_with_vector,
            branches: profile.cheap_barriers(),
            by_vectors,
            vectors_at_once: if by_vectors {
                word(planner.rows_at_once(4, 1))
            } else {
                1
            },
            has_means: known.means.is_some() && known.few_sums.is_none(),
            adds_up: known.few_sums.is_some(),
            recorded: known.given.is_empty(),
            of_statistics: known.of_statistics,
        };
        let (partials, count) = known.few_sums.unwrap_or((known.stats, 0));
        let windows = planner.windows(0..units, 1, |unit| tiles.start(unit, planes, inner))?;
        planner.over(&windows, (kernel, workgroup_size), |window, range| {
            let uniforms = ChannelsFirstApplyUniforms {
                planes: word(planes),
                tile_planes: word(tiles.planes),
                tiles: tiles.uniforms(planner, layout, threads_per_plane, range, known.stats),
                means: known.means.map_or(0, |region| region.first),
                partials: partials.first,
                partial_count: word(count),
                scalars: planner.problem.scalars(),
            };
            (self.over.applied(known, window), uniforms)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::DType;
    use crate::operation::{Backward, Norm, Operation};
    use crate::options::DataFormat;
    use crate::plan::tests::with_planner;
    use crate::profile::Profile;
    use crate::tuning::Tuning;

    #[test]
    fn planes_a_page_apart_are_walked_few_at_a_time() {
        let software = Profile {
            tuning: Tuning::SOFTWARE,
            ..Profile::usual()
        };
        let planes = |profile: &Profile, outer, channels, inner| {
            let shape = [outer, channels, inner];
            let norm = Norm::batch(DataFormat::Ncx);
            let operation = Operation::new(norm, Backward::default(), &shape, DType::F32);
            with_planner(profile, &operation, |planner| {
                let mut walk = Planes::new(planner);
                walk.workgroup_size = 8;
                walk.alignment = PlaneAlignment::of(&walk.over.layout.grid, 1);
                walk.split_planes().0.planes
            })
        };
        assert_eq!(planes(&software, 32, 256, 196), 16);
        assert_eq!(planes(&software, 12, 256, 196), 12);
        assert_eq!(planes(&software, 36, 256, 196), 12); // three equal tiles
        assert_eq!(planes(&software, 64, 4, 128), 32); // no more than an accumulator adds
        assert_eq!(planes(&Profile::usual(), 32, 2048, 49), 32);
    }
}
