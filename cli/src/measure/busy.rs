//! Work that touches no memory, to keep a GPU's clock up. A GPU lowers its clock to a third or less when it waits
//! between submissions, and does not raise it again for a short kernel, so that the measurement would show the clock.
//! So each sample follows a millisecond of arithmetic in the same submission, as it would follow other kernels in a
//! training loop.

use super::device::{scoped, storage};
use std::time::Duration;
use wgpu_norm::{Error, GpuContext};

/// The approximate time for which the GPU is kept busy before a sample.
const TIME: Duration = Duration::from_millis(1);

const MOST_DISPATCHES: u32 = 16;

/// Touches no memory, so that caches keep their contents. A dispatch begins after the end of the one before, since it
/// might read what that wrote.
const TEXT: &str = "
    @group(0) @binding(0) var<storage, read_write> never: array<u32>;
    @compute @workgroup_size(64)
    fn busy(@builtin(global_invocation_id) id: vec3<u32>) {
        var x = id.x;
        for (var i = 0u; i < STEPSu; i++) { x = x * 1664525u + 1013904223u; }
        if x == 0xffffffffu && id.x == 0xffffffffu { never[0] = x; }
    }";

pub struct Busy {
    pipeline: wgpu::ComputePipeline,
    bind_group: wgpu::BindGroup,
    workgroups: u32,
    pub dispatches: u32,
}

impl Busy {
    /// Dispatches of some workgroups, each of whose invocations takes some steps.
    pub fn new(gpu: &GpuContext, workgroups: u32, steps: u32) -> Result<Self, Error> {
        let device = gpu.device();
        let buffer = storage(device, "busy", 32)?;
        let text = TEXT.replace("STEPS", &steps.to_string());
        scoped(device, "busy", 0, || {
            let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
                label: Some("busy"),
                source: wgpu::ShaderSource::Wgsl(text.into()),
            });
            let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some("busy"),
                layout: None,
                module: &module,
                entry_point: Some("busy"),
                compilation_options: Default::default(),
                cache: None,
            });
            let bind_group = device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: Some("busy"),
                layout: &pipeline.get_bind_group_layout(0),
                entries: &[wgpu::BindGroupEntry {
                    binding: 0,
                    resource: buffer.as_entire_binding(),
                }],
            });
            Self {
                pipeline,
                bind_group,
                workgroups,
                dispatches: 1,
            }
        })
    }

    /// Sets the number of dispatches that fill the time, where one takes `one`.
    pub fn calibrate(&mut self, one: Duration) {
        let dispatches = TIME.as_secs_f64() / one.as_secs_f64().max(1e-9);
        self.dispatches = (dispatches.ceil() as u32).clamp(1, MOST_DISPATCHES);
    }

    pub fn record(&self, encoder: &mut wgpu::CommandEncoder) {
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.bind_group, &[]);
        for _ in 0..self.dispatches {
            pass.dispatch_workgroups(self.workgroups, 1, 1);
        }
    }
}
