//! `wgpu-norm verify`.

mod summary;

pub use summary::Summary;

use crate::args::{GpuArgs, path};
use crate::failure::Failure;
use crate::output::Output;
use crate::progress::Progress;
use crate::stdout;
use clap::Args;
use std::path::PathBuf;
use std::time::Instant;
use wgpu_norm::verify::{Case, cases};
use wgpu_norm::{Error, GpuContext};

#[derive(Debug, Args)]
pub struct Verify {
    /// Run every case, not only a share that takes under a minute on a software driver and seconds on a GPU
    #[arg(long)]
    pub full: bool,
    /// Run on every adapter of the backends, not only the chosen one
    #[arg(long)]
    pub all_adapters: bool,
    /// Run this case alone; the library's documentation of `verify` lists the parts of an ID
    #[arg(long, value_name = "ID", conflicts_with = "full")]
    pub case: Option<Case>,
    /// Write what came of each case to a JSON file
    #[arg(long, value_name = "FILE.json", value_parser = path())]
    pub json: Option<PathBuf>,
}

/// Runs the subcommand.
pub fn run(command: &Verify, args: &GpuArgs) -> Result<(), Failure> {
    let json = command.json.as_deref().map(Output::prepare).transpose()?;
    let progress = Progress::new();
    // The library's warnings go to stderr.
    let contexts = progress.suspend(|| open(command, args))?;
    let one = command.case.as_ref();
    let listed = one.map_or_else(|| cases(command.full), |case| vec![case.clone()]);
    let mut summaries = Vec::new();
    for gpu in &contexts {
        let summary = measure(gpu, &listed, &progress, || true)?;
        progress.suspend(|| summary.print(args.profile.as_deref()))?;
        summaries.push(summary);
    }
    drop(progress);
    if let Some(json) = json {
        let all: Vec<_> = summaries.iter().map(Summary::to_json).collect();
        json.write_bytes(&[serde_json::Value::from(all).to_string().as_bytes()])?;
    }
    match summaries.iter().map(Summary::failed).sum() {
        0 => Ok(()),
        failed => Err(Failure::Verify { failed }),
    }
}

/// The adapters to run on.
fn open(command: &Verify, args: &GpuArgs) -> Result<Vec<GpuContext>, Failure> {
    if !command.all_adapters {
        return Ok(vec![args.open()?]);
    }
    let backends = args.options().chosen_backends()?;
    let wanted = args.adapter.as_deref().unwrap_or_default().to_lowercase();
    let mut contexts = Vec::new();
    for adapter in pollster::block_on(wgpu_norm::adapters(backends)) {
        let info = adapter.get_info();
        match wgpu_norm::unfit(&adapter) {
            _ if !info.name.to_lowercase().contains(&wanted) => {}
            Some(reason) => {
                let backend = info.backend;
                stdout::line(format_args!("{} ({backend}): not run: {reason}", info.name))?;
            }
            None => contexts.push(pollster::block_on(args.open_on(&adapter))?),
        }
    }
    match contexts.is_empty() {
        // Says what there is.
        true => Ok(vec![args.open()?]),
        false => Ok(contexts),
    }
}

/// Runs cases as long as there is time.
pub fn measure(
    gpu: &GpuContext,
    cases: &[Case],
    progress: &Progress,
    is_time: impl Fn() -> bool,
) -> Result<Summary, Failure> {
    let mut summary = Summary::new(gpu);
    for (index, case) in cases.iter().enumerate() {
        if !is_time() {
            summary.out_of_time = cases.len() - index;
            break;
        }
        // On a software driver each pipeline takes a megabyte or two, and a full list has thousands.
        if index % 128 == 127 {
            gpu.forget_pipelines();
        }
        progress.step(&format!("{} of {} {case}", index + 1, cases.len()));
        let begun = Instant::now();
        let fault = match pollster::block_on(case.run(gpu)) {
            Err(error @ Error::DeviceLost { .. }) => return Err(error.into()),
            outcome => summary.add(case, outcome, begun.elapsed().as_secs_f64()),
        };
        if let Some(fault) = fault {
            progress.note(&format!("failed: {case}: {fault}"));
        }
    }
    Ok(summary)
}
