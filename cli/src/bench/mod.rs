//! `wgpu-norm bench`.
//!
//! | module | knows |
//! |---|---|
//! | `options` | the flags |
//! | `document` | the place of a table in a document |
//!
//! The rest is shared with `report`: `measure`, what is measured, and `results`, what was found.

mod document;
mod options;

pub use options::Bench;

use crate::args::GpuArgs;
use crate::failure::Failure;
use crate::measure::bencher::Bencher;
use crate::measure::budget::Budget;
use crate::measure::operators::Op;
use crate::measure::search::{Watch, search};
use crate::measure::sets::{Case, Set};
use crate::measure::timing::Rounds;
use crate::measure::trial::Trial;
use crate::measure::{around, possible};
use crate::output::Output;
use crate::progress::Progress;
use crate::results::{self, Results, Tuned, plot, table};
use crate::stdout;
use document::Document;
use wgpu_norm::GpuContext;

/// Runs the subcommand.
pub fn run(command: &Bench, gpu: &GpuArgs) -> Result<(), Failure> {
    if let Some(path) = &command.from_json {
        let results = Results::read(path)?;
        let files = Files::prepare(command, results.set())?;
        table::print(&results)?;
        return files.write(&results);
    }
    command.selection.check(&command.dtype)?;
    let progress = Progress::new();
    // The library's warnings go to stderr.
    let context = progress.suspend(|| gpu.open())?;
    let set = command.set.unwrap_or(Set::of(&context));
    if command.tune {
        return tune(command, &context, set, &progress);
    }
    let cases = command
        .selection
        .cases(&Op::USUAL, set, Set::shapes, &command.dtype);
    let files = Files::prepare(command, command.selection.set(set))?;
    let results = measure(command, gpu, &context, &progress, &cases)?;
    drop(progress);
    table::print_rest(&results)?;
    files.write(&results)
}

/// Measures all cases, and prints each when it is done.
fn measure(
    command: &Bench,
    args: &GpuArgs,
    gpu: &GpuContext,
    progress: &Progress,
    cases: &[Case],
) -> Result<Results, Failure> {
    let mut bencher = Bencher::new(gpu, Rounds(command.rounds))?;
    let clock = &bencher.clock;
    let mut results = Results::new(gpu, clock.method(), clock.stamps(gpu)?);
    progress.suspend(|| table::print_head(&results))?;
    if let Some(case) = cases.first() {
        // Measured before the rest, while no driver has compiled its kernels. A case that cannot run is reported below.
        // Opening a device may write to stderr.
        let around = progress.suspend(|| around::measure(args, gpu, case, command.rounds));
        results.around = possible(around)?.ok().flatten();
    }
    let mut refused = None;
    for (index, case) in cases.iter().enumerate() {
        progress.step(&format!("{case} ({} of {})", index + 1, cases.len()));
        if let Some(error) = bencher.add(case, &mut results, progress, table::line)? {
            refused = refused.or(possible::<()>(Err(error))?.err());
        }
    }
    match (results.rows.is_empty(), refused) {
        (true, Some(error)) => Err(error.into()),
        _ => Ok(results),
    }
}

/// The files to write, checked before work is spent on their content.
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

    fn write(&self, results: &Results) -> Result<(), Failure> {
        if let Some(json) = &self.json {
            json.write_bytes(&[results::to_json(results).as_bytes()])?;
        }
        if let Some(plot) = &self.plot {
            plot.write_bytes(&[plot::svg(results, None).as_bytes()])?;
        }
        match &self.document {
            Some(document) => document.write(results),
            None => Ok(()),
        }
    }
}

/// Searches for a tuning and prints it.
fn tune(command: &Bench, gpu: &GpuContext, set: Set, progress: &Progress) -> Result<(), Failure> {
    let cases = command
        .selection
        .cases(&Op::USUAL, set, Set::representatives, &command.dtype);
    progress.step("preparing");
    let mut trial = Trial::new(gpu, &cases, command.rounds)?;
    let mut watch = Notes {
        progress,
        budget: command.minutes.map(Budget::minutes),
        noted: 0,
    };
    let software = set == Set::Software;
    let tuned = search(gpu.profile().tuning, software, &mut trial, &mut watch)?;
    progress.note(&format!(
        "{:.2} times as fast as before, geometric mean of {} cases{}; the profile:",
        tuned.times_as_fast(),
        tuned.cases.len(),
        if tuned.complete {
            ""
        } else {
            ", when time ran out"
        },
    ));
    stdout::line(tuned.to)
}

/// Says on stderr what is tried and what was adopted.
struct Notes<'a> {
    progress: &'a Progress,
    budget: Option<Budget>,
    noted: usize,
}

impl Watch for Notes<'_> {
    fn go_on(&mut self, what: &str) -> bool {
        self.progress.step(what);
        self.budget.as_ref().is_none_or(|budget| !budget.is_over())
    }

    fn found(&mut self, tuned: &Tuned) -> Result<(), Failure> {
        for change in tuned.changes.iter().skip(self.noted) {
            self.progress.note(&change.to_string());
        }
        self.noted = tuned.changes.len();
        Ok(())
    }
}
