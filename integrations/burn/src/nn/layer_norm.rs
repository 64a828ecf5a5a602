use crate::forward::Layer;
use crate::problem::Norm;
use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn;
use burn::tensor::{Device, Tensor, assert_shape};

/// What [`burn::nn::LayerNormConfig`] is, for [`LayerNorm`].
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

impl LayerNormConfig {
    /// A layer on a device.
    pub fn init(&self, device: &Device) -> LayerNorm {
        let layer = nn::LayerNormConfig::new(self.d_model)
            .with_bias(self.bias)
            .init(device);
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
pub struct LayerNorm {
    /// Scale.
    pub gamma: Param<Tensor<1>>,
    /// Shift.
    pub beta: Option<Param<Tensor<1>>>,
    epsilon: f64,
}

impl LayerNorm {
    /// The layer's output, of the input's shape.
    ///
    /// # Panics
    ///
    /// If the input's last axis is not of `d_model`.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let [d_model] = self.gamma.shape().dims();
        assert_shape!(input, [.., d_model]);
        let layer = Layer {
            norm: Norm::Layer,
            gamma: Some(self.gamma.val()),
            beta: self.beta.as_ref().map(Param::val),
            epsilon: self.epsilon,
        };
        match layer.forward(&input, None) {
            Some(output) => output.dst,
            None => self.burns(d_model, &input.device()).forward(input),
        }
    }

    /// Burn's layer with these parameters. It keeps its epsilon to itself, so that it comes from a config.
    fn burns(&self, d_model: usize, device: &Device) -> nn::LayerNorm {
        let config = nn::LayerNormConfig::new(d_model).with_epsilon(self.epsilon);
        let mut layer = config.init(device);
        layer.gamma = self.gamma.clone();
        layer.beta = self.beta.clone();
        layer
    }
}
