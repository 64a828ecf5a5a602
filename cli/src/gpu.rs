//! The adapter that the command line asks for.

use crate::args::{Backend, GpuArgs};
use wgpu_norm::{ContextOptions, DeviceOptions, Error, GpuContext, Profile, Tuning};

impl GpuArgs {
    /// The options that the flags ask for.
    pub fn options(&self) -> ContextOptions {
        let backends = self.backend.map(|backend| match backend {
            Backend::Vulkan => wgpu::Backends::VULKAN,
            Backend::Gl => wgpu::Backends::GL,
            Backend::Metal => wgpu::Backends::METAL,
            Backend::Dx12 => wgpu::Backends::DX12,
        });
        let mut options = ContextOptions::default();
        if let Some(backends) = backends {
            options = options.backends(backends);
        }
        if let Some(name) = &self.adapter {
            options = options.adapter_name(name);
        }
        options
    }

    /// A context on the best adapter that fits. The profile flag takes precedence over the environment.
    pub fn open(&self) -> Result<GpuContext, Error> {
        let options = self.options();
        pollster::block_on(async { self.open_on(&options.adapter().await?).await })
    }

    /// A context on an adapter, with the same precedence.
    pub async fn open_on(&self, adapter: &wgpu::Adapter) -> Result<GpuContext, Error> {
        let mut profile = Profile::for_adapter(adapter);
        profile = match &self.profile {
            None => profile.with_env()?,
            Some(text) => {
                profile.tuning = profile.tuning.overridden(text)?;
                profile
            }
        };
        profile.algorithm = self.algorithm;
        let options = DeviceOptions::default().profile(profile);
        GpuContext::from_adapter(adapter, options).await
    }
}

/// A context on the same device with another tuning.
pub fn tuned(gpu: &GpuContext, tuning: Tuning) -> GpuContext {
    let mut profile = gpu.profile().clone();
    profile.tuning = tuning;
    gpu.with_profile(profile)
}
