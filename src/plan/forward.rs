//! Forward passes as sequences of dispatches.

use super::choose::{Channels, RowsOf};
use super::compose::walks_planes;
use super::finish::{Derived, Partials, Route};
use super::flat::Samples;
use super::tensors::{self, Applied, Tensors, mask, of};
use super::workspace::{Part, Workspace};
use super::{Dispatch, Phases, Plan, Planner, word};
use crate::geometry::{Grid, Layout};
use crate::kernels::{Body, Ending, Scalars};
use crate::options::{RunningUpdate, RunningVariance};
use crate::{Activation, Algorithm, DTypes, Error, Profile, Shards, Tensor};

/// Batch norm in training, folded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchNormForward {
    pub layout: Layout,
    pub types: DTypes,
    pub has_gamma: bool,
    pub has_beta: bool,
    pub epsilon: f64,
    pub after: After,
    /// How running statistics take in the batch's, if there are any.
    pub running: Option<RunningUpdate>,
    /// Of a batch that is spread over several devices.
    pub shards: Shards,
}

/// What follows a layer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct After {
    pub activation: Activation,
    /// Whether a residual is added before the activation.
    pub residual: bool,
}

impl After {
    pub fn ending(&self) -> Ending {
        Ending {
            activation: self.activation,
            residual: self.residual,
            gamma_ignored: false,
        }
    }

    /// The tensors with those that this takes; in training with the mask.
    pub fn joined_to(&self, tensors: Tensors, training: bool) -> Tensors {
        let residual = super::Requirement {
            tensor: Tensor::Residual,
            ..tensors.src
        };
        let masked = training && self.ending().is_masked();
        Tensors {
            residual_after: self.residual.then_some(residual),
            mask: masked.then(|| mask(tensors.src.elements)),
            ..tensors
        }
    }

    /// Why no kernel does it in one dispatch, if none does.
    pub fn not_fusible(&self) -> Option<&'static str> {
        self.residual.then_some("a residual is added")
    }
}

impl BatchNormForward {
    fn tensors(&self) -> Tensors {
        let grid = &self.layout.grid;
        let channels = u64::from(grid.channels);
        let of_data = of(self.types.data, grid.elements());
        let of_params = of(self.types.params, channels);
        let of_statistics = of(self.types.statistics, channels);
        let sums = 4 * channels * u64::from(self.shards.count);
        let running = self
            .running
            .map(|_| [Tensor::RunningMean, Tensor::RunningVariance]);
        let tensors = Tensors {
            gamma: self.has_gamma.then(|| of_params(Tensor::Gamma)),
            beta: self.has_beta.then(|| of_params(Tensor::Beta)),
            running: running.into_iter().flatten().map(&of_statistics).collect(),
            outputs: [Tensor::Mean, Tensor::Variance].map(&of_statistics).into(),
            sums: Some(of(self.types.data.accumulator(), sums)(Tensor::Sums)),
            ..forward(of_data(Tensor::Src), of_data(Tensor::Dst))
        };
        self.after.joined_to(tensors, true)
    }

    fn scalars(&self) -> Scalars {
        let unbiased = |update: RunningUpdate| update.variance == RunningVariance::Unbiased;
        Scalars {
            epsilon: self.epsilon,
            running_weight: self.running.map_or(0.0, |update| update.weight),
            running_correction: f64::from(u8::from(self.running.is_some_and(unbiased))),
            ..Derived::of(self.layout.grid.count()).scalars
        }
    }
}

/// Tensors of a forward pass that reads and writes no others.
fn forward(src: super::Requirement, dst: super::Requirement) -> Tensors {
    Tensors {
        src,
        second: None,
        residual_after: None,
        mask: None,
        statistics: tensors::Statistics {
            tensors: &[],
            dtype: src.dtype,
            groups: 0,
        },
        gamma: None,
        gamma_counts: true,
        beta: None,
        running: vec![],
        result: dst,
        diff_residual: None,
        sum: None,
        outputs: vec![],
        sums: None,
    }
}

