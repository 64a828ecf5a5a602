//! The networks: a block each, from images or tokens to others of the same shape.

use super::norms::Norms;
use burn::module::Module;
use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::{gelu, silu};
use burn::tensor::{Device, Tensor};
use burn_wgpu_norm::nn::{
    BatchNorm, BatchNormConfig, GroupNorm, GroupNormConfig, LayerNorm, LayerNormConfig, RmsNorm,
    RmsNormConfig,
};

/// A network of one block.
pub trait Block: Module {
    const NAME: &'static str;
    /// The number of its norms.
    #[allow(dead_code, reason = "the test counts passes")]
    const NORMS: u64 = 2;
    /// Whether [`Norms::Fused`] differs from [`Norms::Ours`].
    const FUSED: bool = true;

    /// A block for images of this shape; tokens are images of one channel: samples, 1, tokens, width.
    fn new(shape: [usize; 4], device: &Device) -> Self;

    fn forward(&self, x: Tensor<4>, norms: Norms) -> Tensor<4>;
}

fn convolution(channels: usize, size: usize, groups: usize, device: &Device) -> Conv2d {
    let half = size / 2;
    Conv2dConfig::new([channels, channels], [size, size])
        .with_padding(PaddingConfig2d::Explicit(half, half, half, half))
        .with_groups(groups)
        .with_bias(false)
        .init(device)
}

/// Heads of at least eight numbers, sixteen at most.
fn attention(width: usize, device: &Device) -> MultiHeadAttention {
    MultiHeadAttentionConfig::new(width, (width / 8).min(16))
        .with_dropout(0.0)
        .init(device)
}

fn attend(attention: &MultiHeadAttention, x: Tensor<3>) -> Tensor<3> {
    attention.forward(MhaInput::self_attn(x)).context
}

/// x ─ convolution ─ batch norm ─ ReLU ─ convolution ─ batch norm ─ + x ─ ReLU
#[derive(Module, Debug)]
pub struct ResNet {
    convolutions: [Conv2d; 2],
    norms: [BatchNorm; 2],
}

impl Block for ResNet {
    const NAME: &'static str = "ResNet";

    fn new([_, channels, ..]: [usize; 4], device: &Device) -> Self {
        Self {
            convolutions: [(); 2].map(|()| convolution(channels, 3, 1, device)),
            norms: [(); 2].map(|()| BatchNormConfig::new(channels).init(device)),
        }
    }

    fn forward(&self, x: Tensor<4>, norms: Norms) -> Tensor<4> {
        let [first, second] = &self.convolutions;
        let [first_norm, second_norm] = &self.norms;
        let y = norms.batch_relu(first_norm, first.forward(x.clone()));
        norms.batch_add_relu(second_norm, second.forward(y), x)
    }
}

/// x ─ 7×7 convolution of each channel ─ layer norm over channels ─ linear ─ GELU ─ linear ─ + x
#[derive(Module, Debug)]
pub struct ConvNeXt {
    convolution: Conv2d,
    norm: LayerNorm,
    linear: [Linear; 2],
}

impl Block for ConvNeXt {
    const NAME: &'static str = "ConvNeXt";
    const NORMS: u64 = 1;

    fn new([_, channels, ..]: [usize; 4], device: &Device) -> Self {
        Self {
            convolution: convolution(channels, 7, channels, device),
            norm: LayerNormConfig::new(channels)
                .with_epsilon(1e-6)
                .init(device),
            linear: [(channels, 4 * channels), (4 * channels, channels)]
                .map(|(from, to)| LinearConfig::new(from, to).init(device)),
        }
    }

    fn forward(&self, x: Tensor<4>, norms: Norms) -> Tensor<4> {
        let [first, second] = &self.linear;
        let y = norms.channels_last(&self.norm, self.convolution.forward(x.clone()));
        let y = second.forward(gelu(first.forward(y)));
        x + y.permute([0, 3, 1, 2])
    }
}

/// x ─ RMS norm ─ attention ─ + x, y ─ RMS norm ─ SiLU(linear) · linear ─ linear ─ + y
#[derive(Module, Debug)]
pub struct Transformer {
    norms: [RmsNorm; 2],
    attention: MultiHeadAttention,
    gate: Linear,
    up: Linear,
    down: Linear,
}

