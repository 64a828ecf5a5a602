//! The operators: a subcommand each, which takes tensors from one safetensors file and puts results into another.
//!
//! | module | knows |
//! |---|---|
//! | `batch_norm`, `layer_norm`, `rms_norm`, `group_norm` (and instance norm) | an operator's passes: their flags, their tensors and what shapes they have |
//! | `rows` | what the operators over rows share |
//! | `gradients`, `forward` | what the passes of a kind share: the names of their results |
//! | `through`, `undecided` | what layers with an activation and a residual share; elements whose activation rounding decides |
//! | `shared` | an operator that several processes compute, each for some samples |
//! | `streamed` | tensors that pass through memory in pieces |
//! | `operator`, `tensors` | what all share, from tensors in the file to results |

mod batch_norm;
mod forward;
mod gradients;
mod group_norm;
mod layer_norm;
mod operator;
mod rms_norm;
mod rows;
mod shared;
mod streamed;
mod tensors;
mod through;
mod undecided;

use crate::failure::Failure;
use crate::job::{Job, Machine};
use clap::Subcommand;
use half::{bf16, f16};
use operator::Operator;
use tensors::Arguments;
use wgpu_norm::{DType, Error};

#[derive(Debug, Subcommand)]
pub enum Operators {
    BatchNormBackward(batch_norm::backward::BatchNormBackward),
    BatchNormForward(batch_norm::forward::BatchNormForward),
    BatchNormInference(batch_norm::inference::BatchNormInference),
    LayerNormBackward(layer_norm::backward::LayerNormBackward),
    LayerNormForward(layer_norm::forward::LayerNormForward),
    RmsNormBackward(rms_norm::backward::RmsNormBackward),
    RmsNormForward(rms_norm::forward::RmsNormForward),
    GroupNormBackward(group_norm::backward::GroupNormBackward),
    GroupNormForward(group_norm::forward::GroupNormForward),
    InstanceNormBackward(group_norm::backward::InstanceNormBackward),
    InstanceNormForward(group_norm::forward::InstanceNormForward),
}

impl Operators {
    /// Runs the subcommand.
    pub fn run(&self, on: &Machine<'_>) -> Result<(), Failure> {
        match self {
            Self::BatchNormBackward(command) => batch_norm::backward::run(command, on),
            Self::BatchNormForward(command) => batch_norm::forward::run(command, on),
            Self::BatchNormInference(command) => batch_norm::inference::run(command, on),
            Self::LayerNormBackward(command) => layer_norm::backward::run(command, on),
            Self::LayerNormForward(command) => layer_norm::forward::run(command, on),
            Self::RmsNormBackward(command) => rms_norm::backward::run(command, on),
            Self::RmsNormForward(command) => rms_norm::forward::run(command, on),
            Self::GroupNormBackward(command) => group_norm::backward::run(command, on),
            Self::GroupNormForward(command) => group_norm::forward::run(command, on),
            Self::InstanceNormBackward(command) => group_norm::backward::run_instance(command, on),
            Self::InstanceNormForward(command) => group_norm::forward::run_instance(command, on),
        }
    }
}

/// Runs an operator on tensors whose shapes it has checked.
fn run<O: Operator>(
    job: Job,
    on: &Machine<'_>,
    operator: &O,
    arguments: &Arguments,
) -> Result<(), Failure> {
    if let Some(left_out) = job.input.left_out() {
        job.warn(left_out);
    }
    arguments.check()?;
    if let Some(group) = on.ranks {
        return shared::run(job, on.gpu, group, operator, arguments);
    }
    let gpu = job.open_gpu(on.gpu)?;
    if let Some(budget) = job.memory_budget {
        return streamed::run(job, &gpu, operator, arguments, budget);
    }
    let types = arguments.dtypes();
    let compute = match (types.data, types.params, types.statistics) {
        (DType::F32, DType::F32, DType::F32) => operator::compute::<O, f32, f32, f32>,
        (DType::F16, DType::F32, DType::F32) => operator::compute::<O, f16, f32, f32>,
        (DType::F16, DType::F16, DType::F16) => operator::compute::<O, f16, f16, f16>,
        (DType::F16, DType::F16, DType::F32) => operator::compute::<O, f16, f16, f32>,
        (DType::Bf16, DType::F32, DType::F32) => operator::compute::<O, bf16, f32, f32>,
        (DType::Bf16, DType::Bf16, DType::Bf16) => operator::compute::<O, bf16, bf16, bf16>,
        (DType::Bf16, DType::Bf16, DType::F32) => operator::compute::<O, bf16, bf16, f32>,
        (DType::F64, DType::F64, DType::F64) => operator::compute::<O, f64, f64, f64>,
        (data, params, _) => return Err(Error::ParamDType { data, params }.into()),
    };
    compute(job, &gpu, operator, arguments)
}
