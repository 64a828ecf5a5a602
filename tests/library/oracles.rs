//! Properties that hold independently of a reference: identities of the gradient, exact cases, and the limits of the
//! element types. For the spread of NaN and infinities, and the rounding of numbers, see the cases `nan`, `infinite`
//! and `roundings` in verify.rs.

use crate::common::data::{
    FORMATS, Problem, Random, Values, all_choices, batch_norm_gradient, close, computed, error,
    find, in_format,
};
use crate::common::{every_pair, subjects};
use half::{bf16, f16};
use pollster::block_on;
use wgpu_norm::{
    Backward, DType, DataFormat, Element, Operation, ParamOf, Pass, Tensor, Through, bytemuck,
};
use wgpu_norm_verify::reference::{SUM_ULPS, scaled_error};
use wgpu_norm_verify::{Case, Outcome};

/// The channel of a flat index.
fn channel(operation: &Operation, index: usize) -> usize {
    let axes = operation.axes();
    let at = axes.iter().position(|axis| !axis.reduced).unwrap();
    let inner: usize = operation.shape[at + 1..].iter().product();
    index / inner % operation.shape[at]
}

/// The numbers of an input.
fn numbers(problem: &Problem, tensor: Tensor) -> Vec<f64> {
    find(&problem.inputs, tensor).numbers()
}

/// Changes the numbers of an input.
fn map(problem: &mut Problem, tensor: Tensor, f: impl FnMut(f64) -> f64) {
    let numbers = numbers(problem, tensor).into_iter();
    problem.set(tensor, &numbers.map(f).collect::<Vec<_>>());
}

/// Sets a gradient's choices.
fn choose(operation: &mut Operation, through: Through, param_grads: bool) {
    let backward = Backward::default().with_through(through);
    operation.pass = backward.with_param_grads(param_grads).into();
}

/// The bits of results.
fn bits(results: &[Values]) -> Vec<&[u8]> {
    results.iter().map(|values| &*values.bytes).collect()
}

/// src in pairs around a mean that is a multiple of 1/4, and gradients that are small integers: every statistic and
/// every sum of diff_dst is exact in f32.
fn exact_problem(shape: &[usize], format: DataFormat) -> Problem {
    let operation = batch_norm_gradient::<f32, f32>(shape, format).with_epsilon(0.25);
    let mut problem = Problem::random(&operation, 0);
    let mut random = Random::new(12);
    let mut src = numbers(&problem, Tensor::Src);
    let [mut mean, mut variance] =
        [Tensor::Mean, Tensor::Variance].map(|tensor| numbers(&problem, tensor));
    let mut members = vec![Vec::new(); mean.len()];
    for index in 0..src.len() {
        members[channel(&operation, index)].push(index);
    }
    for (c, members) in members.iter().enumerate() {
        assert!(members.len().is_power_of_two() && members.len() > 1);
        mean[c] = (random.bits() % 64) as f64 / 4.0 - 8.0;
        let mut squares = 0.0;
        for pair in members.chunks(2) {
            let distance = (random.bits() % 16 + 1) as f64 / 4.0;
            src[pair[0]] = mean[c] + distance;
            src[pair[1]] = mean[c] - distance;
            squares += 2.0 * distance * distance;
        }
        variance[c] = squares / members.len() as f64;
    }
    problem.set(Tensor::Src, &src);
    problem.set(Tensor::Mean, &mean);
    problem.set(Tensor::Variance, &variance);
    map(&mut problem, Tensor::DiffDst, |_| {
        (random.bits() % 17) as f64 - 8.0
    });
    problem
}

const EXACT_SHAPES: [&[usize]; 4] = [&[4, 7, 32], &[2, 33, 64], &[16, 5, 4], &[256, 3]];

fn exact_problems() -> impl Iterator<Item = Problem> {
    EXACT_SHAPES
        .into_iter()
        .flat_map(|shape| FORMATS.map(|format| exact_problem(&in_format(shape, format), format)))
}

