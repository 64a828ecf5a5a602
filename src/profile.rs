//! An adapter as plans see it: limits, abilities, and the sizes that suit it.

use crate::algorithm::Algorithm;
use crate::element::{DType, DTypes};
use crate::error::Error;
use crate::f16_encoder::F16Encoder;
use crate::options::check_types;
use crate::tuning::{SMALLEST_WORKGROUP, Tuning};
use std::str::FromStr;

/// The environment variable that overrides an adapter's tuning.
const VARIABLE: &str = "WGPU_NORM_PROFILE";

/// The number of storage buffers that every plan can manage with, and without which there is none.
pub(crate) const STORAGE_BUFFERS: u32 = 4;

/// The limit [`Profile::max_window`], as errors name it.
pub(crate) const MAX_WINDOW: &str = "max_window";

/// The limit [`Profile::max_binding`], as errors name it.
pub(crate) const MAX_BINDING: &str = "max_storage_buffer_binding_size";

/// 32 MiB of f32.
const WINDOW_UNIT: u32 = 1 << 23;

/// An adapter as plans see it: plain data, so that making a plan touches no GPU.
///
/// ```
/// # pollster::block_on(async {
/// use wgpu_norm::{ContextOptions, DeviceOptions, Error, GpuContext, Profile};
///
/// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
/// let adapter = ContextOptions::default().adapter().await?;
/// let mut profile = Profile::for_adapter(&adapter);
/// profile.tuning = profile.tuning.overridden("busy_workgroups=512")?;
/// let options = DeviceOptions::default().profile(profile);
/// let gpu = GpuContext::from_adapter(&adapter, options).await?;
/// assert_eq!(gpu.profile().tuning.busy_workgroups, 512);
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Profile {
    /// The adapter's name, for messages.
    pub adapter: String,
    /// Largest storage binding, in bytes.
    pub max_binding: u64,
    /// Largest buffer, in bytes.
    pub max_buffer: u64,
    /// The most bytes that a dispatch binds of a tensor of src's shape, if the tensor can be cut. It has no effect from
    /// `max_binding` on. A lower value makes more dispatches of smaller windows, which add the same elements in the
    /// same order; [`Stream`](crate::stream::Stream) sets it from its budget.
    pub max_window: u64,
    /// Alignment of a storage binding's offset, in bytes.
    pub alignment: u64,
    /// Largest number of workgroups along one dimension of a dispatch, at most 65535.
    pub max_workgroups: u32,
    /// Largest number of invocations in a workgroup.
    pub max_invocations: u32,
    /// Largest number of storage buffers that a kernel may bind.
    pub max_storage_buffers: u32,
    /// Bytes of memory that a workgroup may share.
    pub max_workgroup_storage: u32,
    /// Number of invocations in a subgroup, if it is the same for all subgroups and shaders can use them; else 0.
    pub subgroup_size: u32,
    /// Whether shaders can unpack f16.
    pub f16: bool,
    /// How kernels round to f16. A context keeps this only if its device has been probed
    /// ([`GpuContext::probe_f16`](crate::GpuContext::probe_f16)) and is right, else [`F16Encoder::Integers`].
    pub f16_encoder: F16Encoder,
    /// Whether shaders can use f64.
    pub f64: bool,
    /// Whether tensors and the workspace are read and written as integers of 64 bits, for a driver that moves words one
    /// by one; else as words of 32 bits, several to a load.
    pub long_words: bool,
    /// The largest distance, in elements, between neighbouring places where a tensor may be cut into windows, as far as
    /// the geometry leaves a choice; 256 to 2²⁴. Far less than a binding holds. For tests with small tensors.
    pub window_unit: u32,
    /// Sizes that suit this kind of adapter.
    pub tuning: Tuning,
    /// The algorithm that every plan must use, whether or not it is fast. If it does not support the operation,
    /// planning fails with [`Error::Algorithm`]. For tests and measurements.
    pub algorithm: Option<Algorithm>,
}

