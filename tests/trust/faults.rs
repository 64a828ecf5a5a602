//! Devices that are destroyed at any time of a call.

use crate::common::data::{Problem, assert_close};
use crate::{Fault, Report, Share};
use pollster::block_on;
use std::thread;
use std::time::{Duration, Instant};
use wgpu_norm::{ContextOptions, Error, GpuContext};

pub fn run(share: &Share<'_>) -> Report {
    share.each_problem(1 << 12, |draw, drawn| {
        let (gpu, problem) = (&drawn.subject.gpu, &drawn.problem);
        let options = ContextOptions::default()
            .backends(gpu.adapter_info().backend.into())
            .adapter_name(&gpu.adapter_info().name);
        let own = block_on(GpuContext::with_options(options)).map_err(|error| error.to_string())?;
        let own = own.with_profile(gpu.profile().clone());
        // Kernels are compiled before, so that any step is hit.
        call(&own, problem)?;
        let begun = Instant::now();
        call(&own, problem)?;
        let after = Duration::from_micros(draw.below(1 + begun.elapsed().as_micros() as u64));
        let device = own.device().clone();
        thread::scope(|scope| {
            scope.spawn(move || {
                thread::sleep(after);
                device.destroy();
            });
            match call(&own, problem) {
                Ok(()) => Ok(()),
                Err(Error::DeviceLost { .. }) => Ok(()),
                Err(error) => Err(Fault::Wrong(format!(
                    "the device was destroyed after {after:?}: {error}"
                ))),
            }
        })
    })
}

/// Makes a call, whose results must be right.
fn call(gpu: &GpuContext, problem: &Problem) -> Result<(), Error> {
    let results = problem
        .run_by(|inputs, outputs| block_on(problem.operation.run_into(gpu, inputs, outputs)))?;
    assert_close(&results, &problem.reference(), "");
    Ok(())
}
