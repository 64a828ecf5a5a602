//! The whole gradient or forward pass, channels last.

use super::describe::{constants, uniforms};
use super::files::{File, file};
use super::shared_uniforms::Scalars;
use super::{Body, Describe, Kernel, of_a_vector, sum_of};

constants! {
    struct ChannelsLastFused {
        vector_vec4s: u32,
        /// Several invocations own the same channels.
        add_thread_rows: bool,
    }
}

uniforms! {
    struct ChannelsLastFusedUniforms {
        rows: u32,
        /// A number of whole vectors, and also the length of mean, variance and the parameter gradients.
        channels: u32,
        /// Invocations of a workgroup that are side by side in a row.
        threads_per_row: u32,
        /// Workgroups along x.
        grid_width: u32,
        /// For buffers that end inside a vector; these do not.
        length: u32,
        scalars: Scalars,
    }
}

impl ChannelsLastFused {
    /// The number of invocations that own the same channels, and of rows that each walks.
    fn walk(&self, uniforms: &ChannelsLastFusedUniforms, workgroup_size: u64) -> (u64, u64) {
        let thread_rows = (workgroup_size / u64::from(uniforms.threads_per_row.max(1))).max(1);
        (thread_rows, u64::from(uniforms.rows).div_ceil(thread_rows))
    }
}

impl Describe for ChannelsLastFused {
    const KERNEL: Kernel = Kernel::ChannelsLastFused;
    const FILE: File = file!("traversals/channels_last_fused");
    type Uniforms = ChannelsLastFusedUniforms;

    fn adders(&self, workgroup_size: u32) -> u32 {
        workgroup_size
    }

    fn iterations(&self, body: Body, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let (thread_rows, rows) = self.walk(uniforms, workgroup_size);
        let of_a_vector = of_a_vector(self.vector_vec4s, false);
        let sums = u64::from(self.vector_vec4s) * (2 + sum_of(thread_rows, workgroup_size));
        sums + rows.div_ceil(body.block_rows()) * 2 * of_a_vector + 2 * rows * of_a_vector
    }

    fn sequential_adds(&self, body: Body, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let (_, rows) = self.walk(uniforms, workgroup_size);
        rows.div_ceil(body.block_rows()).max(body.block_rows())
    }
}
