//! Operations as parts of a case's ID.

use wgpu_norm::{
    Activation, Backward, Channels, DType, DTypes, DataFormat, Forward, Norm, Operation, Pass,
    Residual, RunningUpdate, RunningVariance, Through,
};

/// The batch's weight, if the ID does not name one.
const WEIGHT: f64 = 0.25;

/// The names of all operations.
pub(crate) fn names() -> Vec<String> {
    let norms = ["batch", "layer", "rms", "group", "instance", "axes"];
    let each = norms.iter().flat_map(|norm| {
        ["backward", "forward", "inference"].map(|pass| format!("{norm}_norm_{pass}"))
    });
    each.filter(|name| operation(name, &[2, 2]).is_some())
        .collect()
}

/// The operation with this name in f32, with the usual options.
pub(crate) fn operation(name: &str, shape: &[usize]) -> Option<Operation> {
    let (norm, pass) = name.rsplit_once('_')?;
    let begin_norm_axis = i64::try_from(shape.len()).ok()? - 1;
    let format = DataFormat::Ncx;
    let norm = match norm {
        "batch_norm" => Norm::Batch(Channels::Axis(DataFormat::Nxc)),
        "group_norm" => Norm::group(1, format),
        "instance_norm" => Norm::instance(format),
        "layer_norm" => Norm::layer(begin_norm_axis),
        "rms_norm" => Norm::rms(begin_norm_axis),
        "axes_norm" => Norm::axes(&[begin_norm_axis], &[begin_norm_axis]),
        _ => return None,
    };
    let pass: Pass = match (pass, &norm) {
        ("forward", _) => Forward::default().into(),
        ("backward", _) => Backward::default().into(),
        ("inference", Norm::Layer { .. } | Norm::Rms { .. }) => return None,
        ("inference", _) => Pass::Inference,
        _ => return None,
    };
    Some(Operation::new(norm, pass, shape, DType::F32))
}

/// Applies a part of an ID, if it is an option of this operation; returns whether it is.
pub(crate) fn set(operation: &mut Operation, token: &str) -> bool {
    let rows = operation.norm.begin_norm_axis().is_some();
    if let Some(types) = read_types(token) {
        operation.types = types;
        return true;
    }
    match token {
        "no_gamma" => operation.gamma = false,
        "zero_centered_gamma" => operation.zero_centered_gamma = true,
        "gate" if operation.norm.has_gate() => operation.gate = true,
        "no_beta" if operation.norm.has_beta() => operation.beta = false,
        "residual" if !rows => operation.epilogue.residual = Residual::After,
        "residual" if !matches!(operation.pass, Pass::Backward(_)) => {
            operation.epilogue.residual = Residual::Before;
        }
        _ => {
            let mut names = Activation::NAMES.iter().skip(1);
            let Some((_, activation)) = names.find(|(name, _)| *name == token) else {
                return set_norm(operation, token) || set_pass(operation, token);
            };
            operation.epilogue.activation = *activation;
        }
    }
    true
}

fn set_norm(operation: &mut Operation, token: &str) -> bool {
    let named_format = match token {
        "ncx" => Some(DataFormat::Ncx),
        "nxc" => Some(DataFormat::Nxc),
        _ => None,
    };
    let params = token.strip_prefix("params_").and_then(read_shape);
    let named_groups = token
        .strip_prefix("groups_")
        .and_then(|groups| groups.parse().ok());
    let axis = token
        .strip_prefix("axis_")
        .and_then(|axis| axis.parse::<usize>().ok());
    let axis = axis.filter(|&axis| axis < operation.shape.len());
    let axis = axis.and_then(|axis| i64::try_from(axis).ok());
    match &mut operation.norm {
        Norm::Batch(channels) => match (named_format, params) {
            (Some(format), _) => *channels = Channels::Axis(format),
            (_, Some(params)) => *channels = Channels::Broadcast(params),
            _ => return false,
        },
        Norm::Group { groups, format, .. } => match (named_format, named_groups) {
            (Some(named), _) => *format = named,
            (_, Some(named)) => *groups = named,
            _ => return false,
        },
        Norm::Instance { format, .. } => match named_format {
            Some(named) => *format = named,
            None => return false,
        },
        Norm::Axes {
            axes,
            param_axes,
            centered,
            ..
        } => {
            if token == "uncentered" {
                *centered = false;
            } else if let Some(over) = token.strip_prefix("over_").and_then(read_axes) {
                *axes = over;
            } else if let Some(along) = token.strip_prefix("along_").and_then(read_axes) {
                *param_axes = along;
            } else {
                return false;
            }
        }
        Norm::Layer {
            begin_norm_axis, ..
        }
        | Norm::Rms {
            begin_norm_axis, ..
        } => match axis {
            Some(axis) => *begin_norm_axis = axis,
            None => return false,
        },
        _ => return false,
    }
    true
}

fn set_pass(operation: &mut Operation, token: &str) -> bool {
    let is_batch = matches!(operation.norm, Norm::Batch(_));
    let rows = operation.norm.begin_norm_axis().is_some();
    match (&mut operation.pass, token, read_running(token)) {
        (Pass::Forward(forward), _, Some(update)) if is_batch => forward.running = Some(update),
        (Pass::Forward(forward), "no_statistics", _) if rows => forward.keep_statistics = false,
        (Pass::Backward(backward), "constant", _) if is_batch => {
            backward.through = Through::Constant;
        }
        (Pass::Backward(backward), "frozen", _) => backward.param_grads = false,
        _ => return false,
    }
    true
}

