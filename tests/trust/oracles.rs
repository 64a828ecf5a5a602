//! What must hold whatever the numbers are: the same operation in another order, layout or name, and gradients as
//! finite differences of forward passes.

use crate::common::Subject;
use crate::common::data::{Problem, Values, error, find};
use crate::draw::Draw;
use crate::ranks::takes_ranks;
use crate::{Report, Share};
use wgpu_norm::synchronized::Ranks;
use wgpu_norm::{
    Activation, Channels, DType, DTypes, DataFormat, Norm, Operation, Pass, Tensor, Through,
};
use wgpu_norm_verify::{Case, Random};

type Oracle = fn(&mut Draw, &Subject, &Problem) -> Option<Result<(), String>>;

const ORACLES: [(&str, Oracle); 6] = [
    ("samples in another order", samples_permuted),
    ("gamma doubled", gamma_doubled),
    ("the batch in two parts", batch_in_parts),
    ("the other layout", other_layout),
    ("as an axes norm", as_axes_norm),
    ("finite differences", finite_differences),
];

pub fn run(share: &Share<'_>) -> Report {
    let subject = share.subject();
    let mut draw = Draw(Random::new(share.seed ^ 0xc3c3));
    let mut report = Report::default();
    for turn in 0.. {
        if !share.is_time() {
            break;
        }
        if turn % 300 == 0 {
            subject.gpu.forget_pipelines();
        }
        let Ok(case) = draw.case(1 << 12).parse::<Case>() else {
            continue;
        };
        let operation = case.operation();
        let elements: usize = operation.shape.iter().product();
        let plannable = operation.plan(subject.gpu.profile()).is_ok() && case.inputs().is_ok();
        if !plannable || elements == 0 {
            report.add(Ok(false));
            continue;
        }
        let data = draw.below(1 << 20);
        let problem = Problem::random(operation, data);
        let (name, oracle) = draw.of(&ORACLES);
        report.add(match oracle(&mut draw, &subject, &problem) {
            None => Ok(false),
            Some(Ok(())) => Ok(true),
            Some(Err(fault)) => Err(format!("{case}, data {data}, {name}: {fault}")),
        });
    }
    report
}

/// Compares results that may differ by rounding: each is within a tolerance of the exact value, so both are within two
/// of each other.
fn close(a: &[Values], b: &[Values], problem: &Problem) -> Result<(), String> {
    for want in problem.reference() {
        let (a, b) = (find(a, want.tensor).numbers(), find(b, want.tensor));
        if want.tensor == Tensor::Mask {
            continue; // A sum near 0 may be on either side.
        }
        let mut other = want.clone();
        other.values = a;
        let error = error(b, &other);
        if error > 2.0 || error.is_nan() {
            return Err(format!(
                "{} differs by {error} tolerances",
                want.tensor.name()
            ));
        }
    }
    Ok(())
}

fn results(subject: &Subject, problem: &Problem) -> Result<Vec<Values>, String> {
    problem
        .run(subject)
        .map_err(|error| format!("{}: {error}", problem.operation))
}

/// Moves elements of a tensor: the new element i is the old element `from(i)`.
fn moved(values: &Values, from: &dyn Fn(usize) -> usize) -> Values {
    let size = values.used.element_size() as usize;
    let count = values.bytes.len() / size;
    let bytes = (0..count).flat_map(|i| values.bytes[size * from(i)..][..size].to_vec());
    Values {
        bytes: bytes.collect(),
        ..values.clone()
    }
}

fn has_mask(problem: &Problem) -> bool {
    let tensors = problem.operation.tensors().unwrap();
    tensors.iter().any(|used| used.tensor == Tensor::Mask)
}

