//! What must hold whatever a reference says: identities of the gradient, exact cases, and the limits of
//! the element types. Where NaN and infinities spread, and how numbers are rounded: the cases `nan`, `infinite` and
//! `roundings` of verify.rs.

use crate::common::data::{Case, FORMATS, Random, all_choices, bits, in_format, options_in};
use crate::common::{every_pair, subjects};
use half::{bf16, f16};
use wgpu_norm::reference::{SUM_ULPS, scaled_error};
use wgpu_norm::{
    Activation, BatchNormOptions, DType, DataFormat, Element, ParamGrads, ParamOf, Statistics,
};

/// The channel of a flat index.
fn channel(case: &Case<impl Element, impl Element>, index: usize) -> usize {
    match case.options.data_format {
        DataFormat::Ncx => index / case.shape[2..].iter().product::<usize>() % case.shape[1],
        DataFormat::Nxc => index % case.mean.len(),
    }
}

/// src in pairs around a mean that is a multiple of 1/4, gradients that are small integers: every
/// statistic and every sum of diff_dst is exact in f32.
fn exact_case(shape: &[usize], options: BatchNormOptions) -> Case<f32, f32> {
    let mut case = Case::<f32, f32>::random(shape, options, 0);
    let mut random = Random::new(12);
    let channels = case.mean.len();
    let mut members = vec![Vec::new(); channels];
    for index in 0..case.src.len() {
        members[channel(&case, index)].push(index);
    }
    for (c, members) in members.iter().enumerate() {
        assert!(members.len().is_power_of_two() && members.len() > 1);
        let mean = (random.bits() % 64) as f32 / 4.0 - 8.0;
        let mut squares = 0.0;
        for pair in members.chunks(2) {
            let distance = (random.bits() % 16 + 1) as f32 / 4.0;
            case.src[pair[0]] = mean + distance;
            case.src[pair[1]] = mean - distance;
            squares += 2.0 * distance * distance;
        }
        case.mean[c] = mean;
        case.variance[c] = squares / members.len() as f32;
    }
    for value in &mut case.diff_dst {
        *value = (random.bits() % 17) as f32 - 8.0;
    }
    case
}

const EXACT_SHAPES: [&[usize]; 4] = [&[4, 7, 32], &[2, 33, 64], &[16, 5, 4], &[256, 3]];

fn exact_cases() -> impl Iterator<Item = Case<f32, f32>> {
    EXACT_SHAPES.into_iter().flat_map(|shape| {
        FORMATS.map(|data_format| {
            let options = BatchNormOptions {
                epsilon: 0.25,
                ..options_in(data_format)
            };
            exact_case(&in_format(shape, data_format), options)
        })
    })
}

/// Sums over a channel of diff_src and of diff_src · x̂, and the scale of the terms of each.
fn projections(case: &Case<f32, f32>, diff_src: &[f32]) -> [Vec<f64>; 4] {
    let want = case.reference();
    let mut sums = [0; 4].map(|_| vec![0.0; case.mean.len()]);
    for (i, &value) in diff_src.iter().enumerate() {
        let c = channel(case, i);
        let variance = f64::from(case.variance[c]) + case.options.epsilon;
        let x_hat = (f64::from(case.src[i]) - f64::from(case.mean[c])) / variance.sqrt();
        sums[0][c] += f64::from(value);
        sums[1][c] += f64::from(value) * x_hat;
        sums[2][c] += want.diff_src_scale[i];
        sums[3][c] += want.diff_src_scale[i] * x_hat.abs();
    }
    sums
}

#[test]
fn diff_src_sums_to_zero_and_its_projection_is_known() {
    for case in exact_cases() {
        let want = case.reference();
        let gamma = case.gamma.as_ref().unwrap();
        // Σ diff_src · x̂ = gamma · r · S2 · epsilon / (variance + epsilon).
        let projection: Vec<f64> = (0..case.mean.len())
            .map(|c| {
                let variance = f64::from(case.variance[c]) + case.options.epsilon;
                f64::from(gamma[c]) / variance.sqrt() * want.diff_gamma[c] * case.options.epsilon
                    / variance
            })
            .collect();
        for subject in subjects() {
            let got = case.run(subject).unwrap();
            let [sum, sum_x_hat, scale, scale_x_hat] = projections(&case, &got.diff_src);
            let what = format!("{:?} on {}", case.shape, subject.name);
            let error = scaled_error(&sum, &vec![0.0; sum.len()], &f32_scale(&scale));
            assert!(error <= 1.0, "{what}: the sum is off by {error}");
            let error = scaled_error(&sum_x_hat, &projection, &f32_scale(&scale_x_hat));
            assert!(error <= 1.0, "{what}: the projection is off by {error}");
        }
    }
}

