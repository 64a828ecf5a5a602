//! `LayerNormalization` and `RMSNormalization`.

use crate::operators::*;

/// The inputs of [`LayerNormalization`], in host memory, in the document's order.
#[derive(Clone, Copy, Debug)]
pub struct LayerNormalizationInputs<'a, T> {
    /// Shape of X: rank 1 to 8.
    pub shape: &'a [usize],
    /// `X`: the layer's input.
    pub x: &'a [T],
    /// `Scale` of each normalized position.
    pub scale: &'a [T],
    /// `B`, the bias of each normalized position, optional. If it is absent, it is 0.
    pub b: Option<&'a [T]>,
}

/// The outputs of [`LayerNormalization`], in host memory, in the document's order.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNormalizationOutputs<T, U> {
    /// `Y`: the layer's output, of X's shape.
    pub y: Vec<T>,
    /// `Mean` of each row.
    pub mean: Vec<U>,
    /// `InvStdDev` of each row.
    pub inv_std_dev: Vec<U>,
}

/// ONNX's [`LayerNormalization`](https://onnx.ai/onnx/operators/onnx__LayerNormalization.html) of opset 17.
///
/// The axes from `axis` on are normalized; a row consists of the elements with the same indices along the axes before
/// it. With means over the row:
///
/// * Mean = mean(X) and Var = mean((X − Mean)²)
/// * InvStdDev = 1/√(Var + epsilon)
/// * Y = (X − Mean) · InvStdDev · Scale + B
///
/// | index | input | type | shape | in plans and errors |
/// |---|---|---|---|---|
/// | 0 | `X` | T | rank 1 to 8 | `src` |
/// | 1 | `Scale` | T | the normalized axes | `gamma` |
/// | 2 | `B`, optional | T | the normalized axes | `beta` |
///
/// | index | output | type | shape | in plans |
/// |---|---|---|---|---|
/// | 0 | `Y` | T | X's | `dst` |
/// | 1 | `Mean` | U | the axes before `axis` | `mean` |
/// | 2 | `InvStdDev` | U | the axes before `axis` | `variance`: the variance itself |
///
/// # Differences
///
/// * U, the type of the statistics, is f32, or f64 if T is f64. The attribute `stash_type`, which selects it in the
///   document, is left out; its default, 1, is f32. Sums are kept in U, as in the document.
/// * Scale and B have as many elements as the normalized axes. The document lets them be broadcast to X.
/// * epsilon must be above 0, and the attribute is called `begin_norm_axis` in errors.
/// * On device buffers the variance is written in place of InvStdDev.
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
/// let gpu = GpuContext::new().await?;
/// use wgpu_norm::operators::onnx::{LayerNormalization, LayerNormalizationInputs};
///
/// let op = LayerNormalization::default(); // the last axis, epsilon 1e-5
/// let inputs = LayerNormalizationInputs {
///     shape: &[2, 2], // two rows
///     x: &[1.0_f32, 3.0, 2.0, 4.0],
///     scale: &[1.0, 2.0],
///     b: Some(&[0.0, 5.0]),
/// };
/// let outputs = op.forward(&gpu, inputs).await?;
/// assert_eq!(outputs.mean, [2.0, 3.0]);
/// assert!((outputs.inv_std_dev[0] - 1.0).abs() < 1e-4 && (outputs.y[3] - 7.0).abs() < 1e-4);
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNormalization {
    /// Attribute `axis`, in [−r, r − 1] for X of rank r, negative from the end; −1 by default.
    pub axis: i64,
    /// Attribute `epsilon`: added to the variance; finite and above 0; 1e-5 by default.
    pub epsilon: f32,
}

impl Default for LayerNormalization {
    /// The document's defaults.
    fn default() -> Self {
        Self {
            axis: -1,
            epsilon: 1e-5,
        }
    }
}

impl LayerNormalization {
    /// The operator as an operation. Mean and InvStdDev, which the document calls optional, are computed only with
    /// `keep_statistics`.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and errors in the shape and the axis.
    pub fn operation<T: ParamOf<T>>(
        &self,
        shape: &[usize],
        has_b: bool,
        keep_statistics: bool,
    ) -> Result<Operation, Error> {
        let begin_axis = self.axis;
        let (norm, pass) = (Norm::Layer { begin_axis }, forward(keep_statistics));
        operation::<T, T, T::Sum>(norm, pass, shape, self.epsilon, (true, has_b))
    }

