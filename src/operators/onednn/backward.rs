//! The gradients.

use crate::operators::*;

operator! {
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
    /// Plans and errors have the same names.
    ///
    /// **gamma is ignored if diff_gamma and diff_beta are not requested**, as the document says: see
    /// [`BatchNormOutputs::DiffSrc`]. For a frozen layer, which has no such outputs but is still scaled by gamma, take
    /// the operation with all outputs [`without_param_grads`](Operation::without_param_grads).
    ///
    /// # Differences
    ///
    /// * The document allows f32, bf16 and f16 data with f32 parameters, and bf16 with bf16. f16 with f16 and f64 with
    ///   f64 work too.
    /// * mean and variance need not be those of src; they are used as given.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, onednn::BatchNormTrainingBackward};
    ///
    /// let op = BatchNormTrainingBackward::new(1e-5); // NXC, all three outputs
    /// let inputs = Inputs::new()
    ///     .with("src", &[2, 2], &[1.0_f32, 2.0, 3.0, 6.0]) // two samples of two channels
    ///     .with("diff_dst", &[2, 2], &[1.0_f32, 0.0, 0.0, 2.0])
    ///     .with("mean", &[2], &[2.0_f32, 4.0])
    ///     .with("variance", &[2], &[1.0_f32, 4.0])
    ///     .with("gamma", &[2], &[1.0_f32, 1.0]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// assert_eq!(outputs.get::<f32>("diff_beta")?, [1.0, 2.0]);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    BatchNormTrainingBackward {
        /// Attribute `epsilon`, required: added to the variance; finite and above 0. An f32 as in the document, even
        /// for f64 data.
        epsilon: f32,
    } {
        /// Attribute `data_format`: `NXC`, the default, or `NCX`.
        data_format: DataFormat = DataFormat::Nxc,
        /// Which outputs the operation has.
        outputs: BatchNormOutputs = BatchNormOutputs::All,
    }
    /// The document's defaults, with all outputs. The document has no default for epsilon.
    new
    inputs(_) { src: Src, diff_dst: DiffDst, mean: Mean, variance: Variance, gamma: Gamma.optional() }
    outputs(_) { diff_src: DiffSrc, diff_gamma: DiffGamma, diff_beta: DiffBeta }
}

impl Definition for BatchNormTrainingBackward {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        let all = self.outputs == BatchNormOutputs::All;
        let pass = Backward::default().with_param_grads(all);
        let operation = given.operation(Norm::batch(self.data_format), pass, self.epsilon)?;
        let gamma = operation.gamma && all;
        Ok(operation.with_params(gamma, false))
    }
}

/// The outputs of a [`BatchNormTrainingBackward`]. The document requires both of diff_gamma and diff_beta, or neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BatchNormOutputs {
    /// diff_src, diff_gamma and diff_beta.
    #[default]
    All,
    /// diff_src alone, and **a given gamma is ignored**: its length is checked, its values are not
    /// read.
    DiffSrc,
}

operator! {
    /// oneDNN Graph's
    /// [`LayerNormBackward`](https://oneapi-src.github.io/oneDNN/dev_guide_op_layernormbackward.html).
    ///
    /// The axes from `begin_norm_axis` on are normalized; a row consists of the elements with the same indices along
    /// the axes before it. With r = 1/√(variance + epsilon) and x̂ = (src − mean)·r of the row, d = diff_dst · gamma
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
    /// Plans and errors have the same names.
    ///
    /// # Differences
    ///
    /// * The document calls gamma and beta one-dimensional even if several axes are normalized. Here they may also
    ///   have these axes.
    /// * diff_gamma and diff_beta are computed both or neither: see [`LayerNormOutputs`].
    /// * Without `use_affine` gamma and beta must not be given; oneDNN ignores them.
    /// * beta may be left out even with `use_affine`, since no gradient depends on its values; on device buffers it is
    ///   not bound.
    /// * The document allows f32, bf16 and f16 data with f32 parameters, and bf16 with bf16. f16 with f16 and f64 with
    ///   f64 work too.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, onednn::LayerNormBackward};
    ///
    /// let op = LayerNormBackward::default(); // the last axis, affine, epsilon 1e-5
    /// let inputs = Inputs::new()
    ///     .with("src", &[2, 2], &[1.0_f32, 3.0, 2.0, 4.0]) // two rows
    ///     .with("diff_dst", &[2, 2], &[1.0_f32, 0.0, 0.0, 1.0])
    ///     .with("mean", &[2], &[2.0_f32, 3.0])
    ///     .with("variance", &[2], &[1.0_f32, 1.0])
    ///     .with("gamma", &[2], &[1.0_f32, 1.0])
    ///     .with("beta", &[2], &[0.0_f32, 0.0]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// assert_eq!(outputs.get::<f32>("diff_beta")?, [1.0, 1.0]);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    LayerNormBackward {
    } {
        /// Attribute `begin_norm_axis`, in [−r, r − 1] for src of rank r, negative from the end; −1 by
        /// default.
        begin_norm_axis: i64 = -1,
        /// Attribute `use_affine`: whether there are gamma and beta; true by default.
        use_affine: bool = true,
        /// Attribute `epsilon`: added to the variance; finite and above 0; 1e-5 by default. An f32 as in the document,
        /// even for f64 data.
        epsilon: f32 = 1e-5,
        /// Which outputs the operation has.
        outputs: LayerNormOutputs = LayerNormOutputs::All,
    }
    /// The document's defaults, with all outputs.
    default
    inputs(op) {
        src: Src, diff_dst: DiffDst, mean: Mean, variance: Variance,
        gamma: Gamma.only_if("use_affine", op.use_affine),
        beta: Beta.optional_if("use_affine", op.use_affine),
    }
    outputs(_) { diff_src: DiffSrc, diff_gamma: DiffGamma, diff_beta: DiffBeta }
}

impl Definition for LayerNormBackward {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        let all = self.outputs == LayerNormOutputs::All;
        let pass = Backward::default().with_param_grads(all);
        let operation = given.operation(Norm::layer(self.begin_norm_axis), pass, self.epsilon)?;
        Ok(operation.with_params(self.use_affine, self.use_affine))
    }
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
