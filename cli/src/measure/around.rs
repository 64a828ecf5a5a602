//! Costs around the kernels: opening a device, the first call, and transfers from and to host memory.

use super::rotation::MEAN;
use super::sets::Case;
use super::subject::{Inputs, value};
use super::timing::{Clock, median_ms, ms};
use crate::args::GpuArgs;
use crate::numbers::{slices, slices_mut, zeros};
use crate::results::Around;
use std::time::{Duration, Instant};
use wgpu_norm::{DType, DeviceOptions, Error, Format, GpuContext, Tensor, TensorUse};

/// The number of timed calls on host slices.
const CALLS: u32 = 5;

/// Measures a case; none if its adapter is gone.
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
    let options = DeviceOptions::default().profile(gpu.profile().clone());
    // A new device has compiled nothing yet; what a driver keeps on disk is another matter.
    let begin = Instant::now();
    let fresh = pollster::block_on(GpuContext::from_adapter(&adapter, options))?;
    let open = begin.elapsed();
    let inputs = Inputs::single(&fresh, case)?;
    let clock = Clock::new(&fresh)?;
    let begin = Instant::now();
    let plan = case.operation().plan(fresh.profile())?;
    let subject = inputs.bind(&fresh, &plan)?;
    let bind = begin.elapsed();
    let first = clock.wall(|encoder| subject.record(encoder, 0))?;
    let second = clock.wall(|encoder| subject.record(encoder, 0))?;
    let host = host_slices(gpu, case, rounds)?;
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

/// The median time of a call on host slices, in milliseconds.
fn host_slices(gpu: &GpuContext, case: &Case, rounds: Option<u32>) -> Result<f64, Error> {
    let operation = case.operation();
    let tensors = operation.tensors()?;
    let mut inputs = Vec::new();
    for used in tensors.iter().filter(|used| used.access.reads()) {
        inputs.push((used.tensor, numbers(used)?));
    }
    let inputs = slices(&inputs);
    let mut samples: Vec<Duration> = Vec::new();
    // The first call compiles pipelines and is not counted.
    for call in 0..=rounds.unwrap_or(CALLS).min(CALLS) {
        let begin = Instant::now();
        let mut results = Vec::new();
        for used in tensors.iter().filter(|used| used.access.writes()) {
            results.push((used.tensor, zeros(used.tensor, used.bytes())?));
        }
        let mut outputs = slices_mut(&mut results);
        pollster::block_on(operation.run_into(gpu, &inputs, &mut outputs))?;
        if call > 0 {
            samples.push(begin.elapsed());
        }
    }
    Ok(median_ms(&samples))
}

/// The bytes of a tensor: a periodic wave, or a single value repeated.
fn numbers(used: &TensorUse) -> Result<Vec<u8>, Error> {
    let period = if used.tensor == Tensor::Src { 97 } else { 89 };
    let wave = |i| MEAN + f64::from(i) / f64::from(period) - 0.5;
    let period = (0..period).map(|i| value(used.tensor).unwrap_or(wave(i)));
    let dtype = match used.format {
        Format::Elements(dtype) => dtype,
        _ => DType::F32,
    };
    let mut all = zeros(used.tensor, used.bytes())?;
    for (byte, own) in all.iter_mut().zip(dtype.encode(period).iter().cycle()) {
        *byte = *own;
    }
    Ok(all)
}