    /// Computes the outputs from tensors in host memory.
    ///
    /// # Errors
    ///
    /// Those of [`Operation::run_into`].
    pub async fn forward<T: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: LayerNormalizationInputs<'_, T>,
    ) -> Result<LayerNormalizationOutputs<T, T::Sum>, Error> {
        let operation = self.operation::<T>(inputs.shape, inputs.b.is_some(), true)?;
        let call = Call::new(operation, inputs.x).params(inputs.scale, inputs.b);
        let mut results = call.run::<T, T, T::Sum>(gpu).await?;
        let variance = results.statistic(Tensor::Variance).unwrap_or_default();
        Ok(LayerNormalizationOutputs {
            y: results.dst(),
            mean: results.statistic(Tensor::Mean).unwrap_or_default(),
            inv_std_dev: inverse_deviations(variance, self.epsilon.into()),
        })
    }
}

/// The inputs of [`RmsNormalization`], in host memory, in the document's order.
#[derive(Clone, Copy, Debug)]
pub struct RmsNormalizationInputs<'a, T, P> {
    /// Shape of X: rank 1 to 8.
    pub shape: &'a [usize],
    /// `X`: the layer's input.
    pub x: &'a [T],
    /// `scale` of each normalized position.
    pub scale: &'a [P],
}

/// ONNX's [`RMSNormalization`](https://onnx.ai/onnx/operators/onnx__RMSNormalization.html) of opset 23:
/// Y = X / √(mean(X²) + epsilon) · scale, with the mean over the axes from `axis` on.
///
/// | index | input | type | shape | in plans and errors |
/// |---|---|---|---|---|
/// | 0 | `X` | T | rank 1 to 8 | `src` |
/// | 1 | `scale` | V | the normalized axes | `gamma` |
///
/// The output is `Y`, of X's shape; plans call it `dst`.
///
/// # Differences
///
/// * Y has X's type. In the document it has scale's.
/// * V is T, or f32 if T is f16 or bf16.
/// * scale has as many elements as the normalized axes. The document lets it be broadcast to them.
/// * The attribute `stash_type` is left out: sums are kept in f32, its default, and in f64 for f64.
/// * epsilon must be above 0, and the attribute `axis` is called `begin_norm_axis` in errors.
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
/// let gpu = GpuContext::new().await?;
/// use wgpu_norm::operators::onnx::{RmsNormalization, RmsNormalizationInputs};
///
/// let op = RmsNormalization::default(); // the last axis, epsilon 1e-5
/// let inputs = RmsNormalizationInputs {
///     shape: &[2, 2], // two rows
///     x: &[1.0_f32, 1.0, 2.0, -2.0],
///     scale: &[1.0_f32, 3.0],
/// };
/// let y = op.forward(&gpu, inputs).await?;
/// assert!((y[0] - 1.0).abs() < 1e-4 && (y[3] + 3.0).abs() < 1e-4);
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNormalization {
    /// Attribute `axis`, in [−r, r − 1] for X of rank r, negative from the end; −1 by default.
    pub axis: i64,
    /// Attribute `epsilon`: added to the mean of squares; finite and above 0; 1e-5 by default.
    pub epsilon: f32,
}

impl Default for RmsNormalization {
    /// The document's defaults.
    fn default() -> Self {
        Self {
            axis: -1,
            epsilon: 1e-5,
        }
    }
}

impl RmsNormalization {
    /// The operator as an operation.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and errors in the shape and the axis.
    pub fn operation<T: Element, P: ParamOf<T>>(
        &self,
        shape: &[usize],
    ) -> Result<Operation, Error> {
        let begin_axis = self.axis;
        let (norm, pass) = (Norm::Rms { begin_axis }, forward(false));
        operation::<T, P, T::Sum>(norm, pass, shape, self.epsilon, (true, false))
    }

    /// Computes Y from tensors in host memory.
    ///
    /// # Errors
    ///
    /// Those of [`Operation::run_into`].
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: RmsNormalizationInputs<'_, T, P>,
    ) -> Result<Vec<T>, Error> {
        let operation = self.operation::<T, P>(inputs.shape)?;
        let call = Call::new(operation, inputs.x).with(Tensor::Gamma, inputs.scale);
        Ok(call.run::<T, P, T::Sum>(gpu).await?.dst())
    }
}
