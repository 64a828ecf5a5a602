//! What must hold whatever the numbers are: the same operation in another order, layout or name, and gradients as
//! finite differences of forward passes.

use crate::common::Subject;
use crate::common::data::{Problem, Values, assert_close, error, find};
use crate::draw::Draw;
use crate::ranks::takes_ranks;
use crate::{Fault, Report, Share};
use wgpu_norm::synchronized::Ranks;
use wgpu_norm::{
    Channels, DType, DTypes, DataFormat, Norm, Operation, Pass, Residual, Tensor, TensorUse,
    Through,
};
use wgpu_norm_verify::reference::Computed;

/// Compares a problem's results, which are right, with what follows from another problem's.
type Oracle = fn(&mut Draw, &Subject, &Problem, &[Values]) -> Result<(), Fault>;

const ORACLES: [(&str, Oracle); 8] = [
    ("samples in another order", samples_permuted),
    ("channels in another order", channels_permuted),
    ("gamma doubled", gamma_doubled),
    ("src shifted", src_shifted),
    ("the batch in two parts", batch_in_parts),
    ("the other layout", other_layout),
    ("as an axes norm", as_axes_norm),
    ("finite differences", finite_differences),
];

pub fn run(share: &Share<'_>) -> Report {
    share.each_problem(1 << 12, |draw, drawn| {
        let problem = &drawn.problem;
        if problem.operation.shape.contains(&0) {
            return Err(Fault::Refused);
        }
        // Another layout may need another algorithm.
        let subject = drawn
            .subject
            .with_profile("", |profile| profile.algorithm = None);
        let results = problem.run(&subject)?;
        assert_close(&results, &problem.reference(), "by itself");
        let (name, oracle) = draw.of(&ORACLES);
        oracle(draw, &subject, problem, &results).map_err(|fault| match fault {
            Fault::Wrong(fault) => Fault::Wrong(format!("{name}: {fault}")),
            Fault::Refused => fault,
        })
    })
}

/// Compares results that may differ by rounding: each is within a tolerance of the exact value. A mask is left out: a
/// sum near 0 may be on either side.
fn close(a: &[Values], b: &[Values], reference: &[Computed], most: f64) -> Result<(), Fault> {
    for want in reference.iter().filter(|want| want.tensor != Tensor::Mask) {
        let mut other = want.clone();
        other.values = find(a, want.tensor).numbers();
        let error = error(find(b, want.tensor), &other);
        if error > most || error.is_nan() {
            let name = want.tensor.name();
            return Err(Fault::Wrong(format!(
                "{name} differs by {error} tolerances"
            )));
        }
    }
    Ok(())
}

/// Moves elements of a tensor: the new element i is the old element `from(i)`.
fn moved(values: &Values, from: impl Fn(usize) -> usize) -> Values {
    let size = values.used.element_size() as usize;
    let count = values.bytes.len() / size;
    let bytes = (0..count).flat_map(|i| values.bytes[size * from(i)..][..size].to_vec());
    Values {
        bytes: bytes.collect(),
        ..values.clone()
    }
}

/// Masks have bits, which do not move by bytes.
fn refuse_masks(problem: &Problem) -> Result<(), Fault> {
    let tensors = problem.operation.tensors()?;
    let is_masked = tensors.iter().any(|used| used.tensor == Tensor::Mask);
    if is_masked {
        Err(Fault::Refused)
    } else {
        Ok(())
    }
}

/// A random order of so many things, and its inverse.
fn order(draw: &mut Draw, count: usize) -> [Vec<usize>; 2] {
    let mut order: Vec<_> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, draw.below(last as u64 + 1) as usize);
    }
    let mut inverse = vec![0; count];
    for (to, &from) in order.iter().enumerate() {
        inverse[from] = to;
    }
    [order, inverse]
}

/// Whether a tensor has something for each sample.
fn is_split(used: &TensorUse, samples: usize) -> bool {
    used.ranks == Ranks::Split && used.shape.first() == Some(&samples)
}

