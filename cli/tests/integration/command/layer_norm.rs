//! `wgpu-norm layer-norm-backward`.

use super::*;

const LAYER_NORM: &str = "layer-norm-backward";

/// Three rows of two elements, where x̂ is 0, variance 1 and gamma 2.
fn good() -> Draft {
    good_of::<f32, f32>()
}

fn good_of<T: Element, P: Element>() -> Draft {
    let tensors = HashMap::from([
        ("src", tensor(&[3, 2], &[T::from_f64(0.0); 6])),
        ("diff_dst", counting::<T>(&[3, 2])),
        ("mean", tensor(&[3], &[P::from_f64(0.0); 3])),
        ("variance", tensor(&[3], &[P::from_f64(1.0); 3])),
        ("gamma", tensor(&[2], &[P::from_f64(2.0); 2])),
        ("beta", tensor(&[2], &[P::from_f64(9.0); 2])),
    ]);
    let metadata = HashMap::new();
    Draft { tensors, metadata }
}

/// The result for `good`: only mean(d) is subtracted from d = 2 · diff_dst.
fn centred(epsilon: f64) -> Vec<f64> {
    let value = 0.125 / (1.0 + epsilon).sqrt();
    [-value, value].repeat(3)
}

fn backward(input: &Path, output: &Path, arguments: &[&str]) -> Output {
    operate(LAYER_NORM, input, output, arguments)
}

fn diff_src(name: &str, draft: &Draft, arguments: &[&str]) -> Vec<f64> {
    diff_src_by(LAYER_NORM, &format!("ln-{name}"), draft, arguments)
}

fn refuse(name: &str, draft: &Draft, arguments: &[&str], fragments: &[&str]) {
    let name = format!("ln-{name}");
    refuse_by(LAYER_NORM, &name, &draft.bytes(), arguments, fragments);
}

/// src of shape [2, 3, 4] with parameters of these shapes.
fn of_rank_3(statistics: &[usize], affine: &[usize]) -> Draft {
    good()
        .with("src", counting::<f32>(&[2, 3, 4]))
        .with("diff_dst", counting::<f32>(&[2, 3, 4]))
        .with("mean", counting::<f32>(statistics))
        .with("variance", counting::<f32>(statistics))
        .with("gamma", counting::<f32>(affine))
        .with("beta", counting::<f32>(affine))
}

// ---- successes

#[test]
fn every_vector() {
    let vectors = vectors("ln_", "");
    assert!(vectors.len() >= 5, "{vectors:?}");
    for name in &vectors {
        check_vector_by(LAYER_NORM, name, &[]);
    }
}

#[test]
fn a_frozen_layer_has_no_parameter_gradients() {
    let folder = folder("ln-param-grads");
    let (input, output) = (folder.join("in"), folder.join("out"));
    std::fs::write(&input, good().bytes()).unwrap();
    let result = backward(&input, &output, &["--param-grads", "false", "--check"]);
    assert_success(&result);
    assert_eq!(stdout(&result).lines().count(), 2);
    assert_close(&values(&output, "diff_src"), &centred(1e-5));
    assert!(read(&output, "diff_gamma").is_none() && read(&output, "diff_beta").is_none());
}

#[test]
fn every_pair_of_element_types() {
    fn pair<T: Element, P: Element>(supported: bool) {
        let what = format!("{} {}", T::DTYPE, P::DTYPE);
        let folder = folder(&format!("ln-{what}"));
        let (input, output) = (folder.join("in"), folder.join("out"));
        std::fs::write(&input, good_of::<T, P>().bytes()).unwrap();
        let result = backward(&input, &output, &["--check"]);
        if !supported {
            return assert_failure(&result, &["f64 tensors", "SHADER_F64"], &what);
        }
        assert_success(&result);
        assert_eq!(stdout(&result).lines().count(), 4, "{what}");
        let dtype = |path, name| read(path, name).unwrap().0;
        assert_eq!(dtype(&output, "diff_src"), dtype(&input, "src"));
        for tensor in ["diff_gamma", "diff_beta"] {
            assert_eq!(dtype(&output, tensor), dtype(&input, "gamma"));
        }
        assert_eq!(values(&output, "diff_gamma"), [0.0, 0.0], "{what}");
        assert_eq!(values(&output, "diff_beta"), [0.75, 1.125], "{what}");
    }
    let gpu = pollster::block_on(GpuContext::new()).expect("an adapter");
    pair::<f32, f32>(true);
    pair::<f16, f32>(true);
    pair::<f16, f16>(true);
    pair::<bf16, f32>(true);
    pair::<bf16, bf16>(true);
    pair::<f64, f64>(gpu.supports(DType::F64));
}

