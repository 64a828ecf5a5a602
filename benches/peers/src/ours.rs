//! wgpu-norm's side: plan, bind, record.

use crate::Result;
use crate::case::{Case, EPSILON, Op, Tensors};
use crate::gpu::Gpu;
use crate::measure::{Contender, Gradients, Peer};
use std::time::{Duration, Instant};
use wgpu_norm::{
    BatchNormBackwardBuffers, BatchNormOptions, Bound, DType, DataFormat, GpuBatchNorm, GpuContext,
    GpuLayerNorm, LayerNormBackwardBuffers, LayerNormOptions,
};

pub struct Ours<'a> {
    gpu: &'a Gpu,
    bound: Vec<Bound>,
    /// Outputs of the first set, with their lengths in elements.
    outputs: [(wgpu::Buffer, usize); 3],
    next: usize,
}

impl<'a> Ours<'a> {
    pub fn new(gpu: &'a Gpu, case: &Case, tensors: &Tensors) -> Result<Self> {
        let channels = tensors.gamma.len();
        let mut bound = Vec::new();
        let mut outputs = None;
        for _ in 0..case.sets() {
            let upload = |what, values| upload(&gpu.context, what, values);
            let src = upload("src", &tensors.src);
            let diff_dst = upload("diff_dst", &tensors.diff_dst);
            let mean = upload("mean", &tensors.mean);
            let variance = upload("variance", &tensors.variance);
            let gamma = upload("gamma", &tensors.gamma);
            let diff_src = buffer(&gpu.context, "diff_src", case.elements());
            let diff_gamma = buffer(&gpu.context, "diff_gamma", channels);
            let diff_beta = buffer(&gpu.context, "diff_beta", channels);
            bound.push(match case.op {
                Op::BatchNorm => {
                    let options = BatchNormOptions {
                        data_format: DataFormat::Ncx,
                        ..BatchNormOptions::new(EPSILON)
                    };
                    let layer = GpuBatchNorm::new(&gpu.context, options)?;
                    let plan = layer.plan_backward(&case.shape.0, (DType::F32, DType::F32), true)?;
                    let buffers = BatchNormBackwardBuffers {
                        src: (&src).into(),
                        diff_dst: (&diff_dst).into(),
                        mean: (&mean).into(),
                        variance: (&variance).into(),
                        gamma: Some((&gamma).into()),
                        diff_src: (&diff_src).into(),
                        diff_gamma: Some((&diff_gamma).into()),
                        diff_beta: Some((&diff_beta).into()),
                        sums: None,
                        workspace: None,
                    };
                    plan.bind(&gpu.context, &buffers)?
                }
                Op::LayerNorm => {
                    let options = LayerNormOptions {
                        epsilon: EPSILON,
                        ..LayerNormOptions::default()
                    };
                    let layer = GpuLayerNorm::new(&gpu.context, options)?;
                    let plan = layer.plan_backward(&case.shape.0, (DType::F32, DType::F32))?;
                    let buffers = LayerNormBackwardBuffers {
                        src: (&src).into(),
                        diff_dst: (&diff_dst).into(),
                        mean: (&mean).into(),
                        variance: (&variance).into(),
                        gamma: Some((&gamma).into()),
                        diff_src: (&diff_src).into(),
                        diff_gamma: Some((&diff_gamma).into()),
                        diff_beta: Some((&diff_beta).into()),
                        workspace: None,
                    };
                    plan.bind(&gpu.context, &buffers)?
                }
            });
            outputs.get_or_insert([
                (diff_src, case.elements()),
                (diff_gamma, channels),
                (diff_beta, channels),
            ]);
        }
        Ok(Self {
            gpu,
            bound,
            outputs: outputs.ok_or("no set of buffers")?,
            next: 0,
        })
    }

    /// Submits the gradients of one set of buffers.
    fn submit(&self, set: usize) {
        let context = &self.gpu.context;
        let mut encoder = context.device().create_command_encoder(&Default::default());
        self.bound[set].record(&mut encoder);
        context.queue().submit([encoder.finish()]);
    }
}

impl Contender for Ours<'_> {
    fn peer(&self) -> Peer {
        Peer::Ours
    }

    fn name(&self) -> &'static str {
        "wgpu-norm"
    }

    fn gradients(&mut self) -> Result<Gradients> {
        self.submit(0);
        let [diff_src, diff_gamma, diff_beta] = &self.outputs;
        Ok(Gradients {
            diff_src: read(self.gpu, &diff_src.0, diff_src.1)?,
            diff_gamma: read(self.gpu, &diff_gamma.0, diff_gamma.1)?,
            diff_beta: read(self.gpu, &diff_beta.0, diff_beta.1)?,
        })
    }

    fn time(&mut self) -> Result<Duration> {
        let set = self.next;
        self.next = (set + 1) % self.bound.len();
        let start = Instant::now();
        self.submit(set);
        self.gpu.wait()?;
        Ok(start.elapsed())
    }
}

/// A buffer of f32, padded to whole vectors of four.
fn buffer(context: &GpuContext, what: &'static str, elements: usize) -> wgpu::Buffer {
    context.device().create_buffer(&wgpu::BufferDescriptor {
        label: Some(what),
        size: (4 * elements as u64).next_multiple_of(16),
        usage: wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_DST
            | wgpu::BufferUsages::COPY_SRC,
        mapped_at_creation: false,
    })
}

fn upload(context: &GpuContext, what: &'static str, values: &[f32]) -> wgpu::Buffer {
    let buffer = buffer(context, what, values.len());
    context
        .queue()
        .write_buffer(&buffer, 0, bytemuck::cast_slice(values));
    buffer
}

fn read(gpu: &Gpu, buffer: &wgpu::Buffer, elements: usize) -> Result<Vec<f32>> {
    let size = 4 * elements as u64;
    let device = gpu.context.device();
    let staging = device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("staging"),
        size,
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let mut encoder = device.create_command_encoder(&Default::default());
    encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, size);
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
