//! `wgpu-norm bench`, run as a process on the adapter that the environment chooses. Times are never
//! asserted.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wgpu-norm"));
    command
        .arg("bench")
        .args(arguments)
        .env_remove("RUST_LOG")
        .env_remove("WGPU_NORM_PROFILE");
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_success(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
}

/// An exit code, nothing on stdout, no panic, and all of `fragments` on stderr.
fn assert_failure(output: &Output, code: i32, fragments: &[&str]) {
    let message = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert_eq!(stdout(output), "");
    assert!(!message.contains("panicked"), "{message}");
    for fragment in fragments {
        assert!(message.contains(fragment), "no '{fragment}' in: {message}");
    }
}

/// An empty folder for one test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("bench")
        .join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Every start tag has its end, and text has no stray angle brackets.
fn assert_well_formed(svg: &str) {
    assert!(svg.starts_with("<svg xmlns="), "{svg}");
    assert!(svg.trim_end().ends_with("</svg>"), "{svg}");
    let mut open = Vec::new();
    for part in svg.split('<').skip(1) {
        let (tag, rest) = part.split_once('>').expect("an end of each tag");
        assert!(!rest.contains('>'), "{part}");
        let name = tag.split_whitespace().next().unwrap();
        if let Some(name) = name.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{part}");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
    }
    assert!(open.is_empty(), "{open:?}");
}

const RESULT_NUMBERS: [&str; 14] = [
    "time_ms",
    "wall_ms",
    "empty_submission_ms",
    "over_empty_ms",
    "record_us",
    "copy_gb_per_s",
    "copy_buffer_gb_per_s",
    "portable_copy_gb_per_s",
    "samples",
    "repeats",
    "limit_times",
    "dispatches",
    "workspace_bytes",
    "record_between_us",
];

