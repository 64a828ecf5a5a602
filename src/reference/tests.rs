#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use ParamGrads::{Both, Frozen, Neither};
use Statistics::{Batch, Constant};
use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};

mod forward;
mod group_norm;

type Slice<'a> = &'a [f64];
type Index<'a> = &'a dyn Fn(usize) -> usize; // an element's group
type Params<'a> = (Slice<'a>, Slice<'a>, Option<Slice<'a>>); // mean, variance, gamma

const EPSILON: f64 = 0.1; // large, so that an error in its place shows
const SHAPE: [usize; 4] = [3, 4, 2, 5];
const AXES: [bool; 4] = [false, true, false, true];

/// The channel of an element of SHAPE under AXES.
fn channel(i: usize) -> usize {
    i / 10 % 4 * 5 + i % 5
}

#[rustfmt::skip]
fn batch_norm<'a>(
    (shape, channel_axes): (&'a [usize], &'a [bool]), (src, diff_dst): (Slice<'a>, Slice<'a>),
    (mean, variance, gamma): Params<'a>, epsilon: f64, statistics: Statistics, param_grads: ParamGrads,
) -> Result<Gradients, Error> {
    BatchNorm { shape, channel_axes, src, diff_dst, mean, variance, gamma, epsilon, statistics, param_grads }
        .backward()
}

#[rustfmt::skip]
fn layer_norm<'a>(
    (shape, begin_norm_axis): (&'a [usize], usize), (src, diff_dst): (Slice<'a>, Slice<'a>),
    (mean, variance, gamma): Params<'a>, epsilon: f64,
) -> Result<Gradients, Error> {
    LayerNorm {
        shape, begin_norm_axis, src, diff_dst, mean, variance, gamma, epsilon, param_grads: ParamGrads::Both,
    }
        .backward()
}

fn largest(got: Slice, want: Slice, scale: Slice) -> f64 {
    assert_eq!((got.len(), got.len()), (want.len(), scale.len()));
    let error = |i: usize| (got[i] - want[i]).abs() / (scale[i] + 1e-300);
    (0..got.len()).map(error).fold(0.0, f64::max)
}

fn decode(bytes: &[u8], dtype: Dtype) -> Vec<f64> {
    fn all<T: Element>(bytes: &[u8]) -> Vec<f64> {
        let values = bytes.chunks_exact(size_of::<T>());
        let values = values.map(bytemuck::pod_read_unaligned::<T>);
        values.map(T::to_f64).collect()
    }
    match dtype {
        Dtype::F16 => all::<f16>(bytes),
        Dtype::BF16 => all::<bf16>(bytes),
        Dtype::F32 => all::<f32>(bytes),
        Dtype::F64 => all::<f64>(bytes),
        other => panic!("{other:?}"),
    }
}

#[test]
fn test_vectors_match() {
    let mut files = 0;
    for folder in ["/tests/vectors", "/tests/vectors/real"] {
        let folder = format!("{}{folder}", env!("CARGO_MANIFEST_DIR"));
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "safetensors") {
                check_file(&path);
                files += 1;
            }
        }
    }
    assert!(files >= 29, "{files} files");
}

