//! Burn's norms and wgpu-norm's in alternation: batch norm alone, and a training step of a stack of residual blocks.
//!
//! ```sh
//! cargo bench --bench blocks              # shapes of a GPU's size
//! cargo bench --bench blocks -- --small   # for a software driver
//! ```
//!
//! Times are the smallest of several turns. The gradient of batch norm alone begins with a tensor of ones, which Burn
//! creates for both.

use burn::backend::DispatchDevice;
use burn::module::{Module, ModuleDisplay};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{self, PaddingConfig2d};
use burn::optim::{GradientsParams, SgdConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Distribution, Tensor};
use burn_wgpu_norm::nn as ours;
use cubecl::MemoryScope;
use std::time::Instant;

fn main() {
    let small = std::env::args().any(|argument| argument == "--small");
    let timed = std::env::args().any(|argument| argument == "--bench");
    let device = burn_wgpu_norm::init().expect("a wgpu device").autodiff();
    println!(
        "{device:?}, layers run by {:?}",
        burn_wgpu_norm::way(&device)
    );
    let turns = match (timed, small) {
        (false, _) => 1,
        (true, true) => 5,
        (true, false) => 20,
    };
    alone(&device, turns, timed);
    stack(&device, turns, timed, small);
}

/// The size in bytes of the device's memory pools.
fn reserved(device: &Device) -> u64 {
    match device.as_dispatch().clone().inner() {
        DispatchDevice::Cube(device) => {
            let report = device.client().memory_report(MemoryScope::Device);
            report.usage().bytes_reserved
        }
        #[allow(unreachable_patterns)]
        _ => 0,
    }
}

/// The smallest time of each in milliseconds, run in turns, after one turn that compiles.
fn in_turns<const N: usize>(
    device: &Device,
    turns: usize,
    mut runs: [&mut dyn FnMut(); N],
) -> [f64; N] {
    let mut best = [f64::MAX; N];
    for turn in 0..=turns {
        for (run, best) in runs.iter_mut().zip(&mut best) {
            device.sync().expect("a device that works");
            let start = Instant::now();
            run();
            device.sync().expect("a device that works");
            if turn > 0 {
                *best = best.min(start.elapsed().as_secs_f64() * 1e3);
            }
        }
    }
    best
}

fn alone(device: &Device, turns: usize, timed: bool) {
    println!("\nbatch norm, forward and backward, f32        Burn ms    ours ms   ratio");
    let shapes: &[[usize; 4]] = match timed {
        true => &[
            [16, 64, 32, 32],
            [8, 64, 56, 56],
            [4, 256, 32, 32],
            [32, 128, 16, 16],
            [2, 32, 160, 160],
        ],
        false => &[[2, 4, 8, 8]],
    };
    let mut product = 1.0;
    for &shape in shapes {
        let src = Tensor::<4>::random(shape, Distribution::Default, device).require_grad();
        let burns = nn::BatchNormConfig::new(shape[1]).init(device);
        let mine = ours::BatchNormConfig::new(shape[1]).init(device);
        let step = |dst: Tensor<4>| {
            drop(src.grad(&dst.backward()));
        };
        let [burn, ours] = in_turns(
            device,
            turns,
            [&mut || step(burns.forward(src.clone())), &mut || {
                step(mine.forward(src.clone()))
            }],
        );
        product *= burn / ours;
        let shape = format!("{shape:?}");
        println!("{shape:<40} {burn:10.2} {ours:10.2} {:7.2}", burn / ours);
    }
    let mean = f64::powf(product, 1.0 / shapes.len() as f64);
    println!("geometric mean {mean:50.2}");
}

/// A norm with the operations that follow it in a block.
trait Norm: Module + ModuleDisplay {
    fn new(channels: usize, device: &Device) -> Self;
    fn relu(&self, src: Tensor<4>) -> Tensor<4>;
    fn add_relu(&self, src: Tensor<4>, residual: Tensor<4>) -> Tensor<4>;
}

impl Norm for nn::BatchNorm {
    fn new(channels: usize, device: &Device) -> Self {
        nn::BatchNormConfig::new(channels).init(device)
    }

    fn relu(&self, src: Tensor<4>) -> Tensor<4> {
        relu(self.forward(src))
    }

    fn add_relu(&self, src: Tensor<4>, residual: Tensor<4>) -> Tensor<4> {
        relu(self.forward(src) + residual)
    }
}