impl Block for Transformer {
    const NAME: &'static str = "transformer";
    const FUSED: bool = false;

    fn new([_, _, _, width]: [usize; 4], device: &Device) -> Self {
        let linear = |from, to| LinearConfig::new(from, to).with_bias(false).init(device);
        Self {
            norms: [(); 2].map(|()| RmsNormConfig::new(width).init(device)),
            attention: attention(width, device),
            gate: linear(width, 3 * width),
            up: linear(width, 3 * width),
            down: linear(3 * width, width),
        }
    }

    fn forward(&self, x: Tensor<4>, norms: Norms) -> Tensor<4> {
        let [first, second] = &self.norms;
        let x = x.squeeze_dim::<3>(1);
        let x = x.clone() + attend(&self.attention, norms.rms(first, x));
        let y = norms.rms(second, x.clone());
        let y = self
            .down
            .forward(silu(self.gate.forward(y.clone())) * self.up.forward(y));
        (x + y).unsqueeze_dim(1)
    }
}

/// x ─ adaptive layer norm ─ attention ─ · gate ─ + x, y ─ adaptive layer norm ─ linear ─ GELU ─ linear ─ · gate ─ + y
///
/// Scale, shift and gate are linear in the sample's condition, here the mean of its tokens.
#[derive(Module, Debug)]
pub struct Dit {
    condition: Linear,
    norm: LayerNorm,
    attention: MultiHeadAttention,
    linear: [Linear; 2],
}

impl Block for Dit {
    const NAME: &'static str = "DiT";

    fn new([_, _, _, width]: [usize; 4], device: &Device) -> Self {
        let norm = LayerNormConfig::new(width).with_bias(false).init(device);
        Self {
            condition: LinearConfig::new(width, 6 * width).init(device),
            norm: norm.no_grad(),
            attention: attention(width, device),
            linear: [(width, 4 * width), (4 * width, width)]
                .map(|(from, to)| LinearConfig::new(from, to).init(device)),
        }
    }

    fn forward(&self, x: Tensor<4>, norms: Norms) -> Tensor<4> {
        let x = x.squeeze_dim::<3>(1);
        let condition = silu(x.clone().mean_dim(1).squeeze_dim::<2>(1));
        let parts = self.condition.forward(condition).chunk(6, 1);
        let [scale, shift, gate, second_scale, second_shift, second_gate] =
            parts.try_into().expect("six parts");
        let y = norms.adaptive(&self.norm, x.clone(), scale, shift);
        let x = x + attend(&self.attention, y) * gate.unsqueeze_dim(1);
        let y = norms.adaptive(&self.norm, x.clone(), second_scale, second_shift);
        let [first, second] = &self.linear;
        let y = second.forward(gelu(first.forward(y)));
        (x + y * second_gate.unsqueeze_dim(1)).unsqueeze_dim(1)
    }
}

/// x ─ group norm ─ SiLU ─ convolution ─ + time ─ group norm ─ SiLU ─ convolution ─ + x
///
/// The embedding of the time is linear in the sample's condition, here the mean of its pixels.
#[derive(Module, Debug)]
pub struct UNet {
    norms: [GroupNorm; 2],
    convolutions: [Conv2d; 2],
    time: Linear,
}

impl Block for UNet {
    const NAME: &'static str = "UNet";
    const FUSED: bool = false;

    fn new([_, channels, ..]: [usize; 4], device: &Device) -> Self {
        let groups = (channels / 2).min(32);
        Self {
            norms: [(); 2].map(|()| GroupNormConfig::new(groups, channels).init(device)),
            convolutions: [(); 2].map(|()| convolution(channels, 3, 1, device)),
            time: LinearConfig::new(channels, channels).init(device),
        }
    }

    fn forward(&self, x: Tensor<4>, norms: Norms) -> Tensor<4> {
        let [first, second] = &self.convolutions;
        let [first_norm, second_norm] = &self.norms;
        let [samples, channels, ..] = x.dims();
        let condition = x
            .clone()
            .mean_dim(2)
            .mean_dim(3)
            .reshape([samples, channels]);
        let time = self
            .time
            .forward(silu(condition))
            .reshape([samples, channels, 1, 1]);
        let y = first.forward(norms.group_silu(first_norm, x.clone())) + time;
        x + second.forward(norms.group_silu(second_norm, y))
    }
}
