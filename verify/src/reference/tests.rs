#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use half::{bf16, f16};
use wgpu_norm::{
    Activation, Backward, Channels, DataFormat, Epilogue, Forward, Norm, Residual, RunningUpdate,
    RunningVariance, Through,
};

const EPSILON: f64 = 0.1; // large, so that an error in its place shows

/// Deterministic numbers without a pattern that matters to the tests.
fn noise(n: usize, seed: f64) -> Vec<f64> {
    let value = |i: f64| (12.9898 * (i + 100.0 * seed)).sin() + (i * 7.7).cos().powi(2);
    (0..n).map(|i| value(i as f64)).collect()
}

fn largest(got: &[f64], want: &[f64], scale: &[f64]) -> f64 {
    assert_eq!((got.len(), got.len()), (want.len(), scale.len()));
    let error = |i: usize| (got[i] - want[i]).abs() / (scale[i] + 1e-300);
    (0..got.len()).map(error).fold(0.0, f64::max)
}

fn find(results: &[Computed], tensor: Tensor) -> &Computed {
    let found = results.iter().find(|computed| computed.tensor == tensor);
    found.unwrap_or_else(|| panic!("no {}", tensor.name()))
}

fn run(operation: &Operation, inputs: &[(Tensor, Vec<f64>)]) -> Vec<Computed> {
    let inputs: Vec<_> = inputs
        .iter()
        .map(|(tensor, values)| (*tensor, &values[..]))
        .collect();
    compute(operation, &inputs).unwrap()
}

/// Every norm in every layout, of 3 · 4 · 2 · 5 elements.
fn norms() -> Vec<Norm> {
    let mut norms = vec![
        Norm::Batch(Channels::Broadcast(vec![1, 4, 1, 5])),
        Norm::Batch(Channels::Broadcast(vec![3, 1, 2, 1])),
    ];
    for format in [DataFormat::Ncx, DataFormat::Nxc] {
        norms.push(Norm::Batch(Channels::Axis(format)));
        norms.push(Norm::instance(format));
        for groups in [1, if format == DataFormat::Ncx { 2 } else { 5 }] {
            norms.push(Norm::group(groups, format));
        }
    }
    for begin_norm_axis in [0, 1, -1] {
        norms.push(Norm::layer(begin_norm_axis));
        norms.push(Norm::rms(begin_norm_axis));
    }
    for (axes, param_axes) in [
        (&[1][..], &[1][..]),
        (&[-1], &[0, 3]),
        (&[2, 3], &[0, 1]),
        (&[0, 2], &[0, 1, 3]),
        (&[1, 3], &[2]),
        (&[0, 1, 2, 3], &[]),
    ] {
        for centered in [true, false] {
            norms.push(Norm::axes(axes, param_axes).centered(centered));
        }
    }
    norms
}

