//! `wgpu-norm layer-norm-forward` and `rms-norm-forward`.

use super::*;

const LAYER_NORM: &str = "layer-norm-forward";
const RMS_NORM: &str = "rms-norm-forward";

const EPSILON: f64 = 0.5;

/// Numbers that every element type holds exactly, as well as their sums.
fn src(i: usize) -> f64 {
    (i * 7 % 11) as f64 / 4.0 - 1.0
}

fn residual(i: usize) -> f64 {
    (i * 5 % 7) as f64 / 4.0
}

fn gamma(i: usize) -> f64 {
    0.5 + i as f64
}

fn beta(i: usize) -> f64 {
    1.0 - i as f64
}

fn filled<T: Element>(shape: &[usize], value: impl Fn(usize) -> f64) -> Tensor {
    let count = shape.iter().product::<usize>();
    let values: Vec<T> = (0..count).map(|i| T::from_f64(value(i))).collect();
    tensor(shape, &values)
}

/// src of shape [2, 3, 4], normalized along the last axis, with all optional tensors.
fn of_types<T: Element, P: Element>() -> Draft {
    let tensors = HashMap::from([
        ("src", filled::<T>(&[2, 3, 4], src)),
        ("residual", filled::<T>(&[2, 3, 4], residual)),
        ("gamma", filled::<P>(&[4], gamma)),
        ("beta", filled::<P>(&[4], beta)),
    ]);
    let metadata = HashMap::new();
    Draft { tensors, metadata }.attribute("epsilon", "0.5")
}

fn good() -> Draft {
    of_types::<f32, f32>()
}

/// The values that normalize a row of `columns` elements.
struct Want {
    dst: Vec<f64>,
    sum: Vec<f64>,
    /// Mean and variance, or the mean of squares.
    statistics: Vec<Vec<f64>>,
}

/// The expected results, row by row from the definition.
fn want(operator: &str, draft: &Draft, columns: usize) -> Want {
    let has = |name: &str| draft.tensors.contains_key(name);
    let added = |i| if has("residual") { residual(i) } else { 0.0 };
    let sum: Vec<f64> = (0..24).map(|i| src(i) + added(i)).collect();
    let mut want = Want {
        dst: vec![],
        sum: sum.clone(),
        statistics: vec![vec![]; if operator == LAYER_NORM { 2 } else { 1 }],
    };
    for row in sum.chunks(columns) {
        let of = |f: &dyn Fn(f64) -> f64| row.iter().map(|&x| f(x)).sum::<f64>() / columns as f64;
        let mean = if operator == LAYER_NORM {
            of(&|x| x)
        } else {
            0.0
        };
        let square = of(&|x| (x - mean).powi(2));
        let (first, statistics) = want.statistics.split_first_mut().unwrap();
        match statistics {
            [variance] => {
                first.push(mean);
                variance.push(square);
            }
            _ => first.push(square),
        }
        for (i, x) in row.iter().enumerate() {
            let scale = if has("gamma") { gamma(i) } else { 1.0 };
            let shift = if has("beta") && operator == LAYER_NORM {
                beta(i)
            } else {
                0.0
            };
            want.dst
                .push(scale * (x - mean) / (square + EPSILON).sqrt() + shift);
        }
    }
    want
}

