//! The network, with or without norms:
//!
//! ```text
//! image 8×8 ─ convolution ─ BATCH NORM ─ ReLU ─ convolution, stride 2 ─ BATCH NORM ─ ReLU ─ dense ─ 10 classes
//!               8 channels  or a bias            16 channels, 4×4        or a bias
//! ```

use super::batch_norm::BatchNorm;
use super::kernel::{Command, Kernels};
use super::layers::{Bias, Convolution, Dense, Shape, cross_entropy};
use super::param::{Param, zeros};
use wgpu_norm::wgpu::Buffer;
use wgpu_norm::{Error, GpuContext};
use wgpu_norm_verify::Random;

/// The number of digits.
pub const CLASSES: usize = 10;

/// The first convolution.
pub const FIRST: Shape = Shape {
    src_channels: 1,
    src_side: 8,
    dst_channels: 8,
    stride: 1,
};

/// The second one.
pub const SECOND: Shape = Shape {
    src_channels: FIRST.dst_channels,
    src_side: FIRST.dst_side(),
    dst_channels: 16,
    stride: 2,
};

/// The weights that a network begins with.
#[derive(Clone, Debug)]
pub struct Weights {
    pub first: Vec<f32>,
    pub second: Vec<f32>,
    pub dense: Vec<f32>,
}

impl Weights {
    /// Random weights of He's variance, 2 / terms, which keeps the size of what passes a ReLU.
    pub fn random(random: &mut Random) -> Self {
        let mut weights = |outputs: usize, terms: usize| {
            let limit = (6.0 / terms as f64).sqrt();
            random.vec(outputs * terms, limit, 0.0)
        };
        Self {
            first: weights(FIRST.dst_channels, FIRST.terms()),
            second: weights(SECOND.dst_channels, SECOND.terms()),
            dense: weights(CLASSES, SECOND.dst_len()),
        }
    }
}

/// A convolution, and what follows it: a norm or a bias, with ReLU.
#[derive(Debug)]
struct Block {
    convolution: Convolution,
    affine: Affine,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there are two of each")]
enum Affine {
    Norm(BatchNorm),
    Bias(Bias),
}

/// A block's results for a batch, or the gradients of these.
struct Results {
    convolved: Buffer,
    active: Buffer,
}

impl Results {
    fn new(gpu: &GpuContext, shape: Shape, images: usize) -> Result<Self, Error> {
        Ok(Self {
            convolved: zeros(gpu, "convolved", images * shape.dst_len())?,
            active: zeros(gpu, "active", images * shape.dst_len())?,
        })
    }
}

/// A forward pass normalizes by the batch's statistics in training, and by running ones otherwise.
#[derive(Clone, Copy)]
enum Mode {
    Training,
    Inference,
}

impl Block {
    fn new(kernels: &Kernels, shape: Shape, weight: &[f32], norms: bool) -> Result<Self, Error> {
        let (channels, side) = (shape.dst_channels, shape.dst_side());
        Ok(Self {
            convolution: Convolution::new(kernels, shape, weight)?,
            affine: match norms {
                true => Affine::Norm(BatchNorm::new(kernels, channels, side)?),
                false => Affine::Bias(Bias::new(kernels, channels, side)?),
            },
        })
    }

    fn forward(
        &self,
        kernels: &Kernels,
        mode: Mode,
        src: &Buffer,
        results: &Results,
    ) -> Result<[Command; 2], Error> {
        let Results { convolved, active } = results;
        let convolution = self.convolution.forward(kernels, src, convolved);
        let affine = match (&self.affine, mode) {
            (Affine::Norm(norm), Mode::Training) => norm.forward(kernels, convolved, active)?,
            (Affine::Norm(norm), Mode::Inference) => norm.inference(kernels, convolved, active)?,
            (Affine::Bias(bias), _) => bias.forward(kernels, convolved, active),
        };
        Ok([convolution, affine])
    }

    /// The gradients of `convolved` and of the parameters, from that of `active`.
    fn gradient(
        &self,
        kernels: &Kernels,
        src: &Buffer,
        results: &Results,
        diff: &Results,
    ) -> Result<[Command; 2], Error> {
        let (diff_dst, diff_src) = (&diff.active, &diff.convolved);
        let affine = match &self.affine {
            Affine::Norm(norm) => norm.gradient(kernels, &results.convolved, diff_dst, diff_src)?,
            Affine::Bias(bias) => bias.gradient(kernels, &results.active, diff_dst, diff_src),
        };
        let weight = (self.convolution).weight_gradient(kernels, src, &diff.convolved);
        Ok([affine, weight])
    }

