//! RMS normalization, forward.

use super::{GpuRmsNorm, RmsNormOptions};
use crate::geometry;
use crate::kernels::Body;
use crate::operands::operands;
use crate::plan::{self, RowsForward};
use crate::{DTypes, Element, Error, ForwardArgs, Output, ParamOf, Profile};

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
    /// use wgpu_norm::{Error, ForwardArgs, GpuContext, GpuRmsNorm, RmsNormOptions};
    ///
    /// # let gpu = match GpuContext::new().await {
    /// #     Ok(gpu) => gpu,
    /// #     Err(Error::NoAdapter { .. }) => return Ok(()),
    /// #     Err(error) => return Err(error),
    /// # };
    /// let layer = GpuRmsNorm::new(&gpu, RmsNormOptions::default())?;
    /// let (shape, src, gamma) = ([2, 2], [1.0_f32, 1.0, 2.0, -2.0], [1.0_f32, 1.0]); // two rows
    /// let output = layer.forward(ForwardArgs::new(&shape, &src).params(Some(&gamma), None)).await?;
    /// assert_eq!(output.statistics.mean_square, [1.0, 4.0]);
    /// assert!((output.dst[0] - 1.0).abs() < 1e-4 && (output.dst[3] + 1.0).abs() < 1e-4);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As those of [`backward`](Self::backward); [`Error::Argument`] for beta.
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        args: ForwardArgs<'_, T, P>,
    ) -> Result<Output<T, T::Sum>, Error> {
        let (norm, epsilon) = (self.options.norm(), self.options.epsilon);
        args.run(&self.gpu, norm, epsilon).await
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
        let profile = plan::fit(profile, types, self.epsilon)?;
        let (rows, columns) = geometry::layer_norm_rows(shape, self.begin_norm_axis)?;
        let problem = RowsForward {
            body: Body::RmsForward,
            rows,
            columns,
            types,
            has_gamma: operands.gamma,
            has_beta: false,
            residual: operands.residual,
            keep_statistics: operands.keep_statistics,
            epsilon: self.epsilon,
        };
        Ok(RmsNormForwardPlan {
            plan: plan::rows_forward(&profile, &problem)?,
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