/// Runs a draft with `--check`, and compares everything that it wrote with the expected results.
fn check(operator: &str, name: &str, draft: &Draft, flags: &[&str], columns: usize) -> PathBuf {
    let folder = folder(&format!("{operator}-{name}"));
    let (input, output) = (folder.join("in"), folder.join("out"));
    std::fs::write(&input, draft.bytes()).unwrap();
    let result = operate(operator, &input, &output, &[&["--check"], flags].concat());
    assert_success(&result);
    let want = want(operator, draft, columns);
    let statistics: &[&str] = match operator {
        LAYER_NORM => &["mean", "variance"],
        _ => &["mean_square"],
    };
    let has_residual = draft.tensors.contains_key("residual");
    let data = [("dst", want.dst), ("sum", want.sum)];
    let data = data.into_iter().take(if has_residual { 2 } else { 1 });
    let all: Vec<_> = data
        .chain(statistics.iter().copied().zip(want.statistics))
        .collect();
    for (tensor, want) in &all {
        let (dtype, _, got) = read_shaped(&output, tensor).unwrap_or_else(|| panic!("no {tensor}"));
        let tolerance = match dtype {
            Dtype::BF16 => 1.0 / 256.0,
            Dtype::F16 => 1.0 / 2048.0,
            _ => 1e-5,
        };
        assert_eq!(got.len(), want.len(), "{name}: {tensor}");
        for (got, want) in got.iter().zip(want) {
            let near = (got - want).abs() <= tolerance * want.abs().max(1.0);
            assert!(near, "{operator} {name}: {tensor}: got {got}, want {want}");
        }
    }
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let text = stdout(&result);
    let start = format!("{} of src ", names.join(", "));
    assert!(text.lines().last().unwrap().starts_with(&start), "{text}");
    assert_eq!(text.lines().count(), names.len() + 1, "{text}");
    assert_eq!(read(&output, "sum").is_some(), has_residual);
    output
}

// ---- successes

#[test]
fn every_pair_of_element_types() {
    fn pair<T: Element, P: Element>(supported: bool) {
        for (operator, statistic) in [(LAYER_NORM, "mean"), (RMS_NORM, "mean_square")] {
            let what = format!("{} {}", T::DTYPE, P::DTYPE);
            let draft = of_types::<T, P>();
            if !supported {
                let fragments = ["f64 tensors", "SHADER_F64"];
                refuse_by(operator, &what, &draft.bytes(), &[], &fragments);
                continue;
            }
            let output = check(operator, &what, &draft, &[], 4);
            let (dtype, shape, _) = read_shaped(&output, statistic).unwrap();
            // This holds for any parameters.
            let sums = match T::DTYPE {
                DType::F64 => Dtype::F64,
                _ => Dtype::F32,
            };
            assert_eq!((dtype, &shape[..]), (sums, &[2, 3][..]));
            for name in ["dst", "sum"] {
                let (dtype, shape, _) = read_shaped(&output, name).unwrap();
                assert_eq!(
                    (dtype, &shape[..]),
                    (draft.tensors["src"].dtype, &[2, 3, 4][..])
                );
            }
        }
    }
    let gpu = pollster::block_on(GpuContext::new()).expect("an adapter");
    pair::<f32, f32>(true);
    pair::<f16, f32>(true);
    pair::<f16, f16>(true);
    pair::<bf16, f32>(true);
    pair::<bf16, bf16>(true);
    pair::<f64, f64>(gpu.supports(DType::F64));
}

