//! Gradients as sequences of dispatches.

use super::choose::{Channels, RowsOf};
use super::compose::walks_planes;
use super::finish::{Derived, Partials, Route};
use super::slices::Slices;
use super::tensors::{self, Applied, Tensors, mask, of};
use super::workspace::{Part, Workspace};
use super::{Binding, Dispatch, Phases, Plan, Planner, word};
use crate::geometry::{Grid, Layout};
use crate::kernels::{Body, Ending, Scalars};
use crate::{Activation, Algorithm, DTypes, Error, ParamGrads, Profile, Statistics, Tensor};

/// A batch-norm gradient, folded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchNormProblem {
    pub layout: Layout,
    pub types: DTypes,
    pub has_gamma: bool,
    pub epsilon: f64,
    pub statistics: Statistics,
    pub param_grads: ParamGrads,
    pub activated: Activated,
}

impl BatchNormProblem {
    fn tensors(&self) -> Tensors {
        let grid = &self.layout.grid;
        let channels = u64::from(grid.channels);
        let of_data = of(self.types.data, grid.elements());
        let of_params = of(self.types.params, channels);
        let of_sums = of(self.types.data.accumulator(), 2 * channels + 1);
        let outputs: &[Tensor] = match self.param_grads {
            ParamGrads::Both => &[Tensor::DiffGamma, Tensor::DiffBeta],
            ParamGrads::Neither | ParamGrads::Frozen => &[],
        };
        let ending = self.ending();
        let masked = ending.is_masked();
        Tensors {
            src: of_data(Tensor::Src),
            second: Some(of_data(Tensor::DiffDst)),
            residual_after: None,
            mask: masked.then(|| mask(grid.elements())),
            statistics: tensors::Statistics {
                tensors: Body::Gradient.statistics(),
                dtype: self.types.statistics,
                groups: channels,
            },
            gamma: self.has_gamma.then(|| of_params(Tensor::Gamma)),
            gamma_counts: self.param_grads != ParamGrads::Neither || ending.gamma_ignored,
            beta: self
                .activated
                .has_beta(ending)
                .then(|| of_params(Tensor::Beta)),
            running: vec![],
            result: of_data(Tensor::DiffSrc),
            diff_residual: masked.then(|| of_data(Tensor::DiffResidual)),
            sum: None,
            outputs: outputs.iter().copied().map(of_params).collect(),
            sums: Some(of_sums(Tensor::Sums)),
        }
    }

    fn ending(&self) -> Ending {
        self.activated.ending(self.has_gamma, self.param_grads)
    }
}

/// What follows a layer whose gradient is taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Activated {
    pub activation: Activation,
    pub has_beta: bool,
    /// Whether a mask says what passed the activation.
    pub masked: bool,
}

impl Activated {
    pub fn ending(&self, has_gamma: bool, param_grads: ParamGrads) -> Ending {
        let ending = Ending {
            activation: self.activation,
            residual: self.masked,
            gamma_ignored: false,
        };
        Ending {
            gamma_ignored: ending.is_found_again()
                && has_gamma
                && param_grads == ParamGrads::Neither,
            ..ending
        }
    }

    /// Whether beta is read: it counts for the activation alone.
    pub fn has_beta(&self, ending: Ending) -> bool {
        self.has_beta && ending.is_found_again()
    }
}

/// The dispatches of a batch-norm gradient: a reduction and an elementwise pass, which are also its two
/// halves, or for the whole of it a fused kernel where one is faster.
pub(crate) fn batch_norm(profile: &Profile, problem: &BatchNormProblem) -> Result<Plan, Error> {
    let data = problem.types.data;
    let planner = Planner {
        profile,
        body: Body::Gradient,
        ending: problem.ending(),
        data,
    };
    let mut tensors = problem.tensors();
    let grid = &problem.layout.grid;
    let (whole, halves) = planner.choose_batch_norm(&Channels {
        layout: problem.layout,
        src: tensors.src,
        group_channels: 1,
        not_fusible: match problem.statistics {
            Statistics::Batch => None,
            Statistics::Constant => Some("mean and variance are constants"),
        },
        fused_bindings: tensors.bound_at_once().len(),
    })?;
    let fused = planner.fused(
        whole,
        grid,
        &tensors,
        scalars(problem.epsilon, grid.count()),
    )?;
    let mut workspace = Workspace::new(data.accumulator());
    let split = planner.split_batch_norm(problem, halves, &tensors, &mut workspace)?;
    let dispatches = planner.with_fused(fused, split, &mut tensors, &mut workspace);
    planner.complete(whole, problem.types, &tensors, &workspace, dispatches)
}

/// What gradients need beside their tensors.
fn scalars(epsilon: f64, count: u64) -> Scalars {
    Scalars {
        epsilon,
        ..Derived::of(count).scalars
    }
}

