//! Synchronized batch norm: ranks are threads here, each with a part of the batch, and are compared with the reference
//! for the whole.

use crate::common::data::{Problem, Random, assert_close, close, in_format, to_f64};
use crate::common::ranks::{self, Threads, on_ranks};
use crate::common::{Subject, subjects, takes_all};
use pollster::block_on;
use std::ops::Range;
use wgpu_norm::half::{bf16, f16};
use wgpu_norm::synchronized::{SyncBatchNorm, run_into};
use wgpu_norm::{
    Activation, Backward, BackwardArgs, BatchNormOptions, Channels, DType, DTypes, DataFormat,
    Element, Error, Forward, ForwardArgs, GpuBatchNorm, Grads, Norm, Operation, Output, ParamOf,
    Pass, RunningStatistics, RunningUpdate, RunningVariance, SavedRef, Tensor, Through,
};
use wgpu_norm_verify::reference::{Computed, compute};

/// A rank's results: both passes, and running statistics.
type Results<T, P> = (
    Output<T, <T as Element>::Sum>,
    Grads<T, P>,
    [Vec<<T as Element>::Sum>; 2],
);

/// A whole batch.
struct Batch<T, P> {
    shape: Vec<usize>,
    format: DataFormat,
    backward: Backward,
    activation: Activation,
    src: Vec<T>,
    diff_dst: Vec<T>,
    gamma: Vec<P>,
    beta: Vec<P>,
}

const EPSILON: f64 = 1e-3;

const UPDATE: RunningUpdate = RunningUpdate::new(0.25, RunningVariance::Unbiased);

impl<T: Element, P: ParamOf<T> + PartialEq> Batch<T, P> {
    /// N × C × spatial, in a data format.
    fn random(shape: &[usize], format: DataFormat) -> Self {
        let mut random = Random::new(shape.iter().product::<usize>() as u64);
        let (n, channels) = (shape.iter().product(), shape[1]);
        Self {
            shape: in_format(shape, format),
            format,
            backward: Backward::default(),
            activation: Activation::None,
            src: random.vec(n, 2.0, 0.5),
            diff_dst: random.vec(n, 1.0, 0.1),
            gamma: random.vec(channels, 1.0, 0.25),
            beta: random.vec(channels, 1.0, 0.0),
        }
    }

    fn options(&self) -> BatchNormOptions {
        BatchNormOptions::new(self.format)
            .epsilon(EPSILON)
            .through(self.backward.through)
            .param_grads(self.backward.param_grads)
            .activation(self.activation)
    }

    /// The shape and elements of some samples.
    fn part(&self, samples: Range<usize>) -> (Vec<usize>, Range<usize>) {
        let sample: usize = self.shape[1..].iter().product();
        let mut shape = self.shape.clone();
        shape[0] = samples.len();
        (shape, samples.start * sample..samples.end * sample)
    }

    /// Splits the batch, computes both passes on as many ranks, and compares their results with the reference.
    fn check(&self, subject: &Subject, samples: &[usize]) {
        let what = format!("{:?} as {samples:?} on {}", self.shape, subject.name);
        let channels = self.gamma.len();
        let results = on_ranks(samples.len(), |rank| {
            let start = samples[..rank.rank].iter().sum();
            let (shape, elements) = self.part(start..start + samples[rank.rank]);
            block_on(async {
                let mut layer = SyncBatchNorm::new(&subject.gpu, self.options(), rank)?;
                let [mut mean, mut variance] =
                    [1.0, 2.0].map(|old| vec![T::Sum::from_f64(old); channels]);
                let src = &self.src[elements.clone()];
                let args = ForwardArgs::new(&shape, src)
                    .gamma(&self.gamma)
                    .beta(&self.beta)
                    .running(RunningStatistics::new(&mut mean, &mut variance, UPDATE));
                let output = layer.forward(args).await?;
                let diff_dst = &self.diff_dst[elements];
                let args = BackwardArgs::new(&shape, src, diff_dst, &output.saved);
                let args = args.gamma(&self.gamma).beta(&self.beta);
                let grads = layer.backward(args).await?;
                Ok::<_, Error>((output, grads, [mean, variance]))
            })
            .unwrap_or_else(|error| panic!("{what}: {error}"))
        });
        self.compare(&what, &results);
    }

