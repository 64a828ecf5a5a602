//! The dispatches that add up partial sums and derive what follows from the sums.

use super::pack::PACK_WORKGROUP;
use crate::Tensor;
use crate::kernels::{Finish, FinishUniforms};
use crate::plan::axes::MixedAxes;
use crate::plan::derived::Derived;
use crate::plan::dispatch::{Binding, Dispatch, Requirement};
use crate::plan::limits::Unfit;
use crate::plan::planner::Planner;
use crate::plan::problem::sums_elements;
use crate::plan::sizes::{div_ceil, threads, word};
use crate::plan::workspace::{Region, Workspace};

/// Partial sums of channels, as a reduction left them: channel c's partial sum p is record
/// c · channel_stride + split · partial_stride + k · channels · inner + i of `region`, with
/// p = (split · repeats + k) · inner + i.
pub(crate) struct Partials {
    pub region: Region,
    pub channels: u32,
    pub channel_stride: u64,
    /// Partial sums of a channel.
    pub count: u64,
    pub partial_stride: u64,
    pub repeats: u64,
    pub inner: u32,
    /// Two channels share a record: channel c has half of record c / 2.
    pub paired: bool,
    /// They are sums of channels with these axes, of which those of the mask lead to a result; and record i belongs to
    /// channel i.
    pub mixed: Option<(MixedAxes, u32)>,
}

impl Partials {
    /// One partial sum in each split.
    pub fn plain(region: Region, channels: u32, count: u64, partial_stride: u64) -> Self {
        Self {
            region,
            channels,
            channel_stride: 1,
            count,
            partial_stride,
            repeats: 1,
            inner: 1,
            paired: false,
            mixed: None,
        }
    }

    /// One partial sum in each split, two channels to a record. Channels come in whole vec4s, or there is one partial
    /// sum, whose region is reserved in whole vec4s.
    pub fn paired(region: Region, channels: u32, count: u64) -> Self {
        Self {
            paired: true,
            ..Self::plain(region, channels, count, u64::from(channels) / 2)
        }
    }

    /// Whether they are the channels' sums themselves, side by side.
    pub fn is_sums(&self) -> bool {
        self.count == 1 && self.channel_stride == 1 && !self.paired && self.mixed.is_none()
    }

    /// No partial sums: every sum is 0. `region` may be any region of the workspace.
    pub fn none(channels: u32, region: Region) -> Self {
        Self::plain(region, channels, 0, 0)
    }
}

/// The most partial sums that an invocation adds up; where there are more, they are first added up to subtotals. In the
/// kernel's three tiers no more than 32 numbers follow one another.
const MOST_PARTIALS: u64 = 1024;

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

