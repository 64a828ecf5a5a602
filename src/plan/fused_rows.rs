//! The fused kernels over rows: when registers hold them, tiles and windows.

use super::finish::Partials;
use super::rows::{Rows, packets_held};
use super::tensors::Tensors;
use super::windows::windows;
use super::workspace::Workspace;
use super::{Binding, Dispatch, Planner, enabled, lanes, most_packets};
use crate::Error;
use crate::geometry::Grid;
use crate::kernels::{Kernel, Uniforms};

impl Planner<'_> {
    /// How a fused kernel divides rows, if it can: they are short enough for registers, no two of them share a word,
    /// and the adapter allows the bindings.
    pub fn rows_in_registers(&self, by_row: &Grid) -> Option<Rows> {
        let tuning = &self.profile.tuning;
        let most = tuning.row_quads;
        let workgroup_size = self.profile.workgroup(tuning.runs_workgroup);
        let columns = u64::from(by_row.inner);
        let sharing = lanes(workgroup_size, columns, tuning.row_lane_quads);
        let mut rows = self.rows(by_row, workgroup_size, sharing, most);
        // No more than a subgroup, if it can hold the row.
        let subgroup = self.subgroup(workgroup_size);
        let most = most_packets(most, rows.packet_quads);
        if rows.lanes > subgroup && rows.row_packets() <= subgroup * most {
            rows.lanes = subgroup;
            rows.column_packets = packets_held(rows.row_packets(), subgroup, most);
        }
        let fits = (columns * self.data.size()).is_multiple_of(4)
            && rows.column_packets <= most
            && rows.tile_packets() >= rows.row_packets()
            && self.can_bind(Kernel::FusedRows);
        fits.then_some(rows)
    }

    /// The kernel for rows like these.
    fn fused_rows_kernel(&self, rows: &Rows) -> Kernel {
        let subgroup = (2..=self.subgroup(rows.workgroup_size)).contains(&rows.lanes);
        match (rows.aligned(), subgroup) {
            (true, false) => Kernel::FusedRows,
            (true, true) => Kernel::FusedRowsSubgroup,
            (false, false) => Kernel::FusedUnalignedRows,
            (false, true) => Kernel::FusedUnalignedRowsSubgroup,
        }
    }

    /// The whole gradient but for the last sums of columns, which are left as partial sums.
    pub fn fused_rows(
        &self,
        rows: &Rows,
        tensors: &Tensors,
        epsilon: f64,
        workspace: &mut Workspace,
    ) -> Result<(Vec<Dispatch>, Partials), Error> {
        let kernel = self.fused_rows_kernel(rows);
        let walk = self.walk(rows, 1);
        let partials = walk.column_partials(rows, tensors.param_grads(), workspace)?;
        let start = |split: u64| (split * walk.tile_rows * rows.columns).min(rows.elements());
        let gamma = tensors.used_gamma();
        let enabled = enabled(&[
            ("complete", rows.complete()),
            ("scaled", gamma.is_some()),
            ("summed", tensors.param_grads()),
            ("folded", walk.folded),
        ]);
        let dispatches = windows(self.profile, &tensors.src, walk.splits(rows), start)?
            .into_iter()
            .map(|window| {
                let tiles = window.units.start * walk.phases..window.units.end * walk.phases;
                let workgroups = self.workgroups(tiles.end - tiles.start)?;
                let mut words = walk.words(rows, &window, &tiles, workgroups).to_vec();
                words.push(("partials", partials.part.first));
                let mut bindings = vec![
                    window.bind(&tensors.src),
                    window.bind(&tensors.diff_dst),
                    Binding::whole(&tensors.mean),
                    Binding::whole(&tensors.variance),
                ];
                bindings.extend(gamma.map(Binding::whole));
                bindings.extend([Binding::workspace(), window.bind(&tensors.diff_src)]);
                Ok(Dispatch {
                    kernel,
                    workgroup_size: rows.workgroup_size,
                    sizes: rows.sizes(),
                    enabled: enabled.clone(),
                    bindings,
                    uniforms: Uniforms::new(
                        kernel,
                        &words,
                        &[
                            ("epsilon", epsilon),
                            ("inverse_count", 1.0 / rows.columns as f64),
                        ],
                    ),
                    workgroups,
                })
            })
            .collect::<Result<_, Error>>()?;
        Ok((dispatches, partials))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Profile, Tuning};

    #[test]
    fn rows_that_share_no_word_are_fused() {
        let profile = Profile {
            tuning: Tuning::SOFTWARE,
            ..Profile::usual()
        };
        let kernel = |data, columns| {
            let planner = Planner {
                profile: &profile,
                data,
            };
            let by_row = Grid {
                outer: 1,
                channels: 4096,
                inner: columns,
            };
            let rows = planner.rows_in_registers(&by_row);
            rows.map(|rows| planner.fused_rows_kernel(&rows))
        };
        for data in [DType::F32, DType::F64, DType::F16, DType::Bf16] {
            assert_eq!(kernel(data, 768), Some(Kernel::FusedRows), "{data}");
            assert_eq!(
                kernel(data, 770),
                Some(Kernel::FusedUnalignedRows),
                "{data}"
            );
            assert_eq!(kernel(data, 40_001), None, "{data}");
        }
        for data in [DType::F32, DType::F64] {
            assert_eq!(
                kernel(data, 769),
                Some(Kernel::FusedUnalignedRows),
                "{data}"
            );
            assert_eq!(kernel(data, 1), Some(Kernel::FusedUnalignedRows), "{data}");
        }
        for data in [DType::F16, DType::Bf16] {
            assert_eq!(kernel(data, 769), None, "{data}");
            assert_eq!(kernel(data, 1), None, "{data}");
        }
    }
}
