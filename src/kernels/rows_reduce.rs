//! The reduction over rows.

use super::describe::{constants, uniforms};
use super::files::{File, file};
use super::shared_uniforms::RowTiles;
use super::{Body, Describe, Kernel, of_a_vector, sum_of};

constants! {
    struct RowsReduce {
        /// Invocations that share a row, a power of two.
        threads_per_row: u32,
        /// How many of them write one partial sum together.
        threads_per_partial: u32,
        /// Vectors of a row that each of them holds.
        column_vectors: u32,
        vector_vec4s: u32,
        /// They hold a whole row, so its one partial sum is complete.
        one_partial: bool,
        /// Every row begins at a vec4.
        aligned: bool,
        /// Every invocation's vectors are in the row.
        complete: bool,
        /// Each sample, of `param_rows` rows, has parameters of its own.
        of_samples: bool,
        /// Parameters that are copies in the workspace.
        copied_params: u32,
        /// The parameters' gradients are wanted.
        summed: bool,
        /// A workgroup adds up its sums of a column before it writes them.
        add_thread_rows: bool,
        /// The sums of columns are complete.
        direct: bool,
    }
}

uniforms! {
    struct RowsReduceUniforms {
        tiles: RowTiles,
        /// Tiles along a row.
        column_tiles: u32,
        /// Partial sums of a row.
        partials_per_row: u32,
        stats: u32,
        copies: u32,
        row_partials: u32,
        partials: u32,
        /// 1 / columns.
        inverse_count: f64,
    }
}

impl Describe for RowsReduce {
    const KERNEL: Kernel = Kernel::RowsReduce;
    const FILE: File = file!("traversals/rows_reduce");
    type Uniforms = RowsReduceUniforms;

    fn iterations(&self, _: Body, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let of_vectors = u64::from(self.column_vectors) * of_a_vector(self.vector_vec4s, false);
        let columns =
            u64::from(self.vector_vec4s) * (1 + sum_of(workgroup_size, workgroup_size) + 4);
        let rows = uniforms.tiles.walk();
        of_vectors
            + rows * (1 + of_vectors + sum_of(self.threads_per_partial, workgroup_size))
            + u64::from(self.column_vectors) * (1 + columns)
    }

    fn adders(&self, _: u32) -> u32 {
        self.threads_per_partial
    }

    fn sequential_adds(&self, _: Body, uniforms: &Self::Uniforms, _: u64) -> u64 {
        uniforms.tiles.walk()
    }
}