/// Deviations of 1000 and of 1e-4, whose squares f16 cannot hold: the gradient from the written statistics equals that
/// from the exact ones.
#[test]
fn a_gradient_by_what_was_written() {
    for (name, spread) in [("wide", 1000.0), ("narrow", 1e-4)] {
        for (operator, gradient, statistics) in [
            (LAYER_NORM, "layer-norm-backward", &["mean", "variance"][..]),
            (RMS_NORM, "rms-norm-backward", &["mean_square"]),
        ] {
            let folder = folder(&format!("{operator}-{name}"));
            let [input, written, given, output] =
                ["in", "written", "given", "out"].map(|name| folder.join(name));
            let epsilon = ["--epsilon", "1e-10", "--check"];
            let mut draft = of_types::<f16, f16>()
                .without("residual")
                .without("beta")
                .with("src", filled::<f16>(&[2, 3, 4], |i| spread * src(i)));
            if operator == LAYER_NORM {
                draft = draft.with("beta", filled::<f16>(&[4], beta));
            }
            std::fs::write(&input, draft.bytes()).unwrap();
            let result = operate(operator, &input, &written, &epsilon);
            assert_success(&result);
            assert!(!stderr(&result).contains("finite"), "{}", stderr(&result));
            for &statistic in statistics {
                let (dtype, values) = read(&written, statistic).unwrap();
                assert_eq!(dtype, Dtype::F32);
                draft = draft.with(statistic, filled::<f32>(&[2, 3], |i| values[i]));
            }
            let diff_dst = |i: usize| src(i + 5) / 4.0;
            let draft = draft.with("diff_dst", filled::<f16>(&[2, 3, 4], diff_dst));
            std::fs::write(&given, draft.bytes()).unwrap();
            assert_success(&operate(gradient, &given, &output, &epsilon));
            let got = values(&output, "diff_src");
            for row in 0..6 {
                let at =
                    |of: &dyn Fn(usize) -> f64| (0..4).map(|c| of(4 * row + c)).collect::<Vec<_>>();
                let mean_of = |values: &[f64]| values.iter().sum::<f64>() / 4.0;
                let x = at(&|i| f16::from_f64(spread * src(i)).to_f64());
                let mean = if operator == LAYER_NORM {
                    mean_of(&x)
                } else {
                    0.0
                };
                let squares: Vec<f64> = x.iter().map(|x| (x - mean).powi(2)).collect();
                let r = 1.0 / (mean_of(&squares) + 1e-10).sqrt();
                let x_hat: Vec<f64> = x.iter().map(|x| (x - mean) * r).collect();
                let d: Vec<f64> = (0..4).map(|c| diff_dst(4 * row + c) * gamma(c)).collect();
                let along: Vec<f64> = d.iter().zip(&x_hat).map(|(d, x_hat)| d * x_hat).collect();
                let shift = if operator == LAYER_NORM {
                    mean_of(&d)
                } else {
                    0.0
                };
                for c in 0..4 {
                    let want = r * (d[c] - shift - x_hat[c] * mean_of(&along));
                    let got = got[4 * row + c];
                    let tolerance = 1e-3 * want.abs() + 1e-5 * r + 6e-8;
                    assert!(
                        (got - want).abs() <= tolerance,
                        "{operator} {name}: {got} for {want}"
                    );
                }
            }
        }
    }
}

/// Where the reference is not finite, any result that is not finite is correct: the order of a sum decides whether it
/// is NaN or infinite.
#[test]
fn an_infinite_element_passes_the_check() {
    for operator in [LAYER_NORM, RMS_NORM] {
        let folder = folder(&format!("{operator}-infinite"));
        let (input, output) = (folder.join("in"), folder.join("out"));
        let with = |i: usize| if i == 6 { f64::INFINITY } else { src(i) };
        let draft = good()
            .without("residual")
            .with("src", filled::<f32>(&[2, 3, 4], with));
        std::fs::write(&input, draft.bytes()).unwrap();
        assert_success(&operate(operator, &input, &output, &["--check"]));
        let dst = values(&output, "dst");
        assert!(!dst[6].is_finite());
        let others = dst.iter().enumerate().filter(|(i, _)| i / 4 != 1);
        assert!(others.map(|(_, dst)| dst).all(|dst| dst.is_finite()));
    }
}

#[test]
fn what_may_be_left_out() {
    for operator in [LAYER_NORM, RMS_NORM] {
        for name in ["residual", "beta"] {
            check(operator, name, &good().without(name), &[], 4);
        }
    }
    // In this case statistics are f32.
    let plain = || of_types::<bf16, bf16>().without("gamma").without("beta");
    let output = check(RMS_NORM, "plain", &plain(), &[], 4);
    assert_eq!(read(&output, "mean_square").unwrap().0, Dtype::F32);
    let output = check(LAYER_NORM, "plain", &plain(), &["--use-affine", "false"], 4);
    assert_eq!(read(&output, "mean").unwrap().0, Dtype::F32);
}

