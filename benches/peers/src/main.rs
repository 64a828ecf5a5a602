//! Other libraries' normalization layers beside wgpu-norm's: measured in one run, put into one table.

mod burn_peers;
mod case;
mod closed_form;
mod gpu;
mod measure;
mod ours;
mod report;
mod set;
mod table;
mod tensors;

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Errors say what failed; nobody here acts on their kind.
type Error = Box<dyn std::error::Error>;
type Result<T> = std::result::Result<T, Error>;

/// Times wgpu-norm beside other libraries.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Times wgpu-norm and Burn on one adapter, in turns.
    Burn(BurnArgs),
    /// Merges measurements into one Markdown table.
    Table(TableArgs),
}

#[derive(Args)]
struct BurnArgs {
    /// Where the measurements are written.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A part of the adapter's name; by default the best adapter.
    #[arg(long, value_name = "NAME")]
    adapter: Option<String>,
    /// This operator; may be repeated. By default the gradients.
    #[arg(long, value_enum)]
    op: Vec<case::Op>,
    /// This shape, such as 32x64x56x56, instead of the operator's default ones; may be repeated.
    #[arg(long, value_name = "SHAPE", requires = "op")]
    shape: Vec<case::Shape>,
    /// How many times the contenders take turns.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

#[derive(Args)]
struct TableArgs {
    /// Files that `burn`, onednn.sh and pytorch.py wrote.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Puts the table into this document instead of printing it.
    #[arg(long, value_name = "DOC", requires = "name")]
    markdown: Option<PathBuf>,
    /// The place in the document: between `<!-- bench:begin NAME -->` and `<!-- bench:end NAME -->`.
    #[arg(long, requires = "markdown")]
    name: Option<String>,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Burn(args) => run_burn(&args),
        Command::Table(args) => run_table(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_burn(args: &BurnArgs) -> Result<()> {
    let cases = case::cases(&args.op, &args.shape);
    let gpu = gpu::Gpu::open(args.adapter.as_deref())?;
    println!("adapter: {}", gpu.name());
    println!("driver:  {}", gpu.driver());
    println!("Burn:    {}", burn_peers::VARIANT);

    let mut ours = report::Report::new("wgpu-norm", "wgpu-norm", &gpu);
    let mut burn = report::Report::new(burn_peers::PEER, "burn", &gpu);
    let mut failed = Vec::new();
    for case in &cases {
        println!("{case}");
        match measure::case(&gpu, case, args.rounds) {
            Ok(times) => {
                for time in times {
                    println!("  {:<24} {:>10.3} ms", time.name, time.ms);
                    let report = match time.peer {
                        measure::Peer::Ours => &mut ours,
                        measure::Peer::Burn => &mut burn,
                    };
                    report.add(case, time.name, time.ms);
                }
            }
            // The other shapes are still worth their time.
            Err(error) => {
                println!("  not timed: {error}");
                failed.push(case.to_string());
            }
        }
    }
    if let Some(path) = &args.json {
        report::write(path, &[ours, burn])?;
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("not timed: {}", failed.join(", ")).into()),
    }
}

fn run_table(args: &TableArgs) -> Result<()> {
    let mut reports = Vec::new();
    for file in &args.files {
        reports.extend(report::read(file)?);
    }
    let table = table::markdown(&reports)?;
    match (&args.markdown, &args.name) {
        (Some(document), Some(name)) => table::insert(document, name, &table),
        _ => {
            print!("{table}");
            Ok(())
        }
    }
}
