//! Instance normalization.

use super::layer::{Layer, layer};
use crate::operation::Norm;
use crate::options::DataFormat;

impl InstanceNormOptions {
    /// Options with the place of the channel axis: PyTorch's `(N, C, H, W)` is [`DataFormat::Ncx`].
    ///
    /// ```
    /// use wgpu_norm::{DataFormat, InstanceNormOptions};
    /// let options = InstanceNormOptions::new(DataFormat::Ncx).epsilon(1e-6);
    /// ```
    pub const fn new(format: DataFormat) -> Self {
        Self(Layer::new(Norm::instance(format)))
    }
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
    /// use wgpu_norm::{BackwardArgs, DataFormat, Error, ForwardArgs, GpuContext, GpuInstanceNorm, InstanceNormOptions};
    ///
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// let layer = GpuInstanceNorm::new(&gpu, InstanceNormOptions::new(DataFormat::Ncx))?;
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