/// Scales for sums of f32 results that were added in f64: the tolerance of f32, in f64's unit.
fn f32_scale(scale: &[f64]) -> Vec<f64> {
    let ratio = DType::F32.unit_roundoff() / DType::F64.unit_roundoff();
    scale.iter().map(|scale| scale * ratio).collect()
}

#[test]
fn exact_statistics_leave_a_few_ulps() {
    for case in exact_cases() {
        let want = case.reference();
        for subject in subjects() {
            let got = case.run(subject).unwrap();
            let what = format!("{:?} on {}", case.shape, subject.name);
            let beta: Vec<f64> = got.diff_beta.unwrap().iter().map(|&b| b.into()).collect();
            assert_eq!(beta, want.diff_beta, "{what}: sums of small integers");
            let few = 8.0 / SUM_ULPS;
            let error = scaled_error(&got.diff_src, &want.diff_src, &want.diff_src_scale);
            assert!(error <= few, "{what}: diff_src is off by {error}");
            let diff_gamma = got.diff_gamma.unwrap();
            let error = scaled_error(&diff_gamma, &want.diff_gamma, &want.diff_gamma_scale);
            assert!(error <= few, "{what}: diff_gamma is off by {error}");
        }
    }
}

fn one_element_a_channel<T: Element, P: ParamOf<T>>() {
    for (shape, data_format) in [
        (&[1, 37][..], DataFormat::Nxc),
        (&[1, 37], DataFormat::Ncx),
        (&[1, 6, 1, 1], DataFormat::Ncx),
        (&[1, 1, 1, 3], DataFormat::Nxc),
    ] {
        let options = options_in(data_format);
        let mut case = Case::<T, P>::random(shape, options, 1);
        // Values that both types hold.
        for (i, (src, mean)) in case.src.iter_mut().zip(&mut case.mean).enumerate() {
            let value = i as f64 / 8.0 - 1.0;
            (*src, *mean) = (T::from_f64(value), P::from_f64(value));
        }
        case.variance.fill(P::from_f64(0.0));
        let mut other = case.clone();
        for (mean, variance) in other.mean.iter_mut().zip(&mut other.variance) {
            *mean = P::from_f64(mean.to_f64() + 0.5);
            *variance = P::from_f64(0.75);
        }
        for subject in subjects().iter().filter(|s| s.takes::<T>()) {
            let what = format!("{shape:?} {}/{} on {}", T::DTYPE, P::DTYPE, subject.name);
            let got = case.run(subject).unwrap();
            assert!(got.diff_src.iter().all(|d| d.to_f64() == 0.0), "{what}");
            assert!(
                got.diff_gamma.unwrap().iter().all(|d| d.to_f64() == 0.0),
                "{what}"
            );
            let beta: Vec<f64> = got.diff_beta.unwrap().iter().map(|b| b.to_f64()).collect();
            let dy: Vec<f64> = case
                .diff_dst
                .iter()
                .map(|&d| P::from_f64(d.to_f64()).to_f64())
                .collect();
            assert_eq!(beta, dy, "{what}");
            // Another mean: diff_src = -gamma · r · x̂² · diff_dst.
            let got = other.run(subject).unwrap();
            let gamma = other.gamma.as_ref().unwrap();
            let closed: Vec<f64> = (0..other.src.len())
                .map(|i| {
                    let r = 1.0 / (0.75 + options.epsilon).sqrt();
                    let x_hat = (other.src[i].to_f64() - other.mean[i].to_f64()) * r;
                    -gamma[i].to_f64() * r * x_hat * x_hat * other.diff_dst[i].to_f64()
                })
                .collect();
            let scale = other.reference().diff_src_scale;
            let error = scaled_error(&got.diff_src, &closed, &scale);
            assert!(error <= 1.0, "{what}: off by {error}");
        }
    }
}

