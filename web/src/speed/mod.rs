//! How fast? Bytes that an operator moves in a second, against a copy of as many bytes, taken in turns.
//!
//! | module | knows |
//! |---|---|
//! | `cases` | the cases |
//! | `device` | buffers, errors, the end of submitted work |
//! | `clock` | how time is taken |
//! | `copy`, `subject` | the work that is timed: copies, operators on their buffers |
//! | `row`, `report` | the measurements of a case, and report.json, which the command turns into its page |
//!
//! The method is that of the command (docs/measuring-a-gpu.md), with less of everything, since it is for a glance: sets
//! of buffers take 256 MB in turns, a case has 7 samples, a copy loads four words of 32 bits, and see `clock` for what
//! a browser lacks.

mod cases;
mod clock;
mod copy;
mod device;
mod report;
// The command's, so that it reads what the page writes.
#[path = "../../../cli/src/results/row.rs"]
mod row;
mod subject;

pub use cases::{Case, Op, Set, is_software};
pub use row::{Model, Row};

use clock::{Clock, median};
use copy::Copier;
use report::{Outcome, Report};
use serde_json::Value;
use std::collections::HashMap;
use subject::Subject;
use web_time::Instant;
use wgpu_norm::{DType, Error, GpuContext};

/// Cases on an adapter, measured one by one.
///
/// Any context serves; those of [`GpuContext::new`] have timestamps where the adapter has them.
pub struct Speed {
    gpu: GpuContext,
    name: Option<String>,
    clock: Clock,
    copier: Copier,
    /// A small buffer, which can be read while the device is there.
    alive: wgpu::Buffer,
    /// Random numbers of each type.
    patterns: HashMap<DType, wgpu::Buffer>,
    cases: Vec<(Case, Outcome)>,
    rounds: usize,
    seconds: f64,
}

