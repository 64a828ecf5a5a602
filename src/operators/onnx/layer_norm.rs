//! `LayerNormalization` and `RMSNormalization`.

use super::parameters::{Parameter, Sizes, norm_of};
use crate::operators::broadcast::expand;
use crate::operators::*;

/// The inputs of [`LayerNormalization`], in host memory, in the document's order.
#[derive(Clone, Copy, Debug)]
pub struct LayerNormalizationInputs<'a, T> {
    /// Shape of X: rank 1 to 8.
    pub shape: &'a [usize],
    /// `X`: the layer's input.
    pub x: &'a [T],
    /// `Scale`.
    pub scale: Parameter<'a, T>,
    /// `B`, the bias, optional. If it is absent, it is 0.
    pub b: Option<Parameter<'a, T>>,
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

attributes! {
    /// ONNX's [`LayerNormalization`](https://onnx.ai/onnx/operators/onnx__LayerNormalization.html) of opset 17.
    ///
    /// The axes from `axis` on are normalized; a row consists of the elements with the same indices along the axes before
    /// it. With means over the row:
    ///
    /// * Mean = mean(X) and Var = mean((X − Mean)²)
    /// * InvStdDev = 1/√(Var + epsilon)
    /// * Y = (X − Mean) · InvStdDev · Scale + B
    ///
    /// Scale and B are each broadcast to X: they have sizes of X's last axes, or 1. For X of shape `(N, T, C)`, `[C]` and
    /// `[1, C]` are a layer norm's parameters, `[N, 1, C]` each sample's own, and `[]` is a single number.
    ///
    /// | index | input | type | shape | in plans and errors |
    /// |---|---|---|---|---|
    /// | 0 | `X` | T | rank 1 to 8 | `src` |
    /// | 1 | `Scale` | T | its own | `gamma` |
    /// | 2 | `B`, optional | T | its own | `beta` |
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
    /// * The kernels take a Scale and a B that vary along the same axes. Those that vary along different ones are first
    ///   expanded on the CPU; on device buffers they are refused.
    /// * epsilon must be above 0, and the attribute `axis` is called `begin_norm_axis` in errors.
    /// * On device buffers the variance is written in place of InvStdDev.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::onnx::{LayerNormalization, LayerNormalizationInputs, Parameter};
    ///
    /// let op = LayerNormalization::default(); // the last axis, epsilon 1e-5
    /// let inputs = LayerNormalizationInputs {
    ///     shape: &[2, 2], // two rows
    ///     x: &[1.0_f32, 3.0, 2.0, 4.0],
    ///     scale: Parameter { shape: &[2], tensor: &[1.0, 2.0] },
    ///     b: Some(Parameter { shape: &[2], tensor: &[0.0, 5.0] }),
    /// };
    /// let outputs = op.forward(&gpu, inputs).await?;
    /// assert_eq!(outputs.mean, [2.0, 3.0]);
    /// assert!((outputs.inv_std_dev[0] - 1.0).abs() < 1e-4 && (outputs.y[3] - 7.0).abs() < 1e-4);
    ///
    /// let by_row = Parameter { shape: &[2, 1], tensor: &[1.0, 3.0] };
    /// let outputs = op.forward(&gpu, LayerNormalizationInputs { scale: by_row, b: None, ..inputs }).await?;
    /// assert!((outputs.y[1] - 1.0).abs() < 1e-4 && (outputs.y[3] - 3.0).abs() < 1e-4);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    LayerNormalization {
    } {
        /// Attribute `axis`, in [−r, r − 1] for X of rank r, negative from the end; −1 by default.
        axis: i64 = -1,
        /// Attribute `epsilon`: added to the variance; finite and above 0; 1e-5 by default.
        epsilon: f32 = 1e-5,
    }
    /// The document's defaults.
    default
}

impl LayerNormalization {
    /// The operator as an operation, for Scale and B of these shapes: [`Norm::Layer`] if they vary along exactly the
    /// normalized axes, else [`Norm::Axes`]. Layer norm computes Mean and InvStdDev, which the document calls optional,
    /// only with `keep_statistics`; axes norm always does.
    ///
    /// # Errors
    ///
    /// [`Error::Rank`] for a Scale or B of more axes than X; [`Error::Argument`] for one that does not broadcast to X,
    /// for a B that varies along other axes than Scale, and for the axis; [`Error::Epsilon`]; and errors in the shape.
    pub fn operation<T: ParamOf<T>>(
        &self,
        shape: &[usize],
        scale_shape: &[usize],
        b_shape: Option<&[usize]>,
        keep_statistics: bool,
    ) -> Result<Operation, Error> {
        let sizes = Sizes::new(shape, scale_shape, b_shape)?;
        if let Some(b) = sizes.b.filter(|b| *b != sizes.scale) {
            let expected = format!(
                "gamma's sizes, {:?} (only forward, on host memory, takes different ones)",
                sizes.scale
            );
            return Err(Error::argument("beta", expected, format!("{b:?}")));
        }
        let norm = norm_of(shape, self.axis, &sizes.common, true);
        let pass = forward(keep_statistics || !norm.is_over_rows());
        let params = (true, b_shape.is_some());
        operation::<T, T, T::Sum>(norm, pass, shape, self.epsilon, params)
    }

