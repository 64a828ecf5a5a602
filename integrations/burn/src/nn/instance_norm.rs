use crate::forward::Layer;
use crate::problem::Norm;
use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn;
use burn::tensor::{Device, Tensor, assert_shape};

/// What [`burn::nn::InstanceNormConfig`] is, for [`InstanceNorm`].
#[derive(Config, Debug)]
pub struct InstanceNormConfig {
    /// The number of channels.
    pub num_channels: usize,
    /// Added to the variance. Default: 1e-5
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// Whether the layer has gamma and beta. Default: true
    #[config(default = true)]
    pub affine: bool,
}

impl InstanceNormConfig {
    /// A layer on a device.
    pub fn init(&self, device: &Device) -> InstanceNorm {
        nn::InstanceNormConfig::new(self.num_channels)
            .with_epsilon(self.epsilon)
            .with_affine(self.affine)
            .init(device)
            .into()
    }
}

/// Instance norm over `[batch_size, channels, ...]`: [`burn::nn::InstanceNorm`] with its fields, defaults and records.
///
/// dst = gamma · (src − mean) / √(variance + epsilon) + beta, by the statistics of each channel of a sample.
#[derive(Module, Debug)]
pub struct InstanceNorm {
    /// Scale of each channel.
    pub gamma: Option<Param<Tensor<1>>>,
    /// Shift of each channel.
    pub beta: Option<Param<Tensor<1>>>,
    /// The number of channels.
    pub num_channels: usize,
    /// Added to the variance.
    pub epsilon: f64,
    /// Whether the layer has gamma and beta.
    pub affine: bool,
}

impl From<nn::InstanceNorm> for InstanceNorm {
    fn from(layer: nn::InstanceNorm) -> Self {
        Self {
            gamma: layer.gamma,
            beta: layer.beta,
            num_channels: layer.num_channels,
            epsilon: layer.epsilon,
            affine: layer.affine,
        }
    }
}

impl From<InstanceNorm> for nn::InstanceNorm {
    fn from(layer: InstanceNorm) -> Self {
        Self {
            gamma: layer.gamma,
            beta: layer.beta,
            num_channels: layer.num_channels,
            epsilon: layer.epsilon,
            affine: layer.affine,
        }
    }
}

impl InstanceNorm {
    /// The layer's output, of the input's shape.
    ///
    /// # Panics
    ///
    /// If the input has fewer than two axes, or the second is not of `num_channels`.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        assert_shape!(input, [_, self.num_channels, ..]);
        let layer = Layer {
            norm: Norm::Group {
                groups: self.num_channels,
            },
            gamma: self.gamma.as_ref().map(Param::val),
            beta: self.beta.as_ref().map(Param::val),
            epsilon: self.epsilon,
        };
        match layer.forward(&input, None) {
            Some(output) => output.dst,
            None => nn::InstanceNorm::from(self.clone()).forward(input),
        }
    }
}
