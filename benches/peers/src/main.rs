//! Other libraries' normalization layers beside wgpu-norm's: measured in one run, put into one table.

// Without any peer, what is left is `table`.
#![cfg_attr(
    not(any(
        feature = "burn",
        feature = "meganeura",
        feature = "numr",
        feature = "rumus"
    )),
    allow(dead_code)
)]

#[cfg(feature = "burn")]
mod burn_peers;
mod case;
#[cfg(feature = "burn")]
mod closed_form;
mod gpu;
mod measure;
#[cfg(feature = "meganeura")]
mod meganeura_peer;
#[cfg(feature = "numr")]
mod numr_peer;
mod ours;
mod peer;
mod report;
#[cfg(feature = "rumus")]
mod rumus_peer;
mod table;
mod tensors;

use clap::{Args, Parser, Subcommand};
#[cfg(any(
    feature = "burn",
    feature = "meganeura",
    feature = "numr",
    feature = "rumus"
))]
use measure::Contender;
use peer::Peer;
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
    #[cfg(feature = "burn")]
    Burn(MeasureArgs),
    /// Times wgpu-norm, also with its sizes for GPUs, and Meganeura on one driver, in turns.
    #[cfg(feature = "meganeura")]
    Meganeura(MeasureArgs),
    /// Times wgpu-norm, also with its sizes for GPUs, and numr on one adapter, in turns.
    #[cfg(feature = "numr")]
    Numr(MeasureArgs),
    /// Times wgpu-norm, also with its sizes for GPUs, and RUMUS on one adapter, in turns.
    #[cfg(feature = "rumus")]
    Rumus(MeasureArgs),
    /// Merges measurements into one Markdown table.
    Table(TableArgs),
}

#[derive(Args)]
struct MeasureArgs {
    /// Where the measurements are written.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A part of the adapter's name; by default the best adapter.
    #[arg(long, value_name = "NAME")]
    adapter: Option<String>,
    /// This operator, such as layer_norm or layer_norm_forward; may be repeated. By default the gradients; of Meganeura,
    /// numr and RUMUS all that they have.
    #[arg(long)]
    op: Vec<case::Op>,
    /// This shape, such as 32x64x56x56, instead of the operator's default ones; may be repeated.
    #[arg(long, value_name = "SHAPE", requires = "op")]
    shape: Vec<case::Shape>,
    /// How many times the contenders take turns.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Take the least of all times instead of the median: for a machine that does other work too.
    #[arg(long)]
    least: bool,
    /// Added to src's numbers, to see whose sums lose digits; most of them are below 1 without.
    #[arg(long, default_value_t = 0.0)]
    mean: f32,
}

