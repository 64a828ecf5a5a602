//! The other layers, in plain loops. Matrices are row-major, with one row per image.

use crate::data::{PIXELS, SIDE};
use wgpu_norm_verify::Random;

const RATE: f32 = 0.05;
const MOMENTUM: f32 = 0.9;

/// A parameter, and the running sum of its gradients.
pub struct Param {
    pub value: Vec<f32>,
    velocity: Vec<f32>,
}

impl Param {
    pub fn new(value: Vec<f32>) -> Self {
        let velocity = vec![0.0; value.len()];
        Self { value, velocity }
    }

    /// Random weights, of a size that suits a ReLU after sums of this many terms.
    fn random(len: usize, terms: usize, random: &mut Random) -> Self {
        let limit = (6.0 / terms as f64).sqrt();
        Self::new(random.vec(len, limit, 0.0))
    }

    pub fn learn(&mut self, diff: &[f32]) {
        descend(&mut self.value, &mut self.velocity, diff);
    }
}

/// Stochastic gradient descent with momentum.
pub fn descend(values: &mut [f32], velocity: &mut [f32], diff: &[f32]) {
    for ((value, velocity), diff) in values.iter_mut().zip(velocity).zip(diff) {
        *velocity = MOMENTUM * *velocity + diff;
        *value -= RATE * *velocity;
    }
}

/// A 3×3 convolution of images with one channel, with padding 1. It has no bias, which batch norm would subtract again.
pub struct Convolution {
    pub weight: Param,
    channels: usize,
    terms: Vec<Term>,
}

/// A pixel of the output, a pixel that it depends on, and the weight between them.
struct Term {
    dst: usize,
    src: usize,
    weight: usize,
}

const TAPS: usize = 9;

impl Convolution {
    pub fn new(channels: usize, random: &mut Random) -> Self {
        let mut terms = Vec::new();
        for (y, x) in (0..SIDE).flat_map(|y| (0..SIDE).map(move |x| (y, x))) {
            for weight in 0..TAPS {
                // Shifted by one to the right and down, so that nothing is negative; pixels outside the image are 0.
                let (src_y, src_x) = (y + weight / 3, x + weight % 3);
                if (1..=SIDE).contains(&src_y) && (1..=SIDE).contains(&src_x) {
                    terms.push(Term {
                        dst: y * SIDE + x,
                        src: (src_y - 1) * SIDE + (src_x - 1),
                        weight,
                    });
                }
            }
        }
        Self {
            weight: Param::random(channels * TAPS, TAPS, random),
            channels,
            terms,
        }
    }

    pub fn forward(&self, images: &[f32]) -> Vec<f32> {
        let mut dst = vec![0.0; images.len() * self.channels];
        let outputs = dst.chunks_exact_mut(self.channels * PIXELS);
        for (src, dst) in images.chunks_exact(PIXELS).zip(outputs) {
            let weights = self.weight.value.chunks_exact(TAPS);
            for (dst, weight) in dst.chunks_exact_mut(PIXELS).zip(weights) {
                for term in &self.terms {
                    dst[term.dst] += weight[term.weight] * src[term.src];
                }
            }
        }
        dst
    }

    /// The weight's gradient; that of the images is not needed.
    pub fn backward(&self, images: &[f32], diff_dst: &[f32]) -> Vec<f32> {
        let mut diff = vec![0.0; self.weight.value.len()];
        let outputs = diff_dst.chunks_exact(self.channels * PIXELS);
        for (src, diff_dst) in images.chunks_exact(PIXELS).zip(outputs) {
            let weights = diff.chunks_exact_mut(TAPS);
            for (diff_dst, diff) in diff_dst.chunks_exact(PIXELS).zip(weights) {
                for term in &self.terms {
                    diff[term.weight] += diff_dst[term.dst] * src[term.src];
                }
            }
        }
        diff
    }
}

/// dst = src · weight + bias.
pub struct Dense {
    pub weight: Param,
    pub bias: Param,
}

