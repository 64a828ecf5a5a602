//! The operators of [oneDNN Graph](https://oneapi-src.github.io/oneDNN/), which this crate's argument
//! names are taken from, and oneDNN's primitive for group normalization.

mod backward;
mod forward;
mod group_norm;

pub use backward::{
    BatchNormOutputs, BatchNormTrainingBackward, LayerNormBackward, LayerNormOutputs,
};
pub use forward::{
    BatchNormForwardTraining, BatchNormForwardTrainingInputs, BatchNormForwardTrainingOutputs,
    BatchNormInference, BatchNormInferenceInputs, LayerNorm, LayerNormForwardOutputs,
    LayerNormInputs,
};
pub use group_norm::{
    GroupNormalization, GroupNormalizationBackward, GroupNormalizationBackwardInputs,
    GroupNormalizationBackwardOutputs, GroupNormalizationInputs, GroupNormalizationOutputs,
};
