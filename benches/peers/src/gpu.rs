//! One wgpu device, for Burn too.

use crate::{Error, Result};
#[cfg(any(feature = "meganeura", feature = "numr", feature = "rumus"))]
use wgpu_norm::Tuning;
use wgpu_norm::{DeviceOptions, GpuContext, Profile, unfit};

pub struct Gpu {
    pub info: wgpu::AdapterInfo,
    /// Our side's view of the device.
    pub context: GpuContext,
    /// Burn's.
    #[cfg(feature = "burn")]
    pub burn: burn_wgpu::WgpuDevice,
}

impl Gpu {
    /// Opens the best adapter whose name contains `name`, in any case.
    pub fn open(name: Option<&str>) -> Result<Self> {
        let backends = wgpu::Backends::from_env().unwrap_or(wgpu::Backends::all());
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = backends;
        let instance = wgpu::Instance::new(descriptor);
        let adapters = pollster::block_on(instance.enumerate_adapters(backends));
        let adapter = choose(adapters, name)?;
        let info = adapter.get_info();

        // Everything that the adapter has, as Burn opens it by itself, except what wgpu calls
        // experimental: no reduction or elementwise kernel needs that.
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("peers"),
            required_features: adapter.features()
                - wgpu::Features::MAPPABLE_PRIMARY_BUFFERS
                - wgpu::Features::all_experimental_mask(),
            required_limits: adapter.limits(),
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            ..Default::default()
        };
        let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))
            .map_err(|error| format!("opening {}: {error}", info.name))?;
        let options = DeviceOptions::default().profile(Profile::for_adapter(&adapter).with_env()?);
        let context = GpuContext::from_device(device.clone(), queue.clone(), options);
        #[cfg(feature = "burn")]
        let burn = {
            let setup = burn_wgpu::WgpuSetup {
                backend: info.backend,
                instance,
                adapter,
                device,
                queue,
            };
            burn_wgpu::try_init_device(setup, burn_wgpu::RuntimeOptions::try_default()?)
                .map_err(|error| format!("Burn on {}: {error}", info.name))?
        };
        Ok(Self {
            info,
            context,
            #[cfg(feature = "burn")]
            burn,
        })
    }

    /// Our side's view of the device, with the sizes that a GPU is given.
    #[cfg(any(feature = "meganeura", feature = "numr", feature = "rumus"))]
    pub fn context_for_gpus(&self) -> GpuContext {
        let mut profile = self.context.profile().clone();
        profile.tuning = Tuning::GPU;
        let options = DeviceOptions::default().profile(profile);
        let (device, queue) = (self.context.device(), self.context.queue());
        GpuContext::from_device(device.clone(), queue.clone(), options)
    }

    pub fn name(&self) -> String {
        format!("{} ({})", self.info.name, self.info.backend)
    }

    pub fn driver(&self) -> String {
        let driver = format!("{} {}", self.info.driver, self.info.driver_info);
        driver.trim().to_owned()
    }

    /// Burn's device in its tensors' terms.
    #[cfg(feature = "burn")]
    pub fn burn_device(&self) -> burn::tensor::Device {
        burn::tensor::Device::new(self.burn.clone())
    }

    /// Returns memory that nothing uses any more.
    pub fn clean_up(&self) -> Result<()> {
        #[cfg(feature = "burn")]
        self.burn_device().memory_cleanup();
        self.wait()
    }

    /// Waits for everything that was submitted.
    pub fn wait(&self) -> Result<()> {
        self.context
            .device()
            .poll(wgpu::PollType::wait_indefinitely())
            .map(drop)
            .map_err(|error| format!("waiting for the device: {error}").into())
    }
}

fn choose(adapters: Vec<wgpu::Adapter>, name: Option<&str>) -> Result<wgpu::Adapter> {
    let wanted = name.unwrap_or_default().to_lowercase();
    let seen: Vec<String> = adapters
        .iter()
        .map(|adapter| adapter.get_info().name)
        .collect();
    adapters
        .into_iter()
        .filter(|adapter| unfit(adapter).is_none())
        .filter(|adapter| adapter.get_info().name.to_lowercase().contains(&wanted))
        .min_by_key(|adapter| rank(&adapter.get_info()))
        .ok_or_else(|| -> Error {
            format!(
                "no adapter named like '{wanted}' among: {}",
                seen.join("; ")
            )
            .into()
        })
}

/// Smaller is better: GPUs first, native interfaces before GL.
fn rank(info: &wgpu::AdapterInfo) -> (u8, bool) {
    let kind = match info.device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    };
    (kind, info.backend == wgpu::Backend::Gl)
}
