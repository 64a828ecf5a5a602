//! The kernel that combines the sums of a group's channels.

use super::describe::{constants, uniforms};
use super::files::{File, file};
use super::shared_uniforms::{GroupSizes, Scalars};
use super::{Body, Describe, Kernel, sum_of};

constants! {
    struct CombineGroups {
        /// Invocations that share four groups, a power of two.
        threads: u32,
        /// Channels that share statistics or parameters are not side by side.
        mixed: bool,
    }
}

uniforms! {
    struct CombineGroupsUniforms {
        groups: GroupSizes,
        /// Workgroups along x.
        grid_width: u32,
        /// Where the channels' coefficients and their sums begin in the workspace.
        stats: u32,
        sums: u32,
        scalars: Scalars,
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
        let channels = uniforms
            .groups
            .sharing
            .group_channels
            .div_ceil(self.threads.max(1));
        u64::from(channels) * (2 + 4) + sum_of(self.threads, workgroup_size)
    }

    fn sequential_adds(&self, _: Body, uniforms: &Self::Uniforms, _: u64) -> u64 {
        let threads = u64::from(self.threads.max(1));
        u64::from(uniforms.groups.sharing.group_channels)
            .div_ceil(threads * TIER)
            .max(TIER)
    }
}
