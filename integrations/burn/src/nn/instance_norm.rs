use super::{GroupNorm, printed_as, same_fields};
use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn;
use burn::tensor::{Device, Tensor};

/// The config of [`InstanceNorm`], like [`burn::nn::InstanceNormConfig`].
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

same_fields!(
    InstanceNormConfig,
    nn::InstanceNormConfig {
        num_channels,
        epsilon,
        affine
    }
);

impl InstanceNormConfig {
    /// Creates the layer on a device.
    pub fn init(&self, device: &Device) -> InstanceNorm {
        nn::InstanceNormConfig::from(self.clone())
            .init(device)
            .into()
    }
}

/// Instance norm over `[batch_size, channels, ...]`: [`burn::nn::InstanceNorm`] with its fields, defaults and records.
///
/// dst = gamma · (src − mean) / √(variance + epsilon) + beta, with the statistics of each channel of a sample.
#[derive(Module, Debug)]
#[module(custom_display)]
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

same_fields!(
    InstanceNorm,
    nn::InstanceNorm {
        gamma,
        beta,
        num_channels,
        epsilon,
        affine
    }
);
printed_as!(InstanceNorm, nn::InstanceNorm);

impl InstanceNorm {
    /// The layer's output, of the input's shape.
    ///
    /// # Panics
    ///
    /// Like [`GroupNorm::forward`].
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        // Group norm with a group for each channel, as in Burn.
        let layer = GroupNorm {
            gamma: self.gamma.clone(),
            beta: self.beta.clone(),
            num_groups: self.num_channels,
            num_channels: self.num_channels,
            epsilon: self.epsilon,
            affine: self.affine,
        };
        layer.forward(input)
    }
}
