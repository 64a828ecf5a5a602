//! What the examples share: made-up tensors of a layer, and the comparison with the reference.
#![allow(dead_code, reason = "no example uses everything")]

use std::error::Error;
use std::process::ExitCode;
use wgpu_norm::{BatchNormOptions, ParamGrads, Statistics, reference};

/// A batch-norm layer's tensors, NCX, in f32.
pub struct Layer {
    pub shape: Vec<usize>,
    pub src: Vec<f32>,
    pub diff_dst: Vec<f32>,
    pub mean: Vec<f32>,
    pub variance: Vec<f32>,
    pub gamma: Vec<f32>,
    pub beta: Vec<f32>,
}

impl Layer {
    /// Numbers that look random but are the same everywhere, and the true statistics of `src`.
    pub fn made_up(shape: &[usize], seed: u64) -> Self {
        let mut state = seed;
        let mut random = || {
            // Knuth's generator; the upper bits are good enough here.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0 // in [-1, 1)
        };
        let elements = shape.iter().product();
        let channels = shape[1];
        let inner: usize = shape[2..].iter().product();
        let src: Vec<f32> = (0..elements).map(|_| 3.0 * random() + 1.0).collect();
        let diff_dst = (0..elements).map(|_| random()).collect();
        let gamma = (0..channels).map(|_| 1.0 + 0.5 * random()).collect();
        let beta = (0..channels).map(|_| random()).collect();

        // What a forward pass would have kept: each channel's mean and biased variance.
        let count = (elements / channels) as f64;
        let mut mean = vec![0.0; channels];
        let mut variance = vec![0.0; channels];
        for (i, &x) in src.iter().enumerate() {
            mean[i / inner % channels] += f64::from(x) / count;
        }
        for (i, &x) in src.iter().enumerate() {
            let channel = i / inner % channels;
            variance[channel] += (f64::from(x) - mean[channel]).powi(2) / count;
        }
        Self {
            shape: shape.to_vec(),
            src,
            diff_dst,
            mean: mean.iter().map(|&m| m as f32).collect(),
            variance: variance.iter().map(|&v| v as f32).collect(),
            gamma,
            beta,
        }
    }

    /// The same forward pass in float64 on the CPU.
    pub fn forward_reference(
        &self,
        options: &BatchNormOptions,
    ) -> Result<reference::Forward, wgpu_norm::Error> {
        reference::BatchNormForward {
            shape: &self.shape,
            channel_axes: &reference::channel_axes(self.shape.len(), options.data_format),
            src: &f64s(&self.src),
            gamma: Some(&f64s(&self.gamma)),
            beta: Some(&f64s(&self.beta)),
            epsilon: options.epsilon,
        }
        .train()
    }

    /// The same gradients in float64 on the CPU.
    pub fn reference(
        &self,
        options: &BatchNormOptions,
    ) -> Result<reference::Gradients, wgpu_norm::Error> {
        reference::BatchNorm {
            shape: &self.shape,
            channel_axes: &reference::channel_axes(self.shape.len(), options.data_format),
            src: &f64s(&self.src),
            diff_dst: &f64s(&self.diff_dst),
            mean: &f64s(&self.mean),
            variance: &f64s(&self.variance),
            gamma: Some(&f64s(&self.gamma)),
            epsilon: options.epsilon,
            statistics: Through::Batch,
            param_grads: ParamGrads::Both,
        }
        .backward()
    }
}

fn f64s(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| v.into()).collect()
}

/// Prints how far a result is from the reference, in units of what is allowed; fails above 1.
pub fn compare(what: &str, got: &[f32], want: &[f64], scale: &[f64]) -> Result<(), Box<dyn Error>> {
    let error = reference::scaled_error(got, want, scale);
    println!(
        "{what:<22} {:>7} elements, the first is {:>11.7} (float64: {:>11.7}); largest error: {error:.3} of the tolerance",
        got.len(),
        got.first().copied().unwrap_or_default(),
        want.first().copied().unwrap_or_default(),
    );
    match error <= 1.0 {
        true => Ok(()),
        false => Err(format!("{what} differs from the reference").into()),
    }
}

/// Runs an example: warnings go to stderr, and so does what went wrong.
pub fn main(example: impl std::future::Future<Output = Result<(), Box<dyn Error>>>) -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("wgpu_norm=warn"))
        .init();
    match pollster::block_on(example) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