fn samples_permuted(
    draw: &mut Draw,
    subject: &Subject,
    problem: &Problem,
    results: &[Values],
) -> Result<(), Fault> {
    refuse_masks(problem)?;
    let samples = problem.operation.shape[0];
    // Parameters that vary along the samples would have to move, too.
    let moves = takes_ranks(&problem.operation, &[samples], subject.gpu.profile());
    let tensors = problem.operation.tensors()?;
    let is_whole = |used: &TensorUse| used.ranks != Ranks::Split || is_split(used, samples);
    if samples < 2 || !moves || !tensors.iter().all(is_whole) {
        return Err(Fault::Refused);
    }
    permuted(draw, subject, problem, results, samples, |values, order| {
        if !is_split(&values.used, samples) {
            return values.clone();
        }
        let sample: usize = values.used.shape[1..].iter().product();
        moved(values, |i| order[i / sample] * sample + i % sample)
    })
}

/// Compares results with those of inputs in another order, put back in order.
fn permuted(
    draw: &mut Draw,
    subject: &Subject,
    problem: &Problem,
    results: &[Values],
    count: usize,
    permute: impl Fn(&Values, &[usize]) -> Values,
) -> Result<(), Fault> {
    let [order, inverse] = order(draw, count);
    let permuted = |all: &[Values], order: &[usize]| -> Vec<Values> {
        all.iter().map(|values| permute(values, order)).collect()
    };
    let other = Problem {
        inputs: permuted(&problem.inputs, &order),
        ..problem.clone()
    };
    let got = permuted(&other.run(subject)?, &inverse);
    close(results, &got, &problem.reference(), 2.0)
}

/// Channels of batch and instance norm, with their statistics and parameters.
fn channels_permuted(
    draw: &mut Draw,
    subject: &Subject,
    problem: &Problem,
    results: &[Values],
) -> Result<(), Fault> {
    refuse_masks(problem)?;
    let shape = &problem.operation.shape;
    let (Norm::Batch(Channels::Axis(format)) | Norm::Instance { format, .. }) =
        &problem.operation.norm
    else {
        return Err(Fault::Refused);
    };
    let axis = if *format == DataFormat::Ncx {
        1
    } else {
        shape.len() - 1
    };
    let (channels, plane) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    if channels < 2 {
        return Err(Fault::Refused);
    }
    permuted(
        draw,
        subject,
        problem,
        results,
        channels,
        |values, order| {
            let inner = if values.used.tensor.is_data() {
                plane
            } else {
                1
            };
            moved(values, |i| {
                let (row, channel) = (i / inner / channels, i / inner % channels);
                (row * channels + order[channel]) * inner + i % inner
            })
        },
    )
}

/// src and a given mean, in steps that f32 has exactly, and 4 more.
fn src_shifted(
    _: &mut Draw,
    subject: &Subject,
    problem: &Problem,
    _: &[Values],
) -> Result<(), Fault> {
    let operation = &problem.operation;
    let is_wide = |dtype| matches!(dtype, DType::F32 | DType::F64);
    let is_centered = match operation.norm {
        Norm::Rms { .. } => false,
        Norm::Axes { centered, .. } => centered,
        _ => true,
    };
    let is_exact = is_wide(operation.types.data) && is_wide(operation.types.statistics);
    if !is_exact || !is_centered || operation.epilogue.residual == Residual::Before {
        return Err(Fault::Refused);
    }
    let by = |shift: f64| {
        let mut moved = problem.clone();
        for tensor in [Tensor::Src, Tensor::Mean]
            .into_iter()
            .filter(|t| problem.has(*t))
        {
            let numbers = find(&problem.inputs, tensor).numbers().into_iter();
            let numbers: Vec<_> = numbers.map(|x| (64.0 * x).round() / 64.0 + shift).collect();
            moved.set(tensor, &numbers);
        }
        moved
    };
    let (here, there) = (by(0.0), by(4.0));
    let mut reference = there.reference();
    reference.retain(|want| !matches!(want.tensor, Tensor::Mean | Tensor::RunningMean));
    close(&here.run(subject)?, &there.run(subject)?, &reference, 3.0)
}

