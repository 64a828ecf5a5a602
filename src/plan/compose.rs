//! Operators as sequences of dispatches.

use super::finish::{Derived, Partials, Route};
use super::tensors::{self, Tensors};
use super::workspace::Workspace;
use super::{Binding, Dispatch, Phases, Plan, Planner, Requirement};
use crate::geometry::{Grid, Layout};
use crate::kernels::{Body, Tensor};
use crate::{Algorithm, DType, Error, ParamGrads, Profile, Statistics};

/// Requirements of one element type and length, for a tensor each.
fn of(dtype: DType, elements: u64) -> impl Fn(Tensor) -> Requirement {
    move |tensor| Requirement {
        tensor,
        dtype,
        elements,
    }
}

/// A batch-norm gradient, folded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchNormProblem {
    pub layout: Layout,
    pub data: DType,
    pub params: DType,
    pub has_gamma: bool,
    pub epsilon: f64,
    pub statistics: Statistics,
    pub param_grads: ParamGrads,
}

impl BatchNormProblem {
    fn tensors(&self) -> Tensors {
        let grid = &self.layout.grid;
        let channels = u64::from(grid.channels);
        let of_data = of(self.data, grid.elements());
        let of_params = of(self.params, channels);
        let of_sums = of(self.data.accumulator(), 2 * channels + 1);
        let both = self.param_grads == ParamGrads::Both;
        Tensors {
            src: of_data(Tensor::Src),
            diff_dst: of_data(Tensor::DiffDst),
            statistics: tensors::Statistics {
                tensors: Body::Gradient.statistics(),
                dtype: self.params,
                groups: channels,
            },
            gamma: self.has_gamma.then(|| of_params(Tensor::Gamma)),
            gamma_counts: self.param_grads != ParamGrads::Neither,
            diff_src: of_data(Tensor::DiffSrc),
            diff_gamma: both.then(|| of_params(Tensor::DiffGamma)),
            diff_beta: both.then(|| of_params(Tensor::DiffBeta)),
            sums: Some(of_sums(Tensor::Sums)),
        }
    }
}

/// The dispatches of a batch-norm gradient: a reduction and an elementwise pass, which are also its two
/// halves, or for the whole of it a fused kernel where one is faster.
pub(crate) fn batch_norm(profile: &Profile, problem: &BatchNormProblem) -> Result<Plan, Error> {
    let data = problem.data;
    let planner = Planner {
        profile,
        body: Body::Gradient,
        data,
    };
    let mut tensors = problem.tensors();
    let (whole, halves) = planner.choose_batch_norm(problem)?;
    let grid = &problem.layout.grid;
    let fused = match whole {
        Algorithm::FusedChannelsFirst => {
            planner.channels_first_fused(grid, &tensors, problem.epsilon)?
        }
        Algorithm::FusedChannelsLast => {
            vec![planner.channels_last_fused(grid, &tensors, problem.epsilon)?]
        }
        _ => vec![],
    };
    let mut workspace = Workspace::new(data.accumulator());
    let mut dispatches = planner.split_batch_norm(problem, halves, &tensors, &mut workspace)?;
    if !fused.is_empty() {
        dispatches = dispatches
            .into_iter()
            .filter_map(|(phases, dispatch)| Some((phases.without(Phases::WHOLE)?, dispatch)))
            .collect();
        // A fused kernel needs no workspace: where there is no room for that of the halves, there are none.
        if workspace.bytes() > profile.max_binding {
            workspace = Workspace::new(data.accumulator());
            dispatches.clear();
            tensors.sums = None;
        }
        let fused = fused.into_iter().map(|dispatch| (Phases::WHOLE, dispatch));
        dispatches.extend(fused);
    }
    planner.complete(whole, problem.params, &tensors, &workspace, dispatches)
}

/// A reduction that writes diff_src as far as it reads diff_dst.
fn writing_diff_src(reduction: &Dispatch) -> Dispatch {
    let mut dispatch = reduction.clone();
    let read = reduction
        .bindings
        .iter()
        .find(|b| b.tensor == Tensor::DiffDst);
    dispatch.bindings.extend(read.map(|read| Binding {
        tensor: Tensor::DiffSrc,
        bytes: read.bytes.clone(),
    }));
    dispatch
}

/// A gradient of layer norm or one like it, folded to rows and columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerNormProblem {
    pub body: Body,
    pub rows: u32,
    pub columns: u32,
    pub data: DType,
    pub params: DType,
    pub use_affine: bool,
    pub epsilon: f64,
    pub param_grads: ParamGrads,
}

