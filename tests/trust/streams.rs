//! Random operations on pieces that fit a memory budget: the same bits as at once, or rounding.

use crate::common::data::{Problem, assert_close};
use crate::common::storage::Memory;
use crate::draw::Draw;
use crate::{Report, Share};
use pollster::block_on;
use std::panic::{AssertUnwindSafe, catch_unwind};
use wgpu_norm::Error;
use wgpu_norm::stream::Stream;
use wgpu_norm_verify::{Case, Random};

pub fn run(share: &Share<'_>) -> Report {
    let gpu = &share.gpus[0];
    let mut draw = Draw(Random::new(share.seed ^ 0xa5a5));
    let mut report = Report::default();
    for turn in 0.. {
        if !share.is_time() {
            break;
        }
        if turn % 300 == 0 {
            gpu.forget_pipelines();
        }
        let Ok(case) = draw.case(1 << 16).parse::<Case>() else {
            continue;
        };
        let operation = case.operation();
        // The error names the smallest budget.
        let least = match Stream::new(gpu, operation, 0) {
            Err(Error::Budget { expected, .. }) if case.inputs().is_ok() => expected,
            _ => {
                report.add(Ok(false));
                continue;
            }
        };
        let budget = least + draw.below(least + 1);
        let stream = match Stream::new(gpu, operation, budget) {
            Ok(stream) => stream,
            Err(error) => {
                report.add(Err(format!(
                    "{operation} with a budget of {budget}: {error}"
                )));
                continue;
            }
        };
        let data = draw.below(1 << 20);
        let problem = Problem::random(operation, data);
        let what = format!("{case}, data {data}, in pieces of a budget of {budget} bytes");
        let checked = catch_unwind(AssertUnwindSafe(|| {
            let mut memory = Memory::new(&problem);
            block_on(stream.run(&mut memory)).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_close(&memory.results(&problem), &problem.reference(), &what);
        }));
        report.add(checked.map(|()| true).map_err(|_| what));
    }
    report
}