fn gamma_doubled(
    _: &mut Draw,
    subject: &Subject,
    problem: &Problem,
    results: &[Values],
) -> Result<(), Fault> {
    let operation = &problem.operation;
    let plain = operation.epilogue == Default::default() && !operation.zero_centered_gamma;
    // f16 may overflow, and doubles a subnormal number inexactly.
    let wide = operation.types.data != DType::F16 && operation.types.params != DType::F16;
    if !plain || !wide || !problem.has(Tensor::Gamma) {
        return Err(Fault::Refused);
    }
    let mut doubled = problem.clone();
    for tensor in [Tensor::Gamma, Tensor::Beta]
        .into_iter()
        .filter(|tensor| problem.has(*tensor))
    {
        let numbers = find(&problem.inputs, tensor).numbers();
        doubled.set(
            tensor,
            &numbers.iter().map(|value| 2.0 * value).collect::<Vec<_>>(),
        );
    }
    let twice = doubled.run(subject)?;
    for values in results {
        let tensor = values.used.tensor;
        let is_scaled = matches!(tensor, Tensor::Dst | Tensor::DiffSrc | Tensor::DiffGate);
        let factor = if is_scaled { 2.0 } else { 1.0 };
        let got = find(&twice, tensor).numbers();
        for (value, got) in values.numbers().into_iter().zip(got) {
            let want = factor * value;
            // Far below 1 doubling may leave the subnormal numbers.
            let counts = want.abs().max(got.abs()) > 1e-30;
            if (want != got && counts) || want.is_nan() != got.is_nan() {
                return Err(Fault::Wrong(format!(
                    "{}: {got}, not {want}",
                    tensor.name()
                )));
            }
        }
    }
    Ok(())
}

fn batch_in_parts(
    draw: &mut Draw,
    subject: &Subject,
    problem: &Problem,
    results: &[Values],
) -> Result<(), Fault> {
    refuse_masks(problem)?;
    let samples = problem.operation.shape[0];
    let tensors = problem.operation.tensors()?;
    let is_whole = |used: &TensorUse| used.ranks != Ranks::Split || is_split(used, samples);
    let is_gradient = |tensor: Tensor| {
        matches!(
            tensor,
            Tensor::DiffGamma | Tensor::DiffBeta | Tensor::DiffGate
        )
    };
    let joins = |used: &TensorUse| {
        !used.access.writes() || is_split(used, samples) || is_gradient(used.tensor)
    };
    let is_cut = tensors.iter().all(|used| is_whole(used) && joins(used));
    if samples < 2 || !is_cut || is_shared(&problem.operation) {
        return Err(Fault::Refused);
    }
    let cut = 1 + draw.below(samples as u64 - 1) as usize;
    let part = |from: usize, to: usize| {
        let mut operation = problem.operation.clone();
        operation.shape[0] = to - from;
        let inputs = problem.inputs.iter().map(|values| {
            let mut own = values.clone();
            if is_split(&values.used, samples) {
                let sample = values.bytes.len() / samples;
                own.used.shape[0] = to - from;
                own.bytes = values.bytes[from * sample..to * sample].to_vec();
            }
            own
        });
        Problem {
            inputs: inputs.collect(),
            operation,
        }
    };
    let (first, second) = (part(0, cut).run(subject)?, part(cut, samples).run(subject)?);
    let joined = results.iter().map(|values| {
        let tensor = values.used.tensor;
        let (first, second) = (find(&first, tensor), find(&second, tensor));
        if is_gradient(tensor) {
            let pairs = first.numbers().into_iter().zip(second.numbers());
            let sums: Vec<_> = pairs.map(|(first, second)| first + second).collect();
            return Values::new(values.used.clone(), &sums);
        }
        Values {
            bytes: [&*first.bytes, &second.bytes].concat(),
            ..values.clone()
        }
    });
    let joined: Vec<_> = joined.collect();
    // Gradients of parameters are rounded in each part, and once more. In 16 bits parts that cancel round by more than
    // the sum's tolerance.
    let is_narrow = matches!(problem.operation.types.params, DType::F16 | DType::Bf16);
    let mut reference = problem.reference();
    reference.retain(|want| !(is_narrow && is_gradient(want.tensor)));
    close(results, &joined, &reference, 4.0)
}

/// Whether statistics belong to several samples, and are not given.
fn is_shared(operation: &Operation) -> bool {
    match &operation.norm {
        Norm::Batch(Channels::Broadcast(_)) => true,
        Norm::Batch(_) => match operation.pass {
            Pass::Backward(backward) => backward.through == Through::Batch,
            Pass::Inference => false,
            _ => true,
        },
        Norm::Axes {
            axes, param_axes, ..
        } => {
            let rank = operation.shape.len() as i64;
            axes.iter()
                .chain(param_axes)
                .any(|axis| axis.rem_euclid(rank) == 0)
        }
        norm => norm.begin_norm_axis() == Some(0),
    }
}

