//! The choice of an adapter.

use super::{DeviceOptions, GpuContext};
use crate::error::Error;
use crate::profile;

/// The choice of an adapter for a context, and how its device is used.
///
/// ```
/// use wgpu_norm::{ContextOptions, GpuContext, wgpu};
///
/// # pollster::block_on(async {
/// let options = ContextOptions::default().backends(wgpu::Backends::VULKAN).adapter_name("llvmpipe");
/// match GpuContext::with_options(options).await {
///     Ok(gpu) => println!("{}", gpu.adapter_info().name),
///     Err(error) => println!("{error}"), // names the adapters that there are
/// }
/// # });
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContextOptions {
    backends: Option<wgpu::Backends>,
    adapter_name: Option<String>,
    pub(super) device: DeviceOptions,
}

impl ContextOptions {
    /// Sets the backends to look at. By default they are those of `WGPU_BACKEND` (`vulkan`, `gl`, `metal`, `dx12`, with
    /// commas) if it is set and not empty, else all.
    #[must_use]
    pub fn backends(self, backends: wgpu::Backends) -> Self {
        Self {
            backends: Some(backends),
            ..self
        }
    }

    /// Sets a part of the adapter's name, in upper or lower case; by default that of `WGPU_ADAPTER_NAME`, else any.
    #[must_use]
    pub fn adapter_name(self, name: impl Into<String>) -> Self {
        Self {
            adapter_name: Some(name.into()),
            ..self
        }
    }

    /// Sets how the device is used.
    #[must_use]
    pub fn device(self, device: DeviceOptions) -> Self {
        Self { device, ..self }
    }
}

/// The environment variable that names backends.
const BACKEND: &str = "WGPU_BACKEND";

/// The environment variable that names an adapter.
const ADAPTER: &str = "WGPU_ADAPTER_NAME";

/// The adapters of these backends, including those that cannot run the kernels.
pub async fn adapters(backends: wgpu::Backends) -> Vec<wgpu::Adapter> {
    // wgpu panics if it was built without a backend for this machine.
    if wgpu::Instance::enabled_backend_features().is_empty() {
        return Vec::new();
    }
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.flags = descriptor.flags.with_env();
    descriptor.backend_options = descriptor.backend_options.with_env();
    descriptor.backends = backends;
    #[cfg(target_arch = "wasm32")]
    {
        let options = wgpu::RequestAdapterOptions {
            power_preference: wgpu::PowerPreference::HighPerformance,
            ..Default::default()
        };
        let instance = wgpu::Instance::new(descriptor);
        instance
            .request_adapter(&options)
            .await
            .ok()
            .into_iter()
            .collect()
    }
    #[cfg(not(target_arch = "wasm32"))]
    wgpu::Instance::new(descriptor)
        .enumerate_adapters(backends)
        .await
}

/// The reason why an adapter cannot run the kernels, if there is one.
pub fn unfit(adapter: &wgpu::Adapter) -> Option<&'static str> {
    let downlevel = adapter.get_downlevel_capabilities();
    if !downlevel
        .flags
        .contains(wgpu::DownlevelFlags::COMPUTE_SHADERS)
    {
        Some("it has no compute shaders")
    } else if adapter.limits().max_storage_buffers_per_shader_stage < profile::STORAGE_BUFFERS {
        Some("it allows fewer than 4 storage buffers a shader stage")
    } else {
        None
    }
}

impl ContextOptions {
    /// The backends that are looked at: those given, else those of `WGPU_BACKEND`, else all.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if `WGPU_BACKEND` names no backend.
    pub fn chosen_backends(&self) -> Result<wgpu::Backends, Error> {
        let variable = || std::env::var(BACKEND).ok().filter(|text| !text.is_empty());
        match (self.backends, variable()) {
            (Some(backends), _) => Ok(backends),
            (None, None) => Ok(wgpu::Backends::all()),
            (None, Some(text)) => match wgpu::Backends::from_comma_list(&text) {
                backends if backends.is_empty() => Err(Error::argument(
                    BACKEND,
                    "vulkan, gl, metal or dx12, or several separated by commas",
                    text,
                )),
                backends => Ok(backends),
            },
        }
    }

