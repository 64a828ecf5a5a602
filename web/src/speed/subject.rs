//! A case on the device: its tensors in several sets, and a plan bound to each.

use super::cases::Case;
use super::device::{Buffers, MEAN, Work, fill, next, scoped, sets, warm};
use std::cell::Cell;
use std::iter::repeat_n;
use wgpu_norm::{Bound, Error, Format, GpuContext, Plan, Tensor};

pub struct Subject {
    bound: Vec<Bound>,
    turn: Cell<usize>,
    _buffers: Buffers,
}

impl Subject {
    /// Fills the tensors, binds the plan, and runs every set once.
    pub async fn new(
        gpu: &GpuContext,
        case: &Case,
        plan: &Plan,
        pattern: &wgpu::Buffer,
    ) -> Result<Self, Error> {
        let bytes = case.tensor_bytes();
        let count = sets(gpu, bytes);
        let create = || {
            let mut buffers = Buffers::default();
            let mut bound = Vec::new();
            let mut encoder = gpu.device().create_command_encoder(&Default::default());
            for _ in 0..count {
                let set = tensors(gpu, plan, pattern, &mut buffers, &mut encoder)?;
                let set: Vec<_> = set.iter().map(|(tensor, b)| (*tensor, b.into())).collect();
                bound.push(plan.bind(gpu, &set)?);
            }
            gpu.queue().submit([encoder.finish()]);
            Ok(Self {
                bound,
                turn: Cell::new(0),
                _buffers: buffers,
            })
        };
        let subject = scoped(gpu, "tensors", count.saturating_mul(bytes), create).await?;
        warm(gpu, &subject, subject.bound.len()).await?;
        Ok(subject)
    }
}

impl Work for Subject {
    fn record(&self, pass: &mut wgpu::ComputePass<'_>) {
        if let Some(bound) = next(&self.turn, &self.bound) {
            bound.record_in(pass);
        }
    }
}

/// A buffer for each tensor. src and diff_dst are random, and mean and variance match them.
fn tensors(
    gpu: &GpuContext,
    plan: &Plan,
    pattern: &wgpu::Buffer,
    buffers: &mut Buffers,
    encoder: &mut wgpu::CommandEncoder,
) -> Result<Vec<(Tensor, wgpu::Buffer)>, Error> {
    let mut made = Vec::new();
    for used in plan.buffers() {
        let buffer = buffers.storage(gpu, used.tensor.name(), used.padded_bytes)?;
        made.push((used.tensor, buffer));
    }
    for used in plan.operation().tensors()? {
        let of_tensor = |(tensor, _): &&(Tensor, _)| *tensor == used.tensor;
        let Some((tensor, buffer)) = made.iter().find(of_tensor) else {
            continue;
        };
        match (value(*tensor), used.format) {
            _ if !used.access.reads() => {}
            (Some(value), Format::Elements(dtype)) => {
                let count = usize::try_from(buffer.size() / dtype.size()).unwrap_or(0);
                let bytes = dtype.encode(repeat_n(value, count));
                gpu.queue().write_buffer(buffer, 0, &bytes);
            }
            // diff_dst differs from src.
            _ if *tensor == Tensor::Src => fill(encoder, pattern, 0, buffer),
            _ => fill(encoder, pattern, pattern.size() / 3, buffer),
        }
    }
    Ok(made)
}

/// The value of all elements of a statistic or parameter; none for a tensor that is random.
fn value(tensor: Tensor) -> Option<f64> {
    match tensor {
        Tensor::Mean => Some(MEAN),
        tensor if tensor.takes_epsilon() => Some(1.0),
        Tensor::Gamma => Some(0.5),
        Tensor::Beta => Some(0.0),
        _ => None,
    }
}
