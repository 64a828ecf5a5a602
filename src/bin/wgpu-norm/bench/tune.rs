//! The search for a profile: one size after the other, each over a few values, while the others stay;
//! a second time over where something was found.

use super::measure::Patterns;
use super::options::Bench;
use super::report::geometric_mean;
use super::sets::{Case, Op, Set};
use super::subject::{Inputs, Planned};
use super::timing::{Clock, median_ms};
use crate::failure::Failure;
use crate::gpu::tuned;
use crate::progress::Progress;
use crate::stdout;
use wgpu_norm::{Error, GpuContext, Tuning};

/// The values that are tried.
const VALUES: &[(&str, &[u32])] = &[
    ("runs_workgroup", &[4, 8, 16, 32, 64, 128, 256, 512]),
    ("columns_workgroup", &[4, 8, 16, 32, 64, 128, 256, 512]),
    ("column_lanes", &[2, 4, 8, 16, 32, 64]),
    ("column_quads", &[1, 2, 4, 8, 16]),
    ("lane_quads", &[1, 2, 4, 8, 16, 32, 128]),
    ("row_lane_quads", &[1, 2, 3, 4, 8, 16]),
    ("row_quads", &[2, 4, 8, 16, 32]),
    ("row_joined", &[1, 4, 16, 64, 256]),
    ("apply_tile", &[1024, 2048, 4096, 8192, 16384, 32768, 65536]),
    ("apply_backwards", &[0, 1]),
    (
        "busy_workgroups",
        &[16, 64, 256, 512, 1024, 2048, 4096, 8192],
    ),
    ("min_split", &[1024, 4096, 16384, 65536]),
    ("walk_pages", &[8, 16, 32, u32::MAX]),
    ("finish_workgroup", &[4, 8, 16, 32, 64, 128, 256]),
    ("finish_lane_quads", &[1, 2, 4, 8, 16, 32]),
    ("short_run", &[4, 16, 32, 64, 128, 256]),
    ("fused_workgroup", &[4, 8, 16, 32, 64, 128, 256, 512, 1024]),
    ("fused_tensor", &[0, 1 << 15, 1 << 17, 1 << 20, 1 << 24]),
    (
        "fused_block",
        &[0, 1024, 4096, 16384, 32768, 131072, 524288, 2097152],
    ),
    ("fused_turn", &[0, 1024, 4096, 16384, 32768, 131072]),
    ("fused_blocks", &[1, 4, 16, 64, 256, 1024]),
    ("fused_adds", &[4, 8, 16, 32, 64, 256]),
    ("fused_columns", &[0, 1024, 4096, 8192, 16384, 32768]),
    ("small_tensor", &[0, 1 << 15, 1 << 17, 1 << 18, 1 << 20]),
    ("row_walk", &[1, 2, 4, 8, 16]),
    ("long_walk", &[4, 8, 32, u32::MAX]),
    ("word_bits", &[32, 64]),
    ("load_bytes", &[8, 16, 32]),
];

/// Sizes that are not searched: they do not bear on speed.
#[cfg(test)]
const FIXED: &[&str] = &["window_unit"];

/// Samples of a case.
const ROUNDS: u32 = 5;

/// Times over all sizes.
const PASSES: usize = 2;

/// The mean logarithm of time that a value has to save, at first sight and when looked at again beside
/// the value that it replaces.
const WORTHWHILE: f64 = 0.02;
const CONFIRMED: f64 = 0.01;

/// Runs `--tune`.
pub fn run(command: &Bench, gpu: &GpuContext, progress: &Progress) -> Result<(), Failure> {
    let set = super::own_set(gpu);
    let cases = command.cases(|op| representatives(set, op));
    progress.step("preparing");
    let mut search = Search::new(gpu, &cases, command.rounds.unwrap_or(ROUNDS))?;
    let start = gpu.profile().tuning;
    let mut best = start;
    let mut score = match search.score(best)? {
        Some(score) => score,
        // Says why.
        None => return Err(search.refusal(best).into()),
    };
    for pass in 0..PASSES {
        let before = best;
        for (key, values) in VALUES {
            for value in *values {
                let candidate = best.overridden(&format!("{key}={value}"))?;
                if candidate == best {
                    continue;
                }
                progress.step(&format!("pass {}: {key}={value}", pass + 1));
                let Some(found) = search.score(candidate)? else {
                    continue;
                };
                if found < score - WORTHWHILE && search.gain(best, candidate)? > CONFIRMED {
                    best = candidate;
                    score = search.score(best)?.unwrap_or(found);
                    progress.note(&format!("{key}={value}: {:.4} ms", score.exp()));
                }
            }
        }
        if best == before {
            break;
        }
    }
    progress.step("comparing");
    let gain = search.gain(start, best)?;
    progress.note(&format!(
        "{:.2} times as fast as before, geometric mean of {} cases; the profile:",
        gain.exp(),
        cases.len()
    ));
    stdout::line(best)
}

/// A few shapes of each kind: planes, short runs, few long channels, columns, rows.
fn representatives(set: Set, op: Op) -> &'static [&'static [usize]] {
    match (set, op) {
        (Set::Gpu, Op::BatchNorm) => &[
            &[50, 256, 56, 56],
            &[50, 1024, 14, 14],
            &[50, 2048, 7, 7],
            &[20, 6, 65536],
            &[65536, 64],
        ],
        (Set::Gpu, Op::LayerNorm) => &[&[8192, 4096], &[65536, 768]],
        (_, Op::BatchNorm) => &[
            &[8, 64, 56, 56],
            &[32, 256, 14, 14],
            &[32, 2048, 7, 7],
            &[2, 3, 512, 512],
            &[65536, 64],
        ],
        (_, Op::LayerNorm) => &[&[512, 4096], &[65536, 64]],
    }
}

