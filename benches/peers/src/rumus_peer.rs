//! RUMUS's layers and its autograd, on a device of its own.

use crate::Result;
use crate::case::{Case, EPSILON, Op};
use crate::gpu::Gpu;
use crate::measure::{Contender, clock};
use crate::peer::Peer;
use crate::tensors::Tensors;
use rumus::autograd::backward_with_grad;
use rumus::backend::gpu::context::GpuContext;
use rumus::tensor::Tensor;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;
use wgpu_24 as wgpu;
use wgpu_norm::{Norm, Pass};

const EPS: f32 = EPSILON as f32;

/// How long the results of a check may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Batch and layer norm, without batch norm's gradient: in 0.4.0 that never ends.
pub fn operators() -> Vec<Op> {
    let mut all = Op::all();
    all.retain(|op| match op.norm {
        Norm::Batch(_) => !matches!(op.pass, Pass::Backward(_)),
        Norm::Layer { .. } => !op.has_residual(),
        _ => false,
    });
    all
}

/// RUMUS opens the adapter that wgpu prefers, and does not say which: the same request tells.
pub fn device(gpu: &Gpu) -> Result<&'static GpuContext> {
    let instance = wgpu::Instance::new(&wgpu::InstanceDescriptor::default());
    let adapter = instance.request_adapter(&wgpu::RequestAdapterOptions {
        power_preference: wgpu::PowerPreference::HighPerformance,
        ..Default::default()
    });
    let adapter = pollster::block_on(adapter).ok_or("RUMUS finds no adapter")?;
    let info = adapter.get_info();
    if (&info.name, &info.driver_info) != (&gpu.info.name, &gpu.info.driver_info) {
        return Err(format!("RUMUS takes {}, {}", info.name, info.driver_info).into());
    }
    // It panics where wgpu refuses its shaders.
    let device = std::panic::catch_unwind(GpuContext::get).ok().flatten();
    device.ok_or_else(|| "RUMUS opens no device".into())
}

#[derive(Clone)]
pub struct Rumus {
    device: &'static GpuContext,
    norm: Norm,
    pass: Pass,
    src: Vec<Tensor>,
    /// Empty for a forward pass.
    diff_dst: Vec<Tensor>,
    gamma: Tensor,
    beta: Tensor,
    /// Those that inference is given, else zeros; training overwrites a copy.
    mean: Vec<f32>,
    variance: Vec<f32>,
}

impl Rumus {
    pub fn new(device: &'static GpuContext, case: &Case, tensors: &Tensors) -> Result<Self> {
        // Buffers that it keeps for other shapes.
        device.pool.clear();
        let [outer, channels, inner] = case.grid;
        let shape = match case.operation.norm {
            Norm::Layer { .. } if !case.has_residual() => vec![outer, channels],
            // It wants four axes, and takes the last two together.
            Norm::Batch(_) => vec![outer, channels, inner, 1],
            _ => return Err(format!("RUMUS has no {}", case.op()).into()),
        };
        let upload = |values: &[f32], shape: &[usize]| {
            let tensor = Tensor::new(values.to_vec(), shape.to_vec());
            tensor.to_gpu();
            tensor
        };
        let whole = |values: &[f32]| {
            let sets = if values.is_empty() { 0 } else { case.sets() };
            (0..sets).map(|_| upload(values, &shape)).collect()
        };
        let given = |values: &[f32]| match case.operation.pass {
            Pass::Inference => values.to_vec(),
            _ => vec![0.0; values.len()],
        };
        Ok(Self {
            device,
            norm: case.operation.norm.clone(),
            pass: case.operation.pass,
            src: whole(&tensors.src),
            diff_dst: whole(&tensors.diff_dst),
            gamma: upload(&tensors.gamma, &[channels]),
            beta: upload(&tensors.beta, &[channels]),
            mean: given(&tensors.mean),
            variance: given(&tensors.variance),
        })
    }

    /// The output, and the statistics that batch norm reads back.
    fn forward(&self, [src, gamma, beta]: [&Tensor; 3]) -> (Tensor, Vec<Vec<f32>>) {
        if let Norm::Layer { .. } = self.norm {
            return (src.layer_norm(gamma, beta, EPS), Vec::new());
        }
        let (mut mean, mut variance) = (self.mean.clone(), self.variance.clone());
        let trains = self.pass != Pass::Inference;
        // With a momentum of 1 the running statistics become those of the batch.
        let dst = src.batch_norm_2d(gamma, beta, &mut mean, &mut variance, EPS, 1.0, trains);
        (dst, vec![mean, variance])
    }

    /// A forward pass on the tape: its output, and the inputs whose gradients are asked for.
    fn tape(&self, set: usize) -> (Tensor, [Tensor; 3]) {
        let leaves = [&self.src[set], &self.gamma, &self.beta].map(|tensor| {
            let mut leaf = tensor.clone(); // shares the buffer
            leaf.set_requires_grad(true);
            leaf
        });
        let (dst, _) = self.forward(leaves.each_ref());
        (dst, leaves)
    }

    fn backward(&self, set: usize, tape: &(Tensor, [Tensor; 3])) -> Result<Vec<Tensor>> {
        let (dst, leaves) = tape;
        let mut gradients = backward_with_grad(dst, self.diff_dst[set].clone())?;
        let gradients = leaves.iter().map(|leaf| gradients.remove(leaf.grad_id()?));
        let gradients: Option<_> = gradients.collect();
        gradients.ok_or_else(|| "RUMUS's tape lacks a gradient".into())
    }

    fn compute(&self) -> Result<Vec<Vec<f32>>> {
        let read = |tensor: &Tensor| tensor.data().to_vec();
        if self.diff_dst.is_empty() {
            let (dst, statistics) = self.forward([&self.src[0], &self.gamma, &self.beta]);
            return Ok([vec![read(&dst)], statistics].concat());
        }
        let gradients = self.backward(0, &self.tape(0))?;
        Ok(gradients.iter().map(read).collect())
    }
}

impl Contender for Rumus {
    fn peer(&self) -> Peer {
        Peer::Rumus
    }

    fn name(&self) -> &'static str {
        if self.diff_dst.is_empty() {
            "kernel"
        } else {
            "autograd"
        }
    }

    fn results(&self) -> Result<Vec<Vec<f32>>> {
        // On a thread of its own, since it panics at wgpu's errors, and batch norm's gradient waits for itself.
        let (sender, receiver) = channel();
        let this = self.clone();
        thread::spawn(move || {
            // Nobody listens any more after the limit.
            let _ = sender.send(this.compute().map_err(|error| error.to_string()));
        });
        match receiver.recv_timeout(LIMIT) {
            Ok(results) => Ok(results?),
            Err(RecvTimeoutError::Timeout) => Err(format!("no results after {LIMIT:?}").into()),
            Err(RecvTimeoutError::Disconnected) => Err("RUMUS panicked".into()),
        }
    }

    fn time(&self, set: usize) -> Result<Duration> {
        let wait = || {
            self.device.device.poll(wgpu::Maintain::Wait);
            Ok(())
        };
        if self.diff_dst.is_empty() {
            let inputs = [&self.src[set], &self.gamma, &self.beta];
            return clock(|| Ok(self.forward(inputs)), wait);
        }
        let tape = self.tape(set);
        wait()?;
        clock(|| self.backward(set, &tape), wait)
    }
}
