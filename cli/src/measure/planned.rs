//! A case's plan, bound to buffers.

use super::operators::{
    Op, batch_norm_options, group_norm_options, layer_norm_options, rms_norm_options,
};
use super::sets::Case;
use super::subject::Tensors;
use wgpu_norm::{
    BackwardOperands, BatchNormBackwardBuffers, BatchNormBackwardPlan, BatchNormForwardBuffers,
    BatchNormForwardOperands, BatchNormForwardPlan, BatchNormInferenceBuffers,
    BatchNormInferencePlan, Bound, BufferRange, Error, GpuBatchNorm, GpuContext, GpuGroupNorm,
    GpuLayerNorm, GpuRmsNorm, GroupNormBackwardBuffers, GroupNormBackwardPlan,
    GroupNormForwardBuffers, GroupNormForwardOperands, GroupNormForwardPlan,
    LayerNormBackwardBuffers, LayerNormBackwardPlan, LayerNormForwardBuffers,
    LayerNormForwardOperands, LayerNormForwardPlan, RmsNormBackwardBuffers, RmsNormBackwardPlan,
    RmsNormForwardBuffers, RmsNormForwardOperands, RmsNormForwardPlan,
};

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
enum Plan {
    BatchNorm(Box<BatchNormBackwardPlan>),
    BatchNormForward(Box<BatchNormForwardPlan>),
    BatchNormInference(Box<BatchNormInferencePlan>),
    LayerNorm(Box<LayerNormBackwardPlan>),
    LayerNormForward(Box<LayerNormForwardPlan>),
    RmsNorm(Box<RmsNormBackwardPlan>),
    RmsNormForward(Box<RmsNormForwardPlan>),
    GroupNorm(Box<GroupNormBackwardPlan>),
    GroupNormForward(Box<GroupNormForwardPlan>),
}

/// Plans of different types say the same of themselves.
macro_rules! planned {
    ($operator:ident, $plan:expr) => {{
        let plan = $plan;
        Planned {
            kernels: in_groups(&plan.kernels()),
            dispatches: plan.dispatches(),
            workspace_bytes: plan.workspace_size(),
            plan: Plan::$operator(Box::new(plan)),
        }
    }};
}

impl Planned {
    pub fn new(gpu: &GpuContext, case: &Case) -> Result<Self, Error> {
        let (dims, types) = (case.dims(), (case.dtype, case.params_dtype()));
        let batch_norm = || GpuBatchNorm::new(gpu, batch_norm_options(case));
        let layer_norm = || GpuLayerNorm::new(gpu, layer_norm_options(case));
        let rms_norm = || GpuRmsNorm::new(gpu, rms_norm_options(case));
        let group_norm = || GpuGroupNorm::new(gpu, group_norm_options(case));
        let of_gradient = BackwardOperands {
            gamma: true,
            beta: case.reads_beta(),
            mask: false,
        };
        Ok(match case.op {
            Op::BatchNorm => {
                let plan = batch_norm()?.plan_backward(&dims, types, of_gradient)?;
                planned!(BatchNorm, plan)
            }
            Op::BatchNormForward => {
                let operands = BatchNormForwardOperands {
                    gamma: true,
                    beta: true,
                    ..BatchNormForwardOperands::default()
                };
                let plan = batch_norm()?.plan_forward(&dims, types, operands)?;
                planned!(BatchNormForward, plan)
            }
            Op::BatchNormInference => {
                let plan = batch_norm()?.plan_inference(&dims, types, (true, true))?;
                planned!(BatchNormInference, plan)
            }
            Op::LayerNorm => planned!(LayerNorm, layer_norm()?.plan_backward(&dims, types)?),
            Op::LayerNormForward => {
                let operands = LayerNormForwardOperands {
                    residual: false,
                    beta: true,
                    keep_statistics: true,
                };
                let plan = layer_norm()?.plan_forward(&dims, types, operands)?;
                planned!(LayerNormForward, plan)
            }
            Op::RmsNorm => planned!(RmsNorm, rms_norm()?.plan_backward(&dims, types, true)?),
            Op::RmsNormForward => {
                let operands = RmsNormForwardOperands {
                    residual: false,
                    gamma: true,
                    keep_statistics: true,
                };
                let plan = rms_norm()?.plan_forward(&dims, types, operands)?;
                planned!(RmsNormForward, plan)
            }
            Op::GroupNorm | Op::InstanceNorm => {
                let plan = group_norm()?.plan_backward(&dims, types, of_gradient)?;
                planned!(GroupNorm, plan)
            }
            Op::GroupNormForward | Op::InstanceNormForward => {
                let operands = GroupNormForwardOperands {
                    gamma: true,
                    beta: true,
                    residual: false,
                };
                let plan = group_norm()?.plan_forward(&dims, types, operands)?;
                planned!(GroupNormForward, plan)
            }
        })
    }

