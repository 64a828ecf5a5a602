//! The dispatches that write a record of each channel or row: what is known before the sums.

use crate::kernels::{GroupSizes, PackStatistics, PackStatisticsUniforms};
use crate::plan::dispatch::{Binding, Dispatch, Requirement};
use crate::plan::limits::Unfit;
use crate::plan::planner::Planner;
use crate::plan::sizes::div_ceil;
use crate::plan::workspace::Region;

/// Invocations in a workgroup where each has work of its own and shares nothing.
pub(crate) const PACK_WORKGROUP: u32 = 64;

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
        let pack = |read: &[Requirement], again| self.pack(channels, sizes, read, stats, again);
        let all = [statistics, params].concat();
        if self.profile.binds(all.len() + 1) {
            return Ok(vec![pack(&all, false)?]);
        }
        Ok(vec![pack(statistics, false)?, pack(params, true)?])
    }

    fn pack(
        &self,
        channels: u32,
        groups: GroupSizes,
        read: &[Requirement],
        stats: Region,
        again: bool,
    ) -> Result<Dispatch, Unfit> {
        let workgroup_size = self.workgroup(PACK_WORKGROUP);
        let tiles = div_ceil(u64::from(channels), 4 * u64::from(workgroup_size));
        let workgroups = self.profile.workgroups(tiles)?;
        let mut bindings: Vec<_> = read.iter().map(Binding::whole).collect();
        bindings.push(Binding::workspace());
        let kernel = PackStatistics {
            again,
            mixed: groups.statistics_axes != groups.parameter_axes,
        };
        let uniforms = PackStatisticsUniforms {
            channels,
            groups,
            stats: stats.first,
            grid_width: workgroups[0],
            epsilon: self.problem.epsilon,
        };
        Ok(self.dispatch(kernel, workgroup_size, bindings, &uniforms, workgroups))
    }
}
