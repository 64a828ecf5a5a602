//! What surrounds the kernels: opening a device, the first call, and the way from and to host memory.

use super::planned::Planned;
use super::rotation::MEAN;
use super::sets::Case;
use super::slices::Slices;
use super::subject::Inputs;
use super::timing::{Clock, median_ms, ms};
use crate::args::GpuArgs;
use crate::memory;
use crate::results::Around;
use half::{bf16, f16};
use std::time::{Duration, Instant};
use wgpu_norm::{DType, DeviceOptions, Element, Error, GpuContext};

/// Calls on host slices.
const CALLS: u32 = 5;

/// Measures a case; none where its adapter is not found again.
pub fn measure(
    args: &GpuArgs,
    gpu: &GpuContext,
    case: &Case,
    rounds: Option<u32>,
) -> Result<Option<Around>, Error> {
    let info = gpu.adapter_info();
    let mut adapters =
        pollster::block_on(wgpu_norm::adapters(args.options().chosen_backends()?)).into_iter();
    let Some(adapter) = adapters.find(|adapter| adapter.get_info() == info) else {
        return Ok(None);
    };
    let options = DeviceOptions {
        profile: Some(gpu.profile().clone()),
        ..DeviceOptions::default()
    };
    // A device of its own has compiled nothing yet; what a driver keeps on disk is another matter.
    let begin = Instant::now();
    let fresh = pollster::block_on(GpuContext::from_adapter(&adapter, options))?;
    let open = begin.elapsed();
    let inputs = Inputs::single(&fresh, case)?;
    let clock = Clock::new(&fresh)?;
    let begin = Instant::now();
    let plan = Planned::new(&fresh, case)?;
    let subject = inputs.bind(&fresh, &plan)?;
    let bind = begin.elapsed();
    let first = clock.wall(|encoder| subject.record(encoder, 0))?;
    let second = clock.wall(|encoder| subject.record(encoder, 0))?;
    let host = match case.dtype {
        DType::F16 => host_slices::<f16>(gpu, case, rounds)?,
        DType::Bf16 => host_slices::<bf16>(gpu, case, rounds)?,
        DType::F32 => host_slices::<f32>(gpu, case, rounds)?,
        DType::F64 => host_slices::<f64>(gpu, case, rounds)?,
    };
    Ok(Some(Around {
        case: case.to_string(),
        open_ms: ms(open),
        bind_ms: ms(bind),
        first_run_ms: ms(first.record + first.total),
        second_run_ms: ms(second.record + second.total),
        host_slices_ms: host,
        host_slices_bytes: case.bytes(case.op.large_tensors()),
    }))
}

/// The median time of a call with slices, in milliseconds.
fn host_slices<T: Element>(
    gpu: &GpuContext,
    case: &Case,
    rounds: Option<u32>,
) -> Result<f64, Error> {
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let wave = |what, period: usize| -> Result<Vec<T>, Error> {
        let mut all = memory::filled(what, count(case.elements()), T::zeroed())?;
        for (i, value) in all.iter_mut().enumerate() {
            *value = T::from_f64(MEAN + (i % period) as f64 / period as f64 - 0.5);
        }
        Ok(all)
    };
    let (statistics, columns) = case.params();
    let of = |value: f64, n: u64| memory::filled("parameters", count(n), T::Sum::from_f64(value));
    let slices = Slices::<T> {
        src: wave("src", 97)?,
        diff_dst: match case.op.is_gradient() {
            true => wave("diff_dst", 89)?,
            false => vec![],
        },
        mean: of(MEAN, statistics)?,
        variance: of(1.0 / 12.0, statistics)?,
        gamma: of(0.5, columns)?,
        beta: of(0.0, columns)?,
    };
    let mut samples: Vec<Duration> = Vec::new();
    // The first call makes pipelines, and is not counted.
    for call in 0..=rounds.unwrap_or(CALLS).min(CALLS) {
        let begin = Instant::now();
        slices.call(gpu, case)?;
        if call > 0 {
            samples.push(begin.elapsed());
        }
    }
    Ok(median_ms(&samples))
}