/// Asserts that f32 results, added in f64, are close to the expected sums, in tolerances of f32.
#[track_caller]
fn close_sums(got: &[f64], want: &[f64], scale: &[f64], what: &str) {
    let ratio = DType::F32.unit_roundoff() / DType::F64.unit_roundoff();
    let scale: Vec<f64> = scale.iter().map(|scale| scale * ratio).collect();
    let error = scaled_error(got, want, &scale);
    assert!(error <= 1.0, "{what} is off by {error}");
}

#[test]
fn diff_src_sums_to_zero_and_its_projection_is_known() {
    for problem in exact_problems() {
        let want = problem.reference();
        let diff_gamma = &computed(&want, Tensor::DiffGamma).values;
        let src_scale = &computed(&want, Tensor::DiffSrc).scale;
        let [src, mean, gamma, variance] =
            [Tensor::Src, Tensor::Mean, Tensor::Gamma, Tensor::Variance]
                .map(|tensor| numbers(&problem, tensor));
        let epsilon = problem.operation.epsilon;
        // Σ diff_src · x̂ = gamma · r · S2 · epsilon / (variance + epsilon).
        let projection: Vec<f64> = (0..mean.len())
            .map(|c| {
                let variance = variance[c] + epsilon;
                gamma[c] / variance.sqrt() * diff_gamma[c] * epsilon / variance
            })
            .collect();
        for subject in subjects() {
            let got = problem.run(subject).unwrap();
            // Sums over a channel of diff_src and of diff_src · x̂, and the scale of the terms of each.
            let [mut sum, mut sum_x_hat, mut scale, mut scale_x_hat] =
                [0; 4].map(|_| vec![0.0; mean.len()]);
            let diff_src = find(&got, Tensor::DiffSrc).numbers();
            for (i, value) in diff_src.into_iter().enumerate() {
                let c = channel(&problem.operation, i);
                let x_hat = (src[i] - mean[c]) / (variance[c] + epsilon).sqrt();
                sum[c] += value;
                sum_x_hat[c] += value * x_hat;
                scale[c] += src_scale[i];
                scale_x_hat[c] += src_scale[i] * x_hat.abs();
            }
            let what = format!("{:?} on {}", problem.operation.shape, subject.name);
            let none = vec![0.0; sum.len()];
            close_sums(&sum, &none, &scale, &format!("{what}: the sum"));
            let what = format!("{what}: the projection");
            close_sums(&sum_x_hat, &projection, &scale_x_hat, &what);
        }
    }
}

#[test]
fn exact_statistics_leave_a_few_ulps() {
    for problem in exact_problems() {
        let want = problem.reference();
        for subject in subjects() {
            let got = problem.run(subject).unwrap();
            let what = format!("{:?} on {}", problem.operation.shape, subject.name);
            let beta = find(&got, Tensor::DiffBeta).numbers();
            let sums = &computed(&want, Tensor::DiffBeta).values;
            assert_eq!(&beta, sums, "{what}: sums of small integers");
            for tensor in [Tensor::DiffSrc, Tensor::DiffGamma] {
                let error = error(find(&got, tensor), computed(&want, tensor));
                let name = tensor.name();
                assert!(error <= 8.0 / SUM_ULPS, "{what}: {name} is off by {error}");
            }
        }
    }
}

