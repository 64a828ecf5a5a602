//! wgpu-norm's side: plan, bind, record.

use crate::Result;
use crate::case::Case;
use crate::gpu::Gpu;
use crate::measure::{Contender, clock};
use crate::peer::Peer;
use crate::tensors::Tensors;
use std::time::Duration;
use wgpu_norm::{Access, Bound, BufferRange, GpuContext, Tensor, TensorUse};

pub struct Ours<'a> {
    peer: Peer,
    gpu: &'a Gpu,
    /// Of the device, with the sizes that are measured.
    context: &'a GpuContext,
    /// Buffers of the operation's tensors, and the plan bound to them.
    sets: Vec<(Vec<Buffer>, Bound)>,
}

impl<'a> Ours<'a> {
    pub fn new(
        peer: Peer,
        gpu: &'a Gpu,
        context: &'a GpuContext,
        case: &Case,
        tensors: &Tensors,
    ) -> Result<Self> {
        let plan = case.operation.plan(context.profile())?;
        let set = |_| {
            let buffer = |used| Buffer::new(context, used, tensors);
            let buffers: Vec<Buffer> = case.tensors.iter().map(buffer).collect();
            let ranges: Vec<_> = buffers.iter().map(Buffer::bound).collect();
            let bound = plan.bind(context, &ranges)?;
            Ok((buffers, bound))
        };
        Ok(Self {
            peer,
            context,
            sets: (0..case.sets()).map(set).collect::<Result<_>>()?,
            gpu,
        })
    }

    fn submit(&self, set: usize) {
        let mut encoder = self
            .context
            .device()
            .create_command_encoder(&Default::default());
        let (_, bound) = &self.sets[set];
        bound.record(&mut encoder);
        self.context.queue().submit([encoder.finish()]);
    }
}

impl Contender for Ours<'_> {
    fn peer(&self) -> Peer {
        self.peer
    }

    fn name(&self) -> &'static str {
        "plan"
    }

    fn results(&self) -> Result<Vec<Vec<f32>>> {
        self.submit(0);
        let (buffers, _) = &self.sets[0];
        let written = buffers.iter().filter(|buffer| buffer.access.writes());
        written.map(|buffer| buffer.read(self.gpu)).collect()
    }

    fn time(&self, set: usize) -> Result<Duration> {
        let enqueue = || {
            self.submit(set);
            Ok(())
        };
        clock(enqueue, || self.gpu.wait())
    }
}

/// A tensor of f32.
struct Buffer {
    tensor: Tensor,
    access: Access,
    bytes: u64,
    buffer: wgpu::Buffer,
}

impl Buffer {
    /// One of zeros, padded to whole vectors of four, or with what is read.
    fn new(gpu: &GpuContext, used: &TensorUse, tensors: &Tensors) -> Self {
        let buffer = gpu.device().create_buffer(&wgpu::BufferDescriptor {
            label: Some(used.tensor.name()),
            size: used.bytes().next_multiple_of(16),
            usage: wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::COPY_DST
                | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        if used.access.reads() {
            let values = bytemuck::cast_slice(tensors.of(used.tensor));
            gpu.queue().write_buffer(&buffer, 0, values);
        }
        Self {
            tensor: used.tensor,
            access: used.access,
            bytes: used.bytes(),
            buffer,
        }
    }

    fn bound(&self) -> (Tensor, BufferRange<'_>) {
        (self.tensor, (&self.buffer).into())
    }

    fn read(&self, gpu: &Gpu) -> Result<Vec<f32>> {
        let size = self.bytes;
        let device = gpu.context.device();
        let staging = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("staging"),
            size,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(&self.buffer, 0, &staging, 0, size);
        gpu.context.queue().submit([encoder.finish()]);
        let (sender, receiver) = std::sync::mpsc::channel();
        staging.map_async(wgpu::MapMode::Read, .., move |mapped| {
            // Nobody listens any more only where waiting failed, which is reported.
            let _ = sender.send(mapped);
        });
        gpu.wait()?;
        receiver
            .recv()?
            .map_err(|error| format!("reading our results: {error}"))?;
        let bytes = staging.get_mapped_range(..)?;
        Ok(bytemuck::pod_collect_to_vec(&bytes))
    }
}
