//! `wgpu-norm report`: verifies and measures an adapter within a few minutes.
//!
//! | module | knows |
//! |---|---|
//! | `options` | the flags |
//! | `order` | the order of the cases |
//! | `verify` | the comparison with the reference |
//! | `data` | the findings: report.json |
//! | `page` | report.md |
//! | `folder` | the files, rewritten after each measurement |
//!
//! The rest is shared with `bench`: `measure`, what is measured, and `results`, what was found.

mod data;
mod folder;
mod options;
mod order;
mod page;
mod verify;

pub use options::Report;

use crate::adapters;
use crate::args::{GpuArgs, name_of};
use crate::failure::Failure;
use crate::measure::bencher::Bencher;
use crate::measure::budget::Budget;
use crate::measure::operators::Op;
use crate::measure::search::{Watch, search};
use crate::measure::sets::{Case, Set};
use crate::measure::timing::{Clock, Rounds};
use crate::measure::trial::Trial;
use crate::measure::{around, possible};
use crate::progress::Progress;
use crate::results::markdown::digits;
use crate::results::{Results, Row, Tuned, plot};
use crate::stdout;
use crate::text::{one_line, wrapped};
use data::{Data, Part, State};
use folder::Folder;
use options::Kind;
use std::fmt::Display;
use std::time::Instant;
use wgpu_norm::GpuContext;

/// The shares of the time by which the bench must leave the rest to the search, and by which verify must end.
const BENCH_ENDS: f64 = 0.75;
const VERIFY_ENDS: f64 = 0.25;

/// The number of unexpected failures that the bench tolerates before it gives up: they may be due to a driver that does
/// not recover.
const MOST_FAILURES: usize = 3;

/// The page and the plot of a report's JSON, if it is one.
pub fn redrawn(json: &[u8]) -> Option<(String, String)> {
    let data: Data = serde_json::from_slice(json).ok()?;
    Some((
        page::markdown(&data),
        plot::svg(&data.results, data.pytorch.as_ref()),
    ))
}

/// Runs the subcommand.
pub fn run(command: &Report, args: &GpuArgs) -> Result<(), Failure> {
    if command.redraw {
        let (folder, data) = Folder::open(&command.dir)?;
        folder.write_page(&data)?;
        return stdout::line(folder.page());
    }
    command.selection.check(&command.dtype)?;
    let budget = Budget::minutes(command.minutes);
    let folder = Folder::create(&command.dir)?;
    // Before a driver is asked for anything, which may take long.
    let minutes = command.minutes;
    say(format_args!(
        "measuring for {minutes} min, into {}",
        folder.page()
    ))?;
    let progress = Progress::new();
    // The library's warnings go to stderr.
    let gpu = progress.suspend(|| args.open())?;
    let clock = Clock::new(&gpu)?;
    let results = Results::new(&gpu, clock.method(), clock.stamps(&gpu)?);
    let mut run = Run {
        command,
        args,
        budget,
        folder,
        progress,
        set: Set::of(&gpu),
        gpu,
        data: Data::new(results, command.minutes, &command.parts()),
    };
    for index in 0..run.data.parts.len() {
        run.part(index)?;
    }
    drop(run.progress);
    stdout::line("")?;
    run.data.extent().into_iter().try_for_each(say)?;
    stdout::line(run.folder.page())?;
    say(page::WHERE_TO_SEND.trim_end())?;
    match run.data.failure() {
        Some(what) => Err(Failure::Report { what }),
        None => Ok(()),
    }
}

/// Prints text in lines that fit into most terminals.
fn say(text: impl Display) -> Result<(), Failure> {
    stdout::line(wrapped(&one_line(&text.to_string())))
}

/// A measured case as a line; the files have all its numbers.
fn line(row: &Row) -> String {
    let format = row.data_format.as_deref().unwrap_or_default();
    let case = [&row.op, &row.shape, &row.dtype, format, &row.variant()].join(" ");
    let (time, of_copy) = (row.time_ms, digits(row.fraction(), 2));
    format!(
        "{:<51} {time:>9.4} ms, {of_copy} of the copy bandwidth",
        case.trim_end()
    )
}

struct Run<'a> {
    command: &'a Report,
    args: &'a GpuArgs,
    budget: Budget,
    folder: Folder,
    progress: Progress,
    set: Set,
    gpu: GpuContext,
    data: Data,
}

/// The state of a part at its end, and a note on it.
type Outcome = (State, String);