/// The gradient against central differences of the forward pass, in which the statistics depend on src.
#[test]
fn gradients_are_the_derivatives() {
    const STEP: f64 = 1e-5;
    for norm in norms() {
        let rows = matches!(norm, Norm::Layer { .. } | Norm::Rms { .. });
        let activations = Activation::NAMES
            .iter()
            .map(|(_, activation)| (*activation, false));
        for (activation, gate) in activations.chain([(Activation::None, true)]) {
            if rows && activation != Activation::None || gate && !norm.has_gate() {
                continue;
            }
            let forward =
                Operation::new(norm.clone(), Forward::default(), &[3, 4, 2, 5], DType::F32)
                    .with_epsilon(EPSILON)
                    .with_gate(gate)
                    .with_epilogue(Epilogue::new(Residual::None, activation));
            let backward = forward.gradient().unwrap();
            let mut inputs = Vec::new();
            for used in forward
                .tensors()
                .unwrap()
                .iter()
                .filter(|used| used.access.reads())
            {
                let seed = inputs.len() as f64;
                inputs.push((used.tensor, noise(used.shape.iter().product(), seed)));
            }
            let diff_dst = noise(120, 9.0);
            let results = run(&forward, &inputs);
            let mut known = inputs.clone();
            known.push((Tensor::DiffDst, diff_dst.clone()));
            for computed in results {
                known.push((computed.tensor, computed.values));
            }
            let gradients = run(&backward, &known);
            let loss = |inputs: &[(Tensor, Vec<f64>)]| {
                let dst = &find(&run(&forward, inputs), Tensor::Dst).values.clone();
                dst.iter().zip(&diff_dst).map(|(y, d)| y * d).sum::<f64>()
            };
            for (input, of) in [
                (Tensor::Src, Tensor::DiffSrc),
                (Tensor::Gamma, Tensor::DiffGamma),
                (Tensor::Beta, Tensor::DiffBeta),
                (Tensor::Gate, Tensor::DiffGate),
            ] {
                let Some(at) = inputs.iter().position(|(tensor, _)| *tensor == input) else {
                    continue;
                };
                let want = find(&gradients, of);
                for i in (0..inputs[at].1.len()).step_by(7) {
                    let shifted = |by: f64| {
                        let mut inputs = inputs.clone();
                        inputs[at].1[i] += by;
                        loss(&inputs)
                    };
                    let found = (shifted(STEP) - shifted(-STEP)) / (2.0 * STEP);
                    // The differences have the loss's own rounding errors.
                    let error = (found - want.values[i]).abs() / (1.0 + want.scale[i]);
                    assert!(
                        error < 1e-8,
                        "{norm:?} {activation} {}: {error:e}",
                        of.name()
                    );
                }
            }
        }
    }
}

/// With constant statistics, diff_src depends on each element alone; a mask lets some of diff_dst pass; frozen
/// parameters have no gradients.
#[test]
fn options_of_gradients() {
    let norm = Norm::Batch(Channels::Axis(DataFormat::Nxc));
    let pass = Backward::default()
        .with_through(Through::Constant)
        .with_param_grads(false);
    let operation = Operation::new(norm, pass, &[2, 2], DType::F32)
        .with_epsilon(0.5)
        .with_epilogue(Epilogue::new(Residual::After, Activation::Relu));
    let results = run(
        &operation,
        &[
            (Tensor::Src, vec![1.0, 2.0, 3.0, 4.0]),
            (Tensor::DiffDst, vec![1.0, 2.0, -3.0, 4.0]),
            (Tensor::Mask, vec![1.0, 0.0, 1.0, 1.0]),
            (Tensor::Mean, vec![0.0, 0.0]),
            (Tensor::Variance, vec![0.5, 3.5]),
            (Tensor::Gamma, vec![2.0, 1.0]),
        ],
    );
    assert_eq!(results.len(), 2);
    assert_eq!(
        find(&results, Tensor::DiffResidual).values,
        [1.0, 0.0, -3.0, 4.0]
    );
    assert_eq!(
        find(&results, Tensor::DiffSrc).values,
        [2.0, 0.0, -6.0, 2.0]
    );
    assert_eq!(find(&results, Tensor::DiffSrc).scale, [2.0, 0.0, 6.0, 2.0]);
}

