//! The whole gradient by runs.

use super::describe::{Constants, Describe, Uniform, constants, uniforms};
use super::groups::TileRange;
use super::{Entry, Kernel, Part, Tensor, of_a_packet, parts, tree};

constants! {
    struct FusedRuns {
        packet_quads: u32,
        packet_aligned: bool,
        quad_aligned: bool,
        narrow: bool,
        whole: bool,
        /// Only where runs begin at packets.
        in_turns: bool,
    }
}

uniforms! {
    struct FusedRunsUniforms {
        outer: u32,
        /// Also the length of mean, variance and the parameter gradients.
        channels: u32,
        inner: u32,
        /// Channels of a workgroup, at most `workgroup_size`.
        block: u32,
        /// Invocations side by side on a run.
        lanes: u32,
        /// Groups of them on a channel's runs, at most `outer`.
        outer_lanes: u32,
        range: TileRange,
        epsilon: f64,
        inverse_count: f64,
    }
}

impl FusedRuns {
    /// Runs that an invocation takes part in, and its packets of one: those that a run touches, and that begin in it.
    fn walk(&self, uniforms: &FusedRunsUniforms) -> (u64, u64, u64) {
        let lanes = u64::from(uniforms.lanes.max(1));
        let begun = u64::from(uniforms.inner).div_ceil(4 * u64::from(self.packet_quads));
        let touched = begun + u64::from(!self.packet_aligned);
        let runs = uniforms.outer.div_ceil(uniforms.outer_lanes.max(1));
        (runs.into(), touched.div_ceil(lanes), begun.div_ceil(lanes))
    }
}

impl Describe for FusedRuns {
    const KERNEL: Kernel = Kernel::FusedRuns;
    type Uniforms = FusedRunsUniforms;

    fn iterations(&self, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let group = u64::from(uniforms.lanes.max(1)) * u64::from(uniforms.outer_lanes.max(1));
        let block = u64::from(uniforms.block);
        let turns = block.div_ceil((workgroup_size / group).max(1));
        let (runs, touched, begun) = self.walk(uniforms);
        let reduce = runs * (1 + touched * (1 + of_a_packet(self.packet_quads, false)));
        let apply = runs * (1 + begun * of_a_packet(self.packet_quads, self.narrow));
        let stores = block.div_ceil(4).div_ceil(workgroup_size);
        turns * (1 + tree(group) + reduce) + stores + turns * (1 + apply)
    }

    /// A run's neighbours count as 0.
    fn serial_adds(&self, uniforms: &Self::Uniforms, _: u64) -> u64 {
        let (runs, _, begun) = self.walk(uniforms);
        runs * begun * u64::from(self.packet_quads)
    }
}

pub(super) const ENTRY: Entry = Entry {
    name: "fused_runs",
    text: &[
        Part::Always(parts::TILES),
        Part::Always(parts::RECORDS),
        Part::Body,
        Part::Always(parts::LANES),
        Part::Always(parts::PACKETS),
        Part::Always(parts::QUADS),
        Part::Always(parts::APPLY_RUN),
        Part::Always(parts::REDUCE_RUN),
        Part::Always(include_str!("../../shaders/traversals/fused_runs.wgsl")),
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
    constants: FusedRuns::SAMPLES,
    uniforms: FusedRunsUniforms::KIND,
    ..Entry::OVER_CHANNELS
};
