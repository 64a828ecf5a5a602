//! Forward passes compared with the float64 reference: random problems that combine operators, layouts, element types,
//! odd lengths, tunings, algorithms, windows, few buffers, running statistics, gamma, beta and residual; and the typed
//! layers, forward and backward.

use crate::common::data::{
    FORMATS, Problem, Random, Values, assert_close, close, find, in_format, to_f64,
};
use crate::common::{Subject, every_subject, random_cases, subjects};
use half::{bf16, f16};
use pollster::block_on;
use wgpu_norm::{
    Activation, Algorithm, BackwardArgs, BatchNormOptions, Channels, DTypes, DataFormat, Element,
    Epilogue, Error, Forward, ForwardArgs, GpuBatchNorm, GpuContext, GpuGroupNorm, GpuInstanceNorm,
    GpuLayerNorm, GpuRmsNorm, Grads, GroupNormOptions, InferenceArgs, InstanceNormOptions,
    LayerNormOptions, Norm, Operation, Output, ParamOf, Pass, Residual, RmsNormOptions,
    RunningStatistics, RunningUpdate, RunningVariance, Tensor, Tuning, bytemuck,
};

const EPSILON: f64 = 1e-3;

/// A layer of typed calls.
enum Typed {
    Batch(GpuBatchNorm),
    Group(GpuGroupNorm),
    Instance(GpuInstanceNorm),
    Layer(GpuLayerNorm),
    Rms(GpuRmsNorm),
}

impl Typed {
    /// The layer of an operation, with defaults except for epsilon.
    fn of(operation: &Operation, gpu: &GpuContext) -> Result<Self, Error> {
        let epsilon = operation.epsilon;
        Ok(match operation.norm.clone() {
            Norm::Batch(channels) => {
                let options = match channels {
                    Channels::Axis(format) => BatchNormOptions::new(format),
                    Channels::Broadcast(params) => BatchNormOptions::broadcast(&params),
                    other => panic!("{other:?}"),
                };
                Self::Batch(GpuBatchNorm::new(gpu, options.epsilon(epsilon))?)
            }
            Norm::Group { groups, format, .. } => {
                let options = GroupNormOptions::new(groups, format);
                Self::Group(GpuGroupNorm::new(gpu, options.epsilon(epsilon))?)
            }
            Norm::Instance { format, .. } => {
                let options = InstanceNormOptions::new(format);
                Self::Instance(GpuInstanceNorm::new(gpu, options.epsilon(epsilon))?)
            }
            Norm::Layer {
                begin_norm_axis, ..
            } => {
                let options = LayerNormOptions::new(begin_norm_axis);
                Self::Layer(GpuLayerNorm::new(gpu, options.epsilon(epsilon))?)
            }
            Norm::Rms {
                begin_norm_axis, ..
            } => {
                let options = RmsNormOptions::new(begin_norm_axis);
                Self::Rms(GpuRmsNorm::new(gpu, options.epsilon(epsilon))?)
            }
            other => panic!("{other:?}"),
        })
    }

    fn forward<T: Element>(&self, args: ForwardArgs<'_, T>) -> Result<Output<T, T::Sum>, Error> {
        match self {
            Self::Batch(layer) => block_on(layer.forward(args)),
            Self::Group(layer) => block_on(layer.forward(args)),
            Self::Instance(layer) => block_on(layer.forward(args)),
            Self::Layer(layer) => block_on(layer.forward(args)),
            Self::Rms(layer) => block_on(layer.forward(args)),
        }
    }

    /// None if the layer has no inference of its own.
    fn infer<T: Element>(&self, args: InferenceArgs<'_, T>) -> Option<Vec<T>> {
        match self {
            Self::Batch(layer) => Some(block_on(layer.infer(args)).unwrap()),
            Self::Group(layer) => Some(block_on(layer.infer(args)).unwrap()),
            Self::Instance(layer) => Some(block_on(layer.infer(args)).unwrap()),
            Self::Layer(_) | Self::Rms(_) => None,
        }
    }

    fn backward<T: Element, P: ParamOf<T>>(
        &self,
        args: BackwardArgs<'_, T, P>,
    ) -> Result<Grads<T, P>, Error> {
        match self {
            Self::Batch(layer) => block_on(layer.backward(args)),
            Self::Group(layer) => block_on(layer.backward(args)),
            Self::Instance(layer) => block_on(layer.backward(args)),
            Self::Layer(layer) => block_on(layer.backward(args)),
            Self::Rms(layer) => block_on(layer.backward(args)),
        }
    }
}

fn types<T: Element, P: Element, S: Element>() -> DTypes {
    DTypes::from((T::DTYPE, P::DTYPE)).with_statistics(S::DTYPE)
}

/// Random choices.
struct Choice(Random);

