//! `wgpu-norm batch-norm-forward` and `batch-norm-inference`.

use super::*;

const FORWARD: &str = "batch-norm-forward";
const INFERENCE: &str = "batch-norm-inference";

const NCX: [&str; 3] = ["--check", "--data-format", "NCX"];
const EPSILON: f64 = 0.5;

/// Numbers that every element type holds exactly.
fn src(i: usize) -> f64 {
    (i * 7 % 11) as f64 / 4.0 - 1.0
}

fn filled<T: Element>(shape: &[usize], value: impl Fn(usize) -> f64) -> Tensor {
    let count = shape.iter().product::<usize>();
    let values: Vec<T> = (0..count).map(|i| T::from_f64(value(i))).collect();
    tensor(shape, &values)
}

fn gamma(c: usize) -> f64 {
    0.5 + c as f64
}

fn beta(c: usize) -> f64 {
    1.0 - c as f64
}

/// src of shape [4, 3, 2], with channels along axis 1.
fn of_types<T: Element, P: Element>() -> Draft {
    let tensors = HashMap::from([
        ("src", filled::<T>(&[4, 3, 2], src)),
        ("gamma", filled::<P>(&[3], gamma)),
        ("beta", filled::<P>(&[3], beta)),
    ]);
    let metadata = HashMap::new();
    Draft { tensors, metadata }.attribute("epsilon", "0.5")
}

fn good() -> Draft {
    of_types::<f32, f32>()
}

fn with_running<S: Element>(draft: Draft) -> Draft {
    draft
        .with("running_mean", filled::<S>(&[3], |_| 2.0))
        .with("running_variance", filled::<S>(&[3], |_| 4.0))
}

fn with_statistics<S: Element>(draft: Draft) -> Draft {
    draft
        .with("mean", filled::<S>(&[3], |c| c as f64))
        .with("variance", filled::<S>(&[3], |c| 0.5 + c as f64))
}

/// Elements of channel `c` of [4, 3, 2].
fn channel(c: usize) -> Vec<f64> {
    let all = (0..24).filter(|i| i / 2 % 3 == c);
    all.map(src).collect()
}

fn mean() -> Vec<f64> {
    let of = |c| channel(c).iter().sum::<f64>() / 8.0;
    (0..3).map(of).collect()
}

fn variance() -> Vec<f64> {
    let of = |c: usize| {
        let mean = mean()[c];
        channel(c).iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 8.0
    };
    (0..3).map(of).collect()
}

fn normalized(
    mean: &[f64],
    variance: &[f64],
    gamma: fn(usize) -> f64,
    beta: fn(usize) -> f64,
) -> Vec<f64> {
    let one = |i: usize| {
        let c = i / 2 % 3;
        gamma(c) * (src(i) - mean[c]) / (variance[c] + EPSILON).sqrt() + beta(c)
    };
    (0..24).map(one).collect()
}

fn assert_near(got: &[f64], want: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (got, want) in got.iter().zip(want) {
        let near = (got - want).abs() <= tolerance * want.abs().max(1.0);
        assert!(near, "{what}: got {got}, want {want}");
    }
}

/// The tolerance for one rounding to the type.
fn tolerance(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::BF16 => 1.0 / 256.0,
        Dtype::F16 => 1.0 / 2048.0,
        _ => 1e-5,
    }
}

/// Runs a draft; returns the file that it wrote and its output.
fn run_by(operator: &str, name: &str, draft: &Draft, arguments: &[&str]) -> (PathBuf, Output) {
    let folder = folder(name);
    let (input, output) = (folder.join("in"), folder.join("out"));
    std::fs::write(&input, draft.bytes()).unwrap();
    let result = operate(operator, &input, &output, arguments);
    (output, result)
}

fn train(name: &str, draft: &Draft, arguments: &[&str]) -> PathBuf {
    let (output, result) = run_by(FORWARD, name, draft, arguments);
    assert_success(&result);
    output
}

