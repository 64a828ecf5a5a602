//! The tensors made up for a case, and the results by definition.

use crate::case::{Case, EPSILON};
use wgpu_norm::Tensor;

/// A layer's tensors in host memory.
pub struct Tensors {
    pub src: Vec<f32>,
    /// Empty where none is added to src, as is the sum.
    pub residual: Vec<f32>,
    pub sum: Vec<f32>,
    /// Empty for a forward pass.
    pub diff_dst: Vec<f32>,
    /// Of each channel (batch norm), row (layer and RMS norm) or group of a sample's channels, as are the variances:
    /// those of src or of the sum. RMS norm has 0 for a mean, and the mean of squares for a variance.
    pub mean: Vec<f32>,
    pub variance: Vec<f32>,
    /// Of each channel or column, as is beta, which RMS norm has not: 0.
    pub gamma: Vec<f32>,
    pub beta: Vec<f32>,
}

/// What an operator computes, by name; the tensor of src's size is the first.
pub type Results = Vec<(&'static str, Vec<f32>)>;

impl Tensors {
    /// Numbers that look random and are the same everywhere; those of src are between -0.5 and 1.5, with `mean` added.
    pub fn new(case: &Case, mean: f32) -> Self {
        let mut state = 1_u64;
        let mut random = |count: usize, low: f32, high: f32| -> Vec<f32> {
            let mut next = || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f32 / (1_u32 << 24) as f32 // in [0, 1)
            };
            (0..count).map(|_| low + (high - low) * next()).collect()
        };
        let [_, channels, _] = case.grid;
        let src = random(case.elements(), mean - 0.5, mean + 1.5);
        let diff_dst = match case.is_gradient() {
            true => random(case.elements(), -1.0, 1.0),
            false => Vec::new(),
        };
        let gamma = random(channels, 0.5, 1.5);
        let beta = match case.centers() {
            true => random(channels, -1.0, 1.0),
            false => vec![0.0; channels],
        };
        let residual = match case.has_residual() {
            true => random(case.elements(), -1.0, 1.0),
            false => Vec::new(),
        };
        let sum: Vec<f32> = src.iter().zip(&residual).map(|(a, b)| a + b).collect();
        let x = match case.has_residual() {
            true => &sum,
            false => &src,
        };
        // Two passes in f64: statistics must not be anybody's weak point.
        let mean = subtracted(case, |i| f64::from(x[i]));
        let variance = averages(case, |i| (f64::from(x[i]) - mean[case.group(i)]).powi(2));
        Self {
            mean: narrow(&mean),
            variance: narrow(&variance),
            diff_dst,
            gamma,
            beta,
            residual,
            sum,
            src,
        }
    }

    /// One that an operation reads, or a sum or statistics that it writes.
    pub fn of(&self, tensor: Tensor) -> &[f32] {
        match tensor {
            Tensor::Src => &self.src,
            Tensor::Residual => &self.residual,
            Tensor::Sum => &self.sum,
            Tensor::DiffDst => &self.diff_dst,
            Tensor::Mean => &self.mean,
            Tensor::Variance | Tensor::MeanSquare => &self.variance,
            Tensor::Gamma => &self.gamma,
            Tensor::Beta => &self.beta,
            _ => &[],
        }
    }

    /// The results by their definition, in f64 until they are done.
    pub fn reference(&self, case: &Case) -> Results {
        let scale = |&variance: &f32| (f64::from(variance) + EPSILON).sqrt().recip();
        let scale: Vec<f64> = self.variance.iter().map(scale).collect();
        let x = match case.has_residual() {
            true => &self.sum,
            false => &self.src,
        };
        let normalized = |i: usize| {
            let group = case.group(i);
            (f64::from(x[i]) - f64::from(self.mean[group])) * scale[group]
        };
        if case.is_gradient() {
            return self.gradients(case, &scale, normalized);
        }
        let dst = |i: usize| {
            let channel = case.channel(i);
            normalized(i) * f64::from(self.gamma[channel]) + f64::from(self.beta[channel])
        };
        let dst = (0..case.elements()).map(|i| dst(i) as f32).collect();
        let mut results = vec![("dst", dst)];
        let others = case.outputs().filter(|used| used.tensor != Tensor::Dst);
        results.extend(others.map(|used| (used.tensor.name(), self.of(used.tensor).to_vec())));
        results
    }

    fn gradients(&self, case: &Case, scale: &[f64], normalized: impl Fn(usize) -> f64) -> Results {
        let diff_dst = |i: usize| f64::from(self.diff_dst[i]);
        let scaled = |i: usize| diff_dst(i) * f64::from(self.gamma[case.channel(i)]);
        let offset = subtracted(case, scaled);
        let slope = averages(case, |i| scaled(i) * normalized(i));
        let diff_src = |i: usize| {
            let group = case.group(i);
            scale[group] * (scaled(i) - offset[group] - normalized(i) * slope[group])
        };
        let diff_src = (0..case.elements()).map(|i| diff_src(i) as f32).collect();
        let mut diff_gamma = vec![0.0; self.gamma.len()];
        let mut diff_beta = vec![0.0; self.beta.len()];
        for i in 0..case.elements() {
            diff_gamma[case.channel(i)] += diff_dst(i) * normalized(i);
            diff_beta[case.channel(i)] += diff_dst(i);
        }
        let mut results = vec![("diff_src", diff_src), ("diff_gamma", narrow(&diff_gamma))];
        if case.centers() {
            results.push(("diff_beta", narrow(&diff_beta)));
        }
        results
    }
}

/// The average over each group of a value of every element.
fn averages(case: &Case, value: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut sums = vec![0.0; case.group_count];
    for i in 0..case.elements() {
        sums[case.group(i)] += value(i);
    }
    let count = (case.elements() / sums.len()) as f64;
    sums.iter().map(|sum| sum / count).collect()
}

/// The same where the operator subtracts it, else 0.
fn subtracted(case: &Case, value: impl Fn(usize) -> f64) -> Vec<f64> {
    match case.centers() {
        true => averages(case, value),
        false => vec![0.0; case.group_count],
    }
}

fn narrow(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&x| x as f32).collect()
}