#[test]
fn epsilon_by_flag_before_metadata_before_default() {
    assert_close(&diff_src("epsilon-default", &good(), &[]), &centred(1e-5));
    let draft = good().with("variance", tensor(&[3], &[0.0_f32; 3]));
    let by_default = diff_src("epsilon-default-alone", &draft, &[]);
    let want = 0.125 / 1e-5_f64.sqrt();
    assert!((by_default[1] / want - 1.0).abs() < 1e-5, "{by_default:?}");

    let draft = good().attribute("epsilon", "1");
    assert_close(&diff_src("epsilon-metadata", &draft, &[]), &centred(1.0));
    let by_flag = diff_src("epsilon-flag", &draft, &["--epsilon", "3"]);
    assert_close(&by_flag, &centred(3.0));
}

#[test]
fn begin_norm_axis_by_flag_before_metadata_before_default() {
    let from_last = || of_rank_3(&[2, 3], &[4]);
    let from_1 = || of_rank_3(&[2], &[3, 4]);
    let from_0 = || of_rank_3(&[], &[2, 3, 4]);
    let flags = |axis| ["--check", "--begin-norm-axis", axis];

    diff_src("axis-default", &from_last(), &["--check"]);
    let draft = from_1().attribute("begin_norm_axis", "1");
    let by_metadata = diff_src("axis-metadata", &draft, &["--check"]);
    let draft = from_1().attribute("begin_norm_axis", "-2");
    let by_negative = diff_src("axis-metadata-negative", &draft, &["--check"]);
    assert_eq!(by_metadata, by_negative);
    for axis in ["1", "-2"] {
        let against_metadata = from_1().attribute("begin_norm_axis", "-1");
        let by_flag = diff_src("axis-flag", &against_metadata, &flags(axis));
        assert_eq!(by_metadata, by_flag);
    }
    for axis in ["0", "-3"] {
        diff_src("axis-all", &from_0(), &flags(axis));
    }
    diff_src(
        "axis-equals",
        &from_0(),
        &["--check", "--begin-norm-axis=-3"],
    );
    let fragments = ["mean: expected", "[2, 3] or [6] ", "got [2]"];
    refuse("axis-default-refused", &from_1(), &[], &fragments);
    let draft = from_last().attribute("begin_norm_axis", "-1");
    let fragments = ["mean: expected shape [2] ", "got [2, 3]"];
    refuse("axis-flag-refused", &draft, &flags("1"), &fragments);
}

#[test]
fn parameters_of_one_axis() {
    let whole = of_rank_3(&[2, 3], &[4]);
    let want = diff_src("whole", &whole, &["--check"]);
    let flat = of_rank_3(&[6], &[4]);
    assert_eq!(diff_src("flat-statistics", &flat, &["--check"]), want);
    // As frameworks provide them.
    let kept = of_rank_3(&[2, 3, 1], &[4]);
    assert_eq!(diff_src("kept-axes", &kept, &["--check"]), want);

    let folder = folder("ln-flat");
    let (input, output) = (folder.join("in"), folder.join("out"));
    for (affine, axis) in [(&[3, 4][..], "1"), (&[12], "1"), (&[24], "0")] {
        let statistics = if axis == "1" { 2 } else { 1 };
        std::fs::write(&input, of_rank_3(&[statistics], affine).bytes()).unwrap();
        let arguments = ["--check", "--begin-norm-axis", axis];
        assert_success(&backward(&input, &output, &arguments));
        for tensor in ["diff_gamma", "diff_beta"] {
            let (_, shape, _) = read_shaped(&output, tensor).unwrap();
            assert_eq!(shape, affine, "{tensor}");
        }
    }
}

