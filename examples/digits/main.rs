//! A small network learns handwritten digits. Its batch norm and its layer norm run on the GPU, forward and backward;
//! everything else is plain Rust.
//!
//! ```sh
//! cargo run --release --example digits                       # five epochs, seconds
//! cargo run --release --example digits -- --steps 20 out.svg # fewer steps, and the path of the picture
//! ```
//!
//! ```text
//! image 8×8 ─ convolution ─ BATCH NORM ─ ReLU ─ dense ─┬─ ReLU ─ dense ─ + ─ LAYER NORM ─ ReLU ─ dense ─ 10 classes
//!                16 channels                      64   └──────residual───┘
//! ```
//!
//! It shows:
//!
//! * A training step with `forward` and `backward` of [`GpuBatchNorm`](wgpu_norm::GpuBatchNorm) and
//!   [`GpuLayerNorm`](wgpu_norm::GpuLayerNorm): what one passes to the other, and where a residual goes.
//! * Running statistics: `forward` updates them, and `infer` uses them on images that were not trained on.
//! * How a network becomes one file of the format safetensors, and comes back.
//! * How to check a layer within a network: at some steps, everything that the norms computed is compared with the
//!   float64 reference. The example fails if anything exceeds the tolerance.
//!
//! Read `norms.rs`, then `step` below. `checks.rs` has the comparison, `plain.rs` the other layers, `data.rs` the
//! images, `plot.rs` the picture.
//!
//! Tensors are host slices here, so each call uploads and reads back. To keep a network on the GPU, see the example
//! `record`.

mod checks;
#[path = "../common/mod.rs"]
mod common;
mod data;
mod norms;
mod plain;
mod plot;

use checks::Errors;
use data::{Digits, PIXELS};
use norms::{BatchNorm, LayerNorm};
use plain::{Convolution, Dense};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use wgpu_norm::{GpuContext, Parameters};
use wgpu_norm_verify::Random;

const BATCH: usize = 64;
const TEST: usize = 360; // a fifth of the images
const CHANNELS: usize = 16;
const HIDDEN: usize = 64;
const CLASSES: usize = 10;
const EPOCHS: usize = 5;
/// A fixed seed: the same images in the same order on every machine.
const SEED: u64 = 1;

fn main() -> ExitCode {
    common::main(digits())
}

async fn digits() -> Result<(), Box<dyn Error>> {
    // 1. The images, and a GPU. Without an adapter the example ends here with an error.
    let mut random = Random::new(SEED);
    let (train, test) = Digits::all().split(TEST, &mut random);
    let per_epoch = train.len() / BATCH;
    let options = Options::parse(EPOCHS * per_epoch)?;
    let gpu = GpuContext::new().await?;
    let adapter = gpu.adapter_info().name;
    println!("norms run on {adapter}");
    println!(
        "{} images to train on, {} to test; {} steps of {BATCH} images, {per_epoch} an epoch",
        train.len(),
        test.len(),
        options.steps,
    );

    // 2. The network, and its guesses before it has learnt anything.
    let mut network = Network::new(&gpu, &mut random)?;
    let mut losses = Vec::new();
    let mut accuracies = vec![(0, network.infer(&test).await?.accuracy(&test))];
    let start = Instant::now();

    // 3. Train. The images are shuffled for each epoch; those that do not fill a batch are left out for an epoch.
    let mut order = Vec::new();
    for step in 1..=options.steps {
        let of_epoch = (step - 1) % per_epoch;
        if of_epoch == 0 {
            order = data::shuffled(train.len(), &mut random);
        }
        let batch = train.pick(&order[of_epoch * BATCH..][..BATCH]);
        let check = step == 1 || step % 50 == 0;
        let (loss, checks) = network.step(&batch, check).await?;
        losses.push((step, loss));
        for (layer, errors) in checks {
            println!("step {step:>3}: {layer} {}", errors.within_tolerance()?);
        }
        if step % 10 == 0 || step == options.steps {
            let accuracy = network.infer(&test).await?.accuracy(&test);
            accuracies.push((step, accuracy));
            println!("step {step:>3}: loss {loss:.3}, test accuracy {accuracy:.1} %");
        }
    }
    let seconds = start.elapsed().as_secs_f64();

    // 4. The forward pass with running statistics has a reference, too.
    let inference = network.infer(&test).await?;
    let Inference {
        convolved,
        normalized,
        ..
    } = &inference;
    let errors = checks::inference(&network.batch_norm, convolved, normalized)?;
    println!(
        "inference: batch norm with running statistics {}",
        errors.within_tolerance()?
    );
    println!(
        "test accuracy {:.1} % after {} steps, {seconds:.1} s",
        inference.accuracy(&test),
        options.steps
    );

    // 5. The network is one file, with PyTorch's names. Loaded into a new network, it guesses the same.
    let file = options.picture.with_extension("safetensors");
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&file, network.saved()?)?;
    let mut loaded = Network::new(&gpu, &mut random)?;
    loaded.load(&std::fs::read(&file)?)?;
    assert_eq!(loaded.infer(&test).await?.logits, inference.logits);
    println!("saved and loaded: {}", file.display());

    // 6. Both curves as a picture.
    let picture = plot::svg(&adapter, &losses, &accuracies);
    std::fs::write(&options.picture, picture)
        .map_err(|error| format!("{}: {error}", options.picture.display()))?;
    println!("curves: {}", options.picture.display());
    Ok(())
}

