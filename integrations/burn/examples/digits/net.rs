// The network, for whichever norms are in scope: this file is included twice, once below `use burn::nn` and once below
// `use burn_wgpu_norm::nn`.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};

/// Images of 8×8 pixels ─ convolution ─ batch norm ─ ReLU ─ convolution ─ batch norm ─ ReLU ─ layer norm ─ ten classes.
#[derive(Module, Debug)]
pub struct Net {
    first: Conv2d,
    first_norm: BatchNorm,
    second: Conv2d,
    second_norm: BatchNorm,
    last_norm: LayerNorm,
    classes: Linear,
}

const FEATURES: usize = 32 * 4 * 4;

impl Net {
    pub fn new(device: &Device) -> Self {
        let convolution = |channels| Conv2dConfig::new(channels, [3, 3]).with_bias(false).init(device);
        Self {
            first: convolution([1, 16]),
            first_norm: BatchNormConfig::new(16).init(device),
            second: convolution([16, 32]),
            second_norm: BatchNormConfig::new(32).init(device),
            last_norm: LayerNormConfig::new(FEATURES).init(device),
            classes: LinearConfig::new(FEATURES, 10).init(device),
        }
    }

    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let x = relu(self.first_norm.forward(self.first.forward(images)));
        let x = relu(self.second_norm.forward(self.second.forward(x)));
        self.classes.forward(self.last_norm.forward(x.flatten::<2>(1, 3)))
    }
}