    /// Both passes in float64, with the statistics that the ranks computed.
    fn reference(&self, [mean, variance]: [&[T::Sum]; 2]) -> [Vec<Computed>; 2] {
        let types = (T::DTYPE, P::DTYPE);
        let forward = Forward::default().with_running(UPDATE);
        let (src, diff_dst) = (to_f64(&self.src), to_f64(&self.diff_dst));
        let (gamma, beta) = (to_f64(&self.gamma), to_f64(&self.beta));
        let old = [1.0, 2.0].map(|old| vec![old; gamma.len()]);
        let inputs = [
            (Tensor::Src, &*src),
            (Tensor::DiffDst, &diff_dst),
            (Tensor::Gamma, &gamma),
            (Tensor::Beta, &beta),
            (Tensor::RunningMean, &old[0]),
            (Tensor::RunningVariance, &old[1]),
            (Tensor::Mean, &to_f64(mean)),
            (Tensor::Variance, &to_f64(variance)),
        ];
        [forward.into(), self.backward.into()].map(|pass: Pass| {
            let operation = Operation::new(Norm::batch(self.format), pass, &self.shape, types);
            compute(&operation.with_epsilon(EPSILON), &inputs).unwrap()
        })
    }

    fn compare(&self, what: &str, results: &[Results<T, P>]) {
        let (first, first_grads, first_running) = &results[0];
        let statistics = &first.saved;
        let [forward, backward] = self.reference([&statistics.mean, &statistics.variance]);
        let dst: Vec<T> = results.iter().flat_map(|(o, ..)| o.dst.clone()).collect();
        close(&dst, &forward, Tensor::Dst, what);
        close(&statistics.mean, &forward, Tensor::Mean, what);
        close(&statistics.variance, &forward, Tensor::Variance, what);
        close(&first_running[0], &forward, Tensor::RunningMean, what);
        close(&first_running[1], &forward, Tensor::RunningVariance, what);
        let parts = results.iter().map(|(_, grads, _)| grads.diff_src.clone());
        let diff_src: Vec<T> = parts.flatten().collect();
        close(&diff_src, &backward, Tensor::DiffSrc, what);
        if self.backward.param_grads {
            let grads = [&first_grads.diff_gamma, &first_grads.diff_beta];
            let [diff_gamma, diff_beta] = grads.map(|grad| grad.as_ref().unwrap());
            close(diff_gamma, &backward, Tensor::DiffGamma, what);
            close(diff_beta, &backward, Tensor::DiffBeta, what);
        }
        for (output, grads, running) in results {
            assert_eq!(output.saved, first.saved, "{what}");
            assert_eq!(running, first_running, "{what}");
            assert_eq!(grads.diff_gamma, first_grads.diff_gamma, "{what}");
            assert_eq!(grads.diff_beta, first_grads.diff_beta, "{what}");
        }
    }
}

fn splits(total: usize) -> Vec<Vec<usize>> {
    let uneven = vec![1, total - 3, 2];
    let with_none = vec![total - 5, 0, 5];
    let many = vec![2, 1, 0, total - 4, 1];
    match takes_all() {
        true => vec![
            vec![total],
            vec![total / 2, total - total / 2],
            uneven,
            with_none,
            many,
        ],
        false => vec![uneven, many],
    }
}

