//! The adapter's copy bandwidth: the best of a fixed set of copy kernels, which move as many bytes as the case does
//! under its plain model (5n for a gradient), half of them read and half written.
//!
//! The set: a load moves four words of 32 bits or, where the adapter has them, two or four of 64 bits; workgroups have
//! 8, 64 or 256 invocations; an invocation makes 1, 4, 16, 64 or 256 loads, up to four of them in flight, and those of
//! a workgroup are adjacent. wgpu adds no bounds checks. The best kernel with 32-bit words, all that portable WGSL has,
//! is reported, too. `copy_buffer_to_buffer` is also measured but not in the set: it is not a kernel, and drivers
//! implement it by other means.

use super::device::{scoped, storage};
use super::rotation;
use super::timing::{Clock, Rounds, median_ms};
use std::time::Duration;
use wgpu_norm::{Error, GpuContext};

const WORKGROUPS: [u32; 3] = [8, 64, 256];
const LOADS: [u32; 5] = [1, 4, 16, 64, 256];

/// The words that a load moves: bits per word, and number of words.
const WORDS: [(u32, u32); 3] = [(32, 4), (64, 2), (64, 4)];

/// Samples per kernel to choose the best.
const TRIALS: u32 = 3;

/// The copy kernels, compiled.
pub struct Copier {
    device: wgpu::Device,
    layout: wgpu::BindGroupLayout,
    kernels: Vec<Kernel>,
    largest: u64,
    most_workgroups: u32,
}

struct Kernel {
    workgroup: u32,
    loads: u32,
    /// Bits per word, and number of words that a load moves.
    words: (u32, u32),
    pipeline: wgpu::ComputePipeline,
}

impl Kernel {
    /// Bytes that a workgroup copies.
    fn tile(&self) -> u64 {
        let (bits, count) = self.words;
        u64::from(self.workgroup) * u64::from(self.loads) * u64::from(bits / 8 * count)
    }
}

/// Source and destination of a copy, in pieces that fit a binding. There are several sets, so that none is in a cache
/// when its turn comes.
pub struct Copies {
    sets: Vec<Vec<Piece>>,
    /// Bytes read and written by one copy.
    pub bytes: u64,
    /// The number of runs in a sample.
    repeats: usize,
}

struct Piece {
    from: wgpu::Buffer,
    to: wgpu::Buffer,
    bytes: u64,
    bind_group: wgpu::BindGroup,
}

/// A kernel of the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelIndex(usize);

/// The fastest kernels for some size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choices {
    pub of_all: KernelIndex,
    /// The fastest kernel with 32-bit words.
    pub portable: KernelIndex,
}

