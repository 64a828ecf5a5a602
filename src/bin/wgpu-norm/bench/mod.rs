//! `wgpu-norm bench`.
//!
//! | module | knows |
//! |---|---|
//! | `options`, `sets` | the flags, the shapes, and the cases that they make |
//! | `device`, `rotation`, `timing` | buffers, several sets of them in turns, clocks |
//! | `copy`, `subject`, `measure`, `around` | what is timed: copies, operators, both in turns, what surrounds them |
//! | `report`, `plot`, `markdown` | what was found: table and JSON, picture, document |
//! | `tune` | the search for a profile |

mod around;
mod copy;
mod date;
mod device;
mod markdown;
mod measure;
mod options;
mod plot;
mod report;
mod rotation;
mod sets;
mod subject;
mod timing;
mod tune;

pub use options::Bench;

use crate::args::GpuArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::progress::Progress;
use crate::stdout;
use markdown::Document;
use measure::Bencher;
use report::Report;
use sets::{Case, Set};
use timing::Rounds;
use wgpu_norm::{Error, GpuContext};

/// Runs the subcommand.
pub fn run(command: &Bench, gpu: &GpuArgs) -> Result<(), Failure> {
    if let Some(path) = &command.from_json {
        let report = Report::read(path)?;
        let files = Files::prepare(command, &report.set)?;
        report.print()?;
        return files.write(&report);
    }
    let progress = Progress::new();
    // The library's warnings go to stderr.
    let context = progress.suspend(|| gpu.open())?;
    if command.tune {
        return tune::run(command, &context, &progress);
    }
    let (set, name) = match (command.set, command.shape.as_slice()) {
        (Some(set), _) => (set, set.name()),
        (None, []) => (own_set(&context), own_set(&context).name()),
        (None, _) => (own_set(&context), "custom"),
    };
    let cases = command.cases(|op| set.shapes(op));
    let files = Files::prepare(command, name)?;
    let report = measure(command, gpu, &context, &progress, &cases, name)?;
    drop(progress);
    report.print_rest()?;
    files.write(&report)
}

/// The set for the adapter's kind.
fn own_set(gpu: &GpuContext) -> Set {
    match gpu.adapter_info().device_type {
        wgpu::DeviceType::Cpu => Set::Software,
        _ => Set::Gpu,
    }
}

/// Measures all cases, and prints each when it is done.
fn measure(
    command: &Bench,
    args: &GpuArgs,
    gpu: &GpuContext,
    progress: &Progress,
    cases: &[Case],
    set: &str,
) -> Result<Report, Failure> {
    let info = gpu.adapter_info();
    let rounds = Rounds(command.rounds);
    let mut bencher = Bencher::new(gpu, rounds)?;
    let mut report = Report {
        adapter: info.name,
        backend: info.backend.to_string(),
        driver: format!("{} {}", info.driver, info.driver_info)
            .trim()
            .to_owned(),
        kind: format!("{:?}", info.device_type),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        date: date::now(),
        set: set.to_owned(),
        timing: bencher.clock.method().to_owned(),
        tuning: gpu.profile().tuning.to_string(),
        around: None,
        rows: Vec::new(),
        skipped: Vec::new(),
    };
    progress.suspend(|| report.print_head())?;
    if let Some(case) = cases.first() {
        // Before the rest, so that no driver has compiled its kernels yet. What cannot be run is
        // reported below.
        // Opening a device may write to stderr.
        let around = progress.suspend(|| around::measure(args, gpu, case, command.rounds));
        report.around = possible(around)?.ok().flatten();
    }
    let mut refusal = None;
    for (index, case) in cases.iter().enumerate() {
        progress.step(&format!("{case} ({} of {})", index + 1, cases.len()));
        match possible(bencher.measure(case))? {
            Ok(row) => {
                progress.suspend(|| stdout::line(report::line(&row)))?;
                report.rows.push(row);
            }
            Err(error) => {
                report.skipped.push((case.to_string(), error.to_string()));
                refusal.get_or_insert(error);
            }
        }
    }
    match (report.rows.is_empty(), refusal) {
        (true, Some(error)) => Err(error.into()),
        _ => Ok(report),
    }
}

/// A result, or why the adapter cannot run this case; anything else is a failure of the whole.
fn possible<T>(result: Result<T, Error>) -> Result<Result<T, Error>, Failure> {
    match result {
        Err(
            error @ (Error::Limit { .. }
            | Error::OutOfMemory { .. }
            | Error::HostMemory { .. }
            | Error::UnsupportedDType { .. }
            | Error::Algorithm { .. }
            | Error::SizeOverflow { .. }),
        ) => Ok(Err(error)),
        Err(error) => Err(error.into()),
        Ok(value) => Ok(Ok(value)),
    }
}

/// The files to write, looked at before work is spent on their content.
struct Files {
    json: Option<Output>,
    plot: Option<Output>,
    document: Option<Document>,
}

impl Files {
    fn prepare(command: &Bench, set: &str) -> Result<Self, Failure> {
        let output = |path: &Option<_>| -> Result<Option<Output>, Failure> {
            path.as_deref().map(Output::prepare).transpose()
        };
        let name = command.name.as_deref().unwrap_or(set);
        let document = command.markdown.as_deref();
        Ok(Self {
            json: output(&command.json)?,
            plot: output(&command.plot)?,
            document: document
                .map(|path| Document::open(path, name))
                .transpose()?,
        })
    }

    fn write(&self, report: &Report) -> Result<(), Failure> {
        if let Some(json) = &self.json {
            json.write_bytes(&[report.to_json().as_bytes()])?;
        }
        if let Some(plot) = &self.plot {
            plot.write_bytes(&[plot::svg(report).as_bytes()])?;
        }
        match &self.document {
            Some(document) => document.write(report),
            None => Ok(()),
        }
    }
}
