//! The whole gradient or forward pass, channels first.

use super::describe::{constants, uniforms};
use super::files::{File, file};
use super::shared_uniforms::{GroupSizes, Scalars, TileRange};
use super::{Body, Describe, Kernel, in_blocks, of_a_vector, sum_of};

constants! {
    struct ChannelsFirstFused {
        vector_vec4s: u32,
        /// Vectors of a plane that an invocation adds up in a block.
        block_vectors: u32,
        vector_aligned: bool,
        vec4_aligned: bool,
        narrow: bool,
        ends_with_vector: bool,
        /// A branch that is not taken costs nothing.
        branches: bool,
        /// Only where planes begin at vectors.
        in_turns: bool,
        /// Results of several tiles are side by side in a vec4, so that each stores its own, word by word.
        shares_results: bool,
    }
}

uniforms! {
    struct ChannelsFirstFusedUniforms {
        outer: u32,
        channels: u32,
        groups: GroupSizes,
        inner: u32,
        /// Channels in a workgroup's tile, at most `workgroup_size`.
        tile_channels: u32,
        /// Invocations in a team, which shares a plane.
        threads_per_plane: u32,
        /// Teams that share a channel's planes, at most `outer`.
        planes_at_once: u32,
        range: TileRange,
        /// Where the sums of groups' channels begin in the workspace.
        sums: u32,
        scalars: Scalars,
    }
}

impl ChannelsFirstFused {
    /// Planes in which an invocation takes part, and its vectors of a plane: those that the plane touches, and those
    /// that begin in it.
    fn walk(&self, uniforms: &ChannelsFirstFusedUniforms) -> (u64, u64, u64) {
        let threads_per_plane = u64::from(uniforms.threads_per_plane.max(1));
        let begun = u64::from(uniforms.inner).div_ceil(4 * u64::from(self.vector_vec4s));
        let touched = begun + u64::from(!self.vector_aligned);
        let planes = uniforms.outer.div_ceil(uniforms.planes_at_once.max(1));
        (
            planes.into(),
            touched.div_ceil(threads_per_plane),
            begun.div_ceil(threads_per_plane),
        )
    }
}

impl Describe for ChannelsFirstFused {
    const KERNEL: Kernel = Kernel::ChannelsFirstFused;
    const FILE: File = file!("traversals/channels_first_fused");
    type Uniforms = ChannelsFirstFusedUniforms;

    fn adders(&self, workgroup_size: u32) -> Option<u32> {
        Some(workgroup_size)
    }

    fn iterations(&self, body: Body, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let group = u64::from(uniforms.threads_per_plane.max(1))
            * u64::from(uniforms.planes_at_once.max(1));
        let block = u64::from(uniforms.tile_channels);
        let turns = block.div_ceil((workgroup_size / group).max(1));
        let (planes, touched, begun) = self.walk(uniforms);
        let reduce = planes * (1 + in_blocks(touched, self.vector_vec4s, 0));
        let apply = planes * (1 + begun * of_a_vector(self.vector_vec4s, self.narrow));
        let stores = (1 + block.div_ceil(4)).div_ceil(workgroup_size);
        let of_groups =
            u64::from(body.of_groups) * u64::from(uniforms.groups.sharing.group_channels);
        turns * (1 + sum_of(group, workgroup_size) + reduce)
            + of_groups
            + stores
            + turns * (1 + apply)
    }

    /// Elements of neighbouring planes count as 0.
    fn sequential_adds(&self, body: Body, uniforms: &Self::Uniforms, _: u64) -> u64 {
        let (planes, _, begun) = self.walk(uniforms);
        let of_groups =
            u64::from(body.of_groups) * u64::from(uniforms.groups.sharing.group_channels);
        (planes * begun * u64::from(self.vector_vec4s)).max(of_groups)
    }
}