fn check_file(path: &std::path::Path) {
    let bytes = std::fs::read(path).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let attributes = header.metadata().as_ref().unwrap();
    let attribute = |key: &str| attributes[key].as_str();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let find = |name: &str| file.tensor(name).ok().map(|t| decode(t.data(), t.dtype()));
    let tensor = |name: &str| find(name).unwrap();

    let shape = file.tensor("src").unwrap().shape().to_vec();
    let (src, dy) = (tensor("src"), tensor("diff_dst"));
    let (mean, variance, gamma) = (tensor("mean"), tensor("variance"), find("gamma"));
    let params = (&mean[..], &variance[..], gamma.as_deref());
    let epsilon = attribute("epsilon").parse().unwrap();
    let got = if attribute("op") == "layer_norm_backward" {
        let axis: isize = attribute("begin_norm_axis").parse().unwrap();
        let axis = axis.rem_euclid(shape.len() as isize) as usize;
        layer_norm((&shape, axis), (&src, &dy), params, epsilon)
    } else {
        let kept = file.tensor("mean").unwrap();
        let axes = match attribute("data_format") {
            "NCX" => channel_axes(shape.len(), DataFormat::Ncx),
            "NXC" => channel_axes(shape.len(), DataFormat::Nxc),
            _ => kept.shape().iter().map(|&size| size != 1).collect(),
        };
        let is_batch = attribute("statistics") == "batch";
        let statistics = if is_batch { Batch } else { Constant };
        let shape = (&shape[..], &axes[..]);
        batch_norm(shape, (&src, &dy), params, epsilon, statistics, Both)
    };
    let g = got.unwrap();
    for (name, got, scale) in [
        ("diff_src", g.diff_src, g.diff_src_scale),
        ("diff_gamma", g.diff_gamma, g.diff_gamma_scale),
        ("diff_beta", g.diff_beta, g.diff_beta_scale),
    ] {
        // Layer norm without gamma expects no parameter gradients.
        let Some(want) = find(&format!("expected.{name}")) else {
            continue;
        };
        let error = largest(&got, &want, &scale);
        assert!(error < 1e-12, "{path:?} {name}: {error:e}");
    }
}

/// Deterministic numbers with no pattern that the tests care for.
fn noise(n: usize, seed: f64) -> Vec<f64> {
    let value = |i: f64| (12.9898 * (i + 100.0 * seed)).sin() + (i * 7.7).cos().powi(2);
    (0..n).map(|i| value(i as f64)).collect()
}

fn mean_and_variance(src: Slice, group: Index) -> (Vec<f64>, Vec<f64>) {
    let groups = (0..src.len()).map(group).max().unwrap() + 1;
    let mean_of = |g: usize, f: &dyn Fn(f64) -> f64| {
        let elements: Vec<usize> = (0..src.len()).filter(|&i| group(i) == g).collect();
        elements.iter().map(|&i| f(src[i])).sum::<f64>() / elements.len() as f64
    };
    let mean: Vec<f64> = (0..groups).map(|g| mean_of(g, &|x| x)).collect();
    let square = |g: usize| mean_of(g, &|x| (x - mean[g]).powi(2));
    let variance = (0..groups).map(square).collect();
    (mean, variance)
}

/// x̂ with the statistics of `src` itself.
fn normalized(src: Slice, group: Index) -> Vec<f64> {
    let (mean, variance) = mean_and_variance(src, group);
    let x_hat = |i| (src[i] - mean[group(i)]) / (variance[group(i)] + EPSILON).sqrt();
    (0..src.len()).map(x_hat).collect()
}

/// Central differences of a forward pass, Σ diff_dst·(gamma·x̂ + beta), that shares no code with the above.
fn check_differences(g: &Gradients, group: Index, param: Index, gamma: Slice) {
    let (src, dy, beta) = (noise(120, 1.0), noise(120, 2.0), noise(gamma.len(), 4.0));
    let loss = |src: Slice, gamma: Slice, beta: Slice| -> f64 {
        let x_hat = normalized(src, group);
        let term = |i: usize| dy[i] * (gamma[param(i)] * x_hat[i] + beta[param(i)]);
        (0..120).map(term).sum()
    };
    let check = |got: Slice, scale: Slice, at: Slice, loss: &dyn Fn(Slice) -> f64| {
        let moved = |i: usize, by: f64| {
            let mut at = at.to_vec();
            at[i] += by;
            loss(&at)
        };
        let difference = |i| (moved(i, 1e-5) - moved(i, -1e-5)) / 2e-5;
        let want: Vec<f64> = (0..at.len()).map(difference).collect();
        assert!(largest(got, &want, scale) < 1e-8);
    };
    let (of_src, of_gamma) = (
        |x: Slice| loss(x, gamma, &beta),
        |x: Slice| loss(&src, x, &beta),
    );
    check(&g.diff_src, &g.diff_src_scale, &src, &of_src);
    check(&g.diff_gamma, &g.diff_gamma_scale, gamma, &of_gamma);
    let of_beta = |x: Slice| loss(&src, gamma, x);
    check(&g.diff_beta, &g.diff_beta_scale, &beta, &of_beta);
}

