//! Group norm.

use super::*;

inputs! {
    /// The inputs of [`NativeGroupNorm`], in host memory, in PyTorch's order.
    NativeGroupNormInputs<T, P> {
        /// `N`, `C` and `HxW`: samples, channels, and the other elements of a channel.
        sizes: [usize; 3],
    }
    input: &'a [T] = Src,
    /// Scale of each channel. If absent, weight is 1.
    weight: Option<&'a [P]> = Gamma,
    /// Shift of each channel. If absent, bias is 0.
    bias: Option<&'a [P]> = Beta,
}

/// PyTorch's `native_group_norm(input, weight, bias, N, C, HxW, group, eps)`, which
/// [`GroupNorm`](https://pytorch.org/docs/stable/generated/torch.nn.GroupNorm.html) runs.
///
/// A group consists of C/group adjacent channels of a sample. With the mean and var, the biased variance, of the group:
/// rstd = 1/√(var + eps), output = weight · (input − mean) · rstd + bias.
///
/// | | argument | shape | in plans and errors |
/// |---|---|---|---|
/// | 0 | `input` | `(N, C, HxW)` | `src` |
/// | 1 | `weight`, optional | `(C)` | `gamma` |
/// | 2 | `bias`, optional | `(C)` | `beta` |
/// | 6 | `group` | | `groups` |
///
/// | | output | shape | in plans |
/// |---|---|---|---|
/// | 0 | `output` | input's | `dst` |
/// | 1 | `mean` | `(N, group)` | `mean` |
/// | 2 | `rstd` | `(N, group)` | `variance`: the variance itself |
///
/// # Differences
///
/// * mean and rstd are f32 for f16 and bf16 data. In PyTorch they have input's type, or weight's.
/// * eps must be above 0.
/// * On device buffers the variance is written in place of rstd.
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
/// let gpu = GpuContext::new().await?;
/// use wgpu_norm::operators::pytorch::{NativeGroupNorm, NativeGroupNormInputs};
///
/// let op = NativeGroupNorm { group: 2, eps: 1e-5 };
/// let inputs = NativeGroupNormInputs {
///     input: &[1.0_f32, 3.0, 10.0, 30.0],
///     weight: Some(&[1.0_f32, 1.0, 1.0, 2.0]),
///     bias: Some(&[0.0, 0.0, 0.0, 5.0]),
///     sizes: [1, 4, 1],
/// };
/// let outputs = op.forward(&gpu, inputs).await?;
/// assert_eq!(outputs.mean, [2.0, 20.0]);
/// assert!((outputs.rstd[1] - 0.1).abs() < 1e-4 && (outputs.output[3] - 7.0).abs() < 1e-4);
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NativeGroupNorm {
    /// `group`: the number of groups, which must divide the channels.
    pub group: usize,
    /// `eps`: added to the variance; finite and above 0. PyTorch's layer has 1e-5.
    pub eps: f64,
}

impl NativeGroupNorm {
    /// The operator as an operation, for `N`, `C` and `HxW`.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and errors in the sizes and group.
    pub fn operation<T: Element, P: ParamOf<T>>(
        &self,
        sizes: [usize; 3],
        has_weight: bool,
        has_bias: bool,
    ) -> Result<Operation, Error> {
        let (groups, format) = (self.group, DataFormat::Ncx);
        let (norm, params) = (Norm::Group { groups, format }, (has_weight, has_bias));
        operation::<T, P, T::Sum>(norm, Forward::default(), &sizes, self.eps, params)
    }

    /// Computes the outputs from tensors in host memory.
    ///
    /// # Errors
    ///
    /// Those of [`Operation::run_into`].
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: NativeGroupNormInputs<'_, T, P>,
    ) -> Result<NormOutputs<T, T::Sum>, Error> {
        let (weight, bias) = (inputs.weight.is_some(), inputs.bias.is_some());
        let operation = self.operation::<T, P>(inputs.sizes, weight, bias)?;
        let call = inputs.call(operation);
        Ok(NormOutputs::new(call.run::<T, P, _>(gpu).await?, self.eps))
    }
}

inputs! {
    /// The inputs of [`NativeGroupNormBackward`], in host memory, in PyTorch's order.
    NativeGroupNormBackwardInputs<T: Element, P> {
        /// 1/√(variance + eps) of each group, from the forward pass.
        rstd: &'a [T::Sum],
        /// `N`, `C` and `HxW`: samples, channels, and the other elements of a channel.
        sizes: [usize; 3],
    }
    grad_out: &'a [T] = DiffDst,
    input: &'a [T] = Src,
    mean: &'a [T::Sum] = Mean,
    /// Scale of each channel. If absent, weight is 1.
    weight: Option<&'a [P]> = Gamma,
}