impl Copier {
    pub fn new(gpu: &GpuContext) -> Result<Self, Error> {
        let device = gpu.device();
        let profile = gpu.profile();
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
        let layout = scoped(device, "copy", 0, || {
            device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: Some("copy"),
                entries: &[buffer(0, true), buffer(1, false)],
            })
        })?;
        let mut kernels = Vec::new();
        let sizes = WORKGROUPS.into_iter().flat_map(|workgroup| {
            let loads = LOADS.into_iter();
            loads.flat_map(move |loads| WORDS.map(|words| (workgroup, loads, words)))
        });
        for (workgroup, loads, words) in sizes {
            if workgroup <= profile.max_invocations && (words.0 == 32 || profile.long_words) {
                let text = wgsl(workgroup, loads, words);
                let pipeline = scoped(device, "copy", 0, || compile(device, &layout, text))?;
                kernels.push(Kernel {
                    workgroup,
                    loads,
                    words,
                    pipeline,
                });
            }
        }
        Ok(Self {
            device: device.clone(),
            layout,
            kernels,
            largest: profile.max_binding.min(profile.max_buffer).min(1 << 30) / 256 * 256,
            most_workgroups: profile.max_workgroups.max(1),
        })
    }

    /// Buffers for copies that move this many bytes, filled with `pattern`.
    pub fn prepare(
        &self,
        bytes: u64,
        repeats: usize,
        clock: &Clock,
        pattern: &wgpu::Buffer,
    ) -> Result<Copies, Error> {
        let half = bytes.div_ceil(2).next_multiple_of(32).max(32);
        let sets = rotation::sets(2 * half, rotation::TOTAL, |_| self.set(half))?;
        clock.wall(|encoder| {
            for piece in sets.iter().flatten() {
                rotation::fill(encoder, pattern, 0, &piece.from);
            }
        })?;
        let copies = Copies {
            sets,
            bytes: 2 * half,
            repeats,
        };
        // Touches all memory, and reports any complaint of wgpu's.
        for index in 0..copies.sets.len() {
            scoped(&self.device, "copy", 0, || {
                clock.wall(|encoder| self.record(encoder, KernelIndex(0), &copies, index))
            })??;
        }
        Ok(copies)
    }

    fn set(&self, half: u64) -> Result<Vec<Piece>, Error> {
        let pieces = half.div_ceil(self.largest.max(256));
        let size = half.div_ceil(pieces.max(1)).next_multiple_of(256);
        let mut set = Vec::new();
        let mut start = 0;
        while start < half {
            let bytes = size.min(half - start);
            start += bytes;
            let from = storage(&self.device, "copy", bytes)?;
            let to = storage(&self.device, "copy", bytes)?;
            let binding = |binding, buffer| wgpu::BindGroupEntry {
                binding,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer,
                    offset: 0,
                    size: wgpu::BufferSize::new(bytes),
                }),
            };
            let bind_group = scoped(&self.device, "copy", 0, || {
                self.device.create_bind_group(&wgpu::BindGroupDescriptor {
                    label: Some("copy"),
                    layout: &self.layout,
                    entries: &[binding(0, &from), binding(1, &to)],
                })
            })?;
            set.push(Piece {
                from,
                to,
                bytes,
                bind_group,
            });
        }
        Ok(set)
    }

    /// The fastest kernels for these copies, by the median of a few samples of each, taken in turns: temporary load on
    /// the machine affects all kernels alike.
    pub fn choose(&self, clock: &Clock, copies: &Copies) -> Result<Choices, Error> {
        let mut samples = vec![Vec::new(); self.kernels.len()];
        for trial in 0..=TRIALS as usize {
            for (index, samples) in samples.iter_mut().enumerate() {
                let time = self.time(clock, KernelIndex(index), copies, trial)?;
                // The first may still compile.
                if trial > 0 {
                    samples.push(time);
                }
            }
        }
        let nothing = (f64::INFINITY, KernelIndex(0));
        let (mut of_all, mut portable) = (nothing, nothing);
        for (index, (kernel, samples)) in self.kernels.iter().zip(&samples).enumerate() {
            let time = median_ms(samples);
            if time < of_all.0 {
                of_all = (time, KernelIndex(index));
            }
            if kernel.words.0 == 32 && time < portable.0 {
                portable = (time, KernelIndex(index));
            }
        }
        Ok(Choices {
            of_all: of_all.1,
            portable: portable.1,
        })
    }

    /// One sample; `turn` rotates the buffers.
    pub fn time(
        &self,
        clock: &Clock,
        choice: KernelIndex,
        copies: &Copies,
        turn: usize,
    ) -> Result<Duration, Error> {
        clock.gpu(copies.repeats, turn, &|encoder, run| {
            self.record(encoder, choice, copies, run);
        })
    }

    /// The median of `copy_buffer_to_buffer`, in milliseconds.
    pub fn plain(&self, clock: &Clock, copies: &Copies, rounds: Rounds) -> Result<f64, Error> {
        let mut samples = Vec::new();
        for turn in 0..rounds.0.unwrap_or(TRIALS) {
            samples.push(clock.gpu(copies.repeats, turn as usize, &|encoder, run| {
                for piece in copies.set(run) {
                    encoder.copy_buffer_to_buffer(&piece.from, 0, &piece.to, 0, piece.bytes);
                }
            })?);
        }
        Ok(median_ms(&samples))
    }

    /// A kernel's name in reports: invocations per workgroup × loads per invocation, and the number and bits of a
    /// load's words.
    pub fn name(&self, choice: KernelIndex) -> String {
        match self.kernels.get(choice.0) {
            Some(kernel) => {
                let (bits, count) = kernel.words;
                format!("{}x{} {count}xu{bits}", kernel.workgroup, kernel.loads)
            }
            None => String::new(),
        }
    }

    fn record(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        choice: KernelIndex,
        copies: &Copies,
        turn: usize,
    ) {
        let Some(kernel) = self.kernels.get(choice.0) else {
            return;
        };
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&kernel.pipeline);
        for piece in copies.set(turn) {
            pass.set_bind_group(0, &piece.bind_group, &[]);
            let workgroups = piece.bytes.div_ceil(kernel.tile());
            let rows = workgroups.div_ceil(u64::from(self.most_workgroups));
            let columns = workgroups.div_ceil(rows.max(1));
            let word = |count| u32::try_from(count).unwrap_or(u32::MAX);
            pass.dispatch_workgroups(word(columns), word(rows), 1);
        }
    }
}