#[test]
fn hand_worked_numbers() {
    // x = 1, 5 and 7, 7.
    let before = Epilogue::new(Residual::Before, Activation::None);
    let layer = Norm::layer(-1);
    let operation = Operation::new(layer, Forward::default(), &[2, 2], DType::F32)
        .with_epsilon(12.0)
        .with_epilogue(before);
    let results = run(
        &operation,
        &[
            (Tensor::Src, vec![1.0, 2.0, 1.0, 8.0]),
            (Tensor::Residual, vec![0.0, 3.0, 6.0, -1.0]),
            (Tensor::Gamma, vec![1.0, 10.0]),
            (Tensor::Beta, vec![0.0, 100.0]),
        ],
    );
    assert_eq!(find(&results, Tensor::Sum).values, [1.0, 5.0, 7.0, 7.0]);
    assert_eq!(find(&results, Tensor::Mean).values, [3.0, 7.0]);
    assert_eq!(find(&results, Tensor::Variance).values, [4.0, 0.0]);
    assert_eq!(
        find(&results, Tensor::Dst).values,
        [-0.5, 105.0, 0.0, 100.0]
    );

    let rms = Norm::rms(-1);
    let operation = Operation::new(rms, Forward::default(), &[1, 2], DType::F32)
        .with_epsilon(12.5)
        .with_epilogue(before);
    let results = run(
        &operation,
        &[
            (Tensor::Src, vec![1.0, 1.0]),
            (Tensor::Residual, vec![2.0, 3.0]),
            (Tensor::Gamma, vec![-1.0, 10.0]),
        ],
    );
    assert_eq!(find(&results, Tensor::MeanSquare).values, [12.5]);
    let dst = find(&results, Tensor::Dst);
    assert!(largest(&dst.values, &[-0.6, 8.0], &[1.0; 2]) < 1e-15);
    assert!(largest(&dst.scale, &[0.6, 8.0], &[1.0; 2]) < 1e-15);
}

fn row(src: Vec<f64>) -> Vec<Computed> {
    let layer = Norm::layer(0);
    let operation = Operation::new(layer, Forward::default(), &[src.len()], DType::F64)
        .with_epsilon(EPSILON)
        .with_params(false, false);
    run(&operation, &[(Tensor::Src, src)])
}

#[test]
fn constant_rows_are_exact() {
    for x in [0.1, -1e300, 5e-324, 16_777_217.3] {
        for size in [1, 3, 10, 1000] {
            let got = row(vec![x; size]);
            assert_eq!(find(&got, Tensor::Mean).values, [x]);
            let variance = find(&got, Tensor::Variance);
            assert_eq!(
                (&variance.values, &variance.scale),
                (&vec![0.0], &vec![0.0])
            );
            let dst = find(&got, Tensor::Dst);
            assert_eq!(
                (&dst.values, &dst.scale),
                (&vec![0.0; size], &vec![0.0; size])
            );
        }
    }
}

/// Integers, whose sums are exact in i128: mean/σ up to 1e6, and a first element 1e6 σ away.
#[test]
fn statistics_are_exact() {
    let size = 4099;
    let random = |i: i64| (i * 48_271 % 4_001) - 2_000; // σ = 1155
    let outlier = |i: i64| if i == 0 { 1_155_000_000 } else { random(i) };
    let offset = |i: i64| 1_155_000_000 + random(i);
    let far = |i: i64| 1_155_000_000_000 + random(i);
    for value in [&random as &dyn Fn(i64) -> i64, &outlier, &offset, &far] {
        let values: Vec<i128> = (0..size).map(|i| i128::from(value(i))).collect();
        let count = i128::from(size);
        let sum: i128 = values.iter().sum();
        let squares: i128 = values.iter().map(|x| x * x).sum();
        let mean = sum as f64 / count as f64;
        let variance = (count * squares - sum * sum) as f64 / (count * count) as f64;

        let got = row(values.iter().map(|&x| x as f64).collect());
        let found = find(&got, Tensor::Mean);
        assert!(largest(&found.values, &[mean], &found.scale) < 2e-16);
        let error = (find(&got, Tensor::Variance).values[0] / variance - 1.0).abs();
        assert!(error < 1e-15, "{error:e}");
        let x_hat = |x: i128| (count * x - sum) as f64 / count as f64 / (variance + EPSILON).sqrt();
        let want: Vec<f64> = values.iter().map(|&x| x_hat(x)).collect();
        // The remaining error is the rounding of the mean itself, 1e-16 of up to 1e9 σ.
        let allowed = 1e-14 + 2e-16 * mean.abs() / variance.sqrt();
        let dst = find(&got, Tensor::Dst);
        assert!(largest(&dst.values, &want, &dst.scale) < allowed);
    }
}

