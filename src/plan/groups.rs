//! Group norm by its own statistics, forward and backward. The reduction and the elementwise pass treat the channels of
//! all samples as channels of their own; between them the sums of each group are combined. Forward in NCX, where a group is
//! a row, the reduction is that of rows.
//!
//! # Windows
//!
//! A tensor beyond the binding limit is cut like batch norm's of the same layout:
//! * channels first: between planes, or inside one, whatever sample or group they belong to; fused, between tiles of
//!   whole groups, each of which must fit a binding;
//! * channels last: between rows, if the elements of a sample are whole vec4s; else, with several samples of several
//!   elements a channel, the tensor must fit a binding.
//!
//! The workspace, with records of the channels of all samples, and the parameters are not cut; nor are the sums of a
//! group's channels, which one workgroup of `combine_groups` adds up. Beyond their limits the plan is an error.

use super::axes::{Groups, Layout, MixedAxes};
use super::combine_groups::ChannelRecords;
use super::finish::{Derived, Partials, Route};
use super::passes::Slice;
use super::problem::Problem;
use super::rounds::RunningSums;
use super::tensors::{Applied, Tensors};
use super::workspace::{Region, Workspace};
use super::{Dispatch, Planner, word};
use crate::{Algorithm, Error};

/// The sums of the channels of all samples, as partial sums of the results: the gradients of a channel's parameters
/// have one for each sample, the statistics of a group one for each of its channels.
fn of_all_samples(problem: &Problem, groups: &Groups, sums: Region) -> Partials {
    let (channels, group_channels) = (groups.channels, groups.group_channels);
    let mixed = |results: fn(MixedAxes) -> u32| groups.mixed.map(|axes| (axes, results(axes)));
    match problem.body.is_gradient() {
        true => Partials {
            mixed: mixed(|axes| axes.parameters),
            ..Partials::plain(sums, channels, problem.axes.lines(), channels.into())
        },
        false => Partials {
            channel_stride: group_channels.into(),
            mixed: mixed(|axes| axes.statistics),
            ..Partials::plain(sums, groups.count, group_channels.into(), 1)
        },
    }
}

impl Planner<'_> {
    /// Group norm, fused where a workgroup holds whole groups; else a reduction of each channel, what follows from the
    /// sums of its group, and an elementwise pass. If there are `running` sums, the parameters' gradients are added to
    /// those, and not written.
    pub(super) fn groups_by_own_statistics(
        &self,
        problem: &Problem,
        tensors: &Tensors,
        running: &mut Option<RunningSums>,
        workspace: &mut Workspace,
    ) -> Result<Slice, Error> {
        let groups = &problem.axes.groups();
        let algorithm = self.choose_channels(problem, tensors)?;
        let dispatches = if problem.axes.elements() == 0 {
            let results = tensors.results.iter().map(|r| r.elements).max();
            let none = Partials::none(word(results.unwrap_or(0)), workspace.reserve(0)?);
            self.finish_written(none, tensors, problem, running, workspace)?
        } else if algorithm == Algorithm::FusedChannelsFirst {
            self.fused_groups(problem, groups, tensors, running, workspace)?
        } else {
            let planes = groups.layout.walks_planes(algorithm);
            match planes && groups.are_rows() && !problem.body.is_gradient() {
                true => self.groups_as_rows(problem, groups, tensors, workspace)?,
                false => self.split_groups(problem, groups, planes, tensors, running, workspace)?,
            }
        };
        Ok(Slice::whole(algorithm, dispatches))
    }

    fn fused_groups(
        &self,
        problem: &Problem,
        groups: &Groups,
        tensors: &Tensors,
        running: &mut Option<RunningSums>,
        workspace: &mut Workspace,
    ) -> Result<Vec<Dispatch>, Error> {
        let sums = match tensors.results.is_empty() {
            true => None,
            false => Some(workspace.reserve(groups.channels_of_all().into())?),
        };
        let mut dispatches =
            self.channels_first_fused_groups(groups, tensors, problem.scalars(), sums)?;
        if let Some(sums) = sums {
            let partials = of_all_samples(problem, groups, sums);
            dispatches.extend(self.finish_written(partials, tensors, problem, running, workspace)?);
        }
        Ok(dispatches)
    }

    /// A forward pass over groups that are each a row of the tensor: their statistics, then a record of each channel,
    /// then the elementwise pass.
    fn groups_as_rows(
        &self,
        problem: &Problem,
        groups: &Groups,
        tensors: &Tensors,
        workspace: &mut Workspace,
    ) -> Result<Vec<Dispatch>, Error> {
        let by_row = Layout::from(problem.axes.by_row());
        let of_groups = workspace.reserve(groups.count.into())?;
        let rows = self.walk_over(true, &by_row, &tensors.src, false);
        let (mut dispatches, partials) =
            self.reduce_statistics(&*rows, tensors, of_groups, workspace)?;
        let derived = Derived {
            means: Some(of_groups),
            ..problem.derived(tensors)
        };
        dispatches.extend(self.finish(&partials, &derived, Route::Whole)?);
        let stats = workspace.reserve(groups.channels_of_all().into())?;
        dispatches.push(self.spread_statistics(groups, tensors, of_groups, stats)?);
        let applied = Applied {
            src: true,
            stats,
            means: None,
            samples: groups.samples(),
        };
        let walk = self.walk_over(true, &groups.layout, &tensors.src, false);
        dispatches.extend(self.apply(&*walk, &groups.layout, tensors, applied)?);
        Ok(dispatches)
    }

    fn split_groups(
        &self,
        problem: &Problem,
        groups: &Groups,
        planes: bool,
        tensors: &Tensors,
        running: &mut Option<RunningSums>,
        workspace: &mut Workspace,
    ) -> Result<Vec<Dispatch>, Error> {
        let layout = &groups.layout;
        let given = !self.body.statistics().is_empty();
        // Where nothing is known before the sums, no kernel reads its records: any region will do.
        let stats = workspace.reserve(if given {
            groups.channels_of_all().into()
        } else {
            0
        })?;
        let mut dispatches = match given {
            true => self.pack_groups(groups, tensors, problem.epsilon, stats)?,
            false => vec![],
        };
        let walk = self.walk_over(planes, layout, &tensors.src, false);
        let (reduce, partials) = walk.reduce(tensors, stats, workspace)?;
        dispatches.extend(reduce);
        let (added, sums) = self.sums_of_channels(partials, workspace)?;
        dispatches.extend(added);
        // Before the sums are overwritten.
        let partials = of_all_samples(problem, groups, sums);
        dispatches.extend(self.finish_written(partials, tensors, problem, running, workspace)?);
        let records = ChannelRecords { stats, sums };
        dispatches.push(self.combine_groups(groups, tensors, records, problem.scalars())?);
        let applied = Applied {
            src: true,
            stats: if given { stats } else { sums },
            means: given.then_some(sums),
            samples: groups.samples(),
        };
        dispatches.extend(self.apply(&*walk, layout, tensors, applied)?);
        Ok(dispatches)
    }
}