impl Planner<'_> {
    /// The number of records in which every channel has a subtotal.
    pub fn subtotal_records(&self, channels: u32) -> u64 {
        let of_four = if self.body.pairs() { 2 } else { 4 };
        of_four * div_ceil(u64::from(channels), 4)
    }

    /// `count` subtotals of each channel, in whole vec4s.
    pub fn subtotals(&self, region: Region, channels: u32, count: u64) -> Partials {
        let sums = match self.body.pairs() {
            true => Partials::paired(region, channels, count),
            false => Partials::plain(region, channels, count, 0),
        };
        Partials {
            partial_stride: self.subtotal_records(channels),
            ..sums
        }
    }

    /// Adds partial sums up to subtotals until there are so few that a workgroup adds them all up: the dispatches, and
    /// the partial sums that they leave.
    pub fn add_subtotals(
        &self,
        partials: Partials,
        workspace: &mut Workspace,
    ) -> Result<(Vec<Dispatch>, Partials), Unfit> {
        let mut dispatches = Vec::new();
        let mut partials = partials;
        let threads = u64::from(self.workgroup(self.profile.tuning.workgroup));
        let subtotal_partials = threads * MOST_PARTIALS;
        while partials.count > subtotal_partials {
            let subtotals = div_ceil(partials.count, subtotal_partials);
            let region = workspace.reserve(subtotals * self.subtotal_records(partials.channels))?;
            let sums = self.subtotals(region, partials.channels, subtotals);
            dispatches.push(self.add_up_to(
                &partials,
                &Target::Subtotals {
                    partials: subtotal_partials,
                    at: region,
                    added: false,
                },
            )?);
            partials = sums;
        }
        Ok((dispatches, partials))
    }

    /// Adds partial sums to `total`, or writes their sum there if it is not `begun`.
    pub fn add_to(
        &self,
        partials: &Partials,
        total: Region,
        begun: bool,
    ) -> Result<Dispatch, Unfit> {
        let added = begun;
        self.add_up_to(
            partials,
            &Target::Subtotals {
                partials: partials.count,
                at: total,
                added,
            },
        )
    }

    /// Adds partial sums up, and derives what follows from the sums: in one dispatch if it can bind all operands, else
    /// in one for each line of them.
    pub fn finish(
        &self,
        partials: &Partials,
        derived: &Derived,
        route: Route,
    ) -> Result<Vec<Dispatch>, Unfit> {
        let mut operands = Vec::new();
        for operand in derived.operands.iter().flatten() {
            if !operands.contains(operand) {
                operands.push(*operand);
            }
        }
        let scratch = if route == Route::Whole { 1 } else { 2 };
        if route == Route::ToSums || self.profile.binds(operands.len() + scratch) {
            let target = Target::Channels(derived, &operands, derived.means, route);
            return Ok(vec![self.add_up_to(partials, &target)?]);
        }
        let lines = derived
            .operands
            .iter()
            .zip([derived.means].into_iter().chain(std::iter::repeat(None)));
        lines
            .map(|(line, means)| {
                self.add_up_to(partials, &Target::Channels(derived, line, means, route))
            })
            .collect()
    }

    fn add_up_to(&self, partials: &Partials, target: &Target<'_>) -> Result<Dispatch, Unfit> {
        let most = self.workgroup(self.profile.tuning.workgroup);
        let none = Partials::none(partials.channels, partials.region);
        let partials = match target {
            Target::Channels(.., Route::FromSums) => &none,
            _ => partials,
        };
        let (subtotal_partials, subtotals) = match target {
            Target::Subtotals { partials, at, .. } => (*partials, at.first),
            Target::Channels(..) => (partials.count, 0),
        };
        // Four partial sums count as a vec4: both are four additions.
        let threads = threads(
            most,
            subtotal_partials,
            self.profile.tuning.channels_first_vec4s,
        );
        // The bound on the partial sums of a subtotal assumes that all invocations share them.
        let threads = match subtotal_partials > u64::from(threads) * MOST_PARTIALS {
            true => most,
            false => threads,
        };
        let workgroup_size = match threads {
            1 => self.workgroup(PACK_WORKGROUP),
            _ => most,
        };
        let vec4s = div_ceil(u64::from(partials.channels), 4);
        let channel_tiles = div_ceil(vec4s, u64::from(workgroup_size / threads));
        let count = div_ceil(partials.count, subtotal_partials).max(1);
        let workgroups = self.profile.workgroups(channel_tiles * count)?;
        let mut bindings = vec![Binding::workspace()];
        let mut kernel = Finish {
            threads,
            mixed: partials.mixed.is_some(),
            plain: partials.repeats * u64::from(partials.inner) == 1,
            paired: partials.paired,
            to_subtotals: false,
            added: false,
            from_sums: false,
            to_sums: false,
            derive: false,
        };
        let none = Derived::of(0);
        let mut uniforms = (&none, 0);
        match target {
            Target::Subtotals { added, .. } => {
                kernel.to_subtotals = true;
                kernel.added = *added;
            }
            Target::Channels(derived, operands, means, route) => {
                let results = *route != Route::ToSums;
                if *route != Route::Whole {
                    let sums = sums_elements(self.body, partials.channels.into(), derived.shards);
                    bindings.push(Binding {
                        tensor: Tensor::Sums,
                        bytes: 0..sums * self.data.accumulator().size(),
                        owned: None,
                    });
                }
                if results {
                    bindings.extend(operands.iter().map(Binding::whole));
                }
                kernel.from_sums = *route == Route::FromSums;
                kernel.to_sums = *route == Route::ToSums;
                kernel.derive = results && means.is_some();
                uniforms = (derived, means.map_or(0, |region| region.first));
            }
        }
        let (derived, means) = uniforms;
        let (mixed, result_axes) = partials.mixed.unwrap_or_default();
        Ok(self.dispatch(
            kernel,
            workgroup_size,
            bindings,
            &FinishUniforms {
                channels: partials.channels,
                channel_stride: word(partials.channel_stride),
                channel_tiles: word(channel_tiles),
                partial_count: word(partials.count),
                partial_stride: word(partials.partial_stride),
                subtotal_partials: word(subtotal_partials),
                repeats: word(partials.repeats),
                inner: partials.inner,
                axes: mixed.sizes.into(),
                result_axes,
                grid_width: workgroups[0],
                partials: partials.region.first,
                subtotals,
                means,
                shards: derived.shards.count,
                shard: derived.shards.index,
                count: derived.count as f64,
                scalars: derived.scalars,
            },
            workgroups,
        ))
    }
}

/// The sums to which partial sums are added.
enum Target<'a> {
    /// Subtotals of `partials` partial sums each, which are written to the workspace, or added to the subtotals there.
    Subtotals {
        partials: u64,
        at: Region,
        added: bool,
    },
    /// The sums of channels and what follows from them, in these operands and for the elementwise pass.
    Channels(&'a Derived, &'a [Requirement], Option<Region>, Route),
}
