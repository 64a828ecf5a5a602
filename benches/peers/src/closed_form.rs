//! The closed forms, composed of Burn's tensor operations as well as they can be: nothing is permuted
//! or copied, nothing is computed twice.

use crate::Result;
use crate::burn_peers::{read, sync};
use crate::case::{Case, EPSILON, Groups};
use crate::gpu::Gpu;
use crate::measure::{Contender, clock};
use crate::peer::Peer;
use crate::tensors::Tensors;
use burn::tensor::{Device, Tensor, TensorData};
use std::time::Duration;
use wgpu_norm::{Norm, Pass};

/// Tensors are (outer, channels, inner), or (1, outer, channels) where batch, layer or RMS norm has no inner axis: Burn
/// loads vectors along the last axis.
pub struct ClosedForm {
    device: Device,
    /// The results in the order of [`Results`](crate::tensors::Results).
    run: fn(&Self, usize) -> Vec<Tensor<3>>,
    grid: [usize; 3],
    /// Of a sample's channels.
    groups: usize,
    src: Vec<Tensor<3>>,
    /// Of a gradient.
    diff_dst: Vec<Tensor<3>>,
    mean: Tensor<3>,
    variance: Tensor<3>,
    gamma: Tensor<3>,
    beta: Tensor<3>,
}

impl ClosedForm {
    /// Where there is one.
    pub fn new(gpu: &Gpu, case: &Case, tensors: &Tensors) -> Option<Self> {
        let run = match (&case.operation.norm, &case.operation.pass) {
            _ if case.has_residual() => return None,
            (Norm::Batch(_), Pass::Backward(_)) => Self::batch_norm,
            (Norm::Batch(_), Pass::Forward(_)) => Self::batch_norm_forward,
            (Norm::Batch(_), Pass::Inference) => Self::batch_norm_inference,
            (Norm::Layer { .. }, Pass::Backward(_)) => Self::layer_norm,
            (Norm::Layer { .. }, Pass::Forward(_)) => Self::layer_norm_forward,
            (Norm::Rms { .. }, Pass::Backward(_)) => Self::rms_norm,
            (Norm::Rms { .. }, Pass::Forward(_)) => Self::rms_norm_forward,
            (Norm::Group { .. } | Norm::Instance { .. }, Pass::Backward(_)) => Self::group_norm,
            (Norm::Group { .. } | Norm::Instance { .. }, Pass::Forward(_)) => {
                Self::group_norm_forward
            }
            _ => return None,
        };
        let device = gpu.burn_device();
        let upload = |values: &[f32], shape: [usize; 3]| {
            Tensor::<3>::from_data(TensorData::new(values.to_vec(), shape), &device)
        };
        let grid = case.grid;
        let [outer, count, inner] = grid;
        let groups = case.channel_groups();
        let (shape, channels) = match (case.groups, inner) {
            (Groups::OfSamples, _) => (grid, [1, groups, count / groups]),
            (_, 1) => ([1, outer, count], [1, 1, count]),
            _ => (grid, [1, count, 1]),
        };
        let statistics = match case.groups {
            Groups::Channels => channels,
            Groups::Rows => [1, outer, 1],
            Groups::OfSamples => [outer, groups, 1],
        };
        let whole = |values: &[f32]| match values {
            [] => Vec::new(),
            _ => (0..case.sets()).map(|_| upload(values, shape)).collect(),
        };
        Some(Self {
            run,
            src: whole(&tensors.src),
            diff_dst: whole(&tensors.diff_dst),
            mean: upload(&tensors.mean, statistics),
            variance: upload(&tensors.variance, statistics),
            gamma: upload(&tensors.gamma, channels),
            beta: upload(&tensors.beta, channels),
            grid,
            groups,
            device,
        })
    }

    fn batch_norm(&self, set: usize) -> Vec<Tensor<3>> {
        let (src, diff_dst) = (self.src[set].clone(), self.diff_dst[set].clone());
        // The scale is one of the channel, so that it waits until the sums are done.
        let scale = scale(self.variance.clone());
        let centered = src - self.mean.clone();
        let diff_beta = self.channel_sum(diff_dst.clone());
        let product = self.channel_sum(diff_dst.clone() * centered.clone());
        let slope = product.clone() * scale.clone() * scale.clone() / self.channel_count();
        let offset = diff_beta.clone() / self.channel_count();
        let diff_src =
            (diff_dst - offset - centered * slope) * (self.gamma.clone() * scale.clone());
        vec![diff_src, product * scale, diff_beta]
    }

    fn layer_norm(&self, set: usize) -> Vec<Tensor<3>> {
        let (src, diff_dst) = (self.src[set].clone(), self.diff_dst[set].clone());
        let scale = scale(self.variance.clone());
        let normalized = (src - self.mean.clone()) * scale.clone();
        let diff_beta = sum_middle(diff_dst.clone());
        let diff_gamma = sum_middle(diff_dst.clone() * normalized.clone());
        let scaled = diff_dst * self.gamma.clone();
        let offset = scaled.clone().mean_dim(2);
        let slope = (scaled.clone() * normalized.clone()).mean_dim(2);
        let diff_src = (scaled - offset - normalized * slope) * scale;
        vec![diff_src, diff_gamma, diff_beta]
    }