fn on_every_adapter<T: Element, P: ParamOf<T> + PartialEq>() {
    let shapes = [
        (&[8, 5, 7, 3][..], DataFormat::Ncx),
        (&[9, 4, 35], DataFormat::Nxc),
        (&[12, 6, 64], DataFormat::Ncx),
    ];
    let taken = match takes_all() || T::DTYPE == DType::F32 {
        true => &shapes[..],
        false => &shapes[..2],
    };
    for subject in subjects().iter().filter(|subject| subject.takes::<T>()) {
        for &(shape, format) in taken {
            for split in splits(shape[0]) {
                Batch::<T, P>::random(shape, format).check(subject, &split);
            }
        }
    }
}

#[test]
fn ranks_agree_with_the_whole_batch() {
    on_every_adapter::<f32, f32>();
    on_every_adapter::<f16, f32>();
    on_every_adapter::<bf16, f32>();
    on_every_adapter::<f64, f64>();
}

#[test]
fn constant_statistics_and_frozen_parameters() {
    for subject in subjects() {
        for (through, param_grads) in [(Through::Constant, true), (Through::Batch, false)] {
            let mut batch = Batch::<f32, f32>::random(&[8, 5, 7, 3], DataFormat::Ncx);
            let backward = Backward::default().with_through(through);
            batch.backward = backward.with_param_grads(param_grads);
            batch.check(subject, &[3, 0, 5]);
        }
    }
}

/// If the layer on one process returns an empty result, so do ranks.
#[test]
fn without_channels_or_elements() {
    let subject = &subjects()[0];
    for (shape, channels) in [
        (&[3, 0][..], 0),
        (&[3, 0, 2], 0),
        (&[3, 2, 0], 2),
        (&[0, 2], 2),
    ] {
        let options = BatchNormOptions::new(DataFormat::Ncx)
            .epsilon(EPSILON)
            .activation(Activation::Relu);
        let (params, none) = (vec![1.0_f32; channels], &[0.0_f32; 0][..]);
        let (gamma, beta) = (Some(&*params), Some(&*params));
        let results = on_ranks(2, |rank| {
            let [mut mean, mut variance] = [2.0, 3.0].map(|old| vec![old; channels]);
            let mut layer = SyncBatchNorm::new(&subject.gpu, options.clone(), rank).unwrap();
            let forward = ForwardArgs::new(shape, none)
                .gamma(gamma)
                .beta(beta)
                .residual_after(none)
                .running(RunningStatistics::new(&mut mean, &mut variance, UPDATE));
            let output = block_on(layer.forward(forward)).unwrap();
            let backward =
                BackwardArgs::new(shape, none, none, SavedRef::moments(&params, &params));
            let backward = backward.gamma(gamma).mask(&[]);
            let grads = block_on(layer.backward(backward)).unwrap();
            (output, grads, [mean, variance])
        });
        let alone = GpuBatchNorm::new(&subject.gpu, options).unwrap();
        let args = ForwardArgs::new(shape, none).gamma(gamma).beta(beta);
        let want = block_on(alone.forward(args.residual_after(none))).unwrap();
        for (output, grads, running) in results {
            assert_eq!(output, want, "{shape:?}");
            assert!(grads.diff_src.is_empty(), "{shape:?}");
            assert_eq!(grads.diff_gamma, Some(vec![0.0; channels]), "{shape:?}");
            assert_eq!(grads.diff_beta, Some(vec![0.0; channels]), "{shape:?}");
            let old = [vec![2.0; channels], vec![3.0; channels]];
            assert_eq!(running, old, "{shape:?}");
        }
    }
}