fn other_layout(
    _: &mut Draw,
    subject: &Subject,
    problem: &Problem,
    results: &[Values],
) -> Result<(), Fault> {
    refuse_masks(problem)?;
    let mut other = problem.operation.clone();
    let format = match &mut other.norm {
        Norm::Batch(Channels::Axis(format))
        | Norm::Group { format, .. }
        | Norm::Instance { format, .. } => format,
        _ => return Err(Fault::Refused),
    };
    let rank = other.shape.len();
    if rank < 3 {
        return Err(Fault::Refused);
    }
    *format = if *format == DataFormat::Ncx {
        DataFormat::Nxc
    } else {
        DataFormat::Ncx
    };
    let to_last = *format == DataFormat::Nxc;
    let channels = if to_last {
        problem.operation.shape[1]
    } else {
        problem.operation.shape[rank - 1]
    };
    let samples = other.shape[0];
    let plane =
        problem.operation.shape.iter().product::<usize>() / samples.max(1) / channels.max(1);
    if to_last {
        other.shape[1..].rotate_left(1);
    } else {
        other.shape[1..].rotate_right(1);
    }
    // Element i of the layout with channels first is element `last` of the other, and the other way around.
    let last_of_first = |i: usize| {
        let (sample, channel, at) = (i / (channels * plane), i / plane % channels, i % plane);
        (sample * plane + at) * channels + channel
    };
    let first_of_last = |i: usize| {
        let (sample, at, channel) = (i / (channels * plane), i / channels % plane, i % channels);
        (sample * channels + channel) * plane + at
    };
    let swapped = |all: &[Values], to_last: bool, shape: &[usize]| -> Vec<Values> {
        let each = all.iter().map(|values| {
            if !values.used.tensor.is_data() {
                return values.clone();
            }
            let mut own = if to_last {
                moved(values, first_of_last)
            } else {
                moved(values, last_of_first)
            };
            own.used.shape = shape.to_vec();
            own
        });
        each.collect()
    };
    let inputs = swapped(&problem.inputs, to_last, &other.shape);
    let other = Problem {
        operation: other.clone(),
        inputs,
    };
    let back = swapped(&other.run(subject)?, !to_last, &problem.operation.shape);
    close(results, &back, &problem.reference(), 2.0)
}

fn as_axes_norm(
    _: &mut Draw,
    subject: &Subject,
    problem: &Problem,
    results: &[Values],
) -> Result<(), Fault> {
    let operation = &problem.operation;
    let rank = operation.shape.len() as i64;
    let without = |kept: &[i64]| {
        (0..rank)
            .filter(|axis| !kept.contains(axis))
            .collect::<Vec<_>>()
    };
    let channel = |format: &DataFormat| {
        if *format == DataFormat::Ncx {
            1
        } else {
            rank - 1
        }
    };
    let norm = match &operation.norm {
        Norm::Batch(Channels::Axis(format)) => {
            Norm::axes(&without(&[channel(format)]), &[channel(format)])
        }
        Norm::Instance { format, .. } if rank > 2 => {
            Norm::axes(&without(&[0, channel(format)]), &[channel(format)])
        }
        Norm::Layer {
            begin_norm_axis, ..
        } => {
            let axes: Vec<_> = (begin_norm_axis.rem_euclid(rank)..rank).collect();
            Norm::axes(&axes, &axes)
        }
        Norm::Rms {
            begin_norm_axis, ..
        } => {
            let axes: Vec<_> = (begin_norm_axis.rem_euclid(rank)..rank).collect();
            Norm::axes(&axes, &axes).centered(false)
        }
        _ => return Err(Fault::Refused),
    };
    let plain = match operation.pass {
        Pass::Forward(forward) => forward.running.is_none() && forward.keep_statistics,
        Pass::Backward(backward) => backward.through == Through::Batch,
        _ => true,
    };
    if !plain || operation.epilogue.residual != Residual::None {
        return Err(Fault::Refused);
    }
    let mut other = operation.clone();
    other.norm = norm;
    let tensors = other.tensors()?;
    let same = problem.operation.tensors()?;
    let names = |all: &[TensorUse]| all.iter().map(|used| used.tensor).collect::<Vec<_>>();
    if names(&tensors) != names(&same) {
        return Err(Fault::Refused);
    }
    let renamed = |all: &[Values], tensors: &[TensorUse]| -> Vec<Values> {
        let each = all.iter().map(|values| {
            let used = tensors
                .iter()
                .find(|used| used.tensor == values.used.tensor);
            Values {
                used: used.unwrap().clone(),
                bytes: values.bytes.clone(),
            }
        });
        each.collect()
    };
    let inputs = renamed(&problem.inputs, &tensors);
    let other = Problem {
        operation: other.clone(),
        inputs,
    };
    let got = renamed(&other.run(subject)?, &same);
    close(results, &got, &problem.reference(), 2.0)
}

