//! Instance normalization.

use super::layer::{Layer, layer, setters};
use crate::{Activation, Backward, DataFormat, Norm};

/// The options of a [`GpuInstanceNorm`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InstanceNormOptions {
    epsilon: f64,
    data_format: DataFormat,
    param_grads: bool,
    activation: Activation,
}

impl Default for InstanceNormOptions {
    /// The defaults of PyTorch and ONNX, epsilon 1e-5 and [`DataFormat::Ncx`]; both parameter gradients, no activation.
    fn default() -> Self {
        Self {
            epsilon: 1e-5,
            data_format: DataFormat::Ncx,
            param_grads: true,
            activation: Activation::None,
        }
    }
}

impl InstanceNormOptions {
    fn layer(&self) -> Layer {
        Layer {
            norm: Norm::Instance {
                format: self.data_format,
            },
            epsilon: self.epsilon,
            zero_centered_gamma: false,
            activation: self.activation,
            backward: Backward::default().with_param_grads(self.param_grads),
        }
    }
}

setters! {
    InstanceNormOptions:
    /// Sets epsilon, which is added to the variance. It must be finite, normal and above 0, also as f32 unless the data
    /// are f64.
    epsilon: f64,
    /// Sets where the channel axis is. Axis 0 is the sample axis in both formats.
    data_format: DataFormat,
    /// Sets which parameter gradients are computed, like
    /// [`GroupNormOptions::param_grads`](crate::GroupNormOptions::param_grads).
    param_grads: bool,
    /// Sets the activation that follows the layer, in the forward pass and in the gradient.
    activation: Activation,
}

layer! {
    /// Instance normalization as PyTorch and ONNX define it, without running statistics: [`forward`](Self::forward),
    /// [`infer`](Self::infer) with given statistics, and the gradient, [`backward`](Self::backward).
    ///
    /// It is group norm with one group for each channel: mean and variance are `[N, C]`. See
    /// [`GpuGroupNorm`](crate::GpuGroupNorm) for formulas and limits.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{BackwardArgs, Error, ForwardArgs, GpuContext, GpuInstanceNorm, InstanceNormOptions};
    ///
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// let layer = GpuInstanceNorm::new(&gpu, InstanceNormOptions::default())?;
    /// let (shape, src) = ([2, 1, 2], [1.0_f32, 3.0, 10.0, 30.0]); // two samples of one channel
    /// let output = layer.forward(ForwardArgs::new(&shape, &src)).await?;
    /// assert_eq!(output.saved.mean, [2.0, 20.0]);
    /// let diff_dst = [1.0, 0.0, 0.0, 4.0];
    /// let grads = layer.backward(BackwardArgs::new(&shape, &src, &diff_dst, &output.saved)).await?;
    /// assert_eq!(grads.diff_beta, Some(vec![5.0]));
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    GpuInstanceNorm, InstanceNormOptions, infer
}
