//! Files that are not plain new files: pipes and devices, links, modes, and outputs that a signal cuts off.

use super::*;
use std::time::{Duration, Instant};

/// Runs a command that must not wait forever.
pub fn promptly(command: &mut Command, what: &str) -> Output {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("{what}: still running");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

#[cfg(unix)]
#[test]
fn what_may_never_end_is_not_read() {
    let folder = folder("endless");
    let pipe = folder.join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let output = folder.join("out");
    for (path, kind) in [(Path::new("/dev/zero"), "a device"), (&pipe, "a pipe")] {
        let expected = format!("expected a regular file, got {kind}");
        let what = format!("profile {kind}");
        let result = promptly(command(&["adapters", "--profile"]).arg(path), &what);
        assert_eq!(result.status.code(), Some(2), "{what}");
        assert!(stderr(&result).contains(&expected), "{}", stderr(&result));
        let what = format!("report {kind}");
        let result = promptly(command(&["bench", "--from-json"]).arg(path), &what);
        assert_failure(&result, &[&expected], &what);
        let what = format!("document {kind}");
        let report = ["bench", "--shape", "2x3", "--markdown"];
        let result = promptly(command(&report).arg(path), &what);
        assert_failure(&result, &[&expected], &what);
        let what = format!("input {kind}");
        let mut backward = command(&[BATCH_NORM]);
        let result = promptly(backward.arg(path).arg("-o").arg(&output), &what);
        assert_failure(&result, &[&expected], &what);
    }
    assert_eq!(names(&folder), ["pipe"]);
}

#[test]
fn texts_have_a_largest_size() {
    let folder = folder("size");
    let large = folder.join("large");
    let file = std::fs::File::create(&large).unwrap();
    file.set_len(1 << 40).unwrap(); // of nothing
    let result = command(&["bench", "--from-json"]).arg(&large).output();
    assert_failure(&result.unwrap(), &["large", "bytes of text, got more"], "");
}

#[cfg(unix)]
mod unix {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::process::{CommandExt, ExitStatusExt};

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_replaced_file_keeps_its_mode() {
        let folder = folder("mode");
        let (input, output) = (folder.join("in"), folder.join("out"));
        std::fs::write(&input, Draft::good().bytes()).unwrap();
        for want in [0o600, 0o664, 0o750] {
            std::fs::write(&output, "old").unwrap();
            std::fs::set_permissions(&output, PermissionsExt::from_mode(want)).unwrap();
            assert_success(&backward(&input, &output, &[]));
            assert_eq!(mode(&output), want);
            assert_eq!(values(&output, "diff_src").len(), 6);
        }
        // A new file has the mode of any new file.
        let (new, plain) = (folder.join("new"), folder.join("plain"));
        std::fs::write(&plain, "").unwrap();
        assert_success(&backward(&input, &new, &[]));
        assert_eq!(mode(&new), mode(&plain));
    }

    #[test]
    fn a_file_that_must_not_be_written_is_not_replaced() {
        let folder = folder("read-only");
        let (input, output) = (folder.join("in"), folder.join("out"));
        std::fs::write(&input, Draft::good().bytes()).unwrap();
        std::fs::write(&output, "old").unwrap();
        std::fs::set_permissions(&output, PermissionsExt::from_mode(0o444)).unwrap();
        if std::fs::OpenOptions::new()
            .write(true)
            .open(&output)
            .is_ok()
        {
            println!("not tested: this user may write everything");
            return;
        }
        let result = backward(&input, &output, &[]);
        assert_failure(&result, &["out: cannot be written"], "read-only");
        assert_eq!(std::fs::read(&output).unwrap(), b"old");
    }

    #[test]
    fn links_are_followed_to_their_end() {
        let folder = folder("links");
        let input = folder.join("in");
        let (inside, first, second) = (folder.join("a"), folder.join("first"), folder.join("a/2"));
        std::fs::write(&input, Draft::good().bytes()).unwrap();
        std::fs::create_dir(&inside).unwrap();
        // A link to a link, each relative to its own folder; first to nothing, then to a file.
        symlink("a/2", &first).unwrap();
        symlink("target", &second).unwrap();
        for _ in 0..2 {
            assert_success(&backward(&input, &first, &[]));
            assert!(first.is_symlink() && second.is_symlink());
            assert_eq!(values(&inside.join("target"), "diff_src").len(), 6);
            assert_eq!(names(&inside), ["2", "target"]);
        }
        let circle = folder.join("circle");
        symlink("circle", &circle).unwrap();
        let result = backward(&input, &circle, &[]);
        assert_failure(&result, &["circle: cannot be written", "links"], "circle");
    }

    const CASE: &str = "batch_norm_backward/2x3x5/ncx/f32";

    /// With these flags the output file exists before anything is computed.
    const IN_PIECES: [&str; 2] = ["--memory-budget", "1GB"];

    /// Sends a signal as soon as the command writes; false if the command was done before.
    fn cut_off(signal: &str, number: i32, folder: &Path, input: &Path, output: &Path) -> bool {
        let mut command = command(&[BATCH_NORM]);
        command.arg(input).arg("-o").arg(output).args(IN_PIECES);
        // A shell makes its background jobs ignore SIGINT and SIGQUIT, and so the processes that they start.
        let by_default = move || {
            // SAFETY: signal() may be called between fork and exec; the number is a signal's.
            unsafe { libc::signal(number, libc::SIG_DFL) };
            Ok(())
        };
        // SAFETY: between fork and exec it only calls signal().
        unsafe { command.pre_exec(by_default) };
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let is_written = || names(folder).iter().any(|name| name.starts_with('.'));
        while !is_written() {
            if child.try_wait().unwrap().is_some() {
                return false;
            }
        }
        let id = child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status();
        assert!(sent.unwrap().success());
        let status = child.wait().unwrap();
        if status.success() {
            return false;
        }
        assert_eq!(status.signal(), Some(number), "{status}");
        true
    }

    /// An input of this many rows of 8192 elements.
    fn large(rows: usize) -> Draft {
        let shape = [rows, 1 << 13];
        Draft::good()
            .with("src", tensor(&shape, &vec![1.0_f32; rows << 13]))
            .with("diff_dst", tensor(&shape, &vec![1.0_f32; rows << 13]))
            .with("mean", tensor(&[1 << 13], &vec![0.0_f32; 1 << 13]))
            .with("variance", tensor(&[1 << 13], &vec![1.0_f32; 1 << 13]))
            .without("gamma")
    }

    /// The command, run by a shell after another command.
    fn after(first: &str, input: &Path, output: &Path) -> Command {
        let mut shell = Command::new("sh");
        shell
            .arg("-c")
            .arg(format!("{first} && exec \"$0\" \"$@\""));
        shell.arg(env!("CARGO_BIN_EXE_wgpu-norm")).arg(BATCH_NORM);
        shell.arg(input).arg("-o").arg(output);
        shell.env_remove("RUST_LOG");
        shell
    }

    /// Like under `nohup`, or in the background of a shell without job control.
    #[test]
    fn what_is_ignored_stays_ignored() {
        let folder = folder("ignored");
        let (input, output) = (folder.join("in"), folder.join("out"));
        std::fs::write(&input, large(1 << 8).bytes()).unwrap();
        for signal in ["HUP", "INT", "QUIT"] {
            let mut hit = false;
            for _ in 0..40 {
                let mut child = after(&format!("trap '' {signal}"), &input, &output)
                    .args(IN_PIECES)
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap();
                let id = child.id().to_string();
                while child.try_wait().unwrap().is_none() {
                    if names(&folder).iter().any(|name| name.starts_with('.')) {
                        let sent = Command::new("kill").args(["-s", signal, &id]).status();
                        hit |= sent.unwrap().success();
                        break;
                    }
                }
                assert!(child.wait().unwrap().success(), "{signal}");
                assert_eq!(names(&folder), ["in", "out"], "{signal}");
                std::fs::remove_file(&output).unwrap();
                if hit {
                    break;
                }
            }
            assert!(hit, "the command was done before {signal} each time");
        }
    }

    #[test]
    fn a_file_that_may_not_grow_is_a_failure_and_leaves_nothing() {
        let folder = folder("size");
        let (input, output) = (folder.join("in"), folder.join("out"));
        std::fs::write(&input, large(64).bytes()).unwrap();
        let gpu = pollster::block_on(GpuContext::new()).expect("an adapter");
        // SwiftShader's memory also consists of files: it does not survive the limit.
        let files = gpu.adapter_info().name.contains("SwiftShader");
        for budget in [None, Some("64MB")] {
            // 128 or 256 KiB, depending on the shell; drivers' caches may be larger.
            let mut limited = after("ulimit -f 256", &input, &output);
            limited.env("MESA_SHADER_CACHE_DISABLE", "true");
            if files {
                limited.args(["--adapter", "llvmpipe"]);
            }
            limited.args(
                budget
                    .iter()
                    .flat_map(|&budget| ["--memory-budget", budget]),
            );
            let result = limited.output().unwrap();
            assert_failure(
                &result,
                &["out: cannot be written", "File too large"],
                "size",
            );
            assert_eq!(names(&folder), ["in"]);
        }
    }

    /// On a disk of 256 KiB in a namespace of mounts, which the system may not allow.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_a_failure_and_leaves_what_was_there() {
        let folder = folder("full");
        let (input, disk, log) = (folder.join("in"), folder.join("disk"), folder.join("log"));
        std::fs::create_dir(&disk).unwrap();
        std::fs::write(&input, large(64).bytes()).unwrap();
        let mount = "mount -t tmpfs -o size=256k tmpfs \"$1\"";
        let namespace = || {
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
            command
        };
        let allowed = namespace().arg(mount).arg("sh").arg(&disk).output();
        if !allowed.is_ok_and(|output| output.status.success()) {
            println!("not tested: the system allows no namespace of mounts");
            return;
        }
        for budget in [&[][..], &["--memory-budget", "64MB"]] {
            let script = format!(
                "{mount} && echo old > \"$1/out\" && shift && \"$@\" 2> \"$LOG\"; code=$?; \
                 ls -A \"$DISK\"; cat \"$DISK/out\"; exit $code"
            );
            let mut command = namespace();
            command.arg(script).arg("sh").arg(&disk);
            command.arg(env!("CARGO_BIN_EXE_wgpu-norm")).arg(BATCH_NORM);
            command
                .arg(&input)
                .arg("-o")
                .arg(disk.join("out"))
                .args(budget);
            command
                .env("DISK", &disk)
                .env("LOG", &log)
                .env_remove("RUST_LOG");
            let result = command.output().unwrap();
            let said = std::fs::read_to_string(&log).unwrap();
            assert_eq!(result.status.code(), Some(1), "{said}");
            assert!(said.contains("out: cannot be written"), "{said}");
            assert!(said.contains("No space left on device"), "{said}");
            assert_eq!(stdout(&result), "out\nold\n");
        }
    }

    /// A process that cannot clean up: the output is still the old one, or whole.
    #[test]
    fn a_killed_process_leaves_a_whole_file() {
        let folder = folder("killed");
        let (input, output) = (folder.join("in"), folder.join("out"));
        std::fs::write(&input, large(1 << 8).bytes()).unwrap();
        let result = backward(&input, &output, &IN_PIECES);
        assert_success(&result);
        let whole = std::fs::read(&output).unwrap();
        std::fs::write(&output, "old").unwrap();
        let mut tries = 0..40;
        let hit = tries.any(|_| cut_off("KILL", 9, &folder, &input, &output));
        assert!(hit, "the command was done before the signal each time");
        let left = std::fs::read(&output).unwrap();
        assert!(left == b"old" || left == whole, "{} bytes", left.len());
        // What it leaves is not in the next one's way.
        assert_success(&backward(&input, &output, &IN_PIECES));
        assert!(std::fs::read(&output).unwrap() == whole);
    }

    /// Nobody reads what is printed.
    #[test]
    fn a_closed_pipe_is_no_failure_and_the_file_is_whole() {
        let folder = folder("pipe");
        let (input, output) = (folder.join("in"), folder.join("out"));
        std::fs::write(&input, Draft::good().bytes()).unwrap();
        for list in [&["verify", "--case", CASE][..], &["adapters"]] {
            let mut child = command(list).stdout(Stdio::piped()).spawn().unwrap();
            drop(child.stdout.take());
            assert!(child.wait().unwrap().success(), "{list:?}");
        }
        let mut operator = command(&[BATCH_NORM]);
        operator.arg(&input).arg("-o").arg(&output);
        let mut child = operator.stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        assert!(child.wait().unwrap().success());
        assert_eq!(values(&output, "diff_src").len(), 6);
    }

    /// A sparse file is refused before any of it is read.
    #[test]
    fn a_tensor_that_no_buffer_holds_is_refused_at_once() {
        let gpu = pollster::block_on(GpuContext::new()).expect("an adapter");
        let most = gpu.profile().max_buffer;
        let Some(rows) = (most < 1 << 36).then(|| most / 4096 + 1) else {
            println!("not tested: the adapter's buffers may have {most} bytes");
            return;
        };
        let folder = folder("large");
        let (input, output) = (folder.join("in"), folder.join("out"));
        let bytes = rows * 4096;
        let header = format!(
            r#"{{"src":{{"dtype":"F32","shape":[{rows},1024],"data_offsets":[0,{bytes}]}}}}"#
        );
        std::fs::write(&input, raw(&header, 0)).unwrap();
        let file = std::fs::OpenOptions::new()
            .append(true)
            .open(&input)
            .unwrap();
        if let Err(error) = file.set_len(8 + header.len() as u64 + bytes) {
            println!("not tested: no file of {bytes} bytes: {error}");
            return;
        }
        let result = operate("rms-norm-forward", &input, &output, &[]);
        std::fs::remove_file(&input).unwrap();
        let most = format!("at most {most} bytes");
        let fragments = ["src: expected", &most, "--memory-budget"];
        assert_failure(&result, &fragments, "large");
    }

    #[test]
    fn a_signal_leaves_no_half_written_file() {
        let folder = folder("signal");
        let (input, output) = (folder.join("in"), folder.join("out"));
        std::fs::write(&input, large(1 << 8).bytes()).unwrap();
        for (signal, number) in [("HUP", 1), ("INT", 2), ("TERM", 15), ("XCPU", 24)] {
            std::fs::write(&output, "old").unwrap();
            let mut tries = 0..40;
            let hit = tries.any(|_| cut_off(signal, number, &folder, &input, &output));
            assert!(hit, "the command was done before {signal} each time");
            assert_eq!(names(&folder), ["in", "out"], "{signal}");
        }
    }
}
