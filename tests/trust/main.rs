//! Tests that search by themselves, for as long as one lets them.
//!
//! ```sh
//! scripts/test.sh --trust 30                      # half an hour, shared out among all parts
//! WGPU_NORM_SEED=7 scripts/test.sh --trust 30     # the same search again
//! WGPU_NORM_TRUST=30 WGPU_NORM_TRUST_PARTS=ranks cargo test --test trust
//! WGPU_NORM_TRUST=1 WGPU_NORM_TRUST_PARTS=ranks WGPU_NORM_TRY=123 cargo test --test trust # one try of it
//! ```
//!
//! Each part draws what it tries from the seed and says what it tried, how often, and what failed. Each try has a seed
//! of its own, which a failure names. Without `WGPU_NORM_TRUST`, the minutes, nothing is tried.
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

use common::data::Problem;
use common::{Subject, validation};
use draw::Draw;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use wgpu_norm::{Error, GpuContext, unfit, wgpu};
use wgpu_norm_verify::{Case, Random};

/// What a part tries until a deadline.
pub(crate) struct Share<'a> {
    pub gpu: &'a GpuContext,
    pub seed: u64,
    /// The seed of the only try.
    pub only: Option<u64>,
    pub until: Instant,
}

/// Why a try is not right.
pub(crate) enum Fault {
    /// Nothing that the library, the adapter or the test supports.
    Refused,
    Wrong(String),
}

impl From<String> for Fault {
    fn from(fault: String) -> Self {
        Self::Wrong(fault)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::Argument { .. }
            | Error::Algorithm { .. }
            | Error::Limit { .. }
            | Error::Rank { .. }
            | Error::StatisticsDType { .. }
            | Error::UnsupportedDType { .. } => Self::Refused,
            error => Self::Wrong(error.to_string()),
        }
    }
}

/// A problem that was drawn, and the adapter with the profile that was drawn for it.
pub(crate) struct Drawn {
    pub subject: Subject,
    pub problem: Problem,
}

impl Share<'_> {
    /// Tries until the time is over: `attempt` draws from a seed of its own, and tells the report.
    pub fn each(&self, mut attempt: impl FnMut(&mut Draw, &mut Report)) -> Report {
        /// Drivers keep a compiled kernel for as long as its pipeline lives: lavapipe 2 to 3 MB.
        const KEPT: u64 = 100;
        let mut seeds = Random::new(self.seed);
        let mut report = Report::default();
        for turn in 0.. {
            let seed = self.only.unwrap_or_else(|| seeds.bits());
            if Instant::now() >= self.until || (self.only.is_some() && turn > 0) {
                break;
            }
            if turn % KEPT == 0 {
                self.gpu.forget_pipelines();
            }
            report.seed = seed;
            attempt(&mut Draw(Random::new(seed)), &mut report);
        }
        report
    }

    /// Tries with problems of at most so many elements.
    pub fn each_problem(
        &self,
        most: u64,
        attempt: impl Fn(&mut Draw, &Drawn) -> Result<(), Fault>,
    ) -> Report {
        self.each(|draw, report| {
            let id = draw.case(most);
            report.attempt(&id, || {
                let case: Case = id.parse().map_err(Fault::from)?;
                let operation = case.operation();
                let profile = case.profile(self.gpu);
                drop(operation.plan(&profile)?);
                case.inputs()?;
                let problem = Problem::random(operation, draw.below(1 << 20));
                let subject = Subject {
                    name: self.gpu.adapter_info().name,
                    gpu: self.gpu.with_profile(profile),
                    checked: false,
                    takes_all_types: true,
                };
                attempt(draw, &Drawn { subject, problem })
            });
        })
    }
}

/// What a part tried, and what it found.
#[derive(Default)]
pub(crate) struct Report {
    pub tried: u64,
    pub refused: u64,
    pub failures: Vec<String>,
    /// How often each operator was tried and refused.
    operators: BTreeMap<String, [u64; 2]>,
    /// The seed of the try.
    seed: u64,
}

impl Report {
    /// Makes a try of a case; a panic is a failure, too.
    pub fn attempt(&mut self, case: &str, attempt: impl FnOnce() -> Result<(), Fault>) {
        let operator = case.split('/').next().unwrap_or_default();
        let counts = self.operators.entry(operator.to_owned()).or_default();
        let failure = match catch_unwind(AssertUnwindSafe(attempt)) {
            Ok(Err(Fault::Refused)) => {
                self.refused += 1;
                counts[1] += 1;
                return;
            }
            Ok(Ok(())) => None,
            Ok(Err(Fault::Wrong(fault))) => Some(fault),
            Err(_) => Some("a panic, see above".to_owned()),
        };
        self.tried += 1;
        counts[0] += 1;
        if let Some(failure) = failure {
            let failure = format!("WGPU_NORM_TRY={} {case}: {failure}", self.seed);
            eprintln!("FAILED {failure}");
            self.failures.push(failure);
        }
    }

    fn join(&mut self, other: Self) {
        self.tried += other.tried;
        self.refused += other.refused;
        self.failures.extend(other.failures);
        for (operator, [tried, refused]) in other.operators {
            let counts = self.operators.entry(operator).or_default();
            *counts = [counts[0] + tried, counts[1] + refused];
        }
    }

    /// Operators that were drawn often, and always refused.
    fn never_tried(&self) -> Vec<String> {
        let never = self
            .operators
            .iter()
            .filter(|(_, [tried, refused])| *tried == 0 && *refused > 50);
        never
            .map(|(operator, [_, refused])| format!("all {refused} of {operator} were refused"))
            .collect()
    }
}

type Part = (&'static str, f64, fn(&Share<'_>) -> Report);

/// The parts, with their shares of each adapter's time.
const PARTS: [Part; 6] = [
    ("operations", 0.47, operations::run),
    ("formulas", 0.03, plain::run),
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
    let adapter_name = std::env::var("WGPU_NORM_TRUST_ADAPTER")
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
            .contains(&adapter_name)
    };
    let adapters: Vec<_> = adapters
        .into_iter()
        .filter(|a| unfit(a).is_none() && named(a))
        .collect();
    let only = std::env::var("WGPU_NORM_TRY").ok();
    let only = only.map(|seed| seed.parse().expect("WGPU_NORM_TRY: expected a try's seed"));
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
    for (adapter, found) in (0_u64..).zip(&adapters) {
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
                let devices = gpus.iter().zip(0_u64..);
                let shares = devices.map(|(gpu, device)| Share {
                    gpu,
                    seed: seed ^ device << 32 ^ adapter << 40 ^ (name.len() as u64) << 48,
                    only,
                    until,
                });
                let threads: Vec<_> = shares
                    .map(|share| scope.spawn(move || run(&share)))
                    .collect();
                for thread in threads {
                    match thread.join() {
                        Ok(own) => report.join(own),
                        Err(_) => report.failures.push(format!("{name}: a panic, see above")),
                    }
                }
            });
            report.failures.extend(report.never_tried());
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
