//! The forward passes' statistics are accurate for any ratio of mean and deviation, in any order, whole, in windows and
//! in parts.

use crate::common::buffers::{Buffers, Room};
use crate::common::data::{FORMATS, Problem, Random, find, in_format, to_f64};
use crate::common::{Subject, random_cases, subjects, takes_all};
use pollster::block_on;
use wgpu_norm::synchronized::Shards;
use wgpu_norm::{
    Algorithm, BatchNormOptions, Bound, DType, DataFormat, Error, Forward, ForwardArgs,
    GpuBatchNorm, GpuLayerNorm, LayerNormOptions, Norm, Operation, Output, Plan, Tensor, Tuning,
};

/// The kinds of elements.
#[derive(Clone, Copy, Debug)]
enum Order {
    Random,
    Rising,
    /// The first one is far from the others.
    Outlier,
    Constant,
}

const ORDERS: [Order; 4] = [
    Order::Random,
    Order::Rising,
    Order::Outlier,
    Order::Constant,
];

const TUNINGS: [(&str, Tuning); 2] = [("GPU", Tuning::GPU), ("software", Tuning::SOFTWARE)];

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

fn check(mean: f64, variance: f64, values: &[f32], what: &str) {
    let (want_mean, want_variance) = exact(values);
    let off = (variance - want_variance).abs();
    assert!(
        off <= 1e-5 * want_variance,
        "{what}: variance {variance}, not {want_variance}: {:e} off",
        off / want_variance
    );
    let deviation = want_variance.sqrt();
    let ulp = want_mean.abs() * f64::from(f32::EPSILON);
    assert!(
        (mean - want_mean).abs() <= 1e-6 * deviation + ulp,
        "{what}: mean {mean}, not {want_mean}"
    );
}

/// Asserts the statistics of all sets of elements; constant elements have a variance of exactly 0.
fn check_all<'a>(
    got: &Output<f32, f32>,
    all: impl ExactSizeIterator<Item = &'a [f32]>,
    order: Order,
    what: &str,
) {
    let (means, variances) = (&got.saved.mean, &got.saved.variance);
    assert_eq!((means.len(), variances.len()), (all.len(), all.len()));
    for (index, values) in all.enumerate() {
        let (mean, variance) = (means[index].into(), variances[index].into());
        check(mean, variance, values, &format!("{index} of {what}"));
        if matches!(order, Order::Constant) {
            assert_eq!(variance, 0.0, "{index} of {what}");
        }
    }
}

