//! Keys of a file's metadata that no attribute has, and attributes that are spelt differently.

use super::*;

/// Two rows of two elements.
fn good() -> Draft {
    let tensors = HashMap::from([
        ("src", tensor(&[2, 2], &[1.0_f32, 3.0, -2.0, 2.0])),
        ("gamma", tensor(&[2], &[0.0_f32, 0.0])),
    ]);
    let metadata = HashMap::new();
    Draft { tensors, metadata }
}

/// dst and the messages of an operator.
fn run(operator: &str, name: &str, draft: &Draft, flags: &[&str]) -> (Vec<f64>, String) {
    let folder = folder(&format!("{operator}-{name}"));
    let (input, output) = (folder.join("in"), folder.join("out"));
    std::fs::write(&input, draft.bytes()).unwrap();
    let result = operate(operator, &input, &output, flags);
    assert_success(&result);
    (values(&output, "dst"), stderr(&result))
}

/// The line about metadata.
fn left_out(said: &str) -> Option<&str> {
    let mut lines = said.lines();
    lines.find(|line| line.starts_with("warning: metadata: "))
}

#[test]
fn keys_that_nothing_reads_are_named() {
    let batch = &["--epsilon", "1", "--running-weight", "0.5"][..];
    let axes = &["--axes", "1", "--param-axes", "1"][..];
    let groups = &["--groups", "1"][..];
    for (operator, flags, key, meant) in [
        ("rms-norm-forward", &[][..], "eps", Some("epsilon")),
        ("rms-norm-forward", &[], "rms_norm_eps", Some("epsilon")),
        ("rms-norm-forward", &[], "Epsilon", Some("epsilon")),
        ("rms-norm-forward", &[], "training_steps", None),
        ("rms-norm-forward", &[], "groups", None),
        ("rms-norm-forward", &[], "running_weight", None),
        (
            "layer-norm-forward",
            &[],
            "normalized_shape",
            Some("begin_norm_axis"),
        ),
        ("layer-norm-forward", &[], "axis", Some("begin_norm_axis")),
        (
            "layer-norm-forward",
            &[],
            "begin-norm-axis",
            Some("begin_norm_axis"),
        ),
        (
            "layer-norm-forward",
            &[],
            "elementwise_affine",
            Some("use_affine"),
        ),
        ("axes-norm-forward", axes, "normalized_shape", Some("axes")),
        ("axes-norm-forward", axes, "center", Some("centered")),
        ("group-norm-forward", groups, "num_groups", Some("groups")),
        (
            "batch-norm-forward",
            batch,
            "momentum",
            Some("running_weight"),
        ),
        (
            "batch-norm-forward",
            batch,
            "channels_last",
            Some("data_format"),
        ),
        (
            "batch-norm-forward",
            batch,
            "memory_format",
            Some("data_format"),
        ),
        ("batch-norm-forward", batch, "act", Some("activation")),
    ] {
        let mut draft = good().attribute(key, "0.5");
        if key == "momentum" {
            let statistics = || tensor(&[2], &[1.0_f32; 2]);
            draft = draft.with("running_mean", statistics());
            draft = draft.with("running_var", statistics());
        }
        let (_, said) = run(operator, key, &draft, flags);
        let line = left_out(&said).unwrap_or_else(|| panic!("{operator} {key}: {said}"));
        let (left, looked) = line.split_once(" left out; looked for ").unwrap();
        let named = match meant {
            Some(meant) => format!("{key} (here {meant})"),
            None => key.to_owned(),
        };
        assert_eq!(left, format!("warning: metadata: {named}"), "{operator}");
        for attribute in ["epsilon", "activation", "zero_centered_gamma"] {
            assert!(looked.contains(attribute), "{operator}: {line}");
        }
        assert!(!looked.contains("param_grads"), "{line}");
    }
}

#[test]
fn keys_that_are_read_are_not_named() {
    let draft = good().attribute("format", "pt");
    let draft = draft.attribute("op", "rms_norm_forward");
    let draft = draft.attribute("epsilon", "0.5");
    for flags in [&[][..], &["--epsilon", "1"], &["--memory-budget", "1GB"]] {
        let (_, said) = run("rms-norm-forward", "read", &draft, flags);
        assert_eq!(left_out(&said), None, "{said}");
    }
}

