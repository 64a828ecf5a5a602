//! The reduction by columns.

use super::describe::{Constants, Describe, Uniform, constants, uniforms};
use super::groups::ColumnTiles;
use super::{Entry, Kernel, Part, Tensor, of_a_packet, parts, tree};

constants! {
    struct ReduceColumns {
        column_packets: u32,
        packet_quads: u32,
        general: bool,
        /// The last row is complete.
        complete: bool,
        /// The tensor ends with a packet.
        whole: bool,
        /// Several invocations own the same columns.
        stacked: bool,
        /// A channel's columns are added before they are written.
        folded: bool,
        /// Columns are channels, two to a record.
        paired: bool,
    }
}

uniforms! {
    struct ReduceColumnsUniforms {
        tiles: ColumnTiles,
        partials: u32,
    }
}

impl Describe for ReduceColumns {
    const KERNEL: Kernel = Kernel::ReduceColumns;
    type Uniforms = ReduceColumnsUniforms;

    fn iterations(&self, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let tiles = &uniforms.tiles;
        let (packets, quads) = (u64::from(self.column_packets), u64::from(self.packet_quads));
        let row_lanes = (workgroup_size / u64::from(tiles.column_lanes.max(1))).max(1);
        let of_packets = packets * of_a_packet(self.packet_quads, false);
        let rows = u64::from(tiles.tile_rows).div_ceil(row_lanes);
        // Cells, then a block's beginning and end.
        let around = 3 * packets * (1 + quads);
        let sums = packets * (1 + quads * (1 + tree(row_lanes) + 4));
        let folded = u64::from(self.folded) * {
            let row = (u64::from(tiles.channels) * u64::from(tiles.inner)).max(1);
            let width = 4 * quads * u64::from(tiles.width_packets);
            let channels = u64::from(tiles.channels).div_ceil(workgroup_size);
            of_packets + channels * (1 + width.div_ceil(row) * (1 + u64::from(tiles.inner)))
        };
        around + 1 + rows * (1 + of_packets) + sums + folded
    }

    fn serial_adds(&self, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let row_lanes = (workgroup_size / u64::from(uniforms.tiles.column_lanes.max(1))).max(1);
        u64::from(uniforms.tiles.tile_rows).div_ceil(row_lanes)
    }
}

pub(super) const ENTRY: Entry = Entry {
    name: "reduce_columns",
    text: &[
        Part::Always(parts::TILES),
        Part::Always(parts::RECORDS),
        Part::Body,
        Part::Always(parts::LANES),
        Part::Always(parts::AXES),
        Part::Always(parts::PACKETS),
        Part::Always(parts::COLUMNS),
        Part::Always(parts::STACKED_SUM),
        Part::Always(parts::PAIRED_SUMS),
        Part::Always(include_str!("../../shaders/traversals/reduce_columns.wgsl")),
    ],
    tensors: &[
        Tensor::Src,
        Tensor::DiffDst,
        Tensor::Workspace,
        Tensor::DiffSrc,
    ],
    optional: &[Tensor::DiffSrc],
    constants: ReduceColumns::SAMPLES,
    uniforms: ReduceColumnsUniforms::KIND,
    ..Entry::OVER_CHANNELS
};
