//! Batch norm together with the operations after it as one layer, with batch norm's fields and so its records.

use super::{BatchNorm, BatchNormConfig, printed_as, same_fields};
use burn::module::{Flag, Module, Param, RunningState};
use burn::tensor::{Device, Tensor};
use wgpu_norm::Activation;

/// A layer with the fields of [`BatchNorm`].
macro_rules! fused {
    ($(#[$doc:meta])* $layer:ident) => {
        $(#[$doc])*
        #[derive(Module, Debug)]
        #[module(custom_display)]
        pub struct $layer {
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

        same_fields!($layer, BatchNorm {
            gamma, beta, training, running_mean, running_var, momentum, epsilon
        });
        printed_as!($layer, BatchNorm);
    };
}

fused! {
    /// ReLU after batch norm, in one pass over memory in each direction. The tensor between norm and ReLU is neither
    /// written nor kept, because the gradient recomputes it. Fields and records are those of [`BatchNorm`].
    BatchNormRelu
}

fused! {
    /// Batch norm, then a residual, then ReLU, as at the end of residual blocks: relu(norm(input) + residual). The
    /// forward pass keeps one bit per element for the gradient. Fields and records are those of [`BatchNorm`].
    BatchNormAddRelu
}

impl BatchNormConfig {
    /// Creates batch norm with ReLU after it.
    ///
    /// # Panics
    ///
    /// Like [`init`](Self::init).
    pub fn init_relu(&self, device: &Device) -> BatchNormRelu {
        self.init(device).into()
    }

    /// Creates batch norm with a residual and ReLU after it.
    ///
    /// # Panics
    ///
    /// Like [`init`](Self::init).
    pub fn init_add_relu(&self, device: &Device) -> BatchNormAddRelu {
        self.init(device).into()
    }
}

impl BatchNormRelu {
    /// The layer's output, of the input's shape.
    ///
    /// # Panics
    ///
    /// Like [`BatchNorm::forward`].
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        BatchNorm::from(self.clone()).followed_by(input, None, Activation::Relu)
    }
}

impl BatchNormAddRelu {
    /// The layer's output, of the input's shape.
    ///
    /// # Panics
    ///
    /// Like [`BatchNorm::forward`]; also if the residual's shape or element type differs from the input's.
    pub fn forward<const D: usize>(&self, input: Tensor<D>, residual: Tensor<D>) -> Tensor<D> {
        assert_eq!(
            input.dims(),
            residual.dims(),
            "shapes of input and residual"
        );
        BatchNorm::from(self.clone()).followed_by(input, Some(residual), Activation::Relu)
    }
}
