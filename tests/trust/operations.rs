//! Random operations in random ways, compared with the float64 reference, with guard bytes around every tensor; the
//! reference itself, for one in ten, with plain formulas.

use crate::draw::Draw;
use crate::{Report, Share, plain};
use pollster::block_on;
use wgpu_norm::{Error, GpuContext};
use wgpu_norm_verify::{Case, Outcome, Random};

/// The largest tensors have so many elements.
const MOST: u64 = 1 << 18;

/// Drivers keep a compiled kernel for as long as its pipeline lives: lavapipe 2 to 3 MB.
const KEPT: u64 = 100;

pub fn run(share: &Share<'_>) -> Report {
    let gpu = &share.gpus[0];
    let mut draw = Draw(Random::new(share.seed));
    let mut report = Report::default();
    for turn in 0.. {
        if !share.is_time() {
            break;
        }
        if turn % KEPT == 0 {
            gpu.forget_pipelines();
        }
        for id in draw.cases(MOST) {
            let case: Case = match id.parse() {
                Ok(case) => case,
                Err(error) => {
                    report.add(Err(format!("{id}: {error}")));
                    continue;
                }
            };
            if draw.one_in(10) {
                let by_hand = plain::check(&case);
                report.add(by_hand.map_err(|fault| format!("{case}, by hand: {fault}")));
            }
            report.add(attempt(gpu, &case));
        }
    }
    report
}

fn attempt(gpu: &GpuContext, case: &Case) -> Result<bool, String> {
    match block_on(case.run(gpu)) {
        Ok(Outcome::Ran { fault: None, .. }) => Ok(true),
        Ok(Outcome::Ran {
            fault: Some(fault), ..
        }) => Err(format!("{case}: {fault}")),
        Ok(_) => Ok(false),
        // What cannot be combined.
        Err(Error::Argument { .. } | Error::StatisticsDType { .. } | Error::Rank { .. }) => {
            Ok(false)
        }
        Err(error) => Err(format!("{case}: {error}")),
    }
}
