//! The kernels over rows that registers do not hold, or for which the adapter allows too few bindings: tiles and
//! windows of the reduction and the elementwise pass.

use super::finish::Partials;
use super::rows::{Rows, Walk};
use super::tensors::Tensors;
use super::windows::{Window, windows};
use super::workspace::{Part, Workspace};
use super::{Binding, Dispatch, Planner, div_ceil, enabled, word};
use crate::Error;
use crate::geometry::Grid;
use crate::kernels::{Kernel, Tensor, Uniforms};

/// Quads of a row that an invocation holds at most: more do not pay on the software drivers measured.
const MOST_QUADS: u32 = 8;

/// Rows cut into tiles: those of a walk, by a workgroup's packets of columns.
pub(crate) struct SplitRows {
    rows: Rows,
    walk: Walk,
    column_tiles: u64,
    /// Invocations side by side in a row that write one partial sum of it.
    joined: u64,
}

impl SplitRows {
    /// Copies of gamma, shifted against quads, that the rows need, and quads of each.
    pub fn weights(&self) -> (u64, u64) {
        let copies = if self.rows.aligned() { 1 } else { 4 };
        (copies, self.rows.row_quads)
    }

    /// Partial sums of a row: of all invocations that hold some of it.
    fn row_parts(&self) -> u64 {
        let before = self.column_tiles - 1;
        let rest = self.rows.row_packets() - before * self.rows.tile_packets();
        let invocations = before * self.rows.lanes + rest.min(self.rows.lanes);
        div_ceil(invocations, self.joined)
    }
}

