//! Forward passes against the float64 reference: every element type, layout, algorithm and option.

use crate::common::data::{Random, to_f64};
use crate::common::{Subject, every_pair, subjects, takes};
use pollster::block_on;
use wgpu_norm::reference::{self, Forward, scaled_error};
use wgpu_norm::{
    Algorithm, BatchNormForwardArgs, BatchNormInferenceArgs, BatchNormOptions, DataFormat, Element,
    GpuBatchNorm, GpuLayerNorm, GpuRmsNorm, LayerNormForwardArgs, LayerNormOptions, ParamOf,
    RmsNormForwardArgs, RmsNormOptions, RunningStatistics, RunningUpdate, RunningVariance, Tuning,
};

/// A result within its tolerance.
#[track_caller]
fn close<T: Element>(name: &str, got: &[T], want: &[f64], scale: &[f64], what: &str) {
    let error = scaled_error(got, want, scale);
    assert!(error <= 1.0, "{what}: {name} is off by {error} tolerances");
}

/// Numbers around a mean, the first of them far away.
fn numbers<T: Element>(random: &mut Random, len: usize, mean: f64) -> Vec<T> {
    let mut numbers: Vec<T> = random.vec(len, 1.5, mean);
    if let Some(first) = numbers.first_mut() {
        *first = T::from_f64(mean + 30.0);
    }
    numbers
}

/// Sizes for every kind of adapter, and such that cut little tensors.
fn tunings(subject: &Subject) -> Vec<Subject> {
    let tiny = Tuning {
        tile: 64,
        busy_workgroups: 1 << 20,
        walk_pages: 2,
        small_tensor: 512,
        row_vec4s: 3,
        least_row_vec4s: 2,
        ..Tuning::GPU
    };
    vec![
        subject.with_tuning("as for a GPU", Tuning::GPU),
        subject.with_tuning("as for software", Tuning::SOFTWARE),
        subject.with_profile("tiny", |profile| {
            profile.tuning = tiny;
            profile.window_unit = 256;
        }),
        subject.with_profile("four buffers", |profile| profile.max_storage_buffers = 4),
    ]
}

/// The algorithms that a context may be forced to, and its own choice.
fn forced(subject: &Subject, algorithms: &[Algorithm]) -> Vec<Subject> {
    let forced = algorithms.iter().map(|&algorithm| {
        subject.with_profile(algorithm.name(), |profile| {
            profile.algorithm = Some(algorithm)
        })
    });
    let own = subject.with_profile("its own choice", |_| {});
    forced.chain([own]).collect()
}

const SHAPES: [(&[usize], DataFormat); 14] = [
    (&[3, 5, 7], DataFormat::Ncx),
    (&[2, 6, 16], DataFormat::Ncx),
    (&[4, 8, 3, 3], DataFormat::Ncx),
    (&[1, 7, 1003], DataFormat::Ncx),
    (&[5, 12, 40], DataFormat::Ncx),
    (&[2, 3, 2050], DataFormat::Ncx),
    (&[33, 4], DataFormat::Nxc),
    (&[129, 12], DataFormat::Nxc),
    (&[7, 5, 64], DataFormat::Nxc),
    (&[300, 7], DataFormat::Nxc),
    (&[4, 3, 3, 5], DataFormat::Nxc),
    (&[1, 6, 1], DataFormat::Ncx),
    (&[0, 4, 3], DataFormat::Ncx),
    (&[70_001, 3], DataFormat::Nxc),
];

