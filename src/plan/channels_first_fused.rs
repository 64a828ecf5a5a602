//! The fused channels-first kernel: when it fits, its tiles and windows.

use super::axes::{Grid, Groups, Layout};
use super::tensors::Tensors;
use super::windows::windows;
use super::workspace::Region;
use super::{
    Binding, Dispatch, MAX_SEQUENTIAL, PlaneAlignment, Planner, Requirement, div_ceil, group_sizes,
    word,
};
use crate::kernels::{ChannelsFirstFused, ChannelsFirstFusedUniforms, GroupSizes, Scalars};
use crate::{Error, Tensor};

/// Planes of this many elements or more are fused whatever `SHORT_PLANE` says, where each is a channel of its own: if
/// they were read as columns, every element would have a partial sum (measured on software drivers: 1.4 to 2.8 times
/// the time).
pub(super) const LONE_PLANE: u32 = 8;

/// A tile of the fused channels-first kernel, some channels, and how a workgroup divides it.
struct Block {
    workgroup_size: u32,
    vector_vec4s: u32,
    /// A multiple of four that fills whole vectors, so that tiles begin at vectors. For groups, as many as fill whole
    /// groups and whole vectors.
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

impl Planner<'_> {
    /// How tiles are made for loads of `vector_vec4s` vec4s.
    fn block_by(&self, grid: &Grid, group_channels: u32, vector_vec4s: u32) -> Block {
        let tuning = &self.profile.tuning;
        let widest = self.workgroup(tuning.fused_workgroup);
        let vector = 4 * vector_vec4s;
        // As many invocations to a plane as it has vectors, so that short planes share a workgroup.
        let threads_per_plane = self.threads_per_plane(widest, u64::from(grid.inner), vector_vec4s);
        let aligned = grid.inner.is_multiple_of(vector);
        // Fewer do not fill whole vectors, nor whole vec4s of the parameters' gradients.
        let whole = u64::from(vector >> grid.inner.trailing_zeros().min(vector.ilog2()));
        let of_groups = self.body.of_groups();
        let fewest = match of_groups {
            // Channels that fill vectors are a power of two.
            true => {
                let shared = group_channels.trailing_zeros().min(31);
                u64::from(group_channels) * (whole >> shared).max(1)
            }
            false => whole.max(4),
        };
        let divided = |workgroup_size, planes_at_once| {
            let side = u64::from(workgroup_size / (threads_per_plane * planes_at_once));
            // No more channels than there are invocations, but at least the fewest.
            let channels = (side / fewest).max(1) * fewest;
            let fits = |channels, most| channels * grid.count() <= u64::from(most);
            let whole = fits(channels, tuning.fused_block);
            Block {
                workgroup_size,
                vector_vec4s,
                channels,
                threads_per_plane,
                planes_at_once,
                in_turns: aligned && !whole && !of_groups,
                cached: whole
                    || (aligned
                        && !of_groups
                        && self.cheap_barriers()
                        && fits(side, tuning.fused_block)),
                adds: div_ceil(u64::from(grid.outer), u64::from(planes_at_once))
                    * u64::from(vector_vec4s)
                    * div_ceil(u64::from(grid.inner), u64::from(vector * threads_per_plane)),
            }
        };
        // Teams are added to a channel only until the tile suits: each doubling deepens its tree of sums. With no more
        // planes to share, narrow the workgroup, which makes more tiles.
        let mut block = divided(widest, 1);
        let most = (widest / threads_per_plane).min(1 << grid.outer.max(1).ilog2());
        while block.planes_at_once < most && !self.is_profitable(grid, &block) {
            block = divided(widest, 2 * block.planes_at_once);
        }
        while block.channels > fewest && !self.is_profitable(grid, &block) {
            block = divided(block.workgroup_size / 2, block.planes_at_once);
        }
        block
    }

    /// Tiles for the widest loads that suit them.
    fn block(&self, grid: &Grid, group_channels: u32) -> Block {
        let sample = u64::from(grid.channels) * u64::from(grid.inner);
        let vector_vec4s = match sample.is_multiple_of(8) {
            true => self.vector_of_planes(grid),
            false => 1, // tiles do not end with vectors of two
        };
        let block = self.block_by(grid, group_channels, vector_vec4s);
        // The kernel has room for the statistics of one channel for each invocation.
        let kept = block.channels <= u64::from(block.workgroup_size);
        match vector_vec4s == 1 || (kept && self.is_profitable(grid, &block)) {
            true => block,
            false => self.block_by(grid, group_channels, 1),
        }
    }

    /// Whether the second reading comes from a cache, and no invocation adds for long.
    fn suits(&self, block: &Block) -> bool {
        block.cached && block.adds <= u64::from(self.profile.tuning.fused_adds).min(MAX_SEQUENTIAL)
    }

