//! The forward passes.

use crate::element::types;
use crate::operators::{check_momentum, given};
use crate::{
    BatchNormForwardArgs, BatchNormForwardOperands, BatchNormForwardPlan, BatchNormInferenceArgs,
    BatchNormInferencePlan, BatchNormOptions, DataFormat, Element, Error, GpuBatchNorm, GpuContext,
    GpuLayerNorm, LayerNormForwardArgs, LayerNormForwardOperands, LayerNormForwardPlan,
    LayerNormOptions, ParamOf, RunningStatistics, RunningUpdate, RunningVariance, Shards, memory,
};

/// The inputs of [`BatchNormForwardTraining`], in host memory, in the document's order.
#[derive(Clone, Copy, Debug)]
pub struct BatchNormForwardTrainingInputs<'a, T, P> {
    /// Shape of src: rank 2 to 8.
    pub shape: &'a [usize],
    /// The layer's input.
    pub src: &'a [T],
    /// Running mean of each channel before this batch; `[C]`.
    pub mean: &'a [P],
    /// Running variance of each channel before this batch; `[C]`.
    pub variance: &'a [P],
    /// Scale of each channel; `[C]`. Given with beta or not at all.
    pub gamma: Option<&'a [P]>,
    /// Shift of each channel; `[C]`. Given with gamma or not at all.
    pub beta: Option<&'a [P]>,
}

/// The outputs of [`BatchNormForwardTraining`], in host memory, in the document's order.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNormForwardTrainingOutputs<T, P> {
    /// The layer's output, of src's shape.
    pub dst: Vec<T>,
    /// Running mean of each channel after this batch.
    pub running_mean: Vec<P>,
    /// Running variance of each channel after this batch.
    pub running_variance: Vec<P>,
    /// Mean of each channel in this batch, as the gradient takes it.
    pub batch_mean: Vec<P>,
    /// Biased variance of each channel in this batch, as the gradient takes it.
    pub batch_variance: Vec<P>,
}

/// oneDNN Graph's
/// [`BatchNormForwardTraining`](https://oneapi-src.github.io/oneDNN/dev_guide_op_batchnormforwardtraining.html).
///
/// With m elements in a channel, gamma = 1 and beta = 0 where they are not given:
///
/// * batch_mean = Σ src / m
/// * batch_variance = Σ (src − batch_mean)² / m, the biased variance
/// * dst = gamma · (src − batch_mean) / √(batch_variance + epsilon) + beta
/// * running_mean = momentum · mean + (1 − momentum) · batch_mean
/// * running_variance = momentum · variance + (1 − momentum) · batch_variance
///
/// | index | input | shape | in plans and errors | | index | output | shape | in plans |
/// |---|---|---|---|---|---|---|---|---|
/// | 0 | `src` | `(N, …, C)` or `(N, C, …)` | `src` | | 0 | `dst` | src's | `dst` |
/// | 1 | `mean` | `[C]` | `running_mean` | | 1 | `running_mean` | `[C]` | `running_mean` |
/// | 2 | `variance` | `[C]` | `running_variance` | | 2 | `running_variance` | `[C]` | `running_variance` |
/// | 3 | `gamma`, optional | `[C]` | `gamma` | | 3 | `batch_mean` | `[C]` | `mean` |
/// | 4 | `beta`, optional | `[C]` | `beta` | | 4 | `batch_variance` | `[C]` | `variance` |
///
/// # What differs
///
/// * The document does not say how momentum is used. The formulas above are those of oneDNN's code: momentum is the
///   weight of the **old** statistics, and it is 0.5 where it is absent.
/// * momentum is at most 1. The document only wants it positive.
/// * On device buffers running statistics are updated in place: one buffer is mean and running_mean, another one
///   variance and running_variance.
/// * The document has f32, bf16 and f16 data with f32 parameters, and bf16 with bf16. f16 with f16 and
///   f64 with f64 work too.
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # let gpu = match GpuContext::new().await {
/// #     Ok(gpu) => gpu,
/// #     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
/// #     Err(error) => return Err(error),
/// # };
/// use wgpu_norm::operators::onednn::{BatchNormForwardTraining, BatchNormForwardTrainingInputs};
///
/// let op = BatchNormForwardTraining {
///     momentum: Some(0.75),
///     ..BatchNormForwardTraining::new(1e-5) // NXC
/// };
/// let inputs = BatchNormForwardTrainingInputs {
///     shape: &[2, 2], // two samples of two channels
///     src: &[1.0_f32, 2.0, 3.0, 6.0],
///     mean: &[0.0, 0.0],
///     variance: &[1.0, 1.0],
///     gamma: Some(&[1.0, 1.0]),
///     beta: Some(&[0.0, 0.0]),
/// };
/// let outputs = op.forward(&gpu, inputs).await?;
/// assert_eq!(outputs.batch_mean, [2.0, 4.0]);
/// assert_eq!(outputs.batch_variance, [1.0, 4.0]);
/// assert_eq!(outputs.running_mean, [0.5, 1.0]); // a quarter of the batch's
/// # Ok(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormForwardTraining {
    /// Attribute `epsilon`, required: added to the variance; finite and above 0. An f32, as the document has
    /// it, also beside f64 data.
    pub epsilon: f32,
    /// Attribute `momentum`, the weight of the old running statistics: above 0, and 1 at most. Where it is absent it is
    /// 0.5, as in oneDNN's code.
    pub momentum: Option<f32>,
    /// Attribute `data_format`: `NXC`, the default, or `NCX`.
    pub data_format: DataFormat,
}

