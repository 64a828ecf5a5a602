//! Forward passes against the float64 reference: random problems that cross operator, layout, element types, odd lengths,
//! tunings, algorithms, windows, few buffers, running statistics, gamma, beta and residual.

use crate::common::data::{Random, to_f64};
use crate::common::{Subject, every_subject, random_cases};
use half::{bf16, f16};
use pollster::block_on;
use wgpu_norm::reference::{self, scaled_error};
use wgpu_norm::{
    Algorithm, BatchNormForwardArgs, BatchNormInferenceArgs, BatchNormOptions, DataFormat, Element,
    Error, GpuBatchNorm, GpuLayerNorm, GpuRmsNorm, LayerNormForwardArgs, LayerNormOptions, ParamOf,
    RmsNormForwardArgs, RmsNormOptions, RunningStatistics, RunningUpdate, RunningVariance, Tuning,
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
    let options = RmsNormOptions {
        epsilon: EPSILON,
        ..RmsNormOptions::default()
    };
    let layer = GpuRmsNorm::new(&subject.gpu, options).unwrap();
    let got = block_on(
        layer.forward_with_statistics::<T, P, S>(RmsNormForwardArgs {
            shape: &shape,
            src: &src,
            residual: residual.as_deref(),
            gamma,
            keep_statistics,
        }),
    );
    let Some(got) = result(got, &format!("RMS {what}")) else {
        return false;
    };
    close("RMS dst", &got.dst, &want.dst, &want.dst_scale, &what);
    if keep_statistics {
        let scale = &want.mean_square_scale;
        close(
            "mean_square",
            &got.mean_square,
            &want.mean_square,
            scale,
            &what,
        );
    }
    if let Some(sum) = &got.sum {
        close("RMS sum", sum, &want.sum, &want.sum_scale, &what);
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
