//! The command `wgpu-norm` as the ranks of `mpirun`: each reads its share of the samples, computes, and writes its share of
//! the results into the one file.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;
use wgpu_norm_mpi::{Communicator, Options};

/// Ranks may read files for longer than others.
const TIMEOUT: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    // SAFETY: it is the first thing that `main` does.
    unsafe { wgpu_norm_cli::quiet_wayland() };
    let Some(universe) = mpi::initialize() else {
        return failed("MPI runs already");
    };
    let options = Options { timeout: TIMEOUT };
    match Communicator::duplicate(&universe.world(), options) {
        Ok(ranks) => wgpu_norm_cli::main_on(ranks),
        Err(error) => failed(&error.to_string()),
    }
}

fn failed(message: &str) -> ExitCode {
    // Not `eprintln!`, which panics where stderr is closed.
    let _ = writeln!(std::io::stderr(), "error: {message}");
    ExitCode::FAILURE
}
