//! The elementwise pass that writes a mask, in the tensor's order.

use super::axes::Layout;
use super::tensors::{Applied, Tensors};
use super::windows::windows;
use super::{Dispatch, Planner, axis_sizes, div_ceil, word};
use crate::Error;
use crate::kernels::{FlatApply, FlatApplyUniforms};

impl Planner<'_> {
    /// The elementwise pass over a tensor, in tiles of whole words of the mask.
    pub fn flat_apply(
        &self,
        layout: &Layout,
        tensors: &Tensors,
        applied: Applied,
    ) -> Result<Vec<Dispatch>, Error> {
        let (grid, samples) = (&layout.grid, applied.samples);
        let workgroup_size = self.workgroup(self.profile.tuning.workgroup);
        let tile = 32 * u64::from(workgroup_size);
        let tiles = div_ceil(grid.elements(), tile);
        let (kernel, row_channels, inner) = match (samples, &layout.general) {
            (Some(samples), _) => (
                FlatApply {
                    general: false,
                    keeps_last: false,
                    sampled: true,
                },
                samples.channels,
                1,
            ),
            (None, Some(general)) => (
                FlatApply {
                    general: true,
                    keeps_last: general.keeps_last,
                    sampled: false,
                },
                grid.channels,
                general.width,
            ),
            (None, None) => (
                FlatApply {
                    general: false,
                    keeps_last: false,
                    sampled: false,
                },
                grid.channels,
                grid.inner,
            ),
        };
        let start = |at: u64| (at * tile).min(grid.elements());
        let windows = windows(self.profile, &tensors.src, 0..tiles, 1, start)?;
        let kernel = (kernel, workgroup_size);
        self.over(&windows, &tensors.src, kernel, |window, range| {
            let uniforms = FlatApplyUniforms {
                row_channels,
                inner,
                sample: samples.map_or(0, |samples| word(samples.elements)),
                range,
                stats: applied.stats.first,
                axes: axis_sizes(layout),
            };
            (applied.bindings(tensors, window), uniforms)
        })
    }
}
