//! `wgpu-norm adapters`.

use crate::args::GpuArgs;
use crate::failure::Failure;
use crate::stdout;
use serde::{Deserialize, Serialize};
use std::fmt;
use wgpu_norm::{DType, DeviceOptions, GpuContext, Profile};

/// The description of an adapter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Adapter {
    pub name: String,
    pub used: String,
    pub backend: String,
    pub kind: String,
    pub driver: String,
    pub element_types: String,
    #[serde(default)] // older reports lack it
    pub f16: String,
    pub storage_binding: String,
    pub buffer: String,
    pub storage_buffers: String,
    pub invocations: String,
    pub subgroups: String,
}

/// Runs the subcommand: lists all adapters of the backends, or those whose name contains `--adapter`.
pub fn run(args: &GpuArgs) -> Result<(), Failure> {
    let wanted = args.adapter.as_deref().unwrap_or_default().to_lowercase();
    let all = all(args)?;
    let mut any = false;
    for adapter in &all {
        if adapter.name.to_lowercase().contains(&wanted) {
            any = true;
            stdout::line(adapter)?;
        }
    }
    if !any {
        // The failure lists the adapters that there are.
        pollster::block_on(args.options().adapter())?;
    }
    Ok(())
}

/// All adapters of the requested backends.
pub fn all(args: &GpuArgs) -> Result<Vec<Adapter>, Failure> {
    let options = args.options();
    let all = pollster::block_on(wgpu_norm::adapters(options.chosen_backends()?));
    let chosen = pollster::block_on(options.adapter());
    let chosen = chosen.as_ref().map(wgpu::Adapter::get_info);
    let used = |adapter: &wgpu::Adapter| {
        let is_chosen = chosen
            .as_ref()
            .is_ok_and(|chosen| *chosen == adapter.get_info());
        if wgpu_norm::unfit(adapter).is_some() {
            "never"
        } else if !is_chosen {
            "on request"
        } else if args.adapter.is_some() || args.backend.is_some() {
            "with these flags"
        } else {
            "by default"
        }
    };
    Ok(all.iter().map(|one| describe(one, used(one))).collect())
}

fn describe(adapter: &wgpu::Adapter, used: &str) -> Adapter {
    let info = adapter.get_info();
    let profile = Profile::for_adapter(adapter);
    let kind = match info.device_type {
        wgpu::DeviceType::DiscreteGpu => "discrete GPU",
        wgpu::DeviceType::IntegratedGpu => "integrated GPU",
        wgpu::DeviceType::VirtualGpu => "virtual GPU",
        wgpu::DeviceType::Cpu => "software, on the CPU",
        wgpu::DeviceType::Other => "unknown",
    };
    let driver = format!("{} {}", info.driver, info.driver_info);
    let element_types = match wgpu_norm::unfit(adapter) {
        Some(reason) => format!("none: {reason}"),
        None => {
            let all = DType::ALL.iter();
            let runs = all.filter(|&&dtype| profile.supports(dtype));
            runs.map(DType::to_string).collect::<Vec<_>>().join(" ")
        }
    };
    let subgroups = match (info.subgroup_min_size, info.subgroup_max_size) {
        _ if !adapter.features().contains(wgpu::Features::SUBGROUP) => "none".to_owned(),
        (min, max) if min == max => format!("of {max} invocations"),
        (min, max) => format!("of {min} to {max} invocations"),
    };
    let context = pollster::block_on(GpuContext::from_adapter(adapter, DeviceOptions::default()));
    let f16 = match context {
        Ok(gpu) if !gpu.supports(DType::F16) => "none".to_owned(),
        Ok(gpu) => format!("rounded by {}", gpu.profile().f16_encoder.name()),
        Err(error) => error.to_string(),
    };
    Adapter {
        f16,
        used: used.to_owned(),
        backend: info.backend.to_string(),
        kind: kind.to_owned(),
        driver: driver.trim().to_owned(),
        element_types,
        storage_binding: bytes(profile.max_binding),
        buffer: bytes(profile.max_buffer),
        storage_buffers: format!(
            "{} a stage",
            adapter.limits().max_storage_buffers_per_shader_stage
        ),
        invocations: format!("{} a workgroup", profile.max_invocations),
        subgroups,
        name: info.name,
    }
}

impl fmt::Display for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        for (what, value) in self.facts() {
            write!(f, "\n  {what:<16} {value}")?;
        }
        Ok(())
    }
}

impl Adapter {
    /// All fields except the name.
    pub fn facts(&self) -> [(&'static str, &str); 11] {
        [
            ("used", &self.used),
            ("backend", &self.backend),
            ("kind", &self.kind),
            ("driver", &self.driver),
            ("element types", &self.element_types),
            ("f16", &self.f16),
            ("storage binding", &self.storage_binding),
            ("buffer", &self.buffer),
            ("storage buffers", &self.storage_buffers),
            ("invocations", &self.invocations),
            ("subgroups", &self.subgroups),
        ]
    }
}

/// A size in a readable unit.
fn bytes(size: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    for (shift, unit) in units {
        if size >> shift > 0 {
            let value = size as f64 / (1_u64 << shift) as f64;
            let rounded = (value * 10.0).round() / 10.0;
            return format!("{rounded} {unit} at most");
        }
    }
    format!("{size} bytes at most")
}
