//! The kernel that adds up partial sums.

use super::describe::{constants, uniforms};
use super::files::{File, file};
use super::shared_uniforms::{AxisSizes, Scalars, SplitPartials};
use super::{Body, Describe, Kernel, sum_of};

constants! {
    struct Finish {
        /// Invocations that share four channels, a power of two.
        threads: u32,
        /// The partial sums are those of channels that share a result, and are not side by side.
        mixed: bool,
        /// Partial sums are `partial_stride` apart.
        plain: bool,
        /// They are too, and come in whole vec4s, two channels to a record.
        paired: bool,
        /// Subtotals are written, for another dispatch to add up.
        to_subtotals: bool,
        /// They are added to the subtotals that are there.
        added: bool,
        /// The sums come from the buffer `sums`, or go there.
        from_sums: bool,
        to_sums: bool,
        /// The means are written, too.
        derive: bool,
    }
}

uniforms! {
    struct FinishUniforms {
        channels: u32,
        partials: SplitPartials,
        /// Workgroups for all channels.
        channel_tiles: u32,
        /// Partial sums that a workgroup adds up: all of them unless `to_subtotals`.
        subtotal_partials: u32,
        /// The axes of `mixed` channels, and which of these the results vary along.
        axes: AxisSizes,
        result_axes: u32,
        /// Workgroups along x.
        grid_width: u32,
        subtotals: u32,
        means: u32,
        /// The number of shards whose sums are in the buffer `sums`, and which of them is this device's.
        shards: u32,
        shard: u32,
        /// Elements in a channel.
        count: f64,
        scalars: Scalars,
    }
}

impl Describe for Finish {
    const KERNEL: Kernel = Kernel::Finish;
    const FILE: File = file!("traversals/finish");
    type Uniforms = FinishUniforms;

    fn adders(&self, workgroup_size: u32) -> Option<u32> {
        Some(workgroup_size)
    }

    fn iterations(&self, _: Body, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        u64::from(uniforms.subtotal_partials.div_ceil(self.threads.max(1)))
            + sum_of(self.threads, workgroup_size)
            + 4
            + u64::from(uniforms.shards)
    }

    /// In tiers of 32.
    fn sequential_adds(&self, _: Body, uniforms: &Self::Uniforms, _: u64) -> u64 {
        let threads = u64::from(self.threads.max(1));
        u64::from(uniforms.subtotal_partials)
            .div_ceil(threads * 1024)
            .max(32)
    }
}
