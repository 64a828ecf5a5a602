//! A case on the device: buffers in several sets, and a plan bound to them.

use super::device::{scoped, storage};
use super::rotation::{self, MEAN};
use super::sets::Case;
use super::timing::Clock;
use std::time::Duration;
use wgpu_norm::support;
use wgpu_norm::{Bound, DType, Element, Error, Format, GpuContext, Plan, Tensor, TensorUse};

/// A set of a case's tensors. src and diff_dst are random; mean and variance match src apart from the noise of its
/// channels.
struct Tensors(Vec<(TensorUse, wgpu::Buffer)>);

impl Tensors {
    /// The buffers, not filled yet.
    fn new(gpu: &GpuContext, case: &Case) -> Result<Self, Error> {
        let create = |used: TensorUse| {
            let buffer = storage(gpu.device(), used.tensor.name(), used.bytes())?;
            Ok((used, buffer))
        };
        let tensors = case.operation().tensors()?.into_iter();
        Ok(Self(tensors.map(create).collect::<Result<_, Error>>()?))
    }

    fn fill(&self, gpu: &GpuContext, clock: &Clock, pattern: &wgpu::Buffer) -> Result<(), Error> {
        let read = self.0.iter().filter(|(used, _)| used.access.reads());
        for (used, buffer) in read.clone() {
            match (value(used.tensor), used.format) {
                (Some(value), Format::Elements(DType::F64)) => fill::<f64>(gpu, buffer, value)?,
                (Some(value), _) => fill::<f32>(gpu, buffer, value)?,
                (None, _) => {}
            }
        }
        let random = read.filter(|(used, _)| value(used.tensor).is_none());
        clock.wall(|encoder| {
            for (used, buffer) in random {
                // diff_dst differs from src.
                let offset = match used.tensor {
                    Tensor::Src => 0,
                    _ => pattern.size() / 3,
                };
                rotation::fill(encoder, pattern, offset, buffer);
            }
        })?;
        Ok(())
    }
}

/// The value of all elements of a statistic or parameter; none for a tensor that is random.
pub fn value(tensor: Tensor) -> Option<f64> {
    match tensor {
        Tensor::Mean => Some(MEAN),
        tensor if tensor.takes_epsilon() => Some(1.0),
        Tensor::Gamma | Tensor::Gate => Some(0.5),
        Tensor::Beta => Some(0.0),
        _ => None,
    }
}

/// Fills a buffer of parameters.
fn fill<P: Element>(gpu: &GpuContext, buffer: &wgpu::Buffer, value: f64) -> Result<(), Error> {
    let count = usize::try_from(buffer.size() / P::DTYPE.size()).unwrap_or(usize::MAX);
    let values = support::filled("parameters", count, P::from_f64(value))?;
    scoped(gpu.device(), "parameters", buffer.size(), || {
        let bytes = bytemuck::cast_slice(&values);
        gpu.queue().write_buffer(buffer, 0, bytes);
    })
}

/// A case's tensors in several sets.
pub struct Inputs(Vec<Tensors>);

impl Inputs {
    /// Sets that take turns, filled with the pattern; `total` bytes together.
    pub fn new(
        gpu: &GpuContext,
        clock: &Clock,
        case: &Case,
        pattern: &wgpu::Buffer,
        total: u64,
    ) -> Result<Self, Error> {
        let sets = rotation::sets(case.bytes(case.op.large_tensors()), total, |_| {
            Tensors::new(gpu, case)
        })?;
        for set in &sets {
            set.fill(gpu, clock, pattern)?;
        }
        Ok(Self(sets))
    }

    /// One set, of zeros.
    pub fn single(gpu: &GpuContext, case: &Case) -> Result<Self, Error> {
        Ok(Self(vec![Tensors::new(gpu, case)?]))
    }

    /// Binds every set.
    pub fn bind(&self, gpu: &GpuContext, plan: &Plan) -> Result<Subject, Error> {
        let bound = self.0.iter().map(|Tensors(set)| {
            let buffers = set
                .iter()
                .map(|(used, buffer)| (used.tensor, buffer.into()));
            plan.bind(gpu, &buffers.collect::<Vec<_>>())
        });
        Ok(Subject(bound.collect::<Result<_, _>>()?))
    }
}

/// A plan bound to each set.
pub struct Subject(Vec<Bound>);

impl Subject {
    /// Runs every set once: this triggers lazy compilation, touches all memory, and reports any complaint of wgpu's.
    pub fn warm(&self, gpu: &GpuContext, clock: &Clock) -> Result<(), Error> {
        for one in &self.0 {
            scoped(gpu.device(), "running", 0, || {
                clock.wall(|encoder| one.record(encoder))
            })??;
        }
        Ok(())
    }

    /// A sample, the mean of some runs.
    pub fn time(&self, clock: &Clock, repeats: usize, turn: usize) -> Result<Duration, Error> {
        clock.gpu(repeats, turn, &|encoder, run| self.record(encoder, run))
    }

    /// Records one run on the set whose turn it is.
    pub fn record(&self, encoder: &mut wgpu::CommandEncoder, turn: usize) {
        let index = turn.checked_rem(self.0.len()).unwrap_or(0);
        if let Some(bound) = self.0.get(index) {
            bound.record(encoder);
        }
    }
}