    /// Computes the outputs from tensors in host memory. Scale and B may vary along different axes.
    ///
    /// # Errors
    ///
    /// Those of [`operation`](Self::operation), except for Scale and B of different shapes, and those of
    /// [`Operation::run_into`].
    pub async fn forward<T: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: LayerNormalizationInputs<'_, T>,
    ) -> Result<LayerNormalizationOutputs<T, T::Sum>, Error> {
        let LayerNormalizationInputs {
            shape, scale, b, ..
        } = inputs;
        let sizes = Sizes::new(shape, scale.shape, b.map(|b| b.shape))?;
        let common = &*sizes.common;
        let operation = self.operation::<T>(shape, common, b.map(|_| common), true)?;
        let gamma = expand(Tensor::Gamma, &sizes.scale, scale.tensor, common)?;
        let b = b.zip(sizes.b);
        let beta = b.map(|(b, own)| expand(Tensor::Beta, &own, b.tensor, common));
        let beta = beta.transpose()?;
        let call = Call::new(operation, inputs.x).params(&*gamma, beta.as_deref());
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
    /// `scale`.
    pub scale: Parameter<'a, P>,
}

attributes! {
    /// ONNX's [`RMSNormalization`](https://onnx.ai/onnx/operators/onnx__RMSNormalization.html) of opset 23:
    /// Y = X / √(mean(X²) + epsilon) · scale, with the mean over the axes from `axis` on.
    ///
    /// scale is broadcast to X, as in [`LayerNormalization`].
    ///
    /// | index | input | type | shape | in plans and errors |
    /// |---|---|---|---|---|
    /// | 0 | `X` | T | rank 1 to 8 | `src` |
    /// | 1 | `scale` | V | its own | `gamma` |
    ///
    /// The output is `Y`, of X's shape; plans call it `dst`.
    ///
    /// # Differences
    ///
    /// * Y has X's type. In the document it has scale's.
    /// * V is T, or f32 if T is f16 or bf16.
    /// * Unless scale varies along exactly the normalized axes, the operation also writes `mean_square`, which ONNX does
    ///   not return.
    /// * The attribute `stash_type` is left out: sums are kept in f32, its default, and in f64 for f64.
    /// * epsilon must be above 0, and the attribute `axis` is called `begin_norm_axis` in errors.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::onnx::{Parameter, RmsNormalization, RmsNormalizationInputs};
    ///
    /// let op = RmsNormalization::default(); // the last axis, epsilon 1e-5
    /// let inputs = RmsNormalizationInputs {
    ///     shape: &[2, 2], // two rows
    ///     x: &[1.0_f32, 1.0, 2.0, -2.0],
    ///     scale: Parameter { shape: &[2], tensor: &[1.0_f32, 3.0] },
    /// };
    /// let y = op.forward(&gpu, inputs).await?;
    /// assert!((y[0] - 1.0).abs() < 1e-4 && (y[3] + 3.0).abs() < 1e-4);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    RmsNormalization {
    } {
        /// Attribute `axis`, in [−r, r − 1] for X of rank r, negative from the end; −1 by default.
        axis: i64 = -1,
        /// Attribute `epsilon`: added to the mean of squares; finite and above 0; 1e-5 by default.
        epsilon: f32 = 1e-5,
    }
    /// The document's defaults.
    default
}

impl RmsNormalization {
    /// The operator as an operation, for scale of this shape: [`Norm::Rms`] if it varies along exactly the normalized
    /// axes, else [`Norm::Axes`].
    ///
    /// # Errors
    ///
    /// [`Error::Rank`] for a scale of more axes than X; [`Error::Argument`] for one that does not broadcast to X, and
    /// for the axis; [`Error::Epsilon`]; and errors in the shape.
    pub fn operation<T: Element, P: ParamOf<T>>(
        &self,
        shape: &[usize],
        scale_shape: &[usize],
    ) -> Result<Operation, Error> {
        let sizes = Sizes::new(shape, scale_shape, None)?;
        let norm = norm_of(shape, self.axis, &sizes.common, false);
        let pass = forward(!norm.is_over_rows());
        operation::<T, P, T::Sum>(norm, pass, shape, self.epsilon, (true, false))
    }

    /// Computes Y from tensors in host memory.
    ///
    /// # Errors
    ///
    /// Those of [`operation`](Self::operation) and [`Operation::run_into`].
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: RmsNormalizationInputs<'_, T, P>,
    ) -> Result<Vec<T>, Error> {
        let operation = self.operation::<T, P>(inputs.shape, inputs.scale.shape)?;
        let call = Call::new(operation, inputs.x).with(Tensor::Gamma, inputs.scale.tensor);
        Ok(call.run::<T, P, T::Sum>(gpu).await?.dst())
    }
}
