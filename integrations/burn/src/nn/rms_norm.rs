use super::{printed_as, same_fields};
use crate::forward::Layer;
use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn;
use burn::tensor::{Device, Tensor, assert_shape};
use wgpu_norm::Norm;

/// The config of [`RmsNorm`], like [`burn::nn::RmsNormConfig`].
#[derive(Config, Debug)]
pub struct RmsNormConfig {
    /// The size of the last axis.
    pub d_model: usize,
    /// Added to the mean of squares; above 0. Default: 1e-5
    #[config(default = 1e-5)]
    pub epsilon: f64,
}

same_fields!(RmsNormConfig, nn::RmsNormConfig { d_model, epsilon });

impl RmsNormConfig {
    /// Creates the layer on a device.
    ///
    /// # Panics
    ///
    /// Like [`burn::nn::RmsNormConfig::init`].
    pub fn init(&self, device: &Device) -> RmsNorm {
        nn::RmsNormConfig::from(self.clone()).init(device).into()
    }
}

/// RMS norm over the last axis: [`burn::nn::RmsNorm`] with its fields, defaults and records.
///
/// dst = gamma · src / √(mean of src² + epsilon).
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct RmsNorm {
    /// Scale.
    pub gamma: Param<Tensor<1>>,
    /// Added to the mean of squares.
    pub epsilon: f64,
}

same_fields!(RmsNorm, nn::RmsNorm { gamma, epsilon });
printed_as!(RmsNorm, nn::RmsNorm);

impl RmsNorm {
    /// The layer's output, of the input's shape.
    ///
    /// # Panics
    ///
    /// If the input's last axis does not have size `d_model`.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let [d_model] = self.gamma.shape().dims();
        assert_shape!(input, [.., d_model]);
        let norm = Norm::rms(-1);
        let layer = Layer::new(norm, Some(self.gamma.val()), None, self.epsilon);
        let dst = layer.forward(&input);
        dst.unwrap_or_else(|| nn::RmsNorm::from(self.clone()).forward(input))
    }
}
