//! The fused kernel over rows: when registers hold them, tiles and windows.

use super::finish::Partials;
use super::rows::{Rows, packets_held};
use super::tensors::Tensors;
use super::windows::windows;
use super::workspace::Workspace;
use super::{Binding, Dispatch, Planner, div_ceil, enabled, lanes, most_packets, word};
use crate::Error;
use crate::geometry::Grid;
use crate::kernels::{Kernel, Uniforms};

impl Planner<'_> {
    /// How the fused kernel divides rows, if it can: rows begin at quads, are short enough for registers,
    /// and the adapter allows the bindings.
    pub fn rows_in_registers(&self, by_row: &Grid) -> Option<Rows> {
        let tuning = &self.profile.tuning;
        let most = tuning.row_quads;
        let workgroup_size = self.profile.workgroup(tuning.runs_workgroup);
        let columns = u64::from(by_row.inner);
        let sharing = lanes(workgroup_size, columns, tuning.row_lane_quads);
        let mut rows = self.rows(by_row, workgroup_size, sharing, most);
        // No more than a subgroup, if it can hold the row; all of it where it is the workgroup and the row has as
        // many packets. Fewer leave invocations idle: on llvmpipe rows of 32 to 56 elements took 1.3 to 1.7 times as
        // long.
        let subgroup = self.subgroup(workgroup_size);
        let most = most_packets(most, rows.packet_quads);
        let holds = (subgroup..=subgroup * most).contains(&rows.row_packets());
        if holds && (rows.lanes > subgroup || subgroup == u64::from(workgroup_size)) {
            rows.lanes = subgroup;
            rows.column_packets = packets_held(rows.row_packets(), subgroup, most);
        }
        let fits = rows.aligned()
            && rows.column_packets <= most
            && rows.tile_packets() >= rows.row_packets()
            && self.can_bind(Kernel::FusedRows);
        fits.then_some(rows)
    }

    /// The whole gradient but for the last sums of columns, which are left as partial sums.
    pub fn fused_rows(
        &self,
        rows: &Rows,
        tensors: &Tensors,
        epsilon: f64,
        workspace: &mut Workspace,
    ) -> Result<(Vec<Dispatch>, Partials), Error> {
        let walk = self.walk(rows, 1, rows.at_once()).max(1);
        let tile_rows = walk * rows.at_once();
        let tiles = div_ceil(rows.rows, tile_rows);
        let folded = self.folds_rows(rows, walk);
        let parts = if folded {
            tiles
        } else {
            tiles * rows.at_once()
        };
        let records = match tensors.param_grads() {
            true => parts * rows.columns / 2,
            false => 0,
        };
        let partials = Partials::paired(workspace.reserve(records)?, word(rows.columns), parts);
        let start = |tile: u64| (tile * tile_rows * rows.columns).min(rows.elements());
        let kernel = match (2..=self.subgroup(rows.workgroup_size)).contains(&rows.lanes) {
            true => Kernel::FusedRowsSubgroup,
            false => Kernel::FusedRows,
        };
        let gamma = tensors.used_gamma();
        let enabled = enabled(&[
            ("complete", rows.complete()),
            ("scaled", gamma.is_some()),
            ("summed", tensors.param_grads()),
            ("folded", folded),
        ]);
        let dispatches = windows(self.profile, &tensors.src, tiles, start)?
            .into_iter()
            .map(|window| {
                let workgroups = self.workgroups(window.units.end - window.units.start)?;
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
                        &[
                            ("rows", word(rows.rows)),
                            ("columns", word(rows.columns)),
                            ("row_quads", word(rows.row_quads)),
                            ("tile_rows", word(tile_rows)),
                            ("first_tile", word(window.units.start)),
                            ("end_tile", word(window.units.end)),
                            ("grid_width", workgroups[0]),
                            ("window", word(window.elements.start)),
                            ("length", word(rows.elements() - window.elements.start)),
                            ("partials", partials.part.first),
                        ],
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
