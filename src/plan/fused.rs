//! The fused kernel over runs: when it fits, its blocks and windows.

use super::pack::whole;
use super::windows::windows;
use super::{Dispatch, Phases, Planner, Requirement, div_ceil, enabled_for_runs, word};
use crate::Error;
use crate::geometry::{Grid, Layout};
use crate::kernels::{Kernel, Uniforms};

/// The tensors of a fused dispatch.
pub(crate) struct FusedTensors<'a> {
    pub src: &'a Requirement,
    pub diff_dst: &'a Requirement,
    pub mean: &'a Requirement,
    pub variance: &'a Requirement,
    pub gamma: Option<&'a Requirement>,
    pub diff_src: &'a Requirement,
    pub diff_gamma: Option<&'a Requirement>,
    pub diff_beta: Option<&'a Requirement>,
}

/// How a workgroup divides its block.
struct Block {
    channels: u64,
    lanes: u32,
}

impl Planner<'_> {
    fn block(&self, grid: &Grid, workgroup_size: u32) -> Block {
        // As many invocations a channel as a run has quads, so that short runs share a workgroup.
        let lanes = self.lanes(workgroup_size, u64::from(grid.inner));
        Block {
            channels: u64::from(workgroup_size / lanes).max(4),
            lanes,
        }
    }

    /// Whether one dispatch does it all: the adapter allows so many bindings, blocks begin at whole
    /// quads, there are enough of them and each fits a cache. The choice depends on geometry and
    /// profile alone.
    pub fn fuses(&self, layout: &Layout) -> bool {
        let grid = &layout.grid;
        let tuning = &self.profile.tuning;
        let workgroup_size = self.profile.workgroup(tuning.runs_workgroup);
        let block = self.block(grid, workgroup_size).channels;
        let blocks = div_ceil(u64::from(grid.channels), block);
        let elements = block * grid.count();
        let plane = u64::from(grid.channels) * u64::from(grid.inner);
        // Of a small tensor most of the time is that of its dispatches.
        let small = grid.inner >= 4 && grid.elements() <= 8 * u64::from(tuning.min_split);
        layout.general.is_none()
            && (small || self.reads_runs(layout))
            && self.profile.max_storage_buffers as usize >= Kernel::FusedRuns.entry().tensors.len()
            && (grid.outer == 1
                || (plane.is_multiple_of(4) && grid.elements() <= u64::from(tuning.window_unit)))
            && elements <= u64::from(tuning.fused_block)
            && (blocks >= u64::from(tuning.fused_blocks)
                || grid.elements() <= u64::from(tuning.min_split))
    }

    /// The whole gradient over a grid's runs.
    pub fn fused_runs(
        &self,
        grid: &Grid,
        tensors: &FusedTensors<'_>,
        epsilon: f64,
    ) -> Result<Vec<Dispatch>, Error> {
        let workgroup_size = self.profile.workgroup(self.profile.tuning.runs_workgroup);
        let block = self.block(grid, workgroup_size);
        let blocks = div_ceil(u64::from(grid.channels), block.channels);
        // Blocks of rows can be cut apart; at several outer indices a block is spread over the tensor.
        let (units, unit_blocks) = if grid.outer == 1 {
            (blocks, 1)
        } else {
            (1, blocks)
        };
        let unit_elements = unit_blocks * block.channels * u64::from(grid.inner);
        let start = |unit: u64| match grid.outer {
            1 => (unit * unit_elements).min(grid.elements()),
            _ => unit * grid.elements(),
        };
        let kernel = Kernel::FusedRuns;
        let enabled = enabled_for_runs(&(*grid).into());
        windows(self.profile, tensors.src, units, start)?
            .into_iter()
            .map(|window| {
                let first = window.units.start * unit_blocks;
                let end = window.units.end * unit_blocks;
                let workgroups = self.workgroups(end - first)?;
                let mut bindings = vec![
                    window.bind(tensors.src),
                    window.bind(tensors.diff_dst),
                    whole(tensors.mean),
                    whole(tensors.variance),
                ];
                bindings.extend(tensors.gamma.map(whole));
                bindings.push(window.bind(tensors.diff_src));
                bindings.extend(tensors.diff_gamma.map(whole));
                bindings.extend(tensors.diff_beta.map(whole));
                Ok(Dispatch {
                    kernel,
                    phases: Phases::WHOLE,
                    workgroup_size,
                    sizes: vec![],
                    enabled: enabled.clone(),
                    bindings,
                    uniforms: Uniforms::new(
                        kernel,
                        &[
                            ("outer", grid.outer),
                            ("channels", grid.channels),
                            ("inner", grid.inner),
                            ("block", word(block.channels)),
                            ("lanes", block.lanes),
                            ("first_block", word(first)),
                            ("end_block", word(end)),
                            ("grid_width", workgroups[0]),
                            ("window", word(window.elements.start)),
                            ("length", word(grid.elements() - window.elements.start)),
                        ],
                        &[
                            ("epsilon", epsilon),
                            ("inverse_count", 1.0 / grid.count().max(1) as f64),
                        ],
                    ),
                    workgroups,
                })
            })
            .collect()
    }
}
