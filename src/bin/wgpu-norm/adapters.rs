//! `wgpu-norm adapters`.

use crate::args::GpuArgs;
use crate::failure::Failure;
use crate::stdout;
use wgpu_norm::{DType, Profile};

/// Runs the subcommand: all adapters of the backends, or those whose name `--adapter` gives a part of.
pub fn run(args: &GpuArgs) -> Result<(), Failure> {
    let options = args.options();
    let all = pollster::block_on(wgpu_norm::adapters(options.chosen_backends()?));
    let chosen = pollster::block_on(options.adapter());
    let is_chosen = |adapter: &wgpu::Adapter| {
        let chosen = chosen.as_ref().map(wgpu::Adapter::get_info);
        chosen.is_ok_and(|chosen| chosen == adapter.get_info())
    };
    let wanted = args.adapter.as_deref().unwrap_or_default().to_lowercase();
    let listed = all.iter().filter(|adapter| {
        let name = adapter.get_info().name.to_lowercase();
        name.contains(&wanted)
    });
    let mut any = false;
    for adapter in listed {
        any = true;
        let used = if wgpu_norm::unfit(adapter).is_some() {
            "never"
        } else if !is_chosen(adapter) {
            "on request"
        } else if args.adapter.is_some() || args.backend.is_some() {
            "with these flags"
        } else {
            "by default"
        };
        stdout::line(describe(adapter, used))?;
    }
    match chosen {
        Err(error) if !any => Err(error.into()),
        _ => Ok(()),
    }
}

fn describe(adapter: &wgpu::Adapter, used: &str) -> String {
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
        ("used", used.to_owned()),
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