#[test]
fn running_statistics() {
    let running = |samples: usize, weight: f64, variance: RunningVariance| {
        let update = RunningUpdate::new(weight, variance);
        let norm = Norm::Batch(Channels::Axis(DataFormat::Nxc));
        let pass = Forward::default().with_running(update);
        let operation =
            Operation::new(norm, pass, &[samples, 1], DType::F32).with_params(false, false);
        let src = (0..samples).map(|i| i as f64).collect::<Vec<_>>();
        let inputs: [(Tensor, &[f64]); 3] = [
            (Tensor::Src, &src),
            (Tensor::RunningMean, &[1.0]),
            (Tensor::RunningVariance, &[-2.0]),
        ];
        let results = compute(&operation, &inputs)?;
        let of = |tensor| find(&results, tensor).values[0];
        Ok::<_, Error>((of(Tensor::RunningMean), of(Tensor::RunningVariance)))
    };
    // The mean of 0, 1, 2 is 1, the variance 2/3 or 1.
    assert_eq!(
        running(3, 0.5, RunningVariance::Unbiased).unwrap(),
        (1.0, -0.5)
    );
    assert_eq!(
        running(3, 0.0, RunningVariance::Biased).unwrap(),
        (1.0, -2.0)
    );
    assert_eq!(
        running(0, 1.0, RunningVariance::Unbiased).unwrap(),
        (1.0, -2.0)
    );
    assert!(running(1, 0.5, RunningVariance::Unbiased).is_err());
}

#[test]
fn edges_and_errors() {
    // Without elements, statistics and sums are zeros.
    let norm = Norm::Batch(Channels::Axis(DataFormat::Ncx));
    let forward =
        Operation::new(norm, Forward::default(), &[0, 2, 3], DType::F32).with_params(false, false);
    let results = run(&forward, &[(Tensor::Src, vec![])]);
    assert_eq!(find(&results, Tensor::Mean).values, [0.0; 2]);
    assert_eq!(find(&results, Tensor::Variance).values, [0.0; 2]);
    assert!(find(&results, Tensor::Dst).values.is_empty());
    let backward = forward.gradient().unwrap();
    let statistics = [
        (Tensor::Mean, vec![0.0; 2]),
        (Tensor::Variance, vec![1.0; 2]),
    ];
    let mut inputs = statistics.to_vec();
    inputs.extend([(Tensor::Src, vec![]), (Tensor::DiffDst, vec![])]);
    assert_eq!(
        find(&run(&backward, &inputs), Tensor::DiffGamma).values,
        [0.0; 2]
    );

    let missing = compute(&forward, &[(Tensor::Src, &[1.0])]).unwrap_err();
    assert_eq!(missing.to_string(), "src: expected 0 elements, got 1");
    let missing = compute(&backward, &[(Tensor::Src, &[])]).unwrap_err();
    assert_eq!(missing.to_string(), "mean: expected 2 elements, got 0");
    let wrong = Operation::new(Norm::layer(3), Forward::default(), &[2], DType::F32);
    assert!(compute(&wrong, &[]).is_err());
    // Squares that overflow do not give zeros.
    let dst = row(vec![1e200, -1e200]);
    assert!(find(&dst, Tensor::Dst).values.iter().all(|x| x.is_nan()));
}

