//! `--memory-budget`: the same files as without it, in less memory, or a refusal.

use super::*;
use std::process::ExitStatus;

const ROWS: usize = 64;
const CHANNELS: usize = 6;
const SPATIAL: usize = 35;

/// Tensors for every operator: src of shape (64, 6, 35).
fn draft() -> Draft {
    let shape = [ROWS, CHANNELS, SPATIAL];
    let waves = |shape: &[usize], period: f64| {
        let elements = 0..shape.iter().product();
        let values: Vec<f32> = elements
            .map(|i: usize| (i as f64 / period).sin() as f32)
            .collect();
        tensor(shape, &values)
    };
    Draft::good()
        .with("src", waves(&shape, 7.3))
        .with("diff_dst", waves(&shape, 3.1))
}

fn same(folder: &Path, operator: &str, draft: &Draft, arguments: &[&str]) {
    let [input, whole, streamed] = ["in", "whole", "streamed"].map(|name| folder.join(name));
    std::fs::write(&input, draft.bytes()).unwrap();
    let said = operate(operator, &input, &whole, arguments);
    assert_success(&said);
    let budget = [arguments, &["--memory-budget", "64MB"]].concat();
    let result = operate(operator, &input, &streamed, &budget);
    assert_success(&result);
    let before_the_path = |output: &Output| stdout(output).split(", in ").next().map(str::to_owned);
    assert_eq!(before_the_path(&result), before_the_path(&said));
    let [whole, streamed] = [whole, streamed].map(|path| std::fs::read(path).unwrap());
    assert!(whole == streamed, "{operator} {arguments:?}");
}

#[test]
fn every_operator_writes_the_same_file() {
    let folder = folder("operators");
    let ones = |shape: &[usize]| tensor(shape, &vec![1.0_f32; shape.iter().product()]);
    let of_channels = |draft: Draft| {
        let channels = [CHANNELS];
        draft
            .with("mean", tensor(&channels, &[0.25_f32; CHANNELS]))
            .with("variance", ones(&channels))
            .with("gamma", counting::<f32>(&channels))
    };
    let ncx = ["--data-format", "NCX"];
    same(&folder, BATCH_NORM, &of_channels(draft()), &ncx);
    same(&folder, "batch-norm-inference", &of_channels(draft()), &ncx);
    let running = of_channels(draft())
        .with("running_mean", ones(&[CHANNELS]))
        .with("running_variance", ones(&[CHANNELS]));
    let weight = [&ncx[..], &["--running-weight", "0.25"]].concat();
    same(&folder, "batch-norm-forward", &running, &weight);
    let residual =
        of_channels(draft()).with("residual", draft().tensors.remove("diff_dst").unwrap());
    let relu = [&ncx[..], &["--activation", "relu"]].concat();
    same(&folder, "batch-norm-forward", &residual, &relu);

    let groups = |draft: Draft| {
        draft
            .with("mean", tensor(&[ROWS, 2], &[0.25_f32; 2 * ROWS]))
            .with("variance", ones(&[ROWS, 2]))
            .with("gamma", counting::<f32>(&[CHANNELS]))
    };
    let group = [&ncx[..], &["--groups", "2"]].concat();
    same(&folder, "group-norm-backward", &groups(draft()), &group);
    same(&folder, "group-norm-forward", &groups(draft()), &group);

    let rows = |draft: Draft| {
        draft
            .with(
                "mean",
                tensor(&[ROWS, CHANNELS], &[0.25_f32; ROWS * CHANNELS]),
            )
            .with("variance", ones(&[ROWS, CHANNELS]))
            .with("mean_square", ones(&[ROWS, CHANNELS]))
            .with("gamma", counting::<f32>(&[SPATIAL]))
            .with("beta", counting::<f32>(&[SPATIAL]))
    };
    let axis = ["--begin-norm-axis", "-1"];
    for operator in [
        "layer-norm-backward",
        "layer-norm-forward",
        "rms-norm-backward",
        "rms-norm-forward",
    ] {
        same(&folder, operator, &rows(draft()), &axis);
    }
}

