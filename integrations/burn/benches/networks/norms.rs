//! A network's norms: Burn's or wgpu-norm's, with the same parameters.

use burn::nn;
use burn::tensor::Tensor;
use burn::tensor::activation::{relu, silu};
use burn_wgpu_norm::nn::{
    AdaLayerNormConfig, BatchNorm, BatchNormAddRelu, BatchNormRelu, GroupNorm, LayerNorm,
    LayerNorm2d, RmsNorm,
};

/// Whose norms a network runs. Layers convert to each other, so all have the same network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norms {
    /// Those of `burn::nn`.
    Burns,
    /// This crate's, as another `use` gets them.
    Ours,
    /// This crate's that compute more than the norm, where the network has use for them.
    Fused,
    /// None. What follows a norm remains, so that the rest of the network takes as long as before.
    None,
}

impl Norms {
    /// relu(norm(x))
    pub fn batch_relu(self, norm: &BatchNorm, x: Tensor<4>) -> Tensor<4> {
        match self {
            Self::Burns => relu(nn::BatchNorm::from(norm.clone()).forward(x)),
            Self::Ours => relu(norm.forward(x)),
            Self::Fused => BatchNormRelu::from(norm.clone()).forward(x),
            Self::None => relu(x),
        }
    }

    /// relu(norm(x) + residual)
    pub fn batch_add_relu(self, norm: &BatchNorm, x: Tensor<4>, residual: Tensor<4>) -> Tensor<4> {
        match self {
            Self::Burns => relu(nn::BatchNorm::from(norm.clone()).forward(x) + residual),
            Self::Ours => relu(norm.forward(x) + residual),
            Self::Fused => BatchNormAddRelu::from(norm.clone()).forward(x, residual),
            Self::None => relu(x + residual),
        }
    }

    /// Layer norm over the channels of images, which it puts last.
    pub fn channels_last(self, norm: &LayerNorm, images: Tensor<4>) -> Tensor<4> {
        let last = |images: Tensor<4>| images.permute([0, 2, 3, 1]);
        match self {
            Self::Burns => nn::LayerNorm::from(norm.clone()).forward(last(images)),
            Self::Ours => norm.forward(last(images)),
            Self::Fused => last(LayerNorm2d::from(norm.clone()).forward(images)),
            Self::None => last(images),
        }
    }

    pub fn rms(self, norm: &RmsNorm, x: Tensor<3>) -> Tensor<3> {
        match self {
            Self::Burns => nn::RmsNorm::from(norm.clone()).forward(x),
            Self::Ours | Self::Fused => norm.forward(x),
            Self::None => x,
        }
    }

    /// (1 + scale) · norm(x) + shift, with scale and shift of each sample. The norm's own gamma is fixed at 1.
    pub fn adaptive(
        self,
        norm: &LayerNorm,
        x: Tensor<3>,
        scale: Tensor<2>,
        shift: Tensor<2>,
    ) -> Tensor<3> {
        let x = match self {
            Self::Burns => nn::LayerNorm::from(norm.clone()).forward(x),
            Self::Ours => norm.forward(x),
            Self::Fused => {
                let [_, d_model] = scale.dims();
                return AdaLayerNormConfig::new(d_model)
                    .init()
                    .forward(x, scale, shift);
            }
            Self::None => x,
        };
        x * (scale + 1.0).unsqueeze_dim(1) + shift.unsqueeze_dim(1)
    }

    /// silu(norm(x))
    pub fn group_silu(self, norm: &GroupNorm, x: Tensor<4>) -> Tensor<4> {
        silu(match self {
            Self::Burns => nn::GroupNorm::from(norm.clone()).forward(x),
            Self::Ours | Self::Fused => norm.forward(x),
            Self::None => x,
        })
    }
}
