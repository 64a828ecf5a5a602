//! Measures a case: the operator, a copy of as many bytes and an empty submission in alternation, so that other load on
//! the machine affects all three alike.

use super::copy::{Choices, Copier};
use super::rotation;
use super::sets::Case;
use super::subject::Inputs;
use super::timing::{Clock, Rounds, gb_per_s, median_ms};
use crate::attributes::Choice as _;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::results::{Model, Results, Row, Skipped};
use crate::stdout;
use std::collections::HashMap;
use std::time::Instant;
use wgpu_norm::{DType, Error, GpuContext};

/// The state that a run's cases share.
pub struct Bencher {
    gpu: GpuContext,
    pub clock: Clock,
    rounds: Rounds,
    copier: Copier,
    patterns: Patterns,
    /// The best copy kernels for each number of bytes.
    choices: HashMap<u64, Choices>,
}

/// The random numbers of each element type, created once.
#[derive(Default)]
pub struct Patterns(HashMap<DType, wgpu::Buffer>);

impl Patterns {
    pub fn get(&mut self, gpu: &GpuContext, dtype: DType) -> Result<wgpu::Buffer, Error> {
        if let Some(pattern) = self.0.get(&dtype) {
            return Ok(pattern.clone());
        }
        let pattern = rotation::pattern(gpu, dtype)?;
        self.0.insert(dtype, pattern.clone());
        Ok(pattern)
    }
}

impl Bencher {
    pub fn new(gpu: &GpuContext, rounds: Rounds) -> Result<Self, Error> {
        Ok(Self {
            gpu: gpu.clone(),
            clock: Clock::new(gpu)?,
            rounds,
            copier: Copier::new(gpu)?,
            patterns: Patterns::default(),
            choices: HashMap::new(),
        })
    }

    /// Measures a case, prints its line and adds it to the results. If that fails, adds the reason and returns it.
    pub fn add(
        &mut self,
        case: &Case,
        results: &mut Results,
        progress: &Progress,
        line: fn(&Row) -> String,
    ) -> Result<Option<Error>, Failure> {
        match self.measure(case) {
            Ok(row) => {
                progress.suspend(|| stdout::line(line(&row)))?;
                results.push(row);
                Ok(None)
            }
            Err(error) => {
                results.skipped.push(Skipped {
                    case: case.to_string(),
                    reason: error.to_string(),
                });
                Ok(Some(error))
            }
        }
    }

    fn measure(&mut self, case: &Case) -> Result<Row, Error> {
        let Self {
            gpu,
            clock,
            rounds,
            copier,
            patterns,
            choices,
        } = self;
        let plan = case.operation().plan(gpu.profile())?;
        let pattern = patterns.get(gpu, case.dtype)?;
        let inputs = Inputs::new(gpu, clock, case, &pattern, rotation::TOTAL)?;
        let subject = inputs.bind(gpu, &plan)?;
        subject.warm(gpu, clock)?;
        let repeats = clock.repeats(&|encoder, run| subject.record(encoder, run))?;
        let copies = copier.prepare(case.copied_bytes(), repeats, clock, &pattern)?;
        let best = match choices.get(&copies.bytes) {
            Some(&best) => best,
            None => copier.choose(clock, &copies)?,
        };
        choices.insert(copies.bytes, best);
        let plain = copier.plain(clock, &copies, *rounds)?;

        let (mut records, mut walls, mut times) = (Vec::new(), Vec::new(), Vec::new());
        let (mut copied, mut portably) = (Vec::new(), Vec::new());
        let mut empties = Vec::new();
        let begin = Instant::now();
        let (mut turn, mut copies_made) = (0, 0);
        while rounds.go_on(walls.len(), begin) {
            let wall = clock.wall(|encoder| subject.record(encoder, turn))?;
            records.push(wall.record);
            walls.push(wall.total);
            turn += 1;
            if clock.has_timestamps() {
                times.push(subject.time(clock, repeats, turn)?);
                turn += 1;
            }
            copied.push(copier.time(clock, best.of_all, &copies, copies_made)?);
            copies_made += 1;
            if best.portable != best.of_all {
                portably.push(copier.time(clock, best.portable, &copies, copies_made)?);
                copies_made += 1;
            }
            empties.push(clock.wall(|_| {})?.total);
        }
        let wall_ms = median_ms(&walls);
        let time_ms = match clock.has_timestamps() {
            true => median_ms(&times),
            false => wall_ms,
        };
        let copy = gb_per_s(copies.bytes, median_ms(&copied));
        let portable_copy = match portably.is_empty() {
            true => copy,
            false => gb_per_s(copies.bytes, median_ms(&portably)),
        };
        let model = |&times: &u64| {
            let bytes = case.bytes(times);
            Model {
                times,
                bytes,
                fraction_of_copy: Some(gb_per_s(bytes, time_ms) / copy),
            }
        };
        let empty_submission_ms = median_ms(&empties);
        Ok(Row {
            set: case.set.to_owned(),
            op: case.op.name(),
            shape: case.shape.to_string(),
            dtype: case.dtype.to_string(),
            data_format: case.data_format.map(|format| format.to_string()),
            statistics: case.statistics.name().to_owned(),
            param_grads: if case.param_grads { "both" } else { "none" }.to_owned(),
            activation: case.activation.name().to_owned(),
            samples: Some(walls.len() as u64),
            repeats: Some(repeats as u64),
            time_ms,
            wall_ms,
            empty_submission_ms: Some(empty_submission_ms),
            over_empty_ms: Some(wall_ms - empty_submission_ms),
            record_us: clock.record_ms(|encoder, turn| subject.record(encoder, turn)) * 1e3,
            record_between_us: Some(median_ms(&records) * 1e3),
            copy_gb_per_s: Some(copy),
            copy_kernel: Some(copier.name(best.of_all)),
            portable_copy_gb_per_s: Some(portable_copy),
            copy_buffer_gb_per_s: Some(gb_per_s(copies.bytes, plain)),
            models: case.models().iter().map(model).collect(),
            limit_times: case.limit(),
            kernel: in_groups(&plan.kernels()),
            dispatches: plan.kernels().len() as u64,
            workspace_bytes: Some(plan.workspace_bytes()),
        })
    }
}

/// The kernels' names in order, with repetitions grouped: `channels_first_reduce×2+finish+channels_first_apply×2`.
fn in_groups(names: &[&str]) -> String {
    let groups = names.chunk_by(|a, b| a == b);
    let texts = groups.map(|group| match group {
        [one] => (*one).to_owned(),
        [one, ..] => format!("{one}×{}", group.len()),
        [] => String::new(),
    });
    texts.collect::<Vec<_>>().join("+")
}
