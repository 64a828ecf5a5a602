use super::{BatchNorm, BatchNormConfig};
use crate::problem::After;
use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Device, Tensor};

/// For [`BatchNormAddRelu`], what [`BatchNormConfig`] is for [`BatchNorm`].
#[derive(Config, Debug)]
pub struct BatchNormAddReluConfig {
    /// The number of features, above 0.
    pub num_features: usize,
    /// Added to the variance; finite and above 0. Default: 1e-5
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// How much of the batch's statistics goes into the running ones, 0 to 1. Default: 0.1
    #[config(default = 0.1)]
    pub momentum: f64,
}

impl BatchNormAddReluConfig {
    /// A layer on a device.
    ///
    /// # Panics
    ///
    /// As [`burn::nn::BatchNormConfig::init`].
    pub fn init(&self, device: &Device) -> BatchNormAddRelu {
        let norm = BatchNormConfig::new(self.num_features)
            .with_epsilon(self.epsilon)
            .with_momentum(self.momentum);
        BatchNormAddRelu {
            norm: norm.init(device),
        }
    }
}

/// A residual added to batch norm, and ReLU after that, as residual blocks end: relu(norm(input) + residual). The forward pass
/// keeps a bit of each element for the gradient.
#[derive(Module, Debug)]
pub struct BatchNormAddRelu {
    /// The batch norm.
    pub norm: BatchNorm,
}

impl From<BatchNorm> for BatchNormAddRelu {
    fn from(norm: BatchNorm) -> Self {
        Self { norm }
    }
}

impl BatchNormAddRelu {
    /// The layer's output, of the input's shape.
    ///
    /// # Panics
    ///
    /// If the input has fewer than two axes, the second is not of `num_features`, or the residual has another shape.
    pub fn forward<const D: usize>(&self, input: Tensor<D>, residual: Tensor<D>) -> Tensor<D> {
        assert_eq!(
            input.dims(),
            residual.dims(),
            "shapes of input and residual"
        );
        self.norm.followed_by(input, After::AddRelu, Some(residual))
    }
}
