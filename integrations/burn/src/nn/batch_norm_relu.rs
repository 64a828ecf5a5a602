use super::{BatchNorm, BatchNormConfig};
use crate::problem::After;
use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Device, Tensor};

/// For [`BatchNormRelu`], what [`BatchNormConfig`] is for [`BatchNorm`].
#[derive(Config, Debug)]
pub struct BatchNormReluConfig {
    /// The number of features, above 0.
    pub num_features: usize,
    /// Added to the variance; finite and above 0. Default: 1e-5
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// How much of the batch's statistics goes into the running ones, 0 to 1. Default: 0.1
    #[config(default = 0.1)]
    pub momentum: f64,
}

impl BatchNormReluConfig {
    /// A layer on a device.
    ///
    /// # Panics
    ///
    /// As [`burn::nn::BatchNormConfig::init`].
    pub fn init(&self, device: &Device) -> BatchNormRelu {
        let norm = BatchNormConfig::new(self.num_features)
            .with_epsilon(self.epsilon)
            .with_momentum(self.momentum);
        BatchNormRelu {
            norm: norm.init(device),
        }
    }
}

/// ReLU after batch norm, in one pass over memory each way: the gradient finds again what passed, so that the layer's output
/// is kept for nobody.
#[derive(Module, Debug)]
pub struct BatchNormRelu {
    /// The batch norm.
    pub norm: BatchNorm,
}

impl From<BatchNorm> for BatchNormRelu {
    fn from(norm: BatchNorm) -> Self {
        Self { norm }
    }
}

impl BatchNormRelu {
    /// The layer's output, of the input's shape.
    ///
    /// # Panics
    ///
    /// If the input has fewer than two axes, or the second is not of `num_features`.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        self.norm.followed_by(input, After::Relu, None)
    }
}