#[test]
fn use_affine_by_flag_before_metadata_before_default() {
    let outputs = |name: &str, draft: Draft, arguments: &[&str]| {
        let folder = folder(&format!("ln-affine-{name}"));
        let (input, output) = (folder.join("in"), folder.join("out"));
        std::fs::write(&input, draft.bytes()).unwrap();
        let arguments = [&["--check"], arguments].concat();
        let result = backward(&input, &output, &arguments);
        assert_success(&result);
        let affine = ["diff_gamma", "diff_beta"].map(|t| read(&output, t).is_some());
        assert_eq!(affine[0], affine[1], "{name}");
        let checks = stdout(&result).lines().count() - 1;
        assert_eq!(checks, if affine[0] { 3 } else { 1 }, "{name}");
        (affine[0], values(&output, "diff_src"), stderr(&result))
    };
    let affine = centred(1e-5);
    let plain: Vec<f64> = affine.iter().map(|value| value / 2.0).collect();
    let metadata = |value| good().attribute("use_affine", value);
    let cases = [
        ("default", good(), &[][..], true),
        ("metadata-true", metadata("true"), &[], true),
        ("metadata-case", metadata("False"), &[], false),
        ("metadata-false", metadata("false"), &[], false),
        ("flag-true", metadata("false"), &["true"], true),
        ("flag-false", metadata("true"), &["false"], false),
    ];
    for (name, draft, flag, want) in cases {
        let flag = flag.iter().flat_map(|value| ["--use-affine", value]);
        let (got, diff_src, warnings) = outputs(name, draft, &flag.collect::<Vec<_>>());
        assert_eq!(got, want, "{name}");
        assert_close(&diff_src, if want { &affine } else { &plain });
        for tensor in ["gamma", "beta"] {
            let warning = format!("warning: {tensor}: ignored, as use_affine is false");
            assert_eq!(warnings.contains(&warning), !want, "{name}: {warnings}");
        }
    }

    // Ignored tensors may be anything, or missing, in which case there is no warning.
    let draft = metadata("false")
        .with("gamma", counting::<f16>(&[7]))
        .without("beta");
    let (_, _, warnings) = outputs("strange", draft, &[]);
    assert!(warnings.contains("gamma: ignored"), "{warnings}");
    assert!(!warnings.contains("beta: ignored"), "{warnings}");
    let draft = metadata("false").without("gamma").without("beta");
    let (_, _, warnings) = outputs("absent", draft, &[]);
    assert!(!warnings.contains("ignored"), "{warnings}");
}

#[test]
fn empty_tensors_have_zeros() {
    let folder = folder("ln-empty");
    let (input, output) = (folder.join("in"), folder.join("out"));
    for (rows, columns) in [(0, 2), (2, 0)] {
        let draft = good()
            .with("src", counting::<f32>(&[rows, columns]))
            .with("diff_dst", counting::<f32>(&[rows, columns]))
            .with("mean", counting::<f32>(&[rows]))
            .with("variance", counting::<f32>(&[rows]))
            .with("gamma", counting::<f32>(&[columns]))
            .with("beta", counting::<f32>(&[columns]));
        std::fs::write(&input, draft.bytes()).unwrap();
        assert_success(&backward(&input, &output, &["--check"]));
        assert!(values(&output, "diff_src").is_empty());
        assert_eq!(values(&output, "diff_gamma"), vec![0.0; columns]);
        assert_eq!(values(&output, "diff_beta"), vec![0.0; columns]);
    }
}

#[test]
fn the_output_may_be_the_input() {
    let folder = folder("ln-in-place");
    let file = folder.join("file");
    std::fs::write(&file, good().bytes()).unwrap();
    assert_success(&backward(&file, &file, &[]));
    assert_close(&values(&file, "diff_src"), &centred(1e-5));
    assert_eq!(names(&folder), ["file"]);
}

// ---- refusals

#[test]
fn refuses_missing_tensors() {
    for name in ["src", "diff_dst", "mean", "variance", "gamma"] {
        let fragments = [&format!("error: {name}: expected"), "got none"];
        refuse(name, &good().without("beta").without(name), &[], &fragments);
    }
    let plain = good().without("gamma").without("beta");
    let draft = plain.attribute("use_affine", "false");
    let arguments = ["--use-affine", "true"];
    let fragments = ["error: gamma: ", "use_affine is true"];
    refuse("gamma-flag", &draft, &arguments, &fragments);
}

/// Beta alone has a gradient, of its own type and shape; gamma is 1.
#[test]
fn beta_without_gamma() {
    let folder = folder("ln-beta-alone");
    let (input, output) = (folder.join("in"), folder.join("out"));
    let draft = good()
        .without("gamma")
        .with("src", counting::<bf16>(&[3, 2]));
    let draft = draft.with("diff_dst", counting::<bf16>(&[3, 2]));
    let draft = draft.with("beta", tensor(&[2], &[bf16::ONE; 2]));
    std::fs::write(&input, draft.bytes()).unwrap();
    assert_success(&backward(&input, &output, &["--check"]));
    assert_eq!(values(&output, "diff_beta"), [0.75, 1.125]);
    assert_eq!(read(&output, "diff_beta").unwrap().0, Dtype::BF16);
    let refused = draft.with("beta", tensor(&[3], &[bf16::ONE; 3]));
    refuse("beta-alone", &refused, &[], &["beta: expected shape [2]"]);
}

