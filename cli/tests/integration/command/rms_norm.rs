//! `wgpu-norm rms-norm-backward`, and RMS norm's cases in `bench`.

use super::*;

const RMS_NORM: &str = "rms-norm-backward";

/// Three rows of two elements with a given mean square of 3 and epsilon 1, so that r is 1/2; gamma is 2.
fn good() -> Draft {
    good_of::<f32, f32>()
}

fn good_of<T: Element, P: Element>() -> Draft {
    let row = [T::from_f64(-1.0), T::from_f64(2.0)];
    let tensors = HashMap::from([
        ("src", tensor(&[3, 2], &row.repeat(3))),
        ("diff_dst", counting::<T>(&[3, 2])),
        ("mean_square", tensor(&[3], &[P::from_f64(3.0); 3])),
        ("gamma", tensor(&[2], &[P::from_f64(2.0); 2])),
    ]);
    let metadata = HashMap::new();
    Draft { tensors, metadata }.attribute("epsilon", "1")
}

/// diff_src of `good`, worked out by hand: with d = gamma · diff_dst = (a, b) and x̂ = (-1/2, 1), the mean of d·x̂ is
/// (b - a/2)/2.
fn by_hand(gamma: f64) -> Vec<f64> {
    let rows = [(0.0, 0.125), (0.25, 0.375), (0.5, 0.625)];
    let diff_src = rows.iter().flat_map(|&(first, second)| {
        let (a, b) = (gamma * first, gamma * second);
        let mean = (b - a / 2.0) / 2.0;
        [(a + mean / 2.0) / 2.0, (b - mean) / 2.0]
    });
    diff_src.collect()
}

fn backward(input: &Path, output: &Path, arguments: &[&str]) -> Output {
    operate(RMS_NORM, input, output, arguments)
}

fn diff_src(name: &str, draft: &Draft, arguments: &[&str]) -> Vec<f64> {
    diff_src_by(RMS_NORM, &format!("rms-{name}"), draft, arguments)
}

fn refuse(name: &str, draft: &Draft, arguments: &[&str], fragments: &[&str]) {
    let name = format!("rms-{name}");
    refuse_by(RMS_NORM, &name, &draft.bytes(), arguments, fragments);
}

/// src of shape [2, 3, 4] with parameters of these shapes.
fn of_rank_3(mean_square: &[usize], gamma: &[usize]) -> Draft {
    good()
        .with("src", counting::<f32>(&[2, 3, 4]))
        .with("diff_dst", counting::<f32>(&[2, 3, 4]))
        .with("mean_square", counting::<f32>(mean_square))
        .with("gamma", counting::<f32>(gamma))
}

// ---- successes

