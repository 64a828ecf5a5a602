//! What walks over channels have in common: the layout, and the elementwise pass that writes a mask.

use super::Known;
use crate::kernels::{FlatApply, FlatApplyUniforms};
use crate::plan::axes::{Layout, Samples};
use crate::plan::dispatch::{Binding, Dispatch};
use crate::plan::limits::{Cannot, Unfit, check};
use crate::plan::planner::Planner;
use crate::plan::problem::Family;
use crate::plan::sizes::{div_ceil, word};
use crate::plan::windows::Window;
use crate::tensor::Tensor;

impl Planner<'_> {
    /// All tiles in one window, since each may have elements anywhere in src.
    pub fn uncut(&self, tiles: u64) -> Result<Vec<Window>, Unfit> {
        self.windows(0..1, tiles, |unit| unit * self.tensors.src.elements)
    }
}

/// Channels, of each sample where samples have statistics of their own.
pub(crate) struct Channels<'a> {
    pub planner: Planner<'a>,
    pub layout: Layout,
    /// The sizes by which elements find their channels, where the channels of each sample alternate.
    pub samples: Option<Samples>,
}

impl<'a> Channels<'a> {
    pub fn new(planner: Planner<'a>) -> Self {
        let groups = &planner.problem.groups;
        let is_grouped = planner.problem.family == Family::Groups;
        Self {
            planner,
            layout: groups.layout,
            samples: groups.samples.filter(|_| is_grouped),
        }
    }
}

impl Channels<'_> {
    /// Why no kernel can do everything in one dispatch, if none can.
    pub fn check_fusible(&self) -> Result<(), Cannot> {
        let (problem, tensors) = (self.planner.problem, self.planner.tensors);
        let reason = "channels that share statistics or parameters are not side by side";
        check(problem.groups.mixed.is_none(), reason)?;
        let reason = problem.not_fusible();
        check(reason.is_none(), reason.unwrap_or_default())?;
        // For groups the workspace takes the place of the results of channels and groups.
        let mut bound = tensors.bound_at_once().count();
        if problem.family == Family::Groups && !tensors.results.is_empty() {
            bound = bound - tensors.results.len() + 1;
        }
        self.planner.profile.check_bound(bound)
    }

    /// The bindings of the elementwise pass in a window.
    pub fn applied(&self, known: &Known, window: &Window) -> Vec<Binding> {
        let (problem, tensors) = (self.planner.problem, self.planner.tensors);
        // A gradient that treats statistics as constants reads src only for the activation.
        let has_sums = known.means.is_some() || known.few_sums.is_some();
        let by_constants = problem.body.is_gradient() && !has_sums;
        let skips_src = by_constants && !problem.epilogue.is_recomputed();
        let inputs = tensors.inputs.iter();
        let read = inputs.filter(|one| one.tensor != Tensor::Src || !skips_src);
        let mut bindings: Vec<_> = window.bind_all(read.chain(&tensors.mask)).collect();
        bindings.extend(known.given.iter().cloned());
        if known.given.is_empty() || known.of_statistics || has_sums {
            bindings.push(Binding::workspace());
        }
        bindings.extend(window.bind_all(&tensors.outputs));
        let results = tensors.results.iter().filter(|_| known.few_sums.is_some());
        bindings.extend(results.map(Binding::whole));
        bindings
    }

    /// The bindings of a reduction in a window.
    pub fn reduced(&self, known: &Known, window: &Window) -> Vec<Binding> {
        let mut bindings = self.planner.tensors.reduced(window);
        bindings.extend(known.given.iter().cloned());
        bindings.push(Binding::workspace());
        bindings
    }

    /// The number of buffers that the kernel before which there are no records binds besides statistics and parameters.
    pub fn bound_besides_given(&self, one_pass: bool) -> Option<usize> {
        let (problem, tensors) = (self.planner.problem, self.planner.tensors);
        if self.writes_mask() || problem.groups.mixed.is_some() {
            return None;
        }
        let outputs = tensors.outputs.len();
        Some(if problem.has_sums(tensors) {
            tensors.reads_to_reduce().count() + 1 + usize::from(one_pass) * outputs
        } else {
            tensors.inputs.len() + usize::from(tensors.mask.is_some()) + outputs
        })
    }

    /// Whether the elementwise pass writes a mask, for which it goes in the tensor's order.
    pub fn writes_mask(&self) -> bool {
        self.planner.tensors.mask.is_some() && !self.planner.body.is_gradient()
    }

    /// The elementwise pass in tiles of whole words of the mask.
    pub fn apply_with_mask(&self, known: &Known) -> Result<Vec<Dispatch>, Unfit> {
        let (planner, layout) = (&self.planner, &self.layout);
        let grid = &layout.grid;
        let workgroup_size = planner.workgroup(planner.profile.tuning.workgroup);
        let tile = 32 * u64::from(workgroup_size);
        let general = layout.general.filter(|_| self.samples.is_none());
        let kernel = FlatApply {
            general: general.is_some(),
            keeps_last: general.is_some_and(|general| general.keeps_last),
            sampled: self.samples.is_some(),
        };
        let (row_channels, inner) = match (self.samples, general) {
            (Some(samples), _) => (samples.channels, 1),
            (None, Some(general)) => (grid.channels, general.width),
            (None, None) => (grid.channels, grid.inner),
        };
        let start = |at: u64| (at * tile).min(grid.elements());
        let windows = planner.windows(0..div_ceil(grid.elements(), tile), 1, start)?;
        planner.over(&windows, (kernel, workgroup_size), |window, range| {
            let uniforms = FlatApplyUniforms {
                row_channels,
                inner,
                sample: self.samples.map_or(0, |samples| word(samples.elements)),
                range,
                stats: known.stats.first,
                axes: layout.sizes(),
            };
            (self.applied(known, window), uniforms)
        })
    }
}