/// No gradient depends on beta: beside gamma it may be anything, or missing, without a message.
#[test]
fn beta_is_not_read() {
    let folder = folder("ln-beta");
    let (input, output) = (folder.join("in"), folder.join("out"));
    let strange = Tensor {
        dtype: Dtype::I64,
        shape: vec![7],
        bytes: vec![0; 56],
    };
    for draft in [good(), good().without("beta"), good().with("beta", strange)] {
        std::fs::write(&input, draft.bytes()).unwrap();
        let result = backward(&input, &output, &["--check"]);
        assert_success(&result);
        assert!(!stderr(&result).contains("beta"), "{}", stderr(&result));
        assert_close(&values(&output, "diff_src"), &centred(1e-5));
        assert_eq!(values(&output, "diff_beta"), [0.75, 1.125]);
    }
}

#[test]
fn refuses_element_types() {
    let draft = good().with("diff_dst", counting::<f16>(&[3, 2]));
    refuse("diff-dst", &draft, &[], &["diff_dst: expected", "got f16"]);
    let draft = good().with("mean", counting::<f64>(&[3]));
    refuse("mean", &draft, &[], &["mean: expected", "f32, got f64"]);
    let integers = Tensor {
        dtype: Dtype::I64,
        shape: vec![2],
        bytes: vec![0; 16],
    };
    let draft = good().with("gamma", integers);
    refuse("i64", &draft, &[], &["gamma: expected", "got i64"]);
    // bf16 statistics or parameters are accepted with bf16 data, but not two types of them.
    let draft = good_of::<bf16, f32>().with("variance", counting::<bf16>(&[3]));
    let fragments = ["variance: expected element type f32", "got bf16"];
    refuse("variance", &draft, &[], &fragments);
}

#[test]
fn refuses_shapes() {
    let draft = good().with("diff_dst", counting::<f32>(&[2, 3]));
    let fragments = ["diff_dst: expected", "[3, 2] as src", "got [2, 3]"];
    refuse("diff-dst", &draft, &[], &fragments);
    for (name, good_size, bad_shapes) in [
        ("mean", 3, [vec![2], vec![3, 1, 1]]),
        ("variance", 3, [vec![2], vec![1, 3]]),
        ("gamma", 2, [vec![3], vec![1, 2]]),
    ] {
        for shape in bad_shapes {
            let draft = good().with(name, counting::<f32>(&shape));
            let expected = format!("{name}: expected shape [{good_size}] (src's axes");
            let got = format!("got {shape:?}");
            refuse(name, &draft, &[], &[&expected, &got]);
        }
    }
    let draft = of_rank_3(&[2], &[3, 4]).with("gamma", counting::<f32>(&[4, 3]));
    let fragments = ["gamma: expected shape [3, 4] or [12] ", "got [4, 3]"];
    refuse("order", &draft, &["--begin-norm-axis", "1"], &fragments);
    let draft = of_rank_3(&[2], &[24]).attribute("begin_norm_axis", "0");
    let fragments = ["mean: expected shape [] or [1] ", "got [2]"];
    refuse("scalar", &draft, &[], &fragments);
    for shape in [vec![], vec![1; 9]] {
        let draft = good()
            .with("src", counting::<f32>(&shape))
            .with("diff_dst", counting::<f32>(&shape))
            .with("mean", counting::<f32>(&[1]))
            .with("variance", counting::<f32>(&[1]))
            .with("gamma", counting::<f32>(&[1]))
            .with("beta", counting::<f32>(&[1]));
        let got = format!("got rank {}", shape.len());
        let fragments = ["src: expected a rank from 1 to 8", &got];
        refuse("rank", &draft, &[], &fragments);
    }
}

