//! The reduction by rows.

use super::describe::{Constants, Describe, Uniform, constants, uniforms};
use super::groups::RowTiles;
use super::{Entry, Kernel, Part, Tensor, of_a_packet, parts, tree};

constants! {
    struct ReduceRows {
        /// Invocations side by side in a row, a power of two.
        lanes: u32,
        /// Of which so many write one partial sum.
        joined: u32,
        /// Packets of a row that each of them holds.
        column_packets: u32,
        packet_quads: u32,
        /// Those that write one partial sum are of one subgroup.
        subgroups: bool,
        /// So many hold a row: it has one sum, which is complete.
        one_part: bool,
        /// Every row begins at a quad.
        aligned: bool,
        /// Every invocation's packets are in the row.
        complete: bool,
        /// gamma is given.
        scaled: bool,
        /// gamma is in the workspace.
        weighted: bool,
        /// The parameters' gradients are wanted.
        summed: bool,
        /// A workgroup adds up its sums of a column before it writes them.
        stacked: bool,
        /// The sums of columns are complete.
        direct: bool,
    }
}

uniforms! {
    struct ReduceRowsUniforms {
        tiles: RowTiles,
        /// Tiles along a row.
        column_tiles: u32,
        /// Partial sums of a row.
        row_parts: u32,
        stats: u32,
        weights: u32,
        row_partials: u32,
        partials: u32,
        /// 1 / columns.
        inverse_count: f64,
    }
}

impl Describe for ReduceRows {
    const KERNEL: Kernel = Kernel::ReduceRows;
    type Uniforms = ReduceRowsUniforms;

    fn iterations(&self, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64 {
        let of_packets = u64::from(self.column_packets) * of_a_packet(self.packet_quads, false);
        let columns = u64::from(self.packet_quads) * (1 + tree(workgroup_size) + 4);
        let rows = uniforms.tiles.walk();
        of_packets
            + rows * (1 + of_packets + tree(self.joined))
            + u64::from(self.column_packets) * (1 + columns)
    }

    fn in_a_subgroup(&self) -> u32 {
        if self.subgroups { self.joined } else { 0 }
    }

    fn serial_adds(&self, uniforms: &Self::Uniforms, _: u64) -> u64 {
        uniforms.tiles.walk()
    }
}

pub(super) const ENTRY: Entry = Entry {
    name: "reduce_rows",
    text: &[
        Part::Always(parts::TILES),
        Part::Always(parts::RECORDS),
        Part::Body,
        Part::Always(parts::PAIRED_SUMS),
        Part::Always(parts::PACKETS),
        Part::Always(parts::ROWS),
        Part::Always(parts::COLUMN_SUMS),
        Part::If("subgroups", parts::ROW_SUM_SUBGROUP),
        Part::Unless("subgroups", parts::ROW_SUM_WORKGROUP),
        Part::Always(parts::SPLIT_ROWS),
        Part::Always(include_str!("../../shaders/traversals/reduce_rows.wgsl")),
    ],
    tensors: &[
        Tensor::Src,
        Tensor::DiffDst,
        Tensor::Gamma,
        Tensor::Workspace,
        Tensor::DiffGamma,
        Tensor::DiffBeta,
    ],
    optional: &[Tensor::Gamma, Tensor::DiffGamma, Tensor::DiffBeta],
    constants: ReduceRows::SAMPLES,
    uniforms: ReduceRowsUniforms::KIND,
    gamma_length: "columns",
    ..Entry::OVER_CHANNELS
};