every_pair!(one_element_a_channel);

fn map(values: &mut [f32], f: impl Fn(f32) -> f32) {
    values.iter_mut().for_each(|v| *v = f(*v));
}

#[test]
fn linear_in_diff_dst() {
    for case in exact_cases() {
        let mut doubled = case.clone();
        map(&mut doubled.diff_dst, |d| -32.0 * d);
        let mut other = case.clone();
        other.diff_dst.reverse();
        let mut both = case.clone();
        for (d, other) in both.diff_dst.iter_mut().zip(&other.diff_dst) {
            *d += other;
        }
        let (scale, other_scale) = (case.reference(), other.reference());
        let scale: Vec<f64> = scale
            .diff_src_scale
            .iter()
            .zip(&other_scale.diff_src_scale)
            .map(|(a, b)| a + b)
            .collect();
        for subject in subjects() {
            let what = format!("{:?} on {}", case.shape, subject.name);
            let one = case.run(subject).unwrap();
            let mut times = one.clone();
            map(&mut times.diff_src, |d| -32.0 * d);
            map(times.diff_gamma.as_mut().unwrap(), |d| -32.0 * d);
            map(times.diff_beta.as_mut().unwrap(), |d| -32.0 * d);
            let got = doubled.run(subject).unwrap();
            // 0 · -32 is -0 where a difference of equals is 0.
            assert_eq!(times, got, "{what}");
            let added: Vec<f64> = one
                .diff_src
                .iter()
                .zip(&other.run(subject).unwrap().diff_src)
                .map(|(&a, &b)| f64::from(a) + f64::from(b))
                .collect();
            let got = both.run(subject).unwrap();
            let error = scaled_error(&got.diff_src, &added, &scale);
            assert!(error <= 1.0, "{what}: off by {error}");
        }
    }
}

#[test]
fn shifting_src_and_mean_changes_no_bit() {
    for case in exact_cases() {
        let mut shifted = case.clone();
        map(&mut shifted.src, |x| x + 4096.0);
        map(&mut shifted.mean, |x| x + 4096.0);
        for subject in subjects() {
            let want = bits(&case.run(subject).unwrap());
            let got = bits(&shifted.run(subject).unwrap());
            assert!(got == want, "{:?} on {}", case.shape, subject.name);
        }
    }
}

