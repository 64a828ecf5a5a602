//! What the plan knows of an adapter: limits, abilities, and the sizes that suit it. All tuning is
//! here, as data.

use crate::{DType, Error};

/// An adapter as the plan sees it: plain data, so that plans are pure and can be made without a GPU.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Profile {
    /// The adapter's name, for messages.
    pub adapter: String,
    /// Largest storage binding, in bytes.
    pub max_binding: u64,
    /// Largest buffer, in bytes.
    pub max_buffer: u64,
    /// Alignment of a storage binding's offset, in bytes.
    pub alignment: u64,
    /// Largest number of workgroups in a dispatch.
    pub max_workgroups: u32,
    /// Largest number of invocations in a workgroup.
    pub max_invocations: u32,
    /// Storage buffers that a kernel may bind.
    pub max_storage_buffers: u32,
    /// Bytes of memory that a workgroup may share.
    pub max_workgroup_storage: u32,
    /// Whether shaders can unpack f16.
    pub f16: bool,
    /// Whether shaders can use f64.
    pub f64: bool,
    /// Sizes that suit this kind of adapter.
    pub tuning: Tuning,
}

/// Sizes that make the kernels fast on one kind of adapter; results agree up to rounding for all of
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Invocations of a workgroup in the kernels over runs. A power of two.
    pub runs_workgroup: u32,
    /// Invocations of a workgroup in the kernels over columns. A power of two.
    pub columns_workgroup: u32,
    /// How many of those stand side by side, four columns each. A power of two.
    pub column_lanes: u32,
    /// Invocations of a workgroup that adds partial sums. A power of two, at least 4.
    pub finish_workgroup: u32,
    /// Workgroups that keep the adapter busy: reductions are split until there are so many.
    pub busy_workgroups: u32,
    /// Elements below which splitting a channel further does not pay.
    pub min_split: u32,
    /// Elements of a workgroup's tile in the elementwise kernels.
    pub apply_tile: u32,
    /// Runs shorter than this are read as columns.
    pub short_run: u32,
    /// Elements of a workgroup's block of channels up to which its second reading is expected to come
    /// from a cache, so that one fused dispatch is the fastest.
    pub fused_block: u32,
    /// Blocks below which the fused dispatch would leave the adapter idle.
    pub fused_blocks: u32,
    /// Elements between two neighbouring places where a tensor may be cut into windows, at most, as
    /// far as geometry has a choice. Far fewer than a binding holds.
    pub window_unit: u32,
}

impl Tuning {
    /// For drivers that run shaders on the CPU: narrow workgroups and long loops.
    pub const SOFTWARE: Self = Self {
        runs_workgroup: 8,
        columns_workgroup: 8,
        column_lanes: 8,
        finish_workgroup: 8,
        busy_workgroups: 64,
        min_split: 16384,
        apply_tile: 16384,
        short_run: 32,
        fused_block: 131072,
        fused_blocks: 4,
        window_unit: 1 << 23, // 32 MiB of f32
    };

    /// For GPUs: wide workgroups, enough of them to fill every compute unit.
    pub const GPU: Self = Self {
        runs_workgroup: 256,
        columns_workgroup: 256,
        column_lanes: 32,
        finish_workgroup: 64,
        busy_workgroups: 2048,
        min_split: 4096,
        apply_tile: 8192,
        short_run: 32,
        fused_block: 32768,
        fused_blocks: 96,
        window_unit: 1 << 23, // 32 MiB of f32
    };
}

impl Profile {
    /// The profile of a device.
    pub fn new(device: &wgpu::Device) -> Self {
        Self::from_parts(device.adapter_info(), device.limits(), device.features())
    }

    /// The profile of a device that has all that the adapter allows, as those of
    /// [`GpuContext::new`](crate::GpuContext::new) have.
    pub fn for_adapter(adapter: &wgpu::Adapter) -> Self {
        let flags = adapter.get_downlevel_capabilities().flags;
        Self {
            f16: flags.contains(wgpu::DownlevelFlags::SHADER_F16_IN_F32),
            ..Self::from_parts(adapter.get_info(), adapter.limits(), adapter.features())
        }
    }

    fn from_parts(info: wgpu::AdapterInfo, limits: wgpu::Limits, features: wgpu::Features) -> Self {
        let tuning = match info.device_type {
            wgpu::DeviceType::Cpu => Tuning::SOFTWARE,
            _ => Tuning::GPU,
        };
        Self {
            adapter: info.name,
            max_binding: limits.max_storage_buffer_binding_size,
            max_buffer: limits.max_buffer_size,
            // Quads of f64 take 32 bytes; WebGPU's smallest alignment is no less.
            alignment: u64::from(limits.min_storage_buffer_offset_alignment).max(32),
            max_workgroups: limits.max_compute_workgroups_per_dimension,
            max_invocations: limits
                .max_compute_invocations_per_workgroup
                .min(limits.max_compute_workgroup_size_x),
            max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
            max_workgroup_storage: limits.max_compute_workgroup_storage_size,
            // A device does not tell: wgpu finds out when it compiles a kernel.
            f16: true,
            f64: features.contains(wgpu::Features::SHADER_F64),
            tuning,
        }
    }

    /// This profile within what the device allows, which kernels without checks rely on.
    pub(crate) fn within(self, device: &wgpu::Device) -> Self {
        let allowed = Self::new(device);
        Self {
            max_binding: self.max_binding.min(allowed.max_binding),
            max_buffer: self.max_buffer.min(allowed.max_buffer),
            alignment: self.alignment.max(allowed.alignment),
            max_workgroups: self.max_workgroups.min(allowed.max_workgroups),
            max_invocations: self.max_invocations.min(allowed.max_invocations),
            max_storage_buffers: self.max_storage_buffers.min(allowed.max_storage_buffers),
            f64: self.f64 && allowed.f64,
            ..self
        }
    }

    /// Whether kernels for this element type run on the adapter.
    pub fn supports(&self, dtype: DType) -> bool {
        match dtype {
            DType::F64 => self.f64,
            DType::F16 => self.f16,
            DType::F32 | DType::Bf16 => true,
        }
    }

    pub(crate) fn check_dtypes(&self, data: DType, params: DType) -> Result<(), Error> {
        if !data.accepts_params(params) {
            return Err(Error::ParamDType { data, params });
        }
        if !self.supports(data) {
            return Err(Error::UnsupportedDType {
                dtype: data,
                needs: match data {
                    DType::F16 => "SHADER_F16_IN_F32",
                    _ => "SHADER_F64",
                },
                adapter: self.adapter.clone(),
            });
        }
        Ok(())
    }

    /// A workgroup size of the tuning, within the adapter's limits.
    pub(crate) fn workgroup(&self, size: u32) -> u32 {
        // No kernel shares more than 64 bytes an invocation.
        let limit = self
            .max_invocations
            .min(self.max_workgroup_storage / 64)
            .max(4);
        let limit = 1 << limit.ilog2();
        size.max(4).next_power_of_two().min(limit)
    }
}