fn infer(name: &str, draft: &Draft, arguments: &[&str]) -> PathBuf {
    let (output, result) = run_by(INFERENCE, name, draft, arguments);
    assert_success(&result);
    output
}

fn assert_tensor(path: &Path, name: &str, shape: &[usize], want: &[f64]) {
    let (dtype, got_shape, got) = read_shaped(path, name).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!(got_shape, shape, "{name}");
    assert_near(&got, want, tolerance(dtype), name);
}

fn has_f64() -> bool {
    let gpu = pollster::block_on(GpuContext::new()).expect("an adapter");
    gpu.supports(DType::F64)
}

// ---- successes

#[test]
fn every_element_type() {
    fn of<T: Element, P: Element, S: Element>(supported: bool) {
        let what = format!("{} {} {}", T::DTYPE, P::DTYPE, S::DTYPE);
        let flags = [&NCX[..], &["--running-weight", "0.25"]].concat();
        let draft = with_running::<S>(of_types::<T, P>());
        let (output, result) = run_by(FORWARD, &format!("train {what}"), &draft, &flags);
        let given = with_statistics::<S>(of_types::<T, P>());
        let (inferred, inference) = run_by(INFERENCE, &format!("infer {what}"), &given, &NCX);
        if !supported {
            assert_failure(&result, &["f64 tensors", "SHADER_F64"], &what);
            return assert_failure(&inference, &["f64 tensors", "SHADER_F64"], &what);
        }
        assert_success(&result);
        let text = stdout(&result);
        assert_eq!(text.lines().count(), 6, "{text}");
        let summary = "dst, mean, variance, running_mean, running_variance of src ";
        assert!(text.lines().last().unwrap().starts_with(summary), "{text}");
        let words = "NCX, epsilon 5e-1, running weight 0.25, biased variance";
        assert!(text.contains(words), "{text}");
        assert_tensor(
            &output,
            "dst",
            &[4, 3, 2],
            &normalized(&mean(), &variance(), gamma, beta),
        );
        assert_tensor(&output, "mean", &[3], &mean());
        assert_tensor(&output, "variance", &[3], &variance());
        let merged = |old: f64, of: Vec<f64>| -> Vec<f64> {
            of.iter().map(|new| 0.75 * old + 0.25 * new).collect()
        };
        assert_tensor(&output, "running_mean", &[3], &merged(2.0, mean()));
        assert_tensor(&output, "running_variance", &[3], &merged(4.0, variance()));
        let dtype = |name: &str| read(&output, name).unwrap().0;
        assert_eq!(dtype("dst"), draft.tensors["src"].dtype, "{what}");
        for name in ["mean", "variance", "running_mean", "running_variance"] {
            assert_eq!(dtype(name), draft.tensors["running_mean"].dtype, "{what}");
        }

        assert_success(&inference);
        let text = stdout(&inference);
        assert_eq!(text.lines().count(), 2, "{text}");
        let want = normalized(&[0.0, 1.0, 2.0], &[0.5, 1.5, 2.5], gamma, beta);
        assert_tensor(&inferred, "dst", &[4, 3, 2], &want);
        assert_eq!(
            read(&inferred, "dst").unwrap().0,
            draft.tensors["src"].dtype
        );
        assert!(read(&inferred, "mean").is_none());
    }
    of::<f32, f32, f32>(true);
    of::<f16, f32, f32>(true);
    of::<f16, f16, f16>(true);
    of::<f16, f16, f32>(true);
    of::<bf16, f32, f32>(true);
    of::<bf16, bf16, bf16>(true);
    of::<bf16, bf16, f32>(true);
    of::<f64, f64, f64>(has_f64());
}

#[test]
fn types_of_statistics_without_running_ones() {
    let dtypes = |name: &str, draft: &Draft| {
        let output = train(name, draft, &NCX);
        ["mean", "variance"].map(|tensor| read(&output, tensor).unwrap().0)
    };
    assert_eq!(dtypes("f16", &of_types::<f16, f16>()), [Dtype::F32; 2]);
    assert_eq!(dtypes("f16-f32", &of_types::<f16, f32>()), [Dtype::F32; 2]);
    let alone = of_types::<bf16, bf16>().without("gamma").without("beta");
    assert_eq!(dtypes("alone", &alone), [Dtype::F32; 2]);
    let shifted = of_types::<bf16, bf16>().without("gamma");
    assert_eq!(dtypes("shifted", &shifted), [Dtype::F32; 2]);
}