impl LayerNormProblem {
    pub fn tensors(&self) -> Tensors {
        let (rows, columns) = (u64::from(self.rows), u64::from(self.columns));
        let of_data = of(self.data, rows * columns);
        let of_params = of(self.params, columns);
        let both = self.use_affine && self.param_grads == ParamGrads::Both;
        let wanted = |tensor| both && self.body.tensors().contains(&tensor);
        Tensors {
            src: of_data(Tensor::Src),
            diff_dst: of_data(Tensor::DiffDst),
            statistics: tensors::Statistics {
                tensors: self.body.statistics(),
                dtype: self.params,
                groups: rows,
            },
            gamma: self.use_affine.then(|| of_params(Tensor::Gamma)),
            gamma_counts: self.param_grads != ParamGrads::Neither,
            diff_src: of_data(Tensor::DiffSrc),
            diff_gamma: wanted(Tensor::DiffGamma).then(|| of_params(Tensor::DiffGamma)),
            diff_beta: wanted(Tensor::DiffBeta).then(|| of_params(Tensor::DiffBeta)),
            sums: None,
        }
    }
}

/// The dispatches of a gradient over rows, layer norm's or RMS norm's: everything in one reading where rows fit
/// registers; else a reduction of rows and columns alike, then the elementwise pass.
pub(crate) fn layer_norm(profile: &Profile, problem: &LayerNormProblem) -> Result<Plan, Error> {
    let data = problem.data;
    let planner = Planner {
        profile,
        body: problem.body,
        data,
    };
    let tensors = problem.tensors();
    let algorithm = planner.choose_layer_norm(problem)?;
    let by_row = problem.by_row();
    let mut workspace = Workspace::new(data.accumulator());
    let mut dispatches = Vec::new();
    let mut of_columns = Some(Partials::none(problem.columns, workspace.reserve(0)?));
    let epsilon = problem.epsilon;
    if by_row.elements() > 0 {
        (dispatches, of_columns) = match algorithm {
            Algorithm::RowsInRegisters => {
                let (dispatches, partials) =
                    planner.rows_fused(&by_row, &tensors, epsilon, &mut workspace)?;
                (dispatches, Some(partials))
            }
            _ => planner.split_layer_norm(&by_row, &tensors, epsilon, &mut workspace)?,
        };
    }
    if let (Some(of_columns), true, 1..) = (of_columns, tensors.param_grads(), problem.columns) {
        let derived = Derived {
            diff_gamma: tensors.diff_gamma.as_ref(),
            diff_beta: tensors.diff_beta.as_ref(),
            means: None,
        };
        let rows = u64::from(problem.rows);
        let (groups, of_columns) = planner.group(of_columns, &mut workspace)?;
        dispatches.extend(groups);
        dispatches.push(planner.finish(&of_columns, rows, &derived, Route::Whole)?);
    }
    let whole = |dispatch| (Phases::WHOLE, dispatch);
    let dispatches = dispatches.into_iter().map(whole).collect();
    planner.complete(algorithm, problem.params, &tensors, &workspace, dispatches)
}

/// Channels with fewer elements side by side are read as columns, unless one dispatch does it all: of a small tensor, or
/// of planes of 8 elements and more that are channels of their own.
const SHORT_PLANE: u32 = 32;

