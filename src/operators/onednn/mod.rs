//! The operators of [oneDNN Graph](https://oneapi-src.github.io/oneDNN/), which this crate's argument
//! names are taken from, and oneDNN's primitives for batch and group normalization.

mod backward;
mod batch_norm;
mod forward;
mod group_norm;

pub use backward::{
    BatchNormOutputs, BatchNormTrainingBackward, BatchNormTrainingBackwardInputs,
    LayerNormBackward, LayerNormBackwardInputs, LayerNormOutputs,
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

use crate::{Backward, ParamGrads};

/// The primitives' backward propagation: `backward`, or `backward_data`.
fn pass_backward(data_alone: bool) -> Backward {
    Backward::default().with_param_grads(match data_alone {
        true => ParamGrads::Frozen,
        false => ParamGrads::Both,
    })
}