/// Two ranks, with a residual and ReLU: the gradient follows the mask.
#[test]
fn a_residual_and_an_activation() {
    for subject in subjects() {
        let mut batch = Batch::<f32, f32>::random(&[6, 4, 8, 4], DataFormat::Ncx);
        batch.activation = Activation::Relu;
        let results = on_ranks(2, |rank| {
            let (shape, elements) = batch.part(2 * rank.rank..2 + 4 * rank.rank);
            let [src, diff_dst] = [&batch.src, &batch.diff_dst].map(|all| &all[elements.clone()]);
            block_on(async {
                let mut layer = SyncBatchNorm::new(&subject.gpu, batch.options(), rank)?;
                let args = ForwardArgs::new(&shape, src)
                    .gamma(&batch.gamma)
                    .beta(&batch.beta)
                    .residual_after(diff_dst);
                let output = layer.forward(args).await?;
                let args = BackwardArgs::new(&shape, src, diff_dst, &output.saved)
                    .gamma(&batch.gamma)
                    .beta(&batch.beta);
                let grads = layer.backward(args).await?;
                Ok::<_, Error>((output, grads))
            })
            .unwrap()
        });
        let mut index = 0;
        for (output, grads) in &results {
            let residual = grads.diff_residual.as_ref().unwrap();
            for (dst, residual) in output.dst.iter().zip(residual) {
                let want = if *dst > 0.0 {
                    batch.diff_dst[index]
                } else {
                    0.0
                };
                assert_eq!(*residual, want, "element {index} on {}", subject.name);
                index += 1;
            }
        }
        assert_eq!(index, batch.src.len());
    }
}

fn layer(rank: Threads, epsilon: f64) -> SyncBatchNorm<Threads> {
    let gpu = &subjects()[0].gpu;
    let options = BatchNormOptions::new(DataFormat::Nxc).epsilon(epsilon);
    SyncBatchNorm::new(gpu, options, rank).unwrap()
}

fn forward(
    layer: &mut SyncBatchNorm<Threads>,
    shape: &[usize],
    src: &[f32],
) -> Result<Output<f32, f32>, Error> {
    block_on(layer.forward(ForwardArgs::new(shape, src)))
}

/// The errors of a forward pass on ranks, each with its own epsilon and shape of samples.
fn errors(ranks: &[(f64, &[usize])]) -> Vec<String> {
    on_ranks(ranks.len(), |rank| {
        let (epsilon, shape) = ranks[rank.rank];
        let src = vec![1.0; shape.iter().product()];
        let error = forward(&mut layer(rank, epsilon), shape, &src).unwrap_err();
        error.to_string()
    })
}

#[test]
fn ranks_that_do_not_do_the_same_are_told_so() {
    let got = errors(&[(1e-5, &[2, 1]), (1e-3, &[2, 1]), (1e-5, &[2, 1])]);
    let want = "epsilon: expected the same on all ranks, got 1e-5 on ranks 0, 2; 1e-3 on rank 1";
    assert_eq!(got, [want; 3]);
    let got = errors(&[(1e-5, &[2, 3]), (1e-5, &[2, 1])]);
    let want =
        "shape of a sample: expected the same on all ranks, got [3] on rank 0; [1] on rank 1";
    assert_eq!(got, [want; 2]);

    // A rank whose arguments are wrong fails with its own error, and the others fail with a reference to it.
    let src = [1.0, 2.0];
    let errors = on_ranks(2, |rank| {
        let own: &[usize] = if rank.rank == 1 { &[3, 1] } else { &[2, 1] };
        let mut layer = layer(rank, 1e-5);
        let failed = forward(&mut layer, own, &src).unwrap_err().to_string();
        // The next call works again.
        let output = forward(&mut layer, &[2, 1], &src).unwrap();
        assert_eq!(output.saved.mean, [1.5]);
        failed
    });
    assert!(errors[0].contains("failed on rank 1"), "{errors:?}");
    assert!(
        errors[1].contains("src: expected 3 elements, got 2"),
        "{errors:?}"
    );

    // A rank makes another call than the others.
    let errors = on_ranks(2, |rank| {
        let own = rank.rank;
        let mut layer = layer(rank, 1e-5);
        let backward = BackwardArgs::new(&[2, 1], &src, &src, SavedRef::moments(&[1.5], &[0.25]));
        match own {
            0 => forward(&mut layer, &[2, 1], &src).unwrap_err(),
            _ => block_on(layer.backward(backward)).unwrap_err(),
        }
        .to_string()
    });
    let want = "operation: expected the same on all ranks, got batch_norm_forward on rank 0; \
                batch_norm_backward on rank 1";
    assert_eq!(errors, [want; 2]);
}

