//! The closed forms, composed of Burn's tensor operations as well as they can be: nothing is permuted
//! or copied, nothing is computed twice.

use crate::Result;
use crate::burn_peers::{read, sync};
use crate::case::{Case, EPSILON, Op, Tensors};
use crate::gpu::Gpu;
use crate::measure::{Contender, Gradients, Peer};
use burn::tensor::{Device, Tensor, TensorData};
use std::time::{Duration, Instant};

/// Tensors are (outer, channels, inner), or (1, outer, channels) where there is no inner axis: Burn
/// loads vectors along the last axis.
pub struct ClosedForm {
    device: Device,
    op: Op,
    grid: [usize; 3],
    sets: Vec<(Tensor<3>, Tensor<3>)>,
    mean: Tensor<3>,
    variance: Tensor<3>,
    gamma: Tensor<3>,
    next: usize,
}

impl ClosedForm {
    pub fn new(gpu: &Gpu, case: &Case, tensors: &Tensors) -> Self {
        let device = gpu.burn_device();
        let upload = |values: &[f32], shape: [usize; 3]| {
            Tensor::<3>::from_data(TensorData::new(values.to_vec(), shape), &device)
        };
        let grid = case.grid();
        let [outer, count, inner] = grid;
        let (shape, channels) = match inner {
            1 => ([1, outer, count], [1, 1, count]),
            _ => (grid, [1, count, 1]),
        };
        let statistics = match case.op {
            Op::BatchNorm => channels,
            Op::LayerNorm => [1, outer, 1],
        };
        let set = |_| {
            (
                upload(&tensors.src, shape),
                upload(&tensors.diff_dst, shape),
            )
        };
        Self {
            sets: (0..case.sets()).map(set).collect(),
            mean: upload(&tensors.mean, statistics),
            variance: upload(&tensors.variance, statistics),
            gamma: upload(&tensors.gamma, channels),
            op: case.op,
            grid,
            device,
            next: 0,
        }
    }

    /// diff_src, diff_gamma and diff_beta.
    fn backward(&self, set: usize) -> [Tensor<3>; 3] {
        let (src, diff_dst) = self.sets[set].clone();
        let (mean, gamma) = (self.mean.clone(), self.gamma.clone());
        let scale = (self.variance.clone() + EPSILON).sqrt().recip();
        match self.op {
            Op::BatchNorm => self.batch_norm(src, diff_dst, mean, scale, gamma),
            Op::LayerNorm => layer_norm(src, diff_dst, mean, scale, gamma),
        }
    }

    fn batch_norm(
        &self,
        src: Tensor<3>,
        diff_dst: Tensor<3>,
        mean: Tensor<3>,
        scale: Tensor<3>,
        gamma: Tensor<3>,
    ) -> [Tensor<3>; 3] {
        let [outer, _, inner] = self.grid;
        let count = (outer * inner) as f64;
        let sum = |tensor: Tensor<3>| match inner {
            1 => sum_middle(tensor),
            _ => sum_last(tensor).sum_dim(0),
        };
        // The scale is one of the channel, so that it waits until the sums are done.
        let centered = src - mean;
        let diff_beta = sum(diff_dst.clone());
        let product = sum(diff_dst.clone() * centered.clone());
        let slope = product.clone() * scale.clone() * scale.clone() / count;
        let offset = diff_beta.clone() / count;
        let diff_src = (diff_dst - offset - centered * slope) * (gamma * scale.clone());
        [diff_src, product * scale, diff_beta]
    }
}

fn layer_norm(
    src: Tensor<3>,
    diff_dst: Tensor<3>,
    mean: Tensor<3>,
    scale: Tensor<3>,
    gamma: Tensor<3>,
) -> [Tensor<3>; 3] {
    let normalized = (src - mean) * scale.clone();
    let diff_beta = sum_middle(diff_dst.clone());
    let diff_gamma = sum_middle(diff_dst.clone() * normalized.clone());
    let scaled = diff_dst * gamma;
    let offset = scaled.clone().mean_dim(2);
    let slope = (scaled.clone() * normalized.clone()).mean_dim(2);
    let diff_src = (scaled - offset - normalized * slope) * scale;
    [diff_src, diff_gamma, diff_beta]
}

/// The sum along the last axis. A long one goes in two steps: Burn gives few long sums to few
/// invocations, and a loop of more than 65,535 turns ends early on the software driver llvmpipe.
fn sum_last(tensor: Tensor<3>) -> Tensor<3> {
    let [outer, middle, length] = tensor.dims();
    let Some(part) = part(length) else {
        return tensor.sum_dim(2);
    };
    let parts = tensor.reshape([outer * middle, length / part, part]);
    let sums = parts.sum_dim(2).reshape([outer, middle, length / part]);
    sums.sum_dim(2)
}

/// The same along the middle axis, where the outer one is 1.
fn sum_middle(tensor: Tensor<3>) -> Tensor<3> {
    let [_, length, columns] = tensor.dims();
    let Some(part) = part(length) else {
        return tensor.sum_dim(1);
    };
    let parts = tensor.reshape([length / part, part, columns]);
    parts.sum_dim(1).sum_dim(0)
}

/// The length of the first step's sums, where two steps are wanted and the length has a divisor for it.
fn part(length: usize) -> Option<usize> {
    const LONG: usize = 4096;
    let divides = |part: &usize| length.is_multiple_of(*part) && part * LONG >= length;
    match length {
        0..=LONG => None,
        _ => (1..=LONG).rev().find(divides),
    }
}

impl Contender for ClosedForm {
    fn peer(&self) -> Peer {
        Peer::Burn
    }

    fn name(&self) -> &'static str {
        "closed form"
    }

    fn gradients(&mut self) -> Result<Gradients> {
        let [diff_src, diff_gamma, diff_beta] = self.backward(0);
        Ok(Gradients {
            diff_src: read(diff_src)?,
            diff_gamma: read(diff_gamma)?,
            diff_beta: read(diff_beta)?,
        })
    }

    fn time(&mut self) -> Result<Duration> {
        let set = self.next;
        self.next = (set + 1) % self.sets.len();
        let start = Instant::now();
        let gradients = self.backward(set);
        sync(&self.device)?;
        let time = start.elapsed();
        drop(gradients);
        Ok(time)
    }
}
