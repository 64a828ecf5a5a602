//! The elementwise pass, channels last.

use super::describe::{constants, uniforms};
use super::files::{File, file};
use super::shared_uniforms::ColumnTiles;
use super::{Body, Describe, Kernel, of_a_vector};

constants! {
    struct ChannelsLastApply {
        column_vectors: u32,
        vector_vec4s: u32,
        general: bool,
        in_one_piece: bool,
        complete: bool,
        whole: bool,
        batch_statistics: bool,
    }
}

uniforms! {
    struct ChannelsLastApplyUniforms {
        tiles: ColumnTiles,
        means: u32,
    }
}

impl Describe for ChannelsLastApply {
    const KERNEL: Kernel = Kernel::ChannelsLastApply;
    const FILE: File = file!("traversals/channels_last_apply");
    type Uniforms = ChannelsLastApplyUniforms;

    fn iterations(&self, _: Body, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let tiles = &uniforms.tiles;
        let vectors = u64::from(self.column_vectors);
        let thread_rows = (workgroup_size / u64::from(tiles.threads_per_row.max(1))).max(1);
        let rows = u64::from(tiles.tile_rows).div_ceil(thread_rows);
        let init = vectors * (1 + u64::from(self.vector_vec4s));
        init + rows * (1 + vectors * of_a_vector(self.vector_vec4s, false))
    }
}
