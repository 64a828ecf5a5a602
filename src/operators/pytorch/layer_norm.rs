//! Layer norm and RMS norm.

use super::*;

/// The first axis of the normalized shape.
fn begin_axis(shape: &[usize], normalized_shape: &[usize]) -> Result<i64, Error> {
    match shape.strip_suffix(normalized_shape) {
        Some(rows) if !normalized_shape.is_empty() => Ok(rows.len() as i64),
        _ => {
            let expected = format!("one or more of the last sizes of {shape:?}");
            let got = format!("{normalized_shape:?}");
            Err(Error::argument("normalized_shape", expected, got))
        }
    }
}

inputs! {
    /// The inputs of [`NativeLayerNorm`], in host memory, in PyTorch's order.
    NativeLayerNormInputs<T, P> {
        /// Shape of input: rank 1 to 8.
        shape: &'a [usize],
        /// The last sizes of `shape`, one or more: the axes that are normalized together.
        normalized_shape: &'a [usize],
    }
    input: &'a [T] = Src,
    /// Scale of each normalized position. If absent, weight is 1.
    weight: Option<&'a [P]> = Gamma,
    /// Shift of each normalized position. If absent, bias is 0.
    bias: Option<&'a [P]> = Beta,
}

/// PyTorch's `native_layer_norm(input, normalized_shape, weight, bias, eps)`, which
/// [`LayerNorm`](https://pytorch.org/docs/stable/generated/torch.nn.LayerNorm.html) runs.
///
/// A row consists of the elements with the same indices along the axes before those of normalized_shape. With the mean
/// and var, the biased variance, of the row: rstd = 1/√(var + eps), output = weight · (input − mean) · rstd + bias.
///
/// | | argument | shape | in plans and errors |
/// |---|---|---|---|
/// | 0 | `input` | rank 1 to 8 | `src` |
/// | 1 | `normalized_shape` | | `normalized_shape` |
/// | 2 | `weight`, optional | normalized_shape | `gamma` |
/// | 3 | `bias`, optional | normalized_shape | `beta` |
///
/// | | output | shape | in plans |
/// |---|---|---|---|
/// | 0 | `output` | input's | `dst` |
/// | 1 | `mean` | the leading axes | `mean` |
/// | 2 | `rstd` | the leading axes | `variance`: the variance itself |
///
/// # Differences
///
/// * mean and rstd are f32 for f16 and bf16 data.
/// * eps must be above 0.
/// * On device buffers the variance is written in place of rstd.
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
/// let gpu = GpuContext::new().await?;
/// use wgpu_norm::operators::pytorch::{NativeLayerNorm, NativeLayerNormInputs};
///
/// let op = NativeLayerNorm { eps: 1e-5 };
/// let inputs = NativeLayerNormInputs {
///     shape: &[2, 2], // two rows
///     input: &[1.0_f32, 3.0, 2.0, 4.0],
///     normalized_shape: &[2],
///     weight: Some(&[1.0_f32, 2.0]),
///     bias: Some(&[0.0, 5.0]),
/// };
/// let outputs = op.forward(&gpu, inputs).await?;
/// assert_eq!(outputs.mean, [2.0, 3.0]);
/// assert!((outputs.rstd[0] - 1.0).abs() < 1e-4 && (outputs.output[3] - 7.0).abs() < 1e-4);
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NativeLayerNorm {
    /// `eps`: added to the variance; finite and above 0. PyTorch's layer has 1e-5.
    pub eps: f64,
}

impl NativeLayerNorm {
    /// The operator as an operation.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], [`Error::Argument`] for normalized_shape, and errors in the shape.
    pub fn operation<T: Element, P: ParamOf<T>>(
        &self,
        shape: &[usize],
        normalized_shape: &[usize],
        has_weight: bool,
        has_bias: bool,
    ) -> Result<Operation, Error> {
        let begin_axis = begin_axis(shape, normalized_shape)?;
        let (norm, pass) = (Norm::Layer { begin_axis }, Forward::default());
        operation::<T, P, T::Sum>(norm, pass, shape, self.eps, (has_weight, has_bias))
    }

    /// Computes the outputs from tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for normalized_shape, and those of [`Operation::run_into`].
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: NativeLayerNormInputs<'_, T, P>,
    ) -> Result<NormOutputs<T, T::Sum>, Error> {
        let (has_weight, has_bias) = (inputs.weight.is_some(), inputs.bias.is_some());
        let (shape, normalized) = (inputs.shape, inputs.normalized_shape);
        let operation = self.operation::<T, P>(shape, normalized, has_weight, has_bias)?;
        let call = inputs.call(operation);
        Ok(NormOutputs::new(call.run::<T, P, _>(gpu).await?, self.eps))
    }
}

