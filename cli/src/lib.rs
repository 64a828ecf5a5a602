//! The command `wgpu-norm`: normalization layers and their gradients for tensors in safetensors files.
//!
//! Results go to stdout, everything else to stderr. Exit codes: 0, 1 (failed), 2 (usage).

mod adapters;
mod args;
mod attributes;
mod bench;
mod check;
mod failure;
mod files;
mod gpu;
mod header;
mod input;
mod job;
mod measure;
mod memory;
mod operators;
mod output;
mod progress;
mod report;
mod results;
mod stdout;
mod temporary;
mod text;
mod verify;

use args::{Cli, Command};
use clap::Parser;
use failure::Failure;
use std::io::Write;
use std::process::ExitCode;
use text::visible;

/// Runs the command with the process's arguments.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    init_log();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Not `eprintln!`, which panics where stderr is closed.
            let failure = visible(&failure.to_string());
            let _ = writeln!(std::io::stderr(), "error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<(), Failure> {
    match &cli.command {
        Command::Operator(command) => command.run(&cli.gpu),
        Command::Adapters => adapters::run(&cli.gpu),
        Command::Bench(command) => bench::run(command, &cli.gpu),
        Command::Report(command) => report::run(command, &cli.gpu),
        Command::Verify(command) => verify::run(command, &cli.gpu),
    }
}

/// Warnings and errors on stderr in the form of the command's own; `RUST_LOG` asks for more.
fn init_log() {
    // While wgpu looks for adapters, EGL calls every display that it cannot open an error.
    let quiet = "warn,wgpu_hal::gles::egl=off";
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
