//! One dispatch's pipeline and bind group.

use super::ranges::{BoundRange, BoundRanges};
use crate::context::GpuContext;
use crate::error::Error;
use crate::f16_encoder::F16Encoder;
use crate::kernels::{Access, Variant};
use crate::plan::{Binding, Dispatch, Phases, Plan};
use crate::tensor::Tensor;

/// The uniforms of all dispatches, one after another.
#[derive(Debug)]
pub(super) struct UniformBuffer {
    buffer: wgpu::Buffer,
    ranges: Vec<(u64, u64)>,
}

impl UniformBuffer {
    /// `kept` also holds the buffer, and drops it last.
    pub fn create(
        gpu: &GpuContext,
        plan: &Plan,
        kept: &mut Vec<wgpu::Buffer>,
    ) -> Result<Self, Error> {
        let alignment = gpu
            .device()
            .limits()
            .min_uniform_buffer_offset_alignment
            .max(16) as usize;
        let mut bytes = Vec::new();
        let mut ranges = Vec::new();
        for (_, dispatch) in &plan.dispatches {
            let uniforms = dispatch.uniforms.bytes(plan.types.data.accumulator());
            bytes.resize(bytes.len().next_multiple_of(alignment), 0);
            ranges.push((bytes.len() as u64, uniforms.len() as u64));
            bytes.extend(uniforms);
        }
        let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
        let buffer = gpu.create_buffer("uniforms", bytes.len() as u64, usage)?;
        kept.push(buffer.clone());
        gpu.write_buffer("uniforms", &buffer, 0, &bytes)?;
        Ok(Self { buffer, ranges })
    }

    pub fn binding(&self, index: usize) -> wgpu::BindingResource<'_> {
        let (offset, size) = self.ranges.get(index).copied().unwrap_or_default();
        buffer_binding(&self.buffer, offset, size)
    }
}

fn buffer_binding(buffer: &wgpu::Buffer, offset: u64, size: u64) -> wgpu::BindingResource<'_> {
    wgpu::BindingResource::Buffer(wgpu::BufferBinding {
        buffer,
        offset,
        size: wgpu::BufferSize::new(size),
    })
}

/// One dispatch, ready to be recorded.
#[derive(Debug)]
pub(super) struct Step {
    pub phases: Phases,
    pub pipeline: wgpu::ComputePipeline,
    pub bind_group: wgpu::BindGroup,
    pub workgroups: [u32; 2],
}

/// Makes one dispatch's step.
pub(super) struct Binder<'a> {
    pub gpu: &'a GpuContext,
    pub plan: &'a Plan,
    pub ranges: &'a BoundRanges<'a>,
}

impl Binder<'_> {
    pub fn step(
        &self,
        phases: Phases,
        dispatch: &Dispatch,
        uniforms: wgpu::BindingResource<'_>,
    ) -> Result<Step, Error> {
        let is_diff_src = |binding: &Binding| binding.tensor == Tensor::DiffSrc;
        let is_diff_dst = |binding: &Binding| binding.tensor == Tensor::DiffDst;
        let bindings = &dispatch.bindings;
        let both = bindings.iter().any(is_diff_src) && bindings.iter().any(is_diff_dst);
        let in_place = both && self.ranges.in_place();
        let mut bound = Vec::new();
        let mut exact = Vec::new();
        for binding in bindings {
            if in_place && is_diff_src(binding) {
                continue;
            }
            let range = self.ranges.get(binding.tensor)?;
            if binding.bytes.end > range.room {
                exact.push(binding.tensor);
            }
            bound.push((binding, range));
        }
        // A plan may have been made for another context, whose adapter supports 64-bit words.
        let access = match self.plan.access() {
            Access::LongWords if !self.gpu.profile().long_words => Access::Vec4,
            access => access,
        };
        let bindings: Vec<_> = bound.iter().map(|(binding, _)| *binding).collect();
        let proven = self.gpu.profile().f16_encoder;
        let mut variant = Variant {
            in_place,
            exact,
            f16_encoder: if self.plan.f16_encoder == proven {
                proven
            } else {
                F16Encoder::Integers
            },
            ..dispatch.variant(self.plan.types, access, &bindings)
        };
        if !variant.fits_subgroups(self.gpu.profile().subgroup_size) {
            variant.add_without_subgroups();
        }
        let written: Vec<_> = bound
            .iter()
            .filter(|(binding, _)| variant.writes(binding.tensor))
            .map(|(_, range)| range.buffer)
            .collect();
        variant.pooled = bound.iter().any(|(binding, range)| {
            !variant.writes(binding.tensor) && written.contains(&range.buffer)
        });
        let pipeline = self.gpu.pipeline(&variant.normalized())?;

        let mut entries = Vec::new();
        for (index, (binding, range)) in bound.iter().enumerate() {
            let bytes = binding.within(range.room);
            entries.push(wgpu::BindGroupEntry {
                binding: index as u32,
                resource: buffer_binding(
                    range.buffer,
                    range.at(bytes.start),
                    bytes.end.saturating_sub(bytes.start),
                ),
            });
        }
        entries.push(wgpu::BindGroupEntry {
            binding: entries.len() as u32,
            resource: uniforms,
        });
        let device = self.gpu.device();
        let name = dispatch.kernel.entry().name();
        let bind_group = self
            .gpu
            .scoped(name, || {
                device.create_bind_group(&wgpu::BindGroupDescriptor {
                    label: Some(name),
                    layout: &pipeline.layout,
                    entries: &entries,
                })
            })
            .map_err(|error| self.blame(error, &bound))?;
        Ok(Step {
            phases,
            pipeline: pipeline.pipeline,
            bind_group,
            workgroups: dispatch.workgroups,
        })
    }

    /// Finds the buffer that wgpu rejects. All other requirements have been checked, so it belongs to another device or
    /// is destroyed.
    fn blame(&self, error: Error, bound: &[(&Binding, &BoundRange<'_>)]) -> Error {
        if !matches!(error, Error::Gpu { .. }) {
            return error;
        }
        let mut probes = bound.iter().map(|(_, range)| probe(self.gpu, range));
        probes.find_map(Result::err).unwrap_or(error)
    }
}

/// An error if a buffer belongs to another device or is destroyed; of a buffer without bytes, wgpu does not tell.
pub(super) fn probe(gpu: &GpuContext, range: &BoundRange<'_>) -> Result<(), Error> {
    if range.buffer.size() < 4 {
        return Ok(());
    }
    let device = gpu.device();
    let probed = gpu.scoped("probe", || {
        let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: None,
            entries: &[wgpu::BindGroupLayoutEntry {
                binding: 0,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Storage { read_only: true },
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            }],
        });
        device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &layout,
            entries: &[wgpu::BindGroupEntry {
                binding: 0,
                resource: buffer_binding(range.buffer, 0, 4),
            }],
        })
    });
    match probed {
        Err(Error::Gpu { message, .. }) => Err(Error::ForeignBuffer {
            tensor: range.tensor.name(),
            message,
        }),
        probed => probed.map(|_| ()),
    }
}
