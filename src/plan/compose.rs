//! Operators as sequences of dispatches.

use super::finish::{Derived, From, Partials, To};
use super::fused::FusedTensors;
use super::rows::RowTensors;
use super::workspace::Workspace;
use super::{Binding, Dispatch, Phases, Plan, Planner, Requirement, word};
use crate::geometry::{Grid, Layout};
use crate::kernels::Tensor;
use crate::{DType, Error, ParamGrads, Profile, Statistics};

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

/// The dispatches of a batch-norm gradient.
pub(crate) fn batch_norm(profile: &Profile, problem: &BatchNormProblem) -> Result<Plan, Error> {
    let &BatchNormProblem {
        ref layout,
        data,
        params,
        ..
    } = problem;
    let grid = layout.grid;
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

    let empty = grid.elements() == 0;
    // Where oneDNN Graph's rule holds, a given gamma is ignored.
    let used_gamma = gamma.filter(|_| problem.param_grads != ParamGrads::Neither);
    // With constant statistics diff_src does not wait for the sums: the reduction writes it on the way.
    let one_pass = !batch && both && (grid.inner.is_multiple_of(4) || !planner.reads_runs(layout));
    let (reduces, applies) = match one_pass {
        true => (Phases::REDUCE, Phases::APPLY),
        false => (
            Phases::WHOLE.and(Phases::REDUCE),
            Phases::WHOLE.and(Phases::APPLY),
        ),
    };
    let mut split = Vec::new();
    if channels > 0 {
        let pack = Phases::WHOLE.and(Phases::REDUCE).and(Phases::APPLY);
        let epsilon = problem.epsilon;
        let gamma = used_gamma.as_ref();
        split.push((
            pack,
            planner.pack_statistics(&mean, &variance, gamma, epsilon, stats)?,
        ));
        let (reduce, partials) = if empty || !(both || batch) {
            (vec![], Partials::none(grid.channels, stats))
        } else if planner.reads_runs(layout) {
            planner.reduce_runs(layout, &src, &diff_dst, stats, &mut area)?
        } else {
            planner.reduce_columns(layout, &src, &diff_dst, stats, &mut area)?
        };
        if one_pass {
            split.extend(reduce.iter().map(|d| (Phases::WHOLE, writing_diff_src(d))));
        }
        split.extend(reduce.into_iter().map(|dispatch| (reduces, dispatch)));
        let derived = Derived {
            diff_gamma: diff_gamma.as_ref(),
            diff_beta: diff_beta.as_ref(),
            coefficients: (!empty).then_some((coefficients, stats)),
            constant_statistics: !batch,
        };
        let finish = |from, to| planner.finish(&partials, grid.count(), &derived, from, to);
        split.push((Phases::WHOLE, finish(From::Partials, To::Results)?));
        split.push((Phases::REDUCE, finish(From::Partials, To::Sums)?));
        split.push((Phases::APPLY, finish(From::Sums, To::Results)?));
    }
    if !empty {
        let src = batch.then_some(&src);
        let apply = if planner.reads_runs(layout) {
            planner.apply_runs(layout, src, &diff_dst, &diff_src, stats, coefficients)?
        } else {
            planner.apply_columns(layout, src, &diff_dst, &diff_src, stats, coefficients)?
        };
        let apply = planner.apply_order(apply);
        split.extend(apply.into_iter().map(|dispatch| (applies, dispatch)));
    }
    let fused = FusedTensors {
        src: &src,
        diff_dst: &diff_dst,
        mean: &mean,
        variance: &variance,
        gamma: used_gamma.as_ref(),
        diff_src: &diff_src,
        diff_gamma: diff_gamma.as_ref(),
        diff_beta: diff_beta.as_ref(),
    };
    let whole = match !empty && batch {
        true => planner.fused(layout, &fused, problem.epsilon)?,
        false => None,
    };
    if let Some(whole) = whole {
        // For the whole operator; the split kernels stay for its two halves.
        split = split
            .into_iter()
            .filter_map(|(phases, dispatch)| Some((phases.without(Phases::WHOLE)?, dispatch)))
            .chain(whole.into_iter().map(|dispatch| (Phases::WHOLE, dispatch)))
            .collect();
    }
    planner.complete(tensors, area, params, split)
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

/// A layer-norm gradient, folded to rows and columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerNormProblem {
    pub rows: u32,
    pub columns: u32,
    pub data: DType,
    pub params: DType,
    pub use_affine: bool,
    pub epsilon: f64,
    pub param_grads: ParamGrads,
}