fn one_element_a_channel<T: Element, P: ParamOf<T>>() {
    for (shape, format) in [
        (&[1, 37][..], DataFormat::Nxc),
        (&[1, 37], DataFormat::Ncx),
        (&[1, 6, 1, 1], DataFormat::Ncx),
        (&[1, 1, 1, 3], DataFormat::Nxc),
    ] {
        let operation = batch_norm_gradient::<T, P>(shape, format);
        let mut problem = Problem::random(&operation, 1);
        // Values that both types hold.
        let elements: usize = shape.iter().product();
        let values: Vec<f64> = (0..elements).map(|i| i as f64 / 8.0 - 1.0).collect();
        problem.set(Tensor::Src, &values);
        problem.set(Tensor::Mean, &values);
        problem.set(Tensor::Variance, &vec![0.0; elements]);
        let mut other = problem.clone();
        map(&mut other, Tensor::Mean, |mean| mean + 0.5);
        map(&mut other, Tensor::Variance, |_| 0.75);
        let diff_dst = numbers(&problem, Tensor::DiffDst);
        // Another mean: diff_src = -gamma · r · x̂² · diff_dst.
        let [mean, gamma] = [Tensor::Mean, Tensor::Gamma].map(|tensor| numbers(&other, tensor));
        let r = 1.0 / (0.75 + operation.epsilon).sqrt();
        let x_hat = |i: usize| (values[i] - mean[i]) * r;
        let mut closed = other.reference();
        for of_src in closed.iter_mut().filter(|c| c.tensor == Tensor::DiffSrc) {
            let closed = (0..elements).map(|i| -gamma[i] * r * x_hat(i) * x_hat(i) * diff_dst[i]);
            of_src.values = closed.collect();
        }
        for subject in subjects().iter().filter(|s| s.takes::<T>()) {
            let what = format!("{shape:?} {}/{} on {}", T::DTYPE, P::DTYPE, subject.name);
            let got = problem.run(subject).unwrap();
            for tensor in [Tensor::DiffSrc, Tensor::DiffGamma] {
                let zeros = find(&got, tensor).numbers();
                assert!(zeros.iter().all(|&value| value == 0.0), "{what}");
            }
            let rounded: Vec<f64> = diff_dst.iter().map(|&d| P::from_f64(d).to_f64()).collect();
            assert_eq!(find(&got, Tensor::DiffBeta).numbers(), rounded, "{what}");
            let got = other.run(subject).unwrap();
            let diff_src: &[T] = bytemuck::cast_slice(&find(&got, Tensor::DiffSrc).bytes);
            close(diff_src, &closed, Tensor::DiffSrc, &what);
        }
    }
}

every_pair!(one_element_a_channel);

#[test]
fn linear_in_diff_dst() {
    for problem in exact_problems() {
        let mut doubled = problem.clone();
        map(&mut doubled, Tensor::DiffDst, |d| -32.0 * d);
        let mut reversed = numbers(&problem, Tensor::DiffDst);
        reversed.reverse();
        let mut other = problem.clone();
        other.set(Tensor::DiffDst, &reversed);
        let mut both = problem.clone();
        let mut others = reversed.iter();
        map(&mut both, Tensor::DiffDst, |d| d + others.next().unwrap());
        let scale = |problem: &Problem| {
            let want = problem.reference();
            computed(&want, Tensor::DiffSrc).scale.clone()
        };
        let (scale, other_scale) = (scale(&problem), scale(&other));
        let scale: Vec<f64> = scale.iter().zip(other_scale).map(|(a, b)| a + b).collect();
        for subject in subjects() {
            let what = format!("{:?} on {}", problem.operation.shape, subject.name);
            let one = problem.run(subject).unwrap();
            let got = doubled.run(subject).unwrap();
            for (one, got) in one.iter().zip(&got) {
                // 0 · -32 is -0 where a difference of equals is 0.
                let times: Vec<f64> = one.numbers().iter().map(|d| -32.0 * d).collect();
                assert_eq!(times, got.numbers(), "{what}");
            }
            let diff_src = |problem: &Problem| {
                let results = problem.run(subject).unwrap();
                find(&results, Tensor::DiffSrc).numbers()
            };
            let pairs = find(&one, Tensor::DiffSrc).numbers().into_iter();
            let added: Vec<f64> = pairs.zip(diff_src(&other)).map(|(a, b)| a + b).collect();
            let got: Vec<f32> = diff_src(&both).iter().map(|&d| d as f32).collect();
            let error = scaled_error(&got, &added, &scale);
            assert!(error <= 1.0, "{what}: off by {error}");
        }
    }
}