/// PyTorch's `native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask)`.
///
/// With x̂ = (input − mean)·rstd of the group, d = grad_out · weight (grad_out without weight), and means taken over
/// the group:
///
/// * grad_input = rstd · (d − mean(d) − x̂ · mean(d · x̂))
/// * grad_weight = Σ grad_out · x̂ and grad_bias = Σ grad_out, over the samples of a channel
///
/// | | argument | shape | in plans and errors |
/// |---|---|---|---|
/// | 0 | `grad_out` | input's | `diff_dst` |
/// | 1 | `input` | `(N, C, HxW)` | `src` |
/// | 2 | `mean` | `(N, group)` | `mean` |
/// | 3 | `rstd` | `(N, group)` | `variance`: the variance itself |
/// | 4 | `weight`, optional | `(C)` | `gamma` |
/// | 8 | `group` | | `groups` |
///
/// | | output | shape | in plans |
/// |---|---|---|---|
/// | 0 | `grad_input` | input's | `diff_src` |
/// | 1 | `grad_weight` | `(C)` | `diff_gamma` |
/// | 2 | `grad_bias` | `(C)` | `diff_beta` |
///
/// # Differences
///
/// * The kernels take a variance and an epsilon. From host memory the variance is 1/rstd² less the smallest epsilon
///   allowed, 1.2e-38, computed in f64, so the gradients are as exact as rstd. On device buffers, bind the variance
///   itself, as [`NativeGroupNorm`] writes it there, and give the operation the forward pass's eps.
/// * grad_input is computed even if the mask leaves it out, and both parameter gradients if one is requested.
/// * mean and rstd are f32 for f16 and bf16 data.
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
/// let gpu = GpuContext::new().await?;
/// use wgpu_norm::operators::pytorch::{NativeGroupNormBackward, NativeGroupNormBackwardInputs};
///
/// let op = NativeGroupNormBackward {
///     group: 2,
///     output_mask: [true; 3],
/// };
/// let inputs = NativeGroupNormBackwardInputs {
///     grad_out: &[1.0, 0.0, 0.0, 4.0],
///     input: &[1.0_f32, 3.0, 10.0, 30.0],
///     mean: &[2.0, 20.0],
///     rstd: &[1.0, 0.1],
///     weight: Some(&[1.0_f32; 4]),
///     sizes: [1, 4, 1],
/// };
/// let outputs = op.backward(&gpu, inputs).await?;
/// assert_eq!(outputs.grad_bias, Some(vec![1.0, 0.0, 0.0, 4.0]));
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeGroupNormBackward {
    /// `group`: the number of groups, which must divide the channels.
    pub group: usize,
    /// `output_mask`: whether grad_input, grad_weight and grad_bias are wanted.
    pub output_mask: [bool; 3],
}

impl NativeGroupNormBackward {
    /// The operator as an operation, for `N`, `C` and `HxW`, with the forward pass's `eps`.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and errors in the sizes and group.
    pub fn operation<T: Element, P: ParamOf<T>>(
        &self,
        sizes: [usize; 3],
        has_weight: bool,
        eps: f64,
    ) -> Result<Operation, Error> {
        let (groups, format) = (self.group, DataFormat::Ncx);
        let (norm, pass) = (Norm::Group { groups, format }, masked(self.output_mask));
        operation::<T, P, T::Sum>(norm, pass, &sizes, eps, (has_weight, false))
    }

    /// Computes the outputs from tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Variance`] for a rstd that is infinite or 0, and those of [`Operation::run_into`].
    pub async fn backward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: NativeGroupNormBackwardInputs<'_, T, P>,
    ) -> Result<GradOutputs<T, P>, Error> {
        let variance = variances("rstd", inputs.rstd, EPSILON)?;
        let has_weight = inputs.weight.is_some();
        let operation = self.operation::<T, P>(inputs.sizes, has_weight, EPSILON)?;
        let call = inputs.call(operation).with(Tensor::Variance, &*variance);
        let grads = call.run::<T, P, T::Sum>(gpu).await?.grads();
        Ok(GradOutputs::masked(grads, self.output_mask))
    }
}