struct Network {
    convolution: Convolution,
    batch_norm: BatchNorm,
    enter: Dense,
    inner: Dense,
    layer_norm: LayerNorm,
    classify: Dense,
}

/// The network's results for images, without learning from them.
struct Inference {
    convolved: Vec<f32>,
    normalized: Vec<f32>,
    logits: Vec<f32>,
}

impl Network {
    fn new(gpu: &GpuContext, random: &mut Random) -> Result<Self, wgpu_norm::Error> {
        Ok(Self {
            convolution: Convolution::new(CHANNELS, random),
            batch_norm: BatchNorm::new(gpu, CHANNELS)?,
            enter: Dense::new(CHANNELS * PIXELS, HIDDEN, random),
            inner: Dense::new(HIDDEN, HIDDEN, random),
            layer_norm: LayerNorm::new(gpu, HIDDEN)?,
            classify: Dense::new(HIDDEN, CLASSES, random),
        })
    }

    /// The weights of the layers in plain Rust.
    fn weights(&mut self) -> [(&'static str, &mut Vec<f32>); 7] {
        [
            ("convolution.weight", &mut self.convolution.weight.value),
            ("enter.weight", &mut self.enter.weight.value),
            ("enter.bias", &mut self.enter.bias.value),
            ("inner.weight", &mut self.inner.weight.value),
            ("inner.bias", &mut self.inner.bias.value),
            ("classify.weight", &mut self.classify.weight.value),
            ("classify.bias", &mut self.classify.bias.value),
        ]
    }

    /// The bytes of a file with all tensors.
    fn saved(&mut self) -> Result<Vec<u8>, Box<dyn Error>> {
        let weights = self.weights().map(|(name, values)| (name, values.clone()));
        let mut tensors = self.batch_norm.parameters.tensors("batch_norm")?;
        tensors.extend(self.layer_norm.parameters.tensors("layer_norm")?);
        for (name, values) in &weights {
            let bytes = bytemuck::cast_slice(values);
            let view = TensorView::new(Dtype::F32, vec![values.len()], bytes)?;
            tensors.push(((*name).to_owned(), view));
        }
        Ok(safetensors::serialize(tensors, None)?)
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
        let file = SafeTensors::deserialize(bytes)?;
        self.batch_norm.parameters = Parameters::load(&file, "batch_norm")?;
        self.layer_norm.parameters = Parameters::load(&file, "layer_norm")?;
        for (name, values) in self.weights() {
            *values = bytemuck::pod_collect_to_vec(file.tensor(name)?.data());
        }
        Ok(())
    }

    /// One training step: the loss and, on request, the error of each norm relative to its reference.
    async fn step(
        &mut self,
        batch: &Digits,
        check: bool,
    ) -> Result<(f32, Vec<(&'static str, Errors)>), Box<dyn Error>> {
        // Forward. `normalized` and `block` keep what the norms' gradients need.
        let convolved = self.convolution.forward(&batch.images);
        let normalized = self.batch_norm.forward(convolved).await?;
        let features = plain::relu(&normalized.output.dst);
        let hidden = self.enter.forward(&features);
        let active = plain::relu(&hidden);
        let inner = self.inner.forward(&active);
        let block = self.layer_norm.forward(inner, hidden).await?;
        let top = plain::relu(&block.output.dst);
        let logits = self.classify.forward(&top);
        let (loss, diff_logits) = plain::cross_entropy(&logits, &batch.labels);

        // Backward: the same layers in reverse order.
        let classify = self.classify.backward(&top, &diff_logits);
        let diff_block = plain::relu_backward(&block.output.dst, &classify.diff_src);
        let layer_norm = self.layer_norm.backward(&block, &diff_block).await?;
        // The sum's gradient goes through the inner layer and past it; both parts meet in `hidden`.
        let inner = self.inner.backward(&active, &layer_norm.diff_src);
        let through = plain::relu_backward(&block.residual, &inner.diff_src);
        let diff_hidden = plain::sum(&through, &layer_norm.diff_src);
        let enter = self.enter.backward(&features, &diff_hidden);
        let diff_normalized = plain::relu_backward(&normalized.output.dst, &enter.diff_src);
        let batch_norm = self.batch_norm.backward(&normalized, &diff_normalized);
        let batch_norm = batch_norm.await?;
        let weight = (self.convolution).backward(&batch.images, &batch_norm.diff_src);

        // Check while gamma and beta still have the values that were used.
        let mut checks = Vec::new();
        if check {
            let (layer, diff_dst) = (&self.batch_norm, &diff_normalized);
            let errors = checks::batch_norm(layer, &normalized, diff_dst, &batch_norm)?;
            checks.push(("batch norm", errors));
            let (layer, diff_dst) = (&self.layer_norm, &diff_block);
            let errors = checks::layer_norm(layer, &block, diff_dst, &layer_norm)?;
            checks.push(("layer norm", errors));
        }

        // Learn.
        self.convolution.weight.learn(&weight);
        self.batch_norm.learn(&batch_norm);
        self.enter.learn(&enter);
        self.inner.learn(&inner);
        self.layer_norm.learn(&layer_norm);
        self.classify.learn(&classify);
        Ok((loss, checks))
    }

    /// The forward pass with running statistics: the result for an image no longer depends on the other images.
    async fn infer(&self, digits: &Digits) -> Result<Inference, wgpu_norm::Error> {
        let convolved = self.convolution.forward(&digits.images);
        let normalized = self.batch_norm.infer(&convolved).await?;
        let hidden = self.enter.forward(&plain::relu(&normalized));
        let block = self.inner.forward(&plain::relu(&hidden));
        let block = self.layer_norm.infer(&block, &hidden).await?;
        let logits = self.classify.forward(&plain::relu(&block));
        Ok(Inference {
            convolved,
            normalized,
            logits,
        })
    }
}

impl Inference {
    /// The percentage of images that are recognized.
    fn accuracy(&self, digits: &Digits) -> f32 {
        let guesses = self.logits.chunks_exact(CLASSES).map(plain::largest);
        let right = guesses.zip(&digits.labels).filter(|(a, b)| a == *b).count();
        100.0 * right as f32 / digits.len() as f32
    }
}

/// The options on the command line.
struct Options {
    steps: usize,
    picture: PathBuf,
}

impl Options {
    fn parse(steps: usize) -> Result<Self, String> {
        let usage = "usage: digits [--steps N] [SVG]";
        let mut options = Self {
            steps,
            picture: PathBuf::from("target/digits.svg"),
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--steps" => {
                    let number = arguments.next().and_then(|number| number.parse().ok());
                    options.steps = number.filter(|&number| number > 0).ok_or(usage)?;
                }
                flag if flag.starts_with('-') => return Err(usage.to_owned()),
                path => options.picture = PathBuf::from(path),
            }
        }
        Ok(options)
    }
}
