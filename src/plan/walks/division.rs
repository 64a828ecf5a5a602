//! How a workgroup divides rows of vectors.

use super::Known;
use crate::kernels::ColumnsWalk;
use crate::plan::limits::MOST_ITERATIONS;
use crate::plan::planner::Planner;
use crate::plan::sizes::{div_ceil, vectors_held, word};

/// What a dispatch of columns_walk does.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Pass {
    Sums,
    Results,
    All,
}

/// A workgroup's tile: invocations that are side by side in a row, with the same columns in all its rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Division {
    pub workgroup_size: u32,
    /// Invocations that share a row, a power of two.
    pub threads_per_row: u64,
    /// Vec4s in a vector.
    pub vector_vec4s: u64,
    /// Vectors of a row that each of them has.
    pub column_vectors: u64,
}

impl Division {
    /// Divides rows of so many vectors among a workgroup's invocations: first one for each, then several, as equally as
    /// possible.
    pub fn new(
        (workgroup_size, threads_per_row): (u32, u64),
        (vectors, vector_vec4s): (u64, u64),
        most: u64,
    ) -> Self {
        let tiles = div_ceil(vectors, threads_per_row * most);
        Self {
            workgroup_size,
            threads_per_row,
            vector_vec4s,
            column_vectors: div_ceil(vectors, threads_per_row * tiles),
        }
    }

    /// The same with one of a few numbers of vectors, no more than `most`, for which kernels are compiled.
    pub fn compiled(mut self, most: u64) -> Self {
        self.column_vectors = vectors_held(self.column_vectors, 1, most);
        self
    }

    /// Rows that a workgroup does at once.
    pub fn at_once(&self) -> u64 {
        u64::from(self.workgroup_size) / self.threads_per_row
    }

    /// Elements in a vector.
    pub fn vector(&self) -> u64 {
        4 * self.vector_vec4s
    }

    /// Vectors of a row that a workgroup has.
    pub fn tile_vectors(&self) -> u64 {
        self.threads_per_row * self.column_vectors
    }

    /// Elements of a row that a workgroup has.
    pub fn tile_columns(&self) -> u64 {
        self.vector() * self.tile_vectors()
    }

    /// Iterations of an invocation's loops over its vectors of a row.
    pub fn of_a_row(&self) -> u64 {
        2 + self.column_vectors * (1 + self.vector_vec4s)
    }

    /// The rows of an elementwise pass's tiles of a tensor's elements. A tile loads its coefficients once, so it grows
    /// while there are `busy` tiles.
    pub fn rows_applied(
        &self,
        planner: &Planner<'_>,
        elements: u64,
        columns: u64,
        busy: u64,
    ) -> u64 {
        let tile = u64::from(planner.profile.tuning.tile);
        let of_a_tile = (elements / busy).clamp(tile, 8 * tile) / self.tile_columns();
        of_a_tile
            .min(self.at_once() * (MOST_ITERATIONS / 2 / self.of_a_row()))
            .min(planner.profile.most_between_cuts(elements) / columns.max(1))
    }

    /// columns_walk with this division, one column tile to a workgroup. Where it takes sums, an invocation has up to
    /// `loads` loads under way, of tiles of `tile_rows` rows.
    pub fn columns_walk(
        &self,
        planner: &Planner<'_>,
        (pass, known): (Pass, &Known),
        (tile_rows, loads): (u64, u32),
    ) -> ColumnsWalk {
        let (reduced, applied) = (pass != Pass::Results, pass != Pass::Sums);
        let walked = div_ceil(tile_rows, self.at_once()).max(1);
        let rows_at_once =
            planner.rows_at_once(if reduced { loads } else { 0 }, self.column_vectors);
        ColumnsWalk {
            reduced,
            applied,
            reads_given: !known.given.is_empty(),
            recorded: known.given.is_empty()
                && (pass == Pass::Results || !(applied || planner.body.statistics().is_empty())),
            has_means: pass == Pass::Results && known.means.is_some(),
            copied_params: known.params.copied,
            threads_per_row: word(self.threads_per_row),
            threads_per_partial: 1,
            column_vectors: word(self.column_vectors),
            vector_vec4s: word(self.vector_vec4s),
            rows_at_once: word(rows_at_once.min(1 << walked.ilog2())),
            one_tile: true,
            in_one_piece: true,
            complete: true,
            ends_with_vector: true,
            aligned: true,
            ..ColumnsWalk::default()
        }
    }
}
