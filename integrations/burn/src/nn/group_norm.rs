use crate::forward::Layer;
use crate::problem::Norm;
use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn;
use burn::tensor::{Device, Tensor, assert_shape};

/// What [`burn::nn::GroupNormConfig`] is, for [`GroupNorm`].
#[derive(Config, Debug)]
pub struct GroupNormConfig {
    /// The number of groups, which divides that of channels.
    pub num_groups: usize,
    /// The number of channels.
    pub num_channels: usize,
    /// Added to the variance. Default: 1e-5
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// Whether the layer has gamma and beta. Default: true
    #[config(default = true)]
    pub affine: bool,
}

impl GroupNormConfig {
    /// A layer on a device.
    ///
    /// # Panics
    ///
    /// As [`burn::nn::GroupNormConfig::init`].
    pub fn init(&self, device: &Device) -> GroupNorm {
        nn::GroupNormConfig::new(self.num_groups, self.num_channels)
            .with_epsilon(self.epsilon)
            .with_affine(self.affine)
            .init(device)
            .into()
    }
}

/// Group norm over `[batch_size, channels, ...]`: [`burn::nn::GroupNorm`] with its fields, defaults and records.
///
/// dst = gamma · (src − mean) / √(variance + epsilon) + beta, by the statistics of each group of channels of a sample.
#[derive(Module, Debug)]
pub struct GroupNorm {
    /// Scale of each channel.
    pub gamma: Option<Param<Tensor<1>>>,
    /// Shift of each channel.
    pub beta: Option<Param<Tensor<1>>>,
    /// The number of groups.
    pub num_groups: usize,
    /// The number of channels.
    pub num_channels: usize,
    /// Added to the variance.
    pub epsilon: f64,
    /// Whether the layer has gamma and beta.
    pub affine: bool,
}

impl From<nn::GroupNorm> for GroupNorm {
    fn from(layer: nn::GroupNorm) -> Self {
        Self {
            gamma: layer.gamma,
            beta: layer.beta,
            num_groups: layer.num_groups,
            num_channels: layer.num_channels,
            epsilon: layer.epsilon,
            affine: layer.affine,
        }
    }
}

impl From<GroupNorm> for nn::GroupNorm {
    fn from(layer: GroupNorm) -> Self {
        Self {
            gamma: layer.gamma,
            beta: layer.beta,
            num_groups: layer.num_groups,
            num_channels: layer.num_channels,
            epsilon: layer.epsilon,
            affine: layer.affine,
        }
    }
}

impl GroupNorm {
    /// The layer's output, of the input's shape.
    ///
    /// # Panics
    ///
    /// If the input has fewer than two axes, or the second is not of `num_channels`.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        assert_shape!(input, [_, self.num_channels, ..]);
        let layer = Layer {
            norm: Norm::Group {
                groups: self.num_groups,
            },
            gamma: self.gamma.as_ref().map(Param::val),
            beta: self.beta.as_ref().map(Param::val),
            epsilon: self.epsilon,
        };
        match layer.forward(&input, None) {
            Some(output) => output.dst,
            None => nn::GroupNorm::from(self.clone()).forward(input),
        }
    }
}