/// Squares of one row overflow f32: NaN is correct in its results, other numbers only if they are right.
#[test]
fn squares_that_overflow() {
    for (norm, squares) in [
        (Norm::layer(-1), Tensor::Variance),
        (Norm::rms(-1), Tensor::MeanSquare),
    ] {
        let operation = Operation::new(norm, Forward::default(), &[2, 2], DType::F32);
        let src = (Tensor::Src, vec![3e19, -1e19, 1.0, 2.0]);
        let inputs = [src, (Tensor::Gamma, vec![1.0, 0.0])];
        let results = run(&operation.with_params(true, false), &inputs);
        for tensor in [Tensor::Dst, squares] {
            let want = find(&results, tensor);
            let right: Vec<_> = want.values.iter().map(|&value| value as f32).collect();
            let passes = |at: usize, number: f32| {
                let mut got = right.clone();
                got[at] = number;
                scaled_error(&got, &want.values, &want.scale) <= 1.0
            };
            let half = right.len() / 2;
            assert!(passes(0, right[0]));
            for at in 0..right.len() {
                assert_eq!(passes(at, f32::NAN), at < half, "{tensor:?} {at}");
                assert!(!passes(at, 0.125), "{tensor:?} {at}");
            }
        }
    }
}

#[test]
fn what_an_operation_does_not_read_does_not_count() {
    let norm = Norm::rms(-1);
    let plain = Operation::new(norm, Forward::default(), &[1, 2], DType::F32);
    let plain = plain.with_params(false, false);
    let src = (Tensor::Src, &[3.0, 4.0][..]);
    let beside = [
        src,
        (Tensor::Gamma, &[5.0, 6.0]),
        (Tensor::Beta, &[7.0, 8.0]),
    ];
    assert_eq!(compute(&plain, &beside), compute(&plain, &[src]));
}

#[test]
fn scaled_error_judges() {
    const INF: f64 = f64::INFINITY;
    const NAN: f64 = f64::NAN;
    fn passes<T: Element>(got: f64, want: f64, scale: f64) -> bool {
        scaled_error(&[T::from_f64(got)], &[want], &[scale]) <= 1.0
    }
    assert_eq!(scaled_error(&[1.0f32], &[], &[]), INF);
    // The noise of a cancelled sum passes by its terms' size, and fails by its own size.
    assert!(passes::<f32>(2e-6, 1e-6, 1.0) && !passes::<f32>(2e-6, 1e-6, 1e-6));
    assert!(passes::<f64>(1.0 + 1e-15, 1.0, 1.0) && !passes::<f64>(1.0 + 1e-12, 1.0, 1.0));
    // One rounding to storage passes, a larger error does not; f16 keeps its subnormals, f32 need not.
    assert!(passes::<bf16>(1.0, 1.0 + 1.0 / 256.0, 1.0) && !passes::<bf16>(1.0, 1.008, 1.0));
    assert!(passes::<f16>(0.0, 2.9e-8, 0.0) && !passes::<f16>(0.0, 6e-8, 0.0));
    assert!(passes::<f32>(0.0, 1e-39, 0.0) && !passes::<f32>(0.0, 1e-37, 0.0));
    // f16 rounds to infinity from 65520 on; near that, either side is correct.
    assert!(passes::<f16>(INF, 65519.9, 65519.9) && passes::<f16>(65504.0, 65520.1, 65520.1));
    assert!(!passes::<f16>(INF, 65000.0, 65000.0) && !passes::<f16>(65504.0, 1e9, 1e9));
    assert!(passes::<f16>(INF, 1e9, 1e9) && !passes::<f16>(INF, -1e9, 1e9));
    assert!(passes::<f32>(-INF, -1e39, 1e39) && !passes::<f32>(1.0, 1.0, NAN));
    // Any value that is not finite matches any other, whatever the scale.
    for got in [NAN, INF, -INF] {
        for want in [NAN, INF, -INF] {
            assert!(passes::<f32>(got, want, NAN) && passes::<f16>(got, want, 1.0));
        }
    }
    assert!(!passes::<f32>(NAN, 1.0, 1.0) && !passes::<f32>(INF, 1.0, 1.0));
    assert!(!passes::<f32>(1.0, NAN, NAN) && !passes::<f32>(0.0, INF, INF));
}
