//! The dispatches that add partial sums and derive what follows from the sums.

use super::pack::PACK_WORKGROUP;
use super::workspace::Part;
use super::{Binding, Dispatch, Planner, Requirement, div_ceil, enabled, lanes, word};
use crate::Error;
use crate::kernels::{Kernel, Tensor, Uniforms};

/// Partial sums of channels, as a reduction left them: channel c's part p is record
/// c · channel_stride + split · part_stride + k · channels · inner + i of `part`, with
/// p = (split · repeats + k) · inner + i.
pub(crate) struct Partials {
    pub part: Part,
    pub channels: u32,
    pub channel_stride: u64,
    /// Parts of a channel.
    pub parts: u64,
    pub part_stride: u64,
    pub repeats: u64,
    pub inner: u32,
    /// Two channels share a record: c is half of record c / 2.
    pub paired: bool,
}

impl Partials {
    /// One part in each split.
    pub fn plain(part: Part, channels: u32, parts: u64, part_stride: u64) -> Self {
        Self {
            part,
            channels,
            channel_stride: 1,
            parts,
            part_stride,
            repeats: 1,
            inner: 1,
            paired: false,
        }
    }

    /// One part in each split, two channels to a record. Channels come in whole quads, or there is one part, which is
    /// reserved in whole quads.
    pub fn paired(part: Part, channels: u32, parts: u64) -> Self {
        Self {
            paired: true,
            ..Self::plain(part, channels, parts, u64::from(channels) / 2)
        }
    }

    /// No partial sums: every sum is 0. `part` is any place in the workspace.
    pub fn none(channels: u32, part: Part) -> Self {
        Self::plain(part, channels, 0, 0)
    }
}

/// Where a channel's sums come from, and where they go.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Route {
    /// From partial sums to the results.
    Whole,
    /// From partial sums to the buffer `sums`.
    ToSums,
    /// From the buffer `sums` to the results.
    FromSums,
}

/// What the sums become.
pub(crate) struct Derived<'a> {
    pub diff_gamma: Option<&'a Requirement>,
    pub diff_beta: Option<&'a Requirement>,
    /// Means for the elementwise pass.
    pub means: Option<Part>,
}

impl Planner<'_> {
    /// Adds partial sums, and derives what follows from the sums.
    pub fn finish(
        &self,
        partials: &Partials,
        count: u64,
        derived: &Derived<'_>,
        route: Route,
    ) -> Result<Dispatch, Error> {
        let results = route != Route::ToSums;
        let kernel = Kernel::Finish;
        let most = self.profile.workgroup(self.profile.tuning.finish_workgroup);
        let none = Partials::none(partials.channels, partials.part);
        let partials = match route {
            Route::Whole | Route::ToSums => partials,
            Route::FromSums => &none,
        };
        // Four parts count as a quad: both are four additions.
        let lanes = lanes(most, partials.parts, self.profile.tuning.finish_lane_quads);
        let workgroup_size = match lanes {
            1 => self.profile.workgroup(PACK_WORKGROUP),
            _ => most,
        };
        let quads = div_ceil(u64::from(partials.channels), 4);
        let workgroups = self.workgroups(div_ceil(quads, u64::from(workgroup_size / lanes)))?;
        let mut bindings = vec![Binding::workspace()];
        if route != Route::Whole {
            bindings.push(Binding {
                tensor: Tensor::Sums,
                bytes: 0..(2 * u64::from(partials.channels) + 1) * self.data.accumulator().size(),
            });
        }
        if results {
            bindings.extend(derived.diff_gamma.map(Binding::whole));
            bindings.extend(derived.diff_beta.map(Binding::whole));
        }
        let enabled = enabled(&[
            ("plain", partials.repeats * u64::from(partials.inner) == 1),
            ("paired", partials.paired),
            ("from_sums", route == Route::FromSums),
            ("to_sums", route == Route::ToSums),
            ("derive", results && derived.means.is_some()),
        ]);
        Ok(Dispatch {
            kernel,
            workgroup_size,
            sizes: vec![("lanes", lanes)],
            enabled,
            bindings,
            uniforms: Uniforms::new(
                kernel,
                &[
                    ("channels", partials.channels),
                    ("channel_stride", word(partials.channel_stride)),
                    ("parts", word(partials.parts)),
                    ("part_stride", word(partials.part_stride)),
                    ("repeats", word(partials.repeats)),
                    ("inner", partials.inner),
                    ("grid_width", workgroups[0]),
                    ("partials", partials.part.first),
                    ("means", derived.means.map_or(0, |part| part.first)),
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
