//! Batch norm and what follows it as one layer, with batch norm's fields and so its records.

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
            /// Whether the layer trains where the device does.
            pub training: Param<Flag>,
            /// The running mean.
            pub running_mean: RunningState<Tensor<1>>,
            /// The running variance, biased.
            pub running_var: RunningState<Tensor<1>>,
            /// How much of the batch's statistics goes into the running ones.
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
    /// ReLU after batch norm, in one pass over memory each way: the tensor between norm and ReLU is neither written nor kept,
    /// since the gradient recomputes what passed. Fields and records are those of [`BatchNorm`].
    BatchNormRelu
}

fused! {
    /// A residual added to batch norm, and ReLU after that, as residual blocks end: relu(norm(input) + residual). The forward
    /// pass keeps a bit of each element for the gradient. Fields and records are those of [`BatchNorm`].
    BatchNormAddRelu
}

impl BatchNormConfig {
    /// Batch norm with ReLU after it.
    ///
    /// # Panics
    ///
    /// As [`init`](Self::init).
    pub fn init_relu(&self, device: &Device) -> BatchNormRelu {
        self.init(device).into()
    }

    /// Batch norm with a residual and ReLU after it.
    ///
    /// # Panics
    ///
    /// As [`init`](Self::init).
    pub fn init_add_relu(&self, device: &Device) -> BatchNormAddRelu {
        self.init(device).into()
    }
}

impl BatchNormRelu {
    /// The layer's output, of the input's shape.
    ///
    /// # Panics
    ///
    /// As [`BatchNorm::forward`].
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        BatchNorm::from(self.clone()).followed_by(input, None, Activation::Relu)
    }
}

impl BatchNormAddRelu {
    /// The layer's output, of the input's shape.
    ///
    /// # Panics
    ///
    /// As [`BatchNorm::forward`], and if the residual has another shape or element type than the input.
    pub fn forward<const D: usize>(&self, input: Tensor<D>, residual: Tensor<D>) -> Tensor<D> {
        assert_eq!(
            input.dims(),
            residual.dims(),
            "shapes of input and residual"
        );
        BatchNorm::from(self.clone()).followed_by(input, Some(residual), Activation::Relu)
    }
}
