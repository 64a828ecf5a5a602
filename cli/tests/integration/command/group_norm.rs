//! `wgpu-norm group-norm-forward`, `group-norm-inference` and `group-norm-backward`, and those of instance norm.

use super::*;

const FORWARD: &str = "group-norm-forward";
const INFERENCE: &str = "group-norm-inference";
const BACKWARD: &str = "group-norm-backward";

/// Two samples of four channels with two elements, NCX: the groups of two channels are ±2 around their mean.
fn src<T: Element>() -> Tensor {
    let group = |mean: f64| [mean - 2.0, mean + 2.0, mean + 2.0, mean - 2.0];
    let values = [1.0, 3.0, -5.0, 0.0].into_iter().flat_map(group);
    let values: Vec<T> = values.map(T::from_f64).collect();
    tensor(&[2, 4, 2], &values)
}

fn params<P: Element>(shape: &[usize], values: &[f64]) -> Tensor {
    let values: Vec<P> = values.iter().map(|&value| P::from_f64(value)).collect();
    tensor(shape, &values)
}

fn of_types<T: Element, P: Element>() -> Draft {
    let tensors = HashMap::from([
        ("src", src::<T>()),
        ("diff_dst", counting::<T>(&[2, 4, 2])),
        ("mean", params::<P>(&[2, 2], &[1.0, 3.0, -5.0, 0.0])),
        ("variance", params::<P>(&[2, 2], &[4.0; 4])),
        ("gamma", params::<P>(&[4], &[1.0, 2.0, 0.0, -1.0])),
        ("beta", params::<P>(&[4], &[0.0, 1.0, 5.0, 0.0])),
    ]);
    let metadata = HashMap::new();
    // r is 2/5, and x̂ ±4/5.
    let draft = Draft { tensors, metadata }.attribute("epsilon", "2.25");
    draft.attribute("groups", "2")
}

fn good() -> Draft {
    of_types::<f32, f32>()
}

/// The output file of a subcommand.
fn output(operator: &str, name: &str, draft: &Draft, arguments: &[&str]) -> PathBuf {
    let folder = folder(&format!("group-{name}"));
    let (input, output) = (folder.join("in"), folder.join("out"));
    std::fs::write(&input, draft.bytes()).unwrap();
    assert_success(&operate(operator, &input, &output, arguments));
    output
}

fn refuse(operator: &str, name: &str, draft: &Draft, arguments: &[&str], fragments: &[&str]) {
    let name = format!("group-{name}");
    refuse_by(operator, &name, &draft.bytes(), arguments, fragments);
}

#[test]
fn forward_by_hand() {
    let output = output(FORWARD, "forward", &good(), &["--check"]);
    let (dtype, shape, mean) = read_shaped(&output, "mean").unwrap();
    assert_eq!((dtype, shape), (Dtype::F32, vec![2, 2]));
    assert_close(&mean, &[1.0, 3.0, -5.0, 0.0]);
    assert_close(&values(&output, "variance"), &[4.0; 4]);
    let sample = [-0.8, 0.8, 1.0 + 1.6, 1.0 - 1.6, 5.0, 5.0, -0.8, 0.8];
    assert_close(&values(&output, "dst"), &sample.repeat(2));
}

#[test]
fn parameters_gradients_by_hand() {
    let output = output(BACKWARD, "backward", &good(), &["--check"]);
    let diff_dst = values_of_counting();
    let sum = |channel: usize, x_hat: [f64; 2]| -> f64 {
        let first = [2 * channel, 8 + 2 * channel];
        first
            .iter()
            .map(|&i| diff_dst[i] * x_hat[0] + diff_dst[i + 1] * x_hat[1])
            .sum()
    };
    let (up, down) = ([-0.8, 0.8], [0.8, -0.8]);
    let diff_gamma = [up, down, up, down];
    let diff_gamma: Vec<f64> = (0..4).map(|c| sum(c, diff_gamma[c])).collect();
    let diff_beta: Vec<f64> = (0..4).map(|c| sum(c, [1.0; 2])).collect();
    assert_close(&values(&output, "diff_gamma"), &diff_gamma);
    assert_close(&values(&output, "diff_beta"), &diff_beta);
    // Without gamma, its gradient still has the channels' shape.
    let without = good().without("gamma");
    let output = super::group_norm::output(BACKWARD, "no-gamma", &without, &["--check"]);
    let (_, shape, _) = read_shaped(&output, "diff_gamma").unwrap();
    assert_eq!(shape, [4]);
    let output = super::group_norm::output(
        BACKWARD,
        "frozen",
        &good(),
        &["--check", "--param-grads", "false"],
    );
    assert!(read(&output, "diff_gamma").is_none());
}

