//! Tensors with PyTorch's and ONNX's names, and tensors that nobody looks for.

use super::*;

/// An operator's output file for a draft, and its messages.
fn written(operator: &str, name: &str, draft: &Draft, flags: &[&str]) -> (Vec<u8>, String) {
    let folder = folder(&format!("{operator}-{name}"));
    let (input, output) = (folder.join("in"), folder.join("out"));
    std::fs::write(&input, draft.bytes()).unwrap();
    let result = operate(operator, &input, &output, flags);
    assert_success(&result);
    (std::fs::read(&output).unwrap(), stderr(&result))
}

fn numbers(shape: &[usize], first: f32) -> Tensor {
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..count).map(|i| first + i as f32 / 8.0).collect();
    tensor(shape, &values)
}

/// A draft of tensors with given names, each with the tensor that it replaces here.
fn called(names: &[(&'static str, &'static str)]) -> Draft {
    let tensors = names.iter().map(|&(name, what)| {
        let tensor = match what {
            "src" | "diff_dst" => numbers(&[4, 3, 2], 0.25),
            "mean" | "running_mean" => numbers(&[3], 1.0),
            "variance" | "running_variance" => numbers(&[3], 2.0),
            "gamma" => numbers(&[3], 0.5),
            _ => numbers(&[3], -1.0),
        };
        (name, tensor)
    });
    let (tensors, metadata) = (tensors.collect(), HashMap::new());
    Draft { tensors, metadata }.attribute("epsilon", "0.5")
}

#[test]
fn names_of_pytorch_and_onnx() {
    let flags = ["--data-format", "NCX"];
    let running = [&flags[..], &["--running-weight", "0.25"]].concat();
    type Names = [(&'static str, &'static str)];
    let of_pytorch: &Names = &[
        ("src", "src"),
        ("weight", "gamma"),
        ("bias", "beta"),
        ("running_mean", "running_mean"),
        ("running_var", "running_variance"),
    ];
    let of_onnx: &Names = &[
        ("X", "src"),
        ("Scale", "gamma"),
        ("B", "beta"),
        ("input_mean", "running_mean"),
        ("input_var", "running_variance"),
    ];
    for (library, names) in [("pytorch", of_pytorch), ("onnx", of_onnx)] {
        let plain: Vec<_> = names.iter().map(|&(_, what)| (what, what)).collect();
        let batches = Tensor {
            dtype: Dtype::I64,
            shape: vec![],
            bytes: vec![0; 8],
        };
        let draft = called(names).with("num_batches_tracked", batches);
        for (operator, flags) in [
            ("batch-norm-forward", &running[..]),
            ("batch-norm-inference", &flags),
        ] {
            let plain = match operator {
                "batch-norm-forward" => called(&plain),
                _ => called(&[
                    ("src", "src"),
                    ("gamma", "gamma"),
                    ("beta", "beta"),
                    ("mean", "mean"),
                    ("variance", "variance"),
                ]),
            };
            let (want, said) = written(operator, "plain", &plain, flags);
            assert!(!said.contains("left out"), "{operator}: {said}");
            let (got, said) = written(operator, library, &draft, flags);
            assert!(!said.contains("left out"), "{operator} {library}: {said}");
            assert!(got == want, "{operator} by the names of {library}");
            let budget = [flags, &["--memory-budget", "64MB"]].concat();
            let (got, _) = written(operator, &format!("{library}-streamed"), &draft, &budget);
            assert!(
                got == want,
                "{operator} by the names of {library}, in pieces"
            );
        }
    }
}

/// Running statistics are not the batch's statistics, which a gradient needs.
#[test]
fn a_gradient_takes_no_running_statistics() {
    let draft = called(&[
        ("src", "src"),
        ("diff_dst", "diff_dst"),
        ("running_mean", "mean"),
        ("running_variance", "variance"),
    ]);
    let fragments = [
        "mean: expected a tensor",
        "got none",
        "which has diff_dst, running_mean",
    ];
    refuse_draft("running", &draft, &fragments);
}

#[test]
fn what_is_left_out_is_said() {
    let draft = || {
        called(&[
            ("src", "src"),
            ("diff_dst", "diff_dst"),
            ("mean", "mean"),
            ("variance", "variance"),
            ("mean_square", "mean"),
            ("scale", "gamma"),
            ("Gamma", "gamma"),
            ("gamma", "gamma"),
            ("weight", "gamma"),
        ])
    };
    let rows = |draft: Draft| {
        ["mean", "variance", "mean_square"]
            .into_iter()
            .fold(draft, |draft, name| draft.with(name, numbers(&[4], 1.0)))
            .with("gamma", numbers(&[3, 2], 0.5))
    };
    let groups = |draft: Draft| {
        ["mean", "variance"]
            .into_iter()
            .fold(draft, |draft, name| draft.with(name, numbers(&[4, 3], 1.0)))
    };
    for operator in OPERATORS {
        let (draft, flags): (_, &[&str]) = match operator.split('-').next() {
            Some("batch") => (draft(), &["--data-format", "NCX"]),
            Some("group") => (groups(draft()), &["--groups", "3"]),
            Some("instance") => (groups(draft()), &[]),
            _ => (rows(draft()), &["--begin-norm-axis", "1"]),
        };
        let (_, said) = written(operator, "left-out", &draft, flags);
        let line = said
            .lines()
            .find(|line| line.contains("left out; looked for"));
        let line = line.unwrap_or_else(|| panic!("{operator}: {said}"));
        let (left, looked) = line.split_once(" left out; ").unwrap();
        for name in ["Gamma", "scale", "weight"] {
            assert!(left.contains(name), "{operator}: {line}");
        }
        assert!(!left.contains("src"), "{operator}: {line}");
        for name in ["src or X", "gamma or weight or Scale"] {
            assert!(looked.contains(name), "{operator}: {line}");
        }
    }
}

/// A model's file has thousands of tensors.
#[test]
fn many_that_are_left_out_are_counted() {
    let entry = |start: usize, end: usize, shape: &str| {
        format!(r#"{{"dtype":"F32","shape":{shape},"data_offsets":[{start},{end}]}}"#)
    };
    let mut all = vec![format!(r#""src":{}"#, entry(0, 32, "[4,2]"))];
    all.extend((0..5000).map(|i| format!(r#""layer.{i:04}.weight":{}"#, entry(32, 32, "[0]"))));
    let folder = folder("many");
    let (input, output) = (folder.join("in"), folder.join("out"));
    std::fs::write(&input, raw(&format!("{{{}}}", all.join(",")), 32)).unwrap();
    let result = operate("rms-norm-forward", &input, &output, &[]);
    assert_success(&result);
    let said = stderr(&result);
    assert!(said.contains("layer.0000.weight, layer.0001"), "{said}");
    assert!(said.contains("4992 others left out"), "{said}");
    assert!(said.len() < 1000, "{said}");
}
