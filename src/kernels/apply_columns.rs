//! The elementwise pass by columns.

use super::describe::{Constants, Describe, Uniform, constants, uniforms};
use super::groups::ColumnTiles;
use super::{Entry, Kernel, Part, Tensor, of_a_packet, parts};

constants! {
    struct ApplyColumns {
        column_packets: u32,
        packet_quads: u32,
        general: bool,
        complete: bool,
        whole: bool,
        batch_statistics: bool,
    }
}

uniforms! {
    struct ApplyColumnsUniforms {
        tiles: ColumnTiles,
        means: u32,
    }
}

impl Describe for ApplyColumns {
    const KERNEL: Kernel = Kernel::ApplyColumns;
    type Uniforms = ApplyColumnsUniforms;

    fn iterations(&self, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let tiles = &uniforms.tiles;
        let packets = u64::from(self.column_packets);
        let row_lanes = (workgroup_size / u64::from(tiles.column_lanes.max(1))).max(1);
        let rows = u64::from(tiles.tile_rows).div_ceil(row_lanes);
        let init = packets * (1 + u64::from(self.packet_quads));
        init + rows * (1 + packets * of_a_packet(self.packet_quads, false))
    }
}

pub(super) const ENTRY: Entry = Entry {
    name: "apply_columns",
    text: &[
        Part::Always(parts::TILES),
        Part::Always(parts::RECORDS),
        Part::Body,
        Part::Always(parts::LANES),
        Part::Always(parts::AXES),
        Part::Always(parts::PACKETS),
        Part::Always(parts::COLUMNS),
        Part::Always(include_str!("../../shaders/traversals/apply_columns.wgsl")),
    ],
    tensors: &[
        Tensor::Src,
        Tensor::DiffDst,
        Tensor::Workspace,
        Tensor::DiffSrc,
    ],
    optional: &[Tensor::Src],
    constants: ApplyColumns::SAMPLES,
    uniforms: ApplyColumnsUniforms::KIND,
    ..Entry::OVER_CHANNELS
};
