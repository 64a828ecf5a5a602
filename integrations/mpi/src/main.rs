//! The command `wgpu-norm` as the ranks of `mpirun`: each reads its share of the samples, computes, and writes its
//! share of the results into the shared file.

use mpi::Threading;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;
use wgpu_norm_mpi::{Communicator, Options};

/// The environment variable for the seconds that ranks wait for each other.
const VARIABLE: &str = "WGPU_NORM_MPI_TIMEOUT";

/// The time by which ranks may read, compute and write longer than others.
const TIMEOUT: Duration = Duration::from_secs(1800);

fn main() -> ExitCode {
    // SAFETY: it is the first thing that `main` does.
    unsafe { wgpu_norm_cli::quiet_wayland() };
    end_with_a_panic();
    let timeout = match std::env::var(VARIABLE).map(|seconds| seconds.parse()) {
        Ok(Ok(seconds)) => Duration::from_secs(seconds),
        Ok(Err(_)) => return failed(&format!("{VARIABLE}: expected seconds, got something else")),
        Err(_) => TIMEOUT,
    };
    // There are other threads, but none of them calls MPI.
    let Some((universe, _)) = mpi::initialize_with_threading(Threading::Funneled) else {
        return failed("MPI runs already");
    };
    let options = Options {
        timeout,
        at_end: Some(wgpu_norm_cli::remove_current),
    };
    match Communicator::duplicate(&universe.world(), options) {
        Ok(ranks) => wgpu_norm_cli::main_on(ranks),
        Err(error) => failed(&error.to_string()),
    }
}

/// Makes a panic end the process, and so the job: unwinding would wait in `MPI_Finalize` for ranks that wait for this
/// one.
fn end_with_a_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        wgpu_norm_cli::remove_current();
        std::process::exit(101);
    }));
}

fn failed(message: &str) -> ExitCode {
    // Not `eprintln!`, which panics where stderr is closed.
    let _ = writeln!(std::io::stderr(), "error: {message}");
    ExitCode::FAILURE
}
