//! Planes in one dispatch: when that fits, its tiles and windows.

use super::channels::Channels;
use super::channels_first::{MOST_IDLE, PlaneAlignment};
use super::{Known, Reduced, Walk};
use crate::kernels::{ChannelsFirstFused, ChannelsFirstFusedUniforms, GroupSizes};
use crate::plan::axes::{Grid, LONE_PLANE};
use crate::plan::dispatch::{Binding, Requirement};
use crate::plan::limits::{Cannot, MAX_SEQUENTIAL, Unfit, check};
use crate::plan::planner::Planner;
use crate::plan::problem::Family;
use crate::plan::sizes::{div_ceil, word};
use crate::plan::stages::combine_groups::sums_of_all_samples;
use crate::plan::windows::alignment;
use crate::plan::workspace::Workspace;
use crate::tuning::SMALLEST_WORKGROUP;

/// The most elements of a tensor that is bound at once although it is not small.
const MOST_AT_ONCE: u64 = 1 << 24;

/// Vec4s that an invocation walks where as many tiles as the tuning wants keep a GPU busy.
const MOST_WALKED: u64 = 8;

/// A tile of the fused channels-first kernel, some channels, and how a workgroup divides it.
struct Block {
    workgroup_size: u32,
    vector_vec4s: u32,
    /// As many as fill whole vectors, so that tiles begin at vectors, and whole groups, or else whole words of results.
    channels: u64,
    threads_per_plane: u32,
    planes_at_once: u32,
    /// Whether channels are read for the second time before the next ones are read for the first time.
    in_turns: bool,
    /// Whether the second reading is expected to come from a cache.
    cached: bool,
    /// Vec4s that an invocation adds in a row.
    adds: u64,
}

impl Block {
    fn count(&self, grid: &Grid) -> u64 {
        div_ceil(u64::from(grid.channels), self.channels)
    }
}

/// The choice of such tiles.
struct Blocks<'a> {
    planner: Planner<'a>,
    grid: Grid,
    /// Channels side by side that share statistics.
    group_channels: u32,
}

