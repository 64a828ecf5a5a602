//! Statistics of the forward passes that can be trusted: whatever the mean is beside the deviation, in any order, whole, in
//! windows and in parts.

use crate::common::data::Random;
use crate::common::{Subject, random_cases, subjects, takes_all};
use pollster::block_on;
use wgpu_norm::{
    Algorithm, BatchNormForwardArgs, BatchNormForwardBuffers, BatchNormForwardOperands,
    BatchNormOptions, BatchNormOutput, ChannelStatistics, DType, DataFormat, Error, GpuBatchNorm,
    GpuLayerNorm, LayerNormForwardArgs, LayerNormOptions, Shards, Tuning, bytemuck,
};

/// What elements may be like.
#[derive(Clone, Copy, Debug)]
enum Order {
    Random,
    Rising,
    /// The first one is far from the others.
    Outlier,
    Constant,
}

/// Elements of a channel whose deviation is about 1, around a mean.
fn channel(random: &mut Random, len: usize, mean: f64, order: Order) -> Vec<f32> {
    let mut values: Vec<f32> = random.vec(len, 1.7, mean);
    match order {
        Order::Random => {}
        Order::Rising => values.sort_by(f32::total_cmp),
        Order::Outlier => values[0] = (mean + 1e6) as f32,
        Order::Constant => values.fill((mean + 0.1) as f32),
    }
    values
}

/// Mean and variance in float64, of the stored values.
fn exact(values: &[f32]) -> (f64, f64) {
    let count = values.len() as f64;
    let first = f64::from(values[0]);
    let rest: f64 = values.iter().map(|&x| f64::from(x) - first).sum();
    let mean = first + rest / count;
    let squares = values.iter().map(|&x| (f64::from(x) - mean).powi(2));
    (mean, squares.sum::<f64>() / count)
}

fn check(mean: f32, variance: f32, values: &[f32], what: &str) {
    let (want_mean, want_variance) = exact(values);
    let off = (f64::from(variance) - want_variance).abs();
    assert!(
        off <= 1e-5 * want_variance,
        "{what}: variance {variance}, not {want_variance}: {:e} off",
        off / want_variance
    );
    let deviation = want_variance.sqrt();
    let ulp = want_mean.abs() * f64::from(f32::EPSILON);
    assert!(
        (f64::from(mean) - want_mean).abs() <= 1e-6 * deviation + ulp,
        "{what}: mean {mean}, not {want_mean}"
    );
}

fn contexts(subject: &Subject) -> Vec<Subject> {
    let tunings = [("GPU", Tuning::GPU), ("software", Tuning::SOFTWARE)];
    let tuned = tunings.map(|(name, tuning)| subject.with_tuning(name, tuning));
    let algorithms = [
        None,
        Some(Algorithm::ChannelsFirst),
        Some(Algorithm::ChannelsLast),
        Some(Algorithm::FusedChannelsFirst),
        Some(Algorithm::FusedChannelsLast),
    ];
    let force = |tuned: &Subject, algorithm: Option<Algorithm>| {
        let name = algorithm.map_or("its own", Algorithm::name);
        tuned.with_profile(name, |profile| profile.algorithm = algorithm)
    };
    let all = tuned.iter();
    all.flat_map(|tuned| algorithms.map(|algorithm| force(tuned, algorithm)))
        .collect()
}

/// The channels' elements in a tensor.
fn interleave(channels: &[Vec<f32>], outer: usize, inner: usize, format: DataFormat) -> Vec<f32> {
    match format {
        DataFormat::Ncx => {
            let mut src = Vec::new();
            for n in 0..outer {
                for channel in channels {
                    src.extend(&channel[n * inner..(n + 1) * inner]);
                }
            }
            src
        }
        DataFormat::Nxc => (0..outer * inner)
            .flat_map(|i| channels.iter().map(move |channel| channel[i]))
            .collect(),
    }
}

fn forward(
    subject: &Subject,
    options: BatchNormOptions,
    shape: &[usize],
    src: &[f32],
) -> Option<BatchNormOutput<f32, f32>> {
    let layer = GpuBatchNorm::new(&subject.gpu, options).unwrap();
    let args = BatchNormForwardArgs::<f32, f32> {
        shape,
        src,
        gamma: None,
        beta: None,
        running: None,
        residual: None,
    };
    match block_on(layer.forward(args)) {
        Ok(output) => Some(output),
        Err(Error::Algorithm { .. }) => None,
        Err(error) => panic!("{shape:?} on {}: {error}", subject.name),
    }
}