/// The unusual options of an operation, as parts of an ID.
pub(crate) fn tokens(operation: &Operation) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut add = |there: bool, token: &str| tokens.extend(there.then(|| token.to_owned()));
    let format_of = |format: &DataFormat| match format {
        DataFormat::Ncx => "ncx",
        DataFormat::Nxc => "nxc",
    };
    match &operation.norm {
        Norm::Batch(Channels::Axis(format)) | Norm::Instance { format, .. } => {
            add(true, format_of(format));
        }
        Norm::Batch(Channels::Broadcast(params)) => {
            add(true, &format!("params_{}", show_shape(params)));
        }
        Norm::Group { groups, format, .. } => {
            add(true, format_of(format));
            add(true, &format!("groups_{groups}"));
        }
        Norm::Axes {
            axes,
            param_axes,
            centered,
            ..
        } => {
            add(true, &format!("over_{}", show_axes(axes)));
            add(true, &format!("along_{}", show_axes(param_axes)));
            add(!centered, "uncentered");
        }
        norm => {
            if let Some(begin_norm_axis) = norm.begin_norm_axis() {
                let rank = operation.shape.len();
                let last = usize::try_from(begin_norm_axis).is_ok_and(|axis| axis + 1 == rank);
                add(!last, &format!("axis_{begin_norm_axis}"));
            }
        }
    }
    if let Pass::Backward(backward) = operation.pass {
        add(backward.through == Through::Constant, "constant");
        add(!backward.param_grads, "frozen");
    }
    add(!operation.gamma, "no_gamma");
    add(operation.zero_centered_gamma, "zero_centered_gamma");
    add(operation.norm.has_beta() && !operation.beta, "no_beta");
    add(operation.gate, "gate");
    if let Pass::Forward(forward) = operation.pass
        && let Some(update) = forward.running
    {
        add(true, &show_running(update));
    }
    let epilogue = operation.epilogue;
    add(
        epilogue.activation != Activation::None,
        &epilogue.activation.to_string(),
    );
    add(epilogue.residual != Residual::None, "residual");
    if let Pass::Forward(forward) = operation.pass {
        add(!forward.keep_statistics, "no_statistics");
    }
    tokens.push(show_types(operation.types));
    tokens
}

/// `running`, `running_unbiased`, or one of them with a weight.
fn read_running(token: &str) -> Option<RunningUpdate> {
    let (name, weight) = match token.split_once('=') {
        None => (token, WEIGHT),
        Some((name, weight)) => (name, weight.parse().ok()?),
    };
    let variance = match name {
        "running" => RunningVariance::Biased,
        "running_unbiased" => RunningVariance::Unbiased,
        _ => return None,
    };
    Some(RunningUpdate::new(weight, variance))
}

fn show_running(update: RunningUpdate) -> String {
    let name = match update.variance {
        RunningVariance::Biased => "running",
        RunningVariance::Unbiased => "running_unbiased",
    };
    match update.weight == WEIGHT {
        true => name.to_owned(),
        false => format!("{name}={}", update.weight),
    }
}

/// `f32`, or `f16-f32` for data and parameters, or `f16-f16-f32` for data, parameters and statistics. A type that is
/// left out is the same as the one before it.
fn read_types(token: &str) -> Option<DTypes> {
    let dtype = |name: &str| {
        DType::ALL
            .into_iter()
            .find(|dtype| dtype.to_string() == name)
    };
    let dtypes: Option<Vec<DType>> = token.split('-').map(dtype).collect();
    let types = match *dtypes? {
        [data] => DTypes::from(data).with_statistics(data),
        [data, params] => DTypes::from((data, params)).with_statistics(params),
        [data, params, statistics] => DTypes::from((data, params)).with_statistics(statistics),
        _ => return None,
    };
    let DTypes {
        data,
        params,
        statistics,
        ..
    } = types;
    let wider = statistics == DType::F32 && data.accepts_params(statistics);
    (data.accepts_params(params) && (statistics == params || wider)).then_some(types)
}

fn show_types(types: DTypes) -> String {
    let DTypes {
        data,
        params,
        statistics,
        ..
    } = types;
    if statistics != params {
        format!("{data}-{params}-{statistics}")
    } else if params != data {
        format!("{data}-{params}")
    } else {
        data.to_string()
    }
}

/// `0-2` as axes, or `none`.
fn read_axes(text: &str) -> Option<Vec<i64>> {
    match text {
        "none" => Some(vec![]),
        _ => text.split('-').map(|axis| axis.parse().ok()).collect(),
    }
}

fn show_axes(axes: &[i64]) -> String {
    let axes: Vec<_> = axes.iter().map(i64::to_string).collect();
    match axes.is_empty() {
        true => "none".to_owned(),
        false => axes.join("-"),
    }
}

/// `2x3x5` as numbers.
pub(crate) fn read_shape(text: &str) -> Option<Vec<usize>> {
    text.split('x').map(|size| size.parse().ok()).collect()
}

pub(crate) fn show_shape(shape: &[usize]) -> String {
    let sizes: Vec<_> = shape.iter().map(usize::to_string).collect();
    sizes.join("x")
}