#[test]
fn refuses_sizes_that_overflow_beside_a_zero() {
    let huge = u64::MAX;
    let entry = |shape: &str, size: u64| {
        format!(r#"{{"dtype":"F32","shape":{shape},"data_offsets":[0,{size}]}}"#)
    };
    let (all, rows) = (format!("[0,{huge},2]"), format!("[0,{huge}]"));
    let header = format!(
        r#"{{"src":{},"diff_dst":{},"mean":{},"variance":{},"gamma":{},"beta":{}}}"#,
        entry(&all, 0),
        entry(&all, 0),
        entry(&rows, 0),
        entry(&rows, 0),
        entry("[2]", 8),
        r#"{"dtype":"F32","shape":[2],"data_offsets":[8,16]}"#
    );
    let fragments = ["src: expected a size of at most", "[0, "];
    let bytes = raw(&header, 16);
    refuse_by(LAYER_NORM, "ln-overflow", &bytes, &[], &fragments);
}

#[test]
fn refuses_attributes() {
    for axis in ["2", "-3", "9223372036854775807", "-9223372036854775808"] {
        let fragments = [
            "begin_norm_axis: expected an axis from -2 to 1",
            &format!("got {axis}"),
        ];
        refuse(
            "axis-flag",
            &good(),
            &["--begin-norm-axis", axis],
            &fragments,
        );
        let draft = good().attribute("begin_norm_axis", axis);
        refuse("axis-range", &draft, &[], &fragments);
    }
    for axis in ["", "last", "1.0", "99999999999999999999"] {
        let draft = good().attribute("begin_norm_axis", axis);
        let got = format!("got {axis:?}");
        let fragments = ["metadata begin_norm_axis: expected an integer", &got];
        refuse("axis-metadata", &draft, &[], &fragments);
    }
    for affine in ["", "1", "yes"] {
        let draft = good().attribute("use_affine", affine);
        let fragments = ["metadata use_affine: expected true or false"];
        refuse("affine", &draft, &[], &fragments);
    }
    let draft = good().attribute("epsilon", "small");
    let fragments = ["metadata epsilon: expected a finite", "\"small\""];
    refuse("epsilon", &draft, &[], &fragments);
    for epsilon in ["0", "-1", "nan", "inf", "1e-60"] {
        let fragments = ["epsilon: expected a finite"];
        let draft = good().attribute("epsilon", epsilon);
        refuse("epsilon-range", &draft, &[], &fragments);
    }
    let draft = good().with("variance", tensor(&[3], &[1.0_f32, 1.0, -1.0]));
    let fragments = ["variance: expected", "-1.0 + 1.0"];
    refuse("variance", &draft, &["--epsilon", "1"], &fragments);
    let draft = good().with("variance", tensor(&[3], &[1.0, f32::INFINITY, 1.0]));
    let fragments = ["variance: expected", "inf + ", "row 1"];
    refuse("infinite-variance", &draft, &[], &fragments);
}

/// Sums that exceed f32's range while the float64 reference stays in range.
#[test]
fn a_failed_check_writes_nothing() {
    let draft = good()
        .with("diff_dst", tensor(&[3, 2], &[3e38_f32; 6]))
        .with("gamma", tensor(&[2], &[1.0_f32; 2]))
        .with("variance", tensor(&[3], &[1e20_f32; 3]));
    let folder = folder("ln-check");
    let (input, output) = (folder.join("in"), folder.join("out"));
    std::fs::write(&input, draft.bytes()).unwrap();
    let result = backward(&input, &output, &["--check"]);
    let message = stderr(&result);
    assert_eq!(result.status.code(), Some(1), "{message}");
    assert!(message.contains("nothing was written"), "{message}");
    assert_eq!(names(&folder), ["in"]);
    assert_success(&backward(&input, &output, &[]));
}

#[test]
fn usage_errors_exit_with_2() {
    let with = |more: &[&'static str]| [&[LAYER_NORM, "in", "-o", "out"], more].concat();
    let cases = [
        vec![LAYER_NORM],
        vec![LAYER_NORM, "in"],
        with(&["--begin-norm-axis", "last"]),
        with(&["--begin-norm-axis", "-x"]),
        with(&["--begin-norm-axis", "1.5"]),
        with(&["--begin-norm-axis", "99999999999999999999"]),
        with(&["--begin-norm-axis"]),
        with(&["--use-affine"]),
        with(&["--use-affine", "yes"]),
        with(&["--epsilon", "small"]),
        with(&["--data-format", "NCX"]),
    ];
    for arguments in cases {
        let result = run(&arguments);
        assert_eq!(result.status.code(), Some(2), "{arguments:?}");
        assert_eq!(stdout(&result), "", "{arguments:?}");
        assert!(!result.stderr.is_empty());
    }
    let help = run(&[LAYER_NORM, "--help"]);
    assert_success(&help);
    for word in ["--begin-norm-axis", "--use-affine", "--epsilon", "--check"] {
        assert!(stdout(&help).contains(word), "{word}");
    }
}
