//! Layer normalization, forward.

use super::{GpuLayerNorm, LayerNormOptions};
use crate::element::types;
use crate::operands::operands;
use crate::{
    Activation, DTypes, Element, Epilogue, Error, Forward, Norm, Operation, ParamOf, Profile,
    Residual, Tensor, host,
};

/// Tensors of a layer norm forward, in host memory.
#[derive(Clone, Copy, Debug)]
pub struct LayerNormForwardArgs<'a, T, P> {
    /// Shape of src, residual and dst: rank 1 to 8.
    pub shape: &'a [usize],
    /// The layer's input.
    pub src: &'a [T],
    /// Added to src before the layer, as in a transformer's block. The sum is an output then.
    pub residual: Option<&'a [T]>,
    /// Scale of each normalized position; given exactly if the layer is affine.
    pub gamma: Option<&'a [P]>,
    /// Shift of each normalized position; only of an affine layer. Without it beta is 0.
    pub beta: Option<&'a [P]>,
    /// Whether the rows' statistics are wanted, which the gradient takes.
    pub keep_statistics: bool,
}

/// What layer norm computes forward, in host memory.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNormOutput<T, S> {
    /// The layer's output, of src's shape.
    pub dst: Vec<T>,
    /// src + residual, if there is a residual: what the gradient takes for src. Its diff_src is the gradient of both.
    pub sum: Option<Vec<T>>,
    /// Mean of each row; empty unless statistics are kept.
    pub mean: Vec<S>,
    /// Biased variance of each row; empty unless statistics are kept.
    pub variance: Vec<S>,
}

/// What a plan of layer norm forward reads and writes beside src, gamma and dst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerNormForwardOperands {
    /// Whether something is added before the layer; the sum is an output then.
    pub residual: bool,
    /// Whether beta is given, of an affine layer; without it beta is 0.
    pub beta: bool,
    /// Whether the rows' statistics are written, which the gradient takes.
    pub keep_statistics: bool,
}

impl GpuLayerNorm {
    /// Computes the layer's output: uploads, runs, reads back.
    ///
    /// With x = src, or src + residual, and mean, variance (the biased one) and
    /// r = 1/√(variance + epsilon) of each row, dst = gamma · (x − mean) · r + beta.
    ///
    /// The relative error of the variance is below 1e-5 (in f32) whatever the mean is, up to a million standard
    /// deviations, and the variance of equal elements is 0.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{Error, GpuContext, GpuLayerNorm, LayerNormForwardArgs, LayerNormOptions};
    ///
    /// let gpu = match GpuContext::new().await {
    ///     Ok(gpu) => gpu,
    ///     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
    ///     Err(error) => return Err(error),
    /// };
    /// let layer = GpuLayerNorm::new(&gpu, LayerNormOptions::default())?;
    /// let output = layer
    ///     .forward(LayerNormForwardArgs {
    ///         shape: &[2, 2], // two rows
    ///         src: &[0.0_f32, 2.0, 1.0, 3.0],
    ///         residual: None,
    ///         gamma: Some(&[1.0, 1.0]),
    ///         beta: Some(&[0.0, 0.0]),
    ///         keep_statistics: true,
    ///     })
    ///     .await?;
    /// assert_eq!(output.mean, [1.0, 2.0]);
    /// assert!((output.dst[0] + 1.0).abs() < 1e-4 && (output.dst[3] - 1.0).abs() < 1e-4);
    /// # Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As those of [`backward`](Self::backward).
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        args: LayerNormForwardArgs<'_, T, P>,
    ) -> Result<LayerNormOutput<T, T::Sum>, Error> {
        self.forward_with_statistics(args).await
    }

    /// The same with statistics of another type: of 16 bits, as parameters of that type. They hold less, as
    /// [`DTypes::statistics`](crate::DTypes::statistics) says.
    ///
    /// # Errors
    ///
    /// As those of [`forward`](Self::forward).
    pub async fn forward_with_statistics<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &self,
        args: LayerNormForwardArgs<'_, T, P>,
    ) -> Result<LayerNormOutput<T, S>, Error> {
        check_affine("gamma", self.options.use_affine, args.gamma.is_some(), true)?;
        check_affine("beta", self.options.use_affine, args.beta.is_some(), false)?;
        let operands = LayerNormForwardOperands {
            residual: args.residual.is_some(),
            beta: args.beta.is_some(),
            keep_statistics: args.keep_statistics,
        };
        let plan = self.plan_forward(args.shape, types::<T, P, S>(), operands)?;
        let inputs = [
            Some(host::Input::new(Tensor::Src, args.src)),
            host::Input::given(Tensor::Residual, args.residual),
            host::Input::given(Tensor::Gamma, args.gamma),
            host::Input::given(Tensor::Beta, args.beta),
        ];
        let inputs: Vec<_> = inputs.into_iter().flatten().collect();
        let mut output = LayerNormOutput {
            dst: Vec::new(),
            sum: None,
            mean: Vec::new(),
            variance: Vec::new(),
        };
        host::run(&self.gpu, &plan.plan, &inputs, |tensor, bytes| {
            match tensor {
                Tensor::Dst => output.dst = host::elements(tensor, bytes)?,
                Tensor::Mean => output.mean = host::elements(tensor, bytes)?,
                Tensor::Variance => output.variance = host::elements(tensor, bytes)?,
                _ => output.sum = Some(host::elements(tensor, bytes)?),
            }
            Ok(())
        })
        .await?;
        Ok(output)
    }

    /// Plans the layer's output on device buffers: the first of the three stages that
    /// [`BatchNormBackwardPlan`](crate::BatchNormBackwardPlan) describes.
    ///
    /// # Errors
    ///
    /// As those of [`forward`](Self::forward) that follow from shapes and types.
    pub fn plan_forward(
        &self,
        shape: &[usize],
        types: impl Into<DTypes>,
        operands: LayerNormForwardOperands,
    ) -> Result<LayerNormForwardPlan, Error> {
        let profile = self.gpu.profile();
        self.options.plan_forward(profile, shape, types, operands)
    }
}

