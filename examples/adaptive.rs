//! A branch of a diffusion transformer (DiT) on your own buffers: x + gate · branch(adaptive layer norm of x), with the
//! gradients of x, scale, shift and gate. The branch and the gate are kernels of yours, recorded beside the norm's.
//!
//! ```sh
//! cargo run --example adaptive
//! ```

mod common;

use std::collections::HashMap;
use std::error::Error;
use std::process::ExitCode;
use wgpu_norm::{BufferRange, DType, Forward, GpuContext, Norm, Operation, Plan, Tensor};
use wgpu_norm_verify::Random;
use wgpu_norm_verify::reference::{Computed, compute};

const SHAPE: [usize; 3] = [2, 64, 96]; // samples, tokens, features
const ELEMENTS: usize = 2 * 64 * 96;
const MODULATION: usize = 2 * 96; // numbers of a sample and feature

/// The kernels of yours. y · y stands for attention or a perceptron.
const KERNELS: &str = "
const TOKENS = 64u;
const FEATURES = 96u;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> gate: array<f32>;
@group(0) @binding(2) var<storage, read> y: array<f32>; // the norm's output
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
@group(0) @binding(4) var<storage, read> diff_out: array<f32>;
@group(0) @binding(5) var<storage, read_write> diff_y: array<f32>;
@group(0) @binding(6) var<storage, read_write> diff_gate: array<f32>;
@group(0) @binding(7) var<storage, read_write> diff_x: array<f32>;

@compute @workgroup_size(64)
fn forward(@builtin(global_invocation_id) id: vec3u) {
    let i = id.x;
    if (i < arrayLength(&x)) {
        out[i] = x[i] + gate[i / (TOKENS * FEATURES) * FEATURES + i % FEATURES] * y[i] * y[i];
    }
}

// An invocation has a feature of a sample.
@compute @workgroup_size(64)
fn backward(@builtin(global_invocation_id) id: vec3u) {
    if (id.x < arrayLength(&gate)) {
        let first = id.x / FEATURES * TOKENS * FEATURES + id.x % FEATURES;
        var sum = 0.0;
        for (var token = 0u; token < TOKENS; token++) {
            let i = first + token * FEATURES;
            sum += diff_out[i] * y[i] * y[i];
            diff_y[i] = diff_out[i] * gate[id.x] * 2.0 * y[i];
        }
        diff_gate[id.x] = sum;
    }
}

// The residual connection, after the norm's gradient.
@compute @workgroup_size(64)
fn residual(@builtin(global_invocation_id) id: vec3u) {
    if (id.x < arrayLength(&diff_x)) {
        diff_x[id.x] += diff_out[id.x];
    }
}
";

fn main() -> ExitCode {
    common::main(branch())
}

async fn branch() -> Result<(), Box<dyn Error>> {
    let gpu = GpuContext::new().await?;
    println!("running on {}", gpu.adapter_info().name);

    // Statistics over the features of each token; gamma and beta for each sample and feature. gamma is 1 + scale.
    let norm = Norm::axes(&[2], &[0, 2]);
    let forward = Operation::new(norm, Forward::default(), &SHAPE, DType::F32);
    let forward = forward.with_zero_centered_gamma(true);
    let backward = forward.gradient()?;
    let [plan, gradient] = [forward.plan(gpu.profile())?, backward.plan(gpu.profile())?];

    // Your buffers, by name. Both plans share what they read and write.
    let mut buffers = Buffers::default();
    let mut random = Random::new(1);
    let mut given = HashMap::new();
    for (name, elements) in [
        ("src", ELEMENTS), // x
        ("gamma", MODULATION),
        ("beta", MODULATION),
        ("gate", MODULATION),
        ("diff_out", ELEMENTS),
    ] {
        let values: Vec<f32> = random.vec(elements, 1.0, 0.0);
        buffers.add(&gpu, name, 4 * elements as u64);
        let buffer = buffers.find(name)?;
        let queue = gpu.queue();
        queue.write_buffer(buffer, 0, bytemuck::cast_slice(&values));
        given.insert(name, values.into_iter().map(f64::from).collect::<Vec<_>>());
    }
    for used in plan.buffers().iter().chain(&gradient.buffers()) {
        buffers.add(&gpu, used.tensor.name(), used.bytes);
    }
    for (name, elements) in [("out", ELEMENTS), ("diff_gate", MODULATION)] {
        buffers.add(&gpu, name, 4 * elements as u64);
    }

    // Bind once, record in every step: norm, branch, its gradient, the norm's gradient, residual.
    let bound = plan.bind(&gpu, &buffers.ranges(&plan)?)?;
    let bound_gradient = gradient.bind(&gpu, &buffers.ranges(&gradient)?)?;
    let module = gpu
        .device()
        .create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some("branch"),
            source: wgpu::ShaderSource::Wgsl(KERNELS.into()),
        });
    let kernel = |entry, bindings: &[(u32, &str)], invocations: usize| {
        buffers.kernel(&gpu, &module, entry, bindings, invocations)
    };
    let bindings = [(0, "src"), (1, "gate"), (2, "dst"), (3, "out")];
    let branch = kernel("forward", &bindings, ELEMENTS)?;
    let bindings = [
        (1, "gate"),
        (2, "dst"),
        (4, "diff_out"),
        (5, "diff_dst"),
        (6, "diff_gate"),
    ];
    let branch_gradient = kernel("backward", &bindings, MODULATION)?;
    let residual = kernel("residual", &[(4, "diff_out"), (7, "diff_src")], ELEMENTS)?;
    let mut encoder = gpu.device().create_command_encoder(&Default::default());
    bound.record(&mut encoder);
    branch.record(&mut encoder);
    branch_gradient.record(&mut encoder);
    bound_gradient.record(&mut encoder);
    residual.record(&mut encoder);
    gpu.queue().submit([encoder.finish()]);

    // The same in float64.
    let inputs = [Tensor::Src, Tensor::Gamma, Tensor::Beta];
    let inputs = inputs.map(|tensor| (tensor, &*given[tensor.name()]));
    let normed = compute(&forward, &inputs)?;
    let y = find(&normed, Tensor::Dst)?;
    let [gate, x, diff_out] = ["gate", "src", "diff_out"].map(|name| &given[name]);
    let modulation = |i: usize| i / (SHAPE[1] * SHAPE[2]) * SHAPE[2] + i % SHAPE[2];
    let all = || 0..ELEMENTS;
    let out = all()
        .map(|i| x[i] + gate[modulation(i)] * y[i] * y[i])
        .collect::<Vec<_>>();
    let diff_y = all()
        .map(|i| diff_out[i] * gate[modulation(i)] * 2.0 * y[i])
        .collect::<Vec<_>>();
    let mut diff_gate = vec![0.0; MODULATION];
    for i in all() {
        diff_gate[modulation(i)] += diff_out[i] * y[i] * y[i];
    }
    let [mean, variance] = [Tensor::Mean, Tensor::Variance].map(|tensor| find(&normed, tensor));
    let more = [
        (Tensor::DiffDst, &*diff_y),
        (Tensor::Mean, mean?),
        (Tensor::Variance, variance?),
    ];
    let grads = compute(&backward, &[&inputs[..], &more].concat())?;
    let diff_src = find(&grads, Tensor::DiffSrc)?.iter().zip(diff_out);
    let diff_x: Vec<f64> = diff_src.map(|(src, out)| src + out).collect();
    for (name, want) in [
        ("out", &*out),
        ("diff_src", &diff_x),
        ("diff_gamma", find(&grads, Tensor::DiffGamma)?), // of scale
        ("diff_beta", find(&grads, Tensor::DiffBeta)?),   // of shift
        ("diff_gate", &diff_gate),
    ] {
        let got = buffers.read(&gpu, name)?;
        let largest = want
            .iter()
            .fold(0.0, |most: f64, value| most.max(value.abs()));
        let errors = got
            .iter()
            .zip(want)
            .map(|(got, want)| (f64::from(*got) - want).abs());
        let error = errors.fold(0.0, f64::max) / largest;
        println!("{name:10} is off by {error:.1e} of its largest number");
        if got.len() < want.len() || error.is_nan() || error > 1e-5 {
            return Err(format!("{name}: expected the reference's numbers").into());
        }
    }
    Ok(())
}

