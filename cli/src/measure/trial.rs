//! The measurements for the tuning search: a few cases on the GPU.

use super::bencher::Patterns;
use super::search::Measure;
use super::sets::Case;
use super::subject::Inputs;
use super::timing::{Clock, median_ms};
use super::{possible, rotation};
use crate::failure::Failure;
use crate::gpu::tuned;
use crate::results::Ratio;
use wgpu_norm::{Error, GpuContext, Plan, Tuning};

/// Samples per case.
const ROUNDS: u32 = 5;

/// The size in bytes of a case's buffers: those of all cases exist at the same time.
const BYTES: u64 = rotation::TOTAL / 4;

/// The cases with their buffers, and the plans' known times.
pub struct Trial {
    gpu: GpuContext,
    clock: Clock,
    rounds: u32,
    cases: Vec<Prepared>,
}

struct Prepared {
    case: Case,
    inputs: Inputs,
    /// The number of runs in a sample.
    repeats: usize,
    /// The times in milliseconds of plans that were measured. Many sizes leave a case's plan as it is.
    known: Vec<(Plan, f64)>,
}

impl Trial {
    /// Prepares the cases that the adapter can run; fails if there is none.
    pub fn new(gpu: &GpuContext, cases: &[Case], rounds: Option<u32>) -> Result<Self, Failure> {
        let clock = Clock::new(gpu)?;
        let mut patterns = Patterns::default();
        let (mut prepared, mut refused) = (Vec::new(), None);
        for case in cases {
            match possible(Prepared::new(gpu, &clock, &mut patterns, case))? {
                Ok(case) => prepared.push(case),
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            Some(error) if prepared.is_empty() => Err(error.into()),
            _ => Ok(Self {
                gpu: gpu.clone(),
                clock,
                rounds: rounds.unwrap_or(ROUNDS),
                cases: prepared,
            }),
        }
    }
}

impl Measure for Trial {
    fn cases(&self) -> Vec<String> {
        let cases = self.cases.iter();
        cases.map(|prepared| prepared.case.to_string()).collect()
    }

    fn look(&mut self, first: Tuning, second: Tuning) -> Result<Option<Vec<Ratio>>, Failure> {
        let (first, second) = (tuned(&self.gpu, first), tuned(&self.gpu, second));
        let mut ratios = Vec::new();
        for prepared in &mut self.cases {
            match prepared.look(&first, &second, &self.clock, self.rounds) {
                Ok(ratio) => ratios.extend(ratio),
                Err(error @ Error::DeviceLost { .. }) => return Err(error.into()),
                // A driver may refuse one kernel and still run the others.
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(ratios))
    }

    fn compare(&mut self, first: Tuning, second: Tuning) -> Result<Vec<Ratio>, Failure> {
        let (first, second) = (tuned(&self.gpu, first), tuned(&self.gpu, second));
        let mut ratios = Vec::new();
        for prepared in &mut self.cases {
            ratios.extend(prepared.compare(&first, &second, &self.clock, self.rounds)?);
        }
        Ok(ratios)
    }
}

impl Prepared {
    fn new(
        gpu: &GpuContext,
        clock: &Clock,
        patterns: &mut Patterns,
        case: &Case,
    ) -> Result<Self, Error> {
        let pattern = patterns.get(gpu, case.dtype)?;
        let inputs = Inputs::new(gpu, clock, case, &pattern, BYTES)?;
        let subject = inputs.bind(gpu, &case.operation().plan(gpu.profile())?)?;
        subject.warm(gpu, clock)?;
        Ok(Self {
            case: case.clone(),
            inputs,
            repeats: clock.repeats(&|encoder, run| subject.record(encoder, run))?,
            known: Vec::new(),
        })
    }

    fn ratio(&self, times: (f64, f64)) -> Ratio {
        Ratio {
            case: self.case.to_string(),
            times_as_fast: times.0 / times.1,
        }
    }

    /// None if the plan does not change.
    fn look(
        &mut self,
        first: &GpuContext,
        second: &GpuContext,
        clock: &Clock,
        rounds: u32,
    ) -> Result<Option<Ratio>, Error> {
        let operation = self.case.operation();
        let plans = (
            operation.plan(first.profile())?,
            operation.plan(second.profile())?,
        );
        if plans.0 == plans.1 {
            return Ok(None);
        }
        let times = (
            self.time(first, plans.0, clock, rounds)?,
            self.time(second, plans.1, clock, rounds)?,
        );
        Ok(Some(self.ratio(times)))
    }

    fn time(
        &mut self,
        gpu: &GpuContext,
        plan: Plan,
        clock: &Clock,
        rounds: u32,
    ) -> Result<f64, Error> {
        if let Some((_, time)) = self.known.iter().find(|(known, _)| *known == plan) {
            return Ok(*time);
        }
        let subject = self.inputs.bind(gpu, &plan)?;
        let mut samples = Vec::new();
        for turn in 0..=rounds as usize {
            let time = subject.time(clock, self.repeats, turn)?;
            // The first may still compile.
            if turn > 0 {
                samples.push(time);
            }
        }
        let time = median_ms(&samples);
        self.known.push((plan, time));
        Ok(time)
    }

    /// None if the plan does not change.
    fn compare(
        &mut self,
        first: &GpuContext,
        second: &GpuContext,
        clock: &Clock,
        rounds: u32,
    ) -> Result<Option<Ratio>, Error> {
        let operation = self.case.operation();
        let plans = (
            operation.plan(first.profile())?,
            operation.plan(second.profile())?,
        );
        if plans.0 == plans.1 {
            return Ok(None);
        }
        let subjects = (
            self.inputs.bind(first, &plans.0)?,
            self.inputs.bind(second, &plans.1)?,
        );
        let mut samples = (Vec::new(), Vec::new());
        for turn in 0..=2 * rounds as usize {
            let times = (
                subjects.0.time(clock, self.repeats, 2 * turn)?,
                subjects.1.time(clock, self.repeats, 2 * turn + 1)?,
            );
            if turn > 0 {
                samples.0.push(times.0);
                samples.1.push(times.1);
            }
        }
        let times = (median_ms(&samples.0), median_ms(&samples.1));
        for (plan, time) in [(plans.0, times.0), (plans.1, times.1)] {
            self.known.retain(|(known, _)| *known != plan);
            self.known.push((plan, time));
        }
        Ok(Some(self.ratio(times)))
    }
}