    /// The adapter on which [`GpuContext::with_options`] makes a context. Use it for instance to change the adapter's
    /// [`Profile`](crate::Profile) before [`GpuContext::from_adapter`].
    ///
    /// # Errors
    ///
    /// [`Error::NoAdapter`], and those of [`chosen_backends`](Self::chosen_backends).
    pub async fn adapter(&self) -> Result<wgpu::Adapter, Error> {
        let backends = self.chosen_backends()?;
        let name = self
            .adapter_name
            .clone()
            .or_else(|| std::env::var(ADAPTER).ok())
            .filter(|name| !name.is_empty());
        let wanted = name.as_deref().map(str::to_lowercase);
        let mut best: Option<(u8, wgpu::Adapter)> = None;
        let mut seen = Vec::new();
        for adapter in adapters(backends).await {
            let info = adapter.get_info();
            let named = wanted
                .as_ref()
                .is_none_or(|wanted| info.name.to_lowercase().contains(wanted));
            let reason = if named {
                unfit(&adapter)
            } else {
                Some("its name differs")
            };
            if let Some(reason) = reason {
                seen.push(format!("{} ({}): {reason}", info.name, info.backend));
                continue;
            }
            let rank = rank(&info);
            if best.as_ref().is_none_or(|(least, _)| rank < *least) {
                best = Some((rank, adapter));
            }
        }
        let Some((_, adapter)) = best else {
            let variable = |own: bool, variable| {
                if own {
                    String::new()
                } else {
                    format!(" ({variable})")
                }
            };
            let named = name.map_or(String::new(), |name| {
                let variable = variable(self.adapter_name.is_some(), ADAPTER);
                format!(" named like '{name}'{variable}")
            });
            let all = backends == wgpu::Backends::all();
            let variable = variable(self.backends.is_some() || all, BACKEND);
            let requested = format!("an adapter{named} on {}{variable}", names(backends));
            let message = if wgpu::Instance::enabled_backend_features().is_empty() {
                "no backend is compiled in: turn on this crate's feature native, or web for browsers"
                    .to_owned()
            } else if seen.is_empty() {
                "no driver was found for these backends; on Linux, the package mesa-vulkan-drivers has one that needs no \
                 GPU"
                    .to_owned()
            } else {
                seen.join("; ")
            };
            return Err(Error::NoAdapter { requested, message });
        };
        let info = adapter.get_info();
        if name.is_none() && info.device_type == wgpu::DeviceType::Cpu {
            log::warn!(
                "no GPU found: {} is a software driver: correct but slow",
                info.name
            );
        }
        Ok(adapter)
    }
}

/// The backends' names, for messages.
fn names(backends: wgpu::Backends) -> String {
    if backends == wgpu::Backends::all() {
        return "any backend".to_owned();
    }
    let names = backends.iter_names().map(|(name, _)| name.to_lowercase());
    names.collect::<Vec<_>>().join(" or ")
}

/// Smaller is better. The kind of device counts first; then native interfaces come before GL.
fn rank(info: &wgpu::AdapterInfo) -> u8 {
    let kind = match info.device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    };
    2 * kind + u8::from(info.backend == wgpu::Backend::Gl)
}

/// Opens a device with all useful features and all limits of the adapter.
pub(super) async fn open(adapter: &wgpu::Adapter) -> Result<(wgpu::Device, wgpu::Queue), Error> {
    let name = || adapter.get_info().name;
    if let Some(reason) = unfit(adapter) {
        return Err(Error::NoAdapter {
            requested: "an adapter that runs the kernels".to_owned(),
            message: format!("{}: {reason}", name()),
        });
    }
    let useful = GpuContext::USEFUL_FEATURES
        | wgpu::Features::TIMESTAMP_QUERY
        | wgpu::Features::TIMESTAMP_QUERY_INSIDE_ENCODERS;
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("wgpu-norm"),
        required_features: adapter.features() & useful,
        required_limits: adapter.limits(),
        memory_hints: match adapter.get_info().device_type {
            // A CPU's memory is the process's own, and a block that wgpu allocates counts as used in full.
            wgpu::DeviceType::Cpu => wgpu::MemoryHints::MemoryUsage,
            _ => wgpu::MemoryHints::Performance,
        },
        ..Default::default()
    };
    let device = adapter.request_device(&descriptor).await;
    device.map_err(|error| Error::RequestDevice {
        adapter: name(),
        message: error.to_string(),
    })
}
