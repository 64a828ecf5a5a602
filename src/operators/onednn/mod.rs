//! The operators of [oneDNN Graph](https://oneapi-src.github.io/oneDNN/), which this crate's argument
//! names are taken from, and oneDNN's primitives for batch and group normalization.

mod backward;
mod batch_norm;
mod forward;
mod group_norm;

pub use backward::{
    BatchNormOutputs, BatchNormTrainingBackward, LayerNormBackward, LayerNormOutputs,
};
pub use batch_norm::{
    BatchNormalization, BatchNormalizationBackward, BatchNormalizationBackwardInputs,
    BatchNormalizationBackwardOutputs, BatchNormalizationInputs, BatchNormalizationOutputs,
    FuseNorm,
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
