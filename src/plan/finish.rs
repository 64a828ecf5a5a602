//! The dispatches that add partial sums and derive what follows from the sums.

use super::pack::{whole, workspace};
use super::workspace::Part;
use super::{Binding, Dispatch, Phases, Planner, Requirement, div_ceil, word};
use crate::Error;
use crate::geometry::Grid;
use crate::kernels::{Kernel, Tensor, Uniforms};

/// Where a reduction left its partial sums.
pub(crate) struct Partials {
    pub part: Part,
    /// Channels, and how many neighbouring columns make a channel.
    pub grid: Grid,
    pub repeats: u32,
    pub width: u32,
    pub parts: u32,
}

impl Partials {
    /// No partial sums: every sum is 0. `part` is any place in the workspace.
    pub fn none(grid: &Grid, part: Part) -> Self {
        Self {
            part,
            grid: Grid { inner: 1, ..*grid },
            repeats: 1,
            width: 0,
            parts: 0,
        }
    }
}

/// Where a channel's sums come from.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum From {
    Partials,
    Sums,
}

/// What becomes of them.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum To {
    Sums,
    Results,
}

/// What the sums become.
pub(crate) struct Derived<'a> {
    pub diff_gamma: Option<&'a Requirement>,
    pub diff_beta: Option<&'a Requirement>,
    /// Coefficients of the elementwise pass, from the statistics.
    pub coefficients: Option<(Part, Part)>,
    pub constant_statistics: bool,
}

impl Planner<'_> {
    /// Adds up `from`, and writes `to`.
    pub fn finish(
        &self,
        partials: &Partials,
        count: u64,
        derived: &Derived<'_>,
        from: From,
        to: To,
    ) -> Result<Dispatch, Error> {
        let from_sums = from == From::Sums;
        let derive = to == To::Results;
        let kernel = Kernel::Finish;
        let workgroup_size = self.profile.workgroup(self.profile.tuning.finish_workgroup);
        let workgroups = self.workgroups(div_ceil(u64::from(partials.grid.channels), 4))?;
        let (coefficients, stats) = derived
            .coefficients
            .map_or((0, 0), |(c, s)| (c.first, s.first));
        let mut bindings = vec![
            workspace(),
            Binding {
                tensor: Tensor::Sums,
                bytes: 0..0,
            },
        ];
        if derive {
            bindings.extend(derived.diff_gamma.map(whole));
            bindings.extend(derived.diff_beta.map(whole));
        }
        let flag = |on: bool| u32::from(on);
        Ok(Dispatch {
            kernel,
            phases: Phases::WHOLE,
            workgroup_size,
            column_quads: 0,
            enabled: vec![],
            bindings,
            uniforms: Uniforms::new(
                kernel,
                &[
                    ("channels", partials.grid.channels),
                    ("inner", partials.grid.inner),
                    ("repeats", partials.repeats),
                    ("width", partials.width),
                    ("parts", partials.parts),
                    ("grid_width", workgroups[0]),
                    ("partials", partials.part.first),
                    ("stats", stats),
                    ("coefficients", coefficients),
                    ("from_sums", flag(from_sums)),
                    ("derive", flag(derive && derived.coefficients.is_some())),
                    ("constant", flag(derived.constant_statistics)),
                ],
                &[
                    ("count", count as f64),
                    ("inverse_count", 1.0 / word(count).max(1) as f64),
                ],
            ),
            workgroups,
        })
    }
}