/// The derivative along a random direction of each input, in f64.
fn finite_differences(
    draw: &mut Draw,
    subject: &Subject,
    problem: &Problem,
    _: &[Values],
) -> Result<(), Fault> {
    let mut forward = problem.operation.clone();
    forward.types = DTypes::from(DType::F64);
    let is_smooth = forward.epilogue == Default::default();
    let Pass::Forward(pass) = &mut forward.pass else {
        return Err(Fault::Refused);
    };
    pass.running = None;
    pass.keep_statistics = true;
    if !is_smooth || !subject.gpu.supports(DType::F64) {
        return Err(Fault::Refused);
    }
    let backward = forward.gradient()?;
    let base = Problem::random(&forward, draw.below(1 << 20));
    let numbers = |all: &[Values], tensor| find(all, tensor).numbers();
    let results = base.run(subject)?;
    let dst = numbers(&results, Tensor::Dst);
    // Near epsilon, and with few elements, the function bends too much for differences.
    let mut statistics = results.iter();
    let statistic = statistics.find(|values| values.used.tensor.takes_epsilon());
    let variances = statistic.map(Values::numbers).unwrap_or_default();
    if variances.len() * 8 > dst.len() || variances.iter().any(|variance| *variance < 0.05) {
        return Err(Fault::Refused);
    }
    let weights: Vec<f64> = draw.0.vec(dst.len(), 1.0, 0.0);
    let mut gradient = Problem::random(&backward, 1);
    for values in gradient.inputs.clone() {
        let tensor = values.used.tensor;
        if tensor == Tensor::DiffDst {
            gradient.set(tensor, &weights);
        } else if base.has(tensor) {
            gradient.set(tensor, &base.elements::<f64>(tensor));
        } else {
            gradient.set(tensor, &numbers(&results, tensor));
        }
    }
    let grads = gradient.run(subject)?;
    for (tensor, grad) in [
        (Tensor::Src, Tensor::DiffSrc),
        (Tensor::Gamma, Tensor::DiffGamma),
        (Tensor::Beta, Tensor::DiffBeta),
        (Tensor::Gate, Tensor::DiffGate),
    ] {
        if !base.has(tensor) || !grads.iter().any(|values| values.used.tensor == grad) {
            continue;
        }
        let at: Vec<f64> = base.elements(tensor);
        let direction: Vec<f64> = draw.0.vec(at.len(), 1.0, 0.0);
        let loss = |step: f64| -> Result<(f64, f64), Fault> {
            let mut moved = base.clone();
            let moved_to = at.iter().zip(&direction).map(|(at, d)| at + step * d);
            moved.set(tensor, &moved_to.collect::<Vec<_>>());
            let dst = numbers(&moved.run(subject)?, Tensor::Dst);
            let terms = || dst.iter().zip(&weights).map(|(dst, weight)| dst * weight);
            Ok((terms().sum(), terms().map(f64::abs).sum()))
        };
        // Of fourth order, so that a small step is not needed.
        let h = 1e-3;
        let [(a, scale), (b, _), (c, _), (d, _)] =
            [loss(2.0 * h)?, loss(h)?, loss(-h)?, loss(-2.0 * h)?];
        let slope = (8.0 * (b - c) - (a - d)) / (12.0 * h);
        let grad = numbers(&grads, grad);
        let terms = || grad.iter().zip(&direction).map(|(grad, d)| grad * d);
        let (got, all) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
        // A statistic near epsilon bends too much for the step.
        let curved = all * 1e-4 + scale * 1e-9 / h;
        if (got - slope).abs() > curved || got.is_nan() {
            let name = tensor.name();
            return Err(Fault::Wrong(format!(
                "{name}: {got} along a direction, not {slope}"
            )));
        }
    }
    Ok(())
}