fn batch_norm<T: Element, P: ParamOf<T>>() {
    let mut random = Random::new(71);
    for (number, (shape, data_format)) in SHAPES.into_iter().enumerate() {
        if !takes::<T, P>(number) {
            continue;
        }
        let options = BatchNormOptions {
            data_format,
            ..BatchNormOptions::new(1e-3)
        };
        let axes = reference::channel_axes(shape.len(), data_format);
        let channels = match data_format {
            DataFormat::Ncx => shape[1],
            DataFormat::Nxc => shape[shape.len() - 1],
        };
        let elements: usize = shape.iter().product();
        let count = (elements / channels) as u64;
        let mean = [0.5, 100.0][number % 2];
        let src: Vec<T> = numbers(&mut random, elements, mean);
        let gamma: Vec<P> = random.vec(channels, 1.0, 0.5);
        let beta: Vec<P> = random.vec(channels, 1.0, 0.0);
        let gamma = (number % 3 != 2).then_some(gamma);
        let beta = (number % 4 != 3).then_some(beta);
        let unbiased = number % 2 == 0 && count != 1;
        let update = RunningUpdate {
            weight: 0.25,
            variance: match unbiased {
                true => RunningVariance::Unbiased,
                false => RunningVariance::Biased,
            },
        };
        let (gamma64, beta64) = (gamma.as_deref().map(to_f64), beta.as_deref().map(to_f64));
        let (src64, old) = (to_f64(&src), vec![P::from_f64(0.75); channels]);
        let layer = reference::BatchNormForward {
            shape,
            channel_axes: &axes,
            src: &src64,
            gamma: gamma64.as_deref(),
            beta: beta64.as_deref(),
            epsilon: options.epsilon,
        };
        let want = layer.train().unwrap();
        let running = |batch: &[f64], unbiased| {
            let old = to_f64(&old);
            reference::running(&old, batch, 0.25, count, unbiased).unwrap()
        };
        let (want_mean, want_variance) = (
            running(&want.mean, false),
            running(&want.variance, unbiased),
        );
        let scale_mean = running(&want.mean_scale, false);
        let scale_variance = running(&want.variance_scale, unbiased);
        for subject in subjects().iter().filter(|subject| subject.takes::<T>()) {
            for tuned in tunings(subject) {
                for subject in forced(
                    &tuned,
                    &[
                        Algorithm::ChannelsFirst,
                        Algorithm::ChannelsLast,
                        Algorithm::FusedChannelsFirst,
                        Algorithm::FusedChannelsLast,
                    ],
                ) {
                    let what = format!(
                        "{shape:?} {data_format:?} {}-{} on {}",
                        T::DTYPE,
                        P::DTYPE,
                        subject.name
                    );
                    let gpu_layer = GpuBatchNorm::new(&subject.gpu, options).unwrap();
                    let (mut running_mean, mut running_variance) = (old.clone(), old.clone());
                    let got = block_on(gpu_layer.forward(BatchNormForwardArgs {
                        shape,
                        src: &src,
                        gamma: gamma.as_deref(),
                        beta: beta.as_deref(),
                        running: Some(RunningStatistics {
                            mean: &mut running_mean,
                            variance: &mut running_variance,
                            update,
                        }),
                    }));
                    let got = match got {
                        Ok(got) => got,
                        Err(wgpu_norm::Error::Algorithm { .. }) => continue,
                        Err(error) => panic!("{what}: {error}"),
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
                    close(
                        "running_mean",
                        &running_mean,
                        &want_mean,
                        &scale_mean,
                        &what,
                    );
                    close(
                        "running_variance",
                        &running_variance,
                        &want_variance,
                        &scale_variance,
                        &what,
                    );
                    let Forward { dst, dst_scale, .. } = layer
                        .infer(&to_f64(&got.mean), &to_f64(&got.variance))
                        .unwrap();
                    let inferred = block_on(gpu_layer.infer(BatchNormInferenceArgs {
                        shape,
                        src: &src,
                        mean: &got.mean,
                        variance: &got.variance,
                        gamma: gamma.as_deref(),
                        beta: beta.as_deref(),
                    }));
                    match inferred {
                        Ok(inferred) => close("inferred dst", &inferred, &dst, &dst_scale, &what),
                        Err(wgpu_norm::Error::Algorithm { .. }) => {}
                        Err(error) => panic!("{what}: {error}"),
                    }
                }
            }
        }
    }
}
every_pair!(batch_norm);

const ROWS: [(usize, usize); 12] = [
    (5, 1),
    (3, 2),
    (9, 3),
    (7, 4),
    (33, 13),
    (6, 64),
    (17, 66),
    (5, 130),
    (3, 1000),
    (2, 4099),
    (40, 24),
    (0, 5),
];

fn rows<T: Element, P: ParamOf<T>>() {
    let mut random = Random::new(72);
    for (number, (rows, columns)) in ROWS.into_iter().enumerate() {
        if !takes::<T, P>(number) {
            continue;
        }
        let shape = [rows, columns];
        let mean = [0.5, 100.0][number % 2];
        let src: Vec<T> = numbers(&mut random, rows * columns, mean);
        let residual: Vec<T> = random.vec(rows * columns, 1.0, 0.0);
        let gamma: Vec<P> = random.vec(columns, 1.0, 0.5);
        let beta: Vec<P> = random.vec(columns, 1.0, 0.0);
        let (src64, residual64) = (to_f64(&src), to_f64(&residual));
        let (gamma64, beta64) = (to_f64(&gamma), to_f64(&beta));
        for (added, affine, keep_statistics) in [
            (false, true, true),
            (true, true, true),
            (true, false, false),
            (false, false, true),
        ] {
            let residual64 = added.then_some(residual64.as_slice());
            let residual = added.then_some(residual.as_slice());
            let want_layer = reference::LayerNormForward {
                shape: &shape,
                begin_norm_axis: 1,
                src: &src64,
                residual: residual64,
                gamma: affine.then_some(&gamma64),
                beta: affine.then_some(&beta64),
                epsilon: 1e-3,
            };
            let want_layer = want_layer.forward().unwrap();
            let want_rms = reference::RmsNormForward {
                shape: &shape,
                begin_norm_axis: 1,
                src: &src64,
                residual: residual64,
                gamma: affine.then_some(&gamma64),
                epsilon: 1e-3,
            };
            let want_rms = want_rms.forward().unwrap();
            for subject in subjects().iter().filter(|subject| subject.takes::<T>()) {
                for tuned in tunings(subject) {
                    if residual.is_some() && tuned.gpu.profile().max_storage_buffers < 5 {
                        continue;
                    }
                    for subject in forced(
                        &tuned,
                        &[Algorithm::RowsInRegisters, Algorithm::RowsReadTwice],
                    ) {
                        let what = format!(
                            "{shape:?} {}-{}, residual {}, affine {affine} on {}",
                            T::DTYPE,
                            P::DTYPE,
                            residual.is_some(),
                            subject.name
                        );
                        let options = LayerNormOptions {
                            use_affine: affine,
                            epsilon: 1e-3,
                            ..LayerNormOptions::default()
                        };
                        let layer = GpuLayerNorm::new(&subject.gpu, options).unwrap();
                        let got = block_on(layer.forward(LayerNormForwardArgs {
                            shape: &shape,
                            src: &src,
                            residual,
                            gamma: affine.then_some(&gamma),
                            beta: affine.then_some(&beta),
                            keep_statistics,
                        }));
                        let got = match got {
                            Ok(got) => got,
                            Err(wgpu_norm::Error::Algorithm { .. }) => continue,
                            Err(error) => panic!("{what}: {error}"),
                        };
                        let want = &want_layer;
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
                        if let Some(sum) = &got.sum {
                            close("sum", sum, &want.sum, &want.sum_scale, &what);
                        }
                        let options = RmsNormOptions {
                            epsilon: 1e-3,
                            ..RmsNormOptions::default()
                        };
                        let layer = GpuRmsNorm::new(&subject.gpu, options).unwrap();
                        let got = block_on(layer.forward(RmsNormForwardArgs {
                            shape: &shape,
                            src: &src,
                            residual,
                            gamma: affine.then_some(&gamma),
                            keep_statistics,
                        }));
                        let got = got.unwrap_or_else(|error| panic!("RMS {what}: {error}"));
                        let want = &want_rms;
                        close("RMS dst", &got.dst, &want.dst, &want.dst_scale, &what);
                        if keep_statistics {
                            close(
                                "mean_square",
                                &got.mean_square,
                                &want.mean_square,
                                &want.mean_square_scale,
                                &what,
                            );
                        }
                        if let Some(sum) = &got.sum {
                            close("RMS sum", sum, &want.sum, &want.sum_scale, &what);
                        }
                    }
                }
            }
        }
    }
}
every_pair!(rows);
