//! The whole gradient by rows.

use super::describe::{Constants, Describe, Uniform, constants, uniforms};
use super::groups::RowTiles;
use super::{Entry, Kernel, Part, Tensor, of_a_packet, parts, tree};

constants! {
    struct FusedRows {
        /// Invocations side by side in a row, a power of two.
        lanes: u32,
        /// Packets of a row that each of them holds.
        column_packets: u32,
        packet_quads: u32,
        /// The invocations of a row are of one subgroup.
        subgroups: bool,
        /// Every row begins at a quad.
        aligned: bool,
        /// Every invocation's packets are in the row.
        complete: bool,
        /// gamma is given.
        scaled: bool,
        /// The parameters' gradients are wanted.
        summed: bool,
        /// A workgroup adds up its sums of a column before it writes them.
        stacked: bool,
    }
}

uniforms! {
    struct FusedRowsUniforms {
        tiles: RowTiles,
        partials: u32,
        epsilon: f64,
        inverse_count: f64,
    }
}

impl Describe for FusedRows {
    const KERNEL: Kernel = Kernel::FusedRows;
    type Uniforms = FusedRowsUniforms;

    fn iterations(&self, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let of_packets = u64::from(self.column_packets) * of_a_packet(self.packet_quads, false);
        let columns = u64::from(self.packet_quads) * (1 + tree(workgroup_size) + 4);
        let rows = uniforms.tiles.walk();
        of_packets
            + rows * (1 + 2 * of_packets + tree(self.lanes))
            + u64::from(self.column_packets) * (1 + columns)
    }

    fn in_a_subgroup(&self) -> u32 {
        if self.subgroups { self.lanes } else { 0 }
    }

    fn serial_adds(&self, uniforms: &Self::Uniforms, _: u64) -> u64 {
        uniforms.tiles.walk()
    }
}

pub(super) const ENTRY: Entry = Entry {
    name: "fused_rows",
    text: &[
        Part::Always(parts::TILES),
        Part::Always(parts::RECORDS),
        Part::Body,
        Part::Always(parts::PAIRED_SUMS),
        Part::Always(parts::PACKETS),
        Part::Always(parts::ROWS),
        Part::Always(parts::COLUMN_SUMS),
        Part::If("aligned", parts::ALIGNED_ROWS),
        Part::Unless("aligned", parts::UNALIGNED_ROWS),
        Part::If("subgroups", parts::ROW_SUM_SUBGROUP),
        Part::Unless("subgroups", parts::ROW_SUM_WORKGROUP),
        Part::Always(include_str!("../../shaders/traversals/fused_rows.wgsl")),
    ],
    tensors: &[
        Tensor::Src,
        Tensor::DiffDst,
        Tensor::Gamma,
        Tensor::Workspace,
        Tensor::DiffSrc,
    ],
    statistics: true,
    optional: &[Tensor::Gamma],
    constants: FusedRows::SAMPLES,
    uniforms: FusedRowsUniforms::KIND,
    statistics_length: "rows",
    gamma_length: "columns",
};
