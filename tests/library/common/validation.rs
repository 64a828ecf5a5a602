//! What Vulkan's validation layers say while tests run.
//!
//! `WGPU_VALIDATION=1` turns them on, with the validation of synchronization. The other variable lets layers of 2024
//! and newer see what kernels access; those of 2023 see no missing barrier between two dispatches:
//!
//! ```sh
//! WGPU_VALIDATION=1 VK_KHRONOS_VALIDATION_SYNCVAL_SHADER_ACCESSES_HEURISTIC=1 \
//!     cargo test --test library
//! ```

use std::io::Write;

/// Messages that are no fault of this crate's: their ID, words that they have, and the reason.
const NOISE: [(&str, &str, &str); 1] = [(
    "UNASSIGNED-CoreValidation-Shader-InconsistentSpirv",
    "Invalid source language operand: 10",
    "layers of 2023 do not know that WGSL has this number; spirv-val checks the kernels in other tests",
)];

struct Listener;

impl log::Log for Listener {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target().starts_with("wgpu_hal::vulkan")
    }

    fn log(&self, record: &log::Record<'_>) {
        // Lines that begin with a tab name the objects of the message before.
        let message = record.args().to_string();
        // That there are no layers is said quietly.
        let is_loud =
            record.level() <= log::Level::Warn || message.contains("unable to find layer");
        if !self.enabled(record.metadata()) || !is_loud || message.starts_with('\t') {
            return;
        }
        let (id, rest) = message.split_once("]\n").unwrap_or((&message, ""));
        let is_noise = |(noise, words, _): &(&str, &str, &str)| {
            id.contains(&format!("[{noise} (")) && rest.contains(words)
        };
        if NOISE.iter().any(is_noise) {
            return;
        }
        // Tests keep what macros print.
        let _ = writeln!(std::io::stderr(), "{message}");
        std::process::abort();
    }

    fn flush(&self) {}
}

/// Listens from now on, if the layers are on: the first message ends the process.
pub fn listen() -> bool {
    let on = std::env::var("WGPU_VALIDATION").is_ok_and(|value| value == "1");
    if on && log::set_logger(&Listener).is_ok() {
        log::set_max_level(log::LevelFilter::Debug);
    }
    on
}