fn assert_report(report: &Value, results: usize) {
    for key in [
        "adapter", "backend", "driver", "kind", "date", "profile", "timing",
    ] {
        assert!(report[key].is_string(), "{key}: {report}");
    }
    assert!(report["copy_gb_per_s"].as_f64().unwrap() > 0.0);
    let date = report["date"].as_str().unwrap();
    assert!(date.len() == 20 && date.ends_with('Z'), "{date}");
    for key in ["open_ms", "bind_ms", "first_run_ms", "host_slices_ms"] {
        assert!(report["around"][key].is_number(), "{key}: {report}");
    }
    for key in ["first_us", "further_us"] {
        assert!(report["stamps"][key].is_number(), "{key}: {report}");
    }
    let rows = report["results"].as_array().unwrap();
    assert_eq!(rows.len(), results, "{report}");
    for row in rows {
        for key in [
            "set",
            "op",
            "shape",
            "dtype",
            "statistics",
            "kernel",
            "copy_kernel",
        ] {
            assert!(row[key].is_string(), "{key}: {row}");
        }
        for key in RESULT_NUMBERS {
            assert!(row[key].is_number(), "{key}: {row}");
        }
        assert!(row["time_ms"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["dispatches"].as_u64().unwrap() > 0, "{row}");
        assert!(row["repeats"].as_u64().unwrap() > 0, "{row}");
        for model in row["models"].as_array().unwrap() {
            assert!(model["fraction_of_copy"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
}

/// The models of a row: times all elements, and bytes.
fn models(row: &Value) -> Vec<(u64, u64)> {
    let models = row["models"].as_array().unwrap().iter();
    let number = |model: &Value, key: &str| model[key].as_u64().unwrap();
    models
        .map(|model| (number(model, "times"), number(model, "bytes")))
        .collect()
}

#[test]
fn measures_draws_and_shows_again() {
    let folder = folder("measure");
    let (report, plot) = (folder.join("a.json"), folder.join("a.svg"));
    let document = folder.join("a.md");
    let before = "# Title\n\n<!-- bench:begin custom -->\nold\n<!-- bench:end custom -->\nafter\n";
    std::fs::write(&document, before).unwrap();
    let files = [
        "--json",
        text(&report),
        "--plot",
        text(&plot),
        "--markdown",
        text(&document),
    ];
    let output = run(&[&["--shape", "4x8x16x16", "--rounds", "2"][..], &files].concat());
    assert_success(&output);
    let value = read(&report);
    assert_report(&value, 2);
    let formats: Vec<&str> = value["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["data_format"].as_str().unwrap())
        .collect();
    assert_eq!(formats, ["NCX", "NXC"]);
    let row = &value["results"][0];
    assert_eq!(row["op"], "batch-norm");
    assert_eq!(row["shape"], "4x8x16x16");
    assert_eq!(row["samples"], 2);
    let bytes = 4 * 4 * 8 * 16 * 16;
    assert_eq!(models(row), [(5, 5 * bytes), (3, 3 * bytes)]);
    let svg = std::fs::read_to_string(&plot).unwrap();
    assert_well_formed(&svg);
    for text in ["batch norm, NCX", "batch norm, NXC", "4×8×16×16", "f32"] {
        assert!(svg.contains(&format!(">{text}<")), "no {text}: {svg}");
    }
    let table = std::fs::read_to_string(&document).unwrap();
    assert!(
        table.starts_with("# Title\n\n<!-- bench:begin custom -->\n"),
        "{table}"
    );
    assert!(
        table.ends_with("<!-- bench:end custom -->\nafter\n"),
        "{table}"
    );
    assert!(
        table.contains("| batch-norm | 4×8×16×16 | f32 | NXC |"),
        "{table}"
    );
    assert!(!table.contains("old"), "{table}");

    // The same report from the file: the same output, picture and document.
    let again = folder.join("again.svg");
    let files = ["--plot", text(&again), "--markdown", text(&document)];
    let shown = run(&[&["--from-json", text(&report)][..], &files].concat());
    assert_success(&shown);
    assert_eq!(stdout(&shown), stdout(&output));
    assert_eq!(std::fs::read_to_string(&again).unwrap(), svg);
    assert_eq!(std::fs::read_to_string(&document).unwrap(), table);
}

/// A row made from a printed table knows only what the table had.
#[test]
fn shows_rows_with_unknown_numbers() {
    let folder = folder("unknown");
    let path = folder.join("a.json");
    let row = |set: &str| {
        json!({
            "set": set, "op": "batch-norm", "shape": "4x8x16x16", "dtype": "f32", "data_format": "NCX",
            "statistics": "batch", "param_grads": "both", "time_ms": 0.25, "wall_ms": 0.5, "record_us": 5.0,
            "models": [{ "times": 5, "bytes": 163840 }], "kernel": "channels_first_fused", "dispatches": 1,
        })
    };
    let mut report = json!({
        "adapter": "an adapter", "backend": "vulkan", "driver": "a driver", "kind": "Cpu", "version": "0.1.0",
        "date": "1970-01-01T00:00:00Z", "timing": "GPU timestamps", "profile": "workgroup=8",
        "results": [row("software"), row("small")], "skipped": [],
    });
    std::fs::write(&path, report.to_string()).unwrap();
    let (plot, document) = (folder.join("a.svg"), folder.join("a.md"));
    let files = ["--plot", text(&plot), "--markdown", text(&document)];
    let shown = run(&[&["--from-json", text(&path)][..], &files].concat());
    assert_success(&shown);
    let lines = stdout(&shown);
    assert!(
        lines.contains("batch-norm NCX f32: 1 cases without a copy bandwidth"),
        "{lines}"
    );
    assert_well_formed(&std::fs::read_to_string(&plot).unwrap());
    let table = std::fs::read_to_string(&document).unwrap();
    for line in [
        "| 0.250 |  | 0.500 |  |  |  |  |  | 5.0 | 1 |  | channels_first_fused |",
        "|  |  | 500.0 | 250.0 |  | 5.0 | 1 | channels_first_fused |",
    ] {
        assert!(table.contains(line), "no '{line}' in: {table}");
    }

    // With fractions but without the copy by 32-bit words, the summary leaves that out.
    report["results"][0]["models"][0]["fraction_of_copy"] = 0.75.into();
    std::fs::write(&path, report.to_string()).unwrap();
    let shown = run(&["--from-json", text(&path)]);
    assert_success(&shown);
    let lines = stdout(&shown);
    assert!(
        lines.contains("(geometric mean of 1; median 0.75), lowest 0.75: 4x8x16x16\n"),
        "{lines}"
    );
}

#[test]
fn shows_the_measurements_of_the_documents() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/measurements");
    let files = std::fs::read_dir(folder).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let files: Vec<_> = files.filter(|path| path.is_file()).collect();
    assert!(!files.is_empty());
    for path in files {
        assert_success(&run(&["--from-json", text(&path)]));
    }
}

#[test]
fn every_type_and_operator() {
    let folder = folder("types");
    let report = folder.join("a.json");
    let file = ["--json", text(&report), "--rounds", "1"];
    let cases = [
        "--shape",
        "6x64,5×33",
        "--op",
        "batch-norm,layer-norm",
        "--dtype",
        "F16,bf16",
    ];
    assert_success(&run(&[&cases[..], &file].concat()));
    // At rank 2 both formats are the same.
    let value = read(&report);
    assert_report(&value, 8);
    let last = &value["results"][7];
    assert_eq!(last["op"], "layer-norm");
    assert_eq!(last["data_format"], Value::Null);
    assert_eq!(models(last)[0], (5, 5 * 2 * 5 * 33));

    let cases = [
        "--shape",
        "4x8x50",
        "--data-format",
        "nxc",
        "--statistics",
        "constant",
    ];
    assert_success(&run(
        &[&cases[..], &["--param-grads", "false"], &file].concat()
    ));
    let value = read(&report);
    let row = &value["results"][0];
    assert_eq!(row["statistics"], "constant");
    assert_eq!(models(row), [(2, 2 * 4 * 4 * 8 * 50)]);
}

#[test]
fn forward_passes_by_name() {
    let folder = folder("forward");
    let (report, plot) = (folder.join("a.json"), folder.join("a.svg"));
    let file = [
        "--json",
        text(&report),
        "--plot",
        text(&plot),
        "--rounds",
        "1",
    ];
    // Flags of gradients do not apply to these.
    let cases = ["--shape", "6x8x50", "--op", "all", "--param-grads", "false"];
    let output = run(&[&cases[..], &["--data-format", "NCX"], &file].concat());
    assert_success(&output);
    let value = read(&report);
    assert_report(&value, 15);
    assert_well_formed(&std::fs::read_to_string(&plot).unwrap());
    let bytes = 4 * 6 * 8 * 50;
    for (op, times) in [
        ("batch-norm", &[5, 3][..]),
        ("layer-norm", &[5, 3]),
        ("rms-norm", &[5, 3]),
        ("group-norm", &[5, 3]),
        ("instance-norm", &[5, 3]),
        ("group-norm-forward", &[3, 2]),
        ("instance-norm-forward", &[3, 2]),
        ("batch-norm-forward", &[3, 2]),
        ("batch-norm-inference", &[2]),
        ("layer-norm-forward", &[3, 2]),
        ("rms-norm-forward", &[3, 2]),
        ("channel-layer-norm", &[5, 3]),
        ("channel-layer-norm-forward", &[3, 2]),
    ] {
        let rows = value["results"].as_array().unwrap();
        let row = rows.iter().find(|row| row["op"] == op).unwrap();
        let want: Vec<_> = times.iter().map(|&times| (times, times * bytes)).collect();
        assert_eq!(models(row), want, "{op}");
        let gradient = !op.contains("-forward") && !op.contains("-inference");
        assert_eq!(row["param_grads"] == "none", gradient, "{op}");
    }
    // Costs around the kernels for a forward pass: src is uploaded, dst is read back.
    let alone = [
        "--shape",
        "6x8x50",
        "--op",
        "layer-norm-forward",
        "--dtype",
        "bf16",
    ];
    assert_success(&run(&[&alone[..], &file].concat()));
    let around = &read(&report)["around"]["host_slices_bytes"];
    assert_eq!(*around, 2 * 2 * 6 * 8 * 50);
    // Without an operator, the gradients are measured.
    assert_success(&run(
        &[&["--set", "small", "--dtype", "f16"], &file[..]].concat()
    ));
    let value = read(&report);
    let mut rows = value["results"].as_array().unwrap().iter();
    let gradients = ["batch-norm", "layer-norm", "rms-norm"];
    assert!(rows.all(|row| gradients.iter().any(|op| row["op"] == *op)));
    assert_failure(
        &run(&["--op", "batch-norm-backward"]),
        2,
        &["invalid value"],
    );
}

/// Each tensor counts once, and batch norm's inputs twice where the cache is smaller.
#[test]
fn the_limit_knows_the_cache() {
    let folder = folder("limit");
    let report = folder.join("a.json");
    let ops = "batch-norm,batch-norm-forward,batch-norm-inference,layer-norm";
    let cases = ["--shape", "6x8x50", "--data-format", "NCX", "--op", ops];
    let file = ["--json", text(&report), "--rounds", "1"];
    // src has 9600 bytes, and so does diff_dst.
    for (cache, want) in [
        (&[][..], [3, 2, 2, 3]),
        (&["--cache", "20kB"], [3, 2, 2, 3]),
        (&["--cache", "10kB"], [5, 2, 2, 3]),
        (&["--cache", "9kB"], [5, 3, 2, 3]),
    ] {
        let output = run(&[&cases[..], &file, cache].concat());
        assert_success(&output);
        let value = read(&report);
        assert_report(&value, want.len());
        let rows = value["results"].as_array().unwrap().iter();
        let limits: Vec<_> = rows
            .map(|row| row["limit_times"].as_u64().unwrap())
            .collect();
        assert_eq!(limits, want, "{cache:?}");
        let lines = stdout(&output);
        assert_eq!(lines.matches(" by the limit").count(), 4, "{lines}");
        assert!(lines.contains("\nempty dispatches: "), "{lines}");
    }
}

#[test]
fn activations_behind_layers() {
    let folder = folder("activation");
    let report = folder.join("a.json");
    let ops = [
        "batch-norm",
        "batch-norm-forward",
        "batch-norm-inference",
        "group-norm",
        "group-norm-forward",
        "instance-norm",
        "instance-norm-forward",
    ];
    let names = ops.join(",");
    let shape = ["--shape", "4x8x50", "--data-format", "NCX", "--rounds", "1"];
    let file = ["--json", text(&report)];
    for activation in ["relu", "silu"] {
        let which = ["--op", &names, "--activation", activation];
        let output = run(&[&which[..], &shape, &file].concat());
        assert_success(&output);
        let value = read(&report);
        assert_report(&value, ops.len());
        let rows = value["results"].as_array().unwrap();
        assert!(rows.iter().all(|row| row["activation"] == activation));
        let lines = stdout(&output);
        let of_rows = lines.lines().filter(|line| line.contains(" NCX "));
        let shown = of_rows.filter(|line| line.contains(&format!(" {activation} ")));
        assert_eq!(shown.count(), ops.len(), "{lines}");
        let around = value["around"]["case"].as_str().unwrap();
        assert!(around.ends_with(activation), "{around}");
    }
    // Files from versions without activations.
    let mut value = read(&report);
    for row in value["results"].as_array_mut().unwrap() {
        row.as_object_mut().unwrap().remove("activation");
    }
    std::fs::write(&report, value.to_string()).unwrap();
    let output = run(&["--from-json", text(&report)]);
    assert_success(&output);
    // The costs around the kernels name their case.
    let lines = stdout(&output);
    let mut table = lines
        .lines()
        .filter(|line| line.contains(" GB/s") || line.contains(" NCX "));
    assert!(table.all(|line| !line.contains(" silu ")), "{lines}");

    // Where a shape is given and no operator, it is batch norm's gradient.
    let output = run(&[&["--activation", "relu"][..], &shape, &file].concat());
    assert_success(&output);
    let value = read(&report);
    assert_report(&value, 1);
    assert_eq!(value["results"][0]["op"], "batch-norm");

    let rows = "layer-norm,layer-norm-forward,rms-norm,rms-norm-forward";
    let which = [
        "--op",
        rows,
        "--activation",
        "gelu",
        "--shape",
        "32x50",
        "--rounds",
        "1",
    ];
    assert_success(&run(&[&which[..], &file].concat()));
    let value = read(&report);
    assert_report(&value, 4);
    let rows = value["results"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["activation"] == "gelu"));

    let output = run(&["--activation", "silu", "--dtype", "f32,f64"]);
    let words = ["activation: expected none or relu with f64", "got silu"];
    assert_failure(&output, 1, &words);
}

#[test]
fn the_small_set() {
    let folder = folder("small");
    let (report, plot) = (folder.join("a.json"), folder.join("a.svg"));
    let document = folder.join("new.md");
    let files = [
        "--json",
        text(&report),
        "--plot",
        text(&plot),
        "--markdown",
        text(&document),
    ];
    let cases = [
        "--set",
        "small",
        "--op",
        "layer-norm",
        "--rounds",
        "1",
        "--name",
        "a b",
    ];
    assert_success(&run(&[&cases[..], &files].concat()));
    assert_report(&read(&report), 2);
    assert_well_formed(&std::fs::read_to_string(&plot).unwrap());
    let table = std::fs::read_to_string(&document).unwrap();
    assert!(table.starts_with("<!-- bench:begin a b -->\n"), "{table}");
    assert!(
        table.contains("| layer-norm | 128×1×1024 | f32 | - |"),
        "{table}"
    );
}

#[test]
fn what_does_not_fit_is_skipped() {
    let folder = folder("skipped");
    let report = folder.join("a.json");
    let most = "4294967295x2";
    let cases = [
        "--shape",
        "4x8,4294967295x2",
        "--rounds",
        "1",
        "--json",
        text(&report),
    ];
    let output = run(&cases);
    assert_success(&output);
    assert!(stdout(&output).contains("skipped batch-norm 4294967295x2"));
    let value = read(&report);
    assert_report(&value, 1);
    assert!(value["skipped"][0]["case"].as_str().unwrap().contains(most));
    let output = run(&["--shape", most, "--rounds", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("\nerror: ") || stderr(&output).starts_with("error: "));
}

#[test]
fn profiles_by_flag_file_and_environment() {
    let folder = folder("profile");
    let (report, file) = (folder.join("a.json"), folder.join("profile"));
    std::fs::write(&file, "workgroup=16\ntile=128\n").unwrap();
    let measure = [
        "--shape",
        "4x8x50",
        "--rounds",
        "1",
        "--json",
        text(&report),
    ];
    let profile = || read(&report)["profile"].as_str().unwrap().to_owned();

    assert_success(&run(&[&measure[..], &["--profile", text(&file)]].concat()));
    assert!(profile().starts_with("workgroup=16,"), "{}", profile());
    assert!(profile().contains(",tile=128,"), "{}", profile());

    let mut from_environment = command(&measure);
    from_environment.env("WGPU_NORM_PROFILE", "busy_workgroups=3");
    assert_success(&from_environment.output().unwrap());
    assert!(profile().contains(",busy_workgroups=3,"), "{}", profile());

    // The flag takes precedence over the variable, whatever that contains.
    for variable in ["busy_workgroups=3,tile=77", "workgroup=12", "?"] {
        let mut both = command(&[&measure[..], &["--profile", "busy_workgroups=5"]].concat());
        both.env("WGPU_NORM_PROFILE", variable);
        assert_success(&both.output().unwrap());
        let profile = profile();
        assert!(profile.contains(",busy_workgroups=5,"), "{profile}");
        assert!(!profile.contains(",tile=77,"), "{profile}");
    }

    let mut wrong = command(&measure);
    wrong.env("WGPU_NORM_PROFILE", "workgroup=12");
    let output = wrong.output().unwrap();
    assert_failure(&output, 1, &["workgroup", "power of two", "got 12"]);
}

#[test]
fn tunes() {
    let output = run(&["--tune", "--shape", "4x8x50", "--rounds", "1"]);
    assert_success(&output);
    // Nothing else is printed, so a file of it is a profile.
    stdout(&output).parse::<wgpu_norm::Tuning>().unwrap();
}

#[test]
fn a_search_without_time_finds_what_it_began_with() {
    let output = run(&["--tune", "--shape", "4x8x50", "--minutes", "0"]);
    assert_success(&output);
    assert!(stderr(&output).contains("1.00 times as fast"));
    let begun = run(&[
        "--tune",
        "--shape",
        "4x8x50",
        "--minutes",
        "0",
        "--profile",
        "tile=77",
    ]);
    assert!(stdout(&begun).contains(",tile=77,"));
}

#[test]
fn bad_flags_are_usage_errors() {
    for (arguments, fragment) in [
        (&["--set", "huge"][..], "software"),
        (&["--op", "weight-norm"], "layer-norm"),
        (&["--dtype", "f8"], "bf16"),
        (&["--data-format", "NCHW"], "NXC"),
        (&["--shape", "4x"], "32x64x56x56"),
        (&["--shape", "4x0"], "32x64x56x56"),
        (&["--shape", "4"], "rank"),
        (&["--shape", "4x4", "--set", "small"], "--set"),
        (&["--rounds", "0"], "1.."),
        (&["--name", "a"], "--markdown"),
        (&["--tune", "--json", "a"], "--json"),
        (&["--minutes", "1"], "--tune"),
        (&["--tune", "--minutes", "-1"], "0 to 10080"),
        (&["--from-json", "a", "--rounds", "3"], "--rounds"),
        (&["--from-json", "a", "--cache", "1MB"], "--cache"),
        (&["--cache", "large"], "--cache"),
        (
            &["--from-json", "a", "--activation", "relu"],
            "--activation",
        ),
        (&["--activation", "selu"], "silu"),
        (&["--profile", "workgroup=12"], "power of two"),
        (&["--profile", "threads=12"], "one of workgroup"),
        (&["--profile", "/nowhere/at/all"], "neither key=value"),
    ] {
        assert_failure(&run(arguments), 2, &[fragment]);
    }
}

#[test]
fn bad_files_are_failures() {
    let folder = folder("files");
    let (missing, bad) = (folder.join("none"), folder.join("bad"));
    let shape = ["--shape", "4x8", "--rounds", "1"];
    let output = run(&["--from-json", text(&missing)]);
    assert_failure(&output, 1, &["cannot be read"]);
    for content in ["", "[]", "{}", "{\"results\": 3}", "not json"] {
        std::fs::write(&bad, content).unwrap();
        let output = run(&["--from-json", text(&bad)]);
        assert_failure(&output, 1, &["expected", "--json"]);
    }
    // Fails before anything is measured.
    let output = run(&[&shape[..], &["--markdown", text(&bad)]].concat());
    assert_failure(&output, 1, &["bench:begin custom", "bench:end custom"]);
    let nowhere = folder.join("nowhere/a.json");
    for flag in ["--json", "--plot", "--markdown"] {
        let output = run(&[&shape[..], &[flag, text(&nowhere)]].concat());
        assert_failure(&output, 1, &["cannot be written"]);
    }
}