fn contexts(subject: &Subject) -> Vec<Subject> {
    let tuned = TUNINGS.map(|(name, tuning)| subject.with_tuning(name, tuning));
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

/// The channels' elements, arranged in a tensor.
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
    options: &BatchNormOptions,
    shape: &[usize],
    src: &[f32],
) -> Option<Output<f32, f32>> {
    let layer = GpuBatchNorm::new(&subject.gpu, options.clone()).unwrap();
    match block_on(layer.forward(ForwardArgs::new(shape, src))) {
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
        for order in ORDERS {
            let means = [0.0, 30.0, 1e4, 1e6];
            let channels = means.map(|mean| channel(&mut random, outer * inner, mean, order));
            for format in FORMATS {
                let shape = in_format(&[outer, 4, inner], format);
                let src = interleave(&channels, outer, inner, format);
                let options = BatchNormOptions::new(format);
                // Millions of elements are run only once in each way.
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
                        let Some(got) = forward(subject, &options, &shape, &src) else {
                            continue;
                        };
                        let what = format!("{shape:?} {format:?} {order:?} on {}", subject.name);
                        check_all(&got, channels.iter().map(Vec::as_slice), order, &what);
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
        for order in ORDERS {
            let means = [0.0, 30.0, 1e4, 1e6, 40_000.0];
            let rows = means.map(|mean| channel(&mut random, columns, mean, order));
            let src = rows.concat();
            // The same numbers as sums: the tensor added before the layer has the large mean.
            let small: Vec<f32> = random.vec(src.len(), 1.0, 0.0);
            let small = match order {
                Order::Constant => vec![0.5; src.len()],
                _ => small,
            };
            let sums: Vec<f32> = small.iter().zip(&src).map(|(a, b)| a + b).collect();
            for subject in subjects().iter().filter(|subject| !subject.checked) {
                for (name, tuning) in TUNINGS {
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
                        let options = LayerNormOptions::new(-1);
                        let layer = GpuLayerNorm::new(&subject.gpu, options).unwrap();
                        let (own, all) = match added {
                            true => (&small, &sums),
                            false => (&src, &src),
                        };
                        let shape = [rows.len(), columns];
                        let args = ForwardArgs::new(&shape, own);
                        let args = args.residual_before(added.then_some(&src));
                        let got = block_on(layer.forward(args)).unwrap();
                        let what = format!(
                            "{columns} {order:?} {algorithm:?}, added {added} on {}",
                            subject.name
                        );
                        check_all(&got, all.chunks(columns), order, &what);
                        if matches!(order, Order::Constant) {
                            assert!(got.dst.iter().all(|&y| y == 0.0), "{what}: {:?}", got.dst);
                        }
                    }
                }
            }
        }
    }
}

/// The two halves over parts of a batch, one of them without samples: each part gets the statistics of all, with the
/// same bits as the host's merge of the parts.
#[test]
fn parts_of_a_batch_have_the_statistics_of_all() {
    let mut random = Random::new(11);
    let options = BatchNormOptions::new(DataFormat::Ncx).epsilon(1e-3);
    for case in 0..random_cases(16) {
        let (channels, inner) = (1 + case as usize % 7, [1, 4, 13, 40][case as usize % 4]);
        let parts = [3, 0, 1 + case as usize];
        let samples: usize = parts.iter().sum();
        let src: Vec<f32> = random.vec(samples * channels * inner, 2.0, 1e4);
        for subject in subjects().iter().filter(|subject| !subject.checked) {
            let whole = forward(subject, &options, &[samples, channels, inner], &src).unwrap();
            let mut rest = &*src;
            let mut shards = Vec::new();
            for (index, part) in (0..).zip(parts) {
                let (own, others) = rest.split_at(part * channels * inner);
                rest = others;
                let shape = [part, channels, inner];
                let bind = |shards| Part::new(subject, &shape, shards, own);
                shards.push((bind(Shards::new(3, index)), bind(Shards::default())));
            }
            let sums = shards.iter().map(|(part, _)| part.reduce(subject));
            let sums: Vec<_> = sums.collect();
            let all = sums.concat();
            let layout = shards[0].0.plan.sums().unwrap();
            let sums: Vec<_> = sums.iter().map(Vec::as_slice).collect();
            let merged = layout.merge(&sums).unwrap();
            let mut dst = Vec::new();
            for (part, alone) in &shards {
                let got = part.apply(subject, &all);
                // The host's merge equals the device's.
                assert_eq!(got, alone.apply(subject, &merged), "on {}", subject.name);
                let [mean, variance, own] = got;
                for c in 0..channels {
                    let what = format!("case {case}, channel {c} on {}", subject.name);
                    let values = src.chunks(inner).skip(c).step_by(channels);
                    let values: Vec<f32> = values.flatten().copied().collect();
                    check(mean[c], variance[c], &values, &what);
                }
                dst.extend(own);
            }
            assert_eq!(dst.len(), whole.dst.len());
            for (got, want) in dst.iter().zip(to_f64(&whole.dst)) {
                assert!((got - want).abs() <= 1e-4, "case {case}: {got}, not {want}");
            }
        }
    }
}

/// A part of a batch, bound to buffers.
struct Part {
    problem: Problem,
    plan: Plan,
    buffers: Buffers,
    sums: wgpu::Buffer,
    bound: Bound,
}

impl Part {
    fn new(subject: &Subject, shape: &[usize], shards: Shards, src: &[f32]) -> Self {
        let norm = Norm::batch(DataFormat::Ncx);
        let forward = Forward::default().with_shards(shards);
        let operation = Operation::new(norm, forward, shape, DType::F32)
            .with_epsilon(1e-3)
            .with_params(false, false);
        let mut problem = Problem::random(&operation, 0);
        problem.set(Tensor::Src, &to_f64(src));
        let plan = operation.plan(subject.gpu.profile()).unwrap();
        let buffers = Buffers::new(subject, &problem, &plan, Room::Padded);
        let sums = subject.buffer(plan.sums().unwrap().bytes(), &[]);
        let mut ranges = buffers.ranges();
        ranges.push((Tensor::Sums, (&sums).into()));
        let bound = plan.bind(&subject.gpu, &ranges).unwrap();
        Self {
            problem,
            plan,
            buffers,
            sums,
            bound,
        }
    }

    fn record(
        &self,
        subject: &Subject,
        half: fn(&Bound, &mut wgpu::CommandEncoder) -> Result<(), Error>,
    ) {
        let device = subject.gpu.device();
        let mut encoder = device.create_command_encoder(&Default::default());
        half(&self.bound, &mut encoder).unwrap();
        subject.gpu.queue().submit([encoder.finish()]);
    }

    /// The first half's result for this part.
    fn reduce(&self, subject: &Subject) -> Vec<u8> {
        self.record(subject, Bound::record_reduce);
        let part = self.plan.sums().unwrap().part();
        subject.read(&self.sums)[part.start as usize..part.end as usize].to_vec()
    }

    /// Mean, variance and dst by the second half, from these sums.
    fn apply(&self, subject: &Subject, sums: &[u8]) -> [Vec<f64>; 3] {
        subject.write(&self.sums, 0, sums);
        self.record(subject, Bound::record_apply);
        let results = self.buffers.results(subject, &self.problem);
        [Tensor::Mean, Tensor::Variance, Tensor::Dst].map(|tensor| find(&results, tensor).numbers())
    }
}
