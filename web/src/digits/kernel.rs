//! The kernels of this folder, compiled once, and commands: dispatches that are bound once and recorded every step.

use std::cell::RefCell;
use std::collections::BTreeMap;
use wgpu_norm::wgpu::{self, Buffer};
use wgpu_norm::{Bound, GpuContext};

/// The invocations of a workgroup, in every kernel.
const WORKGROUP: u64 = 64;

/// A kernel's name and its WGSL, whose entry point is `main`.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    pub name: &'static str,
    pub wgsl: &'static str,
}

/// The source of a kernel of this folder.
macro_rules! kernel {
    ($name:literal) => {
        $crate::digits::kernel::Source {
            name: $name,
            wgsl: include_str!(concat!("kernels/", $name, ".wgsl")),
        }
    };
}
pub(crate) use kernel;

/// Values for a kernel's constants.
pub type Constants = Vec<(&'static str, usize)>;

/// How many invocations run.
#[derive(Clone, Copy, Debug)]
pub enum Extent<'a> {
    /// One for each element of a buffer.
    Elements(&'a Buffer),
    /// This number of workgroups.
    Workgroups(usize),
}

/// Compiled kernels.
#[derive(Debug)]
pub struct Kernels {
    pub gpu: GpuContext,
    compiled: RefCell<BTreeMap<(&'static str, Constants), wgpu::ComputePipeline>>,
}

/// A dispatch of a kernel of this folder, or of wgpu-norm's, with its buffers.
#[derive(Debug)]
pub enum Command {
    Kernel(wgpu::ComputePipeline, wgpu::BindGroup, u32),
    Norm(Bound),
}

impl Kernels {
    pub fn new(gpu: &GpuContext) -> Self {
        Self {
            gpu: gpu.clone(),
            compiled: RefCell::default(),
        }
    }

    /// Binds buffers to a kernel's bindings 0, 1, and so on.
    pub fn bind(
        &self,
        source: Source,
        constants: Constants,
        buffers: &[&Buffer],
        extent: Extent<'_>,
    ) -> Command {
        let pipeline = self.pipeline(source, constants);
        let entries = (0..).zip(buffers).map(|(binding, buffer)| {
            let resource = buffer.as_entire_binding();
            wgpu::BindGroupEntry { binding, resource }
        });
        let descriptor = wgpu::BindGroupDescriptor {
            label: Some(source.name),
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries.collect::<Vec<_>>(),
        };
        let bind_group = self.gpu.device().create_bind_group(&descriptor);
        let workgroups = match extent {
            Extent::Elements(buffer) => (buffer.size() / 4).div_ceil(WORKGROUP),
            Extent::Workgroups(workgroups) => workgroups as u64,
        };
        // If there are too many for a u32, there are too many for the device, which then refuses the dispatch.
        let workgroups = u32::try_from(workgroups).unwrap_or(u32::MAX);
        Command::Kernel(pipeline, bind_group, workgroups)
    }

    fn pipeline(&self, source: Source, constants: Constants) -> wgpu::ComputePipeline {
        let mut compiled = self.compiled.borrow_mut();
        let entry = compiled.entry((source.name, constants.clone()));
        let compile = || self.compile(source, &constants);
        entry.or_insert_with(compile).clone()
    }

    fn compile(&self, source: Source, constants: &Constants) -> wgpu::ComputePipeline {
        let device = self.gpu.device();
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(source.name),
            source: wgpu::ShaderSource::Wgsl(source.wgsl.into()),
        });
        let constants = constants.iter().map(|&(name, value)| (name, value as f64));
        device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(source.name),
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: &constants.collect::<Vec<_>>(),
                ..Default::default()
            },
            cache: None,
        })
    }
}

/// Records commands in a compute pass. wgpu orders them by the buffers that they share.
pub fn record<'a>(
    encoder: &mut wgpu::CommandEncoder,
    commands: impl IntoIterator<Item = &'a Command>,
) {
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    for command in commands {
        match command {
            Command::Kernel(pipeline, bind_group, workgroups) => {
                pass.set_pipeline(pipeline);
                pass.set_bind_group(0, bind_group, &[]);
                pass.dispatch_workgroups(*workgroups, 1, 1);
            }
            Command::Norm(bound) => bound.record_in(&mut pass),
        }
    }
}