    /// Whether one dispatch of such tiles is the fastest way, however large the tensor is.
    fn is_profitable(&self, grid: &Grid, block: &Block) -> bool {
        self.suits(block) && self.fills(grid, block)
    }

    /// Whether there are enough tiles to keep the adapter busy, or more tiles would each have too little work.
    fn fills(&self, grid: &Grid, block: &Block) -> bool {
        let tuning = &self.profile.tuning;
        block.count(grid) >= u64::from(tuning.fused_blocks)
            || grid.elements() <= u64::from(tuning.tile)
    }

    /// Why the kernel cannot do a tensor, if it cannot.
    pub fn channels_first_fused_unsupported_reason(
        &self,
        grid: &Grid,
        group_channels: u32,
        src: &Requirement,
    ) -> Option<String> {
        if grid.elements() == 0 {
            return Some("the tensor is empty".to_owned());
        }
        let sample = u64::from(grid.channels) * u64::from(grid.inner);
        if grid.outer > 1 && !sample.is_multiple_of(4) {
            return Some(format!(
                "the {sample} elements of an index of N are not a multiple of 4"
            ));
        }
        if self.body.of_groups() && grid.outer > 1 {
            return Some("the channels of a sample are not planes".to_owned());
        }
        let block = self.block(grid, group_channels);
        // A binding must hold the whole tensor, or, where windows can begin at tiles, one tile and what surrounds it.
        let bound = match grid.outer {
            1 => {
                let bytes = block.channels * u64::from(grid.inner) * src.dtype.size();
                bytes + 2 * self.profile.alignment.max(256)
            }
            _ => src.padded_bytes(),
        };
        if bound > self.profile.window_limit().1 {
            return Some(format!("{bound} bytes do not fit one binding"));
        }
        let most = u64::from(block.workgroup_size);
        let adds = u64::from(group_channels);
        if adds > 1 && (block.channels > most || adds > MAX_SEQUENTIAL) {
            return Some(format!(
                "groups of {group_channels} channels are too large for a workgroup"
            ));
        }
        if block.channels > most || block.adds > MAX_SEQUENTIAL {
            return Some(format!(
                "{} elements of a channel are too many for a workgroup",
                grid.count()
            ));
        }
        None
    }

    /// Whether the tensor is so small, or planes are so long, that tiles of channels suit the adapter.
    pub fn channels_first_fused_pay(&self, layout: &Layout, group_channels: u32) -> bool {
        let grid = &layout.grid;
        let small = grid.inner >= 4 && self.is_small(grid);
        let lone = grid.inner >= LONE_PLANE && grid.outer == 1;
        let block = self.block(grid, group_channels);
        (small || lone || layout.has_planes())
            && (small || grid.outer == 1 || self.bound_at_once(grid))
            && self.suits(&block)
            && (self.fills(grid, &block) || self.is_small(grid))
    }

    /// Whether a tile with several outer indices has no more separate pieces than are prefetched, and its tensor, which
    /// is bound at once, is far below the binding limit.
    fn bound_at_once(&self, grid: &Grid) -> bool {
        const MOST: u64 = 1 << 24;
        let sample = u64::from(grid.channels) * u64::from(grid.inner);
        u64::from(grid.outer) <= self.most_apart(sample) && grid.elements() <= MOST
    }

    /// The whole gradient or forward pass over a grid's planes.
    pub fn channels_first_fused(
        &self,
        grid: &Grid,
        tensors: &Tensors,
        scalars: Scalars,
    ) -> Result<Vec<Dispatch>, Error> {
        let groups = GroupSizes::none(grid.channels);
        self.fused_planes(grid, groups, tensors, scalars, None)
    }

    /// The same for groups of channels. The results of each channel or group follow from the sums of the channels,
    /// which are left in a region of the workspace.
    pub fn channels_first_fused_groups(
        &self,
        groups: &Groups,
        tensors: &Tensors,
        scalars: Scalars,
        sums: Option<Region>,
    ) -> Result<Vec<Dispatch>, Error> {
        let tensors = Tensors {
            results: vec![],
            ..tensors.clone()
        };
        let grid = &groups.layout.grid;
        self.fused_planes(grid, group_sizes(groups), &tensors, scalars, sums)
    }

