//! Trains the network on the digits, with Burn's norms or with wgpu-norm's.

#[path = "../../../../examples/digits/data.rs"]
#[allow(
    dead_code,
    reason = "nothing is tested on images that were not trained on"
)]
pub mod data;

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{GradientsParams, SgdConfig};
use burn::store::ModuleRecord;
use burn::tensor::{Device, Int, Tensor, TensorData};
use data::{Digits, SIDE, shuffled};
use std::time::{Duration, Instant};
use wgpu_norm_verify::Random;

pub mod burns {
    use burn::nn::{BatchNorm, BatchNormConfig, LayerNorm, LayerNormConfig};
    include!("net.rs");
}

pub mod ours {
    use burn_wgpu_norm::nn::{BatchNorm, BatchNormConfig, LayerNorm, LayerNormConfig};
    include!("net.rs");
}

/// A network of either kind.
pub trait Net: Module {
    fn forward(&self, images: Tensor<4>) -> Tensor<2>;
}

impl Net for burns::Net {
    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        self.forward(images)
    }
}

impl Net for ours::Net {
    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        self.forward(images)
    }
}

const BATCH: usize = 64;

/// The initial weights for both kinds: a record of Burn's own network.
pub fn weights(device: &Device) -> ModuleRecord {
    device.seed(3);
    burns::Net::new(device).into_record()
}

/// The loss of each step, and the time of all steps but the first two, which compile.
pub fn train(mut net: impl Net, device: &Device, steps: usize) -> (Vec<f32>, Duration) {
    let digits = Digits::all();
    let mut random = Random::new(1);
    let mut optimizer = SgdConfig::new().init();
    let mut losses = Vec::new();
    let mut order = Vec::new();
    let mut start = Instant::now();
    for step in 0..steps {
        if step == 2 {
            start = Instant::now();
        }
        if order.len() < BATCH {
            order = shuffled(digits.len(), &mut random);
        }
        let batch = digits.pick(&order.split_off(order.len() - BATCH));
        let images = TensorData::new(batch.images, [BATCH, 1, SIDE, SIDE]);
        let labels: Vec<i32> = batch.labels.iter().map(|&label| label as i32).collect();
        let labels = Tensor::<1, Int>::from_data(TensorData::new(labels, [BATCH]), device);
        let classes = net.forward(Tensor::from_data(images, device));
        let loss = CrossEntropyLossConfig::new()
            .init(device)
            .forward(classes, labels);
        let gradients = GradientsParams::from_grads(loss.backward(), &net);
        net = optimizer.step(0.1, net, gradients);
        losses.push(loss.into_scalar::<f32>());
    }
    (losses, start.elapsed())
}
