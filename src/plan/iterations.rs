//! The most loop iterations that one invocation of a dispatch makes.
//!
//! Mesa's software drivers end an invocation's loops after 65,535 iterations, all its loops together, without an
//! error: what is left is not added, or not written. So every dispatch stays well below that. Counted is what the text
//! says, every loop as not unrolled, and of nested loops the most that each can make, since the invocations that such
//! a driver runs side by side all go on until the last one is done.

use super::{Dispatch, div_ceil};
use crate::kernels::{Kernel, PACKET_QUADS};

/// Iterations that every dispatch stays within: three quarters of what the drivers allow.
pub(crate) const MOST_ITERATIONS: u64 = 49_152;

impl Dispatch {
    /// The most loop iterations that an invocation makes.
    pub fn iterations(&self) -> u64 {
        let workgroup = u64::from(self.workgroup_size);
        let word = |name| u64::from(self.uniforms.word(self.kernel, name).unwrap_or(0));
        let size = |name| {
            let size = self.sizes.iter().find(|(size, _)| *size == name);
            size.map_or(1, |&(_, value)| u64::from(value))
        };
        let on = |name| u64::from(self.enabled.contains(&name));
        let packet_quads = size(PACKET_QUADS);
        let packet = 4 * packet_quads;
        // A packet of elements, each quad for itself.
        let by_quad = 1 + packet_quads;
        // The same where each element of a quad may be of another channel or row.
        let by_element = 1 + packet_quads * (1 + 4 * on("narrow"));
        // Packets that a range of so many elements touches, and how many begin in it.
        let touched = |elements: u64| div_ceil(elements, packet) + 1 - on("packet_aligned");
        let begun = |elements: u64| div_ceil(elements, packet);
        let of_packets = size("column_packets") * by_quad;
        match self.kernel {
            Kernel::PackStatistics => 4,
            Kernel::PackWeights | Kernel::JoinRows => 0,
            Kernel::ReduceRuns => {
                let lanes = word("lanes");
                let runs = div_ceil(word("outer_block"), workgroup / lanes);
                let packets = div_ceil(touched(word("chunk")), lanes);
                runs * (1 + packets * by_quad) + tree(workgroup)
            }
            Kernel::ApplyRuns => {
                let lanes = word("lanes");
                let runs = div_ceil(word("run_block"), workgroup / lanes);
                let packets = div_ceil(begun(word("chunk")), lanes);
                runs * (1 + packets * by_element)
            }
            Kernel::FusedRuns => {
                let lanes = word("lanes");
                let group = lanes * word("outer_lanes");
                let turns = div_ceil(word("block"), workgroup / group);
                let runs = div_ceil(word("outer"), word("outer_lanes"));
                let inner = word("inner");
                let reduce = runs * (1 + div_ceil(touched(inner), lanes) * by_quad);
                let apply = runs * (1 + div_ceil(begun(inner), lanes) * by_element);
                let stores = div_ceil(div_ceil(word("block"), 4), workgroup);
                turns * (1 + tree(group) + reduce) + stores + turns * (1 + apply)
            }
            Kernel::ReduceColumns => {
                let row_lanes = workgroup / word("column_lanes");
                let rows = div_ceil(word("tile_rows"), row_lanes);
                let init = size("column_packets") * (1 + packet_quads * (1 + 4));
                let sums = size("column_packets") * (1 + packet_quads * (1 + tree(row_lanes) + 4));
                let folded = on("folded") * {
                    let row = (word("channels") * word("inner")).max(1);
                    let repeats = div_ceil(packet * word("width_packets"), row);
                    let channels = div_ceil(word("channels"), workgroup);
                    of_packets + channels * (1 + repeats * (1 + word("inner")))
                };
                init + rows * (1 + of_packets) + sums + folded
            }
            Kernel::ApplyColumns => {
                let rows = div_ceil(word("tile_rows"), workgroup / word("column_lanes"));
                let init = size("column_packets") * (1 + packet_quads * (1 + 4));
                init + rows * (1 + of_packets)
            }
            Kernel::FusedColumns => {
                let row_lanes = workgroup / word("column_lanes");
                let rows = div_ceil(word("rows"), row_lanes);
                let sums = packet_quads * (2 + tree(row_lanes));
                sums + div_ceil(rows, 64) * by_quad + 2 * rows * by_quad
            }
            Kernel::FusedRows
            | Kernel::FusedRowsSubgroup
            | Kernel::FusedUnalignedRows
            | Kernel::FusedUnalignedRowsSubgroup => {
                let rows = div_ceil(word("tile_rows"), word("row_step"));
                let columns =
                    size("column_packets") * (1 + packet_quads * (1 + tree(workgroup) + 4));
                of_packets + rows * (1 + 2 * of_packets + tree(size("lanes"))) + columns
            }
            Kernel::ReduceRows | Kernel::ReduceRowsSubgroup => {
                let rows = div_ceil(word("tile_rows"), word("row_step"));
                let columns =
                    size("column_packets") * (1 + packet_quads * (1 + tree(workgroup) + 4));
                of_packets + rows * (1 + of_packets + tree(size("joined"))) + columns
            }
            Kernel::ApplyRows => {
                let rows = div_ceil(word("tile_rows"), word("row_step"));
                let gamma = 4 * packet_quads * (1 - on("aligned"));
                of_packets + rows * (1 + size("column_packets") * (by_element + gamma))
            }
            Kernel::Finish => {
                let lanes = size("lanes");
                div_ceil(word("group_parts"), lanes) + tree(lanes) + 4
            }
        }
    }
}

/// Steps of a tree of sums over so many invocations.
fn tree(invocations: u64) -> u64 {
    u64::from(invocations.max(1).ilog2())
}