impl Choice {
    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.0.bits() as usize % all.len()]
    }

    fn yes(&mut self) -> bool {
        self.of(&[true, false])
    }

    /// A problem with src and residual around a mean, and their first elements far away.
    fn problem(&mut self, operation: &Operation, mean: f64) -> Problem {
        let mut problem = Problem::random(operation, self.0.bits());
        let len = operation.shape.iter().product();
        for (tensor, mean) in [(Tensor::Src, mean), (Tensor::Residual, mean - 0.5)] {
            if problem.has(tensor) {
                let mut numbers: Vec<f64> = self.0.vec(len, 1.5, mean);
                numbers[0] = mean + 30.0;
                problem.set(tensor, &numbers);
            }
        }
        problem
    }

    /// A context with other sizes and limits, and sometimes a forced algorithm.
    fn context(&mut self, subject: &Subject, algorithms: &[Algorithm]) -> Subject {
        let tiny = Tuning {
            tile: 64,
            busy_workgroups: 1 << 20,
            prefetched_pages: 2,
            small_tensor: 512,
            row_vec4s: 3,
            least_row_vec4s: 2,
            ..Tuning::GPU
        };
        let (name, tuning) = self.of(&[
            ("GPU", Tuning::GPU),
            ("software", Tuning::SOFTWARE),
            ("tiny", tiny),
        ]);
        let few = self.of(&[false, false, true]);
        let windows = self.of(&[false, false, true]);
        let forced = self.yes().then(|| self.of(algorithms));
        let what = format!("{name}, few buffers {few}, windows {windows}, {forced:?}");
        subject.with_profile(&what, |profile| {
            profile.tuning = tuning;
            profile.algorithm = forced;
            if few {
                profile.max_storage_buffers = 4;
            }
            if windows || name == "tiny" {
                profile.window_unit = 256;
            }
            if windows {
                profile.max_binding = 1 << 16;
            }
        })
    }
}

/// A result; none if the algorithm or the limits exclude the problem.
fn result<R>(result: Result<R, Error>, what: &str) -> Option<R> {
    match result {
        Ok(result) => Some(result),
        Err(Error::Algorithm { .. } | Error::Limit { .. }) => None,
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Asserts that the typed call of a forward pass gives the same bits, and updates any running statistics likewise.
fn check_typed<T: Element, P: ParamOf<T>>(
    problem: &Problem,
    want: &[Values],
    subject: &Subject,
    what: &str,
) {
    let operation = &problem.operation;
    let Pass::Forward(Forward {
        running,
        keep_statistics,
        ..
    }) = operation.pass
    else {
        panic!("{what} is no forward pass");
    };
    let of_params = |tensor| problem.has(tensor).then(|| problem.elements::<P>(tensor));
    let (src, gamma, beta) = (
        problem.elements::<T>(Tensor::Src),
        of_params(Tensor::Gamma),
        of_params(Tensor::Beta),
    );
    let residual = problem.has(Tensor::Residual);
    let residual = residual.then(|| problem.elements::<T>(Tensor::Residual));
    let old = |tensor| match running {
        Some(_) => problem.elements::<T::Sum>(tensor),
        None => vec![],
    };
    let mut running_mean = old(Tensor::RunningMean);
    let mut running_variance = old(Tensor::RunningVariance);
    let mut args = ForwardArgs::new(&operation.shape, &src)
        .gamma(gamma.as_deref())
        .beta(beta.as_deref());
    let residual = residual.as_deref();
    args = match operation.epilogue.residual {
        Residual::Before => args.residual_before(residual),
        _ => args.residual_after(residual),
    };
    if let Some(update) = running {
        let running = RunningStatistics::new(&mut running_mean, &mut running_variance, update);
        args = args.running(running);
    }
    if !keep_statistics {
        args = args.without_statistics();
    }
    let layer = Typed::of(operation, &subject.gpu).unwrap();
    let got = layer.forward(args).unwrap();
    let [dst, sum] = [&got.dst, got.sum.as_ref().unwrap_or(&vec![])]
        .map(|values| bytemuck::cast_slice::<T, u8>(values).to_vec());
    let bytes = |values: &[T::Sum]| bytemuck::cast_slice::<_, u8>(values).to_vec();
    for (tensor, got) in [
        (Tensor::Dst, dst),
        (Tensor::Sum, sum),
        (Tensor::Mean, bytes(&got.saved.mean)),
        (Tensor::Variance, bytes(&got.saved.variance)),
        (Tensor::MeanSquare, bytes(&got.saved.mean_square)),
        (Tensor::RunningMean, bytes(&running_mean)),
        (Tensor::RunningVariance, bytes(&running_variance)),
    ] {
        let mut found = want.iter().filter(|values| values.used.tensor == tensor);
        let want = found.next().map(|values| &*values.bytes);
        assert!(got == want.unwrap_or_default(), "{what}: typed {tensor:?}");
    }
    assert_eq!(got.saved.mask, None, "{what}");
}

/// Runs a forward pass and compares it with the reference, and with the typed call if it has this type of statistics.
fn run<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
    problem: &Problem,
    subject: &Subject,
) -> Option<Vec<Values>> {
    let what = format!("{:?} on {}", problem.operation, subject.name);
    let got = result(problem.run(subject), &what)?;
    assert_close(&got, &problem.reference(), &what);
    if S::DTYPE == T::Sum::DTYPE {
        check_typed::<T, P>(problem, &got, subject, &what);
    }
    Some(got)
}

/// Batch norm in training and with given statistics; returns whether it was run.
fn batch_norm<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
    choice: &mut Choice,
    subject: &Subject,
) -> bool {
    let (outer, channels) = (choice.of(&[1, 2, 3, 7, 33]), choice.of(&[1, 3, 4, 6, 12]));
    let inner = choice.of(&[1, 3, 5, 8, 13, 40, 64, 250]);
    let format = choice.of(&FORMATS);
    let shape = in_format(&[outer, channels, inner], format);
    let unbiased = outer * inner != 1 && choice.yes();
    let variance = match unbiased {
        true => RunningVariance::Unbiased,
        false => RunningVariance::Biased,
    };
    let update = RunningUpdate::new(choice.of(&[0.0, 0.25, 1.0]), variance);
    let forward = match choice.yes() {
        true => Forward::default().with_running(update),
        false => Forward::default(),
    };
    let [gamma, beta] = [(); 2].map(|()| choice.of(&[true, true, false]));
    let operation = Operation::new(Norm::batch(format), forward, &shape, types::<T, P, S>())
        .with_epsilon(EPSILON)
        .with_params(gamma, beta);
    let mean = choice.of(&[0.5, 100.0]);
    let problem = choice.problem(&operation, mean);
    let subject = choice.context(
        subject,
        &[
            Algorithm::ChannelsFirst,
            Algorithm::ChannelsLast,
            Algorithm::FusedChannelsFirst,
            Algorithm::FusedChannelsLast,
        ],
    );
    let Some(got) = run::<T, P, S>(&problem, &subject) else {
        return false;
    };
    let mut operation = operation;
    operation.pass = Pass::Inference;
    let statistics = [Tensor::Mean, Tensor::Variance];
    let statistics = statistics.map(|tensor| (tensor, find(&got, tensor).numbers()));
    let inference = by_statistics(&operation, &problem, &statistics);
    let what = format!("{operation:?} on {}", subject.name);
    if let Some(inferred) = result(inference.run(&subject), &what) {
        assert_close(&inferred, &inference.reference(), &what);
    }
    true
}

