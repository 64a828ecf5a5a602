//! The fused kernel over rows: when registers hold them, tiles and windows.

use super::finish::Partials;
use super::pack::{whole, workspace};
use super::rows::{RowTensors, Rows, quads_held};
use super::runs::lanes;
use super::windows::windows;
use super::workspace::Workspace;
use super::{Dispatch, Planner, div_ceil, word};
use crate::geometry::Grid;
use crate::kernels::{Kernel, Uniforms};
use crate::{DType, Error};

impl Planner<'_> {
    /// Whether a workgroup of this size is one subgroup whose invocations can add up their numbers.
    fn one_subgroup(&self, workgroup_size: u32) -> bool {
        self.profile.subgroup_size == workgroup_size && self.data != DType::F64
    }

    /// How the fused kernel divides rows, if it can: rows begin at quads, are short enough for registers,
    /// and the adapter allows the bindings.
    pub fn rows_in_registers(&self, by_row: &Grid) -> Option<Rows> {
        let tuning = &self.profile.tuning;
        let most = u64::from(tuning.row_quads);
        let workgroup_size = self.profile.workgroup(tuning.runs_workgroup);
        let columns = u64::from(by_row.inner);
        let sharing = lanes(workgroup_size, columns, tuning.row_lane_quads);
        let mut rows = self.rows(by_row, workgroup_size, sharing, most);
        let workgroup = u64::from(rows.workgroup_size);
        if rows.row_quads >= workgroup && self.one_subgroup(rows.workgroup_size) {
            rows.lanes = workgroup;
            rows.column_quads = quads_held(div_ceil(rows.row_quads, workgroup), most);
        }
        let fits = rows.aligned()
            && rows.column_quads <= most
            && rows.tile_quads() >= rows.row_quads
            && self.profile.max_storage_buffers as usize >= Kernel::FusedRows.entry().tensors.len();
        fits.then_some(rows)
    }

    /// The whole gradient but for the last sums of columns, which are left as partial sums.
    pub fn fused_rows(
        &self,
        rows: &Rows,
        tensors: &RowTensors<'_>,
        epsilon: f64,
        area: &mut Workspace,
    ) -> Result<(Vec<Dispatch>, Partials), Error> {
        let tile_rows = self.walk(rows, 1, rows.at_once()).max(1) * rows.at_once();
        let tiles = div_ceil(rows.rows, tile_rows);
        let records = match tensors.summed {
            true => tiles * rows.columns / 2,
            false => 0,
        };
        let partials = Partials::paired(area.reserve(records)?, word(rows.columns), tiles);
        let start = |tile: u64| (tile * tile_rows * rows.columns).min(rows.elements());
        let alone = rows.lanes == 1 || rows.at_once() == 1;
        let kernel = match alone && self.one_subgroup(rows.workgroup_size) {
            true => Kernel::FusedRowsSubgroup,
            false => Kernel::FusedRows,
        };
        let mut enabled = Vec::new();
        enabled.extend(rows.complete().then_some("complete"));
        enabled.extend(tensors.gamma.map(|_| "scaled"));
        enabled.extend(tensors.summed.then_some("summed"));
        let dispatches = windows(self.profile, tensors.src, tiles, start)?
            .into_iter()
            .map(|window| {
                let workgroups = self.workgroups(window.units.end - window.units.start)?;
                let mut bindings = vec![
                    window.bind(tensors.src),
                    window.bind(tensors.diff_dst),
                    whole(tensors.mean),
                    whole(tensors.variance),
                ];
                bindings.extend(tensors.gamma.map(whole));
                bindings.extend([workspace(), window.bind(tensors.diff_src)]);
                Ok(Dispatch {
                    kernel,
                    workgroup_size: rows.workgroup_size,
                    sizes: rows.sizes(),
                    enabled: enabled.clone(),
                    bindings,
                    uniforms: Uniforms::new(
                        kernel,
                        &[
                            ("channels", word(rows.rows)),
                            ("gamma_length", word(rows.columns)),
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
