//! `wgpu-norm verify`.

use crate::args::{GpuArgs, path};
use crate::failure::Failure;
use crate::output::Output;
use crate::progress::Progress;
use crate::stdout;
use clap::Args;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use wgpu_norm::{Error, GpuContext};
use wgpu_norm_verify::{Case, Summary, cases};

#[derive(Debug, Args)]
pub struct Verify {
    /// Run every case, not only a selection that takes about a minute
    #[arg(long)]
    pub full: bool,
    /// Run on every adapter of the backends, not only the chosen one
    #[arg(long)]
    pub all_adapters: bool,
    /// Run this case alone; the documentation of `wgpu-norm-verify` lists the parts of an ID
    #[arg(long, value_name = "ID", conflicts_with = "full")]
    pub case: Option<Case>,
    /// Write the result of each case to a JSON file
    #[arg(long, value_name = "FILE.json", value_parser = path())]
    pub json: Option<PathBuf>,
}

/// Where no spinner shows the progress, a line is written every so many cases.
const NOTED: usize = 1000;

/// Runs the subcommand.
pub fn run(command: &Verify, args: &GpuArgs) -> Result<(), Failure> {
    let json = command.json.as_deref().map(Output::prepare).transpose()?;
    let progress = Progress::new();
    // The library's warnings go to stderr.
    let contexts = progress.suspend(|| open(command, args))?;
    let one = command.case.as_ref();
    let listed = one.map_or_else(|| cases(command.full), |case| vec![case.clone()]);
    let mut summaries = Vec::new();
    for (gpu, more) in &contexts {
        let summary = measure(gpu, more, &listed, &progress, || true)?;
        progress.suspend(|| stdout::line(summary.to_text(args.profile.as_deref())))?;
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

/// A context on each adapter, and more contexts on the same adapter to run cases in parallel.
fn open(command: &Verify, args: &GpuArgs) -> Result<Vec<(GpuContext, Vec<GpuContext>)>, Failure> {
    let devices = |adapter: &wgpu::Adapter| {
        let open = || pollster::block_on(args.open_on(adapter));
        let more = match command.case {
            Some(_) => 0,
            None => more_devices(&adapter.get_info()),
        };
        let first = open()?;
        Ok::<_, Error>((first, (0..more).map(|_| open()).collect::<Result<_, _>>()?))
    };
    let chosen = || pollster::block_on(args.options().adapter());
    if !command.all_adapters {
        return Ok(vec![devices(&chosen()?)?]);
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
            None => contexts.push(devices(&adapter)?),
        }
    }
    match contexts.is_empty() {
        // The failure lists the adapters that there are.
        true => Ok(vec![devices(&chosen()?)?]),
        false => Ok(contexts),
    }
}

/// The number of further devices that save time: a driver compiles a device's kernels one after another, which takes
/// most of the time. GL devices wait for each other.
fn more_devices(info: &wgpu::AdapterInfo) -> usize {
    match info.backend {
        wgpu::Backend::Gl => 0,
        _ => std::thread::available_parallelism().map_or(0, |count| count.get().min(16) - 1),
    }
}

/// Runs cases while there is time, on all of these contexts of one adapter.
pub fn measure(
    gpu: &GpuContext,
    more: &[GpuContext],
    cases: &[Case],
    progress: &Progress,
    is_time: impl Fn() -> bool + Sync,
) -> Result<Summary, Failure> {
    let begun = Instant::now();
    let summary = Mutex::new(Summary::new(gpu));
    let next = AtomicUsize::new(0);
    let work = |gpu: &GpuContext| {
        for turn in 1.. {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(index).filter(|_| is_time()) else {
                break;
            };
            // On a software driver each pipeline takes a megabyte or two, and the full list has thousands.
            if turn % 64 == 0 {
                gpu.forget_pipelines();
            }
            progress.step(&format!("{} of {} {case}", index + 1, cases.len()));
            if index > 0 && index.is_multiple_of(NOTED) && progress.is_hidden() {
                progress.note(&format!("{index} of {} cases begun", cases.len()));
            }
            let case_begun = Instant::now();
            let outcome = pollster::block_on(case.run(gpu));
            if let Err(error @ Error::DeviceLost { .. }) = outcome {
                next.store(cases.len(), Ordering::Relaxed);
                return Err(error);
            }
            let mut summary = summary.lock().unwrap_or_else(PoisonError::into_inner);
            let seconds = case_begun.elapsed().as_secs_f64();
            if let Some(fault) = summary.add(index, case, outcome, seconds) {
                progress.note(&format!("failed: {case}: {fault}"));
            }
        }
        Ok(())
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let contexts = [gpu].into_iter().chain(more);
        let workers = contexts.map(|gpu| scope.spawn(|| work(gpu)));
        let workers: Vec<_> = workers.collect();
        workers.into_iter().map(|worker| worker.join()).collect()
    });
    for result in results {
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    }
    let mut summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
    summary.finish(cases.len(), begun.elapsed().as_secs_f64());
    Ok(summary)
}
