//! The dispatch that combines the sums of a group's channels.

use super::finish::Partials;
use crate::error::Error;
use crate::kernels::{CombineGroups, CombineGroupsUniforms, TIER};
use crate::plan::axes::{Groups, MixedAxes};
use crate::plan::dispatch::{Binding, Dispatch};
use crate::plan::limits::Unfit;
use crate::plan::planner::Planner;
use crate::plan::problem::Problem;
use crate::plan::sizes::{div_ceil, word};
use crate::plan::workspace::{Region, Workspace};

/// The most channels whose sums an invocation adds up.
const MOST_CHANNELS: u64 = 128 * TIER;

/// The sums of the channels of all samples, as partial sums of the results: the gradients of a channel's parameters
/// have one for each sample, the statistics of a group one for each of its channels.
pub(crate) fn sums_of_all_samples(problem: &Problem, sums: Region) -> Partials {
    let groups = &problem.groups;
    let (channels, group_channels) = (groups.channels, groups.group_channels);
    let mixed = |results: fn(MixedAxes) -> u32| groups.mixed.map(|axes| (axes, results(axes)));
    if problem.body.is_gradient() {
        Partials {
            mixed: mixed(|axes| axes.parameters),
            ..Partials::plain(sums, channels, problem.axes.lines(), channels.into())
        }
    } else {
        Partials {
            mixed: mixed(|axes| axes.statistics),
            ..Partials::side_by_side(sums, groups.count, group_channels.into())
        }
    }
}

impl Planner<'_> {
    /// The sums of each channel, in a record of their own: those that a reduction left, or the totals of its partial
    /// sums.
    pub fn sums_of_channels(
        &self,
        partials: Partials,
        workspace: &mut Workspace,
    ) -> Result<(Vec<Dispatch>, Region), Unfit> {
        if partials.is_sums() {
            return Ok((vec![], partials.region));
        }
        let (mut dispatches, partials) = self.add_subtotals(partials, workspace)?;
        let sums = workspace.reserve(self.subtotal_records(partials.channels))?;
        dispatches.push(self.add_to(&partials, partials.count, sums, false)?);
        Ok((dispatches, sums))
    }

    /// Combines them to the records that the elementwise pass needs, in the place of `sums`. `stats` are the records
    /// that are known before the sums.
    pub fn combine_groups(
        &self,
        groups: &Groups,
        stats: Region,
        sums: Region,
    ) -> Result<Dispatch, Unfit> {
        let channels = u64::from(groups.group_channels);
        // Larger workgroups than elsewhere for very many channels.
        let fewest = word(div_ceil(channels, MOST_CHANNELS)).next_power_of_two();
        let most = self.workgroup(self.profile.tuning.workgroup.max(fewest));
        // They are shared like partial sums.
        let (threads, workgroup_size) = self.share_sums(most, channels, TIER);
        let limit = "channels whose sums a workgroup adds up";
        let available = u64::from(threads) * MOST_CHANNELS;
        Error::check_limit("a group", limit, channels, available)?;
        let vec4s = div_ceil(u64::from(groups.count), 4);
        let tiles = div_ceil(vec4s, u64::from(workgroup_size / threads));
        let workgroups = self.profile.workgroups(tiles)?;
        let mut bindings = Vec::new();
        if self.body.statistics().is_empty() {
            bindings.extend(self.tensors.params.iter().map(Binding::whole));
        }
        bindings.push(Binding::workspace());
        let mixed = groups.mixed.is_some();
        let kernel = CombineGroups { threads, mixed };
        let uniforms = CombineGroupsUniforms {
            groups: groups.sizes(),
            grid_width: workgroups[0],
            stats: stats.first,
            sums: sums.first,
            scalars: self.problem.scalars(),
        };
        Ok(self.dispatch(kernel, workgroup_size, bindings, &uniforms, workgroups))
    }
}
