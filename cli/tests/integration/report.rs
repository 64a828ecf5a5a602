//! `wgpu-norm report`, run as a process on the adapter that the environment chooses. Times are never asserted.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder for one test, not created yet.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("report")
        .join(name);
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wgpu-norm"));
    command
        .arg("report")
        .arg(folder)
        .args(arguments)
        .env_remove("RUST_LOG")
        .env_remove("WGPU_NORM_PROFILE");
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_exit(output: &Output, code: i32, fragments: &[&str]) {
    let message = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert!(!message.contains("panicked"), "{message}");
    for fragment in fragments {
        assert!(message.contains(fragment), "no '{fragment}' in: {message}");
    }
}

/// The folder's contents: complete JSON, a page and a picture.
fn read(folder: &Path) -> (Value, String) {
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let page = text("report.md");
    assert!(page.starts_with("# wgpu-norm on "), "{page}");
    assert!(page.ends_with('\n'), "{page}");
    assert!(text("report.svg").trim_end().ends_with("</svg>"));
    (serde_json::from_str(&text("report.json")).unwrap(), page)
}

fn rows(report: &Value) -> &[Value] {
    report["results"].as_array().unwrap()
}

/// The parts and their states.
fn states(report: &Value) -> Vec<(&str, &str)> {
    let parts = report["parts"].as_array().unwrap().iter();
    parts
        .map(|part| {
            (
                part["kind"].as_str().unwrap(),
                part["state"].as_str().unwrap(),
            )
        })
        .collect()
}

const TINY: [&str; 6] = ["--shape", "4x8x50", "--rounds", "1", "--dtype", "f32,f16"];

#[test]
fn measures_all_parts_and_draws_them_again() {
    let folder = folder("all");
    let operators = [
        "--op",
        "batch-norm,layer-norm",
        "--part",
        "adapters,around,verify,bench",
        // A quarter of it for verify, which would need longer.
        "--minutes",
        "1",
    ];
    let output = run(&folder, &[&TINY[..], &operators].concat());
    assert_exit(&output, 0, &[]);
    let (report, page) = read(&folder);
    let done = ["adapters", "around", "verify", "bench"];
    for (part, (kind, state)) in done.into_iter().zip(states(&report)) {
        assert_eq!(kind, part);
        // If this version has no `verify`, the page says so.
        assert!(state == "done" || kind == "verify", "{kind}: {state}");
    }
    let kinds: Vec<_> = rows(&report)
        .iter()
        .map(|row| {
            (
                row["op"].as_str(),
                row["dtype"].as_str(),
                row["data_format"].as_str(),
            )
        })
        .collect();
    let (batch, layer) = (Some("batch-norm"), Some("layer-norm"));
    for dtype in [Some("f32"), Some("f16")] {
        for kind in [(batch, Some("NCX")), (batch, Some("NXC")), (layer, None)] {
            assert!(kinds.contains(&(kind.0, dtype, kind.1)), "{kinds:?}");
        }
    }
    assert_eq!(kinds.len(), 6);
    // The first three have both operators and both types.
    assert!(kinds[..3].iter().any(|kind| kind.0 == layer));
    assert!(kinds[..3].iter().any(|kind| kind.1 == Some("f16")));
    assert_eq!(kinds[0].1, Some("f32"));
    assert!(report["adapters"][0]["name"].is_string());
    assert!(report["around"]["open_ms"].is_number());
    assert!(report["stamps"]["first_us"].is_number());
    for text in [
        "| fixed costs | empty dispatches: ",
        "| batch-norm | NCX | f32 | 5n | 1 |",
        "![all results](report.svg)",
        "### layer-norm",
        "| 4×8×50 |",
        "## The adapters of this machine",
        "around the kernels",
    ] {
        assert!(page.contains(text), "no '{text}' in: {page}");
    }
    assert!(page.contains("\n\nVerified: "), "{page}");
    assert!(page.contains(" Measured: 6 cases."), "{page}");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in printed.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    assert!(printed.starts_with("measuring for 1 min"), "{printed}");
    assert!(printed.contains("\nMeasured: 6 cases.\n"), "{printed}");
    assert!(printed.contains("\nPlease send "), "{printed}");
    let software = report["kind"] == "Cpu";
    assert_eq!(page.contains("**This adapter is a CPU**"), software);

    // Another report does not replace it, and is refused before anything is measured.
    let output = run(&folder, &TINY);
    assert_exit(&output, 1, &["report.json", "there is one already"]);
    assert_eq!(read(&folder).0, report);

    // `bench` shows the same file.
    let shown = Command::new(env!("CARGO_BIN_EXE_wgpu-norm"))
        .args(["bench", "--from-json"])
        .arg(folder.join("report.json"))
        .output()
        .unwrap();
    assert_exit(&shown, 0, &[]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let starts = |line: &str| line.split_whitespace().take(2).eq(["layer-norm", "4x8x50"]);
    assert!(shown.lines().any(starts), "{shown}");

    // The additions of the script for PyTorch appear in the same tables.
    let mut with = report.clone();
    let row = &rows(&report)[0];
    with["pytorch"] = json!({
        "version": "9.9", "device": "a device", "driver": "a driver", "date": "",
        "results": [{
            "op": row["op"], "shape": row["shape"], "dtype": row["dtype"],
            "data_format": row["data_format"], "params_dtype": "f32",
            "time_ms": 3.0 * row["time_ms"].as_f64().unwrap(), "repeats": 20, "wall_ms": 1.0, "forward_ms": 1.0,
        }],
        "skipped": [{ "case": "a case", "reason": "a reason" }],
    });
    std::fs::write(folder.join("report.json"), with.to_string()).unwrap();
    let output = run(&folder, &["--redraw"]);
    assert_exit(&output, 0, &[]);
    let (again, page) = read(&folder);
    assert_eq!(again, with);
    for text in [
        "9.9 on a device",
        "times as fast as PyTorch",
        "| 3.00 |",
        "a reason",
    ] {
        assert!(page.contains(text), "no '{text}' in: {page}");
    }
}

/// A reader who has the files open sees the old ones to their ends.
#[cfg(unix)]
#[test]
fn files_are_drawn_again_in_one_piece() {
    use std::io::Read;
    let folder = folder("one-piece");
    assert_exit(&run(&folder, &["--minutes", "0"]), 0, &[]);
    let names = ["report.md", "report.svg"];
    let old = names.map(|name| format!("old {name}\n").repeat(10_000));
    let files = [0, 1].map(|index| {
        let path = folder.join(names[index]);
        std::fs::write(&path, &old[index]).unwrap();
        std::fs::File::open(path).unwrap()
    });
    assert_exit(&run(&folder, &["--redraw"]), 0, &[]);
    read(&folder);
    for (mut file, old) in files.into_iter().zip(old) {
        let mut seen = String::new();
        file.read_to_string(&mut seen).unwrap();
        assert!(seen == old);
    }
}

/// Whoever waits behind a pipe knows at once that it has begun.
#[test]
fn it_speaks_before_it_asks_a_driver() {
    let folder = folder("speaks");
    let output = run(&folder, &["--adapter", "no such adapter"]);
    assert_exit(&output, 1, &["no such adapter"]);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.starts_with("measuring for 10 min"), "{printed}");
}

