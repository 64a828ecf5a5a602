//! The operators of [DirectML](https://learn.microsoft.com/en-us/windows/ai/directml/dml), whose
//! parameters have the rank of the data. Names are DirectML's, in Rust's spelling.

mod backward;
mod forward;

pub use backward::{
    BatchNormalizationGrad, BatchNormalizationTrainingGrad, GradInputs, GradOutputs,
};
pub use forward::{
    BatchNormalization, BatchNormalizationInputs, BatchNormalizationTraining, FusedActivation,
    Parameter, TrainingInputs, TrainingOutputs,
};

use crate::{
    Activation, BatchNormOptions, Element, Error, GpuBatchNorm, GpuContext, ParamOf, Statistics,
};
use half::f16;

/// A data type that all tensors of an operator have alike: FLOAT32 (`f32`) or FLOAT16 (`f16`).
pub trait DataType: Element + ParamOf<Self> {}

impl DataType for f32 {}
impl DataType for f16 {}

fn layer(
    gpu: &GpuContext,
    epsilon: f32,
    statistics: Statistics,
    activation: Activation,
) -> Result<GpuBatchNorm, Error> {
    let options = BatchNormOptions {
        statistics,
        activation,
        ..BatchNormOptions::new(epsilon.into())
    };
    GpuBatchNorm::new(gpu, options)
}