fn samples_permuted(
    draw: &mut Draw,
    subject: &Subject,
    problem: &Problem,
) -> Option<Result<(), String>> {
    let samples = problem.operation.shape[0];
    // Parameters that vary along the samples would have to move, too.
    let moves = takes_ranks(&problem.operation, &[samples]);
    if has_mask(problem) || samples < 2 || !moves {
        return None;
    }
    let turn = 1 + draw.below(samples as u64 - 1) as usize;
    let rotated = |all: &[Values], turn: usize| -> Vec<Values> {
        let each = all.iter().map(|values| {
            let split =
                values.used.ranks == Ranks::Split && values.used.shape.first() == Some(&samples);
            if !split {
                return values.clone();
            }
            let sample: usize = values.used.shape[1..].iter().product();
            moved(values, &|i| {
                (i / sample + turn) % samples * sample + i % sample
            })
        });
        each.collect()
    };
    let split = problem
        .operation
        .tensors()
        .unwrap()
        .into_iter()
        .all(|used| used.ranks != Ranks::Split || used.shape.first() == Some(&samples));
    if !split {
        return None;
    }
    let other = Problem {
        inputs: rotated(&problem.inputs, turn),
        ..problem.clone()
    };
    Some((|| {
        let got = results(subject, &other)?;
        close(
            &results(subject, problem)?,
            &rotated(&got, samples - turn),
            problem,
        )
    })())
}

fn gamma_doubled(_: &mut Draw, subject: &Subject, problem: &Problem) -> Option<Result<(), String>> {
    let operation = &problem.operation;
    let plain = operation.epilogue == Default::default() && !operation.zero_centered_gamma;
    // f16 may overflow, and doubles a subnormal number inexactly.
    let wide = operation.types.data != DType::F16 && operation.types.params != DType::F16;
    if !plain || !wide || !problem.has(Tensor::Gamma) {
        return None;
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
    Some((|| {
        let (once, twice) = (results(subject, problem)?, results(subject, &doubled)?);
        for values in &once {
            let tensor = values.used.tensor;
            let scaled = matches!(tensor, Tensor::Dst | Tensor::DiffSrc | Tensor::DiffGate);
            let factor = if scaled { 2.0 } else { 1.0 };
            let want: Vec<f64> = values
                .numbers()
                .iter()
                .map(|value| factor * value)
                .collect();
            let got = find(&twice, tensor).numbers();
            let mut pairs = want.iter().zip(&got);
            // Far below 1 doubling may leave the subnormal numbers.
            let differs = pairs.find(|(want, got)| want != got && want.abs() > 1e-30);
            if let Some((want, got)) = differs {
                return Err(format!("{}: {got}, not {want}", tensor.name()));
            }
        }
        Ok(())
    })())
}

fn batch_in_parts(
    draw: &mut Draw,
    subject: &Subject,
    problem: &Problem,
) -> Option<Result<(), String>> {
    let samples = problem.operation.shape[0];
    let tensors = problem.operation.tensors().unwrap();
    let results_split = tensors
        .iter()
        .all(|used| !used.access.writes() || used.ranks == Ranks::Split);
    let split = |used: &wgpu_norm::TensorUse| {
        used.ranks == Ranks::Split && used.shape.first() == Some(&samples)
    };
    let whole = tensors
        .iter()
        .all(|used| used.ranks != Ranks::Split || split(used));
    if samples < 2 || has_mask(problem) || !results_split || !whole || is_shared(&problem.operation)
    {
        return None;
    }
    let cut = 1 + draw.below(samples as u64 - 1) as usize;
    let part = |from: usize, to: usize| {
        let mut operation = problem.operation.clone();
        operation.shape[0] = to - from;
        let inputs = problem.inputs.iter().map(|values| {
            if !split(&values.used) {
                return values.clone();
            }
            let sample = values.bytes.len() / samples;
            let mut own = values.clone();
            own.used.shape[0] = to - from;
            own.bytes = values.bytes[from * sample..to * sample].to_vec();
            own
        });
        Problem {
            inputs: inputs.collect(),
            operation,
        }
    };
    Some((|| {
        let (first, second) = (
            results(subject, &part(0, cut))?,
            results(subject, &part(cut, samples))?,
        );
        let joined = problem.results().into_iter().map(|mut values| {
            let tensor = values.used.tensor;
            values.bytes = [&*find(&first, tensor).bytes, &find(&second, tensor).bytes].concat();
            values
        });
        close(
            &results(subject, problem)?,
            &joined.collect::<Vec<_>>(),
            problem,
        )
    })())
}

/// Whether statistics belong to several samples.
fn is_shared(operation: &Operation) -> bool {
    match &operation.norm {
        Norm::Batch(_) => true,
        Norm::Axes { axes, .. } => axes
            .iter()
            .any(|axis| axis.rem_euclid(operation.shape.len() as i64) == 0),
        Norm::Layer {
            begin_norm_axis, ..
        }
        | Norm::Rms {
            begin_norm_axis, ..
        } => *begin_norm_axis == 0,
        _ => false,
    }
}

fn other_layout(_: &mut Draw, subject: &Subject, problem: &Problem) -> Option<Result<(), String>> {
    let mut other = problem.operation.clone();
    let format = match &mut other.norm {
        Norm::Batch(Channels::Axis(format))
        | Norm::Group { format, .. }
        | Norm::Instance { format, .. } => format,
        _ => return None,
    };
    let rank = other.shape.len();
    if has_mask(problem) || rank < 2 {
        return None;
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
                moved(values, &first_of_last)
            } else {
                moved(values, &last_of_first)
            };
            own.used.shape = shape.to_vec();
            own
        });
        each.collect()
    };
    let inputs = swapped(&problem.inputs, to_last, &other.shape);
    Some((|| {
        let got = results(
            subject,
            &Problem {
                operation: other.clone(),
                inputs,
            },
        )?;
        let back = swapped(&got, !to_last, &problem.operation.shape);
        close(&results(subject, problem)?, &back, problem)
    })())
}