/// The elements of `counting`.
fn values_of_counting() -> Vec<f64> {
    let folder = folder("group-counting");
    let path = folder.join("in");
    std::fs::write(&path, good().bytes()).unwrap();
    values(&path, "diff_dst")
}

#[test]
fn every_pair_of_element_types_is_checked() {
    fn pair<T: Element, P: Element>() {
        for (operator, pass) in [
            (FORWARD, "forward"),
            (INFERENCE, "inference"),
            (BACKWARD, "backward"),
        ] {
            let name = format!("{pass}-{}-{}", T::DTYPE, P::DTYPE);
            output(operator, &name, &of_types::<T, P>(), &["--check"]);
        }
    }
    pair::<f32, f32>();
    pair::<f16, f32>();
    pair::<f16, f16>();
    pair::<bf16, f32>();
    pair::<bf16, bf16>();
}

/// With the statistics that the forward pass writes, inference gives the same output, whole and in pieces.
#[test]
fn inference_gives_what_the_forward_pass_does() {
    for layer in ["group-norm", "instance-norm"] {
        for flags in [&[][..], &["--activation", "relu"]] {
            let operator = |pass: &str| format!("{layer}-{pass}");
            let run = |pass: &str, draft: &Draft, flags: &[&str]| {
                output(&operator(pass), &format!("{layer}-{pass}"), draft, flags)
            };
            let trained = run("forward", &good(), flags);
            let mut draft = good();
            for name in ["mean", "variance"] {
                let (_, shape, values) = read_shaped(&trained, name).unwrap();
                draft = draft.with(name, params::<f32>(&shape, &values));
            }
            let want = values(&trained, "dst");
            let whole = run("inference", &draft, &[flags, &["--check"]].concat());
            assert_close(&values(&whole, "dst"), &want);
            let whole = std::fs::read(whole).unwrap();
            let budget = [flags, &["--memory-budget", "64MB"]].concat();
            assert!(std::fs::read(run("inference", &draft, &budget)).unwrap() == whole);
        }
    }
    // Running statistics belong to channels and cannot replace a group's.
    let running = good().without("mean");
    let running = running.with("running_mean", params::<f32>(&[4], &[0.0; 4]));
    refuse(
        INFERENCE,
        "no-mean",
        &running,
        &[],
        &["mean: expected", "got none"],
    );
}

/// Flags take precedence over the metadata, and instance norm has a group for each channel.
#[test]
fn attributes_by_flag() {
    let one = output(FORWARD, "flag", &good(), &["--check", "--groups", "1"]);
    assert_eq!(read_shaped(&one, "mean").unwrap().1, [2, 1]);
    let each = output(FORWARD, "each", &good(), &["--check", "--groups", "4"]);
    let instance = output("instance-norm-forward", "instance", &good(), &["--check"]);
    assert_eq!(read_shaped(&instance, "mean").unwrap().1, [2, 4]);
    assert_eq!(values(&instance, "dst"), values(&each, "dst"));
    let last = good()
        .without("gamma")
        .without("beta")
        .without("mean")
        .without("variance");
    let last = output(FORWARD, "nxc", &last, &["--check", "--data-format", "NXC"]);
    assert_eq!(read_shaped(&last, "mean").unwrap().1, [2, 2]);

    let statistics = good()
        .with("mean", counting::<f32>(&[2, 4]))
        .with("variance", params::<f32>(&[2, 4], &[1.0; 8]));
    let gradient = output(
        "instance-norm-backward",
        "instance-backward",
        &statistics,
        &["--check"],
    );
    assert_eq!(read_shaped(&gradient, "diff_beta").unwrap().1, [4]);
}