pub struct DenseGrads {
    pub diff_src: Vec<f32>,
    diff_weight: Vec<f32>,
    diff_bias: Vec<f32>,
}

impl Dense {
    pub fn new(inputs: usize, outputs: usize, random: &mut Random) -> Self {
        Self {
            weight: Param::random(inputs * outputs, inputs, random),
            bias: Param::new(vec![0.0; outputs]),
        }
    }

    pub fn forward(&self, src: &[f32]) -> Vec<f32> {
        let (inputs, outputs) = self.shape();
        let mut all = Vec::new();
        for src in src.chunks_exact(inputs) {
            let mut dst = self.bias.value.clone();
            for (src, weights) in src.iter().zip(self.weight.value.chunks_exact(outputs)) {
                for (dst, weight) in dst.iter_mut().zip(weights) {
                    *dst += src * weight;
                }
            }
            all.extend(dst);
        }
        all
    }

    pub fn backward(&self, src: &[f32], diff_dst: &[f32]) -> DenseGrads {
        let (inputs, outputs) = self.shape();
        let mut diff_src = Vec::new();
        let mut diff_weight = vec![0.0; inputs * outputs];
        let mut diff_bias = vec![0.0; outputs];
        let rows = src.chunks_exact(inputs);
        for (src, diff_dst) in rows.zip(diff_dst.chunks_exact(outputs)) {
            for (bias, diff_dst) in diff_bias.iter_mut().zip(diff_dst) {
                *bias += diff_dst;
            }
            for (src, diff) in src.iter().zip(diff_weight.chunks_exact_mut(outputs)) {
                for (diff, diff_dst) in diff.iter_mut().zip(diff_dst) {
                    *diff += src * diff_dst;
                }
            }
            diff_src.extend(self.weight.value.chunks_exact(outputs).map(|weights| {
                let products = weights.iter().zip(diff_dst).map(|(a, b)| a * b);
                products.sum::<f32>()
            }));
        }
        DenseGrads {
            diff_src,
            diff_weight,
            diff_bias,
        }
    }

    pub fn learn(&mut self, grads: &DenseGrads) {
        self.weight.learn(&grads.diff_weight);
        self.bias.learn(&grads.diff_bias);
    }

    /// The number of inputs and outputs.
    fn shape(&self) -> (usize, usize) {
        let outputs = self.bias.value.len();
        (self.weight.value.len() / outputs, outputs)
    }
}

pub fn relu(src: &[f32]) -> Vec<f32> {
    src.iter().map(|x| x.max(0.0)).collect()
}

pub fn relu_backward(src: &[f32], diff_dst: &[f32]) -> Vec<f32> {
    let pairs = src.iter().zip(diff_dst);
    pairs
        .map(|(&x, &d)| if x > 0.0 { d } else { 0.0 })
        .collect()
}

pub fn sum(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

/// Softmax and cross entropy: the mean loss, and the gradient with respect to the logits.
pub fn cross_entropy(logits: &[f32], labels: &[usize]) -> (f32, Vec<f32>) {
    let images = labels.len() as f32;
    let mut loss = 0.0;
    let mut diff = Vec::new();
    let rows = logits.chunks_exact(logits.len() / labels.len());
    for (logits, &label) in rows.zip(labels) {
        let largest = logits[largest(logits)]; // subtracted, so that no power overflows
        let total: f32 = logits.iter().map(|x| (x - largest).exp()).sum();
        loss += (total.ln() + largest - logits[label]) / images;
        for (class, x) in logits.iter().enumerate() {
            let probability = (x - largest).exp() / total;
            let target = if class == label { 1.0 } else { 0.0 };
            diff.push((probability - target) / images);
        }
    }
    (loss, diff)
}

/// The index of the largest number.
pub fn largest(row: &[f32]) -> usize {
    let pairs = row.iter().enumerate();
    let largest = pairs.max_by(|a, b| a.1.total_cmp(b.1));
    largest.map_or(0, |(place, _)| place)
}
