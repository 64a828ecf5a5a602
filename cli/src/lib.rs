//! The command `wgpu-norm`: normalization layers and their gradients for tensors in safetensors files.
//!
//! [`main`] is the command. [`main_on`] is the command in the processes of `mpirun`; see `integrations/mpi`.
//!
//! Results go to stdout, everything else to stderr. Exit codes: 0, 1 (failed), 2 (usage).

mod adapters;
mod args;
mod attributes;
mod bench;
mod check;
mod command_line;
mod failure;
mod files;
mod gpu;
mod header;
mod input;
mod job;
mod measure;
mod numbers;
mod operators;
mod output;
mod pipeline_cache;
mod progress;
mod ranks;
mod report;
mod results;
mod stdout;
mod temporary;
mod text;
mod verify;

use clap::Parser;
use command_line::{Cli, Command};
use failure::Failure;
use job::Machine;
use ranks::Group;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use text::visible;

/// What reads files that others made, for fuzzing; it may change in any version.
#[doc(hidden)]
pub mod readers {
    pub use crate::header::parse as header;
    pub use crate::report::redrawn as report;
}

pub use ranks::Ranks;
pub use temporary::remove_current;

/// Runs the command with the process's arguments.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    init_log("warn");
    match ranks::refuse_many().and_then(|()| run(&cli, None)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failed(&failure),
    }
}

/// Runs the command as one of several processes, with this process's arguments. Each computes some of the samples, and
/// all write into one file. Rank 0 reports for all.
pub fn main_on(ranks: impl Ranks + 'static) -> ExitCode {
    let group = Group::new(ranks);
    let speaks = group.rank == 0;
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            if speaks {
                let _ = error.print();
            }
            if error.use_stderr() {
                // The others may have other arguments, or another profile file.
                let first = error.to_string();
                let first = first.lines().next().unwrap_or_default().to_owned();
                drop(group.all::<()>(Err(Failure::Arguments(first))));
            }
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    init_log(if speaks { "warn" } else { "off" });
    let mut done = run(&cli, Some(&group));
    if !group.has_met() {
        // The others may be further on, waiting for this one.
        done = group.all(done);
    }
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if speaks => failed(&failure),
        Err(_) => ExitCode::FAILURE,
    }
}

fn failed(failure: &Failure) -> ExitCode {
    // Not `eprintln!`, which panics where stderr is closed.
    let failure = visible(&failure.to_string());
    let _ = writeln!(std::io::stderr(), "error: {failure}");
    ExitCode::FAILURE
}

fn run(cli: &Cli, ranks: Option<&Group>) -> Result<(), Failure> {
    let on = Machine {
        gpu: &cli.gpu,
        ranks,
    };
    let done = match &cli.command {
        Command::Operator(command) => command.run(&on),
        _ if ranks.is_some() => Err(Failure::Library(wgpu_norm::Error::argument(
            "subcommand",
            "an operator, which ranks can share",
            "another",
        ))),
        Command::Adapters => adapters::run(&cli.gpu),
        Command::Bench(command) => bench::run(command, &cli.gpu),
        Command::Report(command) => report::run(command, &cli.gpu),
        Command::Verify(command) => verify::run(command, &cli.gpu),
    };
    cli.gpu.opened.keep();
    done
}

/// Keeps a harmless error off stderr: on Linux, Mesa's Vulkan layer for device selection asks the desktop which GPU it
/// uses, and libwayland prints an error if the variable that leads to the desktop is not set.
///
/// # Safety
///
/// It changes the environment: no other thread may read or write it at the same time. So call it at the very beginning
/// of `main`: Rust's runtime starts no thread before that, nor do the C libraries that are loaded by then (the C
/// library itself, MPI; drivers are loaded later).
pub unsafe fn quiet_wayland() {
    const VARIABLE: &str = "XDG_RUNTIME_DIR";
    let leads = |folder: OsString| Path::new(&folder).is_absolute();
    if cfg!(target_os = "linux") && !std::env::var_os(VARIABLE).is_some_and(leads) {
        // No desktop is found either way: this is no folder.
        //
        // SAFETY: the caller promises it.
        unsafe { std::env::set_var(VARIABLE, "/dev/null") };
    }
}

/// Logs warnings and errors to stderr in the command's own format; `RUST_LOG` asks for more.
fn init_log(level: &str) {
    // While wgpu looks for adapters, EGL logs an error for every display that it cannot open.
    let quiet = format!("{level},wgpu_hal::gles::egl=off");
    let environment = env_logger::Env::default().default_filter_or(quiet);
    env_logger::Builder::from_env(environment)
        .format(|line, record| {
            // Drivers and wgpu log many errors that do not make the command fail.
            if !record.target().starts_with("wgpu_norm") {
                write!(line, "{}: ", record.target())?;
            }
            let message = visible(&record.args().to_string());
            match record.level() {
                log::Level::Error => writeln!(line, "error: {message}"),
                log::Level::Warn => writeln!(line, "warning: {message}"),
                level => writeln!(line, "{level}: {message}"),
            }
        })
        .init();
}
