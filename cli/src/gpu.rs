//! The adapter that the command line asks for.

use crate::args::{Backend, GpuArgs};
use crate::pipeline_cache::CacheFile;
use wgpu_norm::{ContextOptions, DeviceOptions, Error, GpuContext, Profile, Tuning, wgpu};

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
        let mut options = DeviceOptions::default().profile(profile);
        let folder = self.pipeline_cache.as_ref();
        let file = folder.and_then(|folder| CacheFile::new(folder, &adapter.get_info()));
        if let Some(file) = &file {
            // SAFETY: the file's checksum says that it is as this command wrote it, for the adapter and driver that are
            // in its name; help says that nobody else may write to the folder.
            options = unsafe { options.pipeline_cache(file.read()) };
        }
        let mut gpu = GpuContext::from_adapter(adapter, options).await?;
        if adapter.get_info().device_type != wgpu::DeviceType::Cpu {
            let mut profile = gpu.profile().clone();
            profile.f16_encoder = gpu.probe_f16().await;
            gpu = gpu.with_profile(profile);
        }
        if let Some(file) = file {
            self.opened.add(file, gpu.clone());
        }
        Ok(gpu)
    }
}

/// A context on the same device with another tuning.
pub fn tuned(gpu: &GpuContext, tuning: Tuning) -> GpuContext {
    let mut profile = gpu.profile().clone();
    profile.tuning = tuning;
    gpu.with_profile(profile)
}
