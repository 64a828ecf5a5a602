//! Starts programs under `mpirun`.

use std::ffi::OsStr;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// No case takes this long unless it hangs.
const LIMIT: Duration = Duration::from_secs(180);

/// The expected end of a job.
pub enum Expected {
    Success,
    /// An exit status other than 0, within 30 seconds, with this on stderr.
    Failure(&'static str),
}

/// The result of a job.
pub struct Ended {
    pub status: Option<ExitStatus>,
    pub stdout: String,
    pub stderr: String,
    pub time: Duration,
}

impl Ended {
    pub fn check(&self, expected: &Expected) -> Result<(), String> {
        let success = self.status.is_some_and(|status| status.success());
        match expected {
            Expected::Success if success => Ok(()),
            Expected::Failure(said)
                if self.status.is_some()
                    && !success
                    && self.stderr.contains(said)
                    && self.time < Duration::from_secs(30) =>
            {
                Ok(())
            }
            _ => Err(format!(
                "{:?} after {:?}\n{}\n{}",
                self.status, self.time, self.stdout, self.stderr
            )),
        }
    }
}

/// Whether this process is a rank of a job.
pub fn has_ranks() -> bool {
    ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"]
        .iter()
        .any(|variable| std::env::var_os(variable).is_some())
}

/// `mpirun` with this many ranks, for any user and any number of processors.
pub fn mpirun(ranks: usize) -> Command {
    let mut command = Command::new("mpirun");
    command.arg("-n").arg(ranks.to_string());
    // For Open MPI 4, then 5. MPICH needs none of these.
    for (variable, value) in [
        // Otherwise Mesa's GL driver complains about a missing desktop.
        ("XDG_RUNTIME_DIR", "/tmp"),
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
        ("PRTE_ALLOW_RUN_AS_ROOT", "1"),
        ("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
        // There is one machine: no search for networks.
        ("OMPI_MCA_btl", "self,vader"),
        ("OMPI_MCA_mpi_yield_when_idle", "1"),
    ] {
        command.env(variable, value);
    }
    command
}

/// Runs a program as this many ranks to its end, or up to the time limit.
pub fn start<'a>(
    ranks: usize,
    program: &OsStr,
    arguments: impl IntoIterator<Item = &'a (impl AsRef<OsStr> + ?Sized + 'a)>,
) -> Ended {
    let mut command = mpirun(ranks);
    command.arg(program).args(arguments);
    finish(&mut command)
}

/// Runs a command to its end, or up to the time limit.
pub fn finish(command: &mut Command) -> Ended {
    let begun = Instant::now();
    let folder = tempfile::tempdir().unwrap();
    let [out, err] = ["out", "err"].map(|name| folder.path().join(name));
    let file = |path| std::fs::File::create(path).unwrap();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file(&out))
        .stderr(file(&err))
        .spawn()
        .expect("mpirun: is MPI installed?");
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if begun.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let read = |path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
    Ended {
        status,
        stdout: read(&out),
        stderr: read(&err),
        time: begun.elapsed(),
    }
}