#[test]
fn the_search_is_a_part() {
    let folder = folder("search");
    let output = run(&folder, &[&TINY[..], &["--part", "search"]].concat());
    assert_exit(&output, 0, &[]);
    let (report, page) = read(&folder);
    assert_eq!(states(&report), [("search", "done")]);
    let search = &report["search"];
    assert_eq!(search["complete"], true);
    assert_eq!(search["from"], report["profile"]);
    assert_eq!(search["cases"].as_array().unwrap().len(), 2);
    search["to"]
        .as_str()
        .unwrap()
        .parse::<wgpu_norm::Tuning>()
        .unwrap();
    for change in search["changes"].as_array().unwrap() {
        assert!(change["times_as_fast"].as_f64().unwrap() > 1.0, "{change}");
        assert!(change["in_all"].is_number(), "{change}");
    }
    assert!(page.contains("## The search for a tuning"), "{page}");
}

#[test]
fn without_time_it_says_so() {
    let folder = folder("no-time");
    let output = run(&folder, &["--minutes", "0"]);
    assert_exit(&output, 0, &[]);
    let (report, page) = read(&folder);
    assert_eq!(rows(&report).len(), 0);
    assert!(
        states(&report)
            .iter()
            .all(|(_, state)| *state == "out-of-time")
    );
    assert!(page.contains("bench: left out for want of time"), "{page}");
}

#[test]
fn what_cannot_be_run_is_named() {
    let folder = folder("refused");
    let shapes = [
        "--shape",
        "4294967295x2,4x8",
        "--rounds",
        "1",
        "--dtype",
        "f32",
        "--part",
        "bench",
    ];
    let output = run(&folder, &shapes);
    assert_exit(&output, 0, &[]);
    let (report, page) = read(&folder);
    assert_eq!(rows(&report).len(), 1);
    assert!(
        page.contains("not run: batch-norm 4294967295x2 f32"),
        "{page}"
    );

    // A part that fails does not end the others.
    let folder = self::folder("failed");
    let shapes = ["--shape", "4294967295x2", "--part", "search,bench,adapters"];
    let output = run(&folder, &shapes);
    assert_exit(&output, 1, &["report: search: failed, "]);
    let (report, page) = read(&folder);
    let states = states(&report);
    assert_eq!(
        states,
        [
            ("adapters", "done"),
            ("bench", "done"),
            ("search", "failed")
        ]
    );
    assert!(
        page.contains("Not everything was measured. search: failed, "),
        "{page}"
    );
}

