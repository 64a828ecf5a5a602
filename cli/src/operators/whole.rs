//! An operation in one piece.

use super::tensors::{Work, read};
use crate::check;
use crate::failure::Failure;
use crate::job::Job;
use crate::numbers::{self, slices, slices_mut};
use wgpu_norm::{Access, DType, Format, GpuContext, Plan, Tensor};

/// Computes and writes the results.
pub fn run(job: Job, gpu: &GpuContext, work: &Work) -> Result<(), Failure> {
    let operation = &work.operation;
    // Fails before anything is read if the computation is impossible.
    check_buffers(&operation.plan(gpu.profile())?, gpu.profile().max_buffer)?;
    job.progress.step("reading");
    let mut inputs: Vec<(Tensor, Vec<u8>)> = vec![];
    let mut outputs: Vec<(Tensor, Vec<u8>)> = vec![];
    for used in &work.tensors {
        let bytes = match used.access {
            Access::In | Access::InOut => read(&job.input, used.tensor, 0..used.bytes())?,
            Access::Out => numbers::zeros(used.tensor, used.bytes())?,
        };
        match used.access {
            Access::In => inputs.push((used.tensor, bytes)),
            Access::Out | Access::InOut => outputs.push((used.tensor, bytes)),
        }
    }
    // The reference also needs what is overwritten.
    let mut old = vec![];
    if job.check {
        for used in work.inputs().filter(|used| used.access.writes()) {
            old.push((used.tensor, read(&job.input, used.tensor, 0..used.bytes())?));
        }
    }
    job.progress.step("computing");
    let given = slices(&inputs);
    let mut taken = slices_mut(&mut outputs);
    pollster::block_on(operation.run_into(gpu, &given, &mut taken))?;
    let mut results = vec![];
    for used in work.results() {
        let bytes = outputs.iter().find(|(tensor, _)| *tensor == used.tensor);
        let bytes = bytes.map_or(&[][..], |(_, bytes)| bytes);
        if let Format::Elements(dtype) = used.format {
            warn(&job, used.tensor, dtype, bytes);
        }
        results.push((work.described(used), bytes));
    }
    let comparison = match job.check {
        true => {
            job.progress.step("checking against the reference");
            let old = slices(&old);
            let compared: Vec<_> = results
                .iter()
                .map(|(d, bytes)| (d.tensor, *bytes))
                .collect();
            Some(check::compare(
                operation,
                &[given, old].concat(),
                &compared,
            )?)
        }
        false => None,
    };
    job.finish(gpu, &work.describe(), &results, comparison)
}

/// Warns of elements that are not finite, and of variances that are too small for their 16-bit type.
fn warn(job: &Job, tensor: Tensor, dtype: DType, bytes: &[u8]) {
    let all = bytes.len() / dtype.size() as usize;
    let lost = numbers::lost(dtype, bytes);
    if lost > 0 {
        job.warn_of_lost(tensor, format_args!("{lost} of {all}"));
    }
    if may_be_small(tensor, dtype) {
        let small = numbers::small(dtype, bytes);
        if small > 0 {
            job.warn_of_small(tensor, format_args!("{small} of {all}"), dtype);
        }
    }
}

/// Whether a result is a variance in a 16-bit type.
pub fn may_be_small(tensor: Tensor, dtype: DType) -> bool {
    let is_variance = matches!(tensor, Tensor::Variance | Tensor::RunningVariance);
    is_variance && dtype.size() == 2
}

/// A failure if a tensor does not fit in one buffer.
fn check_buffers(plan: &Plan, most: u64) -> Result<(), Failure> {
    let mut buffers = plan.buffers().into_iter();
    match buffers.find(|used| used.padded_bytes > most) {
        None => Ok(()),
        Some(used) => Err(Failure::TooLarge {
            tensor: used.tensor.name(),
            most,
            bytes: used.padded_bytes,
        }),
    }
}