    fn fused_planes(
        &self,
        grid: &Grid,
        groups: GroupSizes,
        tensors: &Tensors,
        scalars: Scalars,
        sums: Option<Region>,
    ) -> Result<Vec<Dispatch>, Error> {
        let block = self.block(grid, groups.group_channels);
        let blocks = block.count(grid);
        // With one outer index, windows can begin at tiles; with several, a tile is spread over the tensor.
        let (units, unit_blocks) = if grid.outer == 1 {
            (blocks, 1)
        } else {
            (1, blocks)
        };
        let unit_elements = unit_blocks * block.channels * u64::from(grid.inner);
        let start = |unit: u64| match grid.outer {
            1 => (unit * unit_elements).min(grid.elements()),
            _ => unit * grid.elements(),
        };
        let alignment = PlaneAlignment::of(grid, block.vector_vec4s);
        let of_a_plane = alignment.vectors_of(grid.inner.into(), block.vector_vec4s);
        let vectors = div_ceil(of_a_plane, block.threads_per_plane.into());
        let kernel = ChannelsFirstFused {
            vector_vec4s: block.vector_vec4s,
            block_vectors: self.body.block_vectors(vectors),
            vector_aligned: alignment.vector_aligned,
            vec4_aligned: alignment.vec4_aligned,
            narrow: alignment.narrow,
            whole: alignment.whole,
            in_turns: block.in_turns,
        };
        let windows = windows(self.profile, &tensors.src, 0..units, unit_blocks, start)?;
        let kernel = (kernel, block.workgroup_size);
        self.over(&windows, &tensors.src, kernel, |window, range| {
            let bind = |tensor: &Requirement| match tensor.tensor {
                Tensor::Mask => window.bind_mask(tensor),
                data if data.is_data() => window.bind(tensor),
                _ => Binding::whole(tensor),
            };
            let mut bindings: Vec<_> = tensors.bound_at_once().iter().map(bind).collect();
            bindings.extend(sums.map(|_| Binding::workspace()));
            let uniforms = ChannelsFirstFusedUniforms {
                outer: grid.outer,
                channels: grid.channels,
                groups,
                inner: grid.inner,
                tile_channels: word(block.channels),
                threads_per_plane: block.threads_per_plane,
                planes_at_once: block.planes_at_once,
                range,
                sums: sums.map_or(0, |region| region.first),
                scalars,
            };
            (bindings, uniforms)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Profile, Tuning};

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
                let planner = Planner {
                    profile,
                    body: crate::kernels::Body::Gradient,
                    data,
                    epilogue: crate::kernels::Epilogue::default(),
                };
                let block = planner.block(&grid, 1);
                let what = format!("{grid:?} {data} {:?}", profile.tuning);
                let vector = 4 * u64::from(block.vector_vec4s);
                let workgroup = u64::from(block.workgroup_size);
                assert!(block.channels <= workgroup, "{what}");
                assert!(block.channels.is_multiple_of(4), "{what}");
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
                let src = Requirement {
                    tensor: Tensor::Src,
                    dtype: data,
                    elements: grid.elements(),
                };
                planner
                    .channels_first_fused_unsupported_reason(&grid, 1, &src)
                    .is_none()
                    && planner.channels_first_fused_pay(&grid.into(), 1)
            });
            // One choice for all types.
            assert_eq!(fused, [fused[0]; 3], "{grid:?} {:?}", profile.tuning);
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
            let planner = Planner {
                epilogue: crate::kernels::Epilogue::default(),
                body: crate::kernels::Body::GroupGradient,
                profile: &profile,
                data: DType::F32,
            };
            let widest = u64::from(planner.workgroup(tuning.fused_workgroup));
            for (group_channels, inner) in
                (1..=200).flat_map(|group| (1..=40).map(move |inner| (group, inner)))
            {
                let grid = Grid {
                    outer: 1,
                    channels: 4096 * group_channels,
                    inner,
                };
                let src = Requirement {
                    tensor: Tensor::Src,
                    dtype: DType::F32,
                    elements: grid.elements(),
                };
                let what = format!("{grid:?} of {group_channels}, {tuning:?}");
                let block = planner.block(&grid, group_channels);
                let group = u64::from(group_channels);
                assert!(block.channels.is_multiple_of(group), "{what}");
                let reason =
                    planner.channels_first_fused_unsupported_reason(&grid, group_channels, &src);
                // Four groups begin at a vec4, however long planes are.
                if 4 * group <= widest && group <= MAX_SEQUENTIAL {
                    fused += 1;
                    assert_eq!(reason, None, "{what}");
                }
                if group > MAX_SEQUENTIAL {
                    assert!(reason.is_some(), "{what}");
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
                let data = DType::F32;
                let planner = Planner {
                    body: crate::kernels::Body::Gradient,
                    profile: &profile,
                    data,
                    epilogue: crate::kernels::Epilogue::default(),
                };
                let grid = Grid {
                    outer,
                    channels,
                    inner,
                };
                let src = Requirement {
                    tensor: Tensor::Src,
                    dtype: data,
                    elements: grid.elements(),
                };
                planner
                    .channels_first_fused_unsupported_reason(&grid, 1, &src)
                    .is_none()
                    && planner.channels_first_fused_pay(&grid.into(), 1)
            };
            assert!(fused(1, 65536, 8) && fused(1, 300_001, 25));
            assert!(!fused(1, 300_001, 7) && !fused(4, 65536, 8));
        }
    }
}
