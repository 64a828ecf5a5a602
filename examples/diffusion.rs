//! A small diffusion model learns to predict the noise in tokens. A condition, what a sample shows and how noisy it is,
//! steers the model by adaptive layer norm with a gate.
//!
//! ```sh
//! cargo run --example diffusion       # 300 steps, seconds
//! cargo run --example diffusion -- 20 # fewer
//! ```
//!
//! ```text
//! noisy tokens ─ linear ─┬─ LAYER NORM · (1 + scale) + shift ─ · gate ─ + ─ linear ─ noise
//!                        └───────────────────residual───────────────────┘
//! condition ─ three linear layers ─ shift, scale and gate, for each sample and channel
//! ```
//!
//! One call of `GpuAxesNorm` does all between the linear layers, which are plain Rust. (In DiT attention or a
//! perceptron comes before the gate: see the example `adaptive`.) The float64 reference checks the results, forward and
//! backward, at every step. The loss is 1 for guesses of 0 and about 0.36 for the tokens' linear layers alone; here it
//! falls to 0.16.

mod common;

use common::largest_error;
use std::error::Error;
use std::process::ExitCode;
use wgpu_norm::{
    Activation, AxesNormOptions, BackwardArgs, DType, Epilogue, Forward, ForwardArgs, GpuAxesNorm,
    GpuContext, Norm, Operation, Residual, SavedRef, Tensor,
};
use wgpu_norm_verify::Random;

const SHAPE: [usize; 3] = [16, 16, 32]; // samples, tokens, channels
const FEATURES: usize = 8; // of a token before the first layer
const CLASSES: usize = 4; // of what a sample shows
const CONDITION: usize = CLASSES + 3;
const RATE: f32 = 0.5;

fn main() -> ExitCode {
    common::main(diffusion())
}

async fn diffusion() -> Result<(), Box<dyn Error>> {
    let steps = std::env::args().nth(1).map_or(Ok(300), |n| n.parse())?;
    let gpu = GpuContext::new().await?;
    println!("running on {}", gpu.adapter_info().name);

    // 1. The norm: statistics of each token, parameters of each sample and channel; 1 + scale is gamma. The reference
    //    takes it as an operation.
    let options = AxesNormOptions::new(&[2], &[0, 2]).zero_centered_gamma(true);
    let layer = GpuAxesNorm::new(&gpu, options)?;
    let norm = Norm::axes(&[2], &[0, 2]);
    let forward = Operation::new(norm, Forward::default(), &SHAPE, DType::F32)
        .with_zero_centered_gamma(true)
        .with_gate(true)
        .with_epilogue(Epilogue::new(Residual::After, Activation::None));
    let backward = forward.gradient()?;

    // 2. The linear layers. The condition's begin at 0: with gate 0 the tokens pass as they are.
    let mut random = Random::new(1);
    let mut enter = Linear::new(FEATURES, SHAPE[2], 0.5, &mut random);
    let mut leave = Linear::new(SHAPE[2], FEATURES, 0.25, &mut random);
    let mut modulate = [(); 3].map(|()| Linear::new(CONDITION, SHAPE[2], 0.0, &mut random));

    let (mut losses, mut largest) = (Vec::new(), 0.0_f64);
    for step in 1..=steps {
        // 3. Forward.
        let (noisy, noise, condition) = batch(&mut random);
        let src = enter.forward(&noisy);
        let [shift, scale, gate] = modulate.each_ref().map(|linear| linear.forward(&condition));
        let args = ForwardArgs::new(&SHAPE, &src).gamma(&scale).beta(&shift);
        let args = args.gate(&gate).residual_after(&src);
        let output = layer.forward(args).await?;
        let guess = leave.forward(&output.dst);

        // 4. The mean squared error, and its gradient.
        let count = noise.len() as f32;
        let errors: Vec<f32> = guess.iter().zip(&noise).map(|(a, b)| a - b).collect();
        losses.push(errors.iter().map(|e| e * e).sum::<f32>() / count);
        let diff: Vec<f32> = errors.iter().map(|e| 2.0 * e / count).collect();

        // 5. Backward. A linear layer learns as soon as it has its gradient.
        let diff_dst = leave.backward(&output.dst, &diff);
        let (mean, variance) = (&output.saved.mean, &output.saved.variance);
        let args = BackwardArgs::new(&SHAPE, &src, &diff_dst, SavedRef::moments(mean, variance));
        let args = args.gamma(&scale).beta(&shift).gate(&gate);
        let grads = layer.backward(args).await?;
        let diffs = [grads.diff_beta, grads.diff_gamma, grads.diff_gate];
        let diffs = diffs.map(Option::unwrap_or_default);
        for (linear, diff) in modulate.iter_mut().zip(&diffs) {
            linear.backward(&condition, diff);
        }
        let mut diff_tokens = diff_dst.clone(); // the residual's gradient
        add(&mut diff_tokens, 1.0, &grads.diff_src);
        enter.backward(&noisy, &diff_tokens);

        // 6. The reference, from the same tensors. Its gradient takes the statistics that the GPU computed.
        let inputs = [
            (Tensor::Src, &*src),
            (Tensor::Residual, &src),
            (Tensor::Gamma, &scale),
            (Tensor::Beta, &shift),
            (Tensor::Gate, &gate),
            (Tensor::DiffDst, &diff_dst),
        ];
        let statistics = [(Tensor::Mean, &**mean), (Tensor::Variance, variance)];
        let results = [&[(Tensor::Dst, &*output.dst)], &statistics[..]].concat();
        let [diff_shift, diff_scale, diff_gate] = &diffs;
        let gradients = [
            (Tensor::DiffSrc, &*grads.diff_src),
            (Tensor::DiffBeta, diff_shift),
            (Tensor::DiffGamma, diff_scale),
            (Tensor::DiffGate, diff_gate),
        ];
        let inputs = [&inputs[..], &statistics].concat();
        for (pass, got) in [(&forward, &*results), (&backward, &gradients)] {
            largest = largest.max(largest_error(pass, &inputs, got)?);
        }
        if step % 20 == 0 {
            let loss = losses[step - 20..].iter().sum::<f32>() / 20.0;
            println!("step {step:>3}: loss {loss:.3}, largest error {largest:.3} of the tolerance");
        }
    }
    let (early, late) = losses.split_at(losses.len() / 2);
    match late.iter().sum::<f32>() < early.iter().sum() {
        true => Ok(()),
        false => Err("the loss did not go down".into()),
    }
}