    fn params(&self) -> Vec<&Param> {
        let weight = &self.convolution.weight;
        match &self.affine {
            Affine::Norm(norm) => vec![weight, &norm.gamma, &norm.beta],
            Affine::Bias(bias) => vec![weight, &bias.bias],
        }
    }
}

/// A network. Its parameters are on the GPU.
#[derive(Debug)]
pub struct Network {
    first: Block,
    second: Block,
    dense: Dense,
}

/// Commands that are recorded in this order, and the buffer with their result.
#[derive(Debug)]
pub struct Program {
    pub commands: Vec<Command>,
    pub result: Buffer,
}

impl Network {
    pub fn new(kernels: &Kernels, weights: &Weights, norms: bool) -> Result<Self, Error> {
        Ok(Self {
            first: Block::new(kernels, FIRST, &weights.first, norms)?,
            second: Block::new(kernels, SECOND, &weights.second, norms)?,
            dense: Dense::new(kernels, CLASSES, &weights.dense)?,
        })
    }

    /// A step that learns from a batch of images and labels. The result is the loss of each image before the step.
    pub fn training(
        &self,
        kernels: &Kernels,
        rate: &Buffer,
        images: &Buffer,
        labels: &Buffer,
    ) -> Result<Program, Error> {
        let Self {
            first,
            second,
            dense,
        } = self;
        let (gpu, batch) = (&kernels.gpu, labels.size() as usize / 4);
        let results = |shape| Results::new(gpu, shape, batch);
        let (one, diff_one) = (results(FIRST)?, results(FIRST)?);
        let (two, diff_two) = (results(SECOND)?, results(SECOND)?);
        let logits = zeros(gpu, "logits", batch * CLASSES)?;
        let diff_logits = zeros(gpu, "diff_logits", batch * CLASSES)?;
        let loss = zeros(gpu, "loss", batch)?;
        let mut commands = Vec::new();

        commands.extend(first.forward(kernels, Mode::Training, images, &one)?);
        commands.extend(second.forward(kernels, Mode::Training, &one.active, &two)?);
        commands.push(dense.forward(kernels, &two.active, &logits));
        commands.push(cross_entropy(kernels, &logits, labels, &loss, &diff_logits));

        commands.push(dense.weight_gradient(kernels, &two.active, &diff_logits));
        commands.push(dense.src_gradient(kernels, &diff_logits, &diff_two.active));
        commands.extend(second.gradient(kernels, &one.active, &two, &diff_two)?);
        let convolution = &second.convolution;
        commands.push(convolution.src_gradient(kernels, &diff_two.convolved, &diff_one.active));
        commands.extend(first.gradient(kernels, images, &one, &diff_one)?);

        let params = self.params().into_iter();
        commands.extend(params.map(|param| param.learn(kernels, rate)));
        let result = loss;
        Ok(Program { commands, result })
    }

    /// The forward pass alone. The result is the logits, a number for each class of each image.
    pub fn inference(&self, kernels: &Kernels, images: &Buffer) -> Result<Program, Error> {
        let Self {
            first,
            second,
            dense,
        } = self;
        let image = FIRST.src_side * FIRST.src_side;
        let count = images.size() as usize / (4 * image);
        let one = Results::new(&kernels.gpu, FIRST, count)?;
        let two = Results::new(&kernels.gpu, SECOND, count)?;
        let result = zeros(&kernels.gpu, "logits", count * CLASSES)?;
        let mut commands = Vec::new();
        commands.extend(first.forward(kernels, Mode::Inference, images, &one)?);
        commands.extend(second.forward(kernels, Mode::Inference, &one.active, &two)?);
        commands.push(dense.forward(kernels, &two.active, &result));
        Ok(Program { commands, result })
    }

    /// All parameters, in the order of the layers.
    pub fn params(&self) -> Vec<&Param> {
        let mut params = self.first.params();
        params.extend(self.second.params());
        params.extend([&self.dense.weight, &self.dense.bias]);
        params
    }
}
