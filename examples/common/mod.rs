//! Shared code of the examples: made-up tensors of a layer, and the comparison with the reference.
#![allow(dead_code, reason = "no example uses everything")]

use std::error::Error;
use std::process::ExitCode;
use wgpu_norm::{Operation, Tensor};
use wgpu_norm_verify::reference::{Computed, compute, scaled_error};

/// The tensors of a layer whose parameters vary along axis 1, NCX, in f32.
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
    /// Pseudorandom numbers that are the same everywhere, and the true statistics of `src`.
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

        // The statistics that a forward pass would have kept: each channel's mean and biased variance.
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

    /// An operation's results for these tensors, in float64 on the CPU.
    pub fn reference(&self, operation: &Operation) -> Result<Vec<Computed>, wgpu_norm::Error> {
        let channels = self.gamma.len();
        let tensors = [
            (Tensor::Src, f64s(&self.src)),
            (Tensor::DiffDst, f64s(&self.diff_dst)),
            (Tensor::Mean, f64s(&self.mean)),
            (Tensor::Variance, f64s(&self.variance)),
            (Tensor::Gamma, f64s(&self.gamma)),
            (Tensor::Beta, f64s(&self.beta)),
            (Tensor::RunningMean, vec![0.0; channels]),
            (Tensor::RunningVariance, vec![1.0; channels]),
        ];
        let tensors = tensors.each_ref();
        compute(
            operation,
            &tensors.map(|(tensor, values)| (*tensor, &**values)),
        )
    }
}

fn f64s(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| v.into()).collect()
}

/// Prints the error of a result in units of the tolerance, and fails if it is above 1. Errors are relative to the size
/// of the terms that were added, because a gradient near 0 is the difference of large terms.
pub fn compare(tensor: Tensor, got: &[f32], want: &[Computed]) -> Result<(), Box<dyn Error>> {
    let what = tensor.name();
    let want = named(tensor, want)?;
    let error = scaled_error(got, &want.values, &want.scale);
    println!(
        "{what:<22} {:>7} elements, the first is {:>11.7} (float64: {:>11.7}); largest error: {error:.3} of the tolerance",
        got.len(),
        got.first().copied().unwrap_or_default(),
        want.values.first().copied().unwrap_or_default(),
    );
    within_tolerance(what, error)
}

/// The largest error of an operation's results for these tensors, in units of the tolerance; fails if it is above 1.
pub fn largest_error(
    operation: &Operation,
    tensors: &[(Tensor, &[f32])],
    got: &[(Tensor, &[f32])],
) -> Result<f64, Box<dyn Error>> {
    let tensors: Vec<_> = tensors.iter().map(|(t, v)| (*t, f64s(v))).collect();
    let tensors: Vec<_> = tensors.iter().map(|(t, v)| (*t, &**v)).collect();
    let want = compute(operation, &tensors)?;
    let mut largest = 0.0;
    for (tensor, got) in got {
        let want = named(*tensor, &want)?;
        let error = scaled_error(got, &want.values, &want.scale);
        within_tolerance(tensor.name(), error)?;
        largest = f64::max(largest, error);
    }
    Ok(largest)
}

fn named(tensor: Tensor, results: &[Computed]) -> Result<&Computed, Box<dyn Error>> {
    let found = results.iter().find(|computed| computed.tensor == tensor);
    found.ok_or_else(|| "the reference has no such result".into())
}

fn within_tolerance(what: &str, error: f64) -> Result<(), Box<dyn Error>> {
    match error <= 1.0 {
        true => Ok(()),
        false => Err(format!("{what} differs from the reference").into()),
    }
}

/// Runs an example; warnings and its error, if any, go to stderr.
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