/// The dispatches of batch norm in training: statistics and an elementwise pass, which are also its two halves, or for
/// the whole of it a fused kernel where one is faster.
pub(crate) fn batch_norm_forward(
    profile: &Profile,
    problem: &BatchNormForward,
) -> Result<Plan, Error> {
    let planner = Planner {
        profile,
        body: Body::Forward,
        ending: problem.after.ending(),
        data: problem.types.data,
    };
    let mut tensors = problem.tensors();
    let grid = &problem.layout.grid;
    let (whole, halves) = planner.choose_batch_norm(&Channels {
        layout: problem.layout,
        src: tensors.src,
        group_channels: 1,
        not_fusible: problem.after.not_fusible(),
        fused_bindings: tensors.bound_at_once().len(),
    })?;
    let fused = planner.fused(whole, grid, &tensors, problem.scalars())?;
    let mut workspace = Workspace::new(problem.types.data.accumulator());
    let split = planner.split_forward(problem, halves, &tensors, &mut workspace)?;
    let dispatches = planner.with_fused(fused, split, &mut tensors, &mut workspace);
    planner.complete(whole, problem.types, &tensors, &workspace, dispatches)
}

/// Batch norm by given statistics, folded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchNormInference {
    pub layout: Layout,
    pub types: DTypes,
    pub has_gamma: bool,
    pub has_beta: bool,
    pub epsilon: f64,
    pub after: After,
}

/// The dispatches of batch norm by given statistics: what a channel's elements have in common, then the elementwise pass.
pub(crate) fn batch_norm_inference(
    profile: &Profile,
    problem: &BatchNormInference,
) -> Result<Plan, Error> {
    let planner = Planner {
        profile,
        body: Body::Inference,
        ending: problem.after.ending(),
        data: problem.types.data,
    };
    let layout = &problem.layout;
    let channels = u64::from(layout.grid.channels);
    let of_data = of(problem.types.data, layout.grid.elements());
    let of_params = of(problem.types.params, channels);
    let tensors = Tensors {
        statistics: tensors::Statistics {
            tensors: planner.body.statistics(),
            dtype: problem.types.statistics,
            groups: channels,
        },
        gamma: problem.has_gamma.then(|| of_params(Tensor::Gamma)),
        beta: problem.has_beta.then(|| of_params(Tensor::Beta)),
        ..forward(of_data(Tensor::Src), of_data(Tensor::Dst))
    };
    let tensors = problem.after.joined_to(tensors, false);
    let algorithm = planner.choose_split(&Channels {
        layout: *layout,
        src: tensors.src,
        group_channels: 1,
        not_fusible: None,
        fused_bindings: 0,
    })?;
    let mut workspace = Workspace::new(problem.types.data.accumulator());
    let stats = workspace.reserve(channels)?;
    let mut dispatches = Vec::new();
    if tensors.src.elements > 0 {
        let params: Vec<_> = tensors.params().copied().collect();
        dispatches.extend(planner.pack_statistics(&tensors, &params, problem.epsilon, stats)?);
        let applied = Applied {
            src: true,
            stats,
            means: None,
        };
        dispatches.extend(planner.apply(
            walks_planes(algorithm, layout),
            layout,
            &tensors,
            applied,
        )?);
    }
    let whole = |dispatch| (Phases::WHOLE, dispatch);
    let dispatches = dispatches.into_iter().map(whole).collect();
    planner.complete(algorithm, problem.types, &tensors, &workspace, dispatches)
}

/// Layer norm or RMS norm forward, folded to rows and columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowsForward {
    /// [`Body::Forward`] or [`Body::RmsForward`].
    pub body: Body,
    pub rows: u32,
    pub columns: u32,
    pub types: DTypes,
    pub has_gamma: bool,
    pub has_beta: bool,
    /// Whether something is added before the layer, so that the sum is written, too.
    pub residual: bool,
    /// Whether the rows' statistics are written.
    pub keep_statistics: bool,
    pub epsilon: f64,
}

