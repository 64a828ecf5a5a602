//! Random operations on pieces that fit a memory budget: the same bits as at once, or rounding.

use crate::common::data::{Problem, assert_close};
use crate::draw::Draw;
use crate::{Report, Share};
use pollster::block_on;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use wgpu_norm::stream::{Storage, Stream};
use wgpu_norm::{Error, Tensor};
use wgpu_norm_verify::{Case, Random};

struct Memory(HashMap<Tensor, Vec<u8>>);

impl Storage for Memory {
    type Error = Error;

    async fn read(&mut self, tensor: Tensor, offset: u64, to: &mut [u8]) -> Result<(), Error> {
        to.copy_from_slice(&self.0[&tensor][offset as usize..][..to.len()]);
        Ok(())
    }

    async fn write(&mut self, tensor: Tensor, offset: u64, from: &[u8]) -> Result<(), Error> {
        let bytes = self.0.get_mut(&tensor).unwrap();
        bytes[offset as usize..][..from.len()].copy_from_slice(from);
        Ok(())
    }
}

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
            let results = problem.results();
            let all = problem.inputs.iter().chain(&results);
            let memory = all.map(|values| {
                let mut bytes = values.bytes.clone();
                bytes.resize(bytes.len().next_multiple_of(4), 0); // whole words are moved
                (values.used.tensor, bytes)
            });
            let mut memory = Memory(memory.collect());
            block_on(stream.run(&mut memory)).unwrap_or_else(|error| panic!("{what}: {error}"));
            let mut got = results;
            for values in &mut got {
                let own = &memory.0[&values.used.tensor];
                values.bytes = own[..values.bytes.len()].to_vec();
            }
            assert_close(&got, &problem.reference(), &what);
        }));
        report.add(checked.map(|()| true).map_err(|_| what));
    }
    report
}
