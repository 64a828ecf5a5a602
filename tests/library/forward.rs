//! Forward passes against the float64 reference: random problems that cross operator, layout, element types, odd lengths,
//! tunings, algorithms, windows, few buffers, running statistics, gamma, beta and residual.

use crate::common::data::{Random, to_f64};
use crate::common::{Subject, every_subject, random_cases, subjects};
use half::{bf16, f16};
use pollster::block_on;
use wgpu_norm::reference::{self, scaled_error};
use wgpu_norm::{
    Activation, Algorithm, BackwardArgs, BatchNormBackwardArgs, BatchNormForwardArgs,
    BatchNormInferenceArgs, BatchNormOptions, DTypes, DataFormat, Element, Epilogue, Error,
    Forward, ForwardArgs, GpuBatchNorm, GpuGroupNorm, GpuInstanceNorm, GpuLayerNorm, GpuRmsNorm,
    Grads, GroupNormBackwardArgs, GroupNormForwardArgs, GroupNormInferenceArgs, GroupNormOptions,
    InstanceNormOptions, LayerNormBackwardArgs, LayerNormForwardArgs, LayerNormOptions, Norm,
    Operation, ParamGrads, ParamOf, Residual, RmsNormOptions, RunningStatistics, RunningUpdate,
    RunningVariance, SavedStatistics, Statistics, Tensor, Tuning, bytemuck,
};

const EPSILON: f64 = 1e-3;

