//! The dispatches that add up partial sums and derive what follows from the sums.

use super::pack::PACK_WORKGROUP;
use crate::kernels::{Finish, FinishUniforms, SplitPartials};
use crate::plan::axes::MixedAxes;
use crate::plan::derived::Derived;
use crate::plan::dispatch::{Binding, Dispatch, Requirement};
use crate::plan::limits::Unfit;
use crate::plan::planner::Planner;
use crate::plan::problem::sums_elements;
use crate::plan::sizes::{div_ceil, threads, word};
use crate::plan::workspace::{Region, Workspace};
use crate::tensor::Tensor;

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

    /// A channel's partial sums side by side.
    pub fn side_by_side(region: Region, channels: u32, count: u64) -> Self {
        Self {
            channel_stride: count,
            ..Self::plain(region, channels, count, 1)
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

    /// Whether each split has a record of each channel, side by side.
    pub fn is_plain(&self) -> bool {
        let of_channels = self.partial_stride == u64::from(self.channels);
        self.channel_stride == 1 && of_channels && !self.paired && self.mixed.is_none()
    }

    /// No partial sums: every sum is 0. `region` may be any region of the workspace.
    pub fn none(channels: u32, region: Region) -> Self {
        Self::plain(region, channels, 0, 0)
    }

    /// Whether a split has one partial sum of each channel.
    pub fn one_in_a_split(&self) -> bool {
        self.repeats * u64::from(self.inner) == 1
    }

    /// The uniforms by which kernels find them.
    pub fn of_splits(&self) -> SplitPartials {
        SplitPartials {
            channel_stride: word(self.channel_stride),
            partial_count: word(self.count),
            partial_stride: word(self.partial_stride),
            repeats: word(self.repeats),
            inner: self.inner,
            partials: self.region.first,
        }
    }

    /// The kernel that adds them up, without its threads and what becomes of the sums.
    fn kernel(&self) -> Finish {
        Finish {
            threads: 1,
            mixed: self.mixed.is_some(),
            plain: self.one_in_a_split(),
            paired: self.paired,
            ..Finish::default()
        }
    }

    /// Its uniforms, without the tiles and what becomes of the sums, where a workgroup adds up all of a channel.
    fn uniforms(&self, derived: &Derived) -> FinishUniforms {
        let (mixed, result_axes) = self.mixed.unwrap_or_default();
        FinishUniforms {
            channels: self.channels,
            partials: self.of_splits(),
            channel_tiles: 1,
            subtotal_partials: word(self.count),
            axes: mixed.sizes.into(),
            result_axes,
            grid_width: 1,
            subtotals: 0,
            means: 0,
            shards: derived.shards.count,
            shard: derived.shards.index,
            count: derived.count as f64,
            scalars: derived.scalars,
        }
    }
}

/// The most partial sums that an invocation adds up; where there are more, they are first added up to subtotals. In the
/// kernel's three tiers no more than 32 numbers follow one another.
const MOST_PARTIALS: u64 = 1024;

/// The most partial sums of a channel that an elementwise pass adds up itself.
pub(crate) const MOST_ADDED: u64 = 16;

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
        Partials {
            paired: self.body.pairs(),
            ..Partials::plain(region, channels, count, self.subtotal_records(channels))
        }
    }

    /// Adds partial sums up to subtotals until there are so few that a workgroup adds them all up: the dispatches, and
    /// the partial sums that they leave.
    pub fn add_subtotals(
        &self,
        mut partials: Partials,
        workspace: &mut Workspace,
    ) -> Result<(Vec<Dispatch>, Partials), Unfit> {
        let mut dispatches = Vec::new();
        let threads = u64::from(self.workgroup(self.profile.tuning.workgroup));
        let subtotal_partials = threads * MOST_PARTIALS;
        while partials.count > subtotal_partials {
            let subtotals = div_ceil(partials.count, subtotal_partials);
            let region = workspace.reserve(subtotals * self.subtotal_records(partials.channels))?;
            dispatches.push(self.add_to(&partials, subtotal_partials, region, false)?);
            partials = self.subtotals(region, partials.channels, subtotals);
        }
        Ok((dispatches, partials))
    }

    /// Adds partial sums up to subtotals of `of_each` partial sums of a channel, which are written to a region, or
    /// added to the subtotals that are there if those are `begun`.
    pub fn add_to(
        &self,
        partials: &Partials,
        of_each: u64,
        subtotals: Region,
        begun: bool,
    ) -> Result<Dispatch, Unfit> {
        let kernel = Finish {
            to_subtotals: true,
            added: begun,
            ..partials.kernel()
        };
        let uniforms = FinishUniforms {
            subtotal_partials: word(of_each),
            subtotals: subtotals.first,
            ..partials.uniforms(&Derived::of(0))
        };
        self.add_up_by(kernel, uniforms, vec![Binding::workspace()])
    }

    /// Adds partial sums up, and derives what follows from the sums: in one dispatch if it can bind all operands, else
    /// in one for each line of them.
    pub fn finish(
        &self,
        partials: &Partials,
        derived: &Derived,
        route: Route,
    ) -> Result<Vec<Dispatch>, Unfit> {
        let operands = derived.all_operands();
        let scratch = if route == Route::Whole { 1 } else { 2 };
        let at_once = route == Route::ToSums || self.profile.binds(operands.len() + scratch);
        let lines = if at_once {
            std::slice::from_ref(&operands)
        } else {
            &derived.operands
        };
        let means = std::iter::once(derived.means).chain(std::iter::repeat(None));
        let derive =
            |(line, means): (&Vec<_>, _)| self.derive(partials, derived, line, means, route);
        let lines = lines.iter().zip(means);
        lines
            .filter(|(line, means)| at_once || !line.is_empty() || means.is_some())
            .map(derive)
            .collect()
    }

    /// Adds up the sums of channels, and derives these operands from them, and the records for the elementwise pass.
    fn derive(
        &self,
        partials: &Partials,
        derived: &Derived,
        operands: &[Requirement],
        means: Option<Region>,
        route: Route,
    ) -> Result<Dispatch, Unfit> {
        let mut bindings = Vec::with_capacity(operands.len() + 2);
        bindings.push(Binding::workspace());
        if route != Route::Whole {
            let sums = sums_elements(self.body, partials.channels.into(), derived.shards);
            let bytes = sums * self.data.accumulator().size();
            bindings.push(Binding::new(Tensor::Sums, 0..bytes));
        }
        if route != Route::ToSums {
            bindings.extend(operands.iter().map(Binding::whole));
        }
        let none = Partials::none(partials.channels, partials.region);
        let from_sums = route == Route::FromSums;
        let partials = if from_sums { &none } else { partials };
        let kernel = Finish {
            from_sums,
            to_sums: route == Route::ToSums,
            derive: route != Route::ToSums && means.is_some(),
            ..partials.kernel()
        };
        let uniforms = FinishUniforms {
            means: means.map_or(0, |region| region.first),
            ..partials.uniforms(derived)
        };
        self.add_up_by(kernel, uniforms, bindings)
    }

    /// Adds partial sums up by a kernel, in as many workgroups as that takes.
    fn add_up_by(
        &self,
        kernel: Finish,
        uniforms: FinishUniforms,
        bindings: Vec<Binding>,
    ) -> Result<Dispatch, Unfit> {
        let of_each = uniforms.subtotal_partials.into();
        let most = self.workgroup(self.profile.tuning.workgroup);
        let (threads, workgroup_size) = self.share_sums(most, of_each, MOST_PARTIALS);
        let vec4s = div_ceil(uniforms.channels.into(), 4);
        let channel_tiles = div_ceil(vec4s, u64::from(workgroup_size / threads));
        let subtotals = div_ceil(uniforms.partials.partial_count.into(), of_each).max(1);
        let workgroups = self.profile.workgroups(channel_tiles * subtotals)?;
        let kernel = Finish { threads, ..kernel };
        let uniforms = FinishUniforms {
            channel_tiles: word(channel_tiles),
            grid_width: workgroups[0],
            ..uniforms
        };
        Ok(self.dispatch(kernel, workgroup_size, bindings, &uniforms, workgroups))
    }

    /// Invocations that share `count` sums in workgroups of at most `most`, and the workgroup size. Only where all
    /// invocations share them may one have more than `few` of them.
    pub fn share_sums(&self, most: u32, count: u64, few: u64) -> (u32, u32) {
        // Four sums count as a vec4: both are four additions. Few are added up in the order in which an elementwise pass
        // adds them, so that windows, where it does not, give the same bits.
        let threads = if count <= MOST_ADDED {
            1
        } else {
            threads(most, count, self.profile.tuning.channels_first_vec4s)
        };
        match threads {
            _ if count > u64::from(threads) * few => (most, most),
            1 => (1, self.workgroup(PACK_WORKGROUP)),
            _ => (threads, most),
        }
    }
}