#[test]
fn finite_differences_agree() {
    let (src, dy, gamma) = (noise(120, 1.0), noise(120, 2.0), noise(20, 3.0));
    let (mean, variance) = mean_and_variance(&src, &channel);
    let params = (&mean[..], &variance[..], Some(&gamma[..]));
    let got = batch_norm((&SHAPE, &AXES), (&src, &dy), params, EPSILON, Batch, Both).unwrap();
    check_differences(&got, &channel, &channel, &gamma);

    let (row, column) = (|i| i / 10, |i| i % 10);
    let (mean, variance) = mean_and_variance(&src, &row);
    let params = (&mean[..], &variance[..], Some(&gamma[..10]));
    let got = layer_norm((&SHAPE, 2), (&src, &dy), params, EPSILON).unwrap();
    check_differences(&got, &row, &column, &gamma[..10]);
}

#[test]
fn oracles_hold() {
    let (src, gamma) = (noise(120, 1.0), noise(20, 3.0));
    let (dy, other) = (noise(120, 2.0), noise(120, 5.0));
    let (mean, variance) = mean_and_variance(&src, &channel);
    let run = |dy: Slice, gamma, statistics, grads| {
        let params = (&mean[..], &variance[..], gamma);
        let shape = (&SHAPE[..], &AXES[..]);
        batch_norm(shape, (&src, dy), params, EPSILON, statistics, grads).unwrap()
    };
    let given = Some(&gamma[..]);
    let got = run(&dy, given, Batch, Both);

    let x_hat = normalized(&src, &channel);
    for c in 0..20 {
        let of_channel = || (0..120).filter(|&i| channel(i) == c);
        let sum: f64 = of_channel().map(|i| got.diff_src[i]).sum();
        let sum_x_hat: f64 = of_channel().map(|i| got.diff_src[i] * x_hat[i]).sum();
        let v = variance[c] + EPSILON;
        let want = gamma[c] / v.sqrt() * got.diff_gamma[c] * EPSILON / v;
        assert!(sum.abs() < 1e-13, "channel {c}");
        assert!((sum_x_hat - want).abs() < 1e-13, "channel {c}");
    }

    // Linear in diff_dst.
    let mixed = |a: Slice, b: Slice| (0..120).map(|i| 2.0 * a[i] - b[i]).collect::<Vec<f64>>();
    let of_mixed = run(&mixed(&dy, &other), given, Batch, Both);
    let want = mixed(&got.diff_src, &run(&other, given, Batch, Both).diff_src);
    assert!(largest(&of_mixed.diff_src, &want, &of_mixed.diff_src_scale) < 1e-14);

    assert_eq!(run(&dy, given, Batch, Frozen), got);
    assert_eq!(run(&dy, given, Batch, Neither), run(&dy, None, Batch, Both));
    let constant = run(&dy, given, Constant, Both);
    let formula = |c: usize| gamma[c] / (variance[c] + EPSILON).sqrt();
    let want: Vec<f64> = (0..120).map(|i| dy[i] * formula(channel(i))).collect();
    assert!(largest(&constant.diff_src, &want, &constant.diff_src_scale) < 1e-15);
    assert_eq!(constant.diff_gamma, got.diff_gamma);
}

