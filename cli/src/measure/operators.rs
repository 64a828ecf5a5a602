//! The operators: what is normalized together, how each is planned, bound to buffers, and called with slices.

use super::sets::Case;
use super::subject::Tensors;
use wgpu_norm::{
    BatchNormArgs, BatchNormBuffers, BatchNormOptions, BatchNormPlan, Bound, BufferRange, Element,
    Error, GpuBatchNorm, GpuContext, GpuLayerNorm, GpuRmsNorm, LayerNormArgs, LayerNormBuffers,
    LayerNormOptions, LayerNormPlan, ParamOf, RmsNormArgs, RmsNormBuffers, RmsNormOptions,
    RmsNormPlan,
};

/// Added to variances, and to means of squares.
const EPSILON: f64 = 1e-5;

/// An operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[expect(clippy::enum_variant_names, reason = "the operators' names")]
pub enum Op {
    BatchNorm,
    LayerNorm,
    RmsNorm,
}

/// What an operator normalizes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Groups {
    Channels,
    Rows,
}

impl Op {
    pub fn name(self) -> &'static str {
        match self {
            Self::BatchNorm => "batch-norm",
            Self::LayerNorm => "layer-norm",
            Self::RmsNorm => "rms-norm",
        }
    }

    pub fn groups(self) -> Groups {
        match self {
            Self::BatchNorm => Groups::Channels,
            Self::LayerNorm | Self::RmsNorm => Groups::Rows,
        }
    }
}

/// A case's plan, and what there is to say of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    plan: Plan,
    /// The kernels in order, repetitions together: `channels_first_reduce×2+finish+channels_first_apply×2`.
    pub kernels: String,
    pub dispatches: usize,
    pub workspace_bytes: u64,
}

#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::enum_variant_names, reason = "the operators' names")]
enum Plan {
    BatchNorm(Box<BatchNormPlan>),
    LayerNorm(Box<LayerNormPlan>),
    RmsNorm(Box<RmsNormPlan>),
}

impl Planned {
    pub fn new(gpu: &GpuContext, case: &Case) -> Result<Self, Error> {
        let (dims, data, params) = (case.dims(), case.dtype, case.params_dtype());
        Ok(match case.op {
            Op::BatchNorm => {
                let layer = GpuBatchNorm::new(gpu, batch_norm_options(case))?;
                let plan = layer.plan(&dims, (data, params), true)?;
                Self {
                    kernels: in_groups(&plan.kernels()),
                    dispatches: plan.dispatches(),
                    workspace_bytes: plan.workspace_size(),
                    plan: Plan::BatchNorm(Box::new(plan)),
                }
            }
            Op::LayerNorm => {
                let layer = GpuLayerNorm::new(gpu, layer_norm_options(case))?;
                let plan = layer.plan(&dims, (data, params))?;
                Self {
                    kernels: in_groups(&plan.kernels()),
                    dispatches: plan.dispatches(),
                    workspace_bytes: plan.workspace_size(),
                    plan: Plan::LayerNorm(Box::new(plan)),
                }
            }
            Op::RmsNorm => {
                let layer = GpuRmsNorm::new(gpu, rms_norm_options(case))?;
                let plan = layer.plan(&dims, (data, params), true)?;
                Self {
                    kernels: in_groups(&plan.kernels()),
                    dispatches: plan.dispatches(),
                    workspace_bytes: plan.workspace_size(),
                    plan: Plan::RmsNorm(Box::new(plan)),
                }
            }
        })
    }

