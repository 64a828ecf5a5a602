//! A set of wgpu-norm's buffers.

use crate::Result;
use crate::case::{Case, Op};
use crate::gpu::Gpu;
use crate::tensors::{EPSILON, Tensors};
use wgpu_norm::{
    BatchNormBackwardBuffers, BatchNormForwardBuffers, BatchNormForwardOperands,
    BatchNormInferenceBuffers, BatchNormOptions, Bound, BufferRange, DType, DataFormat,
    GpuBatchNorm, GpuContext, GpuGroupNorm, GpuInstanceNorm, GpuLayerNorm, GpuRmsNorm,
    GroupNormBackwardBuffers, GroupNormForwardBuffers, GroupNormForwardOperands, GroupNormOptions,
    InstanceNormOptions, LayerNormBackwardBuffers, LayerNormForwardBuffers,
    LayerNormForwardOperands, LayerNormOptions, RmsNormBackwardBuffers, RmsNormForwardBuffers,
    RmsNormForwardOperands, RmsNormOptions,
};

pub struct Set {
    src: Buffer,
    diff_dst: Buffer,
    /// Given to a gradient or to inference, else written.
    mean: Buffer,
    /// For RMS norm the mean of squares.
    variance: Buffer,
    gamma: Buffer,
    beta: Buffer,
    /// diff_src or dst.
    result: Buffer,
    diff_gamma: Buffer,
    diff_beta: Buffer,
}

impl Set {
    pub fn new(gpu: &GpuContext, case: &Case, tensors: &Tensors) -> Self {
        let given = |what, values: &[f32]| Buffer::new(gpu, what, values.len()).fill(gpu, values);
        let written = |what, like: &[f32]| Buffer::new(gpu, what, like.len());
        let statistics = |what, values| match case.op.takes_statistics() {
            true => given(what, values),
            false => written(what, values),
        };
        Self {
            src: given("src", &tensors.src),
            diff_dst: given("diff_dst", &tensors.diff_dst),
            mean: statistics("mean", &tensors.mean),
            variance: statistics("variance", &tensors.variance),
            gamma: given("gamma", &tensors.gamma),
            beta: given("beta", &tensors.beta),
            result: written("result", &tensors.src),
            diff_gamma: written("diff_gamma", &tensors.gamma),
            diff_beta: written("diff_beta", &tensors.beta),
        }
    }

