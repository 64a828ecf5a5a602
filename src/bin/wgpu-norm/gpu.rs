//! The adapter that the command line asks for.

use crate::args::{Backend, GpuArgs};
use wgpu_norm::{ContextOptions, DeviceOptions, Error, GpuContext, Tuning};

impl GpuArgs {
    /// The backends that the flag names, else the environment, else all.
    pub fn backends(&self) -> wgpu::Backends {
        let flag = self.backend.map(|backend| match backend {
            Backend::Vulkan => wgpu::Backends::VULKAN,
            Backend::Gl => wgpu::Backends::GL,
            Backend::Metal => wgpu::Backends::METAL,
            Backend::Dx12 => wgpu::Backends::DX12,
        });
        flag.or_else(wgpu::Backends::from_env)
            .unwrap_or(wgpu::Backends::all())
    }

    /// A context on the best adapter that fits.
    pub fn open(&self) -> Result<GpuContext, Error> {
        let gpu = pollster::block_on(GpuContext::with_options(ContextOptions {
            backends: Some(self.backends()),
            adapter_name: self.adapter.clone(),
            ..ContextOptions::default()
        }))?;
        match &self.profile {
            None => Ok(gpu),
            Some(text) => Ok(tuned(&gpu, gpu.profile().tuning.overridden(text)?)),
        }
    }
}

/// A context on the same device with another tuning.
pub fn tuned(gpu: &GpuContext, tuning: Tuning) -> GpuContext {
    let mut profile = gpu.profile().clone();
    profile.tuning = tuning;
    let options = DeviceOptions {
        profile: Some(profile),
        ..DeviceOptions::default()
    };
    GpuContext::from_device(gpu.device().clone(), gpu.queue().clone(), options)
}