/// What oneDNN's code takes where momentum is absent.
const MOMENTUM: f32 = 0.5;

impl BatchNormForwardTraining {
    /// The document's defaults, without momentum. epsilon has no default there.
    pub const fn new(epsilon: f32) -> Self {
        Self {
            epsilon,
            momentum: None,
            data_format: DataFormat::Nxc,
        }
    }

    /// Computes the outputs of tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], [`Error::Argument`] for momentum, or if one of gamma and beta is given without the other, and
    /// those of [`GpuBatchNorm::forward`].
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: BatchNormForwardTrainingInputs<'_, T, P>,
    ) -> Result<BatchNormForwardTrainingOutputs<T, P>, Error> {
        both_or_neither(inputs.gamma.is_some(), inputs.beta.is_some())?;
        let update = self.update()?;
        let copy = |name, old: &[P]| memory::collect(name, old.iter().copied());
        let mut running_mean = copy("running_mean", inputs.mean)?;
        let mut running_variance = copy("running_variance", inputs.variance)?;
        let args = BatchNormForwardArgs {
            shape: inputs.shape,
            src: inputs.src,
            gamma: inputs.gamma,
            beta: inputs.beta,
            running: Some(RunningStatistics {
                mean: &mut running_mean,
                variance: &mut running_variance,
                update,
            }),
            residual: None,
        };
        let output = self.layer(gpu)?.forward_with_statistics(args).await?;
        Ok(BatchNormForwardTrainingOutputs {
            dst: output.dst,
            running_mean,
            running_variance,
            batch_mean: output.mean,
            batch_variance: output.variance,
        })
    }

    /// Plans the operation on device buffers; `has_gamma_and_beta` says whether both are given or neither.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], [`Error::Argument`] for momentum, and those of [`GpuBatchNorm::plan_forward`].
    pub fn plan<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        shape: &[usize],
        has_gamma_and_beta: bool,
    ) -> Result<BatchNormForwardPlan, Error> {
        let operands = BatchNormForwardOperands {
            gamma: has_gamma_and_beta,
            beta: has_gamma_and_beta,
            running: Some(self.update()?),
            shards: Shards::default(),
            residual: false,
        };
        self.layer(gpu)?
            .plan_forward(shape, types::<T, P, P>(), operands)
    }

    fn update(&self) -> Result<RunningUpdate, Error> {
        let momentum = self.momentum.unwrap_or(MOMENTUM);
        if momentum == 0.0 {
            return Err(Error::Argument {
                argument: "momentum",
                expected: "a number above 0".to_owned(),
                got: momentum.to_string(),
            });
        }
        Ok(RunningUpdate {
            weight: 1.0 - check_momentum(momentum.into())?,
            variance: RunningVariance::Biased,
        })
    }

    fn layer(&self, gpu: &GpuContext) -> Result<GpuBatchNorm, Error> {
        batch_norm(gpu, self.epsilon, self.data_format)
    }
}

/// The inputs of [`BatchNormInference`], in host memory, in the document's order.
#[derive(Clone, Copy, Debug)]
pub struct BatchNormInferenceInputs<'a, T, P> {
    /// Shape of src: rank 2 to 8.
    pub shape: &'a [usize],
    /// The layer's input.
    pub src: &'a [T],
    /// Scale of each channel; `[C]`.
    pub gamma: &'a [P],
    /// Shift of each channel; `[C]`.
    pub beta: &'a [P],
    /// Mean of each channel; `[C]`.
    pub mean: &'a [P],
    /// Variance of each channel; `[C]`.
    pub variance: &'a [P],
}