inputs! {
    /// The inputs of [`NativeLayerNormBackward`], in host memory, in PyTorch's order.
    NativeLayerNormBackwardInputs<T: Element, P> {
        /// Shape of input and grad_out: rank 1 to 8.
        shape: &'a [usize],
        /// The last sizes of `shape`, one or more: the axes that are normalized together.
        normalized_shape: &'a [usize],
        /// 1/√(variance + eps) of each row, from the forward pass.
        rstd: &'a [T::Sum],
        /// Shift of each normalized position. No gradient depends on its values.
        bias: Option<&'a [P]>,
    }
    grad_out: &'a [T] = DiffDst,
    input: &'a [T] = Src,
    mean: &'a [T::Sum] = Mean,
    /// Scale of each normalized position. If absent, weight is 1.
    weight: Option<&'a [P]> = Gamma,
}

attributes! {
    /// PyTorch's `native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask)`.
    ///
    /// With x̂ = (input − mean)·rstd of the row, d = grad_out · weight (grad_out without weight), and means taken over the
    /// row:
    ///
    /// * grad_input = rstd · (d − mean(d) − x̂ · mean(d · x̂))
    /// * grad_weight = Σ grad_out · x̂ and grad_bias = Σ grad_out, over the rows; grad_weight only if weight is given,
    ///   grad_bias only if bias is
    ///
    /// | | argument | shape | in plans and errors |
    /// |---|---|---|---|
    /// | 0 | `grad_out` | input's | `diff_dst` |
    /// | 1 | `input` | rank 1 to 8 | `src` |
    /// | 2 | `normalized_shape` | | `normalized_shape` |
    /// | 3 | `mean` | the leading axes | `mean` |
    /// | 4 | `rstd` | the leading axes | `variance`: the variance itself |
    /// | 5 | `weight`, optional | normalized_shape | `gamma` |
    /// | 6 | `bias`, optional | normalized_shape | `beta`, not bound |
    ///
    /// | | output | shape | in plans |
    /// |---|---|---|---|
    /// | 0 | `grad_input` | input's | `diff_src` |
    /// | 1 | `grad_weight` | normalized_shape | `diff_gamma` |
    /// | 2 | `grad_bias` | normalized_shape | `diff_beta` |
    ///
    /// # Differences
    ///
    /// * The kernels take a variance and an epsilon. From host memory the variance is 1/rstd² less the smallest epsilon
    ///   allowed, 1.2e-38, computed in f64, so the gradients are as exact as rstd. On device buffers, bind the variance
    ///   itself, as [`NativeLayerNorm`] writes it there, and give the operation the forward pass's eps.
    /// * grad_input is computed even if the mask leaves it out, and both parameter gradients if one is requested.
    /// * mean and rstd are f32 for f16 and bf16 data.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::pytorch::{NativeLayerNormBackward, NativeLayerNormBackwardInputs};
    ///
    /// let op = NativeLayerNormBackward::default(); // all outputs
    /// let inputs = NativeLayerNormBackwardInputs {
    ///     shape: &[2, 2], // two rows
    ///     grad_out: &[1.0, 0.0, 0.0, 1.0],
    ///     input: &[1.0_f32, 3.0, 2.0, 4.0],
    ///     normalized_shape: &[2],
    ///     mean: &[2.0, 3.0],
    ///     rstd: &[1.0, 1.0],
    ///     weight: Some(&[1.0_f32, 1.0]),
    ///     bias: Some(&[0.0, 0.0]),
    /// };
    /// let outputs = op.backward(&gpu, inputs).await?;
    /// assert_eq!(outputs.grad_bias, Some(vec![1.0, 1.0]));
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    NativeLayerNormBackward {
    } {
        /// `output_mask`: whether grad_input, grad_weight and grad_bias are wanted.
        output_mask: [bool; 3] = [true; 3],
    }
    /// All outputs.
    default
}