impl Profile {
    /// The profile of a GPU of which only the name is known: the limits that every WebGPU device has, no optional
    /// feature, [`Tuning::GPU`]. For a framework that plans by itself ([`export`](crate::export)) and fills in what it
    /// knows:
    ///
    /// ```
    /// use wgpu_norm::{Backward, DType, DataFormat, Norm, Operation, Profile};
    ///
    /// let mut profile = Profile::webgpu("a GPU");
    /// profile.max_binding = 1 << 30;
    /// let norm = Norm::batch(DataFormat::Nxc);
    /// let operation = Operation::new(norm, Backward::default(), &[32, 56, 56, 64], DType::F32);
    /// assert!(operation.plan(&profile)?.workspace_bytes() > 0);
    /// # Ok::<(), wgpu_norm::Error>(())
    /// ```
    pub fn webgpu(adapter: impl Into<String>) -> Self {
        Self {
            adapter: adapter.into(),
            max_binding: 1 << 27,
            max_buffer: 1 << 28,
            max_window: u64::MAX,
            alignment: 256,
            max_workgroups: 65535,
            max_invocations: 256,
            max_storage_buffers: 8,
            max_workgroup_storage: 16384,
            subgroup_size: 0,
            f16: true,
            f16_encoder: F16Encoder::Integers,
            f64: false,
            long_words: false,
            window_unit: WINDOW_UNIT,
            tuning: Tuning::GPU,
            algorithm: None,
        }
    }

    /// The profile of a device.
    pub fn new(device: &wgpu::Device) -> Self {
        Self::from_parts(device.adapter_info(), device.limits(), device.features())
    }

    /// The profile of a device that is opened with everything that the adapter allows, as
    /// [`GpuContext::new`](crate::GpuContext::new) opens it.
    pub fn for_adapter(adapter: &wgpu::Adapter) -> Self {
        let flags = adapter.get_downlevel_capabilities().flags;
        Self {
            f16: flags.contains(wgpu::DownlevelFlags::SHADER_F16_IN_F32),
            ..Self::from_parts(adapter.get_info(), adapter.limits(), adapter.features())
        }
    }

    fn from_parts(info: wgpu::AdapterInfo, limits: wgpu::Limits, features: wgpu::Features) -> Self {
        // For subgroups, a browser's compiler requires a line that naga rejects.
        let subgroups = features.contains(wgpu::Features::SUBGROUP)
            && info.subgroup_min_size == info.subgroup_max_size
            && info.backend != wgpu::Backend::BrowserWebGpu;
        let subgroup_size = if subgroups { info.subgroup_max_size } else { 0 };
        Self {
            adapter: info.name,
            subgroup_size,
            max_binding: limits.max_storage_buffer_binding_size,
            max_buffer: limits.max_buffer_size,
            max_window: u64::MAX,
            alignment: limits.min_storage_buffer_offset_alignment.into(),
            max_workgroups: limits.max_compute_workgroups_per_dimension,
            max_invocations: limits
                .max_compute_invocations_per_workgroup
                .min(limits.max_compute_workgroup_size_x),
            max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
            max_workgroup_storage: limits.max_compute_workgroup_storage_size,
            // A device does not report this; wgpu finds out when it compiles a kernel.
            f16: true,
            f16_encoder: F16Encoder::Integers,
            f64: features.contains(wgpu::Features::SHADER_F64),
            // Only a driver for the CPU moves words one by one.
            long_words: info.device_type == wgpu::DeviceType::Cpu
                && features.contains(wgpu::Features::SHADER_INT64),
            window_unit: WINDOW_UNIT,
            tuning: Tuning::for_device(info.device_type),
            algorithm: None,
        }
        .within_bounds()
    }

    /// The most bytes of a window.
    pub(crate) fn longest_window(&self) -> u64 {
        self.max_window.min(self.max_binding)
    }

    /// This profile with every field in the bounds that kernels without checks rely on.
    pub(crate) fn within_bounds(self) -> Self {
        Self {
            // Byte offsets within a binding fit 32 bits, and so do all that kernels derive from them.
            max_binding: self.max_binding.min(u64::from(u32::MAX)),
            // Vec4s of f64 and vectors of f32 take 32 bytes; WebGPU's smallest alignment is no less. 64 KiB are more
            // than any adapter needs.
            alignment: self.alignment.clamp(32, 1 << 16).next_power_of_two(),
            // If workgroups were folded into longer rows, the surplus of the last row could wrap in 32 bits.
            max_workgroups: self.max_workgroups.clamp(1, 65535),
            subgroup_size: if self.subgroup_size.is_power_of_two() {
                self.subgroup_size
            } else {
                0
            },
            window_unit: self.window_unit.clamp(256, 1 << 24),
            tuning: self.tuning.within_bounds(),
            ..self
        }
    }

