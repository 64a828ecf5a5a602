//! `wgpu-norm adapters`.

use crate::args::GpuArgs;
use crate::failure::Failure;
use crate::stdout;
use wgpu_norm::{DType, Error, Profile};

/// Runs the subcommand.
pub fn run(args: &GpuArgs) -> Result<(), Failure> {
    let backends = args.backends();
    let wanted = args.adapter.as_deref().map(str::to_lowercase);
    let all = pollster::block_on(wgpu_norm::adapters(backends));
    let names: Vec<String> = all.iter().map(|adapter| adapter.get_info().name).collect();
    let is_wanted = |name: &str| match &wanted {
        Some(wanted) => name.to_lowercase().contains(wanted),
        None => true,
    };
    let mut found = false;
    for adapter in &all {
        if is_wanted(&adapter.get_info().name) {
            found = true;
            stdout::line(describe(adapter))?;
        }
    }
    if found {
        return Ok(());
    }
    let requested = match (&args.adapter, args.backend) {
        (None, None) => "one".to_owned(),
        (None, Some(backend)) => format!("one by {backend:?}"),
        (Some(name), None) => format!("one named like '{name}'"),
        (Some(name), Some(backend)) => format!("one named like '{name}' by {backend:?}"),
    };
    let message = match names.is_empty() {
        true => "the machine has no graphics driver for it".to_owned(),
        false => format!("there is: {}", names.join("; ")),
    };
    Err(Error::NoAdapter { requested, message }.into())
}

fn describe(adapter: &wgpu::Adapter) -> String {
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
    let runs = match wgpu_norm::unfit(adapter) {
        Some(reason) => format!("none: {reason}"),
        None => {
            let all = DType::ALL.iter();
            let runs = all.filter(|&&dtype| profile.supports(dtype));
            runs.map(DType::to_string).collect::<Vec<_>>().join(" ")
        }
    };
    let rows = [
        ("backend", info.backend.to_string()),
        ("kind", kind.to_owned()),
        ("driver", driver.trim().to_owned()),
        ("element types", runs),
        ("storage binding", bytes(profile.max_binding)),
        ("buffer", bytes(profile.max_buffer)),
        (
            "storage buffers",
            format!(
                "{} a stage",
                adapter.limits().max_storage_buffers_per_shader_stage
            ),
        ),
        (
            "invocations",
            format!("{} a workgroup", profile.max_invocations),
        ),
    ];
    let rows = rows.map(|(what, value)| format!("\n  {what:<16} {value}"));
    format!("{}{}", info.name, rows.concat())
}

/// A size for people.
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
