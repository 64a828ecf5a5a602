//! The reduction, channels last.

use super::describe::{constants, uniforms};
use super::files::{File, file};
use super::shared_uniforms::ColumnTiles;
use super::{Body, Describe, Kernel, of_a_vector, sum_of};

constants! {
    struct ChannelsLastReduce {
        column_vectors: u32,
        vector_vec4s: u32,
        /// Rows that are loaded before the first is used.
        rows_at_once: u32,
        /// There are batches.
        general: bool,
        /// The rows of all batches follow each other.
        in_one_piece: bool,
        /// The last row is complete.
        complete: bool,
        /// The tensor ends with a vector.
        whole: bool,
        /// Several invocations own the same columns.
        add_thread_rows: bool,
        /// A channel's columns are added up before they are written.
        by_channel: bool,
        /// Columns are channels, and a record holds two of them.
        paired: bool,
    }
}

uniforms! {
    struct ChannelsLastReduceUniforms {
        tiles: ColumnTiles,
        partials: u32,
    }
}

impl Describe for ChannelsLastReduce {
    const KERNEL: Kernel = Kernel::ChannelsLastReduce;
    const FILE: File = file!("traversals/channels_last_reduce");
    type Uniforms = ChannelsLastReduceUniforms;

    fn adders(&self, workgroup_size: u32) -> u32 {
        workgroup_size
    }

    fn iterations(&self, body: Body, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let tiles = &uniforms.tiles;
        let (vectors, vec4s) = (u64::from(self.column_vectors), u64::from(self.vector_vec4s));
        let thread_rows = (workgroup_size / u64::from(tiles.threads_per_row.max(1))).max(1);
        let of_vectors = vectors * of_a_vector(self.vector_vec4s, false);
        let rows = u64::from(tiles.tile_rows).div_ceil(thread_rows);
        let coefficients = vectors * (1 + vec4s);
        let blocks = rows.div_ceil(body.block_rows()).max(1) * (1 + 2 * coefficients);
        let sums = vectors * (1 + vec4s * (1 + sum_of(thread_rows, workgroup_size) + 4));
        let by_channel = u64::from(self.by_channel) * {
            let row = (u64::from(tiles.row_channels) * u64::from(tiles.inner)).max(1);
            let width = 4 * vec4s * u64::from(tiles.width_vectors);
            let channels = u64::from(tiles.row_channels).div_ceil(workgroup_size);
            of_vectors + channels * (1 + width.div_ceil(row) * (1 + u64::from(tiles.inner)))
        };
        coefficients + blocks + rows * (3 + vectors + of_vectors) + sums + by_channel
    }

    fn sequential_adds(&self, _: Body, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let thread_rows =
            (workgroup_size / u64::from(uniforms.tiles.threads_per_row.max(1))).max(1);
        u64::from(uniforms.tiles.tile_rows).div_ceil(thread_rows)
    }
}