/// The dispatches of a layer-norm gradient: everything in one reading where rows fit registers; else a
/// reduction of rows and columns alike, then the elementwise pass.
pub(crate) fn layer_norm(profile: &Profile, problem: &LayerNormProblem) -> Result<Plan, Error> {
    let &LayerNormProblem {
        rows,
        columns,
        data,
        params,
        epsilon,
        ..
    } = problem;
    let planner = Planner { profile, data };
    let accumulator = data.accumulator();
    // The same elements, grouped by row for the statistics and by column for the parameters.
    let by_row = Grid {
        outer: 1,
        channels: rows,
        inner: columns,
    };
    let requirement = |tensor, dtype, elements| Requirement {
        tensor,
        dtype,
        elements,
    };
    let (n, rows, columns) = (by_row.elements(), u64::from(rows), u64::from(columns));
    let src = requirement(Tensor::Src, data, n);
    let diff_dst = requirement(Tensor::DiffDst, data, n);
    let diff_src = requirement(Tensor::DiffSrc, data, n);
    let mean = requirement(Tensor::Mean, params, rows);
    let variance = requirement(Tensor::Variance, params, rows);
    let of_params = |there: bool, tensor| there.then(|| requirement(tensor, params, columns));
    let both = problem.use_affine && problem.param_grads == ParamGrads::Both;
    let gamma = of_params(problem.use_affine, Tensor::Gamma);
    let diff_gamma = of_params(both, Tensor::DiffGamma);
    let diff_beta = of_params(both, Tensor::DiffBeta);
    let used_gamma = gamma.filter(|_| problem.param_grads != ParamGrads::Neither);
    let mut tensors = vec![src, diff_dst, mean, variance];
    tensors.extend(gamma);
    tensors.push(diff_src);
    tensors.extend(diff_gamma);
    tensors.extend(diff_beta);
    let in_registers = planner.rows_in_registers(&by_row);
    let mut area = Workspace::new(accumulator);
    let mut dispatches = Vec::new();
    let row_tensors = RowTensors {
        src: &src,
        diff_dst: &diff_dst,
        mean: &mean,
        variance: &variance,
        gamma: used_gamma.as_ref(),
        diff_src: &diff_src,
        summed: both,
    };
    let mut of_columns = Partials::none(word(columns), area.reserve(0)?);
    if let (Some(fused), 1..) = (in_registers, n) {
        let (fused, partials) = planner.fused_rows(&fused, &row_tensors, epsilon, &mut area)?;
        dispatches.extend(fused);
        of_columns = partials;
    } else if n > 0 {
        let split = planner.split_rows(&by_row);
        let stats = area.reserve(rows)?;
        dispatches.push(planner.pack_statistics(&mean, &variance, None, epsilon, stats)?);
        let weights = match &used_gamma {
            Some(gamma) => {
                let (copies, quads) = split.weights();
                let weights = area.reserve(copies * quads)?;
                dispatches.push(planner.pack_weights(gamma, copies, quads, weights)?);
                Some(weights)
            }
            None => None,
        };
        let coefficients = area.reserve(rows)?;
        let (reduce, of_rows, partials) =
            planner.reduce_rows(&split, &row_tensors, stats, weights, &mut area)?;
        dispatches.extend(reduce);
        of_columns = partials;
        let derived = Derived {
            diff_gamma: None,
            diff_beta: None,
            coefficients: Some((coefficients, stats)),
            constant_statistics: false,
        };
        let finish = planner.finish(&of_rows, columns, &derived, From::Partials, To::Results)?;
        dispatches.push(finish);
        let apply = planner.apply_rows(&split, &row_tensors, stats, coefficients, weights)?;
        dispatches.extend(planner.apply_order(apply));
    }
    if both && columns > 0 {
        let derived = Derived {
            diff_gamma: diff_gamma.as_ref(),
            diff_beta: diff_beta.as_ref(),
            coefficients: None,
            constant_statistics: false,
        };
        let finish = planner.finish(&of_columns, rows, &derived, From::Partials, To::Results)?;
        dispatches.push(finish);
    }
    let whole = |dispatch| (Phases::WHOLE, dispatch);
    let dispatches = dispatches.into_iter().map(whole).collect();
    planner.complete(tensors, area, params, dispatches)
}

impl Planner<'_> {
    /// Whether runs are long enough to be read as such; else they are read as columns.
    pub fn reads_runs(&self, layout: &Layout) -> bool {
        match &layout.general {
            Some(general) => !general.keeps_last,
            None => layout.grid.inner >= self.profile.tuning.short_run.max(1),
        }
    }

    fn complete(
        &self,
        tensors: Vec<Requirement>,
        area: Workspace,
        params: DType,
        mut dispatches: Vec<(Phases, Dispatch)>,
    ) -> Result<Plan, Error> {
        let workspace_bytes = area.bytes();
        for binding in dispatches.iter_mut().flat_map(|(_, d)| &mut d.bindings) {
            if binding.tensor == Tensor::Workspace {
                binding.bytes = 0..workspace_bytes;
            }
        }
        let plan = Plan {
            data: self.data,
            params,
            tensors,
            workspace_bytes,
            word_bits: self.profile.word_bits(),
            dispatches,
        };
        plan.check_bindings(self.profile.max_binding)?;
        Ok(plan)
    }
}
