//! The elementwise pass, channels first.

use super::describe::{constants, uniforms};
use super::files::{File, file};
use super::shared_uniforms::{PlaneTiles, Scalars};
use super::{Body, Describe, Kernel, of_a_vector};

constants! {
    struct ChannelsFirstApply {
        vector_vec4s: u32,
        general: bool,
        vector_aligned: bool,
        vec4_aligned: bool,
        narrow: bool,
        ends_with_vector: bool,
        /// A branch that is not taken costs nothing.
        branches: bool,
        /// Invocations share a tile's vectors, not its planes, each `vectors_at_once`.
        by_vectors: bool,
        vectors_at_once: u32,
        has_means: bool,
        /// It adds up the partial sums itself.
        adds_up: bool,
        /// Records of the channels are in the workspace.
        recorded: bool,
        /// Records of what shares statistics are.
        of_statistics: bool,
    }
}

uniforms! {
    struct ChannelsFirstApplyUniforms {
        /// outer · channels
        planes: u32,
        /// Planes in a tile.
        tile_planes: u32,
        tiles: PlaneTiles,
        means: u32,
        partials: u32,
        partial_count: u32,
        scalars: Scalars,
    }
}

impl Describe for ChannelsFirstApply {
    const KERNEL: Kernel = Kernel::ChannelsFirstApply;
    const FILE: File = file!("traversals/channels_first_apply");
    type Uniforms = ChannelsFirstApplyUniforms;

    fn iterations(&self, _: Body, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let threads_per_plane = u64::from(uniforms.tiles.threads_per_plane.max(1));
        let vector = 4 * u64::from(self.vector_vec4s);
        let planes =
            u64::from(uniforms.tile_planes).div_ceil((workgroup_size / threads_per_plane).max(1));
        let vectors = u64::from(uniforms.tiles.chunk)
            .div_ceil(vector)
            .div_ceil(threads_per_plane);
        let partials = u64::from(self.adds_up) * u64::from(uniforms.partial_count);
        if self.by_vectors {
            let vectors =
                u64::from(uniforms.tile_planes) * u64::from(uniforms.tiles.chunk) / vector;
            let turns = vectors.div_ceil(workgroup_size * u64::from(self.vectors_at_once));
            let of_a_turn = u64::from(self.vectors_at_once) * (2 + u64::from(self.vector_vec4s));
            return 2 * partials + turns * (1 + of_a_turn);
        }
        let of_a_plane = 1 + 3 * partials + vectors * of_a_vector(self.vector_vec4s, self.narrow);
        partials + planes * of_a_plane
    }

    fn sequential_adds(&self, _: Body, uniforms: &Self::Uniforms, _: u64) -> u64 {
        u64::from(self.adds_up) * u64::from(uniforms.partial_count)
    }
}
