//! The whole gradient by columns.

use super::describe::{Constants, Describe, Uniform, constants, uniforms};
use super::{Entry, Kernel, Part, Tensor, of_a_packet, parts, tree};

constants! {
    struct FusedColumns {
        packet_quads: u32,
        /// Several invocations own the same channels.
        stacked: bool,
    }
}

uniforms! {
    struct FusedColumnsUniforms {
        rows: u32,
        /// Whole packets, also the length of mean, variance and the parameter gradients.
        channels: u32,
        /// Invocations side by side in a workgroup.
        column_lanes: u32,
        /// Workgroups along x.
        grid_width: u32,
        /// For buffers that end inside of a packet, which these do not.
        length: u32,
        epsilon: f64,
        inverse_count: f64,
    }
}

impl FusedColumns {
    /// Invocations that own the same channels, and rows of each.
    fn walk(&self, uniforms: &FusedColumnsUniforms, workgroup_size: u64) -> (u64, u64) {
        let row_lanes = (workgroup_size / u64::from(uniforms.column_lanes.max(1))).max(1);
        (row_lanes, u64::from(uniforms.rows).div_ceil(row_lanes))
    }
}

impl Describe for FusedColumns {
    const KERNEL: Kernel = Kernel::FusedColumns;
    type Uniforms = FusedColumnsUniforms;

    fn iterations(&self, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let (row_lanes, rows) = self.walk(uniforms, workgroup_size);
        let of_a_packet = of_a_packet(self.packet_quads, false);
        let sums = u64::from(self.packet_quads) * (2 + tree(row_lanes));
        sums + rows.div_ceil(64) * 2 * of_a_packet + 2 * rows * of_a_packet
    }

    /// In blocks of 64 rows.
    fn serial_adds(&self, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        self.walk(uniforms, workgroup_size).1.div_ceil(64).max(64)
    }
}

pub(super) const ENTRY: Entry = Entry {
    name: "fused_columns",
    text: &[
        Part::Always(parts::TILES),
        Part::Always(parts::RECORDS),
        Part::Body,
        Part::Always(parts::LANES),
        Part::Always(parts::PACKETS),
        Part::Always(parts::STACKED_SUM),
        Part::Always(include_str!("../../shaders/traversals/fused_columns.wgsl")),
    ],
    tensors: &[
        Tensor::Src,
        Tensor::DiffDst,
        Tensor::Gamma,
        Tensor::DiffSrc,
        Tensor::DiffGamma,
        Tensor::DiffBeta,
    ],
    statistics: true,
    optional: &[Tensor::Gamma, Tensor::DiffGamma, Tensor::DiffBeta],
    constants: FusedColumns::SAMPLES,
    uniforms: FusedColumnsUniforms::KIND,
    ..Entry::OVER_CHANNELS
};