/// A result within its tolerance.
#[track_caller]
fn close<T: Element>(name: &str, got: &[T], want: &[f64], scale: &[f64], what: &str) {
    let error = scaled_error(got, want, scale);
    assert!(error <= 1.0, "{what}: {name} is off by {error} tolerances");
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

    /// Numbers around a mean, the first of them far away.
    fn numbers<T: Element>(&mut self, len: usize, mean: f64) -> Vec<T> {
        let mut numbers: Vec<T> = self.0.vec(len, 1.5, mean);
        if let Some(first) = numbers.first_mut() {
            *first = T::from_f64(mean + 30.0);
        }
        numbers
    }

    fn params<P: Element>(&mut self, len: usize, offset: f64) -> Option<Vec<P>> {
        self.of(&[true, true, false])
            .then(|| self.0.vec(len, 1.0, offset))
    }

    /// A context with other sizes and limits, and maybe a forced algorithm.
    fn context(&mut self, subject: &Subject, algorithms: &[Algorithm]) -> Subject {
        let tiny = Tuning {
            tile: 64,
            busy_workgroups: 1 << 20,
            walk_pages: 2,
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

/// A result, or none where the problem is not for the algorithm or the limits.
fn result<R>(result: Result<R, Error>, what: &str) -> Option<R> {
    match result {
        Ok(result) => Some(result),
        Err(Error::Algorithm { .. } | Error::Limit { .. }) => None,
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Batch norm in training and by given statistics; whether it was run.
fn batch_norm<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
    choice: &mut Choice,
    subject: &Subject,
) -> bool {
    let (outer, channels) = (choice.of(&[1, 2, 3, 7, 33]), choice.of(&[1, 3, 4, 6, 12]));
    let inner = choice.of(&[1, 3, 5, 8, 13, 40, 64, 250]);
    let data_format = choice.of(&[DataFormat::Ncx, DataFormat::Nxc]);
    let shape = match data_format {
        DataFormat::Ncx => [outer, channels, inner],
        DataFormat::Nxc => [outer, inner, channels],
    };
    let axes = reference::channel_axes(3, data_format);
    let count = (outer * inner) as u64;
    let mean = choice.of(&[0.5, 100.0]);
    let src: Vec<T> = choice.numbers(outer * channels * inner, mean);
    let (gamma, beta) = (
        choice.params::<P>(channels, 0.5),
        choice.params::<P>(channels, 0.0),
    );
    let unbiased = count != 1 && choice.yes();
    let update = RunningUpdate {
        weight: choice.of(&[0.0, 0.25, 1.0]),
        variance: match unbiased {
            true => RunningVariance::Unbiased,
            false => RunningVariance::Biased,
        },
    };
    let old = vec![S::from_f64(0.75); channels];
    let (src64, old64) = (to_f64(&src), to_f64(&old));
    let (gamma64, beta64) = (gamma.as_deref().map(to_f64), beta.as_deref().map(to_f64));
    let layer = reference::BatchNormForward {
        shape: &shape,
        channel_axes: &axes,
        src: &src64,
        gamma: gamma64.as_deref(),
        beta: beta64.as_deref(),
        epsilon: EPSILON,
    };
    let want = layer.train().unwrap();
    let subject = choice.context(
        subject,
        &[
            Algorithm::ChannelsFirst,
            Algorithm::ChannelsLast,
            Algorithm::FusedChannelsFirst,
            Algorithm::FusedChannelsLast,
        ],
    );
    let types = format!("{}-{}-{}", T::DTYPE, P::DTYPE, S::DTYPE);
    let what = format!(
        "{shape:?} {data_format:?} {types} {update:?} on {}",
        subject.name
    );
    let options = BatchNormOptions {
        data_format,
        ..BatchNormOptions::new(EPSILON)
    };
    let gpu_layer = GpuBatchNorm::new(&subject.gpu, options).unwrap();
    let (mut running_mean, mut running_variance) = (old.clone(), old);
    let with_running = choice.yes();
    let running = RunningStatistics {
        mean: &mut running_mean,
        variance: &mut running_variance,
        update,
    };
    let got = block_on(gpu_layer.forward_with_statistics(BatchNormForwardArgs {
        shape: &shape,
        src: &src,
        gamma: gamma.as_deref(),
        beta: beta.as_deref(),
        running: with_running.then_some(running),
        residual: None,
    }));
    let Some(got) = result(got, &what) else {
        return false;
    };
    close("mean", &got.mean, &want.mean, &want.mean_scale, &what);
    close(
        "variance",
        &got.variance,
        &want.variance,
        &want.variance_scale,
        &what,
    );
    close("dst", &got.dst, &want.dst, &want.dst_scale, &what);
    if with_running {
        let running = |batch: &[f64], unbiased| {
            reference::running(&old64, batch, update.weight, count, unbiased).unwrap()
        };
        let mean = (running(&want.mean, false), running(&want.mean_scale, false));
        let variance = (
            running(&want.variance, unbiased),
            running(&want.variance_scale, unbiased),
        );
        close("running_mean", &running_mean, &mean.0, &mean.1, &what);
        close(
            "running_variance",
            &running_variance,
            &variance.0,
            &variance.1,
            &what,
        );
    }
    let want = layer
        .infer(&to_f64(&got.mean), &to_f64(&got.variance))
        .unwrap();
    let inferred = block_on(gpu_layer.infer_with_statistics(BatchNormInferenceArgs {
        shape: &shape,
        src: &src,
        mean: &got.mean,
        variance: &got.variance,
        gamma: gamma.as_deref(),
        beta: beta.as_deref(),
        residual: None,
    }));
    if let Some(inferred) = result(inferred, &what) {
        close("inferred dst", &inferred, &want.dst, &want.dst_scale, &what);
    }
    true
}

/// Layer norm and RMS norm; whether they were run.
fn rows<T: Element, P: ParamOf<T>, S: ParamOf<T>>(choice: &mut Choice, subject: &Subject) -> bool {
    let rows = choice.of(&[1, 3, 9, 33]);
    let columns = choice.of(&[1, 2, 3, 4, 13, 24, 64, 66, 130, 1000, 4099]);
    let shape = [rows, columns];
    let mean = choice.of(&[0.5, 100.0]);
    let src: Vec<T> = choice.numbers(rows * columns, mean);
    let residual: Option<Vec<T>> = choice
        .yes()
        .then(|| choice.numbers(rows * columns, mean - 0.5));
    let affine = choice.yes();
    let gamma: Vec<P> = choice.0.vec(columns, 1.0, 0.5);
    let gamma = affine.then_some(gamma.as_slice());
    let beta = choice.params::<P>(columns, 0.0).filter(|_| affine);
    let keep_statistics = choice.yes();
    let (src64, residual64) = (to_f64(&src), residual.as_deref().map(to_f64));
    let (gamma64, beta64) = (gamma.map(to_f64), beta.as_deref().map(to_f64));
    let subject = choice.context(
        subject,
        &[Algorithm::RowsInRegisters, Algorithm::RowsReadTwice],
    );
    let types = format!("{}-{}-{}", T::DTYPE, P::DTYPE, S::DTYPE);
    let added = residual.is_some();
    let what = format!(
        "{shape:?} {types} residual {added}, affine {affine} on {}",
        subject.name
    );

    let want = reference::LayerNormForward {
        shape: &shape,
        begin_norm_axis: 1,
        src: &src64,
        residual: residual64.as_deref(),
        gamma: gamma64.as_deref(),
        beta: beta64.as_deref(),
        epsilon: EPSILON,
    };
    let want = want.forward().unwrap();
    let options = LayerNormOptions {
        use_affine: affine,
        epsilon: EPSILON,
        ..LayerNormOptions::default()
    };
    let layer = GpuLayerNorm::new(&subject.gpu, options).unwrap();
    let got = block_on(
        layer.forward_with_statistics::<T, P, S>(LayerNormForwardArgs {
            shape: &shape,
            src: &src,
            residual: residual.as_deref(),
            gamma,
            beta: beta.as_deref(),
            keep_statistics,
        }),
    );
    let Some(got) = result(got, &what) else {
        return false;
    };
    close("dst", &got.dst, &want.dst, &want.dst_scale, &what);
    if keep_statistics {
        close("mean", &got.mean, &want.mean, &want.mean_scale, &what);
        close(
            "variance",
            &got.variance,
            &want.variance,
            &want.variance_scale,
            &what,
        );
    }
    assert_eq!(got.sum.is_some(), added, "{what}");
    if let Some(sum) = &got.sum {
        close("sum", sum, &want.sum, &want.sum_scale, &what);
    }

    let want = reference::RmsNormForward {
        shape: &shape,
        begin_norm_axis: 1,
        src: &src64,
        residual: residual64.as_deref(),
        gamma: gamma64.as_deref(),
        epsilon: EPSILON,
    };
    let want = want.forward().unwrap();
    let pass = match keep_statistics {
        true => Forward::default(),
        false => Forward::default().without_statistics(),
    };
    let placed = match added {
        true => Residual::Before,
        false => Residual::None,
    };
    let types = DTypes::from((T::DTYPE, P::DTYPE)).with_statistics(S::DTYPE);
    let operation = Operation::new(Norm::Rms { begin_axis: 1 }, pass, &shape, types)
        .with_epsilon(EPSILON)
        .with_params(affine, false)
        .with_epilogue(Epilogue::new(placed, Activation::None));
    let mut inputs: Vec<(Tensor, &[u8])> = vec![(Tensor::Src, bytemuck::cast_slice(&src))];
    inputs.extend(gamma.map(|gamma| (Tensor::Gamma, bytemuck::cast_slice(gamma))));
    let residual = residual.as_deref();
    inputs.extend(residual.map(|added| (Tensor::Residual, bytemuck::cast_slice(added))));
    let (mut dst, mut sum) = (src.clone(), src.clone());
    let mut mean_square = vec![S::from_f64(0.0); rows];
    let mut outputs = vec![(Tensor::Dst, bytemuck::cast_slice_mut(&mut dst))];
    if keep_statistics {
        let bytes = bytemuck::cast_slice_mut(&mut mean_square);
        outputs.push((Tensor::MeanSquare, bytes));
    }
    if added {
        outputs.push((Tensor::Sum, bytemuck::cast_slice_mut(&mut sum)));
    }
    let got = block_on(operation.run_into(&subject.gpu, &inputs, &mut outputs));
    if result(got, &format!("RMS {what}")).is_none() {
        return false;
    }
    close("RMS dst", &dst, &want.dst, &want.dst_scale, &what);
    if keep_statistics {
        let scale = &want.mean_square_scale;
        close("mean_square", &mean_square, &want.mean_square, scale, &what);
    }
    if added {
        close("RMS sum", &sum, &want.sum, &want.sum_scale, &what);
    }
    if S::DTYPE == T::Sum::DTYPE {
        // The typed call is the same operation.
        let options = RmsNormOptions {
            epsilon: EPSILON,
            ..RmsNormOptions::default()
        };
        let layer = GpuRmsNorm::new(&subject.gpu, options).unwrap();
        let args = ForwardArgs::new(&shape, &src)
            .params(gamma, None)
            .residual(residual);
        let args = match keep_statistics {
            true => args,
            false => args.without_statistics(),
        };
        let got = block_on(layer.forward(args)).unwrap();
        assert!(got.dst == dst && got.sum == added.then_some(sum), "{what}");
        let kept = got.statistics.mean_square;
        let want = keep_statistics.then_some(to_f64(&mean_square));
        assert_eq!(to_f64(&kept), want.unwrap_or_default(), "{what}");
    }
    true
}

/// One of the two, of these types; whether it was run.
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
        for case in 0..random_cases(240) {
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
            ran >= random_cases(240) / 5,
            "{}: only {ran} ran",
            subject.name
        );
    }
}

/// Gradients within their tolerance.
#[track_caller]
fn grads_close<T: Element, P: Element>(got: &Grads<T, P>, want: &reference::Gradients, what: &str) {
    close(
        "diff_src",
        &got.diff_src,
        &want.diff_src,
        &want.diff_src_scale,
        what,
    );
    let diff_gamma = got.diff_gamma.as_deref().unwrap_or_default();
    let scale = &want.diff_gamma_scale;
    close("diff_gamma", diff_gamma, &want.diff_gamma, scale, what);
}

/// Who asks for no type of statistics gets them in that of sums, and gives them so to the gradient: data reach beyond what
/// the parameters' 16 bits hold of their variance, and of their mean.
fn there_and_back<T: Element, P: ParamOf<T>>(subject: &Subject, spread: f64, mean: f64) {
    const SHAPE: [usize; 3] = [4, 6, 10];
    const EPSILON: f64 = 1e-10;
    let shape = &SHAPE;
    let mut random = Random::new(3);
    let (src, diff_dst): (Vec<T>, Vec<T>) =
        (random.vec(240, spread, mean), random.vec(240, 1.0, 0.1));
    let gamma: Vec<P> = random.vec(6, 0.5, 1.0);
    let gamma_of_rows: Vec<P> = random.vec(10, 0.5, 1.0);
    let [src64, diff_dst64] = [&src, &diff_dst].map(|values| to_f64(values));
    let [gamma64, gamma_of_rows64] = [&gamma, &gamma_of_rows].map(|values| to_f64(values));
    let of = |layer: &str| {
        let (data, params, name) = (T::DTYPE, P::DTYPE, &subject.name);
        format!("{layer} of {data}-{params}, {spread} around {mean}, on {name}")
    };
    let statistics_close = |got: [&[T::Sum]; 2], want: &reference::Forward, what: &str| {
        close("mean", got[0], &want.mean, &want.mean_scale, what);
        close(
            "variance",
            got[1],
            &want.variance,
            &want.variance_scale,
            what,
        );
    };

    let what = of("batch norm");
    let options = BatchNormOptions {
        data_format: DataFormat::Ncx,
        ..BatchNormOptions::new(EPSILON)
    };
    let layer = GpuBatchNorm::new(&subject.gpu, options).unwrap();
    let channel_axes = &*reference::channel_axes(3, DataFormat::Ncx);
    let want = reference::BatchNormForward {
        shape,
        channel_axes,
        src: &src64,
        gamma: Some(&gamma64),
        beta: None,
        epsilon: EPSILON,
    };
    let args = || BatchNormForwardArgs {
        shape,
        src: &src,
        gamma: Some(&gamma),
        beta: None,
        residual: None,
        running: None,
    };
    let got = block_on(layer.forward(args())).unwrap();
    let (mean64, variance64) = (to_f64(&got.mean), to_f64(&got.variance));
    statistics_close([&got.mean, &got.variance], &want.train().unwrap(), &what);
    let broadcast = block_on(layer.forward_broadcast(&[1, 6, 1], args())).unwrap();
    assert_eq!(broadcast.variance, got.variance, "{what}");
    let inferred = block_on(layer.infer(BatchNormInferenceArgs {
        shape,
        src: &src,
        mean: &got.mean,
        variance: &got.variance,
        gamma: Some(&gamma),
        beta: None,
        residual: None,
    }));
    let want = want.infer(&mean64, &variance64).unwrap();
    close("dst", &inferred.unwrap(), &want.dst, &want.dst_scale, &what);
    let grads = layer.backward(BatchNormBackwardArgs {
        shape,
        src: &src,
        diff_dst: &diff_dst,
        mean: &got.mean,
        variance: &got.variance,
        gamma: Some(&gamma),
        beta: None,
        mask: None,
    });
    let want = reference::BatchNorm {
        shape,
        channel_axes,
        src: &src64,
        diff_dst: &diff_dst64,
        mean: &mean64,
        variance: &variance64,
        gamma: Some(&gamma64),
        epsilon: EPSILON,
        statistics: Through::Batch,
        param_grads: ParamGrads::Both,
    };
    grads_close(&block_on(grads).unwrap(), &want.backward().unwrap(), &what);

    for groups in [2, 6] {
        let what = of(&format!("{groups} groups"));
        let options = GroupNormOptions {
            epsilon: EPSILON,
            ..GroupNormOptions::new(groups)
        };
        let layer = GpuGroupNorm::new(&subject.gpu, options).unwrap();
        let of_channels = InstanceNormOptions {
            epsilon: EPSILON,
            ..InstanceNormOptions::default()
        };
        let of_channels = GpuInstanceNorm::new(&subject.gpu, of_channels).unwrap();
        let args = GroupNormForwardArgs {
            shape,
            src: &src,
            gamma: Some(&gamma),
            beta: None,
            residual: None,
        };
        let got = match groups {
            6 => block_on(of_channels.forward(args)).unwrap(),
            _ => block_on(layer.forward(args)).unwrap(),
        };
        let (mean64, variance64) = (to_f64(&got.mean), to_f64(&got.variance));
        let want = reference::GroupNormForward {
            shape,
            data_format: DataFormat::Ncx,
            groups,
            src: &src64,
            gamma: Some(&gamma64),
            beta: None,
            epsilon: EPSILON,
        };
        statistics_close([&got.mean, &got.variance], &want.forward().unwrap(), &what);
        let inferred = block_on(layer.infer(GroupNormInferenceArgs {
            shape,
            src: &src,
            mean: &got.mean,
            variance: &got.variance,
            gamma: Some(&gamma),
            beta: None,
            residual: None,
        }));
        let want = want.infer(&mean64, &variance64).unwrap();
        close("dst", &inferred.unwrap(), &want.dst, &want.dst_scale, &what);
        let args = GroupNormBackwardArgs {
            shape,
            src: &src,
            diff_dst: &diff_dst,
            mean: &got.mean,
            variance: &got.variance,
            gamma: Some(&gamma),
            beta: None,
            mask: None,
        };
        let grads = match groups {
            6 => block_on(of_channels.backward(args)).unwrap(),
            _ => block_on(layer.backward(args)).unwrap(),
        };
        let want = reference::GroupNorm {
            shape,
            data_format: DataFormat::Ncx,
            groups,
            src: &src64,
            diff_dst: &diff_dst64,
            mean: &mean64,
            variance: &variance64,
            gamma: Some(&gamma64),
            epsilon: EPSILON,
            param_grads: ParamGrads::Both,
        };
        grads_close(&grads, &want.backward().unwrap(), &what);
    }

    let what = of("layer norm");
    let options = LayerNormOptions {
        epsilon: EPSILON,
        ..LayerNormOptions::default()
    };
    let layer = GpuLayerNorm::new(&subject.gpu, options).unwrap();
    let got = block_on(layer.forward(LayerNormForwardArgs {
        shape,
        src: &src,
        residual: None,
        gamma: Some(&gamma_of_rows),
        beta: None,
        keep_statistics: true,
    }));
    let got = got.unwrap();
    let want = reference::LayerNormForward {
        shape,
        begin_norm_axis: 2,
        src: &src64,
        residual: None,
        gamma: Some(&gamma_of_rows64),
        beta: None,
        epsilon: EPSILON,
    };
    statistics_close([&got.mean, &got.variance], &want.forward().unwrap(), &what);
    let zeros = vec![P::from_f64(0.0); 10];
    let grads = layer.backward(LayerNormBackwardArgs {
        shape,
        src: &src,
        diff_dst: &diff_dst,
        mean: &got.mean,
        variance: &got.variance,
        gamma: Some(&gamma_of_rows),
        beta: Some(&zeros),
    });
    let want = reference::LayerNorm {
        shape,
        begin_norm_axis: 2,
        src: &src64,
        diff_dst: &diff_dst64,
        mean: &to_f64(&got.mean),
        variance: &to_f64(&got.variance),
        gamma: Some(&gamma_of_rows64),
        epsilon: EPSILON,
        param_grads: ParamGrads::Both,
    };
    grads_close(&block_on(grads).unwrap(), &want.backward().unwrap(), &what);

    let what = of("RMS norm");
    let options = RmsNormOptions {
        epsilon: EPSILON,
        ..RmsNormOptions::default()
    };
    let layer = GpuRmsNorm::new(&subject.gpu, options).unwrap();
    let args = ForwardArgs::new(shape, &src).params(Some(&gamma_of_rows), None);
    let mut statistics = block_on(layer.forward(args)).unwrap().statistics;
    let want = reference::RmsNormForward {
        shape,
        begin_norm_axis: 2,
        src: &src64,
        residual: None,
        gamma: Some(&gamma_of_rows64),
        epsilon: EPSILON,
    };
    let want = want.forward().unwrap();
    let scale = &want.mean_square_scale;
    let mean_square = &statistics.mean_square;
    close("mean_square", mean_square, &want.mean_square, scale, &what);
    let backward = |statistics: &SavedStatistics<T::Sum>| {
        let args = BackwardArgs::new(shape, &src, &diff_dst, statistics);
        block_on(layer.backward(args.params(Some(&gamma_of_rows), None)))
    };
    let want = reference::RmsNorm {
        shape,
        begin_norm_axis: 2,
        src: &src64,
        diff_dst: &diff_dst64,
        mean_square: &to_f64(mean_square),
        gamma: Some(&gamma_of_rows64),
        epsilon: EPSILON,
        param_grads: ParamGrads::Both,
    };
    let grads = backward(&statistics).unwrap();
    grads_close(&grads, &want.backward().unwrap(), &what);
    statistics.mean_square[1] = T::Sum::from_f64(f64::INFINITY);
    let error = backward(&statistics).unwrap_err();
    assert!(
        matches!(error, Error::Variance { channel: 1, .. }),
        "{what}: {error}"
    );
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