impl Blocks<'_> {
    /// How tiles are made for loads of `vector_vec4s` vec4s.
    fn block_by(&self, vector_vec4s: u32) -> Block {
        let (planner, grid, group_channels) = (&self.planner, &self.grid, self.group_channels);
        let tuning = &planner.profile.tuning;
        let widest = planner.workgroup(tuning.fused_workgroup);
        let (vector, inner) = (4 * vector_vec4s, u64::from(grid.inner));
        // As many invocations to a plane as it has vectors, so that short planes share a workgroup.
        let threads_per_plane = planner
            .profile
            .threads_per_plane(widest, inner, vector_vec4s);
        // Fewer do not fill whole vectors.
        let whole = u64::from(vector >> grid.inner.trailing_zeros().min(vector.ilog2()));
        let of_groups = planner.body.of_groups;
        let turns = grid.inner.is_multiple_of(vector) && !of_groups;
        let fewest = match of_groups {
            // Channels that fill vectors are a power of two.
            true => {
                let shared = group_channels.trailing_zeros().min(31);
                u64::from(group_channels) * (whole >> shared).max(1)
            }
            false => whole.max(self.channels_of_results()),
        };
        let divided = |workgroup_size, planes_at_once| {
            let side = u64::from(workgroup_size / (threads_per_plane * planes_at_once));
            // No more channels than there are invocations, but at least the fewest.
            let channels = (side / fewest).max(1) * fewest;
            let fits = |channels| channels * grid.count() <= u64::from(tuning.fused_block);
            let whole = fits(channels);
            Block {
                workgroup_size,
                vector_vec4s,
                channels,
                threads_per_plane,
                planes_at_once,
                in_turns: turns && !whole,
                cached: whole || (turns && planner.profile.cheap_barriers() && fits(side)),
                adds: div_ceil(u64::from(grid.outer), u64::from(planes_at_once))
                    * u64::from(vector_vec4s)
                    * div_ceil(inner, u64::from(vector * threads_per_plane)),
            }
        };
        // Teams are added to a channel only until the tile suits: each doubling deepens its tree of sums. With no more
        // planes to share, narrow the workgroup, which makes more tiles.
        let mut block = divided(widest, 1);
        let most = (widest / threads_per_plane).min(1 << grid.outer.max(1).ilog2());
        while block.planes_at_once < most && !self.always_suits(&block) {
            block = divided(widest, 2 * block.planes_at_once);
        }
        // A GPU has no use for workgroups smaller than a subgroup.
        let narrowest = if planner.profile.cheap_barriers() {
            planner.profile.subgroup_size.max(MOST_IDLE)
        } else {
            SMALLEST_WORKGROUP
        };
        while block.channels > fewest
            && block.workgroup_size >= 2 * narrowest
            && !self.always_suits(&block)
        {
            block = divided(block.workgroup_size / 2, block.planes_at_once);
        }
        block
    }

    /// Channels whose results a tile writes together: those that share a word. Four on drivers for the CPU, which need no
    /// more tiles, and in words of 64 bits.
    fn channels_of_results(&self) -> u64 {
        let profile = self.planner.profile;
        if !profile.cheap_barriers() || profile.long_words {
            return 4;
        }
        let results = self.planner.tensors.results.iter();
        let sharing = results.map(|result| 4 / result.dtype.size());
        sharing.max().unwrap_or(1).max(1)
    }

    /// Tiles for the widest loads that suit them.
    fn block(&self) -> Block {
        let grid = &self.grid;
        let sample = u64::from(grid.channels) * u64::from(grid.inner);
        let vector_vec4s = match sample.is_multiple_of(8) {
            true => self.planner.vector_of_planes(grid),
            false => 1, // tiles do not end with vectors of two
        };
        let block = self.block_by(vector_vec4s);
        // The kernel has room for the statistics of one channel for each invocation.
        let kept = block.channels <= u64::from(block.workgroup_size);
        if vector_vec4s == 1 || (kept && self.always_suits(&block)) {
            block
        } else {
            self.block_by(1)
        }
    }

    /// Whether the second reading comes from a cache, and no invocation adds for long.
    fn suits(&self, block: &Block) -> bool {
        block.cached
            && block.adds <= u64::from(self.planner.profile.tuning.fused_adds).min(MAX_SEQUENTIAL)
    }

    /// Whether one dispatch of such tiles is the fastest way, however large the tensor is.
    fn always_suits(&self, block: &Block) -> bool {
        self.suits(block) && self.fills(block)
    }

    /// Whether there are enough tiles to keep the adapter busy, a GPU the more the longer each takes, or more tiles would
    /// each have too little work.
    fn fills(&self, block: &Block) -> bool {
        let (profile, grid) = (self.planner.profile, &self.grid);
        let walked = block.channels * grid.count() / (4 * u64::from(block.workgroup_size));
        let times = if profile.cheap_barriers() {
            div_ceil(walked, MOST_WALKED)
        } else {
            1
        };
        block.count(grid) >= times.max(1) * u64::from(profile.tuning.fused_blocks)
            || grid.elements() <= u64::from(profile.tuning.tile)
    }

    /// Why the kernel cannot do a tensor, if it cannot.
    fn check(&self) -> Result<Block, Cannot> {
        let (planner, grid) = (&self.planner, &self.grid);
        check(grid.elements() > 0, "the tensor is empty")?;
        let sample = u64::from(grid.channels) * u64::from(grid.inner);
        check(
            grid.outer == 1 || sample.is_multiple_of(4),
            format_args!("the {sample} elements of an index of N are not a multiple of 4"),
        )?;
        check(
            grid.outer == 1 || !planner.body.of_groups,
            "the channels of a sample are not planes",
        )?;
        let block = self.block();
        // A binding must hold the whole tensor, or, where windows can begin at tiles, one tile and what surrounds it.
        let size = planner.data.size();
        let bound = if grid.outer == 1 {
            block.channels * u64::from(grid.inner) * size + 2 * alignment(planner.profile)
        } else {
            grid.elements().next_multiple_of(4) * size
        };
        check(
            bound <= planner.profile.longest_window(),
            format_args!("{bound} bytes do not fit one binding"),
        )?;
        let most = u64::from(block.workgroup_size);
        let adds = u64::from(self.group_channels);
        check(
            adds <= 1 || (block.channels <= most && adds <= MAX_SEQUENTIAL),
            format_args!("groups of {adds} channels are too large for a workgroup"),
        )?;
        check(
            block.channels <= most && block.adds <= MAX_SEQUENTIAL,
            format_args!(
                "{} elements of a channel are too many for a workgroup",
                grid.count()
            ),
        )?;
        Ok(block)
    }

    /// Whether the tensor is so small, or planes are so long, that tiles of channels suit the adapter.
    fn is_profitable(&self, block: &Block) -> bool {
        let grid = &self.grid;
        let is_small = self.planner.profile.is_small(grid.elements());
        let small = grid.inner >= 4 && is_small;
        let lone = grid.inner >= LONE_PLANE && grid.outer == 1;
        // With several outer indices, a tile has no more separate pieces than are prefetched, and its tensor, which is
        // bound at once, is far below the binding limit.
        let sample = u64::from(grid.channels) * u64::from(grid.inner);
        let few = u64::from(grid.outer) <= self.planner.most_apart(sample);
        (small || lone || grid.has_planes())
            && (small || grid.outer == 1 || (few && grid.elements() <= MOST_AT_ONCE))
            && self.suits(block)
            && (self.fills(block) || (is_small && self.suits_small(block)))
    }

    /// Whether a small tensor has tiles enough, or is so small that no other dispatches are faster.
    fn suits_small(&self, block: &Block) -> bool {
        let tuning = &self.planner.profile.tuning;
        block.count(&self.grid) >= u64::from(tuning.fused_blocks / 8)
            || self.grid.elements() <= u64::from(tuning.small_tensor / 8)
    }
}