    pub fn bind(&self, gpu: &GpuContext, tensors: &Tensors) -> Result<Bound, Error> {
        let range = BufferRange::from;
        let (src, diff_dst) = (range(&tensors.src), range(&tensors.diff_dst));
        let (mean, variance) = (range(&tensors.mean), range(&tensors.variance));
        let (gamma, beta) = (Some(range(&tensors.gamma)), Some(range(&tensors.beta)));
        let result = range(&tensors.result);
        let diff_gamma = tensors.diff_gamma.as_ref().map(range);
        let diff_beta = tensors.diff_beta.as_ref().map(range);
        match &self.plan {
            Plan::BatchNorm(plan) => plan.bind(
                gpu,
                &BatchNormBackwardBuffers {
                    src,
                    diff_dst,
                    mean,
                    variance,
                    gamma,
                    diff_src: result,
                    diff_gamma,
                    diff_beta,
                    sums: None,
                    workspace: None,
                    beta: beta.filter(|_| plan.sizes().beta.is_some()),
                    mask: None,
                    diff_residual: None,
                },
            ),
            Plan::BatchNormForward(plan) => plan.bind(
                gpu,
                &BatchNormForwardBuffers {
                    src,
                    gamma,
                    beta,
                    running_mean: None,
                    running_variance: None,
                    dst: result,
                    mean,
                    variance,
                    sums: None,
                    workspace: None,
                    residual: None,
                    mask: None,
                },
            ),
            Plan::BatchNormInference(plan) => plan.bind(
                gpu,
                &BatchNormInferenceBuffers {
                    src,
                    mean,
                    variance,
                    gamma,
                    beta,
                    dst: result,
                    workspace: None,
                    residual: None,
                },
            ),
            Plan::LayerNorm(plan) => plan.bind(
                gpu,
                &LayerNormBackwardBuffers {
                    src,
                    diff_dst,
                    mean,
                    variance,
                    gamma,
                    diff_src: result,
                    diff_gamma,
                    diff_beta,
                    workspace: None,
                },
            ),
            Plan::LayerNormForward(plan) => plan.bind(
                gpu,
                &LayerNormForwardBuffers {
                    src,
                    residual: None,
                    gamma,
                    beta,
                    dst: result,
                    sum: None,
                    mean: Some(mean),
                    variance: Some(variance),
                    workspace: None,
                },
            ),
            // Of RMS norm a variance is as large as mean_square, and its value changes no time.
            Plan::RmsNorm(plan) => plan.bind(
                gpu,
                &RmsNormBackwardBuffers {
                    src,
                    diff_dst,
                    mean_square: variance,
                    gamma,
                    diff_src: result,
                    diff_gamma,
                    workspace: None,
                },
            ),
            Plan::RmsNormForward(plan) => plan.bind(
                gpu,
                &RmsNormForwardBuffers {
                    src,
                    residual: None,
                    gamma,
                    dst: result,
                    sum: None,
                    mean_square: Some(variance),
                    workspace: None,
                },
            ),
            Plan::GroupNorm(plan) => plan.bind(
                gpu,
                &GroupNormBackwardBuffers {
                    src,
                    diff_dst,
                    mean,
                    variance,
                    gamma,
                    diff_src: result,
                    diff_gamma,
                    diff_beta,
                    workspace: None,
                    beta: beta.filter(|_| plan.sizes().beta.is_some()),
                    mask: None,
                    diff_residual: None,
                },
            ),
            Plan::GroupNormForward(plan) => plan.bind(
                gpu,
                &GroupNormForwardBuffers {
                    src,
                    gamma,
                    beta,
                    dst: result,
                    mean,
                    variance,
                    workspace: None,
                    residual: None,
                    mask: None,
                },
            ),
        }
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