impl Planner<'_> {
    /// Whether planes are long enough to be read as such; else they are read as columns.
    pub fn reads_planes(&self, layout: &Layout) -> bool {
        layout.grid.inner >= SHORT_PLANE
    }

    /// Reduction, sums, elementwise pass: the whole of them and the two halves.
    fn split_batch_norm(
        &self,
        problem: &BatchNormProblem,
        algorithm: Algorithm,
        tensors: &Tensors,
        workspace: &mut Workspace,
    ) -> Result<Vec<(Phases, Dispatch)>, Error> {
        let layout = &problem.layout;
        let grid = &layout.grid;
        let (src, diff_dst, diff_src) = (&tensors.src, &tensors.diff_dst, &tensors.diff_src);
        let empty = src.elements == 0;
        let batch = problem.statistics == Statistics::Batch;
        let both = tensors.param_grads();
        let planes = match (algorithm, &layout.general) {
            (_, Some(general)) => !general.keeps_last,
            (algorithm, None) => algorithm == Algorithm::ChannelsFirst,
        };
        // With constant statistics diff_src does not wait for the sums: the reduction writes it on the way.
        let one_pass = !batch && both && (grid.inner.is_multiple_of(4) || !planes);
        let (reduces, applies) = match one_pass {
            true => (Phases::REDUCE, Phases::APPLY),
            false => (
                Phases::WHOLE.with(Phases::REDUCE),
                Phases::WHOLE.with(Phases::APPLY),
            ),
        };
        let stats = workspace.reserve(tensors.statistics.groups)?;
        let means = workspace.reserve(tensors.statistics.groups)?;
        let mut dispatches = Vec::new();
        if grid.channels > 0 {
            let all = Phases::WHOLE.with(Phases::REDUCE).with(Phases::APPLY);
            let gamma = tensors.used_gamma();
            dispatches.push((
                all,
                self.pack_statistics(tensors, gamma, problem.epsilon, stats)?,
            ));
            let (reduce, partials) = if empty || !(both || batch) {
                (vec![], Partials::none(grid.channels, stats))
            } else if planes {
                self.channels_first_reduce(layout, src, diff_dst, one_pass, stats, workspace)?
            } else {
                self.channels_last_reduce(layout, src, diff_dst, stats, workspace)?
            };
            if one_pass {
                let writing = reduce.iter().map(writing_diff_src);
                dispatches.extend(writing.map(|dispatch| (Phases::WHOLE, dispatch)));
            }
            dispatches.extend(reduce.into_iter().map(|dispatch| (reduces, dispatch)));
            let (groups, partials) = self.group(partials, workspace)?;
            let summed = Phases::WHOLE.with(Phases::REDUCE);
            dispatches.extend(groups.into_iter().map(|dispatch| (summed, dispatch)));
            let derived = Derived {
                diff_gamma: tensors.diff_gamma.as_ref(),
                diff_beta: tensors.diff_beta.as_ref(),
                means: (batch && !empty).then_some(means),
            };
            for (phases, route) in [
                (Phases::WHOLE, Route::Whole),
                (Phases::REDUCE, Route::ToSums),
                (Phases::APPLY, Route::FromSums),
            ] {
                if route == Route::ToSums || both || derived.means.is_some() {
                    let finish = self.finish(&partials, grid.count(), &derived, route)?;
                    dispatches.push((phases, finish));
                }
            }
        }
        if !empty {
            let src = batch.then_some(src);
            let apply = match planes {
                true => self.channels_first_apply(layout, src, diff_dst, diff_src, stats, means)?,
                false => self.channels_last_apply(layout, src, diff_dst, diff_src, stats, means)?,
            };
            let apply = apply.into_iter();
            dispatches.extend(apply.map(|dispatch| (applies, dispatch)));
        }
        Ok(dispatches)
    }

    /// A reduction of rows and columns, the rows' sums, the elementwise pass. The sums of columns may be left
    /// as partial sums.
    fn split_layer_norm(
        &self,
        by_row: &Grid,
        tensors: &Tensors,
        epsilon: f64,
        workspace: &mut Workspace,
    ) -> Result<(Vec<Dispatch>, Option<Partials>), Error> {
        let split = self.split_rows(by_row, tensors);
        let stats = workspace.reserve(tensors.statistics.groups)?;
        let mut dispatches = vec![self.pack_statistics(tensors, None, epsilon, stats)?];
        let (weights, pack) = self.weights(tensors, workspace)?;
        dispatches.extend(pack);
        let reduced = self.rows_reduce(&split, tensors, stats, weights, workspace)?;
        dispatches.extend(reduced.dispatches);
        let mut means = None;
        if let Some(of_rows) = reduced.of_rows {
            means = Some(workspace.reserve(tensors.statistics.groups)?);
            let derived = Derived {
                diff_gamma: None,
                diff_beta: None,
                means,
            };
            let columns = u64::from(by_row.inner);
            let (groups, of_rows) = self.group(of_rows, workspace)?;
            dispatches.extend(groups);
            dispatches.push(self.finish(&of_rows, columns, &derived, Route::Whole)?);
        }
        let apply = self.rows_apply(&split, tensors, stats, means, weights)?;
        dispatches.extend(apply);
        Ok((dispatches, reduced.of_columns))
    }

    fn complete(
        &self,
        algorithm: Algorithm,
        params: DType,
        tensors: &Tensors,
        workspace: &Workspace,
        mut dispatches: Vec<(Phases, Dispatch)>,
    ) -> Result<Plan, Error> {
        let workspace_bytes = workspace.bytes();
        for binding in dispatches.iter_mut().flat_map(|(_, d)| &mut d.bindings) {
            if binding.tensor == Tensor::Workspace {
                binding.bytes = 0..workspace_bytes;
            }
        }
        let plan = Plan {
            body: self.body,
            algorithm,
            data: self.data,
            params,
            tensors: tensors.all(),
            workspace_bytes,
            word_bits: self.profile.word_bits(),
            dispatches,
        };
        plan.check_bindings(self.profile.max_binding)?;
        plan.check_iterations()?;
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Tuning;
    use crate::geometry::broadcast_layout;

    /// Tensors that leave room in a binding have workspaces that fit one.
    #[test]
    fn a_workspace_fits_where_its_tensor_does() {
        for (shape, params, data) in [
            // Fewer outer indices than fill whole vectors.
            (&[1, 300_001, 7][..], &[1, 300_001, 1][..], DType::F32),
            (&[1, 100_001, 31], &[1, 100_001, 1], DType::F32),
            (&[1, 1_000_000, 8], &[1, 1_000_000, 1], DType::F32),
            // Axes that do not fold: planes of single elements, and rows of a million.
            (&[1024, 60, 1025], &[1024, 1, 1025], DType::F16),
            (&[2, 14, 1 << 20], &[2, 1, 1 << 20], DType::F16),
        ] {
            for tuning in [Tuning::GPU, Tuning::SOFTWARE] {
                let profile = Profile {
                    tuning,
                    ..Profile::usual()
                };
                let problem = BatchNormProblem {
                    layout: broadcast_layout(shape, params).unwrap(),
                    data,
                    params: data,
                    has_gamma: true,
                    epsilon: 1e-5,
                    statistics: Statistics::Batch,
                    param_grads: ParamGrads::Both,
                };
                let plan = batch_norm(&profile, &problem);
                assert!(plan.is_ok(), "{shape:?}: {:?}", plan.err());
            }
        }
    }
}
