//! The reduction by runs.

use super::describe::{Constants, Describe, Uniform, constants, uniforms};
use super::groups::RunTiles;
use super::{Entry, Kernel, Part, Tensor, of_a_packet, parts, tree};

constants! {
    struct ReduceRuns {
        packet_quads: u32,
        general: bool,
        packet_aligned: bool,
        quad_aligned: bool,
    }
}

uniforms! {
    struct ReduceRunsUniforms {
        outer: u32,
        /// Runs of a tile.
        outer_block: u32,
        tiles: RunTiles,
        partials: u32,
    }
}

impl ReduceRuns {
    /// Runs that an invocation takes part in, and its packets of one: those that a run touches, and that it fills.
    fn walk(&self, uniforms: &ReduceRunsUniforms, workgroup_size: u64) -> (u64, u64, u64) {
        let lanes = u64::from(uniforms.tiles.lanes.max(1));
        let packet = 4 * u64::from(self.packet_quads);
        let filled = u64::from(uniforms.tiles.chunk).div_ceil(packet);
        let touched = filled + u64::from(!self.packet_aligned);
        let runs = u64::from(uniforms.outer_block).div_ceil((workgroup_size / lanes).max(1));
        (runs, touched.div_ceil(lanes), filled.div_ceil(lanes))
    }
}

impl Describe for ReduceRuns {
    const KERNEL: Kernel = Kernel::ReduceRuns;
    type Uniforms = ReduceRunsUniforms;

    fn iterations(&self, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let (runs, packets, _) = self.walk(uniforms, workgroup_size);
        // A block of one packet, and its result in passing.
        let of_a_packet = of_a_packet(self.packet_quads, false) + u64::from(self.packet_quads);
        runs * (1 + packets * (1 + of_a_packet)) + tree(workgroup_size)
    }

    /// A run's neighbours count as 0.
    fn serial_adds(&self, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let (runs, _, packets) = self.walk(uniforms, workgroup_size);
        runs * packets * u64::from(self.packet_quads)
    }
}

pub(super) const ENTRY: Entry = Entry {
    name: "reduce_runs",
    text: &[
        Part::Always(parts::TILES),
        Part::Always(parts::RECORDS),
        Part::Body,
        Part::Always(parts::LANES),
        Part::Always(parts::WORKGROUP_SUM),
        Part::Always(parts::AXES),
        Part::Always(parts::PACKETS),
        Part::Always(parts::QUADS),
        Part::Always(parts::RUNS),
        Part::Always(parts::REDUCE_RUN),
        Part::Always(include_str!("../../shaders/traversals/reduce_runs.wgsl")),
    ],
    tensors: &[
        Tensor::Src,
        Tensor::DiffDst,
        Tensor::Workspace,
        Tensor::DiffSrc,
    ],
    optional: &[Tensor::DiffSrc],
    constants: ReduceRuns::SAMPLES,
    uniforms: ReduceRunsUniforms::KIND,
    ..Entry::OVER_CHANNELS
};
