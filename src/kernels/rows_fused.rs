//! The whole gradient or forward pass over rows.

use super::describe::{constants, uniforms};
use super::files::{File, file};
use super::shared_uniforms::{RowTiles, Scalars};
use super::{Body, Describe, Kernel, of_a_vector, sum_of};

constants! {
    struct RowsFused {
        /// Invocations that share a row, a power of two.
        threads_per_row: u32,
        /// Vectors of a row that each of them holds.
        column_vectors: u32,
        vector_vec4s: u32,
        /// Every row begins at a vec4.
        aligned: bool,
        /// Two rows may share a word, each with one half.
        shares_words: bool,
        /// Every invocation's vectors are in the row.
        complete: bool,
        /// Each row's statistics go to the workspace,
        kept: bool,
        /// or to their own tensors, whose elements do not share words.
        stored: bool,
        /// The parameters' gradients are wanted.
        summed: bool,
        /// Each sample, of `param_rows` rows, has parameters of its own.
        of_samples: bool,
        /// A workgroup adds up its sums of a column before it writes them.
        add_thread_rows: bool,
    }
}

uniforms! {
    struct RowsFusedUniforms {
        tiles: RowTiles,
        partials: u32,
        stats: u32,
        scalars: Scalars,
    }
}

impl Describe for RowsFused {
    const KERNEL: Kernel = Kernel::RowsFused;
    const FILE: File = file!("traversals/rows_fused");
    type Uniforms = RowsFusedUniforms;

    fn iterations(&self, body: Body, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let of_vectors = u64::from(self.column_vectors) * of_a_vector(self.vector_vec4s, false);
        let columns =
            u64::from(self.vector_vec4s) * (1 + sum_of(workgroup_size, workgroup_size) + 4);
        let rows = uniforms.tiles.walk();
        let row_reductions = body.row_reductions();
        of_vectors
            + rows
                * (row_reductions
                    + (1 + row_reductions) * of_vectors
                    + row_reductions * sum_of(self.threads_per_row, workgroup_size))
            + u64::from(self.column_vectors) * (1 + columns)
    }

    fn adders(&self, _: u32) -> Option<u32> {
        Some(self.threads_per_row)
    }

    fn sequential_adds(&self, _: Body, uniforms: &Self::Uniforms, _: u64) -> u64 {
        uniforms.tiles.walk()
    }
}