    pub fn bind(&self, gpu: &GpuContext, case: &Case) -> Result<Bound> {
        const TYPES: (DType, DType) = (DType::F32, DType::F32);
        let shape = &case.shape.0;
        let batch_norm = || {
            let options = BatchNormOptions {
                data_format: DataFormat::Ncx,
                ..BatchNormOptions::new(EPSILON)
            };
            GpuBatchNorm::new(gpu, options)
        };
        let layer_norm = || {
            let options = LayerNormOptions {
                epsilon: EPSILON,
                ..LayerNormOptions::default()
            };
            GpuLayerNorm::new(gpu, options)
        };
        let rms_norm = || {
            let options = RmsNormOptions {
                epsilon: EPSILON,
                ..RmsNormOptions::default()
            };
            GpuRmsNorm::new(gpu, options)
        };
        let group_norm = || {
            let options = GroupNormOptions {
                epsilon: EPSILON,
                data_format: DataFormat::Ncx,
                ..GroupNormOptions::new(case.channel_groups())
            };
            GpuGroupNorm::new(gpu, options)
        };
        let instance_norm = || {
            let options = InstanceNormOptions {
                epsilon: EPSILON,
                data_format: DataFormat::Ncx,
                ..InstanceNormOptions::default()
            };
            GpuInstanceNorm::new(gpu, options)
        };
        let (src, diff_dst) = (self.src.range(), self.diff_dst.range());
        let (mean, variance) = (self.mean.range(), self.variance.range());
        let (gamma, beta) = (Some(self.gamma.range()), Some(self.beta.range()));
        let result = self.result.range();
        let (diff_gamma, diff_beta) = (Some(self.diff_gamma.range()), Some(self.diff_beta.range()));
        let bound = match case.op {
            Op::BatchNorm => batch_norm()?.plan_backward(shape, TYPES, true)?.bind(
                gpu,
                &BatchNormBackwardBuffers {
                    src,
                    diff_dst,
                    mean,
                    variance,
                    gamma,
                    diff_src: result,
                    diff_gamma,
                    diff_beta,
                    sums: None,
                    workspace: None,
                    beta: None,
                    mask: None,
                    diff_residual: None,
                },
            ),
            Op::LayerNorm => layer_norm()?.plan_backward(shape, TYPES)?.bind(
                gpu,
                &LayerNormBackwardBuffers {
                    src,
                    diff_dst,
                    mean,
                    variance,
                    gamma,
                    diff_src: result,
                    diff_gamma,
                    diff_beta,
                    workspace: None,
                },
            ),
            Op::RmsNorm => rms_norm()?.plan_backward(shape, TYPES, true)?.bind(
                gpu,
                &RmsNormBackwardBuffers {
                    src,
                    diff_dst,
                    mean_square: variance,
                    gamma,
                    diff_src: result,
                    diff_gamma,
                    workspace: None,
                },
            ),
            Op::GroupNorm | Op::InstanceNorm => {
                let plan = match case.op {
                    Op::GroupNorm => group_norm()?.plan_backward(shape, TYPES, true)?,
                    _ => instance_norm()?.plan_backward(shape, TYPES, true)?,
                };
                plan.bind(
                    gpu,
                    &GroupNormBackwardBuffers {
                        src,
                        diff_dst,
                        mean,
                        variance,
                        gamma,
                        diff_src: result,
                        diff_gamma,
                        diff_beta,
                        workspace: None,
                        beta: None,
                        mask: None,
                        diff_residual: None,
                    },
                )
            }
            Op::BatchNormForward => {
                let operands = BatchNormForwardOperands {
                    gamma: true,
                    beta: true,
                    ..BatchNormForwardOperands::default()
                };
                batch_norm()?.plan_forward(shape, TYPES, operands)?.bind(
                    gpu,
                    &BatchNormForwardBuffers {
                        src,
                        gamma,
                        beta,
                        running_mean: None,
                        running_variance: None,
                        dst: result,
                        mean,
                        variance,
                        sums: None,
                        workspace: None,
                        residual: None,
                        mask: None,
                    },
                )
            }
            Op::BatchNormInference => batch_norm()?
                .plan_inference(shape, TYPES, (true, true))?
                .bind(
                    gpu,
                    &BatchNormInferenceBuffers {
                        src,
                        mean,
                        variance,
                        gamma,
                        beta,
                        dst: result,
                        workspace: None,
                        residual: None,
                    },
                ),
            Op::LayerNormForward => {
                let operands = LayerNormForwardOperands {
                    residual: false,
                    beta: true,
                    keep_statistics: true,
                };
                layer_norm()?.plan_forward(shape, TYPES, operands)?.bind(
                    gpu,
                    &LayerNormForwardBuffers {
                        src,
                        residual: None,
                        gamma,
                        beta,
                        dst: result,
                        sum: None,
                        mean: Some(mean),
                        variance: Some(variance),
                        workspace: None,
                    },
                )
            }
            Op::RmsNormForward => {
                let operands = RmsNormForwardOperands {
                    residual: false,
                    gamma: true,
                    keep_statistics: true,
                };
                rms_norm()?.plan_forward(shape, TYPES, operands)?.bind(
                    gpu,
                    &RmsNormForwardBuffers {
                        src,
                        residual: None,
                        gamma,
                        dst: result,
                        sum: None,
                        mean_square: Some(variance),
                        workspace: None,
                    },
                )
            }
            Op::GroupNormForward | Op::InstanceNormForward => {
                let operands = GroupNormForwardOperands {
                    gamma: true,
                    beta: true,
                    ..GroupNormForwardOperands::default()
                };
                let plan = match case.op {
                    Op::GroupNormForward => group_norm()?.plan_forward(shape, TYPES, operands)?,
                    _ => instance_norm()?.plan_forward(shape, TYPES, operands)?,
                };
                plan.bind(
                    gpu,
                    &GroupNormForwardBuffers {
                        src,
                        gamma,
                        beta,
                        dst: result,
                        mean,
                        variance,
                        workspace: None,
                        residual: None,
                        mask: None,
                    },
                )
            }
        };
        Ok(bound?)
    }

    /// In the order of [`Results`](crate::tensors::Results).
    pub fn results(&self, op: Op) -> Vec<&Buffer> {
        match op {
            Op::BatchNorm | Op::LayerNorm | Op::GroupNorm | Op::InstanceNorm => {
                vec![&self.result, &self.diff_gamma, &self.diff_beta]
            }
            Op::RmsNorm => vec![&self.result, &self.diff_gamma],
            Op::BatchNormForward
            | Op::LayerNormForward
            | Op::GroupNormForward
            | Op::InstanceNormForward => {
                vec![&self.result, &self.mean, &self.variance]
            }
            Op::BatchNormInference => vec![&self.result],
            Op::RmsNormForward => vec![&self.result, &self.variance],
        }
    }
}

/// A tensor of f32.
pub struct Buffer {
    buffer: wgpu::Buffer,
    elements: usize,
}

impl Buffer {
    /// One of zeros, padded to whole vectors of four.
    fn new(gpu: &GpuContext, what: &'static str, elements: usize) -> Self {
        let buffer = gpu.device().create_buffer(&wgpu::BufferDescriptor {
            label: Some(what),
            size: (4 * elements as u64).next_multiple_of(16),
            usage: wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::COPY_DST
                | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        Self { buffer, elements }
    }

    fn fill(self, gpu: &GpuContext, values: &[f32]) -> Self {
        gpu.queue()
            .write_buffer(&self.buffer, 0, bytemuck::cast_slice(values));
        self
    }

    fn range(&self) -> BufferRange<'_> {
        (&self.buffer).into()
    }

    pub fn read(&self, gpu: &Gpu) -> Result<Vec<f32>> {
        let size = 4 * self.elements as u64;
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
