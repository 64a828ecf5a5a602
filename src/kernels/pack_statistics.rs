//! The kernel that gathers statistics in the workspace.

use super::describe::{constants, uniforms};
use super::files::{File, file};
use super::shared_uniforms::GroupSizes;
use super::{Body, Describe, Kernel};

constants! {
    struct PackStatistics {
        /// The channels' records are there, and lack only gamma and beta.
        again: bool,
        /// Channels that share statistics or parameters are not side by side.
        mixed: bool,
    }
}

uniforms! {
    struct PackStatisticsUniforms {
        channels: u32,
        groups: GroupSizes,
        /// Where the records begin in the workspace.
        stats: u32,
        /// Workgroups along x.
        grid_width: u32,
        epsilon: f64,
    }
}

impl Describe for PackStatistics {
    const KERNEL: Kernel = Kernel::PackStatistics;
    const FILE: File = file!("traversals/pack_statistics");
    type Uniforms = PackStatisticsUniforms;

    fn iterations(&self, _: Body, _: &Self::Uniforms, _: u64) -> u64 {
        4
    }
}