    fn rms_norm(&self, set: usize) -> Vec<Tensor<3>> {
        let (src, diff_dst) = (self.src[set].clone(), self.diff_dst[set].clone());
        let scale = scale(self.variance.clone());
        let normalized = src * scale.clone();
        let diff_gamma = sum_middle(diff_dst.clone() * normalized.clone());
        let scaled = diff_dst * self.gamma.clone();
        let slope = (scaled.clone() * normalized.clone()).mean_dim(2);
        let diff_src = (scaled - normalized * slope) * scale;
        vec![diff_src, diff_gamma]
    }

    fn batch_norm_forward(&self, set: usize) -> Vec<Tensor<3>> {
        let src = self.src[set].clone();
        let mean = self.channel_sum(src.clone()) / self.channel_count();
        let centered = src - mean.clone();
        let variance = self.channel_sum(square(&centered)) / self.channel_count();
        let dst = centered * (self.gamma.clone() * scale(variance.clone())) + self.beta.clone();
        vec![dst, mean, variance]
    }

    fn batch_norm_inference(&self, set: usize) -> Vec<Tensor<3>> {
        let src = self.src[set].clone();
        let scale = self.gamma.clone() * scale(self.variance.clone());
        let shift = self.beta.clone() - self.mean.clone() * scale.clone();
        vec![src * scale + shift]
    }

    fn layer_norm_forward(&self, set: usize) -> Vec<Tensor<3>> {
        let src = self.src[set].clone();
        let mean = src.clone().mean_dim(2);
        let centered = src - mean.clone();
        let variance = square(&centered).mean_dim(2);
        let dst = centered * scale(variance.clone()) * self.gamma.clone() + self.beta.clone();
        vec![dst, mean, variance]
    }

    fn rms_norm_forward(&self, set: usize) -> Vec<Tensor<3>> {
        let src = self.src[set].clone();
        let mean_square = square(&src).mean_dim(2);
        let dst = src * scale(mean_square.clone()) * self.gamma.clone();
        vec![dst, mean_square]
    }

    fn group_norm(&self, set: usize) -> Vec<Tensor<3>> {
        let (src, diff_dst) = (self.src[set].clone(), self.diff_dst[set].clone());
        let scale = scale(self.variance.clone());
        let centered = self.by_group(src) - self.mean.clone();
        let sums = sum_last(diff_dst.clone());
        let products = sum_last(diff_dst.clone() * self.by_channel(centered.clone()));
        let (sums, products) = (self.channels_of(sums), self.channels_of(products));
        // Small tensors, until diff_src.
        let scaled = |values: &Tensor<3>| (values.clone() * self.gamma.clone()).sum_dim(2);
        let count = self.group_elements();
        let offset = scaled(&sums) * scale.clone() / count;
        let slope = scaled(&products) * scale.clone().powi_scalar(3) / count;
        let factor = self.by_channel_of(self.gamma.clone() * scale.clone());
        let diff_gamma = (products * scale).sum_dim(0);
        let diff_beta = sums.sum_dim(0);
        let subtracted = self.by_channel(centered * slope + offset);
        let diff_src = diff_dst * factor - subtracted;
        vec![diff_src, diff_gamma, diff_beta]
    }

    fn group_norm_forward(&self, set: usize) -> Vec<Tensor<3>> {
        let src = self.by_group(self.src[set].clone());
        let mean = sum_last(src.clone()) / self.group_elements();
        let centered = src - mean.clone();
        let variance = sum_last(square(&centered)) / self.group_elements();
        let factor = self.by_channel_of(self.gamma.clone() * scale(variance.clone()));
        let beta = self.beta.clone().reshape([1, self.grid[1], 1]);
        let dst = self.by_channel(centered) * factor + beta;
        vec![dst, mean, variance]
    }

    /// (samples, groups, elements of a group).
    fn by_group(&self, tensor: Tensor<3>) -> Tensor<3> {
        let [samples, channels, inner] = self.grid;
        tensor.reshape([samples, self.groups, channels / self.groups * inner])
    }

    /// (samples, channels, inner).
    fn by_channel(&self, tensor: Tensor<3>) -> Tensor<3> {
        tensor.reshape(self.grid)
    }

    /// A value of each sample's channels as (samples, groups, channels of a group), as gamma and beta are.
    fn channels_of(&self, tensor: Tensor<3>) -> Tensor<3> {
        let [samples, channels, _] = self.grid;
        tensor.reshape([samples, self.groups, channels / self.groups])
    }

    /// The same as (samples, channels, 1).
    fn by_channel_of(&self, tensor: Tensor<3>) -> Tensor<3> {
        let [samples, channels, _] = self.grid;
        tensor.reshape([samples, channels, 1])
    }

    fn group_elements(&self) -> f64 {
        let [_, channels, inner] = self.grid;
        (channels / self.groups * inner) as f64
    }

    fn channel_sum(&self, tensor: Tensor<3>) -> Tensor<3> {
        match self.grid {
            [_, _, 1] => sum_middle(tensor),
            _ => sum_last(tensor).sum_dim(0),
        }
    }

    fn channel_count(&self) -> f64 {
        let [outer, _, inner] = self.grid;
        (outer * inner) as f64
    }
}

fn scale(variance: Tensor<3>) -> Tensor<3> {
    (variance + EPSILON).sqrt().recip()
}

fn square(tensor: &Tensor<3>) -> Tensor<3> {
    tensor.clone() * tensor.clone()
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

    fn results(&self) -> Result<Vec<Vec<f32>>> {
        (self.run)(self, 0).into_iter().map(read).collect()
    }

    fn time(&self, set: usize) -> Result<Duration> {
        clock(|| Ok((self.run)(self, set)), || sync(&self.device))
    }
}