#[derive(Args)]
struct TableArgs {
    /// Files that `burn`, `meganeura`, `numr`, `rumus`, onednn.sh and pytorch.py wrote.
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
        #[cfg(feature = "burn")]
        Command::Burn(args) => run_burn(&args),
        #[cfg(feature = "meganeura")]
        Command::Meganeura(args) => run_meganeura(args),
        #[cfg(feature = "numr")]
        Command::Numr(args) => run_numr(args),
        #[cfg(feature = "rumus")]
        Command::Rumus(args) => run_rumus(args),
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

#[cfg(feature = "burn")]
fn run_burn(args: &MeasureArgs) -> Result<()> {
    let gpu = gpu::Gpu::open(args.adapter.as_deref())?;
    println!("Burn:    {}", burn_peers::VARIANT);
    run(&gpu, args, &|case, tensors| {
        let ours = ours::Ours::new(Peer::Ours, &gpu, &gpu.context, case, tensors)?;
        let mut contenders: Vec<Box<dyn Contender + '_>> =
            vec![Box::new(ours), burn_peers::module(&gpu, case, tensors)?];
        if let Some(closed_form) = closed_form::ClosedForm::new(&gpu, case, tensors) {
            contenders.push(Box::new(closed_form));
        }
        if let Some(operator) = burn_peers::Operator::new(&gpu, case, tensors) {
            contenders.push(Box::new(operator));
        }
        Ok(contenders)
    })
}

#[cfg(feature = "meganeura")]
fn run_meganeura(mut args: MeasureArgs) -> Result<()> {
    if args.op.is_empty() {
        args.op = meganeura_peer::operators();
    }
    let gpu = gpu::Gpu::open(args.adapter.as_deref())?;
    let for_gpus = gpu.context_for_gpus();
    run(&gpu, &args, &|case, tensors| {
        let mut contenders = both_sizes(&gpu, &for_gpus, case, tensors)?;
        let sessions = meganeura_peer::Sessions::new(&gpu, case, tensors)?;
        contenders.push(Box::new(sessions));
        Ok(contenders)
    })
}

#[cfg(feature = "numr")]
fn run_numr(mut args: MeasureArgs) -> Result<()> {
    if args.op.is_empty() {
        args.op = numr_peer::operators();
    }
    let gpu = gpu::Gpu::open(args.adapter.as_deref())?;
    let for_gpus = gpu.context_for_gpus();
    let client = numr_peer::client(&gpu)?;
    run(&gpu, &args, &|case, tensors| {
        let mut contenders = both_sizes(&gpu, &for_gpus, case, tensors)?;
        for way in numr_peer::Numr::ways(&client, case, tensors)? {
            contenders.push(Box::new(way));
        }
        Ok(contenders)
    })
}

#[cfg(feature = "rumus")]
fn run_rumus(mut args: MeasureArgs) -> Result<()> {
    if args.op.is_empty() {
        args.op = rumus_peer::operators();
    }
    let gpu = gpu::Gpu::open(args.adapter.as_deref())?;
    let for_gpus = gpu.context_for_gpus();
    let device = rumus_peer::device(&gpu)?;
    run(&gpu, &args, &|case, tensors| {
        let mut contenders = both_sizes(&gpu, &for_gpus, case, tensors)?;
        let rumus = rumus_peer::Rumus::new(device, case, tensors)?;
        contenders.push(Box::new(rumus));
        Ok(contenders)
    })
}

/// This crate with the sizes for the adapter and with those for GPUs.
#[cfg(any(feature = "meganeura", feature = "numr", feature = "rumus"))]
fn both_sizes<'a>(
    gpu: &'a gpu::Gpu,
    for_gpus: &'a wgpu_norm::GpuContext,
    case: &case::Case,
    tensors: &tensors::Tensors,
) -> Result<Vec<Box<dyn Contender + 'a>>> {
    let ours = |peer, context| ours::Ours::new(peer, gpu, context, case, tensors);
    Ok(vec![
        Box::new(ours(Peer::Ours, &gpu.context)?),
        Box::new(ours(Peer::OursForGpus, for_gpus)?),
    ])
}

/// Times the cases, and writes a report for each peer.
fn run(gpu: &gpu::Gpu, args: &MeasureArgs, make: &measure::Make<'_>) -> Result<()> {
    println!("adapter: {}", gpu.name());
    println!("driver:  {}", gpu.driver());
    let statistic = match args.least {
        true => measure::Statistic::Least,
        false => measure::Statistic::Median,
    };
    let settings = measure::Settings {
        rounds: args.rounds,
        statistic,
        mean: args.mean,
    };
    let mut reports: Vec<(Peer, report::Report)> = Vec::new();
    let mut failed = Vec::new();
    for case in &case::cases(&args.op, &args.shape)? {
        println!("{case}");
        match measure::case(gpu, case, make, settings) {
            Ok(times) => {
                for time in times {
                    let (peer, name) = (time.peer.name(), time.name);
                    println!("  {peer:<26} {name:<12} {:>10.3} ms", time.ms);
                    let known = reports.iter().position(|(peer, _)| *peer == time.peer);
                    let place = known.unwrap_or_else(|| {
                        reports.push((time.peer, report::Report::new(time.peer, gpu, statistic)));
                        reports.len() - 1
                    });
                    reports[place].1.add(case, name, time.ms);
                }
            }
            // The other cases are still worth their time.
            Err(error) => {
                println!("  not timed: {error}");
                failed.push(case.to_string());
            }
        }
    }
    if let Some(path) = &args.json {
        let reports: Vec<report::Report> = reports.into_iter().map(|(_, report)| report).collect();
        report::write(path, &reports)?;
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
