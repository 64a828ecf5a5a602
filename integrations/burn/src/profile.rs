//! The profile that the library's plans need of a device, from CubeCL's description of the device.

use cubecl::features::Plane;
use cubecl::ir::{DeviceProperties, ElemType, FloatKind, UIntKind};
use wgpu_norm::{Profile, Tuning};

/// The profile of a device whose kernels CubeCL compiles from WGSL.
pub fn profile(properties: &DeviceProperties) -> Profile {
    let hardware = &properties.hardware;
    let has = |element: ElemType| !properties.type_usage(element).is_empty();
    // A software driver has no physical device.
    let software = properties.identity.physical.is_none();
    let mut profile = Profile::webgpu(&properties.identity.name);
    profile.max_binding = properties.memory.max_page_size;
    profile.max_buffer = properties.memory.max_page_size;
    profile.alignment = properties.memory.alignment;
    let (width, height, _) = hardware.max_cube_count;
    profile.max_workgroups = width.min(height);
    profile.max_invocations = hardware.max_units_per_cube.min(hardware.max_cube_dim.0);
    profile.max_storage_buffers = hardware.max_bindings;
    profile.max_workgroup_storage =
        u32::try_from(hardware.max_shared_memory_size).unwrap_or(u32::MAX);
    // CubeCL reports this for no software driver. A browser's compiler requires a line for it that naga rejects.
    let subgroups = !cfg!(target_family = "wasm")
        && properties.features.plane.contains(Plane::Ops)
        && hardware.plane_size_min == hardware.plane_size_max;
    profile.subgroup_size = match subgroups {
        true => hardware.plane_size_max,
        false => 0,
    };
    profile.f64 = has(ElemType::Float(FloatKind::F64));
    profile.long_words = software && has(ElemType::UInt(UIntKind::U64));
    profile.tuning = match software {
        true => Tuning::for_cpu(),
        false => Tuning::GPU,
    };
    profile
}