#[test]
fn edges_and_errors() {
    let batch = |shape: &[usize], data: Slice, params: Slice, gamma| {
        let axes: Vec<bool> = (0..shape.len().min(3)).map(|axis| axis == 1).collect();
        let (shape, params) = ((shape, &axes[..]), (params, params, gamma));
        batch_norm(shape, (data, data), params, EPSILON, Batch, Both)
    };
    let layer = |shape: &[usize], axis| {
        let params: Params = (&[], &[], None);
        layer_norm((shape, axis), (&[], &[]), params, EPSILON)
    };

    let one = batch(&[1, 2], &[3.0, 4.0], &[3.0, 4.0], None).unwrap();
    assert_eq!(one.diff_src, [0.0; 2]);
    assert_eq!(one.diff_beta, [3.0, 4.0]);
    let empty = batch(&[0, 2, usize::MAX], &[], &[1.0, 1.0], None).unwrap();
    assert!(empty.diff_src.is_empty());
    assert_eq!(empty.diff_gamma, [0.0; 2]);
    assert_eq!(layer(&[0, 3], 1).unwrap().diff_beta, [0.0; 3]);

    let culprit = |result: Result<Gradients, Error>| match result {
        Err(Error::Length { tensor, .. } | Error::Rank { tensor, .. }) => tensor,
        Err(Error::SizeOverflow { what, .. } | Error::HostMemory { what, .. }) => what,
        Err(Error::Argument { argument, .. }) => argument,
        other => panic!("{other:?}"),
    };
    assert_eq!(culprit(batch(&[], &[], &[], None)), "src");
    assert_eq!(culprit(batch(&[1; 9], &[1.0], &[1.0], None)), "src");
    assert_eq!(culprit(batch(&[2, usize::MAX, 3], &[], &[], None)), "src");
    let axes = culprit(batch(&[1; 4], &[1.0], &[1.0], None));
    assert_eq!(axes, "channel_axes");
    assert_eq!(culprit(batch(&[2, 2], &[1.0; 4], &[1.0], None)), "mean");
    assert_eq!(culprit(batch(&[1, 1], &[1.0], &[1.0], Some(&[]))), "gamma");
    assert_eq!(culprit(layer(&[0, 3], 0)), "mean");
    assert_eq!(culprit(layer(&[0, 3], 2)), "begin_norm_axis");
    assert_eq!(culprit(layer(&[0, usize::MAX], 1)), OF_CHANNELS);
}

#[test]
fn scaled_error_judges() {
    const INF: f64 = f64::INFINITY;
    const NAN: f64 = f64::NAN;
    fn passes<T: Element>(got: f64, want: f64, scale: f64) -> bool {
        scaled_error(&[T::from_f64(got)], &[want], &[scale]) <= 1.0
    }
    assert_eq!(scaled_error(&[1.0f32], &[], &[]), INF);
    // The noise of a cancelled sum passes by its terms' size, and fails by its own.
    assert!(passes::<f32>(2e-6, 1e-6, 1.0) && !passes::<f32>(2e-6, 1e-6, 1e-6));
    assert!(passes::<f64>(1.0 + 1e-15, 1.0, 1.0) && !passes::<f64>(1.0 + 1e-12, 1.0, 1.0));
    // One rounding to storage passes, more does not; f16 keeps its subnormals, f32 need not.
    assert!(passes::<bf16>(1.0, 1.0 + 1.0 / 256.0, 1.0) && !passes::<bf16>(1.0, 1.008, 1.0));
    assert!(passes::<f16>(0.0, 2.9e-8, 0.0) && !passes::<f16>(0.0, 6e-8, 0.0));
    assert!(passes::<f32>(0.0, 1e-39, 0.0) && !passes::<f32>(0.0, 1e-37, 0.0));
    // f16 rounds to infinity from 65520 on; beside that either side is right.
    assert!(passes::<f16>(INF, 65519.9, 65519.9) && passes::<f16>(65504.0, 65520.1, 65520.1));
    assert!(!passes::<f16>(INF, 65000.0, 65000.0) && !passes::<f16>(65504.0, 1e9, 1e9));
    assert!(passes::<f16>(INF, 1e9, 1e9) && !passes::<f16>(INF, -1e9, 1e9));
    assert!(passes::<f32>(-INF, -1e39, 1e39) && !passes::<f32>(1.0, 1.0, NAN));
    // What is not finite matches what is not, whatever the scale.
    for got in [NAN, INF, -INF] {
        for want in [NAN, INF, -INF] {
            assert!(passes::<f32>(got, want, NAN) && passes::<f16>(got, want, 1.0));
        }
    }
    assert!(!passes::<f32>(NAN, 1.0, 1.0) && !passes::<f32>(INF, 1.0, 1.0));
    assert!(!passes::<f32>(1.0, NAN, NAN) && !passes::<f32>(0.0, INF, INF));
}