/// The cases with their buffers, and what is known of plans already.
struct Search {
    gpu: GpuContext,
    clock: Clock,
    rounds: u32,
    cases: Vec<Prepared>,
}

struct Prepared {
    case: Case,
    inputs: Inputs,
    /// Milliseconds of plans that were measured. Many sizes leave a case's plan as it is.
    known: Vec<(Planned, f64)>,
}

impl Search {
    fn new(gpu: &GpuContext, cases: &[Case], rounds: u32) -> Result<Self, Error> {
        let clock = Clock::new(gpu)?;
        let mut patterns = Patterns::default();
        let mut prepared = Vec::new();
        for case in cases {
            let pattern = patterns.get(gpu, case.dtype)?;
            let inputs = Inputs::new(gpu, &clock, case, &pattern)?;
            let subject = inputs.bind(gpu, &Planned::new(gpu, case)?)?;
            subject.warm(gpu, &clock)?;
            prepared.push(Prepared {
                case: case.clone(),
                inputs,
                known: Vec::new(),
            });
        }
        Ok(Self {
            gpu: gpu.clone(),
            clock,
            rounds,
            cases: prepared,
        })
    }

    /// The mean logarithm of the cases' milliseconds; none where the adapter cannot run one so.
    fn score(&mut self, tuning: Tuning) -> Result<Option<f64>, Failure> {
        let gpu = tuned(&self.gpu, tuning);
        let mut times = Vec::new();
        for prepared in &mut self.cases {
            let time = prepared.time(&gpu, &self.clock, self.rounds);
            match super::possible(time)? {
                Ok(time) => times.push(time),
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(geometric_mean(times.into_iter()).ln()))
    }

    /// What the second tuning saves of the first's time, as a mean logarithm, both measured anew and in
    /// turns.
    fn gain(&mut self, first: Tuning, second: Tuning) -> Result<f64, Failure> {
        let (first, second) = (tuned(&self.gpu, first), tuned(&self.gpu, second));
        let mut ratios = Vec::new();
        for prepared in &mut self.cases {
            ratios.push(prepared.ratio(&first, &second, &self.clock, self.rounds)?);
        }
        Ok(geometric_mean(ratios.into_iter()).ln())
    }

    /// Why a tuning cannot run.
    fn refusal(&self, tuning: Tuning) -> Error {
        let gpu = tuned(&self.gpu, tuning);
        let refused = self.cases.iter().find_map(|prepared| {
            let plan = Planned::new(&gpu, &prepared.case);
            plan.and_then(|plan| prepared.inputs.bind(&gpu, &plan))
                .err()
        });
        refused.unwrap_or(Error::Gpu {
            operation: "tuning".to_owned(),
            message: "the adapter cannot run the cases".to_owned(),
        })
    }
}

impl Prepared {
    fn time(&mut self, gpu: &GpuContext, clock: &Clock, rounds: u32) -> Result<f64, Error> {
        let plan = Planned::new(gpu, &self.case)?;
        if let Some((_, time)) = self.known.iter().find(|(known, _)| *known == plan) {
            return Ok(*time);
        }
        let subject = self.inputs.bind(gpu, &plan)?;
        let mut samples = Vec::new();
        for turn in 0..=rounds as usize {
            let time = clock.gpu(|encoder| subject.record(encoder, turn))?;
            // The first may still compile.
            if turn > 0 {
                samples.push(time);
            }
        }
        let time = median_ms(&samples);
        self.known.push((plan, time));
        Ok(time)
    }

    /// The first one's time over the second one's.
    fn ratio(
        &mut self,
        first: &GpuContext,
        second: &GpuContext,
        clock: &Clock,
        rounds: u32,
    ) -> Result<f64, Error> {
        let plans = (
            Planned::new(first, &self.case)?,
            Planned::new(second, &self.case)?,
        );
        if plans.0 == plans.1 {
            return Ok(1.0);
        }
        let subjects = (
            self.inputs.bind(first, &plans.0)?,
            self.inputs.bind(second, &plans.1)?,
        );
        let mut samples = (Vec::new(), Vec::new());
        for turn in 0..=2 * rounds as usize {
            let times = (
                clock.gpu(|encoder| subjects.0.record(encoder, 2 * turn))?,
                clock.gpu(|encoder| subjects.1.record(encoder, 2 * turn + 1))?,
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
        Ok(times.0 / times.1)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_size_is_searched_and_every_value_is_allowed() {
        let text = Tuning::GPU.to_string();
        let keys: Vec<&str> = text
            .split(',')
            .map(|pair| pair.split_once('=').unwrap().0)
            .collect();
        for key in &keys {
            let searched = VALUES.iter().any(|(name, _)| name == key);
            assert!(searched != FIXED.contains(key), "{key}");
        }
        for (key, values) in VALUES {
            assert!(keys.contains(key), "{key}");
            for value in *values {
                Tuning::GPU.overridden(&format!("{key}={value}")).unwrap();
            }
        }
    }
}
