//! The gradients.

use crate::operators::*;

inputs! {
    /// The inputs of [`BatchNormTrainingBackward`], in host memory, in the document's order.
    BatchNormTrainingBackwardInputs<T, P> {
        /// Shape of src and diff_dst: rank 2 to 8.
        shape: &'a [usize],
    }
    src: &'a [T] = Src,
    diff_dst: &'a [T] = DiffDst,
    mean: &'a [P] = Mean,
    variance: &'a [P] = Variance,
    /// Scale of each channel; `[C]`. If absent, gamma is 1.
    gamma: Option<&'a [P]> = Gamma,
}

attributes! {
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
    /// [`BatchNormOutputs::DiffSrc`]. For a frozen layer, which has no such outputs but is still scaled by gamma, take the
    /// operation with all outputs [`without_param_grads`](Operation::without_param_grads).
    ///
    /// # Differences
    ///
    /// * The document allows f32, bf16 and f16 data with f32 parameters, and bf16 with bf16. f16 with f16 and f64 with f64
    ///   work too.
    /// * mean and variance need not be those of src; they are used as given.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::onednn::{BatchNormTrainingBackward, BatchNormTrainingBackwardInputs};
    ///
    /// let op = BatchNormTrainingBackward::new(1e-5); // NXC, all three outputs
    /// let inputs = BatchNormTrainingBackwardInputs {
    ///     shape: &[2, 2], // two samples of two channels
    ///     src: &[1.0_f32, 2.0, 3.0, 6.0],
    ///     diff_dst: &[1.0, 0.0, 0.0, 2.0],
    ///     mean: &[2.0, 4.0],
    ///     variance: &[1.0, 4.0],
    ///     gamma: Some(&[1.0, 1.0]),
    /// };
    /// let grads = op.backward(&gpu, inputs).await?;
    /// assert_eq!(grads.diff_beta, Some(vec![1.0, 2.0]));
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    BatchNormTrainingBackward {
        /// Attribute `epsilon`, required: added to the variance; finite and above 0. An f32 as in the document, even for
        /// f64 data.
        epsilon: f32,
    } {
        /// Attribute `data_format`: `NXC`, the default, or `NCX`.
        data_format: DataFormat = DataFormat::Nxc,
        /// Which outputs the operation has.
        outputs: BatchNormOutputs = BatchNormOutputs::All,
    }
    /// The document's defaults, with all outputs. The document has no default for epsilon.
    new
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

impl BatchNormTrainingBackward {
    /// The operation, with gamma or without. A gamma that is ignored is none of its tensors.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and errors in the shape.
    pub fn operation<T: Element, P: ParamOf<T>>(
        &self,
        shape: &[usize],
        has_gamma: bool,
    ) -> Result<Operation, Error> {
        let norm = batch_norm(self.data_format);
        let all = self.outputs == BatchNormOutputs::All;
        let pass = Backward::default().with_param_grads(all);
        operation::<T, P, P>(norm, pass, shape, self.epsilon, (has_gamma && all, false))
    }

    /// Computes the outputs from tensors in host memory.
    ///
    /// # Errors
    ///
    /// Those of [`Operation::run_into`].
    pub async fn backward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: BatchNormTrainingBackwardInputs<'_, T, P>,
    ) -> Result<Grads<T, P>, Error> {
        let operation = self.operation::<T, P>(inputs.shape, inputs.gamma.is_some())?;
        if let Some(gamma) = inputs.gamma {
            operation.check_param(Tensor::Gamma, gamma.len())?;
        }
        let gamma = inputs.gamma.filter(|_| operation.gamma);
        let read = BatchNormTrainingBackwardInputs { gamma, ..inputs };
        Ok(read.call(operation).run::<T, P, P>(gpu).await?.grads())
    }
}

inputs! {
    /// The inputs of [`LayerNormBackward`], in host memory, in the document's order.
    LayerNormBackwardInputs<T, P> {
        /// Shape of src and diff_dst: rank 1 to 8.
        shape: &'a [usize],
        /// Shift of each normalized position; only with `use_affine`. No gradient depends on its values.
        beta: Option<&'a [P]>,
    }
    src: &'a [T] = Src,
    diff_dst: &'a [T] = DiffDst,
    mean: &'a [P] = Mean,
    variance: &'a [P] = Variance,
    /// Scale of each normalized position; given exactly when `use_affine` is true.
    gamma: Option<&'a [P]> = Gamma,
}

