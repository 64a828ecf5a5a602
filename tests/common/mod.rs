//! What the tests share: every adapter of the machine, the vectors, seeded data.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod data;
pub mod vectors;

use std::sync::OnceLock;
use wgpu_norm::{ContextOptions, DeviceOptions, GpuContext};

/// A context to test on, and what it is called in messages.
pub struct Subject {
    pub name: String,
    pub gpu: GpuContext,
}

/// Every adapter found, once with shader checks and once without. Names the adapters in the log, and
/// fails where none is found, or where one that `WGPU_NORM_REQUIRE_ADAPTERS` lists is not.
pub fn subjects() -> &'static [Subject] {
    static SUBJECTS: OnceLock<Vec<Subject>> = OnceLock::new();
    SUBJECTS.get_or_init(|| {
        let _ = env_logger::builder().is_test(true).try_init();
        let mut subjects = Vec::new();
        let options = ContextOptions::default();
        let backends = options
            .backends
            .or_else(wgpu::Backends::from_env)
            .unwrap_or(wgpu::Backends::all());
        for adapter in pollster::block_on(wgpu_norm::adapters(backends)) {
            let info = adapter.get_info();
            for shader_checks in [false, true] {
                let options = DeviceOptions {
                    shader_checks,
                    profile: None,
                };
                let gpu = pollster::block_on(GpuContext::from_adapter(&adapter, options));
                let gpu = match gpu {
                    Ok(gpu) => gpu,
                    Err(error) => {
                        println!("adapter {} not tested: {error}", info.name);
                        continue;
                    }
                };
                let checks = ["unchecked", "checked"][usize::from(shader_checks)];
                let name = format!(
                    "{} / {} / {} {} / {checks}",
                    info.backend, info.name, info.driver, info.driver_info
                );
                println!("testing on {name}");
                subjects.push(Subject { name, gpu });
            }
        }
        for required in required() {
            let found = subjects.iter().any(|subject| is(&required, subject));
            assert!(found, "adapter '{required}' is required but was not found");
        }
        assert!(
            !subjects.is_empty(),
            "no adapter: install a Vulkan driver, for example with scripts/install-drivers.sh"
        );
        subjects
    })
}

/// Names of software adapters that must be there, from the environment.
fn required() -> Vec<String> {
    let names = std::env::var("WGPU_NORM_REQUIRE_ADAPTERS").unwrap_or_default();
    names
        .split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

fn is(required: &str, subject: &Subject) -> bool {
    let info = subject.gpu.adapter_info();
    let name = info.name.to_lowercase();
    match required {
        // Mesa calls both llvmpipe; the interface tells them apart.
        "lavapipe" => name.contains("llvmpipe") && info.backend == wgpu::Backend::Vulkan,
        "llvmpipe" => name.contains("llvmpipe") && info.backend == wgpu::Backend::Gl,
        other => name.contains(other),
    }
}