/// 16-bit running statistics determine the type of the batch's, and a warning says where that type cannot hold them.
#[test]
fn statistics_beyond_16_bits() {
    let wide = |spread: f64| {
        of_types::<f16, f16>().with("src", filled::<f16>(&[4, 3, 2], |i| spread * src(i)))
    };
    for (name, spread, says) in [
        ("wide", 1000.0, "variance: 3 of 3 elements are not finite"),
        (
            "narrow",
            1e-4,
            "variance: 3 of 3 elements are below the smallest normal f16",
        ),
        ("fits", 1.0, ""),
    ] {
        let flags = ["--data-format", "NCX", "--running-weight", "0.5"];
        let draft = with_running::<f16>(wide(spread));
        let (output, result) = run_by(FORWARD, &format!("{name}-16"), &draft, &flags);
        assert_success(&result);
        assert_eq!(read(&output, "variance").unwrap().0, Dtype::F16);
        let warnings = stderr(&result);
        assert!(warnings.contains(says), "{warnings}");
        assert_eq!(
            warnings.contains("variance: "),
            !says.is_empty(),
            "{warnings}"
        );
        for (name, draft) in [
            (format!("{name}-32"), with_running::<f32>(wide(spread))),
            (format!("{name}-alone"), wide(spread)),
        ] {
            let flags = [&flags[..], &["--check"]].concat();
            let (output, result) = run_by(FORWARD, &name, &draft, &flags);
            assert_success(&result);
            let (dtype, got) = read(&output, "variance").unwrap();
            assert_eq!(dtype, Dtype::F32);
            let of = |i: usize| f16::from_f64(spread * src(i)).to_f64();
            for (c, got) in got.into_iter().enumerate() {
                let all: Vec<f64> = (0..24).filter(|i| i / 2 % 3 == c).map(of).collect();
                let mean = all.iter().sum::<f64>() / 8.0;
                let want = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 8.0;
                assert!(
                    (got - want).abs() <= 1e-5 * want,
                    "{name}: {got} for {want}"
                );
            }
            assert!(
                !stderr(&result).contains("variance: "),
                "{}",
                stderr(&result)
            );
        }
    }
}

#[test]
fn gamma_and_beta_may_be_left_out() {
    for (without, g, b) in [
        (
            &["gamma"][..],
            (|_| 1.0) as fn(usize) -> f64,
            beta as fn(usize) -> f64,
        ),
        (&["beta"], gamma, |_| 0.0),
        (&["gamma", "beta"], |_| 1.0, |_| 0.0),
    ] {
        let name = without.concat();
        let draft = without
            .iter()
            .fold(good(), |draft, name| draft.without(name));
        let output = train(&format!("train-{name}"), &draft, &NCX);
        assert_tensor(
            &output,
            "dst",
            &[4, 3, 2],
            &normalized(&mean(), &variance(), g, b),
        );
        assert!(read(&output, "running_mean").is_none());
        let output = infer(
            &format!("infer-{name}"),
            &with_statistics::<f32>(draft),
            &NCX,
        );
        let want = normalized(&[0.0, 1.0, 2.0], &[0.5, 1.5, 2.5], g, b);
        assert_tensor(&output, "dst", &[4, 3, 2], &want);
    }
}

