//! Group normalization.

use super::layer::{Layer, layer, setters};
use crate::{Activation, Backward, DataFormat, Norm, ParamGrads};

/// What a [`GpuGroupNorm`] computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupNormOptions {
    groups: usize,
    epsilon: f64,
    data_format: DataFormat,
    param_grads: ParamGrads,
    activation: Activation,
}

impl GroupNormOptions {
    /// With groups of a sample's channels, each of channels side by side; they divide the channels. All else has the
    /// defaults of PyTorch and ONNX: epsilon 1e-5, and [`DataFormat::Ncx`]; both parameter gradients, no activation.
    pub const fn new(groups: usize) -> Self {
        Self {
            groups,
            epsilon: 1e-5,
            data_format: DataFormat::Ncx,
            param_grads: ParamGrads::Both,
            activation: Activation::None,
        }
    }

    fn layer(&self) -> Layer {
        Layer {
            norm: Norm::Group {
                groups: self.groups,
                format: self.data_format,
            },
            epsilon: self.epsilon,
            activation: self.activation,
            backward: Backward::default().with_param_grads(self.param_grads),
        }
    }
}

setters! {
    GroupNormOptions:
    /// Sets what is added to the variance; finite, normal and above 0, as f32 too where the data are not f64.
    epsilon: f64,
    /// Sets where the channel axis stands. Axis 0 is that of the samples in both formats.
    data_format: DataFormat,
    /// Sets which parameter gradients are computed. For none of them take [`ParamGrads::Frozen`]: with
    /// [`ParamGrads::Neither`] the gradient ignores a given gamma.
    param_grads: ParamGrads,
    /// Sets what follows the layer, in both directions.
    activation: Activation,
}

layer! {
    /// Group normalization as PyTorch and ONNX define it: [`forward`](Self::forward), [`infer`](Self::infer) by given
    /// statistics, and the gradient, [`backward`](Self::backward).
    ///
    /// The C channels of a sample are divided into G groups of C/G channels side by side; mean and biased variance, `[N, G]`,
    /// are those of the elements of a group, gamma and beta are `[C]`. With r = 1/√(variance + epsilon) and x̂ = (src − mean)·r,
    /// dst = gamma · x̂ + beta; an [`Activation`] and a residual follow as those of
    /// [`GpuBatchNorm`](crate::GpuBatchNorm). The gradient, with d = gamma · diff_dst (diff_dst without gamma, or with
    /// [`ParamGrads::Neither`]) and means taken over the elements of a group:
    ///
    /// * diff_src = r · ((d − mean(d)) − x̂ · mean(d · x̂))
    /// * diff_gamma = Σ diff_dst · x̂ and diff_beta = Σ diff_dst, over all samples of a channel
    ///
    /// Sums are kept in f32 (f64 for f64 data) whatever the element types are. The results are the same to the bit whenever
    /// the same input is given to the same adapter under the same [`Profile`](crate::Profile). The gradient takes mean and
    /// variance as given, and never recomputes them. NaN and infinities in a group stay in that group, but for the
    /// parameter gradients of its channels.
    ///
    /// src has rank 2 to 8, and its channels are divided by the groups. Groups without elements have mean and variance 0. A model
    /// that is evaluated takes `forward`, unless its statistics are fixed: group norm has no running statistics.
    ///
    /// A tensor of [`DataFormat::Nxc`] must fit one storage binding, and takes long, where the elements of a sample are no
    /// multiple of 4 and there are several samples of several elements a channel; any other tensor may be larger.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{BackwardArgs, Error, ForwardArgs, GpuContext, GpuGroupNorm, GroupNormOptions};
    ///
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// let layer = GpuGroupNorm::new(&gpu, GroupNormOptions::new(2))?;
    /// let (shape, src) = ([1, 4, 1], [1.0_f32, 3.0, 10.0, 30.0]); // one sample of four channels
    /// let (gamma, beta) = ([1.0_f32, 1.0, 1.0, 2.0], [0.0, 0.0, 0.0, 5.0]);
    /// let output = layer.forward(ForwardArgs::new(&shape, &src).params(Some(&gamma), Some(&beta))).await?;
    /// assert_eq!(output.saved.mean, [2.0, 20.0]); // of two groups
    /// assert!((output.dst[0] + 1.0).abs() < 1e-4 && (output.dst[3] - 7.0).abs() < 1e-4);
    /// let diff_dst = [1.0, 0.0, 0.0, 4.0];
    /// let args = BackwardArgs::new(&shape, &src, &diff_dst, &output.saved).params(Some(&gamma), Some(&beta));
    /// let grads = layer.backward(args).await?;
    /// assert_eq!(grads.diff_beta, Some(vec![1.0, 0.0, 0.0, 4.0]));
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    GpuGroupNorm, GroupNormOptions, infer
}