#[test]
fn the_output_may_be_the_input() {
    let folder = folder("in-place");
    let (input, output) = (folder.join("in"), folder.join("out"));
    std::fs::write(&input, Draft::good().bytes()).unwrap();
    let budget = ["--memory-budget", "1GiB"];
    assert_success(&backward(&input, &output, &budget));
    assert_success(&backward(&input, &input, &budget));
    let [input, output] = [input, output].map(|path| std::fs::read(path).unwrap());
    assert!(input == output);
}

#[test]
fn what_does_not_fit_is_refused() {
    let folder = folder("refused");
    let (input, output) = (folder.join("in"), folder.join("out"));
    std::fs::write(&input, Draft::good().bytes()).unwrap();
    let result = backward(&input, &output, &["--memory-budget", "1kB"]);
    assert_failure(
        &result,
        &["memory budget: expected at least", "got 1000"],
        "1kB",
    );
    for (arguments, fragment) in [
        (&["--memory-budget", "much"][..], "much"),
        (&["--memory-budget", "1GB", "--check"], "--check"),
    ] {
        let result = backward(&input, &output, arguments);
        assert_eq!(result.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&result).contains(fragment), "{}", stderr(&result));
    }
    assert_eq!(names(&folder), ["in"]);
}

/// 128 MiB of each tensor, which take 1.5 GB in one piece.
fn large(folder: &Path) -> PathBuf {
    let input = folder.join("in");
    let (elements, channels) = (1 << 25, 1 << 6);
    let shape = [elements / channels, channels];
    let values: Vec<f32> = (0..elements).map(|i| (i % 1021) as f32 / 512.0).collect();
    let draft = Draft::good()
        .with("src", tensor(&shape, &values))
        .with("diff_dst", tensor(&shape, &values))
        .with("mean", tensor(&[channels], &vec![0.5_f32; channels]))
        .with("variance", tensor(&[channels], &vec![1.0_f32; channels]))
        .with("gamma", tensor(&[channels], &vec![1.0_f32; channels]));
    std::fs::write(&input, draft.bytes()).unwrap();
    input
}

/// Runs a command, and returns its peak memory in KiB.
#[cfg(target_os = "linux")]
fn resident(mut command: Command) -> (ExitStatus, u64) {
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let mut most = 0;
    loop {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next());
        most = most.max(kib.map_or(0, |kib| kib.parse().unwrap()));
        if let Some(status) = child.try_wait().unwrap() {
            return (status, most);
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn memory_stays_within_the_budget() {
    let folder = folder("memory");
    let input = large(&folder);
    let (whole, streamed) = (folder.join("whole"), folder.join("streamed"));
    assert_success(&backward(&input, &whole, &[]));
    // A software adapter uses the process's memory; the rest are libraries, kernels and their compilers.
    for megabytes in [64, 256] {
        let mut command = command(&[BATCH_NORM]);
        let budget = format!("{megabytes}MB");
        command.arg(&input).arg("-o").arg(&streamed);
        let (status, kib) = resident({
            command.args(["--memory-budget", &budget]);
            command
        });
        assert!(status.success());
        let most = (megabytes + 150) * 1000;
        assert!(
            kib * 1024 / 1000 <= most,
            "{kib} KiB with a budget of {budget}"
        );
        assert!(std::fs::read(&whole).unwrap() == std::fs::read(&streamed).unwrap());
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[cfg(unix)]
#[test]
fn a_signal_leaves_nothing() {
    let folder = folder("signal");
    let input = large(&folder);
    let mut command = command(&[BATCH_NORM]);
    command.arg(&input).arg("-o").arg(folder.join("out"));
    command.args(["--memory-budget", "64MB"]);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    while !names(&folder).iter().any(|name| name.starts_with('.')) {
        assert!(
            child.try_wait().unwrap().is_none(),
            "done before it was cut off"
        );
    }
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-s", "TERM", &id]).status();
    assert!(sent.unwrap().success());
    assert!(!child.wait().unwrap().success());
    assert_eq!(names(&folder), ["in"]);
    std::fs::remove_dir_all(&folder).unwrap();
}
