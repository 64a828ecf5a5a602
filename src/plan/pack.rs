//! The dispatches that gather parameters in the workspace.

use super::axes::Groups;
use super::tensors::Tensors;
use super::workspace::Region;
use super::{Binding, Dispatch, Planner, Requirement, div_ceil, group_sizes, word};
use crate::Error;
use crate::kernels::{
    GroupSizes, PackStatistics, PackStatisticsUniforms, PackWeights, PackWeightsUniforms,
};

/// Invocations in a workgroup where each has work of its own and shares nothing.
pub(super) const PACK_WORKGROUP: u32 = 64;

/// The records in the workspace that a dispatch adds parameters to.
enum Known {
    Nothing,
    /// Those that it writes.
    OfChannels,
    /// One of each statistic.
    OfStatistics(Region),
}

impl Planner<'_> {
    /// Writes a record for each channel or row, with its statistics and `params`: in one dispatch if it can bind all
    /// these tensors, else in one for the statistics and one for `params`.
    pub fn pack_statistics(
        &self,
        tensors: &Tensors,
        params: &[Requirement],
        epsilon: f64,
        stats: Region,
    ) -> Result<Vec<Dispatch>, Error> {
        let statistics: Vec<_> = tensors.statistics.all().collect();
        let none = GroupSizes::none(word(tensors.statistics.groups));
        self.pack_lines(none.statistics, none, [&statistics, params], epsilon, stats)
    }

    /// Writes such records for channels that share statistics in groups.
    pub fn pack_groups(
        &self,
        groups: &Groups,
        tensors: &Tensors,
        epsilon: f64,
        stats: Region,
    ) -> Result<Vec<Dispatch>, Error> {
        let statistics: Vec<_> = tensors.statistics.all().collect();
        let params: Vec<_> = tensors.params().copied().collect();
        let read = [&statistics[..], &params];
        self.pack_lines(
            groups.channels_of_all(),
            group_sizes(groups),
            read,
            epsilon,
            stats,
        )
    }

    /// Writes a record for each channel, from its parameters and from the record of what shares its statistics.
    pub fn spread_statistics(
        &self,
        groups: &Groups,
        tensors: &Tensors,
        of_statistics: Region,
        stats: Region,
    ) -> Result<Dispatch, Error> {
        let params: Vec<_> = tensors.params().copied().collect();
        let known = Known::OfStatistics(of_statistics);
        self.pack(
            groups.channels_of_all(),
            group_sizes(groups),
            &params,
            0.0,
            stats,
            known,
        )
    }

    fn pack_lines(
        &self,
        channels: u32,
        groups: GroupSizes,
        [statistics, params]: [&[Requirement]; 2],
        epsilon: f64,
        stats: Region,
    ) -> Result<Vec<Dispatch>, Error> {
        let pack =
            |read: &[Requirement], known| self.pack(channels, groups, read, epsilon, stats, known);
        let all = [statistics, params].concat();
        if all.len() < self.profile.max_storage_buffers as usize {
            return Ok(vec![pack(&all, Known::Nothing)?]);
        }
        Ok(vec![
            pack(statistics, Known::Nothing)?,
            pack(params, Known::OfChannels)?,
        ])
    }

    fn pack(
        &self,
        channels: u32,
        groups: GroupSizes,
        read: &[Requirement],
        epsilon: f64,
        stats: Region,
        known: Known,
    ) -> Result<Dispatch, Error> {
        let workgroup_size = self.workgroup(PACK_WORKGROUP);
        let tiles = div_ceil(u64::from(channels), 4 * u64::from(workgroup_size));
        let workgroups = self.workgroups(tiles)?;
        let mut bindings: Vec<_> = read.iter().map(Binding::whole).collect();
        bindings.push(Binding::workspace());
        Ok(self.dispatch(
            PackStatistics {
                again: matches!(known, Known::OfChannels),
                of_statistics: matches!(known, Known::OfStatistics(_)),
                mixed: groups.statistics_axes != groups.parameter_axes,
            },
            workgroup_size,
            bindings,
            &PackStatisticsUniforms {
                channels,
                groups,
                stats: stats.first,
                known: match known {
                    Known::OfStatistics(region) => region.first,
                    _ => stats.first,
                },
                grid_width: workgroups[0],
                epsilon,
            },
            workgroups,
        ))
    }

    /// Writes gamma and the gate, or beta, to the workspace as reals, for kernels over rows where the adapter binds too
    /// few buffers.
    pub fn pack_weights(
        &self,
        param: &Requirement,
        gate: Option<&Requirement>,
        of_beta: bool,
        weights: Region,
    ) -> Result<Dispatch, Error> {
        let gate = gate.filter(|gate| gate.tensor != param.tensor && !of_beta);
        let read = [param].into_iter().chain(gate).map(Binding::whole);
        let workgroup_size = self.workgroup(PACK_WORKGROUP);
        let vec4s = div_ceil(param.elements, 4);
        let workgroups = self.workgroups(div_ceil(vec4s, u64::from(workgroup_size)))?;
        Ok(self.dispatch(
            PackWeights { of_beta },
            workgroup_size,
            read.chain([Binding::workspace()]).collect(),
            &PackWeightsUniforms {
                columns: word(param.elements),
                weights: weights.first,
                grid_width: workgroups[0],
            },
            workgroups,
        ))
    }
}
