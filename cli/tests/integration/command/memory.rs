//! If memory runs out while the command runs, there is a message and no crash.

use super::{BATCH_NORM, Draft, assert_success, command, folder, names, stderr, tensor};
use half::f16;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The largest address space of a process, in KiB.
fn peak(mut command: Command) -> u64 {
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
        let kib = line.and_then(|line| line.split_whitespace().next());
        peak = peak.max(kib.map_or(0, |kib| kib.parse().unwrap()));
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(child.wait().unwrap().success());
    peak
}

fn within(kib: u64, input: &Path, output: &Path) -> Output {
    let limited = format!("ulimit -v {kib} && exec \"$0\" \"$@\"");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(limited);
    shell.arg(env!("CARGO_BIN_EXE_wgpu-norm")).arg(BATCH_NORM);
    shell.arg(input).arg("-o").arg(output).arg("--check");
    shell.env_remove("RUST_LOG").output().unwrap()
}

/// The reference needs many times the memory of the gradients, most of all in f16. So where the gradients just fit, the
/// reference fails, at one allocation or another.
#[test]
fn a_check_without_memory_says_how_much_it_wanted() {
    let folder = folder("check");
    let (input, output) = (folder.join("in"), folder.join("out"));
    let (channels, elements) = (1 << 16, 1 << 23);
    let shape = [elements / channels, channels];
    let large = || tensor(&shape, &vec![f16::ONE; elements]);
    let small = |value: f16| tensor(&[channels], &vec![value; channels]);
    let draft = Draft::good()
        .with("src", large())
        .with("diff_dst", large())
        .with("mean", small(f16::ZERO))
        .with("variance", small(f16::ONE))
        .with("gamma", small(f16::ONE));
    std::fs::write(&input, draft.bytes()).unwrap();
    let mut unchecked = command(&[BATCH_NORM]);
    unchecked.arg(&input).arg("-o").arg(&output);
    let peak = peak(unchecked);
    assert!(peak > 0);
    std::fs::remove_file(&output).unwrap();
    let mut failures = 0;
    for mebibytes in [64, 128, 192, 256] {
        let result = within(peak + 1024 * mebibytes, &input, &output);
        let message = stderr(&result);
        println!("{mebibytes} MiB more than {peak} KiB: {message}");
        match result.status.code() {
            Some(0) => {
                assert_success(&result);
                std::fs::remove_file(&output).unwrap();
            }
            Some(1) => {
                let line = message.lines().rfind(|line| line.starts_with("error: "));
                let line = line.unwrap_or_default();
                assert!(line.contains("float64"), "{mebibytes} MiB: {message}");
                assert!(line.contains(" bytes of free memory, got less"), "{line}");
                assert_eq!(names(&folder), ["in"]);
                failures += 1;
            }
            _ => panic!("{mebibytes} MiB more: {:?} {message}", result.status),
        }
    }
    assert!(failures > 0, "memory was enough");
}