impl RowsForward {
    fn tensors(&self) -> Tensors {
        let (rows, columns) = (u64::from(self.rows), u64::from(self.columns));
        let of_data = of(self.types.data, rows * columns);
        let of_params = of(self.types.params, columns);
        let statistics = [Tensor::Mean, Tensor::Variance, Tensor::MeanSquare].into_iter();
        let kept = statistics.filter(|&tensor| self.keep_statistics && self.body.writes(tensor));
        Tensors {
            second: self.residual.then(|| of_data(Tensor::Residual)),
            gamma: self.has_gamma.then(|| of_params(Tensor::Gamma)),
            beta: self.has_beta.then(|| of_params(Tensor::Beta)),
            sum: self.residual.then(|| of_data(Tensor::Sum)),
            outputs: kept.map(of(self.types.statistics, rows)).collect(),
            ..forward(of_data(Tensor::Src), of_data(Tensor::Dst))
        }
    }
}

/// The dispatches of a forward pass over rows: in one reading where rows fit registers; else statistics, then the
/// elementwise pass.
pub(crate) fn rows_forward(profile: &Profile, problem: &RowsForward) -> Result<Plan, Error> {
    let planner = Planner {
        profile,
        body: problem.body,
        ending: Ending::default(),
        data: problem.types.data,
    };
    let in_registers = Planner {
        body: match problem.body {
            Body::Forward => Body::RowsForward,
            body => body,
        },
        ..planner
    };
    let tensors = problem.tensors();
    planner.in_slices(problem.rows.into(), &tensors, |slices| {
        let mut workspace = Workspace::new(problem.types.data.accumulator());
        let mut algorithm = Algorithm::RowsReadTwice;
        let dispatches =
            planner.each_slice(slices, &tensors, &mut workspace, |rows, workspace| {
                let problem = RowsForward {
                    rows: word(rows),
                    ..*problem
                };
                let (by, dispatches) =
                    planner.rows_forward_of(&problem, &in_registers, workspace)?;
                algorithm = by;
                Ok(dispatches)
            })?;
        let whole = |dispatch| (Phases::WHOLE, dispatch);
        let dispatches = dispatches.into_iter().map(whole).collect();
        planner.complete(algorithm, problem.types, &tensors, &workspace, dispatches)
    })
}