    /// This profile lowered to what the device allows, which kernels without checks rely on.
    pub(crate) fn within(self, device: &wgpu::Device) -> Self {
        let allowed = Self::new(device);
        Self {
            max_binding: self.max_binding.min(allowed.max_binding),
            max_buffer: self.max_buffer.min(allowed.max_buffer),
            alignment: self.alignment.max(allowed.alignment),
            max_workgroups: self.max_workgroups.min(allowed.max_workgroups),
            max_invocations: self.max_invocations.min(allowed.max_invocations),
            max_storage_buffers: self.max_storage_buffers.min(allowed.max_storage_buffers),
            max_workgroup_storage: self
                .max_workgroup_storage
                .min(allowed.max_workgroup_storage),
            subgroup_size: if self.subgroup_size == allowed.subgroup_size {
                allowed.subgroup_size
            } else {
                0
            },
            f64: self.f64 && allowed.f64,
            long_words: self.long_words && device.features().contains(wgpu::Features::SHADER_INT64),
            ..self
        }
        .within_bounds()
    }

    /// This profile with its tuning overridden by the environment variable `WGPU_NORM_PROFILE`, if it
    /// is set, as [`Tuning::overridden`] reads it.
    ///
    /// # Errors
    ///
    /// [`Error::Tuning`] if the variable is invalid.
    pub fn with_env(mut self) -> Result<Self, Error> {
        match std::env::var(VARIABLE) {
            Ok(text) => {
                let named = |error| match error {
                    Error::Tuning { key, expected, got } => Error::Tuning {
                        key: format!("{VARIABLE}: {key}"),
                        expected,
                        got,
                    },
                    error => error,
                };
                self.tuning = self.tuning.overridden(&text).map_err(named)?;
            }
            Err(std::env::VarError::NotPresent) => {}
            Err(std::env::VarError::NotUnicode(text)) => {
                return Err(Error::Tuning {
                    key: VARIABLE.to_owned(),
                    expected: "key=value,key=value".to_owned(),
                    got: format!("{text:?}"),
                });
            }
        }
        Ok(self)
    }

    /// Whether kernels for this element type run on the adapter.
    pub fn supports(&self, dtype: DType) -> bool {
        match dtype {
            DType::F64 => self.f64,
            DType::F16 => self.f16,
            DType::F32 | DType::Bf16 => true,
        }
    }

    pub(crate) fn check_dtypes(&self, types: DTypes) -> Result<(), Error> {
        check_types(types)?;
        let data = types.data;
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

    /// Bits of the words in which kernels read and write data.
    pub(crate) fn word_bits(&self) -> u32 {
        if self.long_words { 64 } else { 32 }
    }

    /// A workgroup size of the tuning, within the adapter's limits, for kernels that use `shared` bytes of workgroup
    /// memory for each invocation.
    pub(crate) fn workgroup(&self, size: u32, shared: u64) -> u32 {
        let shared = u64::from(self.max_workgroup_storage) / shared.max(1);
        let limit = u64::from(self.max_invocations)
            .min(shared)
            .max(u64::from(SMALLEST_WORKGROUP)) as u32;
        let limit = 1 << limit.ilog2();
        size.clamp(SMALLEST_WORKGROUP, limit)
            .next_power_of_two()
            .min(limit)
    }
}

/// Parses an algorithm's name.
impl FromStr for Algorithm {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|known| known.name() == text);
        found.ok_or_else(|| Error::Argument {
            argument: "algorithm",
            expected: format!("one of {}", Self::ALL.map(Self::name).join(", ")),
            got: text.to_owned(),
        })
    }
}

#[cfg(test)]
impl Profile {
    /// A GPU with WebGPU's default limits.
    pub(crate) fn usual() -> Self {
        Self::webgpu("")
    }
}
