//! The elementwise pass by runs.

use super::describe::{Constants, Describe, Uniform, constants, uniforms};
use super::groups::RunTiles;
use super::{Entry, Kernel, Part, Tensor, of_a_packet, parts};

constants! {
    struct ApplyRuns {
        packet_quads: u32,
        general: bool,
        packet_aligned: bool,
        quad_aligned: bool,
        narrow: bool,
        whole: bool,
        batch_statistics: bool,
    }
}

uniforms! {
    struct ApplyRunsUniforms {
        /// outer · channels
        runs: u32,
        /// Runs of a tile.
        run_block: u32,
        tiles: RunTiles,
        means: u32,
    }
}

impl Describe for ApplyRuns {
    const KERNEL: Kernel = Kernel::ApplyRuns;
    type Uniforms = ApplyRunsUniforms;

    fn iterations(&self, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let lanes = u64::from(uniforms.tiles.lanes.max(1));
        let packet = 4 * u64::from(self.packet_quads);
        let runs = u64::from(uniforms.run_block).div_ceil((workgroup_size / lanes).max(1));
        let packets = u64::from(uniforms.tiles.chunk)
            .div_ceil(packet)
            .div_ceil(lanes);
        runs * (1 + packets * of_a_packet(self.packet_quads, self.narrow))
    }
}

pub(super) const ENTRY: Entry = Entry {
    name: "apply_runs",
    text: &[
        Part::Always(parts::TILES),
        Part::Always(parts::RECORDS),
        Part::Body,
        Part::Always(parts::LANES),
        Part::Always(parts::AXES),
        Part::Always(parts::PACKETS),
        Part::Always(parts::QUADS),
        Part::Always(parts::RUNS),
        Part::Always(parts::APPLY_RUN),
        Part::Always(include_str!("../../shaders/traversals/apply_runs.wgsl")),
    ],
    tensors: &[
        Tensor::Src,
        Tensor::DiffDst,
        Tensor::Workspace,
        Tensor::DiffSrc,
    ],
    optional: &[Tensor::Src],
    constants: ApplyRuns::SAMPLES,
    uniforms: ApplyRunsUniforms::KIND,
    ..Entry::OVER_CHANNELS
};