impl Planner<'_> {
    /// Statistics, what follows from them, elementwise pass: the whole of them and the two halves.
    fn split_forward(
        &self,
        problem: &BatchNormForward,
        algorithm: Algorithm,
        tensors: &Tensors,
        workspace: &mut Workspace,
    ) -> Result<Vec<(Phases, Dispatch)>, Error> {
        let layout = &problem.layout;
        let grid = &layout.grid;
        let empty = tensors.src.elements == 0;
        let planes = walks_planes(algorithm, layout);
        let stats = workspace.reserve(grid.channels.into())?;
        let mut dispatches = Vec::new();
        if grid.channels > 0 {
            let (reduce, partials) = match empty {
                true => (vec![], Partials::none(grid.channels, stats)),
                false => self.reduce_statistics(planes, layout, tensors, stats, workspace)?,
            };
            let summed = Phases::WHOLE.with(Phases::REDUCE);
            dispatches.extend(reduce.into_iter().map(|dispatch| (summed, dispatch)));
            let derived = Derived {
                operands: vec![
                    tensors.params().copied().collect(),
                    tensors.outputs.clone(),
                    tensors.running.clone(),
                ],
                means: (!empty).then_some(stats),
                scalars: problem.scalars(),
                shards: problem.shards,
                ..Derived::of(grid.count())
            };
            dispatches.extend(self.finish_halves(&partials, &derived, true)?);
        }
        if !empty {
            let applied = Applied {
                src: true,
                stats,
                means: None,
            };
            let applies = Phases::WHOLE.with(Phases::APPLY);
            let apply = self.apply_in_training(planes, layout, None, tensors, applied)?;
            dispatches.extend(apply.into_iter().map(|dispatch| (applies, dispatch)));
        }
        Ok(dispatches)
    }

    /// The elementwise pass; of a forward pass that writes a mask, in the order of the tensor.
    pub(super) fn apply_in_training(
        &self,
        planes: bool,
        layout: &Layout,
        samples: Option<Samples>,
        tensors: &Tensors,
        applied: Applied,
    ) -> Result<Vec<Dispatch>, Error> {
        match tensors.mask.is_some() && !self.body.is_gradient() {
            true => self.flat_apply(layout, samples, tensors, applied),
            false => self.apply(planes, layout, tensors, applied),
        }
    }

    /// The reduction of channels' statistics, and the partial ones that it leaves.
    fn reduce_statistics(
        &self,
        planes: bool,
        layout: &Layout,
        tensors: &Tensors,
        stats: Part,
        workspace: &mut Workspace,
    ) -> Result<(Vec<Dispatch>, Partials), Error> {
        let (mut dispatches, partials) = match planes {
            true => self.channels_first_reduce(layout, tensors, false, stats, workspace)?,
            false => self.channels_last_reduce(layout, tensors, stats, workspace)?,
        };
        let (groups, partials) = self.group(partials, workspace)?;
        dispatches.extend(groups);
        Ok((dispatches, partials))
    }

    /// All of a forward pass over rows.
    fn rows_forward_of(
        &self,
        problem: &RowsForward,
        in_registers: &Planner<'_>,
        workspace: &mut Workspace,
    ) -> Result<(Algorithm, Vec<Dispatch>), Error> {
        let tensors = problem.tensors();
        let by_row = Grid {
            outer: 1,
            channels: problem.rows,
            inner: problem.columns,
        };
        let algorithm = in_registers.choose_rows(&RowsOf {
            by_row,
            tensors: tensors.clone(),
        })?;
        let derived = Derived {
            operands: vec![tensors.outputs.clone()],
            scalars: Scalars {
                epsilon: problem.epsilon,
                ..Derived::of(problem.columns.into()).scalars
            },
            ..Derived::of(problem.columns.into())
        };
        let mut dispatches = Vec::new();
        if by_row.elements() == 0 {
            if problem.keep_statistics && problem.rows > 0 {
                let none = Partials::none(problem.rows, workspace.reserve(0)?);
                dispatches.extend(self.finish(&none, &derived, Route::Whole)?);
            }
        } else if algorithm == Algorithm::RowsInRegisters {
            let kept = match problem.keep_statistics && !in_registers.stores_statistics(&tensors) {
                true => Some(workspace.reserve(problem.rows.into())?),
                false => None,
            };
            let (fused, _) =
                in_registers.rows_fused(&by_row, &tensors, derived.scalars, kept, workspace)?;
            dispatches.extend(fused);
            if let Some(kept) = kept {
                let records = Partials::plain(kept, problem.rows, 1, problem.rows.into());
                dispatches.extend(self.finish(&records, &derived, Route::Whole)?);
            }
        } else {
            dispatches.extend(self.split_rows_forward(&by_row, &tensors, derived, workspace)?);
        }
        Ok((algorithm, dispatches))
    }

    /// Statistics of rows as of channels, what follows from them, and the elementwise pass.
    fn split_rows_forward(
        &self,
        by_row: &Grid,
        tensors: &Tensors,
        derived: Derived,
        workspace: &mut Workspace,
    ) -> Result<Vec<Dispatch>, Error> {
        let layout = Layout::from(*by_row);
        let stats = workspace.reserve(by_row.channels.into())?;
        let (params, mut dispatches) = self.row_params(tensors, workspace)?;
        let (reduce, partials) =
            self.reduce_statistics(true, &layout, tensors, stats, workspace)?;
        dispatches.extend(reduce);
        let derived = Derived {
            means: Some(stats),
            ..derived
        };
        dispatches.extend(self.finish(&partials, &derived, Route::Whole)?);
        let split = self.split_rows(by_row, tensors, false);
        dispatches.extend(self.rows_apply(&split, tensors, stats, None, params)?);
        Ok(dispatches)
    }
}