impl Speed {
    /// The cases for this kind of adapter. Compiles the copy kernels, looks at the clock and chooses the fastest copy.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub async fn new(gpu: &GpuContext) -> Result<Self, Error> {
        Self::with_cases(gpu, Set::of(gpu).cases()).await
    }

    /// The given cases.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub async fn with_cases(gpu: &GpuContext, cases: Vec<Case>) -> Result<Self, Error> {
        let begin = Instant::now();
        let pattern = device::pattern(gpu, DType::F32)?;
        let (probe, rounds) = match cases::is_software(gpu) {
            true => (8 << 20, 5),
            false => (64 << 20, 7),
        };
        let copier = Copier::new(gpu).await?;
        let copies = copier.prepare(probe, &pattern).await?;
        let clock = Clock::new(gpu, &copies).await?;
        drop(copies);
        let cases = cases.into_iter().map(|case| (case, Outcome::Due));
        Ok(Self {
            gpu: gpu.clone(),
            name: None,
            clock,
            copier,
            alive: gpu.upload("alive", &[0; 4])?,
            patterns: HashMap::from([(DType::F32, pattern)]),
            cases: cases.collect(),
            rounds,
            seconds: begin.elapsed().as_secs_f64(),
        })
    }

    /// Names the adapter in the report. Browsers rarely tell wgpu the name, but say vendor and architecture in
    /// JavaScript.
    #[must_use]
    pub fn named(self, adapter: impl Into<String>) -> Self {
        Self {
            name: Some(adapter.into()),
            ..self
        }
    }

    /// The cases, in the order in which to measure them.
    pub fn cases(&self) -> impl ExactSizeIterator<Item = &Case> {
        self.cases.iter().map(|(case, _)| case)
    }

    /// How times are taken, in words.
    pub fn timing(&self) -> String {
        self.clock.method()
    }

    /// Measures a case, and keeps its row, or the reason why there is none, for the report.
    ///
    /// # Errors
    ///
    /// The reason why the adapter cannot run the case, such as a limit, memory or an element type; the next case may
    /// run. After [`Error::DeviceLost`] none will.
    pub async fn measure(&mut self, index: usize) -> Result<Row, Error> {
        let Some((case, _)) = self.cases.get(index) else {
            let expected = format!("a number below {}", self.cases.len());
            return Err(Error::argument("index", expected, index));
        };
        let case = case.clone();
        let begin = Instant::now();
        let measured = self.row(&case).await;
        self.seconds += begin.elapsed().as_secs_f64();
        if let Some((_, outcome)) = self.cases.get_mut(index) {
            *outcome = match &measured {
                Ok(row) => Outcome::Measured(Box::new(row.clone())),
                Err(error) if is_limit(error) => Outcome::Skipped(error.to_string()),
                Err(error) => Outcome::Failed(error.to_string()),
            };
        }
        measured
    }

    /// report.json of what was measured so far. `verify` is a verdict as the command writes it: an object of `passed`,
    /// `words`, `table` (Markdown) and `details`. The date is in UTC, like 2025-01-31T12:00:00Z.
    pub fn report(&self, verify: Option<Value>, date: String) -> String {
        let name = self.name.as_deref();
        let timing = self.clock.method();
        Report::new(
            &self.gpu,
            name,
            timing,
            &self.cases,
            self.seconds,
            verify,
            date,
        )
        .to_json()
    }

    async fn row(&mut self, case: &Case) -> Result<Row, Error> {
        let (gpu, clock) = (&self.gpu, &mut self.clock);
        let plan = case.operation().plan(gpu.profile())?;
        let pattern = match self.patterns.get(&case.dtype) {
            Some(pattern) => pattern.clone(),
            None => device::pattern(gpu, case.dtype)?,
        };
        self.patterns.insert(case.dtype, pattern.clone());
        let subject = Subject::new(gpu, case, &plan, &pattern).await?;
        self.copier
            .choose(clock, case.copied_bytes(), &pattern)
            .await?;
        let copies = self.copier.prepare(case.copied_bytes(), &pattern).await?;
        let runs = clock.runs(&subject).await?;
        let copy_runs = clock.runs(&copies).await?;

        let (mut records, mut walls, mut times) = (Vec::new(), Vec::new(), Vec::new());
        let (mut copied, mut empties) = (Vec::new(), Vec::new());
        // In turns, so that other load on the machine affects all alike.
        for _ in 0..self.rounds {
            let wall = clock.wall(Some(&subject), 1).await?;
            records.push(wall.record);
            walls.push(wall.total);
            times.push(clock.sample(&subject, runs).await?);
            copied.push(clock.sample(&copies, copy_runs).await?);
            empties.push(clock.wall(None::<&Subject>, 0).await?.total);
        }
        let time_ms = clock.per_run(&times, runs, &empties)?;
        let copy = gb_per_s(copies.bytes(), clock.per_run(&copied, copy_runs, &empties)?);
        let (wall_ms, empty_ms) = (median(&walls), median(&empties));
        // In a browser, work on a lost device ends at once; only reading says so.
        gpu.submit_and_read(|_| {}, std::slice::from_ref(&self.alive))
            .await?;
        let models = case.models().map(|times| {
            let bytes = case.bytes(times);
            Model {
                times,
                bytes,
                fraction_of_copy: Some(gb_per_s(bytes, time_ms) / copy),
            }
        });
        Ok(Row {
            set: case.set.to_owned(),
            op: case.op_name(),
            shape: case.shape_text(),
            dtype: case.dtype.to_string(),
            data_format: case.data_format.map(|format| format.to_string()),
            statistics: "batch".to_owned(),
            param_grads: "both".to_owned(),
            activation: "none".to_owned(),
            samples: Some(times.len() as u64),
            repeats: None,
            limit_times: None,
            time_ms,
            wall_ms,
            empty_submission_ms: clock.resolved(empty_ms),
            over_empty_ms: clock.resolved(wall_ms - empty_ms),
            record_us: clock.record(&subject) * 1e3,
            record_between_us: clock.resolved(median(&records)).map(|ms| ms * 1e3),
            copy_gb_per_s: Some(copy),
            copy_kernel: Some(copies.kernel()),
            portable_copy_gb_per_s: Some(copy),
            copy_buffer_gb_per_s: None,
            models: models.into(),
            kernel: in_groups(&plan.kernels()),
            dispatches: plan.kernels().len() as u64,
            workspace_bytes: Some(plan.workspace_bytes()),
        })
    }
}

/// Whether the adapter cannot run a case for a reason that it is free to have.
fn is_limit(error: &Error) -> bool {
    matches!(
        error,
        Error::Limit { .. }
            | Error::OutOfMemory { .. }
            | Error::HostMemory { .. }
            | Error::UnsupportedDType { .. }
            | Error::Algorithm { .. }
            | Error::SizeOverflow { .. }
    )
}

/// A bandwidth in GB/s (10⁹ bytes).
fn gb_per_s(bytes: u64, ms: f64) -> f64 {
    bytes as f64 / (ms * 1e6)
}

/// The kernels' names in order, with repetitions grouped, as the command writes them.
fn in_groups(names: &[&str]) -> String {
    let groups = names.chunk_by(|a, b| a == b);
    let texts = groups.filter_map(|group| match group {
        [one] => Some((*one).to_owned()),
        [one, ..] => Some(format!("{one}×{}", group.len())),
        [] => None,
    });
    texts.collect::<Vec<_>>().join("+")
}
