//! The operators of [oneDNN Graph](https://oneapi-src.github.io/oneDNN/), which this crate's argument
//! names are taken from.

mod backward;
mod forward;

pub use backward::{
    BatchNormOutputs, BatchNormTrainingBackward, LayerNormBackward, LayerNormOutputs,
};
pub use forward::{
    BatchNormForwardTraining, BatchNormForwardTrainingInputs, BatchNormForwardTrainingOutputs,
    BatchNormInference, BatchNormInferenceInputs, LayerNorm, LayerNormForwardOutputs,
    LayerNormInputs,
};
