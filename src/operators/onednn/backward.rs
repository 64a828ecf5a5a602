//! The gradients.

use crate::element::types;
use crate::{
    Activation, BatchNormBackwardArgs, BatchNormBackwardPlan, BatchNormOptions, DataFormat,
    Element, Error, GpuBatchNorm, GpuContext, GpuLayerNorm, Grads, LayerNormBackwardArgs,
    LayerNormBackwardPlan, LayerNormOptions, ParamGrads, ParamOf, Statistics,
};

/// oneDNN Graph's
/// [`BatchNormTrainingBackward`](https://oneapi-src.github.io/oneDNN/dev_guide_op_batchnormtrainingbackward.html).
///
/// With m elements in a channel, r = 1/√(variance + epsilon), x̂ = (src − mean)·r and gamma = 1 where it
/// is not given:
///
/// * diff_src = gamma · r · (diff_dst − diff_beta/m − x̂ · diff_gamma/m)
/// * diff_gamma = Σ diff_dst · x̂
/// * diff_beta = Σ diff_dst
///
/// | index | input | shape | | index | output | shape |
/// |---|---|---|---|---|---|---|
/// | 0 | `src` | `(N, …, C)` or `(N, C, …)` | | 0 | `diff_src` | src's |
/// | 1 | `diff_dst` | src's | | 1 | `diff_gamma`, optional | `[C]` |
/// | 2 | `mean` | `[C]` | | 2 | `diff_beta`, optional | `[C]` |
/// | 3 | `variance` | `[C]` | | | | |
/// | 4 | `gamma`, optional | `[C]` | | | | |
///
/// The names are those of [`BatchNormBackwardArgs`] and [`Grads`], in this order.
///
/// **gamma is ignored where diff_gamma and diff_beta are not asked for**, as the document has it: see
/// [`BatchNormOutputs::DiffSrc`]. For a frozen layer, which has no such outputs and is scaled by gamma
/// all the same, use [`GpuBatchNorm`] with [`ParamGrads::Frozen`].
///
/// # What differs
///
/// * The document has f32, bf16 and f16 data with f32 parameters, and bf16 with bf16. f16 with f16 and
///   f64 with f64 work too.
/// * mean and variance need not be those of src; they are used as they are given.
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # let gpu = match GpuContext::new().await {
/// #     Ok(gpu) => gpu,
/// #     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
/// #     Err(error) => return Err(error),
/// # };
/// use wgpu_norm::BatchNormBackwardArgs;
/// use wgpu_norm::operators::onednn::BatchNormTrainingBackward;
///
/// let op = BatchNormTrainingBackward::new(1e-5); // NXC, all three outputs
/// let args = BatchNormBackwardArgs {
///     shape: &[2, 2], // two samples of two channels
///     src: &[1.0_f32, 2.0, 3.0, 6.0],
///     diff_dst: &[1.0, 0.0, 0.0, 2.0],
///     mean: &[2.0, 4.0],
///     variance: &[1.0, 4.0],
///     gamma: Some(&[1.0, 1.0]),
///     beta: None,
///     mask: None,
/// };
/// let grads = op.backward(&gpu, args).await?;
/// assert_eq!(grads.diff_beta, Some(vec![1.0, 2.0]));
/// # Ok(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormTrainingBackward {
    /// Attribute `epsilon`, required: added to the variance; finite and above 0. An f32, as the document has
    /// it, also beside f64 data.
    pub epsilon: f32,
    /// Attribute `data_format`: `NXC`, the default, or `NCX`.
    pub data_format: DataFormat,
    /// Which outputs the operation has.
    pub outputs: BatchNormOutputs,
}

/// The outputs of a [`BatchNormTrainingBackward`]: the document wants diff_gamma and diff_beta both or
/// neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BatchNormOutputs {
    /// diff_src, diff_gamma and diff_beta.
    #[default]
    All,
    /// diff_src alone, and **a given gamma is ignored**: its length is checked, its values are not
    /// read.
    DiffSrc,
}

impl BatchNormTrainingBackward {
    /// The document's defaults, with all outputs. epsilon has no default there.
    pub const fn new(epsilon: f32) -> Self {
        Self {
            epsilon,
            data_format: DataFormat::Nxc,
            outputs: BatchNormOutputs::All,
        }
    }

    /// Computes the outputs of tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and those of [`GpuBatchNorm::backward`].
    pub async fn backward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        args: BatchNormBackwardArgs<'_, T, P, P>,
    ) -> Result<Grads<T, P>, Error> {
        self.layer(gpu)?.backward_with_statistics(args).await
    }

    /// Plans the operation on device buffers. A gamma that is ignored must be bound nevertheless if
    /// `has_gamma` announces it.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and those of [`GpuBatchNorm::plan_backward`].
    pub fn plan<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        shape: &[usize],
        has_gamma: bool,
    ) -> Result<BatchNormBackwardPlan, Error> {
        self.layer(gpu)?
            .plan_backward(shape, types::<T, P, P>(), has_gamma)
    }

    fn layer(&self, gpu: &GpuContext) -> Result<GpuBatchNorm, Error> {
        let options = BatchNormOptions {
            epsilon: self.epsilon.into(),
            data_format: self.data_format,
            statistics: Statistics::Batch,
            param_grads: match self.outputs {
                BatchNormOutputs::All => ParamGrads::Both,
                BatchNormOutputs::DiffSrc => ParamGrads::Neither,
            },
            activation: Activation::None,
        };
        GpuBatchNorm::new(gpu, options)
    }
}

