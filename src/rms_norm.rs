//! The gradient of RMS normalization.

use crate::geometry;
use crate::kernels::Body;
use crate::operands::operands;
use crate::options::check_epsilon;
use crate::plan::{self, LayerNormProblem};
use crate::{DType, Element, Error, GpuContext, Grads, ParamGrads, ParamOf, host};

/// What a [`GpuRmsNorm`] computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNormOptions {
    /// The first normalized axis, from −rank to rank − 1; negative counts from the end. All axes from
    /// it on are normalized together.
    pub begin_norm_axis: i64,
    /// Added to the mean of squares; finite, normal and above 0, as f32 too where the data are not f64.
    pub epsilon: f64,
    /// Whether gamma's gradient is computed, where gamma is given, and whether gamma counts.
    pub param_grads: ParamGrads,
}

impl Default for RmsNormOptions {
    /// ONNX's defaults, the last axis and epsilon 1e-5, with gamma's gradient.
    fn default() -> Self {
        Self {
            begin_norm_axis: -1,
            epsilon: 1e-5,
            param_grads: ParamGrads::Both,
        }
    }
}

/// Tensors of an RMS-norm gradient, in host memory.
///
/// mean_square has the leading dimensions of the shape, gamma the trailing ones, those that are normalized; only their
/// numbers of elements are checked.
#[derive(Clone, Copy, Debug)]
pub struct RmsNormArgs<'a, T, P> {
    /// Shape of src, diff_dst and diff_src: rank 1 to 8. With an axis of size 0 there are no elements, and gamma's
    /// gradient is 0.
    pub shape: &'a [usize],
    /// The layer's input.
    pub src: &'a [T],
    /// Gradient of the loss with respect to the layer's output.
    pub diff_dst: &'a [T],
    /// Mean of the squares of each row. From a saved rstd = 1/√(mean_square + epsilon) it is 1/rstd² − epsilon.
    pub mean_square: &'a [P],
    /// Scale of each normalized position; 1 where there is none.
    pub gamma: Option<&'a [P]>,
}

/// The gradient of RMS normalization, y = gamma · src / √(mean(src²) + epsilon).
///
/// A row is made of the elements that share the leading axes. With r = 1/√(mean_square + epsilon) and x̂ = src·r of the
/// row, d = diff_dst · gamma (diff_dst without gamma, or with [`ParamGrads::Neither`]), and the mean taken over the row:
///
/// * diff_src = r · (d − x̂ · mean(d · x̂))
/// * diff_gamma = Σ diff_dst · x̂, over the rows
///
/// Sums are kept in f32 (f64 for f64 data). The results are the same to the bit whenever the same input is
/// given to the same adapter under the same [`Profile`](crate::Profile). mean_square is the given one, never
/// recomputed. There is no beta: [`Grads::diff_beta`] is none.
///
/// ```
/// # pollster::block_on(async {
/// use wgpu_norm::{Error, GpuContext, GpuRmsNorm, RmsNormArgs, RmsNormOptions};
///
/// let gpu = match GpuContext::new().await {
///     Ok(gpu) => gpu,
///     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
///     Err(error) => return Err(error),
/// };
/// let layer = GpuRmsNorm::new(&gpu, RmsNormOptions::default())?;
/// let grads = layer
///     .backward(RmsNormArgs {
///         shape: &[2, 2], // two rows
///         src: &[1.0_f32, 1.0, 2.0, -2.0],
///         diff_dst: &[1.0, 0.0, 0.0, 1.0],
///         mean_square: &[1.0, 4.0],
///         gamma: Some(&[1.0, 1.0]),
///     })
///     .await?;
/// let diff_gamma = grads.diff_gamma.unwrap_or_default();
/// assert!((diff_gamma[0] - 1.0).abs() < 1e-4 && (diff_gamma[1] + 1.0).abs() < 1e-4);
/// # Ok(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct GpuRmsNorm {
    gpu: GpuContext,
    options: RmsNormOptions,
}

impl GpuRmsNorm {
    /// An operator on a context.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`] if epsilon is not finite, normal and above 0. Tighter bounds of f32 are checked when
    /// the element type is known.
    pub fn new(gpu: &GpuContext, options: RmsNormOptions) -> Result<Self, Error> {
        check_epsilon(options.epsilon, DType::F64)?;
        Ok(Self {
            gpu: gpu.clone(),
            options,
        })
    }

    /// What it computes.
    pub const fn options(&self) -> &RmsNormOptions {
        &self.options
    }

    /// Computes the gradients of tensors in host memory: uploads, runs, reads back.
    ///
    /// # Errors
    ///
    /// As those of [`GpuLayerNorm::backward`](crate::GpuLayerNorm::backward).
    pub async fn backward<T: Element, P: ParamOf<T>>(
        &self,
        args: RmsNormArgs<'_, T, P>,
    ) -> Result<Grads<T, P>, Error> {
        let plan = self.plan(args.shape, T::DTYPE, P::DTYPE, args.gamma.is_some())?;
        let inputs = host::Inputs {
            src: args.src,
            diff_dst: args.diff_dst,
            group: "row",
            statistics: &[args.mean_square],
            gamma: args.gamma,
        };
        host::backward(&self.gpu, &plan.plan, self.options.epsilon, inputs).await
    }

    /// Plans the gradient of device buffers, the first of the three stages that
    /// [`BatchNormPlan`](crate::BatchNormPlan) describes.
    ///
    /// # Errors
    ///
    /// As those of [`backward`](Self::backward) that follow from shapes and types.
    pub fn plan(
        &self,
        shape: &[usize],
        data: DType,
        params: DType,
        has_gamma: bool,
    ) -> Result<RmsNormPlan, Error> {
        self.gpu.check_fit()?;
        let profile = self.gpu.profile();
        profile.check_dtypes(data, params)?;
        check_epsilon(self.options.epsilon, data)?;
        let (rows, columns) = geometry::layer_norm_rows(shape, self.options.begin_norm_axis)?;
        let problem = LayerNormProblem {
            body: Body::RmsGradient,
            rows,
            columns,
            data,
            params,
            use_affine: has_gamma,
            epsilon: self.options.epsilon,
            param_grads: self.options.param_grads,
        };
        Ok(RmsNormPlan {
            plan: plan::layer_norm(profile, &problem)?,
        })
    }
}

operands! {
    /// What to dispatch for one shape and its element types.
    plan RmsNormPlan;
    /// The caller's buffers of an RMS-norm gradient.
    ///
    /// Ranges must not overlap where one of them is written, with one exception: diff_src may be exactly diff_dst.
    buffers RmsNormBuffers;
    sizes RmsNormSizes;
    /// The layer's input.
    src: Src always;
    /// Gradient of the loss with respect to the layer's output.
    diff_dst: DiffDst always;
    /// Mean of the squares of each row.
    mean_square: MeanSquare always;
    /// Scale of each normalized position; given exactly if the plan has it.
    gamma: Gamma maybe;
    /// Written: gradient with respect to src.
    diff_src: DiffSrc always;
    /// Written: gradient with respect to gamma; given exactly if the plan has gamma, with [`ParamGrads::Both`].
    diff_gamma: DiffGamma maybe;
}
