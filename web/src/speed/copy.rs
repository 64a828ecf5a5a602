//! The copy bandwidth: a kernel that moves as many bytes as a case does under its plain model, half of them read and
//! half written, four words of 32 bits to a load.

use super::cases::is_software;
use super::clock::{Clock, median};
use super::device::{Buffers, Work, fill, next, scoped, sets, warm};
use std::cell::Cell;
use wgpu_norm::{Error, GpuContext};

/// Invocations of a workgroup, and loads of an invocation: the fastest is used.
const KERNELS: [(u32, u32); 7] = [
    (64, 1),
    (256, 1),
    (64, 4),
    (256, 4),
    (64, 16),
    (256, 16),
    (8, 256),
];

/// The largest buffer of a copy. A larger copy goes through smaller ones, several times.
const LARGEST: u64 = 1 << 26;

/// Samples of each kernel.
const TRIALS: usize = 5;

/// The copy kernels, compiled.
pub struct Copier {
    gpu: GpuContext,
    /// Of all kernels, so that they share buffers.
    layout: wgpu::BindGroupLayout,
    kernels: Vec<Kernel>,
    /// The fastest, and the bytes of the copies that were compared.
    best: usize,
    compared: u64,
}

#[derive(Clone)]
struct Kernel {
    workgroup: u32,
    loads: u32,
    pipeline: wgpu::ComputePipeline,
}

/// A copy kernel on its buffers.
pub struct Copies {
    kernel: Kernel,
    /// Several, so that none is in a cache when its turn comes.
    pairs: Vec<wgpu::BindGroup>,
    /// The bytes that a pair copies, and the pairs that one copy takes.
    size: u64,
    pieces: u64,
    turn: Cell<usize>,
    most_workgroups: u32,
    _buffers: Buffers,
}

impl Copier {
    pub async fn new(gpu: &GpuContext) -> Result<Self, Error> {
        let most = gpu.profile().max_invocations;
        let create = || {
            let layout = layout(gpu.device());
            let fitting = KERNELS.into_iter().filter(|(size, _)| *size <= most);
            let kernels = fitting.map(|(workgroup, loads)| Kernel {
                workgroup,
                loads,
                pipeline: compile(gpu.device(), &layout, &wgsl(workgroup, loads)),
            });
            Ok(Self {
                gpu: gpu.clone(),
                kernels: kernels.collect(),
                layout,
                best: 0,
                compared: 0,
            })
        };
        scoped(gpu, "copy kernels", 0, create).await
    }

    /// Finds the fastest kernel for copies of this many bytes, unless it is known for about as many; on a CPU, where
    /// that takes seconds, for any number. Samples are taken in turns, so that other load on the machine affects all
    /// kernels alike.
    pub async fn choose(
        &mut self,
        clock: &mut Clock,
        bytes: u64,
        pattern: &wgpu::Buffer,
    ) -> Result<(), Error> {
        let about_as_many = bytes <= 2 * self.compared && self.compared <= 2 * bytes;
        if about_as_many || (self.compared > 0 && is_software(&self.gpu)) {
            return Ok(());
        }
        let mut copies = self.prepare(bytes, pattern).await?;
        let runs = clock.runs(&copies).await?;
        let mut samples = vec![Vec::new(); self.kernels.len()];
        for trial in 0..=TRIALS {
            for (kernel, samples) in self.kernels.iter().zip(&mut samples) {
                copies.kernel = kernel.clone();
                let time = clock.sample(&copies, runs).await?;
                // The first may still compile.
                if trial > 0 {
                    samples.push(time);
                }
            }
        }
        let times = samples.iter().map(|samples| median(samples));
        let least = times.enumerate().min_by(|(_, a), (_, b)| a.total_cmp(b));
        self.best = least.map_or(0, |(index, _)| index);
        self.compared = bytes;
        Ok(())
    }