#[test]
fn the_unbiased_variance_by_flag_before_metadata_before_default() {
    let running = |name: &str, draft: &Draft, flags: &[&str]| {
        values(
            &train(name, draft, &[&NCX[..], flags].concat()),
            "running_variance",
        )
    };
    let draft = || with_running::<f32>(good()).attribute("running_weight", "1");
    let unbiased: Vec<f64> = variance().iter().map(|v| v * 8.0 / 7.0).collect();
    assert_near(&running("default", &draft(), &[]), &variance(), 1e-5, "");
    let by_metadata = draft().attribute("running_variance", "Unbiased");
    assert_near(&running("metadata", &by_metadata, &[]), &unbiased, 1e-5, "");
    let by_flag = ["--running-variance", "biased"];
    assert_near(
        &running("flag", &by_metadata, &by_flag),
        &variance(),
        1e-5,
        "",
    );
    // The weight: the flag's counts, and 0 leaves everything unchanged.
    let kept = running("weight", &draft(), &["--running-weight", "0"]);
    assert_eq!(kept, [4.0; 3]);
}

#[test]
fn formats() {
    // The same numbers with channels last: [4, 2, 3].
    let last = |i: usize| src(i / 6 * 6 + i % 3 * 2 + i / 3 % 2);
    let to_last = |values: Vec<f64>| -> Vec<f64> {
        let place = |i: usize| i / 6 * 6 + i % 3 * 2 + i / 3 % 2;
        (0..24).map(|i| values[place(i)]).collect()
    };
    let want = || normalized(&mean(), &variance(), gamma, beta);
    let nxc = good().with("src", filled::<f32>(&[4, 2, 3], last));
    let output = train("nxc", &nxc, &["--check"]);
    assert_tensor(&output, "dst", &[4, 2, 3], &to_last(want()));
    let by_metadata = good().attribute("data_format", "NCX");
    assert_tensor(
        &train("metadata", &by_metadata, &["--check"]),
        "dst",
        &[4, 3, 2],
        &want(),
    );

    let broadcast = |draft: Draft| {
        draft
            .with("gamma", filled::<bf16>(&[1, 3, 1], gamma))
            .with("beta", filled::<bf16>(&[1, 3, 1], beta))
    };
    // Statistics of another type.
    let draft = broadcast(of_types::<bf16, bf16>())
        .with("running_mean", filled::<f32>(&[1, 3, 1], |_| 2.0))
        .with("running_variance", filled::<f32>(&[1, 3, 1], |_| 4.0));
    let output = train("broadcast", &draft, &["--check", "--running-weight", "0.5"]);
    assert_tensor(&output, "dst", &[4, 3, 2], &want());
    assert_tensor(&output, "mean", &[1, 3, 1], &mean());
    let output = train(
        "broadcast-alone",
        &broadcast(of_types::<bf16, bf16>()),
        &["--check"],
    );
    assert_tensor(&output, "variance", &[1, 3, 1], &variance());
    let draft = broadcast(of_types::<bf16, bf16>())
        .with("mean", filled::<f32>(&[1, 3, 1], |c| c as f64))
        .with("variance", filled::<f32>(&[1, 3, 1], |c| 0.5 + c as f64));
    let output = infer("broadcast-infer", &draft, &["--check"]);
    let want = normalized(&[0.0, 1.0, 2.0], &[0.5, 1.5, 2.5], gamma, beta);
    assert_tensor(&output, "dst", &[4, 3, 2], &want);
}

/// The gradient accepts what the forward pass writes.
#[test]
fn the_gradient_takes_what_was_written() {
    let draft = with_running::<f32>(of_types::<bf16, bf16>());
    let output = train(
        "train",
        &draft,
        &[&NCX[..], &["--running-weight", "0.1"]].concat(),
    );
    let written = |name| {
        let (_, values) = read(&output, name).unwrap();
        filled::<f32>(&[3], |c| values[c])
    };
    let gradient = of_types::<bf16, bf16>()
        .with("diff_dst", filled::<bf16>(&[4, 3, 2], |i| src(i + 5)))
        .with("mean", written("mean"))
        .with("variance", written("variance"));
    let (output, result) = run_by(BATCH_NORM, "gradient", &gradient, &NCX);
    assert_success(&result);
    assert_eq!(read(&output, "diff_gamma").unwrap().0, Dtype::BF16);
}

