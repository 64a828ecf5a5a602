//! Random operations on pieces that fit a memory budget: the same bits as at once where a stream promises them, and
//! within rounding everywhere.

use crate::common::data::assert_close;
use crate::common::storage::Memory;
use crate::{Fault, Report, Share};
use pollster::block_on;
use wgpu_norm::stream::Stream;
use wgpu_norm::{Algorithm, Error, Norm};

pub fn run(share: &Share<'_>) -> Report {
    share.each_problem(1 << 16, |draw, drawn| {
        let (gpu, problem) = (&drawn.subject.gpu, &drawn.problem);
        let operation = &problem.operation;
        // The error names the smallest budget.
        let least = match Stream::new(gpu, operation, 0) {
            Err(Error::Budget { expected, .. }) => expected,
            Err(error) => return Err(error.into()),
            Ok(_) => return Err("a stream without memory".to_owned().into()),
        };
        let budget = least + draw.below(least + 1);
        let stream = Stream::new(gpu, operation, budget)
            .map_err(|error| format!("with a budget of {budget}: {error}"))?;
        if stream.memory() > budget {
            return Err(Fault::Wrong(format!(
                "{} bytes, not {budget}",
                stream.memory()
            )));
        }
        let mut memory = Memory::new(problem);
        block_on(stream.run(&mut memory)).unwrap();
        let got = memory.results(problem);
        let what = format!("in pieces of a budget of {budget} bytes");
        assert_close(&got, &problem.reference(), &what);
        let algorithm = operation.plan(gpu.profile())?.algorithm();
        let adds_alike = stream.algorithm() == algorithm
            && ![Algorithm::RowsReadTwice, Algorithm::ColumnsReadTwice].contains(&algorithm)
            && !matches!(operation.norm, Norm::Axes { .. });
        if adds_alike && got != problem.run(&drawn.subject)? {
            return Err(format!("other bits {what}").into());
        }
        Ok(())
    })
}