/// Noisy samples, their noise, and their conditions: noisy = √(1 − level²) · clean + level · noise, where clean depends
/// on the class alone.
fn batch(random: &mut Random) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
    let noise: Vec<f32> = random.vec(SHAPE[0] * SHAPE[1] * FEATURES, 3_f64.sqrt(), 0.0);
    let (mut noisy, mut condition) = (Vec::new(), Vec::new());
    for (sample, noise) in noise.chunks_exact(SHAPE[1] * FEATURES).enumerate() {
        let class = sample % CLASSES;
        let level = 0.55 + 0.45 * random.unit() as f32;
        let rest = (1.0 - level * level).sqrt();
        let clean = |at| 2.0 * ((class * FEATURES + at % FEATURES) as f32 * 1.7).sin();
        let one = |(at, noise): (usize, &f32)| rest * clean(at) + level * noise;
        noisy.extend(noise.iter().enumerate().map(one));
        condition.extend((0..CLASSES).map(|one| f32::from(u8::from(one == class))));
        condition.extend([level, level * level, rest]);
    }
    (noisy, noise, condition)
}

/// dst = src · weight + bias, with a row of the weight for each input.
struct Linear {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl Linear {
    /// Random weights up to this limit.
    fn new(inputs: usize, outputs: usize, limit: f64, random: &mut Random) -> Self {
        let weight = random.vec(inputs * outputs, limit, 0.0);
        let bias = vec![0.0; outputs];
        Self { weight, bias }
    }

    fn forward(&self, src: &[f32]) -> Vec<f32> {
        let outputs = self.bias.len();
        let rows = src.chunks_exact(self.weight.len() / outputs);
        let of_row = |row: &[f32]| {
            let mut dst = self.bias.clone();
            for (x, weights) in row.iter().zip(self.weight.chunks_exact(outputs)) {
                add(&mut dst, *x, weights);
            }
            dst
        };
        rows.flat_map(of_row).collect()
    }

    /// The gradient of src. The layer then takes a step against its own.
    fn backward(&mut self, src: &[f32], diff_dst: &[f32]) -> Vec<f32> {
        let outputs = self.bias.len();
        let inputs = self.weight.len() / outputs;
        let (mut weight, mut bias, mut diff_src) = (self.weight.clone(), self.bias.clone(), vec![]);
        for (row, diff) in src.chunks_exact(inputs).zip(diff_dst.chunks_exact(outputs)) {
            let dot = |weights: &[f32]| weights.iter().zip(diff).map(|(w, d)| w * d).sum::<f32>();
            diff_src.extend(self.weight.chunks_exact(outputs).map(dot));
            for (x, weights) in row.iter().zip(weight.chunks_exact_mut(outputs)) {
                add(weights, -RATE * x, diff);
            }
            add(&mut bias, -RATE, diff);
        }
        (self.weight, self.bias) = (weight, bias);
        diff_src
    }
}

/// sums += factor · terms.
fn add(sums: &mut [f32], factor: f32, terms: &[f32]) {
    for (sum, term) in sums.iter_mut().zip(terms) {
        *sum += factor * term;
    }
}