/// In what the two kernels over split rows differ.
struct Pass<'a> {
    kernel: Kernel,
    /// Beside the rows' own.
    sizes: Vec<(&'static str, u32)>,
    /// Bound as far as the window reaches, in the kernel's order, around the workspace.
    tensors: &'a [Tensor],
    enabled: Vec<&'static str>,
    words: Vec<(&'static str, u32)>,
}

impl Planner<'_> {
    /// How rows are cut.
    pub fn split_rows(&self, by_row: &Grid) -> SplitRows {
        let tuning = &self.profile.tuning;
        let most = tuning.row_quads.min(MOST_QUADS);
        let workgroup_size = self.profile.workgroup(tuning.runs_workgroup);
        // As few invocations to a row as there may be: so it has the fewest partial sums.
        let rows = self.rows(by_row, workgroup_size, 1, most);
        let joined = match self.subgroup(workgroup_size) {
            0 => u64::from(tuning.row_joined),
            subgroup => subgroup,
        };
        let column_tiles = div_ceil(rows.row_packets(), rows.tile_packets());
        SplitRows {
            walk: self.walk(&rows, column_tiles),
            column_tiles,
            joined: joined.clamp(1, rows.lanes),
            rows,
        }
    }

    /// The reduction of rows and columns into partial sums: dispatches, partial sums of rows, and of
    /// columns if gamma's `weights` are given.
    pub fn reduce_rows(
        &self,
        split: &SplitRows,
        tensors: &Tensors,
        stats: Part,
        weights: Option<Part>,
        workspace: &mut Workspace,
    ) -> Result<(Vec<Dispatch>, Partials, Partials), Error> {
        let rows = &split.rows;
        let row_parts = split.row_parts();
        let of_rows = Partials {
            channel_stride: row_parts,
            ..Partials::plain(
                workspace.reserve(rows.rows * row_parts)?,
                word(rows.rows),
                row_parts,
                1,
            )
        };
        let of_columns = split
            .walk
            .column_partials(rows, tensors.param_grads(), workspace)?;
        let pass = Pass {
            kernel: match (self.subgroup(rows.workgroup_size), split.joined) {
                (0, _) | (_, 1) => Kernel::ReduceRows,
                _ => Kernel::ReduceRowsSubgroup,
            },
            sizes: vec![("joined", word(split.joined))],
            tensors: &[Tensor::Src, Tensor::DiffDst, Tensor::Workspace],
            enabled: enabled(&[
                ("summed", tensors.param_grads()),
                ("stacked", split.walk.stacked && tensors.param_grads()),
            ]),
            words: vec![
                ("row_parts", word(row_parts)),
                ("stats", stats.first),
                ("row_partials", of_rows.part.first),
                ("partials", of_columns.part.first),
            ],
        };
        let dispatches = self.pass_over_rows(split, tensors, weights, &pass)?;
        Ok((dispatches, of_rows, of_columns))
    }

    /// The elementwise pass over rows.
    pub fn apply_rows(
        &self,
        split: &SplitRows,
        tensors: &Tensors,
        stats: Part,
        means: Part,
        weights: Option<Part>,
    ) -> Result<Vec<Dispatch>, Error> {
        let rows = &split.rows;
        let mut enabled = enabled(&[
            ("narrow", rows.columns < 4),
            ("whole", rows.elements().is_multiple_of(rows.packet())),
        ]);
        enabled.extend(self.apply_backwards());
        let pass = Pass {
            kernel: Kernel::ApplyRows,
            sizes: vec![],
            tensors: &[
                Tensor::Src,
                Tensor::DiffDst,
                Tensor::Workspace,
                Tensor::DiffSrc,
            ],
            enabled,
            words: vec![("stats", stats.first), ("means", means.first)],
        };
        self.pass_over_rows(split, tensors, weights, &pass)
    }

    fn pass_over_rows(
        &self,
        split: &SplitRows,
        tensors: &Tensors,
        weights: Option<Part>,
        pass: &Pass<'_>,
    ) -> Result<Vec<Dispatch>, Error> {
        let (rows, walk) = (&split.rows, &split.walk);
        // Between two cuts: a block of rows, or where that is one row, a tile of its columns.
        let split_tiles = walk.shifts * split.column_tiles;
        let unit_tiles = if walk.tile_rows == 1 { 1 } else { split_tiles };
        let units = walk.splits(rows) * split_tiles / unit_tiles;
        let start = |unit: u64| {
            let (block, tile) = match unit_tiles {
                1 => (unit / split_tiles, unit % split_tiles),
                _ => (unit, 0),
            };
            let first = block * walk.tile_rows * rows.columns;
            // Not beyond the row, whose last tile may hold only a quad that begins in the next.
            let inside = (tile * rows.tile_packets() * rows.packet()).min(rows.columns);
            (first + inside).min(rows.elements())
        };
        let mut enabled = enabled(&[
            ("aligned", rows.aligned()),
            ("complete", rows.complete()),
            ("scaled", weights.is_some()),
        ]);
        enabled.extend(&pass.enabled);
        let bind = |window: &Window, tensor: &Tensor| match tensor {
            Tensor::Src => window.bind(&tensors.src),
            Tensor::DiffDst => window.bind(&tensors.diff_dst),
            Tensor::DiffSrc => window.bind(&tensors.diff_src),
            _ => Binding::workspace(),
        };
        windows(self.profile, &tensors.src, units, start)?
            .into_iter()
            .map(|window| {
                let first = window.units.start * unit_tiles;
                let end = window.units.end * unit_tiles;
                let workgroups = self.workgroups(end - first)?;
                let words = [
                    ("column_tiles", word(split.column_tiles)),
                    ("weights", weights.map_or(0, |part| part.first)),
                ];
                let shared = walk.words(rows, &window, &(first..end), workgroups);
                Ok(Dispatch {
                    kernel: pass.kernel,
                    workgroup_size: rows.workgroup_size,
                    sizes: [rows.sizes(), pass.sizes.clone()].concat(),
                    enabled: enabled.clone(),
                    bindings: pass.tensors.iter().map(|t| bind(&window, t)).collect(),
                    uniforms: Uniforms::new(
                        pass.kernel,
                        &[&shared[..], &words, &pass.words].concat(),
                        &[],
                    ),
                    workgroups,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Profile, Tuning};

    #[test]
    fn pieces_of_rows_are_walked_few_at_a_time() {
        let profile = Profile {
            tuning: Tuning::SOFTWARE,
            ..Profile::usual()
        };
        let planner = Planner {
            profile: &profile,
            data: DType::F32,
        };
        let split = |rows, columns| {
            planner.split_rows(&Grid {
                outer: 1,
                channels: rows,
                inner: columns,
            })
        };
        let long = split(512, 4096);
        assert!(long.column_tiles > 1);
        assert_eq!(long.walk.tile_rows, 16);
        // So many that the sums of columns would outgrow a binding.
        assert_eq!(split(65536, 8192).walk.tile_rows, 256);
        let odd = split(512, 4097); // every fourth row
        assert_eq!((odd.walk.tile_rows, odd.walk.shifts), (64, 4));
        let uncut = split(4096, 128);
        assert_eq!(uncut.column_tiles, 1);
        assert!(uncut.walk.tile_rows > 16 * uncut.rows.at_once());
    }
}
