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

    /// The ratios of the cases whose plans differ: by the times of both in turns, or of each alone, which may be known.
    fn ratios(
        &mut self,
        first: Tuning,
        second: Tuning,
        in_turns: bool,
    ) -> Result<Vec<Ratio>, Error> {
        let (first, second) = (tuned(&self.gpu, first), tuned(&self.gpu, second));
        let (clock, rounds) = (&self.clock, self.rounds as usize);
        let mut ratios = Vec::new();
        for prepared in &mut self.cases {
            let operation = prepared.case.operation();
            let before = operation.plan(first.profile())?;
            let after = operation.plan(second.profile())?;
            if before == after {
                continue;
            }
            let plans = [(&first, &before), (&second, &after)];
            if in_turns {
                prepared.measure(&plans, clock, 2 * rounds)?;
            }
            for (gpu, plan) in plans {
                if prepared.known(plan).is_none() {
                    prepared.measure(&[(gpu, plan)], clock, rounds)?;
                }
            }
            ratios.extend(prepared.ratio(&before, &after));
        }
        Ok(ratios)
    }
}

impl Measure for Trial {
    fn cases(&self) -> Vec<String> {
        let cases = self.cases.iter();
        cases.map(|prepared| prepared.case.to_string()).collect()
    }

    fn look(&mut self, first: Tuning, second: Tuning) -> Result<Option<Vec<Ratio>>, Failure> {
        match self.ratios(first, second, false) {
            Ok(ratios) => Ok(Some(ratios)),
            Err(error @ Error::DeviceLost { .. }) => Err(error.into()),
            // A driver may refuse one kernel and still run the others.
            Err(_) => Ok(None),
        }
    }

    fn compare(&mut self, first: Tuning, second: Tuning) -> Result<Vec<Ratio>, Failure> {
        Ok(self.ratios(first, second, true)?)
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

    fn known(&self, plan: &Plan) -> Option<f64> {
        let mut known = self.known.iter();
        known
            .find(|(known, _)| known == plan)
            .map(|(_, time)| *time)
    }

    fn ratio(&self, before: &Plan, after: &Plan) -> Option<Ratio> {
        Some(Ratio {
            case: self.case.to_string(),
            times_as_fast: self.known(before)? / self.known(after)?,
        })
    }

    /// Measures plans in turns.
    fn measure(
        &mut self,
        plans: &[(&GpuContext, &Plan)],
        clock: &Clock,
        rounds: usize,
    ) -> Result<(), Error> {
        let mut subjects = Vec::new();
        for (gpu, plan) in plans {
            subjects.push((self.inputs.bind(gpu, plan)?, Vec::new()));
        }
        for turn in 0..=rounds {
            for (index, (subject, samples)) in subjects.iter_mut().enumerate() {
                let time = subject.time(clock, self.repeats, plans.len() * turn + index)?;
                // The first may still compile.
                if turn > 0 {
                    samples.push(time);
                }
            }
        }
        for (&(_, plan), (_, samples)) in plans.iter().zip(&subjects) {
            self.known.retain(|(known, _)| known != plan);
            self.known.push((plan.clone(), median_ms(samples)));
        }
        Ok(())
    }
}