#[test]
fn begin_norm_axis_by_flag_before_metadata_before_default() {
    for operator in [LAYER_NORM, RMS_NORM] {
        let from_1 = || {
            good()
                .with("gamma", filled::<f32>(&[3, 4], gamma))
                .with("beta", filled::<f32>(&[12], beta))
        };
        let by_metadata = from_1().attribute("begin_norm_axis", "1");
        let output = check(operator, "metadata", &by_metadata, &[], 12);
        let statistic = if operator == LAYER_NORM {
            "mean"
        } else {
            "mean_square"
        };
        assert_eq!(read_shaped(&output, statistic).unwrap().1, [2]);
        let against = from_1().attribute("begin_norm_axis", "-1");
        check(operator, "flag", &against, &["--begin-norm-axis", "-2"], 12);
        let whole = good()
            .with("gamma", filled::<f32>(&[24], gamma))
            .with("beta", filled::<f32>(&[2, 3, 4], beta));
        let output = check(operator, "whole", &whole, &["--begin-norm-axis", "0"], 24);
        assert!(read_shaped(&output, statistic).unwrap().1.is_empty());
        let fragments = ["gamma: expected shape [4] (src's axes", "got [3, 4]"];
        refuse_by(operator, "default", &from_1().bytes(), &[], &fragments);
    }
}

#[test]
fn use_affine_by_flag_before_metadata_before_default() {
    let plain = || good().without("gamma").without("beta");
    let want = values(
        &check(
            LAYER_NORM,
            "absent",
            &plain(),
            &["--use-affine", "false"],
            4,
        ),
        "dst",
    );
    let folder = folder("ignored");
    let (input, output) = (folder.join("in"), folder.join("out"));
    std::fs::write(&input, good().attribute("use_affine", "false").bytes()).unwrap();
    let result = operate(LAYER_NORM, &input, &output, &[]);
    assert_success(&result);
    assert_eq!(values(&output, "dst"), want);
    for name in ["gamma", "beta"] {
        let warning = format!("warning: {name}: ignored, as use_affine is false");
        assert!(stderr(&result).contains(&warning), "{}", stderr(&result));
    }
    let against = good().attribute("use_affine", "false");
    check(LAYER_NORM, "flag", &against, &["--use-affine", "true"], 4);
}

/// The gradient accepts what the forward pass writes.
#[test]
fn the_gradient_takes_what_was_written() {
    for (forward, backward, statistics) in [
        (LAYER_NORM, "layer-norm-backward", &["mean", "variance"][..]),
        (RMS_NORM, "rms-norm-backward", &["mean_square"]),
    ] {
        let written = check(forward, "written", &good(), &[], 4);
        let mut draft = good().with("diff_dst", filled::<f32>(&[2, 3, 4], residual));
        let again = |name| {
            let (_, shape, values) = read_shaped(&written, name).unwrap();
            filled::<f32>(&shape, |i| values[i])
        };
        draft = draft.with("src", again("sum"));
        for statistic in statistics {
            draft = draft.with(statistic, again(statistic));
        }
        let folder = folder(backward);
        let (input, output) = (folder.join("in"), folder.join("out"));
        std::fs::write(&input, draft.bytes()).unwrap();
        assert_success(&operate(backward, &input, &output, &["--check"]));
    }
}

#[test]
fn empty_tensors_have_zeros() {
    for (operator, statistic) in [(LAYER_NORM, "variance"), (RMS_NORM, "mean_square")] {
        for (rows, columns) in [(0, 2), (2, 0)] {
            let draft = good()
                .with("src", filled::<f32>(&[rows, columns], src))
                .with("residual", filled::<f32>(&[rows, columns], src))
                .with("gamma", filled::<f32>(&[columns], gamma))
                .with("beta", filled::<f32>(&[columns], beta));
            let folder = folder(&format!("{operator}-{rows}"));
            let (input, output) = (folder.join("in"), folder.join("out"));
            std::fs::write(&input, draft.bytes()).unwrap();
            assert_success(&operate(operator, &input, &output, &["--check"]));
            assert!(values(&output, "dst").is_empty() && values(&output, "sum").is_empty());
            assert_eq!(values(&output, statistic), vec![0.0; rows]);
        }
    }
}

