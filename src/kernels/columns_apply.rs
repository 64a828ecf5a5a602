//! The elementwise pass over columns.

use super::describe::{Constants, Uniform, constants, uniforms};
use super::files::file;
use super::shared_uniforms::BatchTiles;
use super::{Body, Describe, Entry, Kernel, of_a_vector};

constants! {
    struct ColumnsApply {
        /// Invocations side by side in a row, a power of two.
        threads_per_row: u32,
        /// Vectors of a row that each of them has.
        column_vectors: u32,
        vector_vec4s: u32,
        /// Every row begins at a vector.
        aligned: bool,
        /// Two rows may share a word, each with one half.
        shares_words: bool,
        /// Statistics are in the workspace.
        recorded: bool,
        /// gamma is given.
        scaled: bool,
        /// beta is given, and matters.
        offset: bool,
        /// gamma and beta are in the workspace.
        weighted: bool,
        /// Each batch has parameters of its own.
        of_samples: bool,
        /// So are the means of a gradient.
        batch_statistics: bool,
    }
}

uniforms! {
    struct ColumnsApplyUniforms {
        tiles: BatchTiles,
        means: u32,
        epsilon: f64,
    }
}

impl Describe for ColumnsApply {
    const KERNEL: Kernel = Kernel::ColumnsApply;
    type Uniforms = ColumnsApplyUniforms;

    fn iterations(&self, _: Body, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let of_vectors = u64::from(self.column_vectors) * of_a_vector(self.vector_vec4s, false);
        let rows = uniforms.tiles.walk(self.threads_per_row, workgroup_size);
        of_vectors + rows * (1 + of_vectors + 4)
    }
}

pub(super) const ENTRY: Entry = Entry {
    name: "columns_apply",
    file: file!("traversals/columns_apply"),
    constants: ColumnsApply::SAMPLES,
    uniforms: ColumnsApplyUniforms::KIND,
    statistics_length: "statistics",
    gamma_length: "parameters",
};
