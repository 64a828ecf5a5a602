//! The whole forward pass over columns.

use super::describe::{constants, uniforms};
use super::files::{File, file};
use super::shared_uniforms::{BatchTiles, Scalars};
use super::{Body, Describe, Kernel, of_a_vector, sum_of};

constants! {
    struct ColumnsFused {
        /// Invocations side by side in a row, a power of two.
        threads_per_row: u32,
        /// Vectors of a row that each of them has: one.
        column_vectors: u32,
        /// Rows that each of them holds.
        held_rows: u32,
        /// One.
        vector_vec4s: u32,
        /// Every row begins at a vec4.
        aligned: bool,
        /// Two rows may share a word, each with one half.
        shares_words: bool,
        /// Parameters that are copies in the workspace.
        copied_params: u32,
        /// Each batch has parameters of its own.
        of_samples: bool,
    }
}

uniforms! {
    struct ColumnsFusedUniforms {
        tiles: BatchTiles,
        scalars: Scalars,
    }
}

impl Describe for ColumnsFused {
    const KERNEL: Kernel = Kernel::ColumnsFused;
    const FILE: File = file!("traversals/columns_fused");
    type Uniforms = ColumnsFusedUniforms;

    fn adders(&self, workgroup_size: u32) -> Option<u32> {
        Some(workgroup_size)
    }

    fn iterations(&self, body: Body, _: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let of_a_vector = of_a_vector(self.vector_vec4s, false);
        let held = u64::from(self.held_rows);
        let thread_rows = workgroup_size / u64::from(self.threads_per_row.max(1));
        let sum = sum_of(thread_rows, workgroup_size);
        let again = body.row_reductions() - 1;
        of_a_vector + 2 * held * (of_a_vector + 4) + sum + again * (1 + held + sum)
    }

    fn sequential_adds(&self, _: Body, _: &Self::Uniforms, _: u64) -> u64 {
        self.held_rows.into()
    }
}