/// oneDNN Graph's
/// [`BatchNormInference`](https://oneapi-src.github.io/oneDNN/dev_guide_op_batchnorminference.html):
/// dst = gamma · (src − mean) / √(variance + epsilon) + beta.
///
/// | index | input | shape | | index | output | shape |
/// |---|---|---|---|---|---|---|
/// | 0 | `src` | `(N, …, C)` or `(N, C, …)` | | 0 | `dst` | src's |
/// | 1 | `gamma` | `[C]` | | | | |
/// | 2 | `beta` | `[C]` | | | | |
/// | 3 | `mean` | `[C]` | | | | |
/// | 4 | `variance` | `[C]` | | | | |
///
/// Plans and errors have the same names.
///
/// # What differs
///
/// * The document has f32, bf16 and f16 data with f32 parameters, and bf16 with bf16. f16 with f16 and
///   f64 with f64 work too.
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # let gpu = match GpuContext::new().await {
/// #     Ok(gpu) => gpu,
/// #     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
/// #     Err(error) => return Err(error),
/// # };
/// use wgpu_norm::operators::onednn::{BatchNormInference, BatchNormInferenceInputs};
///
/// let op = BatchNormInference::new(1e-5); // NXC
/// let inputs = BatchNormInferenceInputs {
///     shape: &[2, 2], // two samples of two channels
///     src: &[1.0_f32, 2.0, 3.0, 6.0],
///     gamma: &[1.0, 2.0],
///     beta: &[0.0, 5.0],
///     mean: &[2.0, 4.0],
///     variance: &[1.0, 4.0],
/// };
/// let dst = op.forward(&gpu, inputs).await?;
/// assert!((dst[0] + 1.0).abs() < 1e-4 && (dst[3] - 7.0).abs() < 1e-4);
/// # Ok(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormInference {
    /// Attribute `epsilon`, required: added to the variance; finite and above 0. An f32, as the document has
    /// it, also beside f64 data.
    pub epsilon: f32,
    /// Attribute `data_format`: `NXC`, the default, or `NCX`.
    pub data_format: DataFormat,
}

impl BatchNormInference {
    /// The document's defaults. epsilon has no default there.
    pub const fn new(epsilon: f32) -> Self {
        Self {
            epsilon,
            data_format: DataFormat::Nxc,
        }
    }

    /// Computes dst of tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and those of [`GpuBatchNorm::infer`].
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: BatchNormInferenceInputs<'_, T, P>,
    ) -> Result<Vec<T>, Error> {
        let args = BatchNormInferenceArgs {
            shape: inputs.shape,
            src: inputs.src,
            mean: inputs.mean,
            variance: inputs.variance,
            gamma: Some(inputs.gamma),
            beta: Some(inputs.beta),
            residual: None,
        };
        self.layer(gpu)?.infer_with_statistics(args).await
    }

    /// Plans the operation on device buffers.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and those of [`GpuBatchNorm::plan_inference`].
    pub fn plan<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        shape: &[usize],
    ) -> Result<BatchNormInferencePlan, Error> {
        self.layer(gpu)?
            .plan_inference(shape, types::<T, P, P>(), (true, true))
    }

    fn layer(&self, gpu: &GpuContext) -> Result<GpuBatchNorm, Error> {
        batch_norm(gpu, self.epsilon, self.data_format)
    }
}

fn batch_norm(
    gpu: &GpuContext,
    epsilon: f32,
    data_format: DataFormat,
) -> Result<GpuBatchNorm, Error> {
    let options = BatchNormOptions {
        data_format,
        ..BatchNormOptions::new(epsilon.into())
    };
    GpuBatchNorm::new(gpu, options)
}

fn both_or_neither(gamma: bool, beta: bool) -> Result<(), Error> {
    let missing = |argument, other| Error::Argument {
        argument,
        expected: format!("a tensor, as {other} is given"),
        got: given(false).to_owned(),
    };
    match (gamma, beta) {
        (true, false) => Err(missing("beta", "gamma")),
        (false, true) => Err(missing("gamma", "beta")),
        _ => Ok(()),
    }
}

/// The inputs of [`LayerNorm`], in host memory, in the document's order.
#[derive(Clone, Copy, Debug)]
pub struct LayerNormInputs<'a, T, P> {
    /// Shape of src: rank 1 to 8.
    pub shape: &'a [usize],
    /// The layer's input.
    pub src: &'a [T],
    /// Scale of each normalized position; given exactly with `use_affine`.
    pub gamma: Option<&'a [P]>,
    /// Shift of each normalized position; given exactly with `use_affine`.
    pub beta: Option<&'a [P]>,
}

/// The outputs of [`LayerNorm`], in host memory, in the document's order.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNormForwardOutputs<T, P> {
    /// The layer's output, of src's shape.
    pub dst: Vec<T>,
    /// Mean of each row; given exactly with `keep_stats`.
    pub mean: Option<Vec<P>>,
    /// Biased variance of each row; given exactly with `keep_stats`.
    pub variance: Option<Vec<P>>,
}

