//! The dispatches that gather parameters in the workspace.

use super::axes::Groups;
use super::tensors::Tensors;
use super::workspace::Region;
use super::{Binding, Dispatch, Planner, Requirement, div_ceil, group_sizes, word};
use crate::kernels::{
    GroupSizes, PackStatistics, PackStatisticsUniforms, PackWeights, PackWeightsUniforms,
};
use crate::{Error, Tensor};

/// Invocations in a workgroup where each has work of its own and shares nothing.
pub(super) const PACK_WORKGROUP: u32 = 64;

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

    fn pack_lines(
        &self,
        channels: u32,
        groups: GroupSizes,
        [statistics, params]: [&[Requirement]; 2],
        epsilon: f64,
        stats: Region,
    ) -> Result<Vec<Dispatch>, Error> {
        let all = [statistics, params].concat();
        if all.len() < self.profile.max_storage_buffers as usize {
            return Ok(vec![
                self.pack(channels, groups, &all, epsilon, stats, false)?,
            ]);
        }
        Ok(vec![
            self.pack(channels, groups, statistics, epsilon, stats, false)?,
            self.pack(channels, groups, params, epsilon, stats, true)?,
        ])
    }

    fn pack(
        &self,
        channels: u32,
        groups: GroupSizes,
        read: &[Requirement],
        epsilon: f64,
        stats: Region,
        again: bool,
    ) -> Result<Dispatch, Error> {
        let workgroup_size = self.workgroup(PACK_WORKGROUP);
        let tiles = div_ceil(u64::from(channels), 4 * u64::from(workgroup_size));
        let workgroups = self.workgroups(tiles)?;
        let mut bindings: Vec<_> = read.iter().map(Binding::whole).collect();
        bindings.push(Binding::workspace());
        Ok(self.dispatch(
            PackStatistics {
                again,
                mixed: groups.statistics_axes != groups.parameter_axes,
            },
            workgroup_size,
            bindings,
            &PackStatisticsUniforms {
                channels,
                groups,
                stats: stats.first,
                grid_width: workgroups[0],
                epsilon,
            },
            workgroups,
        ))
    }

    /// Writes gamma or beta to the workspace as reals, for kernels over rows where the adapter binds too few buffers.
    pub fn pack_weights(&self, param: &Requirement, weights: Region) -> Result<Dispatch, Error> {
        let workgroup_size = self.workgroup(PACK_WORKGROUP);
        let vec4s = div_ceil(param.elements, 4);
        let workgroups = self.workgroups(div_ceil(vec4s, u64::from(workgroup_size)))?;
        Ok(self.dispatch(
            PackWeights {
                of_beta: param.tensor == Tensor::Beta,
            },
            workgroup_size,
            vec![Binding::whole(param), Binding::workspace()],
            &PackWeightsUniforms {
                columns: word(param.elements),
                weights: weights.first,
                grid_width: workgroups[0],
            },
            workgroups,
        ))
    }
}