fn as_axes_norm(_: &mut Draw, subject: &Subject, problem: &Problem) -> Option<Result<(), String>> {
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
        _ => return None,
    };
    let plain = match operation.pass {
        Pass::Forward(forward) => forward.running.is_none() && forward.keep_statistics,
        Pass::Backward(backward) => backward.through == Through::Batch,
        _ => true,
    };
    if !plain || operation.epilogue.residual != wgpu_norm::Residual::None {
        return None;
    }
    let mut other = operation.clone();
    other.norm = norm;
    let tensors = other.tensors().ok()?;
    let same = problem.operation.tensors().unwrap();
    let names =
        |all: &[wgpu_norm::TensorUse]| all.iter().map(|used| used.tensor).collect::<Vec<_>>();
    if names(&tensors) != names(&same) {
        return None;
    }
    let renamed = |all: &[Values], tensors: &[wgpu_norm::TensorUse]| -> Vec<Values> {
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
    Some((|| {
        let got = results(
            subject,
            &Problem {
                operation: other.clone(),
                inputs,
            },
        )?;
        close(&results(subject, problem)?, &renamed(&got, &same), problem)
    })())
}

/// The derivative along a random direction of one input, in f64.
fn finite_differences(
    draw: &mut Draw,
    subject: &Subject,
    problem: &Problem,
) -> Option<Result<(), String>> {
    let mut forward = problem.operation.clone();
    forward.types = DTypes::from(DType::F64);
    let smooth = matches!(forward.epilogue.activation, Activation::None);
    let Pass::Forward(pass) = &mut forward.pass else {
        return None;
    };
    pass.running = None;
    pass.keep_statistics = true;
    if !smooth || forward.epilogue != Default::default() || !subject.gpu.supports(DType::F64) {
        return None;
    }
    let backward = forward.gradient().ok()?;
    let base = Problem::random(&forward, draw.below(1 << 20));
    let numbers = |all: &[Values], tensor| find(all, tensor).numbers();
    Some((|| {
        let forward_results = results(subject, &base)?;
        let dst = numbers(&forward_results, Tensor::Dst);
        // Near epsilon, and with few elements, the function bends too much for differences.
        let statistic = forward_results
            .iter()
            .find(|values| values.used.tensor.takes_epsilon());
        let variances = statistic.map(Values::numbers).unwrap_or_default();
        if variances.len() * 8 > dst.len() || variances.iter().any(|variance| *variance < 0.05) {
            return Ok(());
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
                gradient.set(tensor, &numbers(&forward_results, tensor));
            }
        }
        let grads = results(subject, &gradient)?;
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
            let loss = |step: f64| -> Result<(f64, f64), String> {
                let mut moved = base.clone();
                let moved_to = at.iter().zip(&direction).map(|(at, d)| at + step * d);
                moved.set(tensor, &moved_to.collect::<Vec<_>>());
                let dst = numbers(&results(subject, &moved)?, Tensor::Dst);
                let terms = dst.iter().zip(&weights).map(|(dst, w)| dst * w);
                Ok(terms.fold((0.0, 0.0), |(sum, all), term: f64| {
                    (sum + term, all + term.abs())
                }))
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
            if (got - slope).abs() > curved {
                return Err(format!(
                    "{}: {got} along a direction, not {slope}",
                    tensor.name()
                ));
            }
        }
        Ok(())
    })())
}
