//! The dispatches that gather parameters in the workspace.

use super::tensors::Tensors;
use super::workspace::Part;
use super::{Binding, Dispatch, Planner, Requirement, div_ceil, word};
use crate::Error;
use crate::kernels::{PackStatistics, PackStatisticsUniforms, PackWeights, PackWeightsUniforms};

/// Invocations of a workgroup where each has work of its own and shares nothing.
pub(super) const PACK_WORKGROUP: u32 = 64;

impl Planner<'_> {
    /// Records of every group of elements that share statistics: what is known of its cell.
    pub fn pack_statistics(
        &self,
        tensors: &Tensors,
        gamma: Option<&Requirement>,
        epsilon: f64,
        stats: Part,
    ) -> Result<Dispatch, Error> {
        let workgroup_size = self.profile.workgroup(PACK_WORKGROUP);
        let tiles = div_ceil(tensors.statistics.groups, 4 * u64::from(workgroup_size));
        let workgroups = self.workgroups(tiles)?;
        let statistics = tensors.statistics.all();
        let mut bindings: Vec<_> = statistics.map(|tensor| Binding::whole(&tensor)).collect();
        bindings.extend(gamma.map(Binding::whole));
        bindings.push(Binding::workspace());
        Ok(Dispatch::new(
            PackStatistics {},
            workgroup_size,
            bindings,
            &PackStatisticsUniforms {
                channels: word(tensors.statistics.groups),
                stats: stats.first,
                grid_width: workgroups[0],
                epsilon,
            },
            workgroups,
        ))
    }

    /// gamma as reals, by vec4s, for row kernels where the adapter binds too few buffers.
    pub fn pack_weights(&self, gamma: &Requirement, weights: Part) -> Result<Dispatch, Error> {
        let workgroup_size = self.profile.workgroup(PACK_WORKGROUP);
        let vec4s = div_ceil(gamma.elements, 4);
        let workgroups = self.workgroups(div_ceil(vec4s, u64::from(workgroup_size)))?;
        Ok(Dispatch::new(
            PackWeights {},
            workgroup_size,
            vec![Binding::whole(gamma), Binding::workspace()],
            &PackWeightsUniforms {
                columns: word(gamma.elements),
                weights: weights.first,
                grid_width: workgroups[0],
            },
            workgroups,
        ))
    }
}
