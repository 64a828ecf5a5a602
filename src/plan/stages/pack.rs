//! The dispatches that write a record of each channel or row: what is known before the sums.

use crate::kernels::{GroupSizes, PackStatistics, PackStatisticsUniforms};
use crate::plan::axes::Groups;
use crate::plan::dispatch::{Binding, Dispatch, Requirement};
use crate::plan::limits::Unfit;
use crate::plan::planner::Planner;
use crate::plan::sizes::div_ceil;
use crate::plan::workspace::Region;

/// Invocations in a workgroup where each has work of its own and shares nothing.
pub(crate) const PACK_WORKGROUP: u32 = 64;

/// The records in the workspace that a dispatch adds parameters to.
enum Known {
    Nothing,
    /// Those that it writes.
    OfChannels,
    /// One of each statistic.
    OfStatistics(Region),
}

impl Planner<'_> {
    /// Writes a record for each of some channels or rows, with its statistics and `params`: in one dispatch if it can
    /// bind all these tensors, else in one for the statistics and one for `params`.
    pub fn pack_statistics(
        &self,
        channels: u32,
        sizes: GroupSizes,
        [statistics, params]: [&[Requirement]; 2],
        stats: Region,
    ) -> Result<Vec<Dispatch>, Unfit> {
        let pack = |read: &[Requirement], known| self.pack(channels, sizes, read, stats, known);
        let all = [statistics, params].concat();
        if self.profile.binds(all.len() + 1) {
            return Ok(vec![pack(&all, Known::Nothing)?]);
        }
        Ok(vec![
            pack(statistics, Known::Nothing)?,
            pack(params, Known::OfChannels)?,
        ])
    }

    /// Writes a record for each channel, from its parameters and from the record of what shares its statistics.
    pub fn spread_statistics(
        &self,
        groups: &Groups,
        of_statistics: Region,
        stats: Region,
    ) -> Result<Dispatch, Unfit> {
        let known = Known::OfStatistics(of_statistics);
        let (channels, sizes) = (groups.channels_of_all(), groups.sizes());
        self.pack(channels, sizes, &self.tensors.params, stats, known)
    }

    fn pack(
        &self,
        channels: u32,
        groups: GroupSizes,
        read: &[Requirement],
        stats: Region,
        known: Known,
    ) -> Result<Dispatch, Unfit> {
        let workgroup_size = self.workgroup(PACK_WORKGROUP);
        let tiles = div_ceil(u64::from(channels), 4 * u64::from(workgroup_size));
        let workgroups = self.profile.workgroups(tiles)?;
        let mut bindings: Vec<_> = read.iter().map(Binding::whole).collect();
        bindings.push(Binding::workspace());
        let kernel = PackStatistics {
            again: matches!(known, Known::OfChannels),
            of_statistics: matches!(known, Known::OfStatistics(_)),
            mixed: groups.statistics_axes != groups.parameter_axes,
        };
        let (known, epsilon) = match known {
            Known::OfStatistics(region) => (region.first, 0.0),
            _ => (stats.first, self.problem.epsilon),
        };
        let uniforms = PackStatisticsUniforms {
            channels,
            groups,
            stats: stats.first,
            known,
            grid_width: workgroups[0],
            epsilon,
        };
        Ok(self.dispatch(kernel, workgroup_size, bindings, &uniforms, workgroups))
    }
}
