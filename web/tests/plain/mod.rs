//! The network's forward pass in plain float64. Gradients follow from it: of a linear map by its values at unit
//! vectors, and of the whole network by finite differences.

use wgpu_norm_page::digits::layers::Shape;
use wgpu_norm_page::digits::network::{CLASSES, FIRST, SECOND};

pub fn convolution(shape: Shape, src: &[f64], weight: &[f64]) -> Vec<f64> {
    let Shape {
        src_channels,
        src_side,
        stride,
        ..
    } = shape;
    let dst_side = shape.dst_side();
    let mut dst = Vec::new();
    for image in src.chunks_exact(src_channels * src_side * src_side) {
        for weight in weight.chunks_exact(src_channels * 9) {
            for (y, x) in (0..dst_side).flat_map(|y| (0..dst_side).map(move |x| (y, x))) {
                let mut sum = 0.0;
                for (at, weight) in weight.iter().enumerate() {
                    let (c, i, j) = (at / 9, at / 3 % 3, at % 3);
                    // One more than in src, so that nothing is negative.
                    let (src_y, src_x) = (y * stride + i, x * stride + j);
                    if (1..=src_side).contains(&src_y) && (1..=src_side).contains(&src_x) {
                        sum += weight * image[(c * src_side + src_y - 1) * src_side + src_x - 1];
                    }
                }
                dst.push(sum);
            }
        }
    }
    dst
}

/// `area` is the number of elements of a channel of an image.
pub fn bias_relu(area: usize, src: &[f64], bias: &[f64]) -> Vec<f64> {
    let elements = src.iter().enumerate();
    elements
        .map(|(at, src)| (src + bias[at / area % bias.len()]).max(0.0))
        .collect()
}

/// The mean and the variance of each channel.
pub type Statistics = Vec<[f64; 2]>;

pub fn statistics(channels: usize, area: usize, src: &[f64]) -> Statistics {
    let of = |channel| {
        let elements = src.chunks_exact(area).skip(channel).step_by(channels);
        let elements: Vec<f64> = elements.flatten().copied().collect();
        let count = elements.len() as f64;
        let mean = elements.iter().sum::<f64>() / count;
        let squares = elements.iter().map(|element| (element - mean).powi(2));
        [mean, squares.sum::<f64>() / count]
    };
    (0..channels).map(of).collect()
}

/// A norm by these statistics, and ReLU.
pub fn norm_relu(
    area: usize,
    src: &[f64],
    statistics: &Statistics,
    gamma: &[f64],
    beta: &[f64],
) -> Vec<f64> {
    let elements = src.iter().enumerate();
    let normalized = elements.map(|(at, src)| {
        let channel = at / area % gamma.len();
        let [mean, variance] = statistics[channel];
        gamma[channel] * (src - mean) / (variance + 1e-5).sqrt() + beta[channel]
    });
    normalized.map(|dst| dst.max(0.0)).collect()
}

pub fn dense(src: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
    let inputs = weight.len() / bias.len();
    let mut dst = Vec::new();
    for src in src.chunks_exact(inputs) {
        for (weight, bias) in weight.chunks_exact(inputs).zip(bias) {
            let products = src.iter().zip(weight).map(|(a, b)| a * b);
            dst.push(bias + products.sum::<f64>());
        }
    }
    dst
}

/// The loss of each image.
pub fn cross_entropy(logits: &[f64], labels: &[u32]) -> Vec<f64> {
    let images = logits.chunks_exact(CLASSES).zip(labels);
    images
        .map(|(logits, &label)| {
            let total: f64 = logits.iter().map(|logit| logit.exp()).sum();
            total.ln() - logits[label as usize]
        })
        .collect()
}

/// The network's logits, and the statistics that its norms use: the given ones, or those of this batch. The parameters
/// are in the order of `Network::params`.
pub fn logits(
    norms: bool,
    given: Option<&[Statistics; 2]>,
    params: &[Vec<f64>],
    images: &[f64],
) -> (Vec<f64>, [Statistics; 2]) {
    let mut params = params.iter();
    let mut next = || params.next().expect("a parameter");
    let mut active = images.to_vec();
    let used = [(0, FIRST), (1, SECOND)].map(|(block, shape)| {
        let (channels, area) = (shape.dst_channels, shape.dst_side() * shape.dst_side());
        let convolved = convolution(shape, &active, next());
        let statistics = match given {
            Some(given) => given[block].clone(),
            None => statistics(channels, area, &convolved),
        };
        active = match norms {
            true => norm_relu(area, &convolved, &statistics, next(), next()),
            false => bias_relu(area, &convolved, next()),
        };
        statistics
    });
    (dense(&active, next(), next()), used)
}

/// The mean loss of a batch in training.
pub fn loss(norms: bool, params: &[Vec<f64>], images: &[f64], labels: &[u32]) -> f64 {
    let losses = cross_entropy(&logits(norms, None, params, images).0, labels);
    losses.iter().sum::<f64>() / labels.len() as f64
}

/// The gradient with respect to the `len` arguments of a linear map, from that of its results.
pub fn gradient(len: usize, diff_dst: &[f64], map: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    let mut unit = vec![0.0; len];
    let mut gradient = Vec::new();
    for at in 0..len {
        unit[at] = 1.0;
        let terms = map(&unit).into_iter().zip(diff_dst).map(|(a, b)| a * b);
        gradient.push(terms.sum());
        unit[at] = 0.0;
    }
    gradient
}
