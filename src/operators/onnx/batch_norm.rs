//! `BatchNormalization`.

use crate::operators::*;

/// The inputs of [`BatchNormalization`], in host memory, in the document's order.
#[derive(Clone, Copy, Debug)]
pub struct BatchNormalizationInputs<'a, T, P, S = P> {
    /// Shape of X: `(N, C, D1, …)`, rank 1 to 8. With rank 1 it is `(N)`, and C is 1.
    pub shape: &'a [usize],
    /// `X`: the layer's input.
    pub x: &'a [T],
    /// `scale` of each channel; `[C]`.
    pub scale: &'a [P],
    /// `B`, the bias of each channel; `[C]`.
    pub b: &'a [P],
    /// `input_mean`: in training the running mean of each channel before this batch, else the mean; `[C]`.
    pub input_mean: &'a [S],
    /// `input_var`: in training the running variance of each channel before this batch, else the variance; `[C]`.
    pub input_var: &'a [S],
}

/// The outputs of [`BatchNormalization`], in host memory, in the document's order.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNormalizationOutputs<T, S> {
    /// `Y`: the layer's output, of X's shape.
    pub y: Vec<T>,
    /// `running_mean` of each channel after this batch; in training only.
    pub running_mean: Option<Vec<S>>,
    /// `running_var` of each channel after this batch; in training only.
    pub running_var: Option<Vec<S>>,
}

/// ONNX's [`BatchNormalization`](https://onnx.ai/onnx/operators/onnx__BatchNormalization.html) of opset 15.
///
/// With `training_mode`, m elements in a channel, current_mean = Σ X / m and current_var = Σ (X − current_mean)² / m:
///
/// * Y = (X − current_mean) / √(current_var + epsilon) · scale + B
/// * running_mean = input_mean · momentum + current_mean · (1 − momentum)
/// * running_var = input_var · momentum + current_var · (1 − momentum)
///
/// Without `training_mode`, Y = (X − input_mean) / √(input_var + epsilon) · scale + B.
///
/// | index | input | type | shape | in plans and errors |
/// |---|---|---|---|---|
/// | 0 | `X` | T | `(N, C, D1, …)` | `src` |
/// | 1 | `scale` | T1 | `[C]` | `gamma` |
/// | 2 | `B` | T1 | `[C]` | `beta` |
/// | 3 | `input_mean` | T2 | `[C]` | in training `running_mean`, else `mean` |
/// | 4 | `input_var` | T2 | `[C]` | in training `running_variance`, else `variance` |
///
/// | index | output | type | shape | in plans |
/// |---|---|---|---|---|
/// | 0 | `Y` | T | X's | `dst` |
/// | 1 | `running_mean`, in training | T2 | `[C]` | `running_mean` |
/// | 2 | `running_var`, in training | T2 | `[C]` | `running_variance` |
///
/// # Differences
///
/// * T1 is T, or f32 if T is f16 or bf16; T2 is T1, or f32 if T is f16 or bf16. The document allows any three float
///   types.
/// * epsilon must be above 0, and momentum from 0 to 1.
/// * On device buffers running statistics are updated in place: one buffer holds input_mean and running_mean, another
///   input_var and running_var. current_mean and current_var are written too, for the gradient.
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
/// let gpu = GpuContext::new().await?;
/// use wgpu_norm::operators::onnx::{BatchNormalization, BatchNormalizationInputs};
///
/// let op = BatchNormalization {
///     training_mode: true,
///     ..BatchNormalization::default() // epsilon 1e-5, momentum 0.9
/// };
/// let inputs = BatchNormalizationInputs {
///     shape: &[2, 1, 2], // two samples of one channel with two elements
///     x: &[1.0_f32, 2.0, 3.0, 4.0],
///     scale: &[1.0_f32],
///     b: &[0.0],
///     input_mean: &[0.0_f32],
///     input_var: &[1.0],
/// };
/// let outputs = op.forward(&gpu, inputs).await?;
/// let (mean, var) = (outputs.running_mean.unwrap_or_default(), outputs.running_var.unwrap_or_default());
/// assert!((mean[0] - 0.25).abs() < 1e-6); // a tenth of 2.5
/// assert!((var[0] - 1.025).abs() < 1e-6); // nine tenths of 1, one of 1.25
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormalization {
    /// Attribute `epsilon`: added to the variance; finite and above 0; 1e-5 by default.
    pub epsilon: f32,
    /// Attribute `momentum`, the weight of the **old** running statistics, from 0 to 1; 0.9 by default.
    pub momentum: f32,
    /// Attribute `training_mode`, 1 or 0: whether the statistics are the batch's; false by default.
    pub training_mode: bool,
}

impl Default for BatchNormalization {
    /// The document's defaults.
    fn default() -> Self {
        Self {
            epsilon: 1e-5,
            momentum: 0.9,
            training_mode: false,
        }
    }
}

/// `(N)` has one channel: it is `(N, 1)`.
fn with_channels(shape: &[usize]) -> Cow<'_, [usize]> {
    match *shape {
        [samples] => Cow::Owned(vec![samples, 1]),
        _ => Cow::Borrowed(shape),
    }
}

impl BatchNormalization {
    /// The operator as an operation.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], [`Error::Argument`] for momentum, [`Error::StatisticsDType`], and errors in the shape.
    pub fn operation<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        shape: &[usize],
    ) -> Result<Operation, Error> {
        let pass = match self.training_mode {
            true => Forward::default()
                .with_running(weighing_the_old(self.momentum)?)
                .into(),
            false => Pass::Inference,
        };
        let (norm, shape) = (batch_norm(DataFormat::Ncx), with_channels(shape));
        operation::<T, P, S>(norm, pass, &shape, self.epsilon, (true, true))
    }

    /// Computes the outputs from tensors in host memory.
    ///
    /// # Errors
    ///
    /// Those of [`operation`](Self::operation) and [`Operation::run_into`].
    pub async fn forward<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: BatchNormalizationInputs<'_, T, P, S>,
    ) -> Result<BatchNormalizationOutputs<T, S>, Error> {
        let call = Call::new(self.operation::<T, P, S>(inputs.shape)?, inputs.x)
            .params(inputs.scale, inputs.b)
            .statistics(inputs.input_mean, inputs.input_var);
        let mut results = call.run::<T, P, S>(gpu).await?;
        Ok(BatchNormalizationOutputs {
            y: results.dst(),
            running_mean: results.statistic(Tensor::RunningMean),
            running_var: results.statistic(Tensor::RunningVariance),
        })
    }
}
