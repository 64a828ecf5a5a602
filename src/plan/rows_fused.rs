//! The fused row kernel: when registers hold the rows, tiles and windows.

use super::axes::Grid;
use super::choose::RowsOf;
use super::finish::Partials;
use super::rounds::Rounds;
use super::rows::{Rows, Walk, vectors_held};
use super::tensors::Tensors;
use super::windows::windows;
use super::workspace::{Region, Workspace};
use super::{Binding, Dispatch, MAX_SEQUENTIAL, Planner, most_vectors, threads, word};
use crate::Error;
use crate::kernels::{RowsFused, RowsFusedUniforms, Scalars};
use crate::tuning::MOST_ROW_VEC4S;
use std::ops::Range;

impl Planner<'_> {
    /// Why a fused kernel cannot do rows, if it cannot.
    pub fn rows_in_registers_unsupported_reason(&self, problem: &RowsOf) -> Option<String> {
        let RowsOf {
            by_row, tensors, ..
        } = problem;
        if self.body.is_inference() {
            return Some("statistics are given".to_owned());
        }
        let rows = self.rows_of_registers(by_row);
        if rows.tile_vectors() < rows.row_vectors() {
            return Some(format!(
                "{} elements of a row are more than a workgroup's registers hold",
                rows.columns
            ));
        }
        let walk = self.walk_of_registers(&rows, problem);
        if !self.rounds_of_rows(&rows, &walk, problem).fit() {
            return Some("its partial sums would outgrow the tensor".to_owned());
        }
        let all = tensors.bound_at_once();
        let outputs = tensors.results.len() * usize::from(!self.stores_statistics(tensors));
        let workspace = outputs > 0;
        self.more_bindings_than_allowed(all.len() - outputs + usize::from(workspace))
    }

    /// Whether statistics that are written go to their own tensors. Elements of 16 bits do not: they share words, which
    /// would have to be written at once.
    pub fn stores_statistics(&self, tensors: &Tensors) -> bool {
        let mut outputs = tensors.results.iter();
        outputs.any(|output| output.tensor.is_statistic() && output.dtype.size() >= 4)
    }

    /// How a workgroup walks rows.
    fn walk_of_registers(&self, rows: &Rows, problem: &RowsOf) -> Walk {
        let walk = self.walk(rows, 1).of_samples(problem.rows_of_a_sample);
        let longest = (self.held_unit() / rows.columns).min(MAX_SEQUENTIAL * walk.step);
        if problem.rows_of_a_sample.is_some() && problem.tensors.param_grads() {
            return walk.within(rows, self.few_records(&problem.tensors.src), longest);
        }
        walk
    }

    /// As many splits at a time as there is room for in sums of columns; all, where each sample has its own.
    fn rounds_of_rows(&self, rows: &Rows, walk: &Walk, problem: &RowsOf) -> Rounds {
        let records = if problem.tensors.param_grads() {
            walk.column_records(rows)
        } else {
            0
        };
        let room = if problem.rows_of_a_sample.is_some() {
            u64::MAX
        } else {
            self.partial_records(&problem.tensors.src, 0)
                .min(self.held_records(0))
        };
        Rounds::new(
            walk.splits(rows),
            records,
            self.subtotal_records(word(rows.columns)),
            room,
        )
    }

    /// The most vec4s of a row that an invocation holds. For each element a gradient holds diff_dst and x̂, a forward
    /// pass only x, and so twice as many vec4s in the same registers, unless it also holds a residual.
    pub(super) fn row_vec4s(&self) -> u32 {
        self.row_vec4s_of_forward(2)
    }

    /// `row_vec4s`, for a forward pass without a residual `times` as many.
    fn row_vec4s_of_forward(&self, times: u32) -> u32 {
        let of_gradient = self.profile.tuning.row_vec4s;
        match self.body.is_gradient() || self.epilogue.residual {
            true => of_gradient,
            false => (times * of_gradient).min(MOST_ROW_VEC4S),
        }
    }

    /// How a fused kernel divides rows, if registers hold them.
    fn rows_of_registers(&self, by_row: &Grid) -> Rows {
        let tuning = &self.profile.tuning;
        let most = self.row_vec4s();
        // A row that a subgroup holds needs no barrier: on an H200 rows of 1152 to 2048 take 0.6 of the time forward.
        let most_of_subgroup = self.row_vec4s_of_forward(4);
        let divided = |workgroup_size| {
            let columns = u64::from(by_row.inner);
            let sharing = threads(workgroup_size, columns, tuning.least_row_vec4s);
            self.rows(by_row, workgroup_size, sharing, most)
        };
        let held = |rows: &Rows| rows.tile_vectors() >= rows.row_vectors();
        let mut rows = divided(self.workgroup(tuning.workgroup));
        if !held(&rows) {
            rows = divided(self.workgroup(tuning.fused_workgroup));
        }
        // No more invocations than a subgroup has, if it can hold the row.
        let subgroup = self.subgroup(rows.workgroup_size);
        let most = most_vectors(most_of_subgroup, rows.vector_vec4s);
        if rows.threads_per_row > subgroup && rows.row_vectors() <= subgroup * most {
            rows.threads_per_row = subgroup;
            rows.column_vectors = vectors_held(rows.row_vectors(), subgroup, most);
        }
        rows
    }

    /// All of the pass except the last sums of columns, which are left as partial sums. The rows' records go to `kept`.
    pub fn rows_fused(
        &self,
        problem: &RowsOf,
        scalars: Scalars,
        kept: Option<Region>,
        workspace: &mut Workspace,
    ) -> Result<(Vec<Dispatch>, Partials), Error> {
        let RowsOf {
            by_row, tensors, ..
        } = problem;
        let rows = &self.rows_of_registers(by_row);
        let walk = self.walk_of_registers(rows, problem);
        let start = |split: u64| walk.start(rows, split);
        let kernel = RowsFused {
            threads_per_row: word(rows.threads_per_row),
            column_vectors: word(rows.column_vectors),
            vector_vec4s: word(rows.vector_vec4s),
            aligned: rows.aligned(),
            shares_words: !(rows.columns * self.data.size()).is_multiple_of(4),
            complete: rows.complete(),
            scaled: tensors.is_scaled(),
            offset: tensors.used_beta().is_some(),
            kept: kept.is_some(),
            stored: self.stores_statistics(tensors),
            summed: tensors.param_grads(),
            of_samples: problem.rows_of_a_sample.is_some(),
            add_thread_rows: walk.add_thread_rows && tensors.param_grads(),
        };
        let reduce = |region: Region, splits: Range<u64>| {
            let unit_tiles = walk.misalignments;
            let windows = windows(self.profile, &tensors.src, splits, unit_tiles, start)?;
            let kernel = (kernel, rows.workgroup_size);
            self.over(&windows, &tensors.src, kernel, |window, range| {
                let inputs = tensors.inputs.iter();
                let mut bindings: Vec<_> = inputs.map(|tensor| window.bind(tensor)).collect();
                let statistics = tensors.statistics.all();
                bindings.extend(statistics.map(|tensor| Binding::whole(&tensor)));
                bindings.extend(tensors.params().map(Binding::whole));
                if tensors.param_grads() || kept.is_some() {
                    bindings.push(Binding::workspace());
                }
                bindings.extend(tensors.outputs.iter().map(|tensor| window.bind(tensor)));
                if self.stores_statistics(tensors) {
                    bindings.extend(tensors.result_bindings());
                }
                let uniforms = RowsFusedUniforms {
                    tiles: walk.uniforms(rows, window, range),
                    partials: region.first,
                    stats: kept.map_or(0, |region| region.first),
                    scalars,
                };
                (bindings, uniforms)
            })
        };
        let rounds = self.rounds_of_rows(rows, &walk, problem);
        let (dispatches, partials) =
            self.in_rounds(&rounds, workspace, reduce, |region, splits| {
                walk.column_partials(rows, region, splits)
            })?;
        Ok((dispatches, partials))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Problem;
    use crate::{Backward, DType, Norm, Operation, Profile, Tuning};

    fn unsupported_reason(planner: &Planner<'_>, by_row: &Grid) -> Option<String> {
        let shape = [by_row.channels, by_row.inner].map(|size| size as usize);
        let norm = Norm::Layer {
            begin_norm_axis: -1,
        };
        let operation = Operation::new(norm, Backward::default(), &shape, planner.data);
        let problem = Problem::new(&operation);
        planner.rows_in_registers_unsupported_reason(&RowsOf {
            by_row: *by_row,
            tensors: problem.tensors(),
            rows_of_a_sample: None,
        })
    }

    #[test]
    fn rows_that_registers_hold_are_fused() {
        let profile = Profile {
            tuning: Tuning::SOFTWARE,
            ..Profile::usual()
        };
        let aligned = |data, columns| {
            let planner = Planner {
                body: crate::kernels::Body::Gradient,
                profile: &profile,
                data,
                epilogue: crate::kernels::Epilogue::default(),
            };
            let by_row = Grid {
                outer: 1,
                channels: 4096,
                inner: columns,
            };
            let held = unsupported_reason(&planner, &by_row).is_none();
            held.then(|| planner.rows_of_registers(&by_row).aligned())
        };
        for data in [DType::F32, DType::F64, DType::F16, DType::Bf16] {
            assert_eq!(aligned(data, 768), Some(true), "{data}");
            assert_eq!(aligned(data, 770), Some(false), "{data}");
            // Two rows of an odd number of 16-bit elements share a word.
            for columns in [769, 1] {
                assert_eq!(aligned(data, columns), Some(false), "{data} {columns}");
            }
            assert_eq!(aligned(data, 40_001), None, "{data}");
        }
    }
    #[test]
    fn long_rows_take_wide_workgroups() {
        let gpu = Profile {
            max_invocations: 1024,
            max_workgroup_storage: 32768,
            ..Profile::usual()
        };
        let workgroup = |profile: &Profile, columns| {
            let data = DType::F32;
            let planner = Planner {
                profile,
                body: crate::kernels::Body::Gradient,
                data,
                epilogue: crate::kernels::Epilogue::default(),
            };
            let by_row = Grid {
                outer: 1,
                channels: 4096,
                inner: columns,
            };
            let held = unsupported_reason(&planner, &by_row).is_none();
            let rows = planner.rows_of_registers(&by_row);
            held.then_some((rows.workgroup_size, rows.column_vectors))
        };
        assert_eq!(workgroup(&gpu, 4096), Some((256, 4)));
        assert_eq!(workgroup(&gpu, 4100), Some((512, 3)));
        assert_eq!(workgroup(&gpu, 8192), Some((512, 4)));
        assert_eq!(workgroup(&gpu, 8196), None);
        // The limits that every device has.
        assert_eq!(workgroup(&Profile::usual(), 4100), None);
    }
}