/// A reduction that writes these, too, as far as it reads diff_dst.
fn writing(results: &[Tensor], reduction: &Dispatch) -> Dispatch {
    let mut dispatch = reduction.clone();
    let read = reduction
        .bindings
        .iter()
        .find(|b| b.tensor == Tensor::DiffDst);
    let written = results.iter().zip(std::iter::repeat(read));
    dispatch
        .bindings
        .extend(written.filter_map(|(&tensor, read)| {
            Some(Binding {
                tensor,
                bytes: read?.bytes.clone(),
            })
        }));
    dispatch
}

/// A gradient of layer norm or one like it, folded to rows and columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerNormProblem {
    pub body: Body,
    pub rows: u32,
    pub columns: u32,
    pub types: DTypes,
    pub use_affine: bool,
    pub epsilon: f64,
    pub param_grads: ParamGrads,
}

impl LayerNormProblem {
    pub fn tensors(&self) -> Tensors {
        let (rows, columns) = (u64::from(self.rows), u64::from(self.columns));
        let of_data = of(self.types.data, rows * columns);
        let of_params = of(self.types.params, columns);
        let both = self.use_affine && self.param_grads == ParamGrads::Both;
        let outputs = [Tensor::DiffGamma, Tensor::DiffBeta].into_iter();
        let outputs = outputs.filter(|&tensor| both && self.body.writes(tensor));
        Tensors {
            src: of_data(Tensor::Src),
            second: Some(of_data(Tensor::DiffDst)),
            residual_after: None,
            mask: None,
            statistics: tensors::Statistics {
                tensors: self.body.statistics(),
                dtype: self.types.statistics,
                groups: rows,
            },
            gamma: self.use_affine.then(|| of_params(Tensor::Gamma)),
            gamma_counts: self.param_grads != ParamGrads::Neither,
            beta: None,
            running: vec![],
            result: of_data(Tensor::DiffSrc),
            diff_residual: None,
            sum: None,
            outputs: outputs.map(&of_params).collect(),
            sums: None,
        }
    }

    /// The elements grouped by row, for the statistics; the parameters go by column.
    pub fn by_row(&self) -> Grid {
        Grid {
            outer: 1,
            channels: self.rows,
            inner: self.columns,
        }
    }
}

/// The dispatches of a gradient over rows, layer norm's or RMS norm's: everything in one reading where rows fit registers; else a
/// reduction of rows and columns alike, then the elementwise pass.
pub(crate) fn layer_norm(profile: &Profile, problem: &LayerNormProblem) -> Result<Plan, Error> {
    let planner = Planner {
        profile,
        body: problem.body,
        ending: Ending::default(),
        data: problem.types.data,
    };
    let tensors = problem.tensors();
    planner.in_slices(problem.rows.into(), &tensors, |slices| {
        let mut workspace = Workspace::new(problem.types.data.accumulator());
        let none = workspace.reserve(0)?;
        let mut of_columns = None;
        let mut sums = match tensors.param_grads() {
            true => planner.sums_of_slices(slices, problem.columns, &mut workspace)?,
            false => None,
        };
        let mut algorithm = Algorithm::RowsReadTwice;
        let mut dispatches =
            planner.each_slice(slices, &tensors, &mut workspace, |rows, workspace| {
                let problem = LayerNormProblem {
                    rows: word(rows),
                    ..*problem
                };
                let (by, mut dispatches, partials) =
                    planner.layer_norm_of(&problem, slices, none, workspace)?;
                algorithm = by;
                match (&mut sums, partials) {
                    (Some(sums), Some(partials)) => {
                        dispatches.extend(planner.add_up(sums, partials, workspace)?);
                        of_columns = Some(planner.total(sums));
                    }
                    (_, partials) => of_columns = partials,
                }
                Ok(dispatches)
            })?;
        if let (Some(of_columns), true, 1..) = (of_columns, tensors.param_grads(), problem.columns)
        {
            let derived = Derived {
                operands: vec![tensors.outputs.clone()],
                ..Derived::of(problem.rows.into())
            };
            let (groups, of_columns) = planner.group(of_columns, &mut workspace)?;
            dispatches.extend(groups);
            dispatches.extend(planner.finish(&of_columns, &derived, Route::Whole)?);
        }
        let whole = |dispatch| (Phases::WHOLE, dispatch);
        let dispatches = dispatches.into_iter().map(whole).collect();
        planner.complete(algorithm, problem.types, &tensors, &workspace, dispatches)
    })
}

