//! The whole gradient or forward pass over rows or columns, in one reading.

use super::describe::{constants, uniforms};
use super::files::{File, file};
use super::shared_uniforms::{BatchTiles, Scalars};
use super::{Body, Describe, Kernel, of_a_vector, sum_of, tree};

constants! {
    struct InRegisters {
        /// Invocations side by side in a row, a power of two.
        threads_per_row: u32,
        /// Vectors of a row that each of them holds, and the rows of which it holds them.
        column_vectors: u32,
        held_rows: u32,
        vector_vec4s: u32,
        /// Statistics belong to rows, and parameters to columns; else statistics to columns of batches, and parameters
        /// to rows.
        of_rows: bool,
        /// Rows are groups of channels, and parameters belong to planes.
        of_planes: bool,
        /// Every row begins at a vector.
        aligned: bool,
        /// Two rows may share a word, each with one half.
        shares_words: bool,
        /// Of rows: every invocation's vectors are in the row.
        complete: bool,
        /// Each row's statistics, or a gradient's sums of a plane, go to the workspace,
        kept: bool,
        /// or to their own tensors, whose elements do not share words.
        stored: bool,
        /// Parameters that are copies in the workspace.
        copied_params: u32,
        /// Each batch has parameters of its own.
        of_samples: bool,
        /// Sums of columns, or of rows, are taken: the parameters' gradients.
        summed: bool,
        /// Invocations with the same columns add up their sums.
        add_thread_rows: bool,
        /// Of columns: a workgroup walks one column tile.
        one_tile: bool,
        /// Of columns: invocations that write one partial sum of a row together.
        threads_per_partial: u32,
        /// A record holds the sums of two columns.
        paired_columns: bool,
    }
}

uniforms! {
    struct InRegistersUniforms {
        tiles: BatchTiles,
        /// The distance between two rows that an invocation walks, or two column tiles.
        row_step: u32,
        /// Workgroups that share a tile of rows.
        misalignments: u32,
        /// Of columns: groups of column tiles that have partial sums of a row of their own, a row's partial sums, and
        /// where those begin.
        row_groups: u32,
        partials_per_row: u32,
        row_partials: u32,
        partials: u32,
        /// Records between two partial sums of a column.
        partial_stride: u32,
        scalars: Scalars,
    }
}

impl InRegistersUniforms {
    /// The steps of a walk: over rows, or over column tiles.
    fn steps(&self, of_rows: bool) -> u64 {
        if of_rows {
            self.tiles.tile_rows.div_ceil(self.row_step.max(1)).into()
        } else {
            self.tiles.walked_tiles.into()
        }
    }
}

impl Describe for InRegisters {
    const KERNEL: Kernel = Kernel::InRegisters;
    const FILE: File = file!("traversals/in_registers");
    type Uniforms = InRegistersUniforms;

    fn iterations(&self, body: Body, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let of_a_row = 1 + u64::from(self.column_vectors) * of_a_vector(self.vector_vec4s, false);
        let thread_rows = workgroup_size / u64::from(self.threads_per_row.max(1));
        let sharing = if self.of_rows {
            self.threads_per_row.into()
        } else {
            thread_rows
        };
        let sum = 1 + sum_of(sharing, workgroup_size);
        let held = 1 + u64::from(self.held_rows) * of_a_row;
        let reductions = body.row_reductions();
        let sums_rows = u64::from(self.summed && !self.of_rows);
        let statistics = 4 * u64::from(!self.of_rows && !self.aligned);
        let of_a_step = 1 + statistics + (1 + reductions + sums_rows) * held + reductions * sum;
        // The sums of invocations with the same columns, at most of all subgroups, which have four invocations at least.
        let sum_of_columns = u64::from(self.add_thread_rows)
            * (tree(thread_rows) + thread_rows.min(workgroup_size / 4));
        let columns = u64::from(self.vector_vec4s) * (1 + sum_of_columns + 4);
        let of_columns = u64::from(self.column_vectors) * (1 + columns);
        let of_rows =
            u64::from(self.held_rows) * (1 + sum_of(self.threads_per_partial, workgroup_size));
        let summed = if self.of_rows { of_columns } else { of_rows };
        of_a_row + uniforms.steps(self.of_rows) * of_a_step + u64::from(self.summed) * summed
    }

    fn adders(&self, workgroup_size: u32) -> Option<u32> {
        Some(if self.of_rows {
            self.threads_per_row
        } else {
            workgroup_size
        })
    }

    fn sequential_adds(&self, _: Body, uniforms: &Self::Uniforms, _: u64) -> u64 {
        uniforms.steps(self.of_rows).max(self.held_rows.into())
    }
}
