//! The elementwise pass over rows.

use super::describe::{constants, uniforms};
use super::files::{File, file};
use super::shared_uniforms::RowTiles;
use super::{Body, Describe, Kernel, of_a_vector};

constants! {
    struct RowsApply {
        /// Invocations that share a row, a power of two.
        threads_per_row: u32,
        /// Vectors of a row that each of them holds.
        column_vectors: u32,
        vector_vec4s: u32,
        /// The means of a row's sums follow its statistics in its record.
        one_partial: bool,
        /// Every row begins at a vec4.
        aligned: bool,
        /// Every invocation's vectors are in the row.
        complete: bool,
        /// Each sample, of `param_rows` rows, has parameters of its own.
        of_samples: bool,
        /// Parameters that are copies in the workspace.
        copied_params: u32,
        /// Rows are shorter than a vec4.
        narrow: bool,
        /// The tensor ends with a vector.
        whole: bool,
    }
}

uniforms! {
    struct RowsApplyUniforms {
        tiles: RowTiles,
        /// Tiles along a row.
        column_tiles: u32,
        stats: u32,
        means: u32,
        copies: u32,
    }
}

impl Describe for RowsApply {
    const KERNEL: Kernel = Kernel::RowsApply;
    const FILE: File = file!("traversals/rows_apply");
    type Uniforms = RowsApplyUniforms;

    fn iterations(&self, _: Body, uniforms: &Self::Uniforms, _: u64) -> u64 {
        let vectors = u64::from(self.column_vectors);
        let gamma = 4 * u64::from(self.vector_vec4s) * u64::from(!self.aligned);
        let of_a_row = vectors * (of_a_vector(self.vector_vec4s, self.narrow) + gamma);
        let before = vectors * of_a_vector(self.vector_vec4s, false);
        before + uniforms.tiles.walk() * (1 + of_a_row)
    }
}
