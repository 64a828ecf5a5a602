//! `wgpu-norm verify`, run as a process on the adapter that the environment chooses.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const CASE: &str = "batch_norm_backward/5x33x27/ncx/f32/channels_first";

fn verify(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wgpu-norm"));
    command
        .arg("verify")
        .args(arguments)
        .env_remove("RUST_LOG")
        .env_remove("WGPU_NORM_PROFILE");
    command
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn a_case_alone_is_a_row_and_an_entry() {
    let json = file("verify.json");
    let path = json.to_str().unwrap();
    let output = verify(&["--case", CASE, "--json", path]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let table = stdout(&output);
    let row = table
        .lines()
        .find(|line| line.contains("channels_first"))
        .unwrap();
    assert!(row.ends_with("ok"), "{table}");
    assert!(table.contains("1 case in"), "{table}");
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let adapter = &report[0];
    assert_eq!(adapter["failed"], 0);
    assert!(adapter["driver"].is_string() && adapter["backend"].is_string());
    assert!(table.starts_with(adapter["adapter"].as_str().unwrap()));
    let case = &adapter["cases"][0];
    assert_eq!(case["case"], CASE);
    assert_eq!(case["algorithm"], "channels_first");
    assert!(case["error"].as_f64().unwrap() <= 1.0);
    assert!(case["fault"].is_null());
}

/// Damage is a failure, and the printed command reproduces it. `scripts/test.sh --release` builds with this.
#[cfg(wgpu_norm_mutants)]
#[test]
fn damage_is_seen() {
    let swap = file("damaged.wgsl");
    std::fs::write(&swap, "element.d - cell.a\0element.d + cell.a").unwrap();
    let run = |command: &mut Command| command.env("WGPU_NORM_SWAP", &swap).output().unwrap();
    let output = run(&mut verify(&["--case", CASE]));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let table = stdout(&output);
    assert!(table.contains("1 FAILED"), "{table}");
    assert!(stderr(&output).contains("failed: "), "{}", stderr(&output));
    let again = table.lines().last().unwrap().trim();
    let again = again.strip_prefix("wgpu-norm verify").unwrap();
    assert!(again.ends_with(CASE), "{again}");
    let program = env!("CARGO_BIN_EXE_wgpu-norm");
    let mut shell = Command::new("sh");
    let output = run(shell.args(["-c", &format!("'{program}' verify{again}")]));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stdout(&output).contains("diff_"), "{}", stdout(&output));
}

#[test]
fn what_cannot_run_is_counted() {
    let id = "layer_norm_backward/2x3/f32/channels_last";
    let output = verify(&["--case", id]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let table = stdout(&output);
    assert!(table.contains("nothing was run"), "{table}");
    assert!(table.contains("1 not supported"), "{table}");
    assert!(table.contains("it is not for norms over rows"), "{table}");
}

#[test]
fn what_makes_no_sense_is_a_usage_error() {
    for arguments in [
        &["--case", "batch_norm_backward/2x3/nxc/fast"][..],
        &["--case", CASE, "--full"],
        &["extra"],
    ] {
        let output = verify(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
    }
    let mut command = verify(&["--case", CASE, "--json", "/nowhere/a.json"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("/nowhere/a.json"));
}