#[test]
fn shifting_src_and_mean_changes_no_bit() {
    for problem in exact_problems() {
        let mut shifted = problem.clone();
        for tensor in [Tensor::Src, Tensor::Mean] {
            map(&mut shifted, tensor, |x| x + 4096.0);
        }
        for subject in subjects() {
            let (want, got) = (problem.run(subject).unwrap(), shifted.run(subject).unwrap());
            let what = format!("{:?} on {}", problem.operation.shape, subject.name);
            assert!(bits(&got) == bits(&want), "{what}");
        }
    }
}

#[test]
fn scaling_by_powers_of_two_changes_no_significand() {
    for (seed, shape) in EXACT_SHAPES.into_iter().enumerate() {
        for format in FORMATS {
            let shape = in_format(shape, format);
            let operation = batch_norm_gradient::<f32, f32>(&shape, format);
            let problem = Problem::random(&operation, seed as u64);
            for power in [9, -6] {
                let factor = 2_f64.powi(power);
                let mut scaled = problem.clone();
                map(&mut scaled, Tensor::Src, |x| x * factor);
                map(&mut scaled, Tensor::Mean, |x| x * factor);
                map(&mut scaled, Tensor::Variance, |x| x * factor * factor);
                scaled.operation.epsilon *= factor * factor;
                for subject in subjects() {
                    let mut want = problem.run(subject).unwrap();
                    for want in want.iter_mut().filter(|v| v.used.tensor == Tensor::DiffSrc) {
                        let quotients = want.numbers().into_iter().map(|d| d / factor);
                        want.bytes = DType::F32.encode(quotients);
                    }
                    let got = scaled.run(subject).unwrap();
                    let what = format!("{shape:?} · 2^{power} on {}", subject.name);
                    assert!(bits(&got) == bits(&want), "{what}");
                }
            }
        }
    }
}

#[test]
fn tiny_variances_large_means_and_overflow() {
    for shape in ["4x9x50/ncx", "4x50x9/nxc"] {
        for values in ["f32/tiny_variance", "f32/large_mean", "f16-f32/overflow"] {
            let case = format!("batch_norm_backward/{shape}/{values}");
            let case: Case = case.parse().unwrap();
            // Some elements exceed f16's range, and must be infinite; others do not.
            let want = case.expected().unwrap();
            let diff_src = want.iter().find(|want| want.name() == "diff_src").unwrap();
            let beyond = diff_src.values.iter().filter(|d| d.abs() > 66_000.0);
            let (beyond, all) = (beyond.count(), diff_src.values.len());
            let overflows = beyond > 10 && beyond < all - 10;
            assert!(
                overflows || !values.ends_with("overflow"),
                "{case}: {beyond}"
            );
            for subject in subjects() {
                let outcome = block_on(case.run(&subject.gpu)).unwrap();
                let right = matches!(outcome, Outcome::Ran { fault: None, .. });
                assert!(right, "{case} on {}: {outcome:?}", subject.name);
            }
        }
    }
}

/// diff_src = diff_dst · gamma, exactly: r = 1 and nothing is subtracted.
fn plain<T: Element, P: ParamOf<T>>(
    shape: &[usize],
    format: DataFormat,
    param_grads: bool,
    diff_dst: &[T],
    gamma: Option<&[P]>,
) -> Problem {
    let mut operation = batch_norm_gradient::<T, P>(shape, format).with_epsilon(0.5);
    operation.gamma = gamma.is_some();
    choose(&mut operation, Through::Constant, param_grads);
    let mut problem = Problem::random(&operation, 1);
    map(&mut problem, Tensor::Variance, |_| 0.5);
    for input in &mut problem.inputs {
        match (input.used.tensor, gamma) {
            (Tensor::DiffDst, _) => input.bytes = bytemuck::cast_slice(diff_dst).to_vec(),
            (Tensor::Gamma, Some(gamma)) => input.bytes = bytemuck::cast_slice(gamma).to_vec(),
            _ => {}
        }
    }
    problem
}

