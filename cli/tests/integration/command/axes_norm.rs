//! `wgpu-norm axes-norm-forward`, `axes-norm-inference` and `axes-norm-backward`.

use super::*;

/// Two channels of two pixels, whose means are 1 and 3, and whose deviations are 1 and 2.
fn good() -> Draft {
    let tensors = HashMap::from([
        ("src", tensor(&[1, 2, 2], &[0.0_f32, 1.0, 2.0, 5.0])),
        ("diff_dst", counting::<f32>(&[1, 2, 2])),
        ("mean", tensor(&[1, 2], &[1.0_f32, 3.0])),
        ("variance", tensor(&[1, 2], &[1.0_f32, 4.0])),
        ("gamma", tensor(&[2], &[1.0_f32, 2.0])),
        ("beta", tensor(&[2], &[0.5_f32, 0.0])),
    ]);
    let metadata = HashMap::new();
    let draft = Draft { tensors, metadata }.attribute("epsilon", "1e-12");
    draft.attribute("axes", "1").attribute("param_axes", "-2")
}

fn output(operator: &str, name: &str, draft: &Draft, arguments: &[&str]) -> PathBuf {
    let folder = folder(&format!("axes-{name}"));
    let (input, output) = (folder.join("in"), folder.join("out"));
    std::fs::write(&input, draft.bytes()).unwrap();
    assert_success(&operate(operator, &input, &output, arguments));
    output
}

#[test]
fn over_channels_by_hand() {
    for (operator, arguments) in [
        ("axes-norm-forward", &["--check"][..]),
        ("axes-norm-inference", &["--check"]),
        ("axes-norm-forward", &["--axes=-2", "--param-axes", "1"]),
    ] {
        let output = output(operator, "forward", &good(), arguments);
        assert_close(&values(&output, "dst"), &[-0.5, -0.5, 2.0, 2.0]);
    }
    let output = output("axes-norm-backward", "backward", &good(), &["--check"]);
    // Two elements a set: a gradient through their mean and their deviation is 0.
    assert_close(&values(&output, "diff_src"), &[0.0; 4]);
    assert_close(&values(&output, "diff_gamma"), &[-0.125, 0.625]);
    let (_, shape, _) = read_shaped(&output, "diff_gamma").unwrap();
    assert_eq!(shape, [2]);
}

/// A layer with beta alone, whose gradient does not depend on it, has beta's gradient; diff_dst is 0.125, 0.25, 0.375, 0.5.
#[test]
fn beta_without_gamma() {
    let draft = good().without("gamma");
    let draft = draft.with("beta", tensor(&[2], &[0.0_f32; 2]));
    let written = output("axes-norm-backward", "beta", &draft, &["--check"]);
    assert_eq!(values(&written, "diff_beta"), [0.375, 0.875]);
    let (dtype, shape, _) = read_shaped(&written, "diff_beta").unwrap();
    assert_eq!((dtype, &shape[..]), (Dtype::F32, &[2][..]));
    // Without beta there are no parameters.
    let draft = draft.without("beta");
    let written = output("axes-norm-backward", "no-params", &draft, &[]);
    assert!(read(&written, "diff_beta").is_none());
    let draft = good().without("gamma");
    let draft = draft.with("beta", tensor(&[3], &[0.0_f32; 3])).bytes();
    let fragments = ["beta: expected shape [2] (src's axes that are among param_axes), got [3]"];
    refuse_by("axes-norm-backward", "beta-short", &draft, &[], &fragments);
}

#[test]
fn uncentered_and_without_parameters() {
    let draft = good().without("gamma").without("beta");
    let arguments = ["--check", "--centered", "false", "--param-axes", ""];
    let output = output("axes-norm-forward", "uncentered", &draft, &arguments);
    assert_close(&values(&output, "mean_square"), &[2.0, 13.0]);
    assert!(read(&output, "mean").is_none());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let refuse = |name: &str, draft: &Draft, arguments: &[&str], fragments: &[&str]| {
        let name = format!("axes-{name}");
        refuse_by(
            "axes-norm-forward",
            &name,
            &draft.bytes(),
            arguments,
            fragments,
        );
    };
    refuse(
        "none",
        &good().no_attribute("axes"),
        &[],
        &["axes", "--axes"],
    );
    refuse(
        "twice",
        &good(),
        &["--axes", "1,1"],
        &["axes: expected each axis once, got 1"],
    );
    refuse(
        "far",
        &good(),
        &["--axes", "3"],
        &["axes: expected axes from -3 to 2, got 3"],
    );
    refuse(
        "text",
        &good().attribute("axes", "1;2"),
        &[],
        &["axes", "integers, separated by commas"],
    );
    refuse(
        "params",
        &good(),
        &["--param-axes", "0"],
        &["gamma", "param_axes"],
    );
}