/// A problem with src, gamma and beta of a forward pass, and these statistics.
fn by_statistics(
    operation: &Operation,
    forward: &Problem,
    statistics: &[(Tensor, Vec<f64>)],
) -> Problem {
    let mut problem = Problem::random(operation, 4);
    for values in forward.inputs.iter() {
        if problem.has(values.used.tensor) {
            problem.set(values.used.tensor, &values.numbers());
        }
    }
    for (tensor, numbers) in statistics {
        problem.set(*tensor, numbers);
    }
    problem
}

/// Layer norm and RMS norm; returns whether they were run.
fn rows<T: Element, P: ParamOf<T>, S: ParamOf<T>>(choice: &mut Choice, subject: &Subject) -> bool {
    let rows = choice.of(&[1, 3, 9, 33]);
    let columns = choice.of(&[1, 2, 3, 4, 13, 24, 64, 66, 130, 1000, 4099]);
    let residual = choice.of(&[Residual::Before, Residual::None]);
    let affine = choice.yes();
    let beta = choice.of(&[true, true, false]) && affine;
    let forward = match choice.yes() {
        true => Forward::default(),
        false => Forward::default().without_statistics(),
    };
    let mean = choice.of(&[0.5, 100.0]);
    let subject = choice.context(
        subject,
        &[Algorithm::RowsInRegisters, Algorithm::RowsReadTwice],
    );
    let norms = [(Norm::layer(1), beta), (Norm::rms(1), false)];
    norms.into_iter().all(|(norm, beta)| {
        let operation = Operation::new(norm, forward, &[rows, columns], types::<T, P, S>())
            .with_epsilon(EPSILON)
            .with_params(affine, beta)
            .with_epilogue(Epilogue::new(residual, Activation::None));
        run::<T, P, S>(&choice.problem(&operation, mean), &subject).is_some()
    })
}

