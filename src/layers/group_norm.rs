//! Group normalization.

use super::layer::{Layer, layer};
use crate::operation::Norm;
use crate::options::DataFormat;

impl GroupNormOptions {
    /// Options with a number of groups, which must divide the channels, and the place of the channel axis: PyTorch's
    /// `(N, C, H, W)` is [`DataFormat::Ncx`]. A group consists of adjacent channels of one sample.
    ///
    /// ```
    /// use wgpu_norm::{Activation, DataFormat, GroupNormOptions};
    /// let options = GroupNormOptions::new(32, DataFormat::Ncx).activation(Activation::Silu);
    /// ```
    pub const fn new(groups: usize, format: DataFormat) -> Self {
        Self(Layer::new(Norm::group(groups, format)))
    }
}

layer! {
    /// Group normalization as PyTorch and ONNX define it: [`forward`](Self::forward), [`infer`](Self::infer) with given
    /// statistics, and the gradient, [`backward`](Self::backward).
    ///
    /// The C channels of a sample are divided into G groups of C/G adjacent channels. Mean and biased variance, `[N,
    /// G]`, are taken over the elements of a group; gamma and beta are `[C]`. With r = 1/√(variance + epsilon) and x̂ =
    /// (src − mean)·r, the forward pass is dst = gamma · x̂ + beta. An [`Activation`](crate::Activation) and a residual
    /// follow as in [`GpuBatchNorm`](crate::GpuBatchNorm). The gradient, with d = gamma · diff_dst (diff_dst without
    /// gamma) and means taken over the elements of a group, is
    ///
    /// * diff_src = r · ((d − mean(d)) − x̂ · mean(d · x̂))
    /// * diff_gamma = Σ diff_dst · x̂ and diff_beta = Σ diff_dst, over all samples of a channel
    ///
    /// Sums are kept in f32 (f64 for f64 data) whatever the element types are. The results are the same to the bit
    /// whenever the same input is given to the same adapter under the same [`Profile`](crate::Profile). The gradient
    /// uses mean and variance as given and never recomputes them. NaN and infinities stay in their group, except in the
    /// parameter gradients of its channels.
    ///
    /// src has rank 2 to 8, and the number of groups divides its channels. Groups without elements have mean and
    /// variance 0. Use `forward` for evaluation too, unless the statistics are fixed: group norm has no running
    /// statistics.
    ///
    /// One kind of tensor is slow and must fit one storage binding: [`DataFormat::Nxc`], with several samples, several
    /// elements of a channel in each, and a number of elements of a sample that is no multiple of 4. Any other tensor
    /// may be larger.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{BackwardArgs, DataFormat, Error, ForwardArgs, GpuContext, GpuGroupNorm, GroupNormOptions};
    ///
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// let layer = GpuGroupNorm::new(&gpu, GroupNormOptions::new(2, DataFormat::Ncx))?;
    /// let (shape, src) = ([1, 4, 1], [1.0_f32, 3.0, 10.0, 30.0]); // one sample of four channels
    /// let (gamma, beta) = ([1.0_f32, 1.0, 1.0, 2.0], [0.0, 0.0, 0.0, 5.0]);
    /// let output = layer.forward(ForwardArgs::new(&shape, &src).gamma(&gamma).beta(&beta)).await?;
    /// assert_eq!(output.saved.mean, [2.0, 20.0]); // of two groups
    /// assert!((output.dst[0] + 1.0).abs() < 1e-4 && (output.dst[3] - 7.0).abs() < 1e-4);
    /// let diff_dst = [1.0, 0.0, 0.0, 4.0];
    /// let args = BackwardArgs::new(&shape, &src, &diff_dst, &output.saved).gamma(&gamma).beta(&beta);
    /// let grads = layer.backward(args).await?;
    /// assert_eq!(grads.diff_beta, Some(vec![1.0, 0.0, 0.0, 4.0]));
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    GpuGroupNorm, GroupNormOptions, infer
}