/// A walk over planes in one dispatch. For groups, the results of each channel or group follow from the sums of the
/// channels, which are kept in the workspace.
pub(crate) struct PlanesFused<'a> {
    blocks: Blocks<'a>,
    block: Block,
}

impl<'a> PlanesFused<'a> {
    pub fn new(planner: Planner<'a>) -> Result<Self, Cannot> {
        let over = Channels::new(planner);
        over.check_fusible()?;
        let blocks = Blocks {
            planner,
            grid: over.layout.grid,
            group_channels: word(planner.problem.axes.group_parameters()),
        };
        Ok(Self {
            block: blocks.check()?,
            blocks,
        })
    }
}

impl Walk for PlanesFused<'_> {
    fn is_profitable(&self) -> bool {
        self.blocks.is_profitable(&self.block)
    }

    fn kept_records(&self) -> u64 {
        let Blocks { planner, grid, .. } = &self.blocks;
        let is_grouped = planner.problem.family == Family::Groups;
        let keeps_sums = is_grouped && !planner.tensors.results.is_empty();
        u64::from(keeps_sums) * u64::from(grid.channels)
    }

    fn reduce(&self, known: &Known, _workspace: &mut Workspace) -> Result<Reduced, Unfit> {
        let (Blocks { planner, grid, .. }, block) = (&self.blocks, &self.block);
        let is_grouped = planner.problem.family == Family::Groups;
        let groups = if is_grouped {
            planner.problem.groups.sizes()
        } else {
            GroupSizes::none(grid.channels)
        };
        let keeps_sums = self.kept_records() > 0;
        let is_bound =
            |tensor: &&Requirement| !is_grouped || !planner.tensors.results.contains(tensor);
        let bound: Vec<_> = planner.tensors.bound_at_once().filter(is_bound).collect();
        let alignment = PlaneAlignment::of(grid, block.vector_vec4s);
        let vectors = div_ceil(
            alignment.vectors_of(grid.inner.into()),
            block.threads_per_plane.into(),
        );
        let kernel = ChannelsFirstFused {
            vector_vec4s: block.vector_vec4s,
            block_vectors: planner.body.block_vectors(vectors),
            vector_aligned: alignment.vector_aligned,
            vec4_aligned: alignment.vec4_aligned,
            narrow: alignment.narrow,
            ends_with_vector: alignment.ends_with_vector,
            branches: planner.profile.cheap_barriers(),
            in_turns: block.in_turns,
            shares_results: !is_grouped && !block.channels.is_multiple_of(4),
        };
        // With one outer index, windows can begin at tiles; with several, a tile is spread over the tensor.
        let elements = block.channels * u64::from(grid.inner);
        let start = |tile: u64| (tile * elements).min(grid.elements());
        let windows = match grid.outer {
            1 => planner.windows(0..block.count(grid), 1, start)?,
            _ => planner.uncut(block.count(grid))?,
        };
        let kernel = (kernel, block.workgroup_size);
        let dispatches = planner.over(&windows, kernel, |window, range| {
            let mut bindings: Vec<_> = window.bind_all(bound.iter().copied()).collect();
            bindings.extend(keeps_sums.then(Binding::workspace));
            let uniforms = ChannelsFirstFusedUniforms {
                outer: grid.outer,
                channels: grid.channels,
                groups,
                inner: grid.inner,
                tile_channels: word(block.channels),
                threads_per_plane: block.threads_per_plane,
                planes_at_once: block.planes_at_once,
                range,
                sums: known.kept.first,
                scalars: planner.problem.scalars(),
            };
            (bindings, uniforms)
        })?;
        Ok(Reduced {
            dispatches,
            statistics: None,
            parameters: keeps_sums.then(|| sums_of_all_samples(planner.problem, known.kept)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::DType;
    use crate::kernels::Body;
    use crate::operation::{Backward, Norm, Operation};
    use crate::options::DataFormat;
    use crate::plan::tests::with_planner;
    use crate::profile::Profile;
    use crate::tuning::Tuning;

    /// Asks the blocks of a grid, of groups if there are several channels in each.
    fn with_blocks<T>(
        profile: &Profile,
        data: DType,
        (grid, group_channels): (Grid, u32),
        ask: impl FnOnce(&Blocks<'_>) -> T,
    ) -> T {
        let norm = Norm::batch(DataFormat::Ncx);
        let operation = Operation::new(norm, Backward::default(), &[1, 4, 4], data);
        with_planner(profile, &operation, |planner| {
            let body = Body {
                of_groups: group_channels > 1,
                ..planner.body
            };
            let planner = Planner { body, ..planner };
            ask(&Blocks {
                planner,
                grid,
                group_channels,
            })
        })
    }

    #[test]
    fn blocks_are_whole_vectors_that_a_workgroup_keeps() {
        let gpu = Profile::usual();
        let software = Profile {
            long_words: true,
            tuning: Tuning::SOFTWARE,
            ..Profile::usual()
        };
        let narrow = Profile {
            tuning: Tuning {
                fused_workgroup: 4,
                channels_first_vec4s: 1,
                ..Tuning::SOFTWARE
            },
            ..software.clone()
        };
        let mut wide = 0;
        for (profile, outer, channels, inner) in [&gpu, &software, &narrow]
            .into_iter()
            .flat_map(|profile| [1, 2, 7, 64].map(|outer| (profile, outer)))
            .flat_map(|(profile, outer)| (1..=40).map(move |channels| (profile, outer, channels)))
            .flat_map(|(profile, outer, channels)| {
                (1..=90).map(move |inner| (profile, outer, channels, inner))
            })
        {
            let grid = Grid {
                outer,
                channels,
                inner,
            };
            let fused = [DType::F32, DType::F16, DType::Bf16].map(|data| {
                let (block, fused) = with_blocks(profile, data, (grid, 1), |blocks| {
                    (
                        blocks.block(),
                        blocks
                            .check()
                            .is_ok_and(|block| blocks.is_profitable(&block)),
                    )
                });
                let what = format!("{grid:?} {data} {:?}", profile.tuning);
                let vector = 4 * u64::from(block.vector_vec4s);
                let workgroup = u64::from(block.workgroup_size);
                assert!(block.channels <= workgroup, "{what}");
                let shared = if profile.cheap_barriers() { 1 } else { 4 };
                assert!(block.channels.is_multiple_of(shared), "{what}");
                let begins = block.channels * u64::from(inner);
                assert!(begins.is_multiple_of(vector), "{what}");
                assert!(
                    block.threads_per_plane * block.planes_at_once <= block.workgroup_size,
                    "{what}"
                );
                if block.vector_vec4s == 2 {
                    wide += 1;
                    let sample = u64::from(channels) * u64::from(inner);
                    let elements = block.channels * u64::from(inner);
                    assert!(sample.is_multiple_of(vector), "{what}");
                    assert!(elements.is_multiple_of(vector), "{what}");
                    // Otherwise a vector might hold elements of three channels.
                    assert!(u64::from(inner) >= vector, "{what}");
                }
                fused
            });
            // One choice for all types whose results share words alike.
            assert_eq!(fused[1], fused[2], "{grid:?} {:?}", profile.tuning);
            if !profile.cheap_barriers() {
                assert_eq!(fused[0], fused[1], "{grid:?} {:?}", profile.tuning);
            }
        }
        assert!(wide > 1000);
    }

    /// Tiles are whole groups, of channels that a workgroup has room for and an invocation adds up.
    #[test]
    fn groups_are_refused_for_their_own_channels_alone() {
        let mut fused = 0;
        for tuning in [Tuning::GPU, Tuning::SOFTWARE] {
            let profile = Profile {
                tuning,
                ..Profile::usual()
            };
            for (group_channels, inner) in
                (1..=200).flat_map(|group| (1..=40).map(move |inner| (group, inner)))
            {
                let grid = Grid {
                    outer: 1,
                    channels: 4096 * group_channels,
                    inner,
                };
                let what = format!("{grid:?} of {group_channels}, {tuning:?}");
                let of_groups = (grid, group_channels);
                let (widest, block, checked) =
                    with_blocks(&profile, DType::F32, of_groups, |blocks| {
                        let widest = blocks.planner.workgroup(tuning.fused_workgroup);
                        (u64::from(widest), blocks.block(), blocks.check())
                    });
                let group = u64::from(group_channels);
                assert!(block.channels.is_multiple_of(group), "{what}");
                // Four groups begin at a vec4, however long planes are.
                if 4 * group <= widest && group <= MAX_SEQUENTIAL {
                    fused += 1;
                    assert!(checked.is_ok(), "{what}");
                }
                if group > MAX_SEQUENTIAL {
                    assert!(checked.is_err(), "{what}");
                }
            }
        }
        assert!(fused > 1000);
    }

    #[test]
    fn short_planes_are_fused_where_each_is_a_channel() {
        for tuning in [Tuning::GPU, Tuning::SOFTWARE] {
            let profile = Profile {
                tuning,
                ..Profile::usual()
            };
            let fused = |outer, channels, inner| {
                let grid = Grid {
                    outer,
                    channels,
                    inner,
                };
                with_blocks(&profile, DType::F32, (grid, 1), |blocks| {
                    blocks
                        .check()
                        .is_ok_and(|block| blocks.is_profitable(&block))
                })
            };
            assert!(fused(1, 65536, 8) && fused(1, 300_001, 25));
            assert!(!fused(1, 300_001, 7) && !fused(4, 65536, 8));
        }
    }
}
