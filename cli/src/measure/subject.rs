//! A case on the device: buffers in several sets, and a plan bound to them.

use super::device::{scoped, storage};
use super::planned::Planned;
use super::rotation::{self, MEAN};
use super::sets::Case;
use super::timing::Clock;
use crate::memory;
use wgpu_norm::{Bound, DType, Element, Error, GpuContext, ParamGrads};

/// A set of a case's tensors: src and diff_dst are random, mean and variance are src's but for the
/// noise of its channels.
pub struct Tensors {
    pub src: wgpu::Buffer,
    /// As good as empty for a forward pass.
    pub diff_dst: wgpu::Buffer,
    pub mean: wgpu::Buffer,
    pub variance: wgpu::Buffer,
    pub gamma: wgpu::Buffer,
    pub beta: wgpu::Buffer,
    /// diff_src or dst.
    pub result: wgpu::Buffer,
    pub diff_gamma: Option<wgpu::Buffer>,
    pub diff_beta: Option<wgpu::Buffer>,
}

impl Tensors {
    /// Buffers, not filled yet.
    fn new(gpu: &GpuContext, case: &Case) -> Result<Self, Error> {
        let device = gpu.device();
        let data = case.bytes(1);
        let (statistics, columns) = case.params();
        let size = case.params_dtype().size();
        let (statistics, columns) = (statistics * size, columns * size);
        let diff_dst = if case.op.is_gradient() { data } else { 0 };
        let both = case.op.is_gradient() && case.param_grads == ParamGrads::Both;
        let gradient = |name| both.then(|| storage(device, name, columns)).transpose();
        Ok(Self {
            src: storage(device, "src", data)?,
            diff_dst: storage(device, "diff_dst", diff_dst)?,
            mean: storage(device, "mean", statistics)?,
            variance: storage(device, "variance", statistics)?,
            gamma: storage(device, "gamma", columns)?,
            beta: storage(device, "beta", columns)?,
            result: storage(device, "the result", data)?,
            diff_gamma: gradient("diff_gamma")?,
            diff_beta: gradient("diff_beta")?,
        })
    }

    fn fill(
        &self,
        gpu: &GpuContext,
        clock: &Clock,
        case: &Case,
        pattern: &wgpu::Buffer,
    ) -> Result<(), Error> {
        let params = [
            (&self.mean, MEAN),
            (&self.variance, 1.0),
            (&self.gamma, 0.5),
            (&self.beta, 0.0),
        ];
        for (buffer, value) in params {
            match case.params_dtype() {
                DType::F64 => fill::<f64>(gpu, buffer, value)?,
                _ => fill::<f32>(gpu, buffer, value)?,
            }
        }
        clock.wall(|encoder| {
            rotation::fill(encoder, pattern, 0, &self.src);
            // Other numbers than src's.
            rotation::fill(encoder, pattern, pattern.size() / 3, &self.diff_dst);
        })?;
        Ok(())
    }
}

/// Fills a buffer of parameters.
fn fill<P: Element>(gpu: &GpuContext, buffer: &wgpu::Buffer, value: f64) -> Result<(), Error> {
    let count = usize::try_from(buffer.size() / P::DTYPE.size()).unwrap_or(usize::MAX);
    let values = memory::filled("parameters", count, P::from_f64(value))?;
    scoped(gpu.device(), "parameters", buffer.size(), || {
        let bytes = bytemuck::cast_slice(&values);
        gpu.queue().write_buffer(buffer, 0, bytes);
    })
}

/// A case's tensors in several sets.
pub struct Inputs(Vec<Tensors>);

impl Inputs {
    /// Sets that take turns, of `total` bytes together, filled with the pattern.
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
            set.fill(gpu, clock, case, pattern)?;
        }
        Ok(Self(sets))
    }

    /// One set, of zeros.
    pub fn single(gpu: &GpuContext, case: &Case) -> Result<Self, Error> {
        Ok(Self(vec![Tensors::new(gpu, case)?]))
    }

    /// Binds every set.
    pub fn bind(&self, gpu: &GpuContext, plan: &Planned) -> Result<Subject, Error> {
        let bound = self.0.iter().map(|set| plan.bind(gpu, set));
        Ok(Subject(bound.collect::<Result<_, _>>()?))
    }
}

/// What is measured.
pub struct Subject(Vec<Bound>);

impl Subject {
    /// Runs every set once: what compiles lazily is compiled, what is touched first is touched, and
    /// wgpu says what it has to say.
    pub fn warm(&self, gpu: &GpuContext, clock: &Clock) -> Result<(), Error> {
        for one in &self.0 {
            scoped(gpu.device(), "running", 0, || {
                clock.wall(|encoder| one.record(encoder))
            })??;
        }
        Ok(())
    }

    /// Records one run, of the set whose turn it is.
    pub fn record(&self, encoder: &mut wgpu::CommandEncoder, turn: usize) {
        let index = turn.checked_rem(self.0.len()).unwrap_or(0);
        if let Some(bound) = self.0.get(index) {
            bound.record(encoder);
        }
    }
}