/// One of the two, with these types; returns whether it was run.
fn either<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
    choice: &mut Choice,
    subject: &Subject,
) -> bool {
    if !subject.takes::<T>() {
        return false;
    }
    match choice.yes() {
        true => batch_norm::<T, P, S>(choice, subject),
        false => rows::<T, P, S>(choice, subject),
    }
}

#[test]
fn random_problems() {
    for subject in every_subject().iter().filter(|subject| !subject.checked) {
        let mut choice = Choice(Random::new(71));
        let mut ran = 0;
        for case in 0..random_cases(120) {
            let run = match case % 12 {
                0..5 => either::<f32, f32, f32>,
                5 => either::<f16, f32, f32>,
                6 => either::<f16, f16, f16>,
                7 => either::<f16, f16, f32>,
                8 => either::<bf16, f32, f32>,
                9 => either::<bf16, bf16, bf16>,
                10 => either::<bf16, bf16, f32>,
                _ => either::<f64, f64, f64>,
            };
            ran += u32::from(run(&mut choice, subject));
        }
        println!("{}: {ran} ran", subject.name);
        assert!(
            ran >= random_cases(120) / 5,
            "{}: only {ran} ran",
            subject.name
        );
    }
}

/// Typed calls return statistics in the type of sums, and accept them in that type. The data's variance and mean exceed
/// what the parameters' 16 bits can hold.
fn there_and_back<T: Element, P: ParamOf<T>>(subject: &Subject, spread: f64, mean: f64) {
    let shape = &[4, 6, 10];
    let format = DataFormat::Ncx;
    let mut of_channels = Vec::new();
    for norm in [
        Norm::batch(format),
        Norm::Batch(Channels::Broadcast(vec![1, 6, 1])),
        Norm::group(2, format),
        Norm::instance(format),
        Norm::layer(2),
        Norm::rms(2),
    ] {
        let forward = Operation::new(norm, Forward::default(), shape, types::<T, P, T::Sum>());
        let forward = forward.with_epsilon(1e-10).with_params(true, false);
        let what = format!("{forward:?}, {spread} around {mean}, on {}", subject.name);
        let layer = Typed::of(&forward, &subject.gpu).unwrap();
        let mut problem = Problem::random(&forward, 3);
        let src: Vec<T> = Random::new(3).vec(240, spread, mean);
        problem.set(Tensor::Src, &to_f64(&src));
        let gamma: Vec<P> = problem.elements(Tensor::Gamma);
        let args = ForwardArgs::new(shape, &src).gamma(&gamma);
        let mut statistics = layer.forward(args).unwrap().saved;
        let want = problem.reference();
        let mut given = Vec::new();
        for &tensor in forward.norm.statistics() {
            let got = match tensor {
                Tensor::Mean => &statistics.mean,
                Tensor::Variance => &statistics.variance,
                _ => &statistics.mean_square,
            };
            close(got, &want, tensor, &what);
            given.push((tensor, to_f64(got)));
        }

        let args = InferenceArgs::new(shape, &src, &statistics);
        if let Some(dst) = layer.infer(args.gamma(&gamma)) {
            let mut inference = forward.clone();
            inference.pass = Pass::Inference;
            let want = by_statistics(&inference, &problem, &given).reference();
            close(&dst, &want, Tensor::Dst, &what);
        }

        let gradient = forward.gradient().unwrap();
        let problem = by_statistics(&gradient, &problem, &given);
        let diff_dst: Vec<T> = problem.elements(Tensor::DiffDst);
        let args = BackwardArgs::new(shape, &src, &diff_dst, &statistics);
        let grads = layer.backward(args.gamma(&gamma)).unwrap();
        let want = problem.reference();
        close(&grads.diff_src, &want, Tensor::DiffSrc, &what);
        close(&grads.diff_gamma.unwrap(), &want, Tensor::DiffGamma, &what);

        if matches!(layer, Typed::Rms(_)) {
            statistics.mean_square[1] = T::Sum::from_f64(f64::INFINITY);
            let args = BackwardArgs::new(shape, &src, &diff_dst, &statistics);
            let error = layer.backward(args.gamma(&gamma)).unwrap_err();
            let is_named = matches!(error, Error::Variance { channel: 1, .. });
            assert!(is_named, "{what}: {error}");
        }
        if let Typed::Batch(_) = layer {
            of_channels.push(statistics.variance);
        }
    }
    assert_eq!(of_channels[0], of_channels[1], "on {}", subject.name);
}

#[test]
fn sixteen_bits_have_statistics_of_their_sums() {
    for subject in subjects().iter().filter(|subject| subject.takes::<f16>()) {
        // The variance is 333,000 and 3e-9: infinite and 0 in f16.
        there_and_back::<f16, f16>(subject, 1000.0, 0.0);
        there_and_back::<f16, f16>(subject, 1e-4, 0.0);
        there_and_back::<bf16, bf16>(subject, 8.0, 160.0);
    }
}
