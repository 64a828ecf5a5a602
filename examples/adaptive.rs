//! Adaptive layer norm on your own buffers, as a diffusion transformer runs it: the parameters of each sample come from
//! buffers that another kernel has written, and nothing leaves the device but what you read.
//!
//! ```sh
//! cargo run --example adaptive
//! ```

mod common;

use common::compare;
use std::error::Error;
use std::process::ExitCode;
use wgpu_norm::{BufferRange, DType, Forward, GpuContext, Norm, Operation, Plan, Tensor};
use wgpu_norm_verify::Random;
use wgpu_norm_verify::reference::compute;

const SHAPE: [usize; 3] = [2, 64, 96]; // samples, tokens, features

fn main() -> ExitCode {
    common::main(adaptive())
}

async fn adaptive() -> Result<(), Box<dyn Error>> {
    let gpu = GpuContext::new().await?;
    println!("running on {}", gpu.adapter_info().name);

    // Statistics over the features of each token; gamma and beta for each sample and feature. gamma is 1 + scale.
    let norm = Norm::axes(&[2], &[0, 2]);
    let forward = Operation::new(norm, Forward::default(), &SHAPE, DType::F32);
    let forward = forward.with_zero_centered_gamma(true);
    let backward = forward.gradient()?;
    let [plan, gradient] = [forward.plan(gpu.profile())?, backward.plan(gpu.profile())?];

    // Your buffers: the passes share what both use.
    let mut random = Random::new(1);
    let mut tensors = Tensors(Vec::new());
    for (tensor, elements) in [
        (Tensor::Src, SHAPE.iter().product()),
        (Tensor::Gamma, SHAPE[0] * SHAPE[2]),
        (Tensor::Beta, SHAPE[0] * SHAPE[2]),
        (Tensor::DiffDst, SHAPE.iter().product()),
    ] {
        let values: Vec<f32> = random.vec(elements, 1.0, 0.0);
        tensors.add(&gpu, tensor, 4 * elements as u64);
        let buffer = tensors.find(tensor)?;
        gpu.queue()
            .write_buffer(buffer, 0, bytemuck::cast_slice(&values));
    }
    for used in plan.buffers().iter().chain(&gradient.buffers()) {
        tensors.add(&gpu, used.tensor, used.bytes);
    }

    // Bind once, record in every step.
    let bound = plan.bind(&gpu, &tensors.ranges(&plan)?)?;
    let bound_gradient = gradient.bind(&gpu, &tensors.ranges(&gradient)?)?;
    let mut encoder = gpu.device().create_command_encoder(&Default::default());
    bound.record(&mut encoder);
    bound_gradient.record(&mut encoder);
    gpu.queue().submit([encoder.finish()]);

    // The reference in float64 agrees, forward and backward.
    for operation in [forward, backward] {
        let mut inputs = Vec::new();
        for used in operation
            .tensors()?
            .iter()
            .filter(|used| used.access.reads())
        {
            let values = tensors.read(&gpu, used.tensor)?;
            inputs.push((
                used.tensor,
                values.into_iter().map(f64::from).collect::<Vec<f64>>(),
            ));
        }
        let inputs: Vec<(Tensor, &[f64])> = inputs
            .iter()
            .map(|(tensor, values)| (*tensor, &**values))
            .collect();
        let want = compute(&operation, &inputs)?;
        for computed in &want {
            compare(
                computed.tensor,
                &tensors.read(&gpu, computed.tensor)?,
                &want,
            )?;
        }
    }
    Ok(())
}

struct Tensors(Vec<(Tensor, wgpu::Buffer)>);

impl Tensors {
    /// Makes a buffer for a tensor that has none.
    fn add(&mut self, gpu: &GpuContext, tensor: Tensor, size: u64) {
        use wgpu::BufferUsages;
        if self
            .0
            .iter()
            .any(|(own, buffer)| *own == tensor && buffer.size() >= size)
        {
            return;
        }
        self.0.retain(|(own, _)| *own != tensor);
        let buffer = gpu.device().create_buffer(&wgpu::BufferDescriptor {
            label: Some(tensor.name()),
            size,
            usage: BufferUsages::STORAGE | BufferUsages::COPY_DST | BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        self.0.push((tensor, buffer));
    }

    fn find(&self, tensor: Tensor) -> Result<&wgpu::Buffer, Box<dyn Error>> {
        let mut all = self.0.iter();
        let found = all.find_map(|(own, buffer)| (*own == tensor).then_some(buffer));
        found.ok_or_else(|| format!("no buffer for {}", tensor.name()).into())
    }

    fn ranges(&self, plan: &Plan) -> Result<Vec<(Tensor, BufferRange<'_>)>, Box<dyn Error>> {
        let uses = plan.buffers().into_iter();
        uses.map(|used| Ok((used.tensor, self.find(used.tensor)?.into())))
            .collect()
    }

    fn read(&self, gpu: &GpuContext, tensor: Tensor) -> Result<Vec<f32>, Box<dyn Error>> {
        let buffer = self.find(tensor)?;
        let staging = gpu.device().create_buffer(&wgpu::BufferDescriptor {
            label: Some("staging"),
            size: buffer.size(),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = gpu.device().create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, buffer.size());
        gpu.queue().submit([encoder.finish()]);
        staging.map_async(wgpu::MapMode::Read, .., |_| ());
        gpu.device().poll(wgpu::PollType::wait_indefinitely())?;
        Ok(bytemuck::pod_collect_to_vec(&staging.get_mapped_range(..)?))
    }
}
