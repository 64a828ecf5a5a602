//! The reduction over columns, the elementwise pass, or both.

use super::describe::{constants, uniforms};
use super::files::{File, file};
use super::shared_uniforms::{BatchTiles, Scalars};
use super::{Body, Describe, Kernel, of_a_vector, sum_of};

constants! {
    struct ColumnsWalk {
        /// Invocations side by side in a row, a power of two.
        threads_per_row: u32,
        /// How many of them write one partial sum of a row together.
        threads_per_partial: u32,
        /// Vectors of a row that each of them has.
        column_vectors: u32,
        vector_vec4s: u32,
        /// Rows that it loads before it uses the first, a power of two.
        rows_at_once: u32,
        /// A workgroup walks one column tile.
        one_tile: bool,
        /// Statistics and parameters belong to channels, which are columns, one or several to a channel.
        of_channels: bool,
        /// Statistics belong to columns of batches, and parameters to rows.
        of_batches: bool,
        /// Statistics belong to rows, and parameters to columns.
        of_rows: bool,
        /// The axes of channels are general: there are batches.
        general: bool,
        /// The rows of all batches of channels follow each other.
        in_one_piece: bool,
        /// The last row of channels is complete. Of rows: every invocation's vectors are in the row.
        complete: bool,
        /// The tensor ends with a vector.
        ends_with_vector: bool,
        /// Every row begins at a vector.
        aligned: bool,
        /// Two rows may share a word, each with one half.
        shares_words: bool,
        /// Sums are taken.
        reduced: bool,
        /// Results are written.
        applied: bool,
        /// Records of what is known before the sums are in the workspace.
        recorded: bool,
        /// Statistics are read from their tensors.
        reads_given: bool,
        /// Each column is a channel.
        columns_are_channels: bool,
        /// A gradient's means are in the workspace.
        has_means: bool,
        /// Parameters that are copies in the workspace.
        copied_params: u32,
        /// Each batch has parameters of its own.
        of_samples: bool,
        /// The parameters' gradients are wanted.
        summed: bool,
        /// A row has one partial sum, which becomes the means in its record.
        one_partial: bool,
        /// A workgroup has all rows, and writes the gradients of columns' parameters.
        direct: bool,
        /// A workgroup adds up its sums of a channel's columns before it writes them.
        by_channel: bool,
        /// A record holds the sums of two columns.
        paired_columns: bool,
    }
}

uniforms! {
    struct ColumnsWalkUniforms {
        tiles: BatchTiles,
        /// Groups of column tiles that have partial sums of a row of their own.
        row_groups: u32,
        /// Partial sums of a row.
        partials_per_row: u32,
        row_partials: u32,
        means: u32,
        partials: u32,
        /// Records between the partial sums of two tiles of rows.
        partial_stride: u32,
        scalars: Scalars,
    }
}

impl Describe for ColumnsWalk {
    const KERNEL: Kernel = Kernel::ColumnsWalk;
    const FILE: File = file!("traversals/columns_walk");
    type Uniforms = ColumnsWalkUniforms;

    fn iterations(&self, body: Body, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let of_vectors = u64::from(self.column_vectors) * of_a_vector(self.vector_vec4s, false);
        // A subgroup has four invocations at least.
        let sum_of_columns = sum_of(workgroup_size, workgroup_size).max(workgroup_size / 4);
        let columns = u64::from(self.vector_vec4s) * (1 + sum_of_columns + 4);
        let rows = uniforms.tiles.walk(self.threads_per_row, workgroup_size);
        let rows = rows.next_multiple_of(self.rows_at_once.max(1).into());
        let blocks = rows.div_ceil(body.block_rows());
        // A row's loads and sums, for rows that are loaded together two more loops, and the sum of the row.
        let together = 2 * u64::from(self.rows_at_once > 1);
        let adds_rows = self.summed || self.of_rows;
        let sum_of_row = u64::from(adds_rows) * sum_of(self.threads_per_partial, workgroup_size);
        let of_a_row = 1 + together + u64::from(self.column_vectors) + of_vectors + sum_of_row;
        let sums = blocks * (1 + 2 * of_vectors)
            + rows * of_a_row
            + u64::from(self.column_vectors) * (1 + columns);
        let results = rows * (1 + of_vectors);
        let by_channel = u64::from(self.by_channel) * {
            let (tiles, of) = (&uniforms.tiles, &uniforms.tiles.channels);
            let row = (u64::from(of.row_channels) * u64::from(of.inner)).max(1);
            let channels = u64::from(of.row_channels).div_ceil(workgroup_size);
            let repeats = u64::from(tiles.columns).div_ceil(row);
            of_vectors + channels * (1 + repeats * (1 + u64::from(of.inner)))
        };
        let leaves = u64::from(self.reduced && self.reads_given);
        let of_a_tile = (1 + 4 * leaves) * of_vectors
            + u64::from(self.reduced) * sums
            + by_channel
            + u64::from(self.applied) * results;
        u64::from(uniforms.tiles.walked_tiles) * (1 + of_a_tile)
    }

    /// Sums of columns, once for each walk, may be of more subgroups than those of rows, once for each row.
    fn adders(&self, workgroup_size: u32) -> Option<u32> {
        Some(match (self.reduced, self.of_channels) {
            (false, _) => 0,
            (true, true) => workgroup_size,
            (true, false) => self.threads_per_partial,
        })
    }

    fn sequential_adds(&self, body: Body, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let rows = uniforms.tiles.walk(self.threads_per_row, workgroup_size);
        let tiles = u64::from(uniforms.tiles.walked_tiles);
        if !self.reduced {
            return 0;
        }
        if !self.applied && body.is_gradient() {
            return rows.max(tiles);
        }
        let block = body.block_rows();
        rows.min(block).max(rows.div_ceil(block)).max(tiles)
    }
}
