//! The reduction, channels first.

use super::describe::{constants, uniforms};
use super::files::{File, file};
use super::shared_uniforms::{PlaneTiles, Scalars};
use super::{Body, Describe, Kernel, in_blocks, sum_of};

constants! {
    struct ChannelsFirstReduce {
        vector_vec4s: u32,
        /// Vectors of a plane that an invocation adds up in a block.
        block_vectors: u32,
        general: bool,
        vector_aligned: bool,
        vec4_aligned: bool,
        /// Records of the channels are in the workspace.
        recorded: bool,
    }
}

uniforms! {
    struct ChannelsFirstReduceUniforms {
        outer: u32,
        /// Planes in a tile.
        tile_planes: u32,
        tiles: PlaneTiles,
        partials: u32,
        scalars: Scalars,
    }
}

impl ChannelsFirstReduce {
    /// Planes in which an invocation takes part, and its vectors of a plane: those that the plane touches, and those
    /// that it fills.
    fn walk(&self, uniforms: &ChannelsFirstReduceUniforms, workgroup_size: u64) -> (u64, u64, u64) {
        let threads_per_plane = u64::from(uniforms.tiles.threads_per_plane.max(1));
        let vector = 4 * u64::from(self.vector_vec4s);
        let filled = u64::from(uniforms.tiles.chunk).div_ceil(vector);
        let touched = filled + u64::from(!self.vector_aligned);
        let planes =
            u64::from(uniforms.tile_planes).div_ceil((workgroup_size / threads_per_plane).max(1));
        (
            planes,
            touched.div_ceil(threads_per_plane),
            filled.div_ceil(threads_per_plane),
        )
    }
}

impl Describe for ChannelsFirstReduce {
    const KERNEL: Kernel = Kernel::ChannelsFirstReduce;
    const FILE: File = file!("traversals/channels_first_reduce");
    type Uniforms = ChannelsFirstReduceUniforms;

    fn adders(&self, workgroup_size: u32) -> Option<u32> {
        Some(workgroup_size)
    }

    fn iterations(&self, _: Body, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let (planes, vectors, _) = self.walk(uniforms, workgroup_size);
        // Each block's outputs are written on the way.
        let of_blocks = in_blocks(vectors, self.vector_vec4s, self.vector_vec4s.into());
        planes * (1 + of_blocks) + sum_of(workgroup_size, workgroup_size)
    }

    /// Elements of neighbouring planes count as 0.
    fn sequential_adds(&self, _: Body, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let (planes, _, vectors) = self.walk(uniforms, workgroup_size);
        planes * vectors * u64::from(self.vector_vec4s)
    }
}
