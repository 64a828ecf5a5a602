//! The fused channels-last kernel: when it fits, and how workgroups divide its columns.

use super::axes::Grid;
use super::tensors::Tensors;
use super::{Binding, Dispatch, MAX_SEQUENTIAL, Planner, Requirement, div_ceil, word};
use crate::Error;
use crate::kernels::{ChannelsLastFused, ChannelsLastFusedUniforms, Scalars};

/// The most rows of an invocation.
const MOST_ROWS: u64 = 4096;

/// The fewest invocations side by side in a row: 128 bytes of it, in loads of 16.
const NARROWEST: u32 = 8;

impl Planner<'_> {
    /// The number of a workgroup's invocations that are side by side in a row, with loads of `vector_vec4s` vec4s, and
    /// of all its invocations.
    fn fused_threads(&self, channels: u32, vector_vec4s: u32) -> (u32, u32) {
        let tuning = &self.profile.tuning;
        let workgroup_size = self.workgroup(tuning.workgroup);
        let threads_per_row = tuning.channels_last_threads.clamp(1, workgroup_size);
        let vectors = (channels / (4 * vector_vec4s)).max(1);
        let threads_per_row = threads_per_row.min(
            vectors
                .checked_next_power_of_two()
                .unwrap_or(threads_per_row),
        );
        let mut threads_per_row = 1 << threads_per_row.ilog2();
        while threads_per_row > NARROWEST && vectors.div_ceil(threads_per_row) < tuning.fused_blocks
        {
            threads_per_row /= 2;
        }
        (threads_per_row, workgroup_size)
    }

    /// Blocks of rows that an invocation adds up, one after another.
    fn row_blocks(&self, grid: &Grid) -> u64 {
        let (threads_per_row, workgroup_size) = self.fused_threads(grid.channels, 1);
        div_ceil(
            u64::from(grid.outer),
            self.body.block_rows() * u64::from(workgroup_size / threads_per_row),
        )
    }

    /// Why the kernel cannot do a tensor, if it cannot.
    pub fn channels_last_fused_unsupported_reason(
        &self,
        grid: &Grid,
        src: &Requirement,
    ) -> Option<String> {
        if grid.elements() == 0 {
            return Some("the tensor is empty".to_owned());
        }
        if grid.inner != 1 {
            return Some("channels are not the last axis".to_owned());
        }
        if !grid.channels.is_multiple_of(4) {
            return Some(format!(
                "{} channels are not a multiple of 4",
                grid.channels
            ));
        }
        if src.padded_bytes() > self.profile.window_limit().1 {
            return Some("the tensor does not fit one binding".to_owned());
        }
        let most_blocks = (MOST_ROWS / self.body.block_rows()).min(MAX_SEQUENTIAL);
        if self.row_blocks(grid) > most_blocks {
            return Some(format!("{} rows are too many to add up", grid.outer));
        }
        None
    }

    /// Whether a tensor is small and has few rows; larger ones are faster in wider pieces.
    pub fn channels_last_fused_pay(&self, grid: &Grid) -> bool {
        let (threads_per_row, _) = self.fused_threads(grid.channels, 1);
        let part = u64::from(grid.outer) * 4 * u64::from(threads_per_row);
        part <= u64::from(self.profile.tuning.fused_block) && self.is_small(grid)
    }

    /// The whole gradient or forward pass over a grid's columns.
    pub fn channels_last_fused(
        &self,
        grid: &Grid,
        tensors: &Tensors,
        scalars: Scalars,
    ) -> Result<Dispatch, Error> {
        // Vectors are not wide where invocations share columns: each vec4 of a vector has a tree of sums, with
        // barriers.
        let wide = self.vector_vec4s(u64::from(grid.channels));
        let (threads_per_row, workgroup_size) = self.fused_threads(grid.channels, wide);
        let (threads_per_row, vector_vec4s) = match threads_per_row == workgroup_size {
            true => (threads_per_row, wide),
            false => (self.fused_threads(grid.channels, 1).0, 1),
        };
        let vectors = grid.channels / (4 * vector_vec4s);
        let workgroups = self.workgroups(u64::from(vectors.div_ceil(threads_per_row)))?;
        Ok(self.dispatch(
            ChannelsLastFused {
                vector_vec4s,
                add_thread_rows: threads_per_row < workgroup_size,
            },
            workgroup_size,
            tensors.bound_at_once().iter().map(Binding::whole).collect(),
            &ChannelsLastFusedUniforms {
                rows: grid.outer,
                channels: grid.channels,
                threads_per_row,
                grid_width: workgroups[0],
                length: word(grid.elements()),
                scalars,
            },
            workgroups,
        ))
    }
}