#[test]
fn a_file_for_another_operator_is_a_warning() {
    for (operator, name) in [
        (LAYER_NORM, "layer_norm_forward"),
        (RMS_NORM, "rms_norm_forward"),
    ] {
        for op in [name, "layer_norm_backward"] {
            let folder = folder(operator);
            let (input, output) = (folder.join("in"), folder.join("out"));
            std::fs::write(&input, good().attribute("op", op).bytes()).unwrap();
            let result = operate(operator, &input, &output, &[]);
            assert_success(&result);
            let warning = format!("metadata op: expected {name}, got layer_norm_backward");
            assert_eq!(stderr(&result).contains(&warning), op != name, "{op}");
        }
    }
}

// ---- refusals

#[test]
fn refuses_bad_input() {
    for operator in [LAYER_NORM, RMS_NORM] {
        let refuse = |name: &str, draft: Draft, flags: &[&str], fragments: &[&str]| {
            let name = format!("{operator}-{name}");
            refuse_by(operator, &name, &draft.bytes(), flags, fragments);
        };
        refuse(
            "src",
            good().without("src"),
            &[],
            &["src: expected", "got none"],
        );
        let draft = good().with("residual", filled::<f32>(&[6, 4], residual));
        let fragments = ["residual: expected shape [2, 3, 4] as src, got [6, 4]"];
        refuse("residual", draft, &[], &fragments);
        let draft = good().with("residual", filled::<f16>(&[2, 3, 4], residual));
        let fragments = ["residual: expected element type f32, got f16"];
        refuse("residual-type", draft, &[], &fragments);
        let draft = good().with("gamma", filled::<f32>(&[3], gamma));
        refuse(
            "gamma",
            draft,
            &[],
            &["gamma: expected shape [4] ", "got [3]"],
        );
        let draft = good().with("gamma", filled::<f64>(&[4], gamma));
        refuse(
            "gamma-type",
            draft,
            &[],
            &["gamma: expected element type f32, got f64"],
        );
        let fragments = ["begin_norm_axis: expected an axis from -3 to 2"];
        refuse("axis", good(), &["--begin-norm-axis", "3"], &fragments);
        let draft = good()
            .with("src", filled::<f32>(&[1; 9], src))
            .with("residual", filled::<f32>(&[1; 9], src))
            .with("gamma", filled::<f32>(&[1], gamma))
            .with("beta", filled::<f32>(&[1], beta));
        refuse(
            "rank",
            draft,
            &[],
            &["src: expected a rank from 1 to 8", "rank 9"],
        );
    }
    let refuse = |name, draft: Draft, fragments: &[&str]| {
        refuse_by(LAYER_NORM, name, &draft.bytes(), &[], fragments);
    };
    refuse(
        "no-gamma",
        good().without("gamma").without("beta"),
        &["gamma: ", "use_affine is true", "got none"],
    );
    let draft = good().with("beta", filled::<f32>(&[3], beta));
    refuse("beta", draft, &["beta: expected shape [4] ", "got [3]"]);
    let draft = of_types::<bf16, bf16>().with("beta", filled::<f32>(&[4], beta));
    refuse(
        "beta-type",
        draft,
        &["beta: expected element type bf16, got f32"],
    );
}

#[test]
fn usage_errors_exit_with_2() {
    for (operator, more) in [
        (LAYER_NORM, &["--param-grads", "both"][..]),
        (LAYER_NORM, &["--use-affine", "yes"]),
        (RMS_NORM, &["--use-affine", "true"]),
        (RMS_NORM, &["--begin-norm-axis", "1.5"]),
    ] {
        let result = run(&[&[operator, "in", "-o", "out"], more].concat());
        assert_eq!(result.status.code(), Some(2), "{more:?}");
        assert_eq!(stdout(&result), "", "{more:?}");
    }
    for (operator, words) in [
        (
            LAYER_NORM,
            ["residual", "--begin-norm-axis", "--use-affine"],
        ),
        (RMS_NORM, ["residual", "--begin-norm-axis", "mean_square"]),
    ] {
        let help = stdout(&run(&[operator, "--help"]));
        assert!(words.iter().all(|word| help.contains(word)), "{help}");
    }
}
