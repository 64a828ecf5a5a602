//! The fused kernel over columns: when it fits, and how workgroups divide the columns.

use super::tensors::Tensors;
use super::{Binding, Dispatch, Planner, Requirement, div_ceil, word};
use crate::Error;
use crate::geometry::Grid;
use crate::kernels::{FusedColumns, FusedColumnsUniforms, Kernel};

/// Rows that an invocation of the fused kernel over columns adds up before it adds the sum to others.
const ROWS_OF_A_BLOCK: u64 = 64;

/// Such blocks of an invocation, at most.
const MOST_BLOCKS: u64 = 64;

/// Fewest invocations side by side in the fused kernel over columns: 128 bytes of a row by loads of 16.
const NARROWEST: u32 = 8;

impl Planner<'_> {
    /// Invocations side by side in a workgroup of the fused kernel over columns by loads of so many quads, and
    /// all of it.
    fn column_lanes(&self, channels: u32, packet_quads: u32) -> (u32, u32) {
        let tuning = &self.profile.tuning;
        let workgroup_size = self.profile.workgroup(tuning.workgroup);
        let lanes = tuning.column_lanes.clamp(1, workgroup_size);
        let packets = (channels / (4 * packet_quads)).max(1);
        let lanes = lanes.min(packets.checked_next_power_of_two().unwrap_or(lanes));
        let mut lanes = 1 << lanes.ilog2();
        while lanes > NARROWEST && packets.div_ceil(lanes) < tuning.fused_blocks {
            lanes /= 2;
        }
        (lanes, workgroup_size)
    }

    /// Blocks of rows that an invocation adds up.
    fn row_blocks(&self, grid: &Grid) -> u64 {
        let (lanes, workgroup_size) = self.column_lanes(grid.channels, 1);
        div_ceil(
            u64::from(grid.outer),
            ROWS_OF_A_BLOCK * u64::from(workgroup_size / lanes),
        )
    }

    /// Why the kernel cannot take a tensor, if it cannot.
    pub fn fused_columns_refusal(&self, grid: &Grid, src: &Requirement) -> Option<String> {
        if grid.elements() == 0 {
            return Some("the tensor is empty".to_owned());
        }
        if grid.inner != 1 {
            return Some("channels are not the last axis".to_owned());
        }
        if !grid.channels.is_multiple_of(4) {
            return Some(format!("{} channels are no multiple of 4", grid.channels));
        }
        if src.padded_bytes() > self.profile.max_binding {
            return Some("the tensor does not fit one binding".to_owned());
        }
        if self.row_blocks(grid) > MOST_BLOCKS {
            return Some(format!("{} rows are too many to add up", grid.outer));
        }
        self.too_many_bindings(Kernel::FusedColumns)
    }

    /// Whether a tensor is small and has few rows: larger ones are walked faster in wider pieces.
    pub fn fused_columns_pay(&self, grid: &Grid) -> bool {
        let (lanes, _) = self.column_lanes(grid.channels, 1);
        let part = u64::from(grid.outer) * 4 * u64::from(lanes);
        part <= u64::from(self.profile.tuning.fused_block) && self.is_small(grid)
    }

    /// The whole gradient over a grid's columns.
    pub fn fused_columns(
        &self,
        grid: &Grid,
        tensors: &Tensors,
        epsilon: f64,
    ) -> Result<Dispatch, Error> {
        // Not where invocations share columns: each quad of a packet has a tree of sums, with barriers.
        let wide = self.packet_quads(u64::from(grid.channels));
        let (lanes, workgroup_size) = self.column_lanes(grid.channels, wide);
        let (lanes, packet_quads) = match lanes == workgroup_size {
            true => (lanes, wide),
            false => (self.column_lanes(grid.channels, 1).0, 1),
        };
        let packets = grid.channels / (4 * packet_quads);
        let workgroups = self.workgroups(u64::from(packets.div_ceil(lanes)))?;
        Ok(Dispatch::new(
            FusedColumns {
                packet_quads,
                stacked: lanes < workgroup_size,
            },
            workgroup_size,
            tensors.bound_at_once().iter().map(Binding::whole).collect(),
            &FusedColumnsUniforms {
                rows: grid.outer,
                channels: grid.channels,
                column_lanes: lanes,
                grid_width: workgroups[0],
                length: word(grid.elements()),
                epsilon,
                inverse_count: 1.0 / grid.count().max(1) as f64,
            },
            workgroups,
        ))
    }
}