#[test]
fn empty_batches() {
    let draft = with_running::<f32>(good()).with("src", filled::<f32>(&[0, 3, 2], src));
    let output = train(
        "train",
        &draft,
        &[&NCX[..], &["--running-weight", "0.5"]].concat(),
    );
    assert!(values(&output, "dst").is_empty());
    assert_eq!(values(&output, "mean"), [0.0; 3]);
    assert_eq!(values(&output, "running_mean"), [2.0; 3]);
    let draft = with_statistics::<f32>(good()).with("src", filled::<f32>(&[0, 3, 2], src));
    assert!(values(&infer("infer", &draft, &NCX), "dst").is_empty());
}

#[test]
fn no_channels() {
    let params = ["gamma", "beta", "running_mean", "running_variance"];
    let none = |draft: Draft, names: &[&'static str]| {
        let draft = draft.with("src", filled::<f32>(&[4, 0, 2], src));
        names.iter().fold(draft, |draft, &name| {
            draft.with(name, filled::<f32>(&[0], src))
        })
    };
    let flags = ["--running-weight", "0.5", "--running-variance", "unbiased"];
    let draft = none(good(), &params);
    let output = train("train", &draft, &[&NCX[..], &flags].concat());
    for name in ["dst", "mean", "running_variance"] {
        assert!(values(&output, name).is_empty(), "{name}");
    }
    let draft = none(good(), &["gamma", "beta", "mean", "variance"]);
    assert!(values(&infer("infer", &draft, &NCX), "dst").is_empty());
}

#[test]
fn says_what_it_assumes() {
    let alone = || good().without("gamma").without("beta");
    let format = "data_format: not given, so NXC, channels last; no parameter tells";
    let weight = "--running-weight: ignored, as there are no running statistics";
    let op = "metadata op: expected batch_norm_forward, got batch_norm_backward";
    for (name, draft, flags, warning) in [
        ("format", alone(), &[][..], format),
        ("told", alone(), &["--data-format", "NXC"], ""),
        (
            "rank-2",
            alone().with("src", filled::<f32>(&[8, 3], src)),
            &[],
            "",
        ),
        (
            "weight",
            good(),
            &["--data-format", "NCX", "--running-weight", "0.5"],
            weight,
        ),
        (
            "op",
            alone().attribute("op", "batch_norm_backward"),
            &NCX,
            op,
        ),
        (
            "own",
            alone().attribute("op", "batch_norm_forward"),
            &NCX,
            "",
        ),
    ] {
        let (_, result) = run_by(FORWARD, name, &draft, flags);
        assert_success(&result);
        let message = stderr(&result);
        let about = ["data_format:", "--running-weight:", "metadata op:"];
        assert!(message.contains(warning), "{name}: {message}");
        let warned = about.iter().any(|start| message.contains(start));
        assert_eq!(warned, !warning.is_empty(), "{name}: {message}");
    }
}

// ---- refusals

fn refuse(name: &str, draft: &Draft, flags: &[&str], fragments: &[&str]) {
    let flags = [&["--data-format", "NCX"], flags].concat();
    refuse_by(FORWARD, name, &draft.bytes(), &flags, fragments);
}

fn refuse_inference(name: &str, draft: &Draft, fragments: &[&str]) {
    refuse_by(
        INFERENCE,
        name,
        &draft.bytes(),
        &["--data-format", "NCX"],
        fragments,
    );
}

