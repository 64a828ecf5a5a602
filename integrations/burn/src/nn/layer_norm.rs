use super::{printed_as, same_fields};
use crate::forward::Layer;
use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn;
use burn::tensor::{Device, Tensor, assert_shape};
use wgpu_norm::Norm;

/// The config of [`LayerNorm`], like [`burn::nn::LayerNormConfig`].
#[derive(Config, Debug)]
pub struct LayerNormConfig {
    /// The size of the last axis.
    pub d_model: usize,
    /// Added to the variance. Default: 1e-5
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// Whether the layer has beta. Default: true
    #[config(default = true)]
    pub bias: bool,
}

same_fields!(
    LayerNormConfig,
    nn::LayerNormConfig {
        d_model,
        epsilon,
        bias
    }
);

impl LayerNormConfig {
    /// Creates the layer on a device.
    pub fn init(&self, device: &Device) -> LayerNorm {
        let layer = nn::LayerNormConfig::from(self.clone()).init(device);
        LayerNorm {
            gamma: layer.gamma,
            beta: layer.beta,
            epsilon: self.epsilon,
        }
    }
}

/// Layer norm over the last axis: [`burn::nn::LayerNorm`] with its fields, defaults and records.
///
/// dst = gamma · (src − mean) / √(variance + epsilon) + beta.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct LayerNorm {
    /// Scale.
    pub gamma: Param<Tensor<1>>,
    /// Shift.
    pub beta: Option<Param<Tensor<1>>>,
    pub(super) epsilon: f64,
}

impl From<LayerNorm> for nn::LayerNorm {
    fn from(layer: LayerNorm) -> Self {
        // Burn's layer hides its epsilon, so it has to come from a config.
        let config = nn::LayerNormConfig::new(layer.gamma.lazy_shape().num_elements())
            .with_epsilon(layer.epsilon)
            .with_bias(false);
        let mut burns = config.init(&layer.gamma.lazy_device());
        burns.gamma = layer.gamma;
        burns.beta = layer.beta;
        burns
    }
}

printed_as!(LayerNorm, nn::LayerNorm);

impl LayerNorm {
    /// The layer with other statistics.
    pub(super) fn over(&self, norm: Norm) -> Layer<1> {
        let beta = self.beta.as_ref().map(Param::val);
        Layer::new(norm, Some(self.gamma.val()), beta, self.epsilon)
    }

    /// The layer's output, of the input's shape.
    ///
    /// # Panics
    ///
    /// If the input's last axis does not have size `d_model`; if gamma and beta differ in type, a panic of Burn's
    /// operations.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let [d_model] = self.gamma.shape().dims();
        assert_shape!(input, [.., d_model]);
        let dst = self.over(Norm::layer(-1)).forward(&input);
        dst.unwrap_or_else(|| nn::LayerNorm::from(self.clone()).forward(input))
    }
}