attributes! {
    /// oneDNN Graph's
    /// [`LayerNormBackward`](https://oneapi-src.github.io/oneDNN/dev_guide_op_layernormbackward.html).
    ///
    /// The axes from `begin_norm_axis` on are normalized; a row consists of the elements with the same indices along the
    /// axes before it. With r = 1/√(variance + epsilon) and x̂ = (src − mean)·r of the row, d = diff_dst · gamma (diff_dst
    /// without `use_affine`), and means taken over the row:
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
    /// * The document calls gamma and beta one-dimensional even if several axes are normalized. Only their number of
    ///   elements matters here, so either form works.
    /// * diff_gamma and diff_beta are computed both or neither: see [`LayerNormOutputs`].
    /// * Without `use_affine` gamma and beta must not be given; oneDNN ignores them.
    /// * beta may be left out even with `use_affine`, since no gradient depends on its values; on device buffers it is not
    ///   bound.
    /// * The document allows f32, bf16 and f16 data with f32 parameters, and bf16 with bf16. f16 with f16 and f64 with f64
    ///   work too.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::onednn::{LayerNormBackward, LayerNormBackwardInputs};
    ///
    /// let op = LayerNormBackward::default(); // the last axis, affine, epsilon 1e-5
    /// let inputs = LayerNormBackwardInputs {
    ///     shape: &[2, 2], // two rows
    ///     src: &[1.0_f32, 3.0, 2.0, 4.0],
    ///     diff_dst: &[1.0, 0.0, 0.0, 1.0],
    ///     mean: &[2.0, 3.0],
    ///     variance: &[1.0, 1.0],
    ///     gamma: Some(&[1.0, 1.0]),
    ///     beta: Some(&[0.0, 0.0]),
    /// };
    /// let grads = op.backward(&gpu, inputs).await?;
    /// assert_eq!(grads.diff_beta, Some(vec![1.0, 1.0]));
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    LayerNormBackward {
    } {
        /// Attribute `begin_norm_axis`, in [−r, r − 1] for src of rank r, negative from the end; −1 by
        /// default.
        begin_norm_axis: i64 = -1,
        /// Attribute `use_affine`: whether there are gamma and beta; true by default.
        use_affine: bool = true,
        /// Attribute `epsilon`: added to the variance; finite and above 0; 1e-5 by default. An f32 as in the document, even
        /// for f64 data.
        epsilon: f32 = 1e-5,
        /// Which outputs the operation has.
        outputs: LayerNormOutputs = LayerNormOutputs::All,
    }
    /// The document's defaults, with all outputs.
    default
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

impl LayerNormBackward {
    /// The operation. beta is not among its tensors, since nothing depends on it.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and errors in the shape and begin_norm_axis.
    pub fn operation<T: Element, P: ParamOf<T>>(
        &self,
        shape: &[usize],
    ) -> Result<Operation, Error> {
        let (begin_axis, affine) = (self.begin_norm_axis, self.use_affine);
        let pass = backward(self.outputs == LayerNormOutputs::All);
        let norm = Norm::Layer { begin_axis };
        operation::<T, P, P>(norm, pass, shape, self.epsilon, (affine, affine))
    }

    /// Computes the outputs from tensors in host memory.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if gamma is missing with `use_affine`, or if gamma or beta is given without it,
    /// [`Error::Length`] for beta, and those of [`Operation::run_into`].
    pub async fn backward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        inputs: LayerNormBackwardInputs<'_, T, P>,
    ) -> Result<Grads<T, P>, Error> {
        let operation = self.operation::<T, P>(inputs.shape)?;
        exactly("gamma", inputs.gamma, "use_affine", self.use_affine)?;
        if let Some(beta) = inputs.beta {
            exactly("beta", inputs.beta, "use_affine", self.use_affine)?;
            operation.check_param(Tensor::Beta, beta.len())?;
        }
        Ok(inputs.call(operation).run::<T, P, P>(gpu).await?.grads())
    }
}
