//! The command `wgpu-norm`: normalization layers and their gradients for tensors in safetensors files.
//!
//! [`main`] is the command. [`main_on`] is what the processes of `mpirun` run, for which see `integrations/mpi`.
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

/// Runs the command with the process's arguments as one of several processes: each computes some samples, and writes them
/// into one file. Rank 0 speaks for all.
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
                // The others may have been given something else, or another file of a profile.
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
        // The others wait for this one, if they went further.
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
    match &cli.command {
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
    }
}

/// Keeps an error that is none off stderr: on Linux, Mesa's Vulkan layer for choosing devices asks for the desktop, if
/// only to know its GPU, and libwayland prints an error where the variable that leads there is not set.
///
/// # Safety
///
/// It writes the environment: no other thread may read or write it meanwhile. So it belongs at the very beginning of a
/// program's `main`, before which Rust's runtime starts no thread, nor do the C libraries that are loaded then (the C
/// library itself, MPI; drivers are loaded later).
pub unsafe fn quiet_wayland() {
    const VARIABLE: &str = "XDG_RUNTIME_DIR";
    let leads = |folder: OsString| Path::new(&folder).is_absolute();
    if cfg!(target_os = "linux") && !std::env::var_os(VARIABLE).is_some_and(leads) {
        // No desktop can be found either way: this is no folder.
        //
        // SAFETY: as the caller promises.
        unsafe { std::env::set_var(VARIABLE, "/dev/null") };
    }
}

/// Warnings and errors on stderr in the form of the command's own; `RUST_LOG` asks for more.
fn init_log(level: &str) {
    // While wgpu looks for adapters, EGL calls every display that it cannot open an error.
    let quiet = format!("{level},wgpu_hal::gles::egl=off");
    let environment = env_logger::Env::default().default_filter_or(quiet);
    env_logger::Builder::from_env(environment)
        .format(|line, record| {
            // Drivers and wgpu call much an error that does not make the command fail.
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