    pub fn bind(&self, gpu: &GpuContext, tensors: &Tensors) -> Result<Bound, Error> {
        let range = BufferRange::from;
        match &self.plan {
            Plan::BatchNorm(plan) => plan.bind(
                gpu,
                &BatchNormBuffers {
                    src: range(&tensors.src),
                    diff_dst: range(&tensors.diff_dst),
                    mean: range(&tensors.mean),
                    variance: range(&tensors.variance),
                    gamma: Some(range(&tensors.gamma)),
                    diff_src: range(&tensors.diff_src),
                    diff_gamma: tensors.diff_gamma.as_ref().map(range),
                    diff_beta: tensors.diff_beta.as_ref().map(range),
                    sums: None,
                    workspace: None,
                },
            ),
            Plan::LayerNorm(plan) => plan.bind(
                gpu,
                &LayerNormBuffers {
                    src: range(&tensors.src),
                    diff_dst: range(&tensors.diff_dst),
                    mean: range(&tensors.mean),
                    variance: range(&tensors.variance),
                    gamma: Some(range(&tensors.gamma)),
                    diff_src: range(&tensors.diff_src),
                    diff_gamma: tensors.diff_gamma.as_ref().map(range),
                    diff_beta: tensors.diff_beta.as_ref().map(range),
                    workspace: None,
                },
            ),
            Plan::RmsNorm(plan) => plan.bind(
                gpu,
                &RmsNormBuffers {
                    src: range(&tensors.src),
                    diff_dst: range(&tensors.diff_dst),
                    // A variance is as large, and its value changes no time.
                    mean_square: range(&tensors.variance),
                    gamma: Some(range(&tensors.gamma)),
                    diff_src: range(&tensors.diff_src),
                    diff_gamma: tensors.diff_gamma.as_ref().map(range),
                    workspace: None,
                },
            ),
        }
    }
}

/// A case's tensors in host memory.
pub struct Slices<T, P> {
    pub src: Vec<T>,
    pub diff_dst: Vec<T>,
    pub mean: Vec<P>,
    pub variance: Vec<P>,
    pub gamma: Vec<P>,
    pub beta: Vec<P>,
}

impl<T: Element, P: ParamOf<T>> Slices<T, P> {
    /// One call.
    pub fn backward(&self, gpu: &GpuContext, case: &Case) -> Result<(), Error> {
        let dims = case.dims();
        let grads = match case.op {
            Op::BatchNorm => {
                let layer = GpuBatchNorm::new(gpu, batch_norm_options(case))?;
                pollster::block_on(layer.backward(BatchNormArgs {
                    shape: &dims,
                    src: &self.src,
                    diff_dst: &self.diff_dst,
                    mean: &self.mean,
                    variance: &self.variance,
                    gamma: Some(&self.gamma),
                }))
            }
            Op::LayerNorm => {
                let layer = GpuLayerNorm::new(gpu, layer_norm_options(case))?;
                pollster::block_on(layer.backward(LayerNormArgs {
                    shape: &dims,
                    src: &self.src,
                    diff_dst: &self.diff_dst,
                    mean: &self.mean,
                    variance: &self.variance,
                    gamma: Some(&self.gamma),
                    beta: Some(&self.beta),
                }))
            }
            Op::RmsNorm => {
                let layer = GpuRmsNorm::new(gpu, rms_norm_options(case))?;
                pollster::block_on(layer.backward(RmsNormArgs {
                    shape: &dims,
                    src: &self.src,
                    diff_dst: &self.diff_dst,
                    mean_square: &self.variance,
                    gamma: Some(&self.gamma),
                }))
            }
        };
        grads.map(drop)
    }
}

fn batch_norm_options(case: &Case) -> BatchNormOptions {
    BatchNormOptions {
        data_format: case.data_format.unwrap_or_default(),
        statistics: case.statistics,
        param_grads: case.param_grads,
        ..BatchNormOptions::new(EPSILON)
    }
}

fn layer_norm_options(case: &Case) -> LayerNormOptions {
    LayerNormOptions {
        epsilon: EPSILON,
        param_grads: case.param_grads,
        ..LayerNormOptions::default()
    }
}

fn rms_norm_options(case: &Case) -> RmsNormOptions {
    RmsNormOptions {
        epsilon: EPSILON,
        param_grads: case.param_grads,
        ..RmsNormOptions::default()
    }
}

/// Names, repetitions together.
fn in_groups(names: &[&str]) -> String {
    let groups = names.chunk_by(|a, b| a == b);
    let texts = groups.map(|group| match group {
        [one] => (*one).to_owned(),
        [one, ..] => format!("{one}×{}", group.len()),
        [] => String::new(),
    });
    texts.collect::<Vec<_>>().join("+")
}