#[test]
fn few_elements_and_none() {
    let trained = |layer: &mut SyncBatchNorm<Threads>, src: &[f32], running: &mut [f32; 2]| {
        let (mean, variance) = running.split_at_mut(1);
        let shape = [src.len(), 1];
        let args = ForwardArgs::new(&shape, src);
        block_on(layer.forward(args.running(RunningStatistics::new(mean, variance, UPDATE))))
    };
    // No samples at all: statistics are 0, and running statistics stay.
    on_ranks(2, |rank| {
        let mut running = [3.0, 4.0];
        let output = trained(&mut layer(rank, 1e-5), &[], &mut running).unwrap();
        let statistics = output.saved;
        assert_eq!(
            (&*statistics.mean, &*statistics.variance),
            (&[0.0][..], &[0.0][..])
        );
        assert_eq!(running, [3.0, 4.0]);
    });
    // One sample on one rank is too few for the unbiased variance; one on each rank is enough.
    on_ranks(2, |rank| {
        let own = rank.rank;
        let mut layer = layer(rank, 1e-5);
        let mut running = [3.0, 4.0];
        let src: &[f32] = if own == 0 { &[7.0] } else { &[] };
        let error = trained(&mut layer, src, &mut running).unwrap_err();
        assert!(error.to_string().contains("two elements"), "{error}");
        assert_eq!(running, [3.0, 4.0]);
        let output = trained(&mut layer, &[own as f32 * 2.0], &mut running).unwrap();
        let statistics = output.saved;
        assert_eq!(
            (&*statistics.mean, &*statistics.variance),
            (&[1.0][..], &[1.0][..])
        );
        assert_eq!(running, [2.5, 3.5]);
    });
}

#[test]
fn shapes_without_channels_are_refused() {
    for shape in [&[3][..], &[1; 9]] {
        let errors = errors(&[(1e-5, shape)]);
        assert!(errors[0].contains("rank"), "{}", errors[0]);
    }
}