    /// Copies that move this many bytes, by the fastest kernel.
    pub async fn prepare(&self, bytes: u64, pattern: &wgpu::Buffer) -> Result<Copies, Error> {
        let gpu = &self.gpu;
        let kernel = self.kernels.get(self.best).cloned();
        let kernel = kernel.ok_or_else(|| Error::gpu("copy", "no kernel fits the adapter"))?;
        let profile = gpu.profile();
        let largest = LARGEST.min(profile.max_binding).min(profile.max_buffer);
        let half = bytes.div_ceil(2).max(256);
        let pieces = half.div_ceil((largest / 256 * 256).max(256));
        let size = half.div_ceil(pieces).next_multiple_of(256);
        let count = sets(gpu, 2 * size);
        let create = || {
            let mut buffers = Buffers::default();
            let mut pairs = Vec::new();
            let mut encoder = gpu.device().create_command_encoder(&Default::default());
            for _ in 0..count {
                let from = buffers.storage(gpu, "copy", size)?;
                let to = buffers.storage(gpu, "copy", size)?;
                fill(&mut encoder, pattern, 0, &from);
                let (from, to) = (from.as_entire_binding(), to.as_entire_binding());
                let entry = |binding, resource| wgpu::BindGroupEntry { binding, resource };
                pairs.push(gpu.device().create_bind_group(&wgpu::BindGroupDescriptor {
                    label: Some("copy"),
                    layout: &self.layout,
                    entries: &[entry(0, from), entry(1, to)],
                }));
            }
            gpu.queue().submit([encoder.finish()]);
            Ok(Copies {
                kernel,
                pairs,
                size,
                pieces,
                turn: Cell::new(0),
                most_workgroups: profile.max_workgroups.max(1),
                _buffers: buffers,
            })
        };
        let copies = scoped(gpu, "copy", 2 * size * count, create).await?;
        warm(gpu, &copies, copies.pairs.len()).await?;
        Ok(copies)
    }
}

impl Copies {
    /// The bytes that one copy reads and writes.
    pub fn bytes(&self) -> u64 {
        2 * self.size * self.pieces
    }

    /// The kernel as the command names it: invocations x loads, and the number and bits of a load's words.
    pub fn kernel(&self) -> String {
        format!("{}x{} 4xu32", self.kernel.workgroup, self.kernel.loads)
    }
}

impl Work for Copies {
    fn record(&self, pass: &mut wgpu::ComputePass<'_>) {
        let Kernel {
            workgroup, loads, ..
        } = self.kernel;
        let tile = u64::from(workgroup) * u64::from(loads) * 16;
        let workgroups = self.size.div_ceil(tile);
        let rows = workgroups.div_ceil(self.most_workgroups.into());
        let columns = workgroups.div_ceil(rows.max(1));
        let word = |count| u32::try_from(count).unwrap_or(u32::MAX);
        pass.set_pipeline(&self.kernel.pipeline);
        for _ in 0..self.pieces {
            if let Some(pair) = next(&self.turn, &self.pairs) {
                pass.set_bind_group(0, pair, &[]);
                pass.dispatch_workgroups(word(columns), word(rows), 1);
            }
        }
    }
}

fn wgsl(workgroup: u32, loads: u32) -> String {
    // Up to four loads are in flight, and those of a workgroup are adjacent.
    format!(
        "const size = {workgroup}u;
         const tile = {workgroup}u * {loads}u;
         @group(0) @binding(0) var<storage, read> from_: array<vec4<u32>>;
         @group(0) @binding(1) var<storage, read_write> to: array<vec4<u32>>;
         @compute @workgroup_size({workgroup})
         fn copy(
             @builtin(workgroup_id) workgroup: vec3<u32>,
             @builtin(num_workgroups) workgroups: vec3<u32>,
             @builtin(local_invocation_index) thread: u32,
         ) {{
             let group = workgroup.y * workgroups.x + workgroup.x;
             let end = min(arrayLength(&from_), (group + 1u) * tile);
             var i = group * tile + thread;
             for (; i + 3u * size < end; i += 4u * size) {{
                 let a = from_[i];
                 let b = from_[i + size];
                 let c = from_[i + 2u * size];
                 let d = from_[i + 3u * size];
                 to[i] = a;
                 to[i + size] = b;
                 to[i + 2u * size] = c;
                 to[i + 3u * size] = d;
             }}
             for (; i < end; i += size) {{ to[i] = from_[i]; }}
         }}"
    )
}

fn layout(device: &wgpu::Device) -> wgpu::BindGroupLayout {
    let buffer = |binding, read_only| wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage { read_only },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    };
    device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: Some("copy"),
        entries: &[buffer(0, true), buffer(1, false)],
    })
}

fn compile(
    device: &wgpu::Device,
    layout: &wgpu::BindGroupLayout,
    text: &str,
) -> wgpu::ComputePipeline {
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some("copy"),
        source: wgpu::ShaderSource::Wgsl(text.into()),
    });
    let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some("copy"),
        bind_group_layouts: &[Some(layout)],
        immediate_size: 0,
    });
    device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some("copy"),
        layout: Some(&layout),
        module: &module,
        entry_point: Some("copy"),
        compilation_options: Default::default(),
        cache: None,
    })
}