/// Planning without a context, for a [`Profile`] of one's own.
impl LayerNormOptions {
    /// As [`GpuLayerNorm::plan_forward`].
    ///
    /// # Errors
    ///
    /// As those of [`GpuLayerNorm::plan_forward`].
    pub fn plan_forward(
        &self,
        profile: &Profile,
        shape: &[usize],
        types: impl Into<DTypes>,
        operands: LayerNormForwardOperands,
    ) -> Result<LayerNormForwardPlan, Error> {
        let types = types.into();
        check_affine("beta", self.use_affine, operands.beta, false)?;
        let residual = match operands.residual {
            true => Residual::Before,
            false => Residual::None,
        };
        let norm = Norm::Layer {
            begin_axis: self.begin_norm_axis,
        };
        let pass = Forward {
            keep_statistics: operands.keep_statistics,
            ..Forward::default()
        };
        let operation = Operation::new(norm, pass, shape, types)
            .with_epsilon(self.epsilon)
            .with_params(self.use_affine, operands.beta)
            .with_epilogue(Epilogue::new(residual, Activation::None));
        Ok(LayerNormForwardPlan {
            plan: operation.planned(profile)?,
        })
    }
}

/// An error if gamma or beta is given to a layer that is not affine, or is missing from one that must have it.
pub(super) fn check_affine(
    argument: &'static str,
    affine: bool,
    given: bool,
    required: bool,
) -> Result<(), Error> {
    let words = |there: bool| if there { "a tensor" } else { "none" };
    match given == affine || (affine && !required) {
        true => Ok(()),
        false => Err(Error::Argument {
            argument,
            expected: format!("{} with use_affine {affine}", words(affine)),
            got: words(given).to_owned(),
        }),
    }
}

operands! {
    /// What layer norm dispatches for one shape and its element types.
    plan LayerNormForwardPlan;
    /// The caller's buffers of layer norm forward.
    ///
    /// Ranges must not overlap where one of them is written.
    buffers LayerNormForwardBuffers;
    sizes LayerNormForwardSizes;
    /// The layer's input.
    src: Src always;
    /// Added to src before the layer; given exactly if the plan has it.
    residual: Residual maybe;
    /// Scale of each normalized position; given exactly if the layer is affine.
    gamma: Gamma maybe;
    /// Shift of each normalized position; given exactly if the plan has it.
    beta: Beta maybe;
    /// Written: the layer's output.
    dst: Dst always;
    /// Written: src + residual; given exactly if the plan has a residual.
    sum: Sum maybe;
    /// Written: mean of each row; given exactly if statistics are kept.
    mean: Mean maybe;
    /// Written: biased variance of each row; given exactly if statistics are kept.
    variance: Variance maybe;
}