/// Two samples of two elements on each rank: x̂ is -1 and 1, and both elements of a sample have the same diff_dst. What
/// each rank adds up has no 16-bit number, but the sum of all has one.
#[test]
fn gradients_of_parameters_are_rounded_once() {
    let subject = &subjects()[0];
    let format = DataFormat::Ncx;
    let axes = |centered| Norm::axes(&[2], &[1, 2]).centered(centered);
    // The columns' signs of x̂ make diff_gamma; diff_beta adds up both elements where they share a channel.
    let (by_column, by_channel) = ([[-1.0, 1.0], [1.0, 1.0]], [[0.0; 2], [2.0; 2]]);
    let norms = [
        (Norm::batch(format), by_channel),
        (Norm::group(1, format), by_channel),
        (Norm::instance(format), by_channel),
        (Norm::layer(-1), by_column),
        (Norm::rms(-1), by_column),
        (axes(true), by_column),
        (axes(false), by_column),
    ];
    for (dtype, diff_dst, sum) in [
        (DType::Bf16, [256.0, 1.0, -256.0, 0.0], 1.0),
        (DType::F16, [65_504.0, 65_504.0, -65_504.0, -65_472.0], 32.0),
        (DType::F16, [2048.0, 1.0, -2048.0, 0.0], 1.0),
    ] {
        if !subject.gpu.supports(dtype) {
            continue;
        }
        let types = [
            DTypes::from(dtype),
            DTypes::from(dtype).with_statistics(dtype),
            DTypes::from((dtype, DType::F32)),
        ];
        for ((norm, factors), types) in norms
            .iter()
            .flat_map(|norm| types.map(|types| (norm, types)))
        {
            let operation = Operation::new(norm.clone(), Backward::default(), &[4, 1, 2], types)
                .with_epsilon(1e-6)
                .with_gate(norm.has_gate());
            let mut problem = Problem::random(&operation, 0);
            problem.set(Tensor::Src, &[-1.0, 1.0].repeat(4));
            problem.set(Tensor::DiffDst, &diff_dst.map(|value| [value; 2]).concat());
            for input in problem.inputs.clone() {
                let len = input.used.shape.iter().product();
                match input.used.tensor {
                    Tensor::Src | Tensor::DiffDst => continue,
                    Tensor::Mean | Tensor::Beta => problem.set(input.used.tensor, &vec![0.0; len]),
                    tensor => problem.set(tensor, &vec![1.0; len]),
                }
            }
            let what = format!("{operation}, {:?}", operation.types);
            let results = ranks::run(&problem, subject, &[2, 2], &what);
            let [of_x_hat, of_ones] = factors.map(|factors| factors.map(|factor| factor * sum));
            for result in &results {
                let want = match result.used.tensor {
                    Tensor::DiffGamma | Tensor::DiffGate => of_x_hat,
                    Tensor::DiffBeta => of_ones,
                    _ => continue,
                };
                for (got, want) in result.numbers().iter().zip(want) {
                    let name = result.used.tensor.name();
                    // r is not quite 1 beside epsilon: seen in f32, not in 16 bits.
                    assert!(
                        (got - want).abs() <= 0.05,
                        "{what}: {name}: {got} for {want}"
                    );
                }
            }
        }
    }
}

/// A rank may have one element of a channel if all ranks have several.
#[test]
fn the_tensors_of_a_share() {
    let pass = Forward::default().with_running(UPDATE);
    let share = Operation::new(Norm::batch(DataFormat::Nxc), pass, &[1, 3], DType::F32);
    let mut whole = share.clone();
    whole.shape[0] = 2;
    let names = |operation: &Operation| {
        let tensors = operation.tensors().unwrap().into_iter();
        tensors.map(|used| used.tensor).collect::<Vec<_>>()
    };
    assert_eq!(names(&share), names(&whole));
    assert!(share.gradient().is_ok());
    let subject = &subjects()[0];
    let problem = Problem::random(&whole, 1);
    let got = ranks::run(&problem, subject, &[1, 1], "two shares");
    assert_close(&got, &problem.reference(), "two shares");
    // Alone it has no unbiased variance.
    let error = share.plan(subject.gpu.profile()).unwrap_err().to_string();
    assert!(error.contains("two elements"), "{error}");
    let (gpu, problem) = (&subject.gpu, Problem::random(&share, 1));
    let errors = on_ranks(1, |rank| {
        problem
            .run_by(|inputs, outputs| block_on(run_into(&share, gpu, rank, inputs, outputs)))
            .unwrap_err()
            .to_string()
    });
    assert!(errors[0].contains("two elements"), "{errors:?}");
}

#[test]
fn operations_that_ranks_cannot_share() {
    let of = |norm, pass: Pass| Operation::new(norm, pass, &[9, 4, 8], DType::F32);
    let forward = Pass::from(Forward::default());
    let broadcast = Norm::Batch(Channels::Broadcast(vec![1, 4, 1]));
    let samples = Norm::axes(&[0], &[1]);
    for (operation, argument) in [
        (of(Norm::rms(0), forward), "begin_norm_axis"),
        (of(broadcast, Pass::Inference), "data_format"),
        (of(samples, forward), "axes"),
    ] {
        let errors = on_ranks(2, |rank| {
            let gpu = &subjects()[0].gpu;
            block_on(run_into(&operation, gpu, rank, &[], &mut [])).unwrap_err()
        });
        assert!(errors[0].to_string().contains(argument), "{}", errors[0]);
    }
}
