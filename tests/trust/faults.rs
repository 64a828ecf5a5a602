//! What goes wrong around calls: futures that are dropped at any await, devices that are destroyed at any time, and
//! many calls in one process.

use crate::common::data::{Problem, Values, error, find};
use crate::common::polls::poll_times;
use crate::draw::Draw;
use crate::{Report, Share};
use std::pin::pin;
use std::thread;
use std::time::Duration;
use wgpu_norm::{Error, GpuContext};
use wgpu_norm_verify::{Case, Random};

pub fn run(share: &Share<'_>) -> Report {
    let gpu = &share.gpus[0];
    let mut draw = Draw(Random::new(share.seed ^ 0x3c3c));
    let mut report = Report::default();
    let begun = resident();
    for turn in 1_u64.. {
        if !share.is_time() {
            break;
        }
        let Ok(case) = draw.case(1 << 10).parse::<Case>() else {
            continue;
        };
        let operation = case.operation();
        if operation.plan(gpu.profile()).is_err() || case.inputs().is_err() {
            report.add(Ok(false));
            continue;
        }
        let data = draw.below(1 << 20);
        let problem = Problem::random(operation, data);
        let outcome = if turn % 20 == 0 {
            destroyed(gpu, &problem, Duration::from_micros(draw.below(20_000)))
        } else {
            dropped(gpu, &problem, draw.below(6))
        };
        report.add(
            outcome
                .map(|()| true)
                .map_err(|fault| format!("{case}, data {data}: {fault}")),
        );
        gpu.forget_pipelines();
    }
    // Drivers keep some of what they compile, hence the room.
    let grown = resident().saturating_sub(begun);
    if grown > 2_000_000_000 {
        let calls = report.tried;
        report.add(Err(format!(
            "{grown} bytes more resident after {calls} calls"
        )));
    }
    report
}

/// Bytes of this process in memory, where the system says.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = pages
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// Polls a call so many times, drops its future, and makes the call again, which must be right.
fn dropped(gpu: &GpuContext, problem: &Problem, polls: u64) -> Result<(), String> {
    let once = |most: u64| {
        let done = problem.run_by(|inputs, outputs| {
            let call = pin!(problem.operation.run_into(gpu, inputs, outputs));
            poll_times(call, most).unwrap_or(Ok(()))
        });
        done.map_err(|error| format!("after {most} polls: {error}"))
    };
    once(polls)?;
    is_right(problem, &once(u64::MAX)?)
}

/// An error if results are not the reference's.
fn is_right(problem: &Problem, results: &[Values]) -> Result<(), String> {
    for want in problem.reference() {
        let error = error(find(results, want.tensor), &want);
        if error > 1.0 || error.is_nan() {
            let name = want.tensor.name();
            return Err(format!("{name} is off by {error} tolerances"));
        }
    }
    Ok(())
}

/// Destroys a device of its own while a call runs: the call is right or says that the device is lost.
fn destroyed(gpu: &GpuContext, problem: &Problem, after: Duration) -> Result<(), String> {
    let backend = gpu.adapter_info().backend.into();
    let options = wgpu_norm::ContextOptions::default()
        .backends(backend)
        .adapter_name(&gpu.adapter_info().name);
    let own =
        pollster::block_on(GpuContext::with_options(options)).map_err(|error| error.to_string())?;
    let device = own.device().clone();
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(after);
            device.destroy();
        });
        let call = problem.run_by(|inputs, outputs| {
            pollster::block_on(problem.operation.run_into(&own, inputs, outputs))
        });
        match call {
            Ok(results) => is_right(problem, &results),
            Err(Error::DeviceLost { .. }) => Ok(()),
            Err(error) => Err(format!("the device was destroyed after {after:?}: {error}")),
        }
    })
}