#[test]
fn scaling_by_powers_of_two_changes_no_significand() {
    for (seed, shape) in EXACT_SHAPES.into_iter().enumerate() {
        for data_format in FORMATS {
            let options = options_in(data_format);
            let shape = in_format(shape, data_format);
            let case = Case::<f32, f32>::random(&shape, options, seed as u64);
            for power in [9, -6] {
                let factor = 2f32.powi(power);
                let mut scaled = case.clone();
                map(&mut scaled.src, |x| x * factor);
                map(&mut scaled.mean, |x| x * factor);
                map(&mut scaled.variance, |x| x * factor * factor);
                scaled.options.epsilon *= f64::from(factor * factor);
                for subject in subjects() {
                    let mut want = case.run(subject).unwrap();
                    map(&mut want.diff_src, |d| d / factor);
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
    for data_format in FORMATS {
        let shape = in_format(&[4, 9, 50], data_format);
        let mut tiny = Case::<f32, f32>::random(&shape, options_in(data_format), 1);
        tiny.options.epsilon = 1e-12;
        for (i, x) in tiny.src.iter_mut().enumerate() {
            *x = (i % 5) as f32 * 1e-7;
        }
        tiny.mean.fill(2e-7);
        tiny.variance.fill(2e-14);
        let mut far = Case::<f32, f32>::random(&shape, options_in(data_format), 2);
        map(&mut far.src, |x| x + 50_000.0);
        map(&mut far.mean, |x| x + 50_000.0);
        // Gradients beyond f16's range, in some elements and not in others.
        let mut over = Case::<f16, f32>::random(&shape, options_in(data_format), 3);
        over.gamma.as_mut().unwrap().fill(100_000.0);
        let want = over.reference();
        let beyond = want.diff_src.iter().filter(|d| d.abs() > 66_000.0).count();
        assert!(beyond > 10 && beyond < want.diff_src.len() - 10);
        for subject in subjects() {
            tiny.check(subject, "tiny variance");
            far.check(subject, "large mean");
            over.check_against(subject, "overflow", &want);
            let got = over.run(subject).unwrap();
            let infinite = got.diff_src.iter().filter(|d| d.to_f64().is_infinite());
            assert!(infinite.count() >= beyond);
        }
    }
}

/// diff_src = diff_dst · gamma, exactly: r = 1 and nothing is subtracted.
fn plain<T: Element, P: ParamOf<T>>(
    shape: &[usize],
    data_format: DataFormat,
    diff_dst: Vec<T>,
    gamma: Option<Vec<P>>,
) -> Case<T, P> {
    let options = BatchNormOptions {
        statistics: Through::Constant,
        param_grads: ParamGrads::Frozen,
        epsilon: 0.5,
        data_format,
        activation: Activation::None,
    };
    let mut case = Case::random(shape, options, 1);
    case.variance.fill(P::from_f64(0.5));
    case.diff_dst = diff_dst;
    case.gamma = gamma;
    case
}

/// Equal as bits, any NaN as NaN; a subnormal number of bf16, which is one of f32, may become 0.
fn same_halves<T: Element>(got: &[T], want: &[T], what: &str) {
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
    let patterns: Vec<T> = (0..=u16::MAX).map(from_bits).collect();
    for subject in subjects() {
        let what = format!("{} on {}", T::DTYPE, subject.name);
        for (shape, data_format, from) in [
            (&[1, 4, 16_384][..], DataFormat::Ncx, 0),
            (&[1, 3, 21_845], DataFormat::Ncx, 1), // odd planes, and threads change places
            (&[1, 3, 21_845], DataFormat::Ncx, 0),
            (&[16_384, 4], DataFormat::Nxc, 0),
            (&[21_845, 3], DataFormat::Nxc, 1),
        ] {
            let count: usize = shape.iter().product();
            let part = patterns[from..from + count].to_vec();
            let case = plain::<T, f32>(shape, data_format, part.clone(), None);
            let got = case.run(subject).unwrap();
            same_halves(&got.diff_src, &part, &what);
        }
        // As gamma.
        let one = vec![T::from_f64(1.0); patterns.len()];
        let case = plain::<T, T>(&[1, 1 << 16], DataFormat::Nxc, one, Some(patterns.clone()));
        same_halves(&case.run(subject).unwrap().diff_src, &patterns, &what);
        // As diff_beta, the sum of one element: 0 + -0 is 0.
        let mut case = plain::<T, T>(&[1, 1 << 16], DataFormat::Nxc, patterns.clone(), None);
        case.options.param_grads = ParamGrads::Both;
        let diff_beta = case.run(subject).unwrap().diff_beta.unwrap();
        let mut sums = patterns.clone();
        let negative_zero = sums.iter_mut().filter(|v| v.to_f64() == 0.0);
        negative_zero.for_each(|v| *v = T::from_f64(0.0));
        same_halves(&diff_beta, &sums, &what);
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
fn neither_ignores_gamma_and_frozen_keeps_it() {
    for data_format in FORMATS {
        let shape = in_format(&[4, 7, 33], data_format);
        let with = |statistics, param_grads, gamma: bool| {
            let options = BatchNormOptions {
                statistics,
                param_grads,
                ..options_in(data_format)
            };
            let mut case = Case::<f32, f32>::random(&shape, options, 1);
            case.gamma = case.gamma.filter(|_| gamma);
            case
        };
        for subject in subjects() {
            for (statistics, param_grads) in all_choices() {
                let run = |gamma| with(statistics, param_grads, gamma).run(subject).unwrap();
                let (given, absent) = (run(true), run(false));
                let both = with(statistics, ParamGrads::Both, true)
                    .run(subject)
                    .unwrap();
                let what = format!("{statistics:?} {param_grads:?} on {}", subject.name);
                let asked = param_grads == ParamGrads::Both;
                assert_eq!(given.diff_gamma.is_some(), asked, "{what}");
                assert_eq!(given.diff_beta.is_some(), asked, "{what}");
                if param_grads == ParamGrads::Neither {
                    assert!(bits(&given) == bits(&absent), "{what}");
                } else {
                    assert!(bits(&given)[0] == bits(&both)[0], "{what}");
                    assert!(bits(&given)[0] != bits(&absent)[0], "{what}");
                }
            }
        }
    }
}
