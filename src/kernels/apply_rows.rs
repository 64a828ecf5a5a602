//! The elementwise pass by rows.

use super::describe::{Constants, Describe, Uniform, constants, uniforms};
use super::groups::RowTiles;
use super::{Entry, Kernel, Part, Tensor, of_a_packet, parts};

constants! {
    struct ApplyRows {
        /// Invocations side by side in a row, a power of two.
        lanes: u32,
        /// Packets of a row that each of them holds.
        column_packets: u32,
        packet_quads: u32,
        /// The means of a row's sums are behind its statistics.
        one_part: bool,
        /// Every row begins at a quad.
        aligned: bool,
        /// Every invocation's packets are in the row.
        complete: bool,
        /// gamma is given.
        scaled: bool,
        /// gamma is in the workspace.
        weighted: bool,
        /// Rows are shorter than a quad.
        narrow: bool,
        /// The tensor ends with a packet.
        whole: bool,
    }
}

uniforms! {
    struct ApplyRowsUniforms {
        tiles: RowTiles,
        /// Tiles along a row.
        column_tiles: u32,
        stats: u32,
        means: u32,
        weights: u32,
    }
}

impl Describe for ApplyRows {
    const KERNEL: Kernel = Kernel::ApplyRows;
    type Uniforms = ApplyRowsUniforms;

    fn iterations(&self, uniforms: &Self::Uniforms, _: u64) -> u64 {
        let packets = u64::from(self.column_packets);
        let gamma = 4 * u64::from(self.packet_quads) * u64::from(!self.aligned);
        let of_a_row = packets * (of_a_packet(self.packet_quads, self.narrow) + gamma);
        let before = packets * of_a_packet(self.packet_quads, false);
        before + uniforms.tiles.walk() * (1 + of_a_row)
    }
}

pub(super) const ENTRY: Entry = Entry {
    name: "apply_rows",
    text: &[
        Part::Always(parts::TILES),
        Part::Always(parts::RECORDS),
        Part::Body,
        Part::Always(parts::PACKETS),
        Part::Always(parts::ROWS),
        Part::Always(parts::SPLIT_ROWS),
        Part::Always(include_str!("../../shaders/traversals/apply_rows.wgsl")),
    ],
    tensors: &[
        Tensor::Src,
        Tensor::DiffDst,
        Tensor::Gamma,
        Tensor::Workspace,
        Tensor::DiffSrc,
    ],
    optional: &[Tensor::Gamma],
    constants: ApplyRows::SAMPLES,
    uniforms: ApplyRowsUniforms::KIND,
    gamma_length: "columns",
    ..Entry::OVER_CHANNELS
};