/// If the command is killed after any line of its output, its files are complete, and contain all that was printed
/// before.
#[cfg(unix)]
#[test]
fn a_killed_run_leaves_what_it_has() {
    for cut in [0, 1, 3] {
        let folder = folder(&format!("killed-{cut}"));
        let shapes = [
            "--part",
            "bench",
            "--shape",
            "4x8x50,6x8x50,8x8x50",
            "--rounds",
            "1",
        ];
        let mut child = command(&folder, &shapes)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let rows_printed = lines
            .map(Result::unwrap)
            .filter(|line| line.starts_with("batch-norm "));
        // The file must contain everything up to the last line; before the first, the head is enough.
        let seen = rows_printed.take(cut + 1).count();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(seen, cut + 1);
        let (report, page) = read(&folder);
        assert!(rows(&report).len() >= cut, "{cut}: {}", rows(&report).len());
        if rows(&report).len() < 18 {
            assert_eq!(states(&report), [("bench", "under-way")]);
            // The page is written after the JSON.
            let done = rows(&report).len();
            let words = |done| format!("bench: cut off, or still under way, {done} of 18 cases");
            let said = page.contains(&words(done)) || page.contains(&words(done.saturating_sub(1)));
            assert!(said || done < 2, "{page}");
        }
        assert_exit(&run(&folder, &["--redraw"]), 0, &[]);
    }
}

/// Names that try to clear the screen, to reverse the text, to fake a failure, and to end a table.
#[test]
fn what_a_report_says_cannot_break_its_page() {
    const WILD: &str = "\u{1b}[2J\u{202e}\u{9b}31m\r\nerror: none\u{7}|```";
    let folder = folder("wild");
    let parts = ["--part", "adapters,around,bench"];
    assert_exit(&run(&folder, &[&TINY[..], &parts].concat()), 0, &[]);
    let (mut report, _) = read(&folder);
    for key in ["command", "adapter", "driver", "date", "timing", "profile"] {
        report[key] = WILD.into();
    }
    for key in [
        "op",
        "shape",
        "dtype",
        "data_format",
        "statistics",
        "kernel",
    ] {
        report["results"][0][key] = WILD.into();
    }
    report["adapters"][0]["name"] = WILD.into();
    report["around"]["case"] = WILD.into();
    report["parts"][0]["note"] = WILD.into();
    report["skipped"] = json!([{ "case": WILD, "reason": WILD }]);
    report["verify"] = json!({ "passed": false, "words": WILD, "table": WILD, "details": null });
    report["search"] = json!({
        "cases": [WILD], "from": "", "to": format!("{WILD}=2"), "tried": 1, "complete": true,
        "changes": [{
            "key": WILD, "from": WILD, "to": WILD, "times_as_fast": 2.0, "in_all": 2.0,
            "cases": [{ "case": WILD, "times_as_fast": 2.0 }],
        }],
    });
    report["pytorch"] = json!({
        "version": WILD, "device": WILD, "driver": WILD, "date": WILD, "results": [],
        "skipped": [{ "case": WILD, "reason": WILD }],
    });
    let json = folder.join("report.json");
    std::fs::write(&json, report.to_string()).unwrap();
    assert_exit(&run(&folder, &["--redraw"]), 0, &[]);
    let picture = std::fs::read_to_string(folder.join("report.svg")).unwrap();
    let shown = Command::new(env!("CARGO_BIN_EXE_wgpu-norm"))
        .args(["bench", "--from-json"])
        .arg(&json)
        .output()
        .unwrap();
    assert_exit(&shown, 0, &[]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    for text in [read(&folder).1, picture, shown.clone()] {
        let wild = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!text.contains(wild), "{text:?}");
        assert!(text.contains("\\u{1b}[2J\\u{202e}\\u{9b}31m"), "{text}");
    }
    assert!(!shown.contains("\nerror: none"), "{shown}");
    let mut names: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["report.json", "report.md", "report.svg"]);
}

#[test]
fn bad_flags_and_folders() {
    let folder = folder("bad");
    for (arguments, fragment) in [
        (&["--minutes", "-1"][..], "0 to 10080"),
        (&["--minutes", "soon"], "0 to 10080"),
        (&["--part", "lunch"], "search"),
        (&["--redraw", "--minutes", "3"], "--minutes"),
        (&["--shape", "4"], "rank"),
    ] {
        assert_exit(&run(&folder, arguments), 2, &[fragment]);
    }
    assert_exit(
        &run(&folder, &["--redraw"]),
        1,
        &["report.json", "cannot be read"],
    );
    assert_exit(
        &run(Path::new("-"), &TINY),
        2,
        &["stdin and stdout are not supported"],
    );
    assert!(!folder.exists());
    let file = folder.with_extension("file");
    std::fs::create_dir_all(folder.parent().unwrap()).unwrap();
    std::fs::write(&file, "").unwrap();
    assert_exit(&run(&file, &TINY), 1, &["cannot be written"]);
    std::fs::create_dir_all(&folder).unwrap();
    for content in ["", "{}", "[]", "{\"results\": 3}"] {
        std::fs::write(folder.join("report.json"), content).unwrap();
        assert_exit(
            &run(&folder, &["--redraw"]),
            1,
            &["expected", "wgpu-norm report"],
        );
    }
    #[cfg(unix)]
    {
        // An input that may never end is not read.
        std::fs::remove_file(folder.join("report.json")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", folder.join("report.json")).unwrap();
        let expected = ["report.json", "expected a regular file, got a device"];
        assert_exit(&run(&folder, &["--redraw"]), 1, &expected);
    }
}
