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

/// A layer with beta alone, whose gradient does not depend on it, has beta's gradient; diff_dst is 0, 0.125, 0.25,
/// 0.375.
#[test]
fn beta_without_gamma() {
    let draft = good().without("gamma");
    let draft = draft.with("beta", tensor(&[2], &[0.0_f32; 2]));
    let written = output("axes-norm-backward", "beta", &draft, &["--check"]);
    assert_eq!(values(&written, "diff_beta"), [0.125, 0.625]);
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

/// src's rank, with size 1 along the other axes, as they multiply src elsewhere.
#[test]
fn parameters_and_statistics_may_keep_all_axes() {
    let plain = |draft: Draft| {
        let draft = draft.with("src", counting::<f32>(&[2, 6, 4, 3]));
        let draft = draft.with("diff_dst", counting::<f32>(&[2, 6, 4, 3]));
        let draft = draft.no_attribute("axes").no_attribute("param_axes");
        draft.attribute("epsilon", "0.5")
    };
    // Whether the statistics keep src's axes, then gamma and beta.
    let shaped = |statistics: &[usize], params: &[usize]| {
        let draft = plain(good());
        let draft = draft.with("mean", counting::<f32>(statistics));
        let draft = draft.with("variance", counting::<f32>(statistics));
        let draft = draft.with("gamma", counting::<f32>(params));
        draft.with("beta", counting::<f32>(params))
    };
    type Shape = &'static [usize];
    type Case = (
        &'static str,
        &'static [&'static str],
        [Shape; 2],
        [Shape; 2],
    );
    let cases: [Case; 6] = [
        (
            "axes",
            &["--axes", "1", "--param-axes", "1"],
            [&[2, 4, 3], &[2, 1, 4, 3]],
            [&[6], &[1, 6, 1, 1]],
        ),
        (
            "axes",
            &["--axes", "2,3", "--param-axes", "0,1"],
            [&[2, 6], &[2, 6, 1, 1]],
            [&[2, 6], &[2, 6, 1, 1]],
        ),
        (
            "layer",
            &["--begin-norm-axis", "2"],
            [&[2, 6], &[2, 6, 1, 1]],
            [&[4, 3], &[4, 3]],
        ),
        (
            "instance",
            &[],
            [&[2, 6], &[2, 6, 1, 1]],
            [&[6], &[1, 6, 1, 1]],
        ),
        (
            "instance",
            &["--data-format", "NXC"],
            [&[2, 3], &[2, 1, 1, 3]],
            [&[3], &[1, 1, 1, 3]],
        ),
        (
            "group",
            &["--groups", "3"],
            [&[2, 3], &[2, 3, 1, 1]],
            [&[6], &[1, 6, 1, 1]],
        ),
    ];
    for (norm, flags, statistics, params) in cases {
        for pass in ["forward", "inference", "backward"] {
            if norm == "layer" && pass == "inference" {
                continue;
            }
            let operator = format!("{norm}-norm-{pass}");
            let name = format!("{operator}-{}", flags.concat());
            let want = output(&operator, &name, &shaped(statistics[0], params[0]), flags);
            let flags = [flags, &["--check"]].concat();
            let draft = shaped(statistics[1], params[1]);
            let kept = output(&operator, &format!("{name}-kept"), &draft, &flags);
            let result = match pass {
                "backward" => "diff_src",
                _ => "dst",
            };
            assert_eq!(values(&kept, result), values(&want, result), "{name}");
            if pass == "backward" {
                // Gradients have gamma's shape.
                let (_, shape, got) = read_shaped(&kept, "diff_gamma").unwrap();
                assert_eq!(shape, params[1], "{name}");
                assert_eq!(got, values(&want, "diff_gamma"), "{name}");
            }
        }
    }
    // As many elements, at other places.
    for (name, shape) in [("rank", &[6, 1, 1][..]), ("place", &[6, 1, 1, 1])] {
        let draft = shaped(&[2, 4, 3], shape);
        let flags = ["--axes", "1", "--param-axes", "1"];
        let fragments = ["gamma: expected shape [6]", &format!("got {shape:?}")];
        refuse_by(
            "axes-norm-forward",
            name,
            &draft.bytes(),
            &flags,
            &fragments,
        );
    }
}

/// A gamma that layer norm and RMS norm do not have, and the flags with which axes norm takes it.
#[test]
fn the_way_to_axes_norm_is_shown() {
    let cases: [(&str, &[usize], &[usize], &str); 9] = [
        // ConvNeXt's.
        (
            "layer-norm-forward",
            &[2, 6, 4, 3],
            &[6],
            "--axes 1 --param-axes 1 --centered true",
        ),
        (
            "layer-norm-forward",
            &[2, 6, 4, 3],
            &[1, 6, 1, 1],
            "--axes 1 --param-axes 1 --centered true",
        ),
        (
            "layer-norm-forward",
            &[6, 6, 6, 3],
            &[6],
            "--axes 1 --param-axes 1 --centered true",
        ),
        (
            "rms-norm-forward",
            &[2, 6, 4, 3],
            &[6],
            "--axes 1 --param-axes 1 --centered false",
        ),
        // AdaLN's.
        (
            "layer-norm-forward",
            &[2, 5, 6],
            &[2, 6],
            "--axes 2 --param-axes 0,2 --centered true",
        ),
        (
            "layer-norm-forward",
            &[2, 5, 6],
            &[2, 1, 6],
            "--axes 2 --param-axes 0,2 --centered true",
        ),
        (
            "layer-norm-forward",
            &[6, 6, 6],
            &[6, 6],
            "--axes 2 --param-axes 0,2 --centered true",
        ),
        (
            "layer-norm-forward",
            &[2, 6, 4, 3],
            &[2, 6],
            "--axes 1 --param-axes 0,1 --centered true",
        ),
        (
            "rms-norm-forward",
            &[2, 5, 6],
            &[2, 6],
            "--axes 2 --param-axes 0,2 --centered false",
        ),
    ];
    for (operator, src, gamma, flags) in cases {
        let shown = format!("; axes-norm-forward {flags} takes it");
        let draft = good().no_attribute("axes").no_attribute("param_axes");
        let draft = draft.with("src", counting::<f32>(src));
        let draft = draft.with("gamma", counting::<f32>(gamma)).without("beta");
        let name = format!("{operator}-{src:?}-{gamma:?}");
        let fragments = ["gamma: expected shape", &*shown];
        refuse_by(operator, &name, &draft.bytes(), &[], &fragments);
        // And it does take it.
        let flags: Vec<_> = flags.split(' ').collect();
        output("axes-norm-forward", &format!("{name}-axes"), &draft, &flags);
    }
    // Where nothing fits, nothing is shown.
    for (name, gamma) in [
        ("other", &[5_usize][..]),
        ("samples", &[2]),
        ("order", &[6, 2]),
    ] {
        let draft = good().with("src", counting::<f32>(&[2, 6, 4, 3]));
        let draft = draft.with("gamma", counting::<f32>(gamma)).without("beta");
        let folder = folder(name);
        let (input, output) = (folder.join("in"), folder.join("out"));
        std::fs::write(&input, draft.bytes()).unwrap();
        let result = operate("layer-norm-forward", &input, &output, &[]);
        assert_failure(&result, &["gamma: expected shape [3]"], name);
        assert!(
            !stderr(&result).contains("axes-norm"),
            "{}",
            stderr(&result)
        );
    }
}
