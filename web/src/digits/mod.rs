//! What norms are good for: a small network learns handwritten digits on the GPU, and beside it the same network
//! without norms, from the same weights, on the same batches.
//!
//! wgpu-norm computes batch norm: in training, backward, and by running statistics. Kernels of this folder compute the
//! rest. Buffers stay on the GPU; a step uploads its batch, submits once, and reads back the losses.
//!
//! Read `network.rs`, then `batch_norm.rs`.

mod batch_norm;
mod batches;
#[path = "../../../examples/digits/data.rs"]
mod data;
#[doc(hidden)]
pub mod kernel;
#[doc(hidden)]
pub mod layers;
#[doc(hidden)]
pub mod network;
#[doc(hidden)]
pub mod param;

use batches::Batches;
use data::{Digits, PIXELS};
use kernel::{Kernels, record};
use network::{CLASSES, Network, Program, Weights};
use param::{upload, zeros};
use std::ops::RangeInclusive;
use wgpu_norm::wgpu::Buffer;
use wgpu_norm::{Error, GpuContext, bytemuck};
use wgpu_norm_verify::Random;

/// The images that are kept for the test, a fifth.
const TEST: usize = 360;
const BATCHES: RangeInclusive<usize> = 8..=256;

/// How to train.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Determines the test images, the initial weights, and the order of the batches.
    pub seed: u64,
    /// The learning rate.
    pub rate: f32,
    /// The number of images in a batch, from 8 to 256.
    pub batch: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 1,
            rate: 0.05,
            batch: 64,
        }
    }
}

/// The result of a step. Of two results, the first belongs to the network with norms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The number of steps so far.
    pub step: u64,
    /// The number of epochs so far.
    pub epoch: f64,
    /// The mean loss of the batch, before the networks learnt from it; NaN if a network has diverged.
    pub loss: [f32; 2],
}

/// Two networks that learn, one with norms and one without.
pub struct Training {
    gpu: GpuContext,
    rate: Buffer,
    batches: Batches,
    step: u64,
    images: Buffer,
    labels: Buffer,
    training: [Program; 2],
    test_labels: Vec<usize>,
    test: [Program; 2],
    drawing: Buffer,
    guess: [Program; 2],
}

impl Training {
    /// Networks that have learnt nothing. Compiles all kernels.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for a batch size out of range, and errors of the GPU.
    pub fn new(gpu: &GpuContext, settings: Settings) -> Result<Self, Error> {
        let Settings { seed, rate, batch } = settings;
        if !BATCHES.contains(&batch) {
            return Err(Error::argument("batch", "from 8 to 256 images", batch));
        }
        let mut random = Random::new(seed);
        let (train, test) = Digits::all().split(TEST, &mut random);
        let weights = Weights::random(&mut random);

        let kernels = Kernels::new(gpu);
        let with_norms = Network::new(&kernels, &weights, true)?;
        let without_norms = Network::new(&kernels, &weights, false)?;

        let rate = upload(gpu, "rate", &[rate])?;
        let images = zeros(gpu, "images", batch * PIXELS)?;
        let labels = zeros(gpu, "labels", batch)?;
        let training = |network: &Network| network.training(&kernels, &rate, &images, &labels);
        let inference = |images| -> Result<_, Error> {
            Ok([
                with_norms.inference(&kernels, images)?,
                without_norms.inference(&kernels, images)?,
            ])
        };
        let drawing = zeros(gpu, "drawing", PIXELS)?;
        Ok(Self {
            training: [training(&with_norms)?, training(&without_norms)?],
            test: inference(&upload(gpu, "test images", &test.images)?)?,
            test_labels: test.labels,
            guess: inference(&drawing)?,
            gpu: gpu.clone(),
            batches: Batches::new(train, batch, random),
            step: 0,
            rate,
            images,
            labels,
            drawing,
        })
    }

    /// Sets the learning rate of the next steps.
    pub fn set_rate(&mut self, rate: f32) {
        let bytes = bytemuck::bytes_of(&rate);
        self.gpu.queue().write_buffer(&self.rate, 0, bytes);
    }

    /// Both networks learn from the next batch.
    ///
    /// # Errors
    ///
    /// Errors of the GPU.
    pub async fn step(&mut self) -> Result<Step, Error> {
        let batch = self.batches.next();
        let labels: Vec<u32> = batch.labels.iter().map(|&label| label as u32).collect();
        let queue = self.gpu.queue();
        queue.write_buffer(&self.images, 0, bytemuck::cast_slice(&batch.images));
        queue.write_buffer(&self.labels, 0, bytemuck::cast_slice(&labels));
        let losses = run(&self.gpu, &self.training).await?;
        self.step += 1;
        Ok(Step {
            step: self.step,
            epoch: self.step as f64 / self.batches.per_epoch() as f64,
            loss: losses.map(|losses| losses.iter().sum::<f32>() / losses.len() as f32),
        })
    }

    /// The percentage of the test images that each network recognizes: none once its numbers are NaN. Norms use their
    /// running statistics.
    ///
    /// # Errors
    ///
    /// Errors of the GPU.
    pub async fn accuracy(&self) -> Result<[f64; 2], Error> {
        let logits = run(&self.gpu, &self.test).await?;
        Ok(logits.map(|logits| {
            let guesses = logits.chunks_exact(CLASSES).map(largest);
            let pairs = guesses.zip(&self.test_labels);
            let right = pairs.filter(|(guess, label)| *guess == Some(**label));
            100.0 * right.count() as f64 / self.test_labels.len() as f64
        }))
    }

    /// The probability of each digit, as each network sees it, for an image of 8×8 pixels from 0 to 1, row by row; NaN
    /// if a network has diverged.
    ///
    /// # Errors
    ///
    /// Errors of the GPU.
    pub async fn guess(&self, pixels: &[f32; PIXELS]) -> Result<[[f32; CLASSES]; 2], Error> {
        let bytes = bytemuck::cast_slice(pixels);
        self.gpu.queue().write_buffer(&self.drawing, 0, bytes);
        let logits = run(&self.gpu, &self.guess).await?;
        Ok(logits.map(|logits| softmax(&logits)))
    }
}

/// Runs both networks' commands in one submission, and reads both results.
async fn run(gpu: &GpuContext, networks: &[Program; 2]) -> Result<[Vec<f32>; 2], Error> {
    let commands = networks.iter().flat_map(|network| &network.commands);
    let results = networks.each_ref().map(|network| network.result.clone());
    let read = gpu.submit_and_read(|encoder| record(encoder, commands), &results);
    let mut read = read.await?.into_iter();
    Ok(results.map(|_| bytemuck::pod_collect_to_vec(&read.next().unwrap_or_default())))
}

/// The class of the largest number; none if there are NaNs.
fn largest(logits: &[f32]) -> Option<usize> {
    let is_nan = logits.iter().any(|logit| logit.is_nan());
    let classes = logits.iter().enumerate().filter(|_| !is_nan);
    let largest = classes.max_by(|a, b| a.1.total_cmp(b.1))?;
    Some(largest.0)
}

/// Probabilities in proportion to the exponential functions of the logits.
fn softmax(logits: &[f32]) -> [f32; CLASSES] {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut powers = [0.0; CLASSES];
    for (power, logit) in powers.iter_mut().zip(logits) {
        *power = (logit - largest).exp(); // at most 1, so that none overflows
    }
    let total: f32 = powers.iter().sum();
    powers.map(|power| power / total)
}