#[test]
fn refuses_running_statistics() {
    let weighted = || with_running::<f32>(good()).attribute("running_weight", "0.1");
    for (name, other) in [
        ("running_mean", "running_variance"),
        ("running_variance", "running_mean"),
    ] {
        let beside = format!(" beside {other}");
        let fragments = [&format!("error: {name}: expected"), &*beside, "got none"];
        refuse(name, &weighted().without(name), &[], &fragments);
        let draft = weighted().with(name, filled::<f32>(&[2], |_| 1.0));
        let expected = format!("{name}: expected shape [3] (one per channel of src), got [2]");
        refuse(name, &draft, &[], &[&expected]);
    }
    let fragments = [
        "running_weight: expected --running-weight or metadata",
        "neither",
    ];
    refuse("no-weight", &with_running::<f32>(good()), &[], &fragments);
    for weight in ["-0.5", "1.5", "nan", "inf", "much"] {
        let given = format!("'{weight}' for '--running-weight");
        let fragments = [&*given, "expected a number from 0 to 1"];
        refuse_flags(FORWARD, &["--running-weight", weight], &fragments);
        let draft = weighted().attribute("running_weight", weight);
        let fragments = [
            "metadata running_weight: expected a number from 0 to 1",
            weight,
        ];
        refuse("weight-metadata", &draft, &[], &fragments);
    }
    let draft = weighted().attribute("running_variance", "true");
    let fragments = ["metadata running_variance: expected biased or unbiased"];
    refuse("variance", &draft, &[], &fragments);
    let one = weighted().with("src", filled::<f32>(&[1, 3, 1], src));
    let fragments = [
        "running variance: expected channels of two elements at least",
        "of one",
    ];
    refuse("one", &one, &["--running-variance", "unbiased"], &fragments);
    train("one-biased", &one, &NCX);
}

#[test]
fn refuses_tensors() {
    for name in ["src", "mean", "variance"] {
        let draft = with_statistics::<f32>(good()).without(name);
        refuse_inference(
            name,
            &draft,
            &[&format!("error: {name}: expected"), "got none"],
        );
    }
    refuse(
        "src",
        &good().without("src"),
        &[],
        &["error: src: expected", "got none"],
    );
    for name in ["gamma", "beta"] {
        let draft = good().with(name, filled::<f32>(&[2], gamma));
        let expected = format!("{name}: expected shape [3] (one per channel of src), got [2]");
        refuse(name, &draft, &[], &[&expected]);
        let draft = good().with(name, filled::<f16>(&[3], gamma));
        refuse(
            name,
            &draft,
            &[],
            &[&format!("{name}: expected element type"), "got f16"],
        );
    }
    let draft = with_running::<f16>(of_types::<f16, f32>()).attribute("running_weight", "0");
    let fragments = ["gamma: expected element type f16, got f32"];
    refuse("16-bit-running", &draft, &[], &fragments);
    let draft = with_statistics::<f32>(good()).with("variance", filled::<f32>(&[3], |_| -0.5));
    refuse_inference("variance", &draft, &["variance: expected", "channel 0"]);
    let alone = good().without("gamma").without("beta");
    let flags = ["--data-format", "broadcast"];
    let fragments = ["data_format: expected NCX or NXC where there is no parameter"];
    refuse_by(FORWARD, "broadcast", &alone.bytes(), &flags, &fragments);
    for rank in [0, 1, 9] {
        let draft = good().with("src", filled::<f32>(&vec![1; rank], src));
        let bytes = draft.without("gamma").without("beta").bytes();
        let fragments = ["src: expected a rank from 2 to 8", &format!("rank {rank}")];
        refuse_by(FORWARD, "rank", &bytes, &[], &fragments);
    }
    let draft = good().no_attribute("epsilon");
    refuse("epsilon", &draft, &[], &["epsilon: expected --epsilon"]);
}

#[test]
fn usage_errors_exit_with_2() {
    for (operator, more) in [
        (FORWARD, &["--running-weight", "much"][..]),
        (FORWARD, &["--running-variance", "sample"]),
        (FORWARD, &["--statistics", "batch"]),
        (FORWARD, &["--param-grads", "both"]),
        (INFERENCE, &["--running-weight", "0.1"]),
        (INFERENCE, &["--data-format", "NHWC"]),
    ] {
        let result = run(&[&[operator, "in", "-o", "out"], more].concat());
        assert_eq!(result.status.code(), Some(2), "{more:?}");
        assert_eq!(stdout(&result), "", "{more:?}");
    }
    let help = stdout(&run(&[FORWARD, "--help"]));
    for word in [
        "running_mean",
        "--running-weight",
        "--running-variance",
        "--data-format",
    ] {
        assert!(help.contains(word), "{word}");
    }
}