impl Planner<'_> {
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
        let empty = tensors.src.elements == 0;
        let batch = problem.statistics == Statistics::Batch;
        let both = tensors.param_grads();
        let planes = walks_planes(algorithm, layout);
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
            let params: Vec<_> = tensors.params().copied().collect();
            let pack = self.pack_statistics(tensors, &params, problem.epsilon, stats)?;
            dispatches.extend(pack.into_iter().map(|dispatch| (all, dispatch)));
            let (reduce, partials) = if empty || !(both || batch) {
                (vec![], Partials::none(grid.channels, stats))
            } else if planes {
                self.channels_first_reduce(layout, tensors, one_pass, stats, workspace)?
            } else {
                self.channels_last_reduce(layout, tensors, stats, workspace)?
            };
            if one_pass {
                let mut results = vec![Tensor::DiffSrc];
                results.extend(tensors.diff_residual.map(|residual| residual.tensor));
                let all = reduce.iter().map(|reduction| writing(&results, reduction));
                dispatches.extend(all.map(|dispatch| (Phases::WHOLE, dispatch)));
            }
            dispatches.extend(reduce.into_iter().map(|dispatch| (reduces, dispatch)));
            let (groups, partials) = self.group(partials, workspace)?;
            let summed = Phases::WHOLE.with(Phases::REDUCE);
            dispatches.extend(groups.into_iter().map(|dispatch| (summed, dispatch)));
            let derived = Derived {
                operands: vec![tensors.outputs.clone()],
                means: (batch && !empty).then_some(means),
                ..Derived::of(grid.count())
            };
            let wanted = both || derived.means.is_some();
            dispatches.extend(self.finish_halves(&partials, &derived, wanted)?);
        }
        if !empty {
            let applied = Applied {
                src: batch || self.ending.is_found_again(),
                stats,
                means: batch.then_some(means),
            };
            let apply = self.apply(planes, layout, tensors, applied)?;
            dispatches.extend(apply.into_iter().map(|dispatch| (applies, dispatch)));
        }
        Ok(dispatches)
    }

    /// All of a gradient over rows but the last sums of columns, which are left as partial sums, or written; without rows
    /// they are `none`, which is any place in the workspace.
    fn layer_norm_of(
        &self,
        problem: &LayerNormProblem,
        slices: Slices,
        none: Part,
        workspace: &mut Workspace,
    ) -> Result<(Algorithm, Vec<Dispatch>, Option<Partials>), Error> {
        let (by_row, tensors, epsilon) = (problem.by_row(), problem.tensors(), problem.epsilon);
        let algorithm = self.choose_rows(&RowsOf {
            by_row,
            tensors: tensors.clone(),
        })?;
        if by_row.elements() == 0 {
            return Ok((
                algorithm,
                vec![],
                Some(Partials::none(problem.columns, none)),
            ));
        }
        let (dispatches, of_columns) = match algorithm {
            Algorithm::RowsInRegisters => {
                let scalars = scalars(epsilon, problem.columns.into());
                let (dispatches, partials) =
                    self.rows_fused(&by_row, &tensors, scalars, None, workspace)?;
                (dispatches, Some(partials))
            }
            _ => self.split_layer_norm(&by_row, &tensors, epsilon, !slices.several(), workspace)?,
        };
        Ok((algorithm, dispatches, of_columns))
    }

    /// A reduction of rows and columns, the rows' sums, the elementwise pass. The sums of columns may be left
    /// as partial sums, or where they are `direct`, of these rows alone, be written.
    fn split_layer_norm(
        &self,
        by_row: &Grid,
        tensors: &Tensors,
        epsilon: f64,
        direct: bool,
        workspace: &mut Workspace,
    ) -> Result<(Vec<Dispatch>, Option<Partials>), Error> {
        let split = self.split_rows(by_row, tensors, direct);
        let stats = workspace.reserve(tensors.statistics.groups)?;
        let mut dispatches = self.pack_statistics(tensors, &[], epsilon, stats)?;
        let (params, pack) = self.row_params(tensors, workspace)?;
        dispatches.extend(pack);
        let reduced = self.rows_reduce(&split, tensors, stats, params, workspace)?;
        dispatches.extend(reduced.dispatches);
        let mut means = None;
        if let Some(of_rows) = reduced.of_rows {
            means = Some(workspace.reserve(tensors.statistics.groups)?);
            let derived = Derived {
                means,
                ..Derived::of(by_row.inner.into())
            };
            let (groups, of_rows) = self.group(of_rows, workspace)?;
            dispatches.extend(groups);
            dispatches.extend(self.finish(&of_rows, &derived, Route::Whole)?);
        }
        let apply = self.rows_apply(&split, tensors, stats, means, params)?;
        dispatches.extend(apply);
        Ok((dispatches, reduced.of_columns))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Backward, Channels, DType, Norm, Operation, Tuning};

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
                let norm = Norm::Batch(Channels::Broadcast(params.to_vec()));
                let operation = Operation::new(norm, Backward::default(), shape, data);
                let plan = operation.planned(&profile);
                assert!(plan.is_ok(), "{shape:?}: {:?}", plan.err());
            }
        }
    }
}
