//! Tests that search by themselves, for as long as one lets them.
//!
//! ```sh
//! scripts/test.sh --trust 30                      # half an hour, shared out among all parts
//! WGPU_NORM_SEED=7 scripts/test.sh --trust 30     # the same search again
//! WGPU_NORM_TRUST=30 WGPU_NORM_TRUST_PARTS=ranks cargo test --test trust
//! ```
//!
//! Each part draws what it tries from the seed and says what it tried, how often, and what failed; a failure names what
//! reproduces it. Without `WGPU_NORM_TRUST`, the minutes, nothing is tried.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod draw;
mod faults;
mod operations;
mod oracles;
mod plain;
mod ranks;
mod streams;

#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "the library's tests use the rest"
)]
#[path = "../library/common/mod.rs"]
mod common;

use common::validation;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use wgpu_norm::{GpuContext, unfit, wgpu};

/// What a part tries until a deadline.
pub(crate) struct Share<'a> {
    pub gpus: &'a [GpuContext],
    pub seed: u64,
    pub until: Instant,
}

impl Share<'_> {
    pub fn is_time(&self) -> bool {
        Instant::now() < self.until
    }

    /// The first adapter, as the library's tests take one.
    pub fn subject(&self) -> common::Subject {
        common::Subject {
            name: self.gpus[0].adapter_info().name.clone(),
            gpu: self.gpus[0].clone(),
            checked: false,
            takes_all_types: true,
        }
    }
}

/// What a part tried, and what it found.
#[derive(Default)]
pub(crate) struct Report {
    pub tried: u64,
    /// Drawn, but nothing that the library or the adapter supports.
    pub refused: u64,
    pub failures: Vec<String>,
}

impl Report {
    /// Adds one try.
    pub fn add(&mut self, outcome: Result<bool, String>) {
        match outcome {
            Ok(true) => self.tried += 1,
            Ok(false) => self.refused += 1,
            Err(failure) => {
                self.tried += 1;
                eprintln!("FAILED {failure}");
                self.failures.push(failure);
            }
        }
    }

    fn join(&mut self, other: Self) {
        self.tried += other.tried;
        self.refused += other.refused;
        self.failures.extend(other.failures);
    }
}

type Part = (&'static str, f64, fn(&Share<'_>) -> Report);

/// The parts, with their shares of each adapter's time.
const PARTS: [Part; 5] = [
    ("operations", 0.5, operations::run),
    ("ranks", 0.15, ranks::run),
    ("streams", 0.1, streams::run),
    ("oracles", 0.15, oracles::run),
    ("faults", 0.1, faults::run),
];

fn main() -> ExitCode {
    let number = |name: &str| -> Option<f64> {
        let text = std::env::var(name).ok()?;
        let number = text.parse().ok().filter(|number| *number > 0.0);
        Some(number.unwrap_or_else(|| panic!("{name}: expected a number above 0, got {text}")))
    };
    let Some(minutes) = number("WGPU_NORM_TRUST") else {
        println!(
            "nothing is tried: WGPU_NORM_TRUST gives the minutes, as scripts/test.sh --trust does"
        );
        return ExitCode::SUCCESS;
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed =
        number("WGPU_NORM_SEED").map_or(now.map_or(1, |now| now.as_secs()), |seed| seed as u64);
    let wanted = std::env::var("WGPU_NORM_TRUST_PARTS").unwrap_or_default();
    let adapter = std::env::var("WGPU_NORM_TRUST_ADAPTER")
        .unwrap_or_default()
        .to_lowercase();
    let parts = PARTS
        .iter()
        .filter(|(name, ..)| wanted.is_empty() || wanted.contains(name));
    let parts: Vec<&Part> = parts.collect();
    let total: f64 = parts.iter().map(|(_, share, _)| share).sum();
    // Before there is an instance, which asks what is heard.
    if validation::listen() {
        println!("Vulkan's validation layers are on: their first message ends this");
    }
    let adapters = pollster::block_on(wgpu_norm::adapters(wgpu::Backends::all()));
    let named = |a: &wgpu::Adapter| {
        let info = a.get_info();
        format!("{} ({}, {})", info.name, info.backend, info.driver)
            .to_lowercase()
            .contains(&adapter)
    };
    let adapters: Vec<_> = adapters
        .into_iter()
        .filter(|a| unfit(a).is_none() && named(a))
        .collect();
    if adapters.is_empty() || parts.is_empty() {
        eprintln!("no adapter, or no part of these names");
        return ExitCode::FAILURE;
    }
    println!("seed {seed}: WGPU_NORM_SEED={seed} tries the same again");
    println!(
        "{:44} {:12} {:>8} {:>8} {:>8} {:>8}",
        "adapter", "part", "tried", "refused", "failed", "seconds"
    );
    let mut failures = Vec::new();
    for found in &adapters {
        let info = found.get_info();
        // A driver compiles a device's kernels one after another; GL devices wait for each other.
        let devices = match info.backend {
            wgpu::Backend::Gl => 1,
            _ => std::thread::available_parallelism().map_or(1, |cores| cores.get().min(16)),
        };
        let open = || pollster::block_on(GpuContext::from_adapter(found, Default::default()));
        let gpus: Result<Vec<_>, _> = (0..devices).map(|_| open()).collect();
        let gpus = gpus.unwrap_or_else(|error| panic!("{}: {error}", info.name));
        for (name, share, run) in &parts {
            let seconds = 60.0 * minutes * share / total / adapters.len() as f64;
            let begun = Instant::now();
            let until = begun + Duration::from_secs_f64(seconds);
            let mut report = Report::default();
            std::thread::scope(|scope| {
                let devices = gpus.chunks(1).zip(0_u64..);
                let all: Vec<_> = devices
                    .map(|(gpus, device)| {
                        let seed = seed ^ device << 32;
                        scope.spawn(move || run(&Share { gpus, seed, until }))
                    })
                    .collect();
                for one in all {
                    match one.join() {
                        Ok(own) => report.join(own),
                        Err(_) => report.failures.push(format!("{name}: a panic, see above")),
                    }
                }
            });
            let label = format!("{} ({})", info.name, info.backend);
            println!(
                "{label:44} {name:12} {:8} {:8} {:8} {:8.0}",
                report.tried,
                report.refused,
                report.failures.len(),
                begun.elapsed().as_secs_f64()
            );
            failures.extend(report.failures);
            if report.tried == 0 {
                failures.push(format!("{name} on {label}: nothing was tried"));
            }
        }
    }
    if failures.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("{} failures:", failures.len());
    for failure in failures {
        println!("* {failure}");
    }
    ExitCode::FAILURE
}