#[test]
fn refuses_what_does_not_fit() {
    let without = good().without("variance");
    refuse(BACKWARD, "missing", &without, &[], &["variance"]);
    let alone = good().without("mean").without("variance");
    let fragments = ["groups", "divides the 4 channels"];
    refuse(FORWARD, "groups-3", &alone, &["--groups", "3"], &fragments);
    for groups in ["0", "-2", "1.5", "many"] {
        for operator in [FORWARD, BACKWARD] {
            let fragments = [
                &format!("'{groups}' for '--groups"),
                "expected an integer above 0",
            ];
            refuse_flags(operator, &["--groups", groups], &fragments);
        }
        let alone = good().attribute("groups", groups);
        let fragments = ["metadata groups: expected an integer above 0", groups];
        refuse(FORWARD, "groups-metadata", &alone, &[], &fragments);
    }
    // The statistics of two groups are not blamed.
    let three = ["--groups", "3"];
    refuse(
        BACKWARD,
        "no-statistics-fit",
        &good(),
        &three,
        &["groups", "divides the 4 channels"],
    );
    let mut none = good();
    none.metadata.remove("groups");
    refuse(FORWARD, "no-groups", &none, &[], &["groups"]);
    let four = ["--groups", "4"];
    let says = ["mean", "[2, 4]", "groups is 4"];
    refuse(BACKWARD, "statistics", &good(), &four, &says);
    let says = ["mean", "[2, 4]", "per channel of each sample"];
    refuse("instance-norm-backward", "channels", &good(), &[], &says);
    let gamma = good().with("gamma", counting::<f32>(&[2]));
    refuse(FORWARD, "gamma", &gamma, &[], &["gamma", "[4]", "[2]"]);
    let format = good().attribute("data_format", "broadcast");
    refuse(
        FORWARD,
        "format",
        &format,
        &[],
        &["data_format", "NCX or NXC"],
    );
}

#[test]
fn bench_runs_them() {
    let output = run(&[
        "bench",
        "--op",
        "group-norm,group-norm-forward,instance-norm,instance-norm-forward",
        "--shape",
        "2x8x16x16",
        "--dtype",
        "f32",
        "--rounds",
        "1",
    ]);
    assert_success(&output);
    let text = stdout(&output);
    for op in [
        "group-norm",
        "group-norm-forward",
        "instance-norm",
        "instance-norm-forward",
    ] {
        assert!(text.contains(op), "{text}");
    }
}

/// PyTorch's state dict with `track_running_stats`: in `eval()` every sample is normalized by the running statistics.
#[test]
fn instance_norm_by_running_statistics_is_batch_norms() {
    let statistics = |mean: &'static str, variance: &'static str| {
        let draft = good().without("mean").without("variance");
        let draft = draft.with(mean, params::<f32>(&[4], &[0.5, -1.0, 2.0, 0.0]));
        draft.with(variance, params::<f32>(&[4], &[0.25, 4.0, 1.0, 9.0]))
    };
    let named = || statistics("mean", "variance");
    for flags in [
        &["--data-format", "NCX"][..],
        &["--data-format", "NCX", "--activation", "silu"],
    ] {
        let run = |operator: &str, name: &str, draft: &Draft, flags: &[&str]| {
            values(&output(operator, name, draft, flags), "dst")
        };
        let want = run("batch-norm-inference", "running", &named(), flags);
        if flags.len() == 2 {
            // (1 − 3 … − 0.5) / √2.5 with the first channel's gamma 1: src is −1 and 3.
            let r = 1.0 / 2.5_f64.sqrt();
            assert_close(&want[..2], &[-1.5 * r, 2.5 * r]);
        }
        let instance = "instance-norm-inference";
        let state_dict = statistics("running_mean", "running_var");
        for (name, draft) in [("own-names", named()), ("state-dict", state_dict)] {
            for more in [&["--check"][..], &["--memory-budget", "64MB"]] {
                let got = run(instance, name, &draft, &[flags, more].concat());
                assert_eq!(got, want, "{name} {more:?}");
            }
        }
    }
    // Channels last, of another rank.
    let draft = named().with("src", counting::<f32>(&[2, 2, 1, 4]));
    let flags = ["--data-format", "NXC", "--check"];
    let want = output("batch-norm-inference", "nxc", &draft, &flags);
    let got = output("instance-norm-inference", "nxc-instance", &draft, &flags);
    assert_eq!(values(&got, "dst"), values(&want, "dst"));
    let draft = named().with("mean", params::<f32>(&[3], &[0.0; 3]));
    let fragments = [
        "mean: expected shape [4] (one per channel of src)",
        "got [3]",
    ];
    refuse("instance-norm-inference", "length", &draft, &[], &fragments);
    let draft = named().with("variance", params::<f32>(&[2, 4], &[1.0; 8]));
    let fragments = ["variance: expected shape [4]", "got [2, 4]"];
    refuse("instance-norm-inference", "mixed", &draft, &[], &fragments);
    // Only inference has running statistics: a gradient has each sample's.
    let fragments = ["mean: expected shape [2, 4]", "got [4]"];
    refuse(
        "instance-norm-backward",
        "gradient",
        &named(),
        &[],
        &fragments,
    );
}
