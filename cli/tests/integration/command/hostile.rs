//! Files made to fool the reader, or to keep the machine busy.

use super::*;

/// No output obeys the file, or is endless.
#[track_caller]
fn assert_tame(output: &Output) {
    for text in [stdout(output), stderr(output)] {
        let wild = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!text.contains(wild), "{text:?}");
        for line in text.lines() {
            assert!(line.chars().count() < 1000, "{line}");
        }
    }
}

/// Clears the screen, reverses the text, and pretends to be done.
const WILD: &str = "\u{1b}[2J\u{202e}\u{9b}31m\r\nerror: none\u{7}";

#[test]
fn control_characters_in_files_are_shown() {
    let json = |text: &str| serde_json::to_string(text).unwrap();
    let entry = |name: &str, dtype: &str, end: u64| {
        let (name, dtype) = (json(name), json(dtype));
        format!(r#"{{{name}:{{"dtype":{dtype},"shape":[2],"data_offsets":[0,{end}]}}}}"#)
    };
    let good = || Draft::good().no_attribute("epsilon");
    let long = WILD.repeat(100_000);
    for wild in [WILD, &long] {
        let shown = "\\u{1b}[2J\\u{202e}\\u{9b}31m\\r\\nerror: none\\u{7}";
        let cases = [
            ("name", raw(&entry(wild, "F32", 9), 9), "tensor "),
            ("dtype", raw(&entry("src", wild, 8), 8), "tensor src: "),
            ("other-dtype", raw(&entry(wild, "F99", 8), 8), "tensor "),
            (
                "epsilon",
                good().attribute("epsilon", wild).bytes(),
                "metadata epsilon: ",
            ),
            (
                "format",
                good()
                    .attribute("data_format", wild)
                    .attribute("epsilon", "1")
                    .bytes(),
                "metadata data_format: ",
            ),
        ];
        for (name, bytes, named) in cases {
            let folder = folder(name);
            let (input, output) = (folder.join("in"), folder.join("out"));
            std::fs::write(&input, bytes).unwrap();
            let result = backward(&input, &output, &[]);
            assert_failure(&result, &[named, shown], name);
            assert_tame(&result);
        }
        let folder = folder("op");
        let (input, output) = (folder.join("in"), folder.join("out"));
        std::fs::write(&input, Draft::good().attribute("op", wild).bytes()).unwrap();
        let result = backward(&input, &output, &[]);
        assert_success(&result);
        assert!(stderr(&result).contains(shown), "{}", stderr(&result));
        assert_tame(&result);
    }
}

#[test]
fn control_characters_in_reports_and_profiles_are_shown() {
    let folder = folder("report");
    let (report, copy) = (folder.join("report.json"), folder.join("copy.json"));
    let bench = ["bench", "--shape", "2x3", "--rounds", "1", "--json"];
    assert_success(&command(&bench).arg(&report).output().unwrap());
    let text = std::fs::read_to_string(&report).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    for key in ["adapter", "driver", "date", "profile"] {
        value[key] = WILD.into();
    }
    std::fs::write(&copy, value.to_string()).unwrap();
    let result = command(&["bench", "--from-json"]).arg(&copy).output();
    let result = result.unwrap();
    assert_success(&result);
    assert!(
        stdout(&result).contains("\\u{1b}[2J"),
        "{}",
        stdout(&result)
    );
    assert_tame(&result);
    let profile = folder.join("profile");
    for text in [
        WILD.to_owned(),
        format!("threads{WILD}=4"),
        "a".repeat(1 << 20),
    ] {
        std::fs::write(&profile, text).unwrap();
        let result = command(&["adapters", "--profile"]).arg(&profile).output();
        let result = result.unwrap();
        assert_eq!(result.status.code(), Some(2));
        assert_tame(&result);
    }
}

/// A shape that fills the screen.
#[test]
fn long_shapes_are_cut() {
    let draft = Draft::good().with("mean", counting::<f32>(&[1; 10_000]));
    let folder = folder("shape");
    let (input, output) = (folder.join("in"), folder.join("out"));
    std::fs::write(&input, draft.bytes()).unwrap();
    let result = backward(&input, &output, &[]);
    assert_failure(&result, &["mean: expected shape [2]", "got [1, 1, "], "");
    assert_tame(&result);
}

#[test]
fn errors_name_the_tensor() {
    let entry = |dtype: &str, shape: &str, start: u64, end: u64| {
        format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{start},{end}]}}"#)
    };
    let good = entry("F32", "[2]", 0, 8);
    let cases = [
        ("dtype", entry("F99", "[2]", 8, 16), "unknown variant"),
        ("size", entry("F32", "[3]", 8, 16), "invalid shape"),
        ("negative", entry("F32", "[-3]", 8, 16), "invalid value"),
        (
            "product",
            entry("F32", "[4294967296,4294967296]", 8, 16),
            "overflow",
        ),
        (
            "backwards",
            entry("F32", "[2]", 16, 8),
            "end before they begin",
        ),
        ("hole", entry("F32", "[2]", 12, 20), "invalid offset"),
        ("list", "[1]".to_owned(), "expected value"),
    ];
    for (name, bad, why) in cases {
        let header = format!(r#"{{"src":{good},"a.weight":{bad}}}"#);
        let expected = ["tensor", "a.weight", why];
        refuse(name, &raw(&header, 20), &["--epsilon", "1"], &expected);
    }
    let twice = format!(r#"{{"src":{good},"src":{good}}}"#);
    let expected = ["tensor src", "given twice"];
    refuse("twice", &raw(&twice, 8), &["--epsilon", "1"], &expected);
    // Which of two attributes, or of two texts, counts?
    let texts = r#""__metadata__":{"epsilon":"1"}"#;
    let twice = format!(r#"{{{texts},"src":{good},{texts}}}"#);
    let expected = ["__metadata__", "given twice"];
    refuse("texts", &raw(&twice, 8), &[], &expected);
    let twice =
        format!(r#"{{"__metadata__":{{"epsilon":"1","a":"","epsilon":"2"}},"src":{good}}}"#);
    let expected = ["__metadata__", "epsilon", "given twice"];
    refuse("key", &raw(&twice, 8), &[], &expected);
    let number = format!(r#"{{"__metadata__":{{"epsilon":1}},"src":{good}}}"#);
    let expected = ["__metadata__", "invalid type"];
    refuse("number", &raw(&number, 8), &["--epsilon", "1"], &expected);
}

#[test]
fn tensors_have_a_largest_number() {
    let header = |count: usize| {
        let tensor = |i| format!(r#""{i}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}"#);
        let tensors: Vec<String> = (0..count).map(tensor).collect();
        raw(&format!("{{{}}}", tensors.join(",")), 0)
    };
    let epsilon = ["--epsilon", "1"];
    let expected = ["more than 100000 tensors"];
    refuse("many", &header(100_001), &epsilon, &expected);
    refuse(
        "most",
        &header(100_000),
        &epsilon,
        &["src: expected a tensor"],
    );
}