#[test]
fn every_pair_of_element_types() {
    fn pair<T: Element, P: Element>(supported: bool) {
        let what = format!("{} {}", T::DTYPE, P::DTYPE);
        let folder = folder(&format!("rms-{what}"));
        let (input, output) = (folder.join("in"), folder.join("out"));
        std::fs::write(&input, good_of::<T, P>().bytes()).unwrap();
        let result = backward(&input, &output, &["--check"]);
        if !supported {
            return assert_failure(&result, &["f64 tensors", "SHADER_F64"], &what);
        }
        assert_success(&result);
        assert_eq!(stdout(&result).lines().count(), 3, "{what}");
        let dtype = |path, name| read(path, name).unwrap().0;
        assert_eq!(dtype(&output, "diff_src"), dtype(&input, "src"));
        assert_eq!(dtype(&output, "diff_gamma"), dtype(&input, "gamma"));
        let got = values(&output, "diff_src");
        let tolerance = if T::DTYPE.size() == 2 { 4e-3 } else { 1e-6 };
        for (got, want) in got.iter().zip(by_hand(2.0)) {
            assert!((got - want).abs() < tolerance, "{what}: {got} for {want}");
        }
        // Σ diff_dst is 0.75 and 1.125.
        assert_close(&values(&output, "diff_gamma"), &[-0.375, 1.125]);
        assert!(read(&output, "diff_beta").is_none(), "{what}");
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
fn gamma_may_be_left_out() {
    let folder = folder("rms-no-gamma");
    let (input, output) = (folder.join("in"), folder.join("out"));
    std::fs::write(&input, good().without("gamma").bytes()).unwrap();
    let result = backward(&input, &output, &["--check"]);
    assert_success(&result);
    assert_eq!(stdout(&result).lines().count(), 2);
    assert_close(&values(&output, "diff_src"), &by_hand(1.0));
    assert!(read(&output, "diff_gamma").is_none());
}

#[test]
fn a_frozen_layer_has_no_parameter_gradients() {
    let folder = folder("rms-param-grads");
    let (input, output) = (folder.join("in"), folder.join("out"));
    std::fs::write(&input, good().bytes()).unwrap();
    let result = backward(&input, &output, &["--param-grads", "false", "--check"]);
    assert_success(&result);
    assert_eq!(stdout(&result).lines().count(), 2);
    assert_close(&values(&output, "diff_src"), &by_hand(2.0));
    assert!(read(&output, "diff_gamma").is_none());
}

#[test]
fn epsilon_by_flag_before_metadata_before_default() {
    // With src of zeros, diff_src is gamma · r · diff_dst.
    let zeros = || good().with("src", tensor(&[3, 2], &[0.0_f32; 6]));
    let last = |name: &str, draft: &Draft, arguments: &[&str]| {
        diff_src(name, draft, arguments).last().copied().unwrap()
    };
    let close = |got: f64, want: f64| assert!((got / want - 1.0).abs() < 1e-5, "{got}, {want}");
    close(last("epsilon-metadata", &zeros(), &[]), 0.625);
    close(last("epsilon-flag", &zeros(), &["--epsilon", "22"]), 0.25);
    let draft = zeros()
        .no_attribute("epsilon")
        .with("mean_square", tensor(&[3], &[0.0_f32; 3]));
    close(last("epsilon-default", &draft, &[]), 1.25 / 1e-5_f64.sqrt());
}

#[test]
fn begin_norm_axis_by_flag_before_metadata_before_default() {
    let from_last = || of_rank_3(&[2, 3], &[4]);
    let from_1 = || of_rank_3(&[2], &[3, 4]);
    let flags = |axis| ["--check", "--begin-norm-axis", axis];

    diff_src("axis-default", &from_last(), &["--check"]);
    let draft = from_1().attribute("begin_norm_axis", "1");
    let by_metadata = diff_src("axis-metadata", &draft, &["--check"]);
    for axis in ["1", "-2"] {
        let against_metadata = from_1().attribute("begin_norm_axis", "-1");
        let by_flag = diff_src("axis-flag", &against_metadata, &flags(axis));
        assert_eq!(by_metadata, by_flag);
    }
    diff_src("axis-all", &of_rank_3(&[], &[2, 3, 4]), &flags("0"));
    let fragments = ["mean_square: expected", "[2, 3] or [6] ", "got [2]"];
    refuse("axis-default-refused", &from_1(), &[], &fragments);
}

#[test]
fn parameters_of_one_axis() {
    let whole = of_rank_3(&[2, 3], &[4]);
    let want = diff_src("whole", &whole, &["--check"]);
    for shape in [&[6][..], &[2, 3, 1]] {
        let draft = of_rank_3(shape, &[4]);
        assert_eq!(diff_src("other", &draft, &["--check"]), want, "{shape:?}");
    }
    let folder = folder("rms-flat");
    let (input, output) = (folder.join("in"), folder.join("out"));
    for gamma in [&[3, 4][..], &[12]] {
        std::fs::write(&input, of_rank_3(&[2], gamma).bytes()).unwrap();
        let arguments = ["--check", "--begin-norm-axis", "1"];
        assert_success(&backward(&input, &output, &arguments));
        let (_, shape, _) = read_shaped(&output, "diff_gamma").unwrap();
        assert_eq!(shape, gamma);
    }
}

#[test]
fn empty_tensors_have_zeros() {
    let folder = folder("rms-empty");
    let (input, output) = (folder.join("in"), folder.join("out"));
    for (rows, columns) in [(0, 2), (2, 0)] {
        let draft = good()
            .with("src", counting::<f32>(&[rows, columns]))
            .with("diff_dst", counting::<f32>(&[rows, columns]))
            .with("mean_square", counting::<f32>(&[rows]))
            .with("gamma", counting::<f32>(&[columns]));
        std::fs::write(&input, draft.bytes()).unwrap();
        assert_success(&backward(&input, &output, &["--check"]));
        assert!(values(&output, "diff_src").is_empty());
        assert_eq!(values(&output, "diff_gamma"), vec![0.0; columns]);
    }
}

#[test]
fn a_file_for_another_operator_is_a_warning() {
    let folder = folder("rms-op");
    let (input, output) = (folder.join("in"), folder.join("out"));
    for (op, warned) in [("rms_norm_backward", false), ("layer_norm_backward", true)] {
        std::fs::write(&input, good().attribute("op", op).bytes()).unwrap();
        let result = backward(&input, &output, &[]);
        assert_success(&result);
        let warning = "metadata op: expected rms_norm_backward, got layer_norm_backward";
        assert_eq!(stderr(&result).contains(warning), warned, "{op}");
    }
}

// ---- refusals

#[test]
fn refuses_missing_tensors() {
    for name in ["src", "diff_dst", "mean_square"] {
        let fragments = [&format!("error: {name}: expected"), "got none"];
        refuse(name, &good().without(name), &[], &fragments);
    }
}

#[test]
fn refuses_element_types() {
    let draft = good().with("diff_dst", counting::<f16>(&[3, 2]));
    refuse("diff-dst", &draft, &[], &["diff_dst: expected", "got f16"]);
    let draft = good().with("mean_square", counting::<f64>(&[3]));
    let fragments = ["mean_square: expected", "f32, got f64"];
    refuse("mean-square", &draft, &[], &fragments);
    let integers = Tensor {
        dtype: Dtype::I64,
        shape: vec![2],
        bytes: vec![0; 16],
    };
    let draft = good().with("gamma", integers);
    refuse("i64", &draft, &[], &["gamma: expected", "got i64"]);
    let draft = good_of::<bf16, bf16>().with("gamma", counting::<f32>(&[2]));
    let fragments = ["gamma: expected element type bf16", "got f32"];
    refuse("gamma", &draft, &[], &fragments);
}

#[test]
fn refuses_shapes() {
    let draft = good().with("diff_dst", counting::<f32>(&[2, 3]));
    let fragments = ["diff_dst: expected", "[3, 2] as src", "got [2, 3]"];
    refuse("diff-dst", &draft, &[], &fragments);
    for (name, good_size, bad_shapes) in [
        ("mean_square", 3, [vec![2], vec![3, 1, 1]]),
        ("gamma", 2, [vec![3], vec![1, 2]]),
    ] {
        for shape in bad_shapes {
            let draft = good().with(name, counting::<f32>(&shape));
            let expected = format!("{name}: expected shape [{good_size}] (src's axes");
            let got = format!("got {shape:?}");
            refuse(name, &draft, &[], &[&expected, &got]);
        }
    }
    for shape in [vec![], vec![1; 9]] {
        let draft = good()
            .with("src", counting::<f32>(&shape))
            .with("diff_dst", counting::<f32>(&shape))
            .with("mean_square", counting::<f32>(&[1]))
            .with("gamma", counting::<f32>(&[1]));
        let got = format!("got rank {}", shape.len());
        let fragments = ["src: expected a rank from 1 to 8", &got];
        refuse("rank", &draft, &[], &fragments);
    }
}

#[test]
fn refuses_attributes() {
    for axis in ["2", "-3", "9223372036854775807", "-9223372036854775808"] {
        let fragments = ["begin_norm_axis: expected an axis from -2 to 1", axis];
        refuse("axis", &good(), &["--begin-norm-axis", axis], &fragments);
    }
    let draft = good().attribute("begin_norm_axis", "last");
    let fragments = ["metadata begin_norm_axis: expected an integer", "\"last\""];
    refuse("axis-metadata", &draft, &[], &fragments);
    let draft = good().attribute("epsilon", "small");
    let fragments = ["metadata epsilon: expected a finite", "\"small\""];
    refuse("epsilon", &draft, &[], &fragments);
    let draft = good().with("mean_square", tensor(&[3], &[1.0_f32, 1.0, -1.0]));
    let fragments = ["mean_square: expected", "-1.0 + 1.0", "row 2"];
    refuse("mean-square", &draft, &[], &fragments);
    let draft = good().with("mean_square", tensor(&[3], &[1.0, f32::INFINITY, 1.0]));
    let fragments = ["mean_square: expected", "inf + ", "row 1"];
    refuse("infinite", &draft, &[], &fragments);
}

#[test]
fn usage_errors_exit_with_2() {
    for more in [
        &["--begin-norm-axis", "1.5"][..],
        &["--epsilon", "small"],
        &["--param-grads", "some"],
        &["--use-affine", "true"],
    ] {
        let result = run(&[&[RMS_NORM, "in", "-o", "out"], more].concat());
        assert_eq!(result.status.code(), Some(2), "{more:?}");
        assert_eq!(stdout(&result), "", "{more:?}");
    }
    let help = run(&[RMS_NORM, "--help"]);
    assert_success(&help);
    for word in ["mean_square", "--begin-norm-axis", "--epsilon", "--check"] {
        assert!(stdout(&help).contains(word), "{word}");
    }
}

// ---- the bench

#[test]
fn the_bench_times_it() {
    let report = folder("rms-bench").join("a.json");
    let file = ["--json", report.to_str().unwrap(), "--rounds", "1"];
    let given = ["--shape", "6x64,5x7x33", "--dtype", "f32,bf16"];
    let small = ["--set", "small"];
    for (cases, want) in [(&given[..], 4), (&small, 2)] {
        let arguments = [&["bench", "--op", "rms-norm"], cases, &file].concat();
        assert_success(&run(&arguments));
        let value: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
        let rows = value["results"].as_array().unwrap();
        assert_eq!(rows.len(), want, "{value}");
        for row in rows {
            assert_eq!(row["op"], "rms-norm");
            assert!(row["data_format"].is_null());
            assert!(row["time_ms"].as_f64().unwrap() > 0.0, "{row}");
            let models = row["models"].as_array().unwrap().iter();
            let times: Vec<_> = models.map(|model| model["times"].as_u64()).collect();
            assert_eq!(times, [Some(5), Some(3)]);
        }
    }
}
