use super::{printed_as, same_fields};
use crate::forward::{Given, Layer};
use burn::config::Config;
use burn::module::{Flag, Module, Param, RunningState};
use burn::nn;
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor, assert_shape};
use wgpu_norm::{Activation, Channels, DataFormat, Norm};

/// The config of [`BatchNorm`], like [`burn::nn::BatchNormConfig`].
#[derive(Config, Debug)]
pub struct BatchNormConfig {
    /// The number of features, above 0.
    pub num_features: usize,
    /// Added to the variance; finite and above 0. Default: 1e-5
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// The weight of the batch's statistics in the running ones, 0 to 1. Default: 0.1
    #[config(default = 0.1)]
    pub momentum: f64,
}

same_fields!(
    BatchNormConfig,
    nn::BatchNormConfig {
        num_features,
        epsilon,
        momentum
    }
);

impl BatchNormConfig {
    /// Creates the layer on a device.
    ///
    /// # Panics
    ///
    /// Like [`burn::nn::BatchNormConfig::init`].
    pub fn init(&self, device: &Device) -> BatchNorm {
        nn::BatchNormConfig::from(self.clone()).init(device).into()
    }
}

/// Batch norm over `[batch_size, channels, ...]`: [`burn::nn::BatchNorm`] with its fields, defaults and records.
///
/// dst = gamma · (src − mean) / √(variance + epsilon) + beta. In training it uses the batch's statistics, which then
/// update the running ones; otherwise it uses the running ones. If the parameters have 16 bits, the statistics of a
/// batch are kept in f32.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct BatchNorm {
    /// Scale of each channel.
    pub gamma: Param<Tensor<1>>,
    /// Shift of each channel.
    pub beta: Param<Tensor<1>>,
    /// Whether the layer trains, on a device that does.
    pub training: Param<Flag>,
    /// The running mean.
    pub running_mean: RunningState<Tensor<1>>,
    /// The running variance, biased.
    pub running_var: RunningState<Tensor<1>>,
    /// The weight of the batch's statistics in the running ones.
    pub momentum: f64,
    /// Added to the variance.
    pub epsilon: f64,
}

same_fields!(
    BatchNorm,
    nn::BatchNorm {
        gamma,
        beta,
        training,
        running_mean,
        running_var,
        momentum,
        epsilon
    }
);
printed_as!(BatchNorm, nn::BatchNorm);

impl BatchNorm {
    /// The layer's output, of the input's shape.
    ///
    /// # Panics
    ///
    /// If the input has fewer than two axes, or its second axis does not have size `num_features`; if gamma and beta
    /// differ in type, a panic of Burn's operations.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        self.followed_by(input, None, Activation::None)
    }

    /// The layer, followed by a residual, if any, and an activation: none, or ReLU.
    pub(super) fn followed_by<const D: usize>(
        &self,
        input: Tensor<D>,
        residual: Option<Tensor<D>>,
        activation: Activation,
    ) -> Tensor<D> {
        let [num_features] = self.gamma.shape().dims();
        assert_shape!(input, [_, num_features, ..]);
        let norm = Norm::Batch(Channels::Axis(DataFormat::Ncx));
        let (gamma, beta) = (self.gamma.val(), self.beta.val());
        let layer = Layer::new(norm, Some(gamma), Some(beta), self.epsilon);
        let device = input.device();
        let trains = device.is_autodiff() && self.training.is_enabled();
        let running = [&self.running_mean, &self.running_var];
        let given = Given {
            activation,
            residual: residual.as_ref(),
            statistics: (!trains)
                .then(|| running.map(|running| running.value().to_device(&device))),
        };
        if let Some(output) = layer.run(&input, given) {
            self.update(output.statistics.into_iter().map(Tensor::from_dispatch));
            return output.dst;
        }
        let mut dst = nn::BatchNorm::from(self.clone()).forward(input);
        if let Some(residual) = residual {
            dst = dst + residual;
        }
        match activation {
            Activation::Relu => relu(dst),
            _ => dst,
        }
    }

    /// Updates the running statistics with a batch's statistics, if there are any.
    fn update(&self, statistics: impl Iterator<Item = Tensor<1>>) {
        let running = [&self.running_mean, &self.running_var];
        for (running, batch) in running.into_iter().zip(statistics) {
            let old = running.value_sync().to_device(&batch.device());
            // Computed in the batch's type: a variance that 16 bits cannot hold may contribute to one that they can.
            let (kept, batch) = (old.dtype(), batch.detach());
            let new = old
                .cast(batch.dtype())
                .mul_scalar(1.0 - self.momentum)
                .add(batch.mul_scalar(self.momentum));
            running.update(new.cast(kept).detach());
        }
    }
}
