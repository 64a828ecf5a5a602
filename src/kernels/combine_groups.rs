//! The kernel that combines the sums of a group's channels.

use super::describe::{constants, uniforms};
use super::files::{File, file};
use super::shared_uniforms::{GroupSizes, Scalars, SplitPartials};
use super::{Body, Describe, Kernel, sum_of};

constants! {
    struct CombineGroups {
        /// Invocations that share four groups or parameters, a power of two.
        threads: u32,
        /// Each split has one partial sum of a channel.
        plain: bool,
        /// There are workgroups of parameters, after those of groups.
        of_parameters: bool,
        /// Channels that share statistics or parameters are not side by side.
        mixed: bool,
    }
}

uniforms! {
    struct CombineGroupsUniforms {
        groups: GroupSizes,
        /// Workgroups along x.
        grid_width: u32,
        /// The workgroups of groups.
        group_tiles: u32,
        /// Channels of all samples.
        channels: u32,
        partials: SplitPartials,
        /// Where the channels' coefficients and the records for the elementwise pass begin in the workspace.
        stats: u32,
        combined: u32,
        scalars: Scalars,
    }
}

impl CombineGroups {
    /// The most partial sums that belong to a group or a parameter.
    fn added(&self, uniforms: &CombineGroupsUniforms) -> u64 {
        let sharing = &uniforms.groups.sharing;
        let with_a_parameter = uniforms.channels / sharing.parameters.max(1);
        let with_a_parameter = u32::from(self.of_parameters) * with_a_parameter;
        let members = sharing.group_channels.max(with_a_parameter);
        u64::from(members) * u64::from(uniforms.partials.partial_count)
    }
}

/// Channels in a tier of the sum over a group's channels.
pub(crate) const TIER: u64 = 32;

impl Describe for CombineGroups {
    const KERNEL: Kernel = Kernel::CombineGroups;
    const FILE: File = file!("traversals/combine_groups");
    type Uniforms = CombineGroupsUniforms;

    fn adders(&self, workgroup_size: u32) -> Option<u32> {
        Some(workgroup_size)
    }

    fn iterations(&self, _: Body, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let threads = u64::from(self.threads.max(1));
        let channels = u64::from(uniforms.groups.sharing.group_channels).div_ceil(threads);
        self.added(uniforms).div_ceil(threads)
            + channels * (1 + 4)
            + sum_of(threads, workgroup_size)
    }

    fn sequential_adds(&self, _: Body, uniforms: &Self::Uniforms, _: u64) -> u64 {
        let threads = u64::from(self.threads.max(1));
        self.added(uniforms).div_ceil(threads * TIER).max(TIER)
    }
}
