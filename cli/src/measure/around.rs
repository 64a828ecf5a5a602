//! Costs around the kernels: opening a device, the first call, and transfers from and to host memory.

use super::rotation::MEAN;
use super::sets::Case;
use super::subject::{Inputs, value};
use super::timing::{Clock, median_ms, ms};
use crate::args::GpuArgs;
use crate::results::Around;
use half::{bf16, f16};
use std::time::{Duration, Instant};
use wgpu_norm::support;
use wgpu_norm::{DType, DeviceOptions, Element, Error, Format, GpuContext, Tensor, TensorUse};

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
        let bytes = match used.format {
            Format::Elements(DType::F16) => numbers::<f16>(used)?,
            Format::Elements(DType::Bf16) => numbers::<bf16>(used)?,
            Format::Elements(DType::F64) => numbers::<f64>(used)?,
            _ => numbers::<f32>(used)?,
        };
        inputs.push((used.tensor, bytes));
    }
    let inputs: Vec<_> = inputs
        .iter()
        .map(|(tensor, bytes)| (*tensor, &**bytes))
        .collect();
    let mut samples: Vec<Duration> = Vec::new();
    // The first call compiles pipelines and is not counted.
    for call in 0..=rounds.unwrap_or(CALLS).min(CALLS) {
        let begin = Instant::now();
        let mut results = Vec::new();
        for used in tensors.iter().filter(|used| used.access.writes()) {
            let bytes = usize::try_from(used.bytes()).unwrap_or(usize::MAX);
            results.push((used.tensor, support::filled("a result", bytes, 0_u8)?));
        }
        let outputs = results
            .iter_mut()
            .map(|(tensor, bytes)| (*tensor, &mut **bytes));
        pollster::block_on(operation.run_into(gpu, &inputs, &mut outputs.collect::<Vec<_>>()))?;
        if call > 0 {
            samples.push(begin.elapsed());
        }
    }
    Ok(median_ms(&samples))
}

/// The bytes of a tensor: a periodic wave, or a single value repeated.
fn numbers<T: Element>(used: &TensorUse) -> Result<Vec<u8>, Error> {
    let count = usize::try_from(used.elements()).unwrap_or(usize::MAX);
    let mut all = support::filled(used.tensor.name(), count, T::zeroed())?;
    let period = if used.tensor == Tensor::Src { 97 } else { 89 };
    for (i, number) in all.iter_mut().enumerate() {
        let wave = MEAN + (i % period) as f64 / period as f64 - 0.5;
        *number = T::from_f64(value(used.tensor).unwrap_or(wave));
    }
    support::collect(
        used.tensor.name(),
        bytemuck::cast_slice(&all).iter().copied(),
    )
}
