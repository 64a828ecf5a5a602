//! The dispatch that combines the sums of a group's channels.

use super::finish::Partials;
use crate::error::Error;
use crate::kernels::{CombineGroups, CombineGroupsUniforms, TIER};
use crate::plan::axes::MixedAxes;
use crate::plan::dispatch::{Binding, Dispatch, Requirement};
use crate::plan::limits::Unfit;
use crate::plan::planner::Planner;
use crate::plan::problem::Problem;
use crate::plan::sizes::{div_ceil, word};
use crate::plan::workspace::{Region, Workspace};

/// The most channels whose sums an invocation adds up.
const MOST_CHANNELS: u64 = 128 * TIER;

/// The most workgroups of groups in a dispatch that adds up parameters, too.
const MOST_GROUP_TILES: u64 = 4096;

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

    /// Combines sums of channels, or their partial sums, to the records that the elementwise pass needs, and writes
    /// `results`, which come with the parameters that are read for them. `stats` are the records that are known before
    /// the sums. None if a workgroup cannot add up that many, or bind all that it writes.
    pub fn combine_groups(
        &self,
        stats: Region,
        partials: &Partials,
        combined: Region,
        results: &[Requirement],
    ) -> Result<Option<Dispatch>, Unfit> {
        let groups = &self.problem.groups;
        let is_gradient = self.body.is_gradient();
        let of_parameters = is_gradient && !results.is_empty();
        let with_a_parameter = if of_parameters {
            self.problem.axes.lines()
        } else {
            1
        };
        let added = partials.count * with_a_parameter.max(groups.group_channels.into());
        // Larger workgroups than elsewhere for very many channels.
        let fewest = word(div_ceil(added, MOST_CHANNELS))
            .min(1 << 16)
            .next_power_of_two();
        let most = self.workgroup(self.profile.tuning.workgroup.max(fewest));
        // They are shared like partial sums.
        let (threads, workgroup_size) = self.share_sums(most, added, TIER);
        let params = self.tensors.params.iter().filter(|_| !is_gradient);
        let bindings = params.map(Binding::whole);
        let bindings = bindings.chain([Binding::workspace()]);
        let bindings: Vec<_> = bindings.chain(results.iter().map(Binding::whole)).collect();
        let tiles = |results: u32| {
            let vec4s = div_ceil(results.into(), 4);
            div_ceil(vec4s, u64::from(workgroup_size / threads))
        };
        let group_tiles = tiles(groups.count);
        // As many invocations as a parameter of many samples needs are idle in many groups.
        let idle = of_parameters && group_tiles > MOST_GROUP_TILES;
        let adds_all = added <= u64::from(threads) * MOST_CHANNELS;
        if idle || !adds_all || !self.profile.binds(bindings.len()) {
            return Ok(None);
        }
        let parameter_tiles = u64::from(of_parameters) * tiles(groups.channels);
        let workgroups = self.profile.workgroups(group_tiles + parameter_tiles)?;
        let kernel = CombineGroups {
            threads,
            plain: partials.one_in_a_split(),
            of_parameters,
            mixed: groups.mixed.is_some(),
        };
        let uniforms = CombineGroupsUniforms {
            groups: groups.sizes(),
            grid_width: workgroups[0],
            group_tiles: word(group_tiles),
            channels: groups.channels_of_all(),
            partials: partials.of_splits(),
            stats: stats.first,
            combined: combined.first,
            scalars: self.problem.scalars(),
        };
        Ok(Some(self.dispatch(
            kernel,
            workgroup_size,
            bindings,
            &uniforms,
            workgroups,
        )))
    }

    /// The error of groups of more channels than a workgroup adds up.
    pub fn too_many_channels(&self) -> Unfit {
        let available = u64::from(self.workgroup(u32::MAX)) * MOST_CHANNELS;
        let limit = "channels whose sums a workgroup adds up";
        Unfit::from(Error::Limit {
            what: "a group".to_owned(),
            limit,
            needed: self.problem.groups.group_channels.into(),
            available,
        })
    }
}