impl Norm for ours::BatchNorm {
    fn new(channels: usize, device: &Device) -> Self {
        ours::BatchNormConfig::new(channels).init(device)
    }

    fn relu(&self, src: Tensor<4>) -> Tensor<4> {
        relu(self.forward(src))
    }

    fn add_relu(&self, src: Tensor<4>, residual: Tensor<4>) -> Tensor<4> {
        relu(self.forward(src) + residual)
    }
}

/// One batch norm, as each of the layers that contain it.
#[derive(Module, Debug)]
struct Fused {
    norm: ours::BatchNorm,
}

impl Norm for Fused {
    fn new(channels: usize, device: &Device) -> Self {
        let norm = ours::BatchNormConfig::new(channels).init(device);
        Self { norm }
    }

    fn relu(&self, src: Tensor<4>) -> Tensor<4> {
        ours::BatchNormRelu::from(self.norm.clone()).forward(src)
    }

    fn add_relu(&self, src: Tensor<4>, residual: Tensor<4>) -> Tensor<4> {
        ours::BatchNormAddRelu::from(self.norm.clone()).forward(src, residual)
    }
}

/// convolution ─ norm ─ ReLU ─ convolution ─ norm ─ + ─ ReLU
#[derive(Module, Debug)]
struct Block<N: Module> {
    convolutions: [Conv2d; 2],
    norms: [N; 2],
}

#[derive(Module, Debug)]
struct Net<N: Module> {
    blocks: Vec<Block<N>>,
}

impl<N: Norm> Net<N> {
    fn new(channels: usize, device: &Device) -> Self {
        let convolution = || {
            Conv2dConfig::new([channels, channels], [3, 3])
                .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
                .with_bias(false)
                .init(device)
        };
        let block = |_| Block {
            convolutions: [convolution(), convolution()],
            norms: [N::new(channels, device), N::new(channels, device)],
        };
        Self {
            blocks: (0..4).map(block).collect(),
        }
    }

    fn forward(&self, images: Tensor<4>) -> Tensor<4> {
        self.blocks.iter().fold(images, |src, block| {
            let [first, second] = &block.convolutions;
            let [first_norm, second_norm] = &block.norms;
            let x = first_norm.relu(first.forward(src.clone()));
            second_norm.add_relu(second.forward(x), src)
        })
    }
}

fn trained<N: Norm>(device: &Device, channels: usize, images: Tensor<4>) -> impl FnMut() {
    let mut net = Some(Net::<N>::new(channels, device));
    let mut optimizer = SgdConfig::new().init();
    move || {
        if let Some(old) = net.take() {
            let loss = old.forward(images.clone()).powi_scalar(2).mean();
            let gradients = GradientsParams::from_grads(loss.backward(), &old);
            net = Some(optimizer.step(1e-3, old, gradients));
        }
    }
}

fn stack(device: &Device, turns: usize, timed: bool, small: bool) {
    let (batch, channels, side) = match (timed, small) {
        (false, _) => (2, 4, 8),
        (true, true) => (8, 32, 32),
        (true, false) => (64, 64, 56),
    };
    let images = Tensor::random([batch, channels, side, side], Distribution::Default, device);
    let mut burns = trained::<nn::BatchNorm>(device, channels, images.clone());
    let mut mine = trained::<ours::BatchNorm>(device, channels, images.clone());
    let mut fused = trained::<Fused>(device, channels, images.clone());
    let memory = [&mut burns as &mut dyn FnMut(), &mut mine, &mut fused].map(|step| {
        device.memory_cleanup();
        let before = reserved(device);
        step();
        let grown = reserved(device).saturating_sub(before);
        grown as f64 / f64::from(1 << 20)
    });
    let [burns, mine, fused] = in_turns(device, turns, [&mut burns, &mut mine, &mut fused]);
    println!("\na training step of four residual blocks, {batch}x{channels}x{side}x{side}");
    let names = [
        "Burn's BatchNorm",
        "wgpu-norm's BatchNorm",
        "wgpu-norm's, ReLU and sum in it",
    ];
    let rows = names.into_iter().zip([burns, mine, fused]).zip(memory);
    for ((name, time), memory) in rows {
        println!(
            "{name:<40} {time:10.2} ms {:7.2}   {memory:8.1} MiB more",
            burns / time
        );
    }
}
