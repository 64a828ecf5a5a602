//! Parameters, and how they learn.

use super::kernel::{Command, Extent, Kernels, kernel};
use wgpu_norm::wgpu::Buffer;
use wgpu_norm::{Error, GpuContext, bytemuck};

/// A buffer with numbers.
pub fn upload(gpu: &GpuContext, label: &'static str, values: &[f32]) -> Result<Buffer, Error> {
    gpu.upload(label, bytemuck::cast_slice(values))
}

/// A buffer of zeros.
pub fn zeros(gpu: &GpuContext, label: &'static str, len: usize) -> Result<Buffer, Error> {
    upload(gpu, label, &vec![0.0; len])
}

/// A parameter.
#[derive(Debug)]
pub struct Param {
    pub value: Buffer,
    /// The gradient of the last batch's loss.
    pub gradient: Buffer,
    /// The decaying sum of all gradients.
    velocity: Buffer,
}

impl Param {
    pub fn new(gpu: &GpuContext, name: &'static str, values: &[f32]) -> Result<Self, Error> {
        Ok(Self {
            value: upload(gpu, name, values)?,
            gradient: zeros(gpu, "gradient", values.len())?,
            velocity: zeros(gpu, "velocity", values.len())?,
        })
    }

    /// Changes the value by the gradient: stochastic gradient descent with momentum. `rate` holds one number.
    pub fn learn(&self, kernels: &Kernels, rate: &Buffer) -> Command {
        let buffers = [rate, &self.gradient, &self.velocity, &self.value];
        let extent = Extent::Elements(&self.value);
        kernels.bind(kernel!("sgd"), vec![], &buffers, extent)
    }
}
