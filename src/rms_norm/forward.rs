//! RMS normalization, forward.

use super::{GpuRmsNorm, RmsNormOptions};
use crate::element::types;
use crate::operands::operands;
use crate::{
    Activation, DTypes, Element, Epilogue, Error, Forward, Norm, Operation, ParamOf, Profile,
    Residual, Tensor, host,
};

/// Tensors of an RMS norm forward, in host memory.
#[derive(Clone, Copy, Debug)]
pub struct RmsNormForwardArgs<'a, T, P> {
    /// Shape of src, residual and dst: rank 1 to 8.
    pub shape: &'a [usize],
    /// The layer's input.
    pub src: &'a [T],
    /// Added to src before the layer, as in a transformer's block. The sum is an output then.
    pub residual: Option<&'a [T]>,
    /// Scale of each normalized position; 1 where there is none.
    pub gamma: Option<&'a [P]>,
    /// Whether the rows' statistics are wanted, which the gradient takes.
    pub keep_statistics: bool,
}

/// What RMS norm computes forward, in host memory.
#[derive(Clone, Debug, PartialEq)]
pub struct RmsNormOutput<T, S> {
    /// The layer's output, of src's shape.
    pub dst: Vec<T>,
    /// src + residual, if there is a residual: what the gradient takes for src. Its diff_src is the gradient of both.
    pub sum: Option<Vec<T>>,
    /// Mean of the squares of each row; empty unless statistics are kept.
    pub mean_square: Vec<S>,
}

/// What a plan of RMS norm forward reads and writes beside src and dst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RmsNormForwardOperands {
    /// Whether something is added before the layer; the sum is an output then.
    pub residual: bool,
    /// Whether gamma is given; without it gamma is 1.
    pub gamma: bool,
    /// Whether the rows' statistics are written, which the gradient takes.
    pub keep_statistics: bool,
}

impl GpuRmsNorm {
    /// Computes the layer's output: uploads, runs, reads back.
    ///
    /// With x = src, or src + residual, and mean_square = mean(x²) of each row,
    /// dst = gamma · x / √(mean_square + epsilon).
    ///
    /// Sums are kept in f32 (f64 for f64 data).
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{Error, GpuContext, GpuRmsNorm, RmsNormForwardArgs, RmsNormOptions};
    ///
    /// let gpu = match GpuContext::new().await {
    ///     Ok(gpu) => gpu,
    ///     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
    ///     Err(error) => return Err(error),
    /// };
    /// let layer = GpuRmsNorm::new(&gpu, RmsNormOptions::default())?;
    /// let output = layer
    ///     .forward(RmsNormForwardArgs {
    ///         shape: &[2, 2], // two rows
    ///         src: &[1.0_f32, 1.0, 2.0, -2.0],
    ///         residual: None,
    ///         gamma: Some(&[1.0, 1.0]),
    ///         keep_statistics: true,
    ///     })
    ///     .await?;
    /// assert_eq!(output.mean_square, [1.0, 4.0]);
    /// assert!((output.dst[0] - 1.0).abs() < 1e-4 && (output.dst[3] + 1.0).abs() < 1e-4);
    /// # Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As those of [`backward`](Self::backward).
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        args: RmsNormForwardArgs<'_, T, P>,
    ) -> Result<RmsNormOutput<T, T::Sum>, Error> {
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
        args: RmsNormForwardArgs<'_, T, P>,
    ) -> Result<RmsNormOutput<T, S>, Error> {
        let operands = RmsNormForwardOperands {
            residual: args.residual.is_some(),
            gamma: args.gamma.is_some(),
            keep_statistics: args.keep_statistics,
        };
        let plan = self.plan_forward(args.shape, types::<T, P, S>(), operands)?;
        let inputs = [
            Some(host::Input::new(Tensor::Src, args.src)),
            host::Input::given(Tensor::Residual, args.residual),
            host::Input::given(Tensor::Gamma, args.gamma),
        ];
        let inputs: Vec<_> = inputs.into_iter().flatten().collect();
        let mut output = RmsNormOutput {
            dst: Vec::new(),
            sum: None,
            mean_square: Vec::new(),
        };
        host::run(&self.gpu, &plan.plan, &inputs, |tensor, bytes| {
            match tensor {
                Tensor::Dst => output.dst = host::elements(tensor, bytes)?,
                Tensor::MeanSquare => output.mean_square = host::elements(tensor, bytes)?,
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
        operands: RmsNormForwardOperands,
    ) -> Result<RmsNormForwardPlan, Error> {
        let profile = self.gpu.profile();
        self.options.plan_forward(profile, shape, types, operands)
    }
}

/// Planning without a context, for a [`Profile`] of one's own.
impl RmsNormOptions {
    /// As [`GpuRmsNorm::plan_forward`].
    ///
    /// # Errors
    ///
    /// As those of [`GpuRmsNorm::plan_forward`].
    pub fn plan_forward(
        &self,
        profile: &Profile,
        shape: &[usize],
        types: impl Into<DTypes>,
        operands: RmsNormForwardOperands,
    ) -> Result<RmsNormForwardPlan, Error> {
        let types = types.into();
        let residual = match operands.residual {
            true => Residual::Before,
            false => Residual::None,
        };
        let norm = Norm::Rms {
            begin_axis: self.begin_norm_axis,
        };
        let pass = Forward {
            keep_statistics: operands.keep_statistics,
            ..Forward::default()
        };
        let operation = Operation::new(norm, pass, shape, types)
            .with_epsilon(self.epsilon)
            .with_params(operands.gamma, false)
            .with_epilogue(Epilogue::new(residual, Activation::None));
        Ok(RmsNormForwardPlan {
            plan: operation.planned(profile)?,
        })
    }
}

operands! {
    /// What RMS norm dispatches for one shape and its element types.
    plan RmsNormForwardPlan;
    /// The caller's buffers of RMS norm forward.
    ///
    /// Ranges must not overlap where one of them is written.
    buffers RmsNormForwardBuffers;
    sizes RmsNormForwardSizes;
    /// The layer's input.
    src: Src always;
    /// Added to src before the layer; given exactly if the plan has it.
    residual: Residual maybe;
    /// Scale of each normalized position; given exactly if the plan has it.
    gamma: Gamma maybe;
    /// Written: the layer's output.
    dst: Dst always;
    /// Written: src + residual; given exactly if the plan has a residual.
    sum: Sum maybe;
    /// Written: mean of the squares of each row; given exactly if statistics are kept.
    mean_square: MeanSquare maybe;
}