/// oneDNN Graph's
/// [`LayerNorm`](https://oneapi-src.github.io/oneDNN/dev_guide_op_layernorm.html).
///
/// The axes from `begin_norm_axis` on are normalized; a row is made of the elements that share the axes
/// before it. With mean and variance (the biased one) of the row, gamma = 1 and beta = 0 without `use_affine`,
/// dst = gamma · (src − mean) / √(variance + epsilon) + beta.
///
/// | index | input | shape | | index | output | shape |
/// |---|---|---|---|---|---|---|
/// | 0 | `src` | rank 1 to 8 | | 0 | `dst` | src's |
/// | 1 | `gamma` with `use_affine` | the normalized axes | | 1 | `mean` with `keep_stats` | the leading axes |
/// | 2 | `beta` with `use_affine` | the normalized axes | | 2 | `variance` with `keep_stats` | the leading axes |
///
/// Plans and errors have the same names.
///
/// # What differs
///
/// * The document calls gamma and beta one-dimensional also where several axes are normalized. Only
///   their number of elements counts here, so either form serves.
/// * Without `use_affine` gamma and beta must not be given, where oneDNN ignores them.
/// * f16 with f16 parameters and f64 with f64 work too.
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # let gpu = match GpuContext::new().await {
/// #     Ok(gpu) => gpu,
/// #     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
/// #     Err(error) => return Err(error),
/// # };
/// use wgpu_norm::operators::onednn::{LayerNorm, LayerNormInputs};
///
/// let op = LayerNorm::default(); // the last axis, affine, with statistics, epsilon 1e-5
/// let inputs = LayerNormInputs {
///     shape: &[2, 2], // two rows
///     src: &[1.0_f32, 3.0, 2.0, 4.0],
///     gamma: Some(&[1.0, 2.0]),
///     beta: Some(&[0.0, 5.0]),
/// };
/// let outputs = op.forward(&gpu, inputs).await?;
/// assert_eq!(outputs.mean, Some(vec![2.0, 3.0]));
/// assert!((outputs.dst[0] + 1.0).abs() < 1e-4 && (outputs.dst[3] - 7.0).abs() < 1e-4);
/// # Ok(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNorm {
    /// Attribute `keep_stats`: whether mean and variance are outputs; true by default.
    pub keep_stats: bool,
    /// Attribute `begin_norm_axis`, in [−r, r − 1] for src of rank r, negative from the end; −1 by
    /// default.
    pub begin_norm_axis: i64,
    /// Attribute `use_affine`: whether there are gamma and beta; true by default.
    pub use_affine: bool,
    /// Attribute `epsilon`: added to the variance; finite and above 0; 1e-5 by default. An f32, as the
    /// document has it, also beside f64 data.
    pub epsilon: f32,
}

impl Default for LayerNorm {
    /// The document's defaults.
    fn default() -> Self {
        Self {
            keep_stats: true,
            begin_norm_axis: -1,
            use_affine: true,
            epsilon: 1e-5,
        }
    }
}

impl LayerNorm {
    /// Computes the outputs of tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], [`Error::Argument`] for gamma or beta missing with `use_affine` or given without it, and those
    /// of [`GpuLayerNorm::forward`].
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: LayerNormInputs<'_, T, P>,
    ) -> Result<LayerNormForwardOutputs<T, P>, Error> {
        let params = [("gamma", inputs.gamma), ("beta", inputs.beta)];
        for (argument, tensor) in params {
            if tensor.is_some() != self.use_affine {
                return Err(Error::Argument {
                    argument,
                    expected: format!(
                        "{} with use_affine {}",
                        given(self.use_affine),
                        self.use_affine
                    ),
                    got: given(tensor.is_some()).to_owned(),
                });
            }
        }
        let args = LayerNormForwardArgs {
            shape: inputs.shape,
            src: inputs.src,
            residual: None,
            gamma: inputs.gamma,
            beta: inputs.beta,
            keep_statistics: self.keep_stats,
        };
        let output = self.layer(gpu)?.forward_with_statistics(args).await?;
        Ok(LayerNormForwardOutputs {
            dst: output.dst,
            mean: self.keep_stats.then_some(output.mean),
            variance: self.keep_stats.then_some(output.variance),
        })
    }

    /// Plans the operation on device buffers.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and those of [`GpuLayerNorm::plan_forward`].
    pub fn plan<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        shape: &[usize],
    ) -> Result<LayerNormForwardPlan, Error> {
        let operands = LayerNormForwardOperands {
            residual: false,
            beta: self.use_affine,
            keep_statistics: self.keep_stats,
        };
        self.layer(gpu)?
            .plan_forward(shape, types::<T, P, P>(), operands)
    }

    fn layer(&self, gpu: &GpuContext) -> Result<GpuLayerNorm, Error> {
        let options = LayerNormOptions {
            begin_norm_axis: self.begin_norm_axis,
            use_affine: self.use_affine,
            epsilon: self.epsilon.into(),
            ..LayerNormOptions::default()
        };
        GpuLayerNorm::new(gpu, options)
    }
}