impl Copies {
    fn set(&self, turn: usize) -> &[Piece] {
        let index = turn.checked_rem(self.sets.len()).unwrap_or(0);
        self.sets.get(index).map_or(&[], Vec::as_slice)
    }
}

fn wgsl(workgroup: u32, loads: u32, (bits, count): (u32, u32)) -> String {
    let element = format!("vec{count}<u{bits}>");
    // The loop's body has no bounds checks: a software driver runs both sides of a branch.
    let body = match loads {
        1 => format!(
            "let i = group * {workgroup}u + thread;
             if (i < count) {{ to[i] = from_[i]; }}"
        ),
        _ => format!(
            "let end = min(count, (group + 1u) * {a_workgroup}u);
             var i = group * {a_workgroup}u + thread;
             for (; i + {last}u < end; i += {stride}u) {{
                 let a = from_[i];
                 let b = from_[i + {workgroup}u];
                 let c = from_[i + {two}u];
                 let d = from_[i + {last}u];
                 to[i] = a;
                 to[i + {workgroup}u] = b;
                 to[i + {two}u] = c;
                 to[i + {last}u] = d;
             }}
             for (; i < end; i += {workgroup}u) {{ to[i] = from_[i]; }}",
            a_workgroup = workgroup * loads,
            two = workgroup * 2,
            last = workgroup * 3,
            stride = workgroup * 4,
        ),
    };
    format!(
        "@group(0) @binding(0) var<storage, read> from_: array<{element}>;
         @group(0) @binding(1) var<storage, read_write> to: array<{element}>;
         @compute @workgroup_size({workgroup})
         fn copy(
             @builtin(workgroup_id) workgroup: vec3<u32>,
             @builtin(num_workgroups) workgroups: vec3<u32>,
             @builtin(local_invocation_index) thread: u32,
         ) {{
             let count = arrayLength(&from_);
             let group = workgroup.y * workgroups.x + workgroup.x;
             {body}
         }}"
    )
}

fn compile(
    device: &wgpu::Device,
    layout: &wgpu::BindGroupLayout,
    text: String,
) -> wgpu::ComputePipeline {
    let source = wgpu::ShaderModuleDescriptor {
        label: Some("copy"),
        source: wgpu::ShaderSource::Wgsl(text.into()),
    };
    // SAFETY: every index is compared with the length of `from_`, which `to` also has: both are bound with the same
    // number of bytes. Loops end: a binding has at most 2^28 of these elements, and a step is at most 1024.
    let module = unsafe {
        device.create_shader_module_trusted(source, wgpu::ShaderRuntimeChecks::unchecked())
    };
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some("copy"),
        bind_group_layouts: &[Some(layout)],
        immediate_size: 0,
    });
    device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some("copy"),
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some("copy"),
        compilation_options: Default::default(),
        cache: None,
    })
}