impl Run<'_> {
    /// Measures a part. Its failure is recorded and does not end the others.
    fn part(&mut self, index: usize) -> Result<(), Failure> {
        let Some(part) = self.data.parts.get(index).cloned() else {
            return Ok(());
        };
        let begin = Instant::now();
        let name = name_of(part.kind);
        self.progress.suspend(|| say(format_args!("{name} …")))?;
        self.progress.step(&name);
        let (state, note) = match self.budget.is_over() {
            true => (State::OutOfTime, String::new()),
            false => {
                self.set_part(index, State::UnderWay, String::new(), 0.0)?;
                let measured = match part.kind {
                    Kind::Adapters => self.adapters(),
                    Kind::Around => self.around(),
                    Kind::Verify => self.verify(),
                    Kind::Bench => self.bench(),
                    Kind::Search => self.search(),
                };
                measured.unwrap_or_else(|failure| (State::Failed, failure.to_string()))
            }
        };
        self.set_part(index, state, note, begin.elapsed().as_secs_f64())
    }

    fn set_part(
        &mut self,
        index: usize,
        state: State,
        note: String,
        seconds: f64,
    ) -> Result<(), Failure> {
        if let Some(part) = self.data.parts.get_mut(index) {
            *part = Part {
                kind: part.kind,
                state,
                note,
                seconds,
            };
        }
        self.folder.write(&self.data)
    }

    fn adapters(&mut self) -> Result<Outcome, Failure> {
        // Looking for adapters may write to stderr.
        self.data.adapters = self.progress.suspend(|| adapters::all(self.args))?;
        Ok((State::Done, String::new()))
    }

    fn around(&mut self) -> Result<Outcome, Failure> {
        let cases = self.cases();
        let Some(case) = cases.first() else {
            return Ok((State::Done, "no case".to_owned()));
        };
        let measure = || around::measure(self.args, &self.gpu, case, self.command.rounds);
        match possible(self.progress.suspend(measure))? {
            Ok(around) => self.data.results.around = around,
            Err(refused) => return Ok((State::NotMeasured, refused.to_string())),
        }
        Ok((State::Done, String::new()))
    }

    fn verify(&mut self) -> Result<Outcome, Failure> {
        let budget = self.budget.until(VERIFY_ENDS);
        let verdict = verify::measure(&self.gpu, budget, &self.progress)?;
        let state = match verdict.passed {
            true => State::Done,
            false => State::Failed,
        };
        let words = verdict.words.clone();
        self.data.verify = Some(verdict);
        Ok((state, words))
    }

    fn bench(&mut self) -> Result<Outcome, Failure> {
        let mut budget = self.budget;
        if self.data.part(Kind::Search).is_some() {
            budget = budget.until(BENCH_ENDS);
        }
        let cases = self.cases();
        let rounds = Rounds(self.command.rounds);
        let mut bencher = Bencher::new(&self.gpu, rounds)?;
        let mut failures = 0;
        let of_all = |done| {
            format!(
                "{done} of {} cases{}",
                cases.len(),
                order::none_of(&cases, done)
            )
        };
        for (index, case) in cases.iter().enumerate() {
            // The search waits for a case of every kind.
            if self.budget.is_over() || budget.is_over() && order::none_of(&cases, index).is_empty()
            {
                return Ok((State::OutOfTime, of_all(index)));
            }
            self.progress
                .step(&format!("{case} ({} of {})", index + 1, cases.len()));
            let error = bencher.add(case, &mut self.data.results, &self.progress, line)?;
            let refused = error.map_or(Ok(Ok(())), |error| possible(Err(error)));
            if let Err(failure) = refused {
                failures += 1;
                if failures > MOST_FAILURES {
                    return Err(failure);
                }
                // The device may be lost.
                self.gpu = self.progress.suspend(|| self.args.open())?;
                bencher = Bencher::new(&self.gpu, rounds)?;
            }
            self.data.note(Kind::Bench, of_all(index + 1));
            self.folder.write(&self.data)?;
        }
        let note = format!("{} cases", cases.len());
        Ok(match failures {
            0 => (State::Done, note),
            _ => (State::Failed, format!("{failures} of {note}")),
        })
    }

    fn search(&mut self) -> Result<Outcome, Failure> {
        let dtypes = self.command.dtype.get(..1).unwrap_or_default();
        let cases =
            self.command
                .selection
                .cases(&Op::USUAL, self.set, Set::representatives, dtypes);
        let mut trial = Trial::new(&self.gpu, &cases, self.command.rounds)?;
        let (tuning, software) = (self.gpu.profile().tuning, self.set == Set::Software);
        let tuned = search(tuning, software, &mut trial, self)?;
        let note = format!("{} values tried", tuned.tried);
        let state = match tuned.complete {
            true => State::Done,
            false => State::OutOfTime,
        };
        self.data.search = Some(tuned);
        Ok((state, note))
    }

    fn cases(&self) -> Vec<Case> {
        order::cases(&self.command.selection, self.set, &self.command.dtype)
    }
}

/// The search writes its findings.
impl Watch for Run<'_> {
    fn go_on(&mut self, what: &str) -> bool {
        self.progress.step(what);
        !self.budget.is_over()
    }

    fn found(&mut self, tuned: &Tuned) -> Result<(), Failure> {
        let noted = self.data.search.as_ref().map_or(0, |old| old.changes.len());
        for change in tuned.changes.iter().skip(noted) {
            self.progress.suspend(|| say(change))?;
        }
        self.data.search = Some(tuned.clone());
        self.data
            .note(Kind::Search, format!("{} values tried", tuned.tried));
        self.folder.write(&self.data)
    }
}
