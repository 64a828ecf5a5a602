use super::{printed_as, same_fields};
use crate::forward::Layer;
use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn;
use burn::tensor::{Device, Tensor, assert_shape};
use wgpu_norm::{DataFormat, Norm};

/// The config of [`GroupNorm`], like [`burn::nn::GroupNormConfig`].
#[derive(Config, Debug)]
pub struct GroupNormConfig {
    /// The number of groups, a divisor of the number of channels.
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

same_fields!(
    GroupNormConfig,
    nn::GroupNormConfig {
        num_groups,
        num_channels,
        epsilon,
        affine
    }
);

impl GroupNormConfig {
    /// Creates the layer on a device.
    ///
    /// # Panics
    ///
    /// Like [`burn::nn::GroupNormConfig::init`].
    pub fn init(&self, device: &Device) -> GroupNorm {
        nn::GroupNormConfig::from(self.clone()).init(device).into()
    }
}

/// Group norm over `[batch_size, channels, ...]`: [`burn::nn::GroupNorm`] with its fields, defaults and records.
///
/// dst = gamma · (src − mean) / √(variance + epsilon) + beta, with the statistics of each group of channels of a
/// sample.
#[derive(Module, Debug)]
#[module(custom_display)]
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

same_fields!(
    GroupNorm,
    nn::GroupNorm {
        gamma,
        beta,
        num_groups,
        num_channels,
        epsilon,
        affine
    }
);
printed_as!(GroupNorm, nn::GroupNorm);

impl GroupNorm {
    /// The layer's output, of the input's shape.
    ///
    /// # Panics
    ///
    /// If the input has fewer than two axes, or its second axis does not have size `num_channels`; if the layer is
    /// affine and lacks gamma or beta; if these differ in type, a panic of Burn's operations.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        assert_shape!(input, [_, self.num_channels, ..]);
        let dst = self.layer().and_then(|layer| layer.forward(&input));
        dst.unwrap_or_else(|| nn::GroupNorm::from(self.clone()).forward(input))
    }

    /// The layer, with gamma and beta if it is affine; `None` if it is affine and lacks one of them.
    fn layer(&self) -> Option<Layer<1>> {
        let val = |param: &Option<Param<Tensor<1>>>| param.as_ref().map(Param::val);
        let (gamma, beta) = match self.affine {
            true => (Some(val(&self.gamma)?), Some(val(&self.beta)?)),
            false => (None, None),
        };
        let norm = Norm::group(self.num_groups, DataFormat::Ncx);
        Some(Layer::new(norm, gamma, beta, self.epsilon))
    }
}