/// A result of the reference.
fn find(computed: &[Computed], tensor: Tensor) -> Result<&[f64], Box<dyn Error>> {
    let found = computed.iter().find(|computed| computed.tensor == tensor);
    let found = found.ok_or_else(|| format!("no {}", tensor.name()))?;
    Ok(&found.values)
}

/// A kernel of yours with its buffers.
struct Kernel {
    pipeline: wgpu::ComputePipeline,
    bind_group: wgpu::BindGroup,
    workgroups: u32,
}

impl Kernel {
    fn record(&self, encoder: &mut wgpu::CommandEncoder) {
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.bind_group, &[]);
        pass.dispatch_workgroups(self.workgroups, 1, 1);
    }
}

#[derive(Default)]
struct Buffers(HashMap<&'static str, wgpu::Buffer>);

impl Buffers {
    /// Makes a buffer, unless there is one as large.
    fn add(&mut self, gpu: &GpuContext, name: &'static str, size: u64) {
        use wgpu::BufferUsages;
        if self.0.get(name).is_some_and(|buffer| buffer.size() >= size) {
            return;
        }
        let buffer = gpu.device().create_buffer(&wgpu::BufferDescriptor {
            label: Some(name),
            size,
            usage: BufferUsages::STORAGE | BufferUsages::COPY_DST | BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        self.0.insert(name, buffer);
    }

    fn find(&self, name: &str) -> Result<&wgpu::Buffer, Box<dyn Error>> {
        self.0
            .get(name)
            .ok_or_else(|| format!("no buffer for {name}").into())
    }

    /// What a plan binds.
    fn ranges(&self, plan: &Plan) -> Result<Vec<(Tensor, BufferRange<'_>)>, Box<dyn Error>> {
        let uses = plan.buffers().into_iter();
        uses.map(|used| Ok((used.tensor, self.find(used.tensor.name())?.into())))
            .collect()
    }

    fn kernel(
        &self,
        gpu: &GpuContext,
        module: &wgpu::ShaderModule,
        entry: &str,
        bindings: &[(u32, &str)],
        invocations: usize,
    ) -> Result<Kernel, Box<dyn Error>> {
        let device = gpu.device();
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(entry),
            layout: None,
            module,
            entry_point: Some(entry),
            compilation_options: Default::default(),
            cache: None,
        });
        let mut entries = Vec::new();
        for &(binding, name) in bindings {
            let resource = self.find(name)?.as_entire_binding();
            entries.push(wgpu::BindGroupEntry { binding, resource });
        }
        let bind_group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(entry),
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        Ok(Kernel {
            pipeline,
            bind_group,
            workgroups: u32::try_from(invocations.div_ceil(64))?,
        })
    }

    fn read(&self, gpu: &GpuContext, name: &str) -> Result<Vec<f32>, Box<dyn Error>> {
        let buffer = self.find(name)?;
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