/// oneDNN Graph's
/// [`LayerNormBackward`](https://oneapi-src.github.io/oneDNN/dev_guide_op_layernormbackward.html).
///
/// The axes from `begin_norm_axis` on are normalized; a row is made of the elements that share the axes
/// before it. With r = 1/√(variance + epsilon) and x̂ = (src − mean)·r of the row, d = diff_dst · gamma
/// (diff_dst without `use_affine`), and means taken over the row:
///
/// * diff_src = r · (d − mean(d) − x̂ · mean(d · x̂))
/// * diff_gamma = Σ diff_dst · x̂ and diff_beta = Σ diff_dst, over the rows
///
/// | index | input | shape | | index | output | shape |
/// |---|---|---|---|---|---|---|
/// | 0 | `src` | rank 1 to 8 | | 0 | `diff_src` | src's |
/// | 1 | `diff_dst` | src's | | 1 | `diff_gamma` with `use_affine`, optional | gamma's |
/// | 2 | `mean` | the leading axes | | 2 | `diff_beta` with `use_affine`, optional | gamma's |
/// | 3 | `variance` | the leading axes | | | | |
/// | 4 | `gamma` with `use_affine` | the normalized axes | | | | |
/// | 5 | `beta` with `use_affine` | the normalized axes | | | | |
///
/// The names are those of [`LayerNormBackwardArgs`] and [`Grads`], in this order.
///
/// # What differs
///
/// * The document calls gamma and beta one-dimensional also where several axes are normalized. Only
///   their number of elements counts here, so either form serves.
/// * diff_gamma and diff_beta are computed both or neither: see [`LayerNormOutputs`].
/// * Without `use_affine` gamma and beta must not be given, where oneDNN ignores them.
/// * beta must be given with `use_affine`, as the document says, although no gradient depends on its
///   values; on device buffers it is not bound.
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
/// use wgpu_norm::LayerNormBackwardArgs;
/// use wgpu_norm::operators::onednn::LayerNormBackward;
///
/// let op = LayerNormBackward::default(); // the last axis, affine, epsilon 1e-5
/// let args = LayerNormBackwardArgs {
///     shape: &[2, 2], // two rows
///     src: &[1.0_f32, 3.0, 2.0, 4.0],
///     diff_dst: &[1.0, 0.0, 0.0, 1.0],
///     mean: &[2.0, 3.0],
///     variance: &[1.0, 1.0],
///     gamma: Some(&[1.0, 1.0]),
///     beta: Some(&[0.0, 0.0]),
/// };
/// let grads = op.backward(&gpu, args).await?;
/// assert_eq!(grads.diff_beta, Some(vec![1.0, 1.0]));
/// # Ok(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNormBackward {
    /// Attribute `begin_norm_axis`, in [−r, r − 1] for src of rank r, negative from the end; −1 by
    /// default.
    pub begin_norm_axis: i64,
    /// Attribute `use_affine`: whether there are gamma and beta; true by default.
    pub use_affine: bool,
    /// Attribute `epsilon`: added to the variance; finite and above 0; 1e-5 by default. An f32, as the
    /// document has it, also beside f64 data.
    pub epsilon: f32,
    /// Which outputs the operation has.
    pub outputs: LayerNormOutputs,
}

/// The outputs of a [`LayerNormBackward`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LayerNormOutputs {
    /// diff_src and, with `use_affine`, diff_gamma and diff_beta.
    #[default]
    All,
    /// diff_src alone. With `use_affine` gamma still scales it: the document has no rule like that of
    /// [`BatchNormOutputs::DiffSrc`] here.
    DiffSrc,
}

impl Default for LayerNormBackward {
    /// The document's defaults, with all outputs.
    fn default() -> Self {
        Self {
            begin_norm_axis: -1,
            use_affine: true,
            epsilon: 1e-5,
            outputs: LayerNormOutputs::All,
        }
    }
}

impl LayerNormBackward {
    /// Computes the outputs of tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and those of [`GpuLayerNorm::backward`].
    pub async fn backward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        args: LayerNormBackwardArgs<'_, T, P, P>,
    ) -> Result<Grads<T, P>, Error> {
        self.layer(gpu)?.backward_with_statistics(args).await
    }

    /// Plans the operation on device buffers.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and those of [`GpuLayerNorm::plan_backward`].
    pub fn plan<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        shape: &[usize],
    ) -> Result<LayerNormBackwardPlan, Error> {
        self.layer(gpu)?.plan_backward(shape, types::<T, P, P>())
    }

    fn layer(&self, gpu: &GpuContext) -> Result<GpuLayerNorm, Error> {
        let options = LayerNormOptions {
            begin_norm_axis: self.begin_norm_axis,
            use_affine: self.use_affine,
            epsilon: self.epsilon.into(),
            param_grads: match self.outputs {
                LayerNormOutputs::All => ParamGrads::Both,
                LayerNormOutputs::DiffSrc => ParamGrads::Frozen,
            },
        };
        GpuLayerNorm::new(gpu, options)
    }
}
