//! Two ranks train a network, each with half of every batch, in comparison with the same network trained by one
//! process.

use crate::data::{Digits, PIXELS, SIDE, shuffled};
use crate::plain::{Convolution, Param, cross_entropy, relu, relu_backward};
use mpi::topology::SimpleCommunicator;
use mpi::traits::Communicator as _;
use wgpu_norm::{
    BackwardArgs, BatchNormOptions, DataFormat, Error as NormError, ForwardArgs, GpuBatchNorm,
    GpuContext, Grads, Output,
};
use wgpu_norm_mpi::{Communicator, Options, SyncBatchNorm};
use wgpu_norm_verify::Random;

const CHANNELS: usize = 8;
const CLASSES: usize = 10;
const BATCH: usize = 32;
const STEPS: usize = 50;

/// Batch norm of one process, or of all ranks.
trait Norm {
    fn forward(&mut self, args: ForwardArgs<'_, f32>) -> Output<f32, f32>;
    fn backward(&mut self, args: BackwardArgs<'_, f32>) -> Grads<f32, f32>;
}

impl Norm for GpuBatchNorm {
    fn forward(&mut self, args: ForwardArgs<'_, f32>) -> Output<f32, f32> {
        let output: Result<_, NormError> = pollster::block_on(GpuBatchNorm::forward(self, args));
        output.unwrap()
    }

    fn backward(&mut self, args: BackwardArgs<'_, f32>) -> Grads<f32, f32> {
        pollster::block_on(GpuBatchNorm::backward(self, args)).unwrap()
    }
}

impl Norm for SyncBatchNorm {
    fn forward(&mut self, args: ForwardArgs<'_, f32>) -> Output<f32, f32> {
        SyncBatchNorm::forward(self, args).unwrap()
    }

    fn backward(&mut self, args: BackwardArgs<'_, f32>) -> Grads<f32, f32> {
        SyncBatchNorm::backward(self, args).unwrap()
    }
}

/// Convolution, batch norm, ReLU, mean of each channel's quarters, linear classifier.
struct Network<N> {
    convolution: Convolution,
    norm: N,
    gamma: Param,
    beta: Param,
    weight: Param,
}

const QUARTERS: usize = 4;
const FEATURES: usize = CHANNELS * QUARTERS;

/// The quarter of the image that a pixel belongs to.
fn quarter(pixel: usize) -> usize {
    2 * (pixel / SIDE / (SIDE / 2)) + pixel % SIDE / (SIDE / 2)
}

impl<N: Norm> Network<N> {
    fn new(norm: N) -> Self {
        let mut random = Random::new(3);
        Self {
            convolution: Convolution::new(CHANNELS, &mut random),
            norm,
            gamma: Param::new(vec![1.0; CHANNELS]),
            beta: Param::new(vec![0.0; CHANNELS]),
            weight: Param::new(random.vec(FEATURES * CLASSES, 0.3, 0.0)),
        }
    }

    /// One step: the sum of the losses of these images, divided by `BATCH`. `add_up` turns sums over this rank's images
    /// into sums over all ranks.
    fn step(&mut self, images: &Digits, add_up: impl Fn(Vec<f32>) -> Vec<f32>) -> f32 {
        let shape = [images.len(), CHANNELS, SIDE, SIDE];
        let src = self.convolution.forward(&images.images);
        let args = ForwardArgs::new(&shape, &src);
        let args = args.gamma(&self.gamma.value).beta(&self.beta.value);
        let output = self.norm.forward(args);
        let active = relu(&output.dst);
        let pixels = (PIXELS / QUARTERS) as f32;
        let mut features = vec![0.0; images.len() * FEATURES];
        for (index, value) in active.iter().enumerate() {
            features[index / PIXELS * QUARTERS + quarter(index % PIXELS)] += value / pixels;
        }
        let mut logits = Vec::new();
        for features in features.chunks_exact(FEATURES) {
            for class in 0..CLASSES {
                let weights = self.weight.value.iter().skip(class).step_by(CLASSES);
                logits.push(features.iter().zip(weights).map(|(a, b)| a * b).sum());
            }
        }
        let (loss, mut diff_logits) = cross_entropy(&logits, &images.labels);
        let share = images.len() as f32 / BATCH as f32;
        diff_logits.iter_mut().for_each(|diff| *diff *= share);

        let mut diff_weight = vec![0.0; FEATURES * CLASSES];
        let mut diff_active = vec![0.0; active.len()];
        for (image, diff_logits) in diff_logits.chunks_exact(CLASSES).enumerate() {
            for feature in 0..FEATURES {
                let mut diff = 0.0;
                for (class, diff_logit) in diff_logits.iter().enumerate() {
                    let at = feature * CLASSES + class;
                    diff_weight[at] += features[image * FEATURES + feature] * diff_logit;
                    diff += self.weight.value[at] * diff_logit;
                }
                let (channel, own) = (feature / QUARTERS, feature % QUARTERS);
                let plane = (image * CHANNELS + channel) * PIXELS;
                for pixel in (0..PIXELS).filter(|&pixel| quarter(pixel) == own) {
                    diff_active[plane + pixel] = diff / pixels;
                }
            }
        }
        let diff_dst = relu_backward(&output.dst, &diff_active);
        let args = BackwardArgs::new(&shape, &src, &diff_dst, &output.saved);
        let grads = self
            .norm
            .backward(args.gamma(&self.gamma.value).beta(&self.beta.value));
        let convolution = self.convolution.backward(&images.images, &grads.diff_src);
        self.convolution.weight.learn(&add_up(convolution));
        self.weight.learn(&add_up(diff_weight));
        // These are already sums over all ranks.
        self.gamma.learn(&grads.diff_gamma.unwrap());
        self.beta.learn(&grads.diff_beta.unwrap());
        add_up(vec![loss * share])[0]
    }
}

pub fn two_ranks_learn_as_one(world: &SimpleCommunicator, gpu: &GpuContext) {
    let options = BatchNormOptions::new(DataFormat::Ncx);
    let (rank, ranks) = (world.rank() as usize, world.size() as usize);
    let share = BATCH / ranks;
    let waits = Options::default();
    let norm = SyncBatchNorm::new(gpu, options.clone(), world, waits).unwrap();
    let mut together = Network::new(norm);
    let mut alone = Network::new(GpuBatchNorm::new(gpu, options).unwrap());
    let communicator = Communicator::duplicate(world, waits).unwrap();
    let add_up = |values: Vec<f32>| {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_ne_bytes())
            .collect();
        let all = communicator.all_gather(&bytes).unwrap();
        let mut sums = vec![0.0_f64; values.len()];
        for part in all.chunks_exact(bytes.len()) {
            for (sum, value) in sums.iter_mut().zip(part.chunks_exact(4)) {
                *sum += f64::from(f32::from_ne_bytes(value.try_into().unwrap()));
            }
        }
        sums.into_iter().map(|sum| sum as f32).collect()
    };
    let digits = Digits::all();
    let mut random = Random::new(5);
    let order = shuffled(digits.len(), &mut random);
    let mut first = None;
    let mut last = 0.0;
    for (step, batch) in order.chunks_exact(BATCH).take(STEPS).enumerate() {
        let own = digits.pick(&batch[rank * share..(rank + 1) * share]);
        let got = together.step(&own, add_up);
        let want = alone.step(&digits.pick(batch), |values| values);
        let error = (got - want).abs();
        assert!(error <= 1e-5, "step {step}: {got} for {want}");
        first.get_or_insert(want);
        last = want;
    }
    let first = first.unwrap();
    assert!(last < 0.7 * first, "it learns: {first} to {last}");
}