impl NativeLayerNormBackward {
    /// The operator as an operation, with the forward pass's `eps`. Without weight there are no parameter gradients;
    /// for a bias alone, add [`with_params(false, true)`](Operation::with_params).
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], [`Error::Argument`] for normalized_shape, and errors in the shape.
    pub fn operation<T: Element, P: ParamOf<T>>(
        &self,
        shape: &[usize],
        normalized_shape: &[usize],
        has_weight: bool,
        eps: f64,
    ) -> Result<Operation, Error> {
        let begin_axis = begin_axis(shape, normalized_shape)?;
        let (norm, pass) = (Norm::Layer { begin_axis }, masked(self.output_mask));
        operation::<T, P, T::Sum>(norm, pass, shape, eps, (has_weight, false))
    }

    /// Computes the outputs from tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for normalized_shape, [`Error::Variance`] for a rstd that is infinite or 0, and those of
    /// [`Operation::run_into`].
    pub async fn backward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: NativeLayerNormBackwardInputs<'_, T, P>,
    ) -> Result<GradOutputs<T, P>, Error> {
        let [input, weight, bias] = self.output_mask;
        let output_mask = [
            input,
            weight && inputs.weight.is_some(),
            bias && inputs.bias.is_some(),
        ];
        let (has_weight, has_bias) = (inputs.weight.is_some(), inputs.bias.is_some());
        let (shape, normalized) = (inputs.shape, inputs.normalized_shape);
        let operation = Self { output_mask }
            .operation::<T, P>(shape, normalized, has_weight, EPSILON)?
            .with_params(has_weight, has_bias);
        if let Some(bias) = inputs.bias {
            operation.check_param(Tensor::Beta, bias.len())?;
        }
        let variance = variances("rstd", inputs.rstd, EPSILON)?;
        let call = inputs.call(operation).with(Tensor::Variance, &*variance);
        let grads = call.run::<T, P, T::Sum>(gpu).await?.grads();
        Ok(GradOutputs::masked(grads, output_mask))
    }
}

inputs! {
    /// The inputs of [`RmsNorm`], in host memory, in PyTorch's order.
    RmsNormInputs<T, P> {
        /// Shape of input: rank 1 to 8.
        shape: &'a [usize],
        /// The last sizes of `shape`, one or more: the axes that are normalized together.
        normalized_shape: &'a [usize],
    }
    input: &'a [T] = Src,
    /// Scale of each normalized position. If absent, weight is 1.
    weight: Option<&'a [P]> = Gamma,
}

/// PyTorch's `rms_norm(input, normalized_shape, weight, eps)`, which
/// [`RMSNorm`](https://pytorch.org/docs/stable/generated/torch.nn.RMSNorm.html) runs:
/// output = weight · input / √(mean(input²) + eps), with the mean over the axes of normalized_shape.
///
/// | | argument | shape | in plans and errors |
/// |---|---|---|---|
/// | 0 | `input` | rank 1 to 8 | `src` |
/// | 1 | `normalized_shape` | | `normalized_shape` |
/// | 2 | `weight`, optional | normalized_shape | `gamma` |
///
/// The output has input's shape; plans call it `dst`.
///
/// # Differences
///
/// * eps must be given, and above 0. PyTorch's default follows from input's element type.
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
/// let gpu = GpuContext::new().await?;
/// use wgpu_norm::operators::pytorch::{RmsNorm, RmsNormInputs};
///
/// let op = RmsNorm { eps: 1e-5 };
/// let inputs = RmsNormInputs {
///     shape: &[2, 2], // two rows
///     input: &[1.0_f32, 1.0, 2.0, -2.0],
///     normalized_shape: &[2],
///     weight: Some(&[1.0_f32, 3.0]),
/// };
/// let output = op.forward(&gpu, inputs).await?;
/// assert!((output[0] - 1.0).abs() < 1e-4 && (output[3] + 3.0).abs() < 1e-4);
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNorm {
    /// `eps`: added to the mean of squares; finite and above 0.
    pub eps: f64,
}

impl RmsNorm {
    /// The operator as an operation. With `keep_statistics` it also writes mean_square, which the gradient needs.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], [`Error::Argument`] for normalized_shape, and errors in the shape.
    pub fn operation<T: Element, P: ParamOf<T>>(
        &self,
        shape: &[usize],
        normalized_shape: &[usize],
        has_weight: bool,
        keep_statistics: bool,
    ) -> Result<Operation, Error> {
        let begin_axis = begin_axis(shape, normalized_shape)?;
        let (norm, pass) = (Norm::Rms { begin_axis }, forward(keep_statistics));
        operation::<T, P, T::Sum>(norm, pass, shape, self.eps, (has_weight, false))
    }

    /// Computes the output from tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for normalized_shape, and those of [`Operation::run_into`].
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: RmsNormInputs<'_, T, P>,
    ) -> Result<Vec<T>, Error> {
        let (shape, normalized) = (inputs.shape, inputs.normalized_shape);
        let has_weight = inputs.weight.is_some();
        let operation = self.operation::<T, P>(shape, normalized, has_weight, false)?;
        Ok(inputs.call(operation).run::<T, P, T::Sum>(gpu).await?.dst())
    }
}