#[test]
fn batch_statistics_are_exact_whatever_the_mean() {
    let mut random = Random::new(9);
    let mut sizes = vec![
        (1, 2),
        (2, 1),
        (3, 5),
        (4, 64),
        (7, 333),
        (2, 4099),
        (16, 8192),
    ];
    if takes_all() {
        sizes.extend([(8, 16_384), (1, 1 << 23)]);
    }
    for (outer, inner) in sizes {
        for order in [
            Order::Random,
            Order::Rising,
            Order::Outlier,
            Order::Constant,
        ] {
            let means = [0.0, 30.0, 1e4, 1e6];
            let channels = means.map(|mean| channel(&mut random, outer * inner, mean, order));
            for format in [DataFormat::Ncx, DataFormat::Nxc] {
                let shape = match format {
                    DataFormat::Ncx => [outer, 4, inner],
                    DataFormat::Nxc => [outer, inner, 4],
                };
                let src = interleave(&channels, outer, inner, format);
                let options = BatchNormOptions {
                    data_format: format,
                    ..BatchNormOptions::new(1e-5)
                };
                // Millions of elements take each way once.
                let vast = outer * inner > 1 << 20;
                if vast && (format == DataFormat::Nxc || matches!(order, Order::Rising)) {
                    continue;
                }
                let unchecked = subjects().iter().filter(|subject| !subject.checked);
                for subject in unchecked.filter(|subject| !vast || subject.takes_all_types) {
                    let all = contexts(subject);
                    let own = all
                        .iter()
                        .filter(|c| !vast || c.gpu.profile().algorithm.is_none());
                    for subject in own {
                        let Some(got) = forward(subject, options, &shape, &src) else {
                            continue;
                        };
                        for (c, values) in channels.iter().enumerate() {
                            let what =
                                format!("{shape:?} {format:?} {order:?} {c} on {}", subject.name);
                            check(got.mean[c], got.variance[c], values, &what);
                            if matches!(order, Order::Constant) {
                                assert_eq!(got.variance[c], 0.0, "{what}");
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn row_statistics_are_exact_whatever_the_mean() {
    let mut random = Random::new(10);
    for columns in [2, 3, 17, 64, 333, 1024, 4099, 20_000] {
        for order in [
            Order::Random,
            Order::Rising,
            Order::Outlier,
            Order::Constant,
        ] {
            let means = [0.0, 30.0, 1e4, 1e6, 40_000.0];
            let rows = means.map(|mean| channel(&mut random, columns, mean, order));
            let src = rows.concat();
            // The same numbers as sums: what is added before the layer has the large mean.
            let small: Vec<f32> = random.vec(src.len(), 1.0, 0.0);
            let small = match order {
                Order::Constant => vec![0.5; src.len()],
                _ => small,
            };
            let sums: Vec<f32> = small.iter().zip(&src).map(|(a, b)| a + b).collect();
            for subject in subjects().iter().filter(|subject| !subject.checked) {
                let tunings = [("GPU", Tuning::GPU), ("software", Tuning::SOFTWARE)];
                for (name, tuning) in tunings {
                    for (algorithm, added) in [
                        (None, false),
                        (Some(Algorithm::RowsReadTwice), false),
                        (None, true),
                        (Some(Algorithm::RowsReadTwice), true),
                    ] {
                        let subject = subject.with_profile(name, |profile| {
                            profile.tuning = tuning;
                            profile.algorithm = algorithm;
                        });
                        let options = LayerNormOptions {
                            use_affine: false,
                            ..LayerNormOptions::default()
                        };
                        let layer = GpuLayerNorm::new(&subject.gpu, options).unwrap();
                        let got = block_on(layer.forward(LayerNormForwardArgs::<f32, f32> {
                            shape: &[rows.len(), columns],
                            src: if added { &small } else { &src },
                            residual: added.then_some(&src),
                            gamma: None,
                            beta: None,
                            keep_statistics: true,
                        }))
                        .unwrap();
                        let all = if added { &sums } else { &src };
                        for (row, values) in all.chunks(columns).enumerate() {
                            let what = format!(
                                "{columns} {order:?} {row} {algorithm:?}, added {added} on {}",
                                subject.name
                            );
                            check(got.mean[row], got.variance[row], values, &what);
                            if matches!(order, Order::Constant) {
                                assert_eq!(got.variance[row], 0.0, "{what}");
                                let dst = &got.dst[row * columns..(row + 1) * columns];
                                assert!(dst.iter().all(|&y| y == 0.0), "{what}: {dst:?}");
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The two halves over parts of a batch, one of them without samples: each part gets the statistics of all, to the bit.
#[test]
fn parts_of_a_batch_have_the_statistics_of_all() {
    let mut random = Random::new(11);
    for case in 0..random_cases(16) {
        let (channels, inner) = (1 + case as usize % 7, [1, 4, 13, 40][case as usize % 4]);
        let parts = [3, 0, 1 + case as usize];
        let samples: usize = parts.iter().sum();
        let src: Vec<f32> = random.vec(samples * channels * inner, 2.0, 1e4);
        let options = BatchNormOptions {
            data_format: DataFormat::Ncx,
            ..BatchNormOptions::new(1e-3)
        };
        for subject in subjects().iter().filter(|subject| !subject.checked) {
            let whole = forward(subject, options, &[samples, channels, inner], &src).unwrap();
            let layer = GpuBatchNorm::new(&subject.gpu, options).unwrap();
            let mut first = 0;
            let mut shards = Vec::new();
            for (index, &part) in (0..).zip(&parts) {
                let operands = BatchNormForwardOperands {
                    shards: Shards { count: 3, index },
                    ..BatchNormForwardOperands::default()
                };
                let shape = [part, channels, inner];
                let plan = layer.plan_forward(&shape, DType::F32, operands).unwrap();
                let elements = part * channels * inner;
                let own = &src[first..first + elements];
                first += elements;
                let sizes = plan.padded_sizes();
                let buffer = |size: u64, bytes: &[u8]| subject.buffer(size.max(16), bytes);
                let buffers = [
                    buffer(sizes.src, bytemuck::cast_slice(own)),
                    buffer(sizes.dst, &[]),
                    buffer(sizes.mean, &[]),
                    buffer(sizes.variance, &[]),
                    buffer(sizes.sums, &[]),
                ];
                let bound = plan
                    .bind(
                        &subject.gpu,
                        &BatchNormForwardBuffers {
                            src: (&buffers[0]).into(),
                            gamma: None,
                            beta: None,
                            running_mean: None,
                            running_variance: None,
                            dst: (&buffers[1]).into(),
                            mean: (&buffers[2]).into(),
                            variance: (&buffers[3]).into(),
                            sums: Some((&buffers[4]).into()),
                            workspace: None,
                            residual: None,
                            mask: None,
                        },
                    )
                    .unwrap();
                let record = |half: fn(
                    &wgpu_norm::Bound,
                    &mut wgpu::CommandEncoder,
                ) -> Result<(), Error>| {
                    let device = subject.gpu.device();
                    let mut encoder = device.create_command_encoder(&Default::default());
                    half(&bound, &mut encoder).unwrap();
                    subject.gpu.queue().submit([encoder.finish()]);
                };
                record(wgpu_norm::Bound::record_statistics);
                let statistics = subject.read(&buffers[4]);
                let statistics: &[ChannelStatistics<f32>] = bytemuck::cast_slice(&statistics);
                let at = index as usize * channels;
                shards.push((
                    statistics[at..at + channels].to_vec(),
                    bound,
                    buffers,
                    elements,
                ));
            }
            let all: Vec<_> = shards.iter().flat_map(|(own, ..)| own.clone()).collect();
            let merged = (0..channels).map(|c| {
                let of_channel = shards.iter().map(|(own, ..)| own[c]);
                of_channel.fold(
                    ChannelStatistics::default(),
                    ChannelStatistics::<f32>::merge,
                )
            });
            let merged: Vec<_> = merged.collect();
            let mut dst = Vec::new();
            for (_, bound, buffers, elements) in &shards {
                subject.write(&buffers[4], 0, bytemuck::cast_slice(&all));
                let device = subject.gpu.device();
                let mut encoder = device.create_command_encoder(&Default::default());
                bound.record_normalize(&mut encoder).unwrap();
                subject.gpu.queue().submit([encoder.finish()]);
                let numbers = |buffer, len| -> Vec<f32> {
                    bytemuck::cast_slice::<u8, f32>(&subject.read(buffer))[..len].to_vec()
                };
                for (c, (mean, variance)) in numbers(&buffers[2], channels)
                    .into_iter()
                    .zip(numbers(&buffers[3], channels))
                    .enumerate()
                {
                    let what = format!("case {case}, channel {c} on {}", subject.name);
                    let values: Vec<f32> = (0..samples)
                        .flat_map(|n| &src[(n * channels + c) * inner..][..inner])
                        .copied()
                        .collect();
                    check(mean, variance, &values, &what);
                    // The host's merge is the device's.
                    assert_eq!(mean, merged[c].mean(), "{what}");
                    assert_eq!(variance, merged[c].variance(), "{what}");
                }
                dst.extend(numbers(&buffers[1], *elements));
            }
            for (got, want) in dst.iter().zip(&whole.dst) {
                assert!((got - want).abs() <= 1e-4, "case {case}: {got}, not {want}");
            }
        }
    }
}
