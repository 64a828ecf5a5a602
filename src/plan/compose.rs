//! Operators as sequences of dispatches.

use super::finish::{Derived, Partials};
use super::pack::workspace;
use super::workspace::Workspace;
use super::{Plan, Planner, Requirement};
use crate::geometry::Grid;
use crate::kernels::Tensor;
use crate::{DType, Error, ParamGrads, Profile, Statistics};

/// A batch-norm gradient, folded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchNormProblem {
    pub grid: Grid,
    pub data: DType,
    pub params: DType,
    pub has_gamma: bool,
    pub epsilon: f64,
    pub statistics: Statistics,
    pub param_grads: ParamGrads,
}

/// The dispatches of a batch-norm gradient.
pub(crate) fn batch_norm(profile: &Profile, problem: &BatchNormProblem) -> Result<Plan, Error> {
    let &BatchNormProblem {
        grid, data, params, ..
    } = problem;
    let planner = Planner { profile, data };
    let accumulator = data.accumulator();
    let channels = u64::from(grid.channels);
    let of_data = |tensor| Requirement {
        tensor,
        dtype: data,
        elements: grid.elements(),
    };
    let of_params = |tensor| Requirement {
        tensor,
        dtype: params,
        elements: channels,
    };
    let sums = Requirement {
        tensor: Tensor::Sums,
        dtype: accumulator,
        elements: 2 * channels + 1,
    };
    let (src, diff_dst, diff_src) = (
        of_data(Tensor::Src),
        of_data(Tensor::DiffDst),
        of_data(Tensor::DiffSrc),
    );
    let (mean, variance) = (of_params(Tensor::Mean), of_params(Tensor::Variance));
    let both = problem.param_grads == ParamGrads::Both;
    let batch = problem.statistics == Statistics::Batch;
    let gamma = problem.has_gamma.then(|| of_params(Tensor::Gamma));
    let diff_gamma = both.then(|| of_params(Tensor::DiffGamma));
    let diff_beta = both.then(|| of_params(Tensor::DiffBeta));

    let mut tensors = vec![src, diff_dst, mean, variance];
    tensors.extend(gamma);
    tensors.push(diff_src);
    tensors.extend(diff_gamma);
    tensors.extend(diff_beta);
    tensors.push(sums);

    let mut area = Workspace::new(accumulator);
    let stats = area.reserve(channels)?;
    let coefficients = area.reserve(channels)?;

    let mut dispatches = Vec::new();
    let empty = grid.elements() == 0;
    if channels > 0 {
        // Where oneDNN Graph's rule holds, a given gamma is ignored.
        let used_gamma = gamma.filter(|_| problem.param_grads != ParamGrads::Neither);
        dispatches.push(planner.pack_statistics(
            &mean,
            &variance,
            used_gamma.as_ref(),
            problem.epsilon,
            stats,
        ));
        let needs_sums = both || batch;
        let (reduce, partials) = if empty || !needs_sums {
            let none = Partials {
                part: stats,
                grid: Grid { inner: 1, ..grid },
                repeats: 1,
                width: 0,
                parts: 0,
            };
            (vec![], none)
        } else if planner.reads_runs(&grid) {
            planner.reduce_runs(&grid, &src, &diff_dst, stats, None, &mut area)?
        } else {
            planner.reduce_columns(&grid, &src, &diff_dst, stats, false, &mut area)?
        };
        dispatches.extend(reduce);
        let derived = Derived {
            diff_gamma: diff_gamma.as_ref(),
            diff_beta: diff_beta.as_ref(),
            coefficients: (!empty).then_some((coefficients, stats)),
            constant_statistics: !batch,
        };
        dispatches.extend(planner.finish(&partials, grid.count(), &derived));
    }
    if !empty {
        let src = batch.then_some(&src);
        dispatches.extend(if planner.reads_runs(&grid) {
            planner.apply_runs(&grid, src, &diff_dst, &diff_src, stats, coefficients, None)?
        } else {
            planner.apply_columns(&grid, src, &diff_dst, &diff_src, stats, coefficients)?
        });
    }
    // Last, so that other bindings of the workspace end before it: WebGPU refuses a dispatch that binds
    // the same bytes for writing twice.
    let sums_part = area.reserve(sums.elements.div_ceil(4))?;
    let sums_in_workspace = area.bytes_of(sums_part, sums.elements);
    planner.complete(tensors, area, sums_in_workspace, params, dispatches)
}

impl Planner<'_> {
    /// Whether a grid's runs are long enough to be read as such; else they are read as columns.
    fn reads_runs(&self, grid: &Grid) -> bool {
        grid.inner >= self.profile.tuning.short_run.max(1)
    }

    fn complete(
        &self,
        tensors: Vec<Requirement>,
        area: Workspace,
        sums_in_workspace: std::ops::Range<u64>,
        params: DType,
        mut dispatches: Vec<super::Dispatch>,
    ) -> Result<Plan, Error> {
        let workspace_bytes = area.bytes();
        if workspace_bytes > self.profile.max_binding {
            return Err(Error::Limit {
                what: "workspace".to_owned(),
                limit: "max_storage_buffer_binding_size",
                needed: workspace_bytes,
                available: self.profile.max_binding,
            });
        }
        for binding in dispatches.iter_mut().flat_map(|d| &mut d.bindings) {
            match binding.tensor {
                Tensor::Workspace => binding.bytes = 0..sums_in_workspace.start,
                Tensor::Sums => binding.bytes = 0..sums_in_workspace.end - sums_in_workspace.start,
                _ => {}
            }
        }
        debug_assert_eq!(workspace().bytes, 0..0);
        Ok(Plan {
            data: self.data,
            params,
            tensors,
            workspace_bytes,
            sums_in_workspace,
            dispatches,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::profile::Tuning;

    #[test]
    fn no_dispatch_binds_the_sums_twice() {
        let profile = Profile {
            adapter: String::new(),
            max_binding: 1 << 27,
            max_buffer: 1 << 30,
            alignment: 256,
            max_workgroups: 65535,
            max_invocations: 256,
            f64: true,
            tuning: Tuning::GPU,
        };
        for (data, inner) in [
            (DType::F32, 1),
            (DType::F32, 49),
            (DType::F64, 1),
            (DType::F16, 0),
        ] {
            let problem = BatchNormProblem {
                grid: Grid {
                    outer: 6,
                    channels: 5,
                    inner,
                },
                data,
                params: data,
                has_gamma: true,
                epsilon: 1e-5,
                statistics: Statistics::Batch,
                param_grads: ParamGrads::Both,
            };
            let plan = batch_norm(&profile, &problem).unwrap();
            let sums = &plan.sums_in_workspace;
            assert!(sums.end <= plan.workspace_bytes);
            assert_eq!(sums.start % 256, 0);
            for binding in plan.dispatches.iter().flat_map(|d| &d.bindings) {
                if binding.tensor == Tensor::Workspace {
                    assert!(binding.bytes.end <= sums.start);
                }
            }
        }
    }
}
