//! The formulas, element by element in float64: they share no line with the reference.

use crate::{Fault, Report, Share};
use std::collections::HashMap;
use wgpu_norm::{
    Activation, Channels, DType, DataFormat, Norm, Operation, Pass, RunningVariance, Through,
};
use wgpu_norm_verify::{Case, Input};

/// Compares the reference with the formulas; no adapter is asked.
pub fn run(share: &Share<'_>) -> Report {
    share.each(|draw, report| {
        let id = draw.case(1 << 12);
        report.attempt(&id, || check(&id.parse()?));
    })
}

/// What an element belongs to.
struct Places {
    /// The statistic of each element, and the number of elements of each.
    statistic: Vec<usize>,
    counts: Vec<f64>,
    /// The parameter of each element, and the number of parameters.
    param: Vec<usize>,
    params: usize,
}

/// The flat index of an element along some axes.
fn flat(index: &[usize], shape: &[usize], axes: &[usize]) -> usize {
    axes.iter()
        .fold(0, |at, &axis| at * shape[axis] + index[axis])
}

fn places(operation: &Operation) -> Option<Places> {
    let shape = &operation.shape;
    let rank = shape.len();
    let from_start = |axis: &i64| {
        if *axis < 0 {
            (*axis + rank as i64) as usize
        } else {
            *axis as usize
        }
    };
    let channel_axis = |format: &DataFormat| {
        if *format == DataFormat::Ncx {
            1
        } else {
            rank - 1
        }
    };
    let others = |axes: &[usize]| {
        (0..rank)
            .filter(|axis| !axes.contains(axis))
            .collect::<Vec<_>>()
    };
    let mut groups = None;
    let (kept, along) = match &operation.norm {
        Norm::Batch(Channels::Axis(format)) => {
            (vec![channel_axis(format)], vec![channel_axis(format)])
        }
        Norm::Batch(Channels::Broadcast(sizes)) => {
            let axes: Vec<_> = (0..rank).filter(|&axis| sizes[axis] != 1).collect();
            (axes.clone(), axes)
        }
        Norm::Group {
            groups: count,
            format,
            ..
        } => {
            groups = Some((channel_axis(format), *count));
            (vec![], vec![channel_axis(format)])
        }
        Norm::Instance { format, .. } => {
            let axis = channel_axis(format);
            (vec![0, axis], vec![axis])
        }
        Norm::Layer {
            begin_norm_axis, ..
        }
        | Norm::Rms {
            begin_norm_axis, ..
        } => {
            let begin = from_start(begin_norm_axis);
            ((0..begin).collect(), (begin..rank).collect())
        }
        Norm::Axes {
            axes, param_axes, ..
        } => {
            let axes: Vec<_> = axes.iter().map(from_start).collect();
            let mut along: Vec<_> = param_axes.iter().map(from_start).collect();
            along.sort_unstable();
            (others(&axes), along)
        }
        _ => return None,
    };
    let elements: usize = shape.iter().product();
    let (mut statistic, mut param) = (Vec::new(), Vec::new());
    let mut index = vec![0; rank];
    for _ in 0..elements {
        statistic.push(match groups {
            Some((axis, count)) => index[0] * count + index[axis] / (shape[axis] / count),
            None => flat(&index, shape, &kept),
        });
        param.push(flat(&index, shape, &along));
        for axis in (0..rank).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    let mut counts = vec![0.0; statistic.iter().max().map_or(0, |most| most + 1)];
    statistic.iter().for_each(|&at| counts[at] += 1.0);
    let params = along.iter().map(|&axis| shape[axis]).product();
    Some(Places {
        statistic,
        counts,
        param,
        params,
    })
}

/// The activation and its slope.
fn activation(kind: Activation, y: f64) -> (f64, f64) {
    let normal = |y: f64| {
        (
            0.5 * (1.0 + erf(y / 2_f64.sqrt())),
            (-y * y / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt(),
        )
    };
    match kind {
        Activation::None => (y, 1.0),
        Activation::Relu => (y.max(0.0), if y > 0.0 { 1.0 } else { 0.0 }),
        Activation::Silu => {
            let s = 1.0 / (1.0 + (-y).exp());
            (y * s, s * (1.0 + y * (1.0 - s)))
        }
        Activation::Gelu => {
            let (below, density) = normal(y);
            (y * below, below + y * density)
        }
        Activation::GeluTanh => {
            let c = (2.0 / std::f64::consts::PI).sqrt();
            let t = (c * (y + 0.044715 * y.powi(3))).tanh();
            (
                0.5 * y * (1.0 + t),
                0.5 * (1.0 + t) + 0.5 * y * (1.0 - t * t) * c * (1.0 + 0.134145 * y * y),
            )
        }
        other => panic!("{other}"),
    }
}

/// The error function by its series and its continued fraction.
fn erf(x: f64) -> f64 {
    if x.abs() > 3.0 {
        let mut fraction = 0.0;
        for k in (1..200).rev() {
            fraction = f64::from(k) / 2.0 / (x.abs() + fraction);
        }
        let tail = (-x * x).exp() / std::f64::consts::PI.sqrt() / (x.abs() + fraction);
        return x.signum() * (1.0 - tail);
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..120 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    2.0 / std::f64::consts::PI.sqrt() * sum
}

fn check(case: &Case) -> Result<(), Fault> {
    let operation = case.operation();
    // Near 0 a ReLU may be on either side.
    let is_comparable = operation.epilogue.activation != Activation::Relu;
    let elements: usize = operation.shape.iter().product();
    if !is_comparable || elements == 0 {
        return Err(Fault::Refused);
    }
    let expected = case.expected()?;
    let inputs = case.inputs()?;
    // The library makes NaN of an infinite variance.
    let mut values = inputs.iter().flat_map(|input| &input.values);
    if values.any(|value| !value.is_finite()) {
        return Err(Fault::Refused);
    }
    let given = inputs.into_iter();
    let given = given
        .map(|Input { name, values, .. }| (name, values))
        .collect();
    let places = places(operation).ok_or(Fault::Refused)?;
    let results = compute(operation, &places, &given);
    for want in expected {
        let Some(got) = results.get(want.name()) else {
            continue;
        };
        let elements = got
            .iter()
            .zip(want.values.iter().cycle())
            .zip(want.scale.iter().cycle());
        for ((got, value), scale) in elements {
            // Beyond f16's range the reference's result is infinite.
            let beyond = value.is_infinite() && operation.types.data == DType::F16;
            let is_off =
                (got - value).abs() > 1e-9 * scale + 1e-12 || got.is_nan() != value.is_nan();
            if is_off && !(beyond && got.abs() > 6e4) {
                return Err(Fault::Wrong(format!(
                    "{} is {value}, not {got}",
                    want.name()
                )));
            }
        }
    }
    Ok(())
}

fn compute(
    operation: &Operation,
    places: &Places,
    given: &HashMap<&str, Vec<f64>>,
) -> HashMap<&'static str, Vec<f64>> {
    let Places {
        statistic,
        counts,
        param,
        params,
    } = places;
    let centered = !matches!(
        operation.norm,
        Norm::Rms { .. }
            | Norm::Axes {
                centered: false,
                ..
            }
    );
    let get = |name: &str| given.get(name);
    let mut src = get("src").cloned().unwrap_or_default();
    let mut results = HashMap::new();
    let rows = operation.norm.begin_norm_axis().is_some();
    if let (Some(residual), true) = (get("residual"), rows) {
        src.iter_mut()
            .zip(residual)
            .for_each(|(src, residual)| *src += residual);
        results.insert("sum", src.clone());
        return results; // The rest depends on how the sum is rounded.
    }
    let sum = |values: &dyn Fn(usize) -> f64| {
        let mut sums = vec![0.0; counts.len()];
        (0..src.len()).for_each(|i| sums[statistic[i]] += values(i));
        sums
    };
    let mean = |values: &dyn Fn(usize) -> f64| {
        let sums = sum(values);
        sums.iter()
            .zip(counts)
            .map(|(sum, count)| sum / count)
            .collect::<Vec<f64>>()
    };
    let is_forward = matches!(operation.pass, Pass::Forward(_));
    let means = match (is_forward, get("mean")) {
        _ if !centered => vec![0.0; counts.len()],
        (false, Some(given)) => given.clone(),
        _ => mean(&|i| src[i]),
    };
    let name = if centered { "variance" } else { "mean_square" };
    let variances = match (is_forward, get(name)) {
        (false, Some(given)) => given.clone(),
        _ => mean(&|i| (src[i] - means[statistic[i]]).powi(2)),
    };
    let r: Vec<f64> = variances
        .iter()
        .map(|v| 1.0 / (v + operation.epsilon).sqrt())
        .collect();
    let ones = vec![1.0; *params];
    let less_one = if operation.zero_centered_gamma {
        1.0
    } else {
        0.0
    };
    let gamma: Vec<f64> = match get("gamma") {
        Some(gamma) => gamma.iter().map(|gamma| gamma + less_one).collect(),
        None => ones.clone(),
    };
    let zeros = vec![0.0; *params];
    let beta = get("beta").unwrap_or(&zeros);
    let gate = get("gate").unwrap_or(&ones);
    let x_hat = |i: usize| (src[i] - means[statistic[i]]) * r[statistic[i]];
    let y = |i: usize| gamma[param[i]] * x_hat(i) + beta[param[i]];
    let kind = operation.epilogue.activation;
    let all = 0..src.len();
    let Pass::Backward(backward) = operation.pass else {
        let residual = get("residual");
        let dst = all.map(|i| {
            activation(
                kind,
                gate[param[i]] * y(i) + residual.map_or(0.0, |residual| residual[i]),
            )
            .0
        });
        results.insert("dst", dst.collect());
        if let Pass::Forward(forward) = operation.pass {
            if let Some(update) = forward.running {
                let count = counts.first().copied().unwrap_or(1.0);
                let unbiased = update.variance == RunningVariance::Unbiased && count > 1.0;
                let factor = if unbiased { count / (count - 1.0) } else { 1.0 };
                let moved = |old: &str, new: &[f64], factor: f64| {
                    let old = get(old).cloned().unwrap_or_default();
                    let pairs = old.iter().zip(new);
                    pairs
                        .map(|(old, new)| old + update.weight * (factor * new - old))
                        .collect()
                };
                results.insert("running_mean", moved("running_mean", &means, 1.0));
                results.insert(
                    "running_variance",
                    moved("running_variance", &variances, factor),
                );
            }
            results.insert("mean", means);
            results.insert(name, variances);
        }
        return results;
    };
    let diff_dst = get("diff_dst").cloned().unwrap_or_default();
    let d = |i: usize| diff_dst[i] * activation(kind, y(i)).1;
    let scaled = |i: usize| d(i) * gate[param[i]] * gamma[param[i]];
    let (flat, weighed) = match backward.through {
        Through::Constant => (zeros_of(counts), zeros_of(counts)),
        Through::Batch => (mean(&scaled), mean(&|i| scaled(i) * x_hat(i))),
    };
    let diff_src = all.map(|i| {
        let at = statistic[i];
        let flat = if centered { flat[at] } else { 0.0 };
        r[at] * (scaled(i) - flat - x_hat(i) * weighed[at])
    });
    results.insert("diff_src", diff_src.collect());
    let by_param = |values: &dyn Fn(usize) -> f64| {
        let mut sums = vec![0.0; *params];
        (0..src.len()).for_each(|i| sums[param[i]] += values(i));
        sums
    };
    results.insert(
        "diff_gamma",
        by_param(&|i| d(i) * gate[param[i]] * x_hat(i)),
    );
    results.insert("diff_beta", by_param(&|i| d(i) * gate[param[i]]));
    results.insert("diff_gate", by_param(&|i| d(i) * y(i)));
    results
}

fn zeros_of(counts: &[f64]) -> Vec<f64> {
    vec![0.0; counts.len()]
}