/// A warning explains the failure that follows, and names a likely key before many others.
#[test]
fn a_missing_attribute_is_said_to_have_another_name() {
    let many = (0..100).map(|i| (format!("a{i:03}"), "text".to_owned()));
    let draft = Draft {
        metadata: many.collect(),
        ..Draft::good()
    };
    let folder = folder("missing");
    let (input, output) = (folder.join("in"), folder.join("out"));
    std::fs::write(&input, draft.attribute("eps", "1").bytes()).unwrap();
    let result = backward(&input, &output, &[]);
    assert_failure(&result, &["epsilon: expected --epsilon"], "missing");
    let said = stderr(&result);
    let line = left_out(&said).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("eps (here epsilon), a000, a001"), "{line}");
    assert!(line.contains("93 others left out"), "{line}");
}

/// gamma less 1 is 0: a layer that ignored the flag would write zeros.
#[test]
fn a_zero_centered_gamma_is_not_ignored() {
    let plain = good().attribute("zero_centered_gamma", "true");
    let (want, _) = run("rms-norm-forward", "plain", &plain, &[]);
    assert!(want.iter().all(|value| value.abs() > 0.1), "{want:?}");
    for key in [
        "norm_zero_centered_gamma",
        "Zero-Centered-Gamma",
        "zeroCenteredGamma",
        "zero_centred_gamma",
        "apply_layernorm_1p",
        "add_unit_offset",
        "scale_plus_one",
    ] {
        for operator in ["rms-norm-forward", "layer-norm-forward"] {
            for value in ["true", "1"] {
                let draft = good().attribute(key, value);
                let name = format!("zero-centered-{operator}-{key}-{value}");
                let fragments = [
                    &*format!("metadata {key}: expected"),
                    "zero_centered_gamma",
                    "--zero-centered-gamma",
                    &format!("got \"{value}\""),
                ];
                refuse_by(operator, &name, &draft.bytes(), &[], &fragments);
            }
        }
        // Whoever gives the attribute has decided; and false is the default.
        let draft = good().attribute(key, "true");
        let flag = ["--zero-centered-gamma", "true"];
        let (got, _) = run("rms-norm-forward", key, &draft, &flag);
        assert_eq!(got, want, "{key}");
        let draft = draft.attribute("zero_centered_gamma", "true");
        let (got, _) = run("rms-norm-forward", key, &draft, &[]);
        assert_eq!(got, want, "{key}");
        let draft = good().attribute(key, " False");
        let (got, said) = run("rms-norm-forward", key, &draft, &[]);
        assert_eq!(got, [0.0; 4], "{key}");
        let hint = format!("{key} (here zero_centered_gamma)");
        assert!(said.contains(&hint), "{said}");
    }
}

#[test]
fn spaces_around_values_do_not_count() {
    let plain = good().attribute("zero_centered_gamma", "true");
    let plain = plain.attribute("activation", "relu");
    let (want, _) = run("rms-norm-forward", "plain", &plain, &[]);
    let spaced = good().attribute("zero_centered_gamma", " true\n");
    let spaced = spaced.attribute("activation", "\tReLU ");
    let spaced = spaced.attribute("op", " rms_norm_forward ");
    let (got, said) = run("rms-norm-forward", "spaced", &spaced, &[]);
    assert_eq!(got, want);
    assert!(!said.contains("metadata"), "{said}");
}

#[test]
fn a_weight_without_running_statistics_is_named() {
    let draft = good().attribute("running_weight", "0.1");
    let (_, said) = run("batch-norm-forward", "weight", &draft, &["--epsilon", "1"]);
    assert!(said.contains("metadata: running_weight left out"), "{said}");
}

#[test]
fn control_characters_in_keys_are_shown() {
    let draft = good().attribute("e\u{1b}[2Jps", "1");
    let (_, said) = run("rms-norm-forward", "wild", &draft, &[]);
    assert!(said.contains("e\\u{1b}[2Jps left out"), "{said}");
}