/// Asserts equal bits, with any NaN as NaN; a subnormal bf16 number, which is also one of f32, may become 0.
fn same_halves<T: Element>(got: &Values, want: &[T], what: &str) {
    let got: &[T] = bytemuck::cast_slice(&got.bytes);
    assert_eq!(got.len(), want.len());
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let (g, w) = (got.to_f64(), want.to_f64());
        let nan = g.is_nan() && w.is_nan();
        let flushed =
            T::DTYPE == DType::Bf16 && w != 0.0 && w.abs() < f32::MIN_POSITIVE.into() && g == 0.0;
        let same = g == w && g.is_sign_negative() == w.is_sign_negative();
        assert!(
            same || nan || flushed,
            "{what}: {got:?} for {want:?} at {i}"
        );
    }
}

fn every_pattern<T: ParamOf<T>>(from_bits: fn(u16) -> T)
where
    f32: ParamOf<T>,
{
    const FROZEN: bool = false;
    let patterns: Vec<T> = (0..=u16::MAX).map(from_bits).collect();
    for subject in subjects() {
        let what = format!("{} on {}", T::DTYPE, subject.name);
        for (shape, format, from) in [
            (&[1, 4, 16_384][..], DataFormat::Ncx, 0),
            (&[1, 3, 21_845], DataFormat::Ncx, 1), // odd planes, and threads change places
            (&[1, 3, 21_845], DataFormat::Ncx, 0),
            (&[16_384, 4], DataFormat::Nxc, 0),
            (&[21_845, 3], DataFormat::Nxc, 1),
        ] {
            let count: usize = shape.iter().product();
            let part = &patterns[from..from + count];
            let problem = plain::<T, f32>(shape, format, FROZEN, part, None);
            let got = problem.run(subject).unwrap();
            same_halves(find(&got, Tensor::DiffSrc), part, &what);
        }
        // The values as gamma.
        let shape = &[1, 1 << 16];
        let one = vec![T::from_f64(1.0); patterns.len()];
        let problem = plain::<T, T>(shape, DataFormat::Nxc, FROZEN, &one, Some(&patterns));
        let got = problem.run(subject).unwrap();
        same_halves(find(&got, Tensor::DiffSrc), &patterns, &what);
        // The values as diff_beta, the sum of one element: 0 + -0 is 0.
        let both = true;
        let problem = plain::<T, T>(shape, DataFormat::Nxc, both, &patterns, None);
        let got = problem.run(subject).unwrap();
        let mut sums = patterns.clone();
        let negative_zero = sums.iter_mut().filter(|v| v.to_f64() == 0.0);
        negative_zero.for_each(|v| *v = T::from_f64(0.0));
        same_halves(find(&got, Tensor::DiffBeta), &sums, &what);
    }
}

#[test]
fn every_f16_survives() {
    every_pattern(f16::from_bits);
}

#[test]
fn every_bf16_survives() {
    every_pattern(bf16::from_bits);
}

#[test]
fn a_frozen_layer_is_still_scaled() {
    for format in FORMATS {
        let shape = in_format(&[4, 7, 33], format);
        let gradient = batch_norm_gradient::<f32, f32>(&shape, format);
        for operation in all_choices(&gradient) {
            let Pass::Backward(backward) = operation.pass else {
                panic!("{operation}");
            };
            let mut with_both = operation.clone();
            choose(&mut with_both, backward.through, true);
            let given = Problem::random(&operation, 1);
            let both = Problem::random(&with_both, 1);
            let absent = Problem::random(&operation.with_params(false, false), 1);
            for subject in subjects() {
                let [given, both, absent] =
                    [&given, &both, &absent].map(|problem| problem.run(subject).unwrap());
                let what = format!("{backward:?} on {}", subject.name);
                let names: Vec<_> = given.iter().map(|values| values.used.tensor).collect();
                match backward.param_grads {
                    true => assert_eq!(
                        names,
                        [Tensor::DiffSrc, Tensor::DiffGamma, Tensor::DiffBeta],
                        "{what}"
                    ),
                    _ => assert_eq!(names, [Tensor::DiffSrc], "{what}"),
                }
                assert!(bits(&given)[0] == bits(&both)[0], "{what}");
                assert!(bits(&given)[0] != bits(&absent)[0], "{what}");
            }
        }
    }
}
