//! Training steps of whole networks on one device, with Burn's norms and with wgpu-norm's in turns: a ResNet, a
//! ConvNeXt, a transformer, a DiT and a UNet block, in f32 and f16. (WGSL has no bf16, so Burn lacks it here.)
//!
//! ```sh
//! cargo bench --features autotune --bench networks             # on a GPU
//! cargo bench --features autotune --bench networks -- --small  # on a software driver
//! ```
//!
//! | option | |
//! |---|---|
//! | `--small` | smaller shapes; without it no software driver is timed |
//! | `--steps N` | steps of each network \[50\] |
//! | `--seconds N` | fewer steps if they take longer; compiling is not cut short \[300\] |
//! | `--json FILE` | the numbers in a file, too; `networks.py` joins it with PyTorch's |
//!
//! A step is forward, loss, backward and SGD. Its time is taken from an idle device to an idle device; the first two
//! steps compile and do not count. The norms' share is what a step takes longer than one with the norms left out, so it
//! contains the copies around them and what Burn cannot fuse across them. Memory is by how much the device's pools grow
//! in the first step. Losses are compared step by step, relative to those with Burn's norms.

mod blocks;
mod norms;
mod train;

use blocks::{Block, ConvNeXt, Dit, ResNet, Transformer, UNet};
use burn::backend::DispatchDevice;
use burn::tensor::{DType, Device, FloatDType};
use burn_wgpu_norm::{Way, force};
use cubecl::MemoryScope;
use norms::Norms;
use std::time::{Duration, Instant};
use train::Training;

fn main() {
    let options = Options::from_arguments();
    let (device, setup) = Device::wgpu_options()
        .init_with_setup()
        .expect("a wgpu device");
    burn_wgpu_norm::register(&device, &setup).expect("a device of wgpu's");
    let adapter = setup.adapter.get_info();
    println!(
        "{} ({}, {})\n",
        adapter.name, adapter.backend, adapter.driver_info
    );
    if format!("{:?}", adapter.device_type) == "Cpu" && !options.small {
        eprintln!("this is a software driver: give --small to time it all the same");
        std::process::exit(1);
    }
    println!("{}", Row::HEAD);
    let mut bench = Bench {
        device: device.autodiff(),
        options,
        begun: Instant::now(),
        runs: 0,
        rows: Vec::new(),
    };
    for dtype in [FloatDType::F32, FloatDType::F16] {
        if !bench.device.supports_dtype(DType::from(dtype)) {
            println!("\nThe device lacks {dtype:?}.");
            continue;
        }
        bench.run::<ResNet>(dtype, [4, 16, 32, 32], [32, 64, 56, 56]);
        bench.run::<ConvNeXt>(dtype, [4, 16, 16, 16], [32, 96, 28, 28]);
        bench.run::<Transformer>(dtype, [2, 1, 64, 128], [8, 1, 512, 1024]);
        bench.run::<Dit>(dtype, [2, 1, 64, 128], [8, 1, 256, 1152]);
        bench.run::<UNet>(dtype, [4, 16, 32, 32], [8, 192, 64, 64]);
    }
    if let Some(path) = &bench.options.json {
        let autotune = cfg!(feature = "autotune");
        let rows: Vec<_> = bench.rows.iter().map(Row::json).collect();
        let rows = rows.join(",\n");
        let text = format!(
            "{{\"side\": \"Burn 0.22.1\", \"adapter\": {:?}, \"autotune\": {autotune}, \"results\": [\n{rows}\n]}}\n",
            adapter.name
        );
        std::fs::write(path, text).expect("a file that can be written");
    }
    let wrong = bench.rows.iter().filter(|row| row.differs()).count();
    if wrong > 0 {
        eprintln!("{wrong} networks have other losses than with Burn's norms");
        std::process::exit(1);
    }
}

struct Options {
    small: bool,
    steps: usize,
    seconds: f64,
    json: Option<String>,
}

impl Options {
    fn from_arguments() -> Self {
        let mut options = Self {
            small: false,
            steps: 50,
            seconds: 300.0,
            json: None,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut number = || arguments.next().and_then(|value| value.parse().ok());
            match argument.as_str() {
                "--small" => options.small = true,
                "--steps" => options.steps = number().expect("--steps: a number") as usize,
                "--seconds" => options.seconds = number().expect("--seconds: a number"),
                "--json" => options.json = Some(arguments.next().expect("--json: a file")),
                "--bench" => {} // from cargo
                other => panic!("unknown option {other}"),
            }
        }
        assert!(options.steps > 0, "--steps: at least 1");
        options
    }
}

struct Bench {
    device: Device,
    options: Options,
    begun: Instant,
    /// The number of networks and types so far.
    runs: u32,
    rows: Vec<Row>,
}

impl Bench {
    /// The number of networks, each in two types.
    const RUNS: u32 = 10;

    /// Trains a block on each side, in turns.
    fn run<B: Block>(&mut self, dtype: FloatDType, small: [usize; 4], large: [usize; 4]) {
        let shape = if self.options.small { small } else { large };
        self.runs += 1;
        let share = f64::from(self.runs) / f64::from(Self::RUNS);
        let end = self.begun + Duration::from_secs_f64(self.options.seconds * share);
        let mut sides: Vec<_> = self
            .sides::<B>()
            .into_iter()
            .map(|(norms, way)| Side {
                norms,
                way,
                training: Training::<B>::new(shape, dtype, norms, &self.device),
                times: Vec::new(),
                losses: Vec::new(),
                memory: 0,
            })
            .collect();
        let warm = 2.min(self.options.steps - 1);
        for step in 0..self.options.steps {
            for side in &mut sides {
                side.step(&self.device, step >= warm);
            }
            if step > warm && Instant::now() > end {
                break;
            }
        }
        let least = |side: &Side<B>| side.times.iter().copied().fold(f64::MAX, f64::min);
        let burns = (least(&sides[0]), sides[0].losses.clone());
        let none = sides.iter().find(|side| side.norms == Norms::None);
        let none = none.map_or(0.0, least);
        for side in sides {
            let pairs = side.losses.iter().zip(&burns.1);
            let row = Row {
                network: B::NAME,
                shape: shape.map(|size| size.to_string()).join("x"),
                dtype: format!("{dtype:?}").to_lowercase(),
                norms: side.norms,
                way: side.way,
                steps: side.losses.len(),
                least: least(&side),
                of_burns: least(&side) / burns.0,
                share: 1.0 - none / least(&side),
                memory: side.memory as f64 / f64::from(1 << 20),
                difference: pairs
                    .map(|(a, b)| (a - b).abs() / b)
                    // NaN stays.
                    .fold(0.0, |a, b| if a.is_nan() || a >= b { a } else { b }),
                last_loss: side.losses.last().copied().unwrap_or(f32::NAN),
                median: median(side.times),
            };
            println!("{}", row.line());
            self.rows.push(row);
        }
    }

    /// Burn's norms come first, none last.
    fn sides<B: Block>(&self) -> Vec<(Norms, Way)> {
        let can = |way: &Way| {
            force(Some(*way));
            burn_wgpu_norm::way(&self.device) == *way
        };
        let mut sides = vec![(Norms::Burns, Way::Burn)];
        for norms in [Norms::Ours, Norms::Fused] {
            if norms == Norms::Ours || B::FUSED {
                let ways = [Way::Kernels, Way::Submission].into_iter().filter(can);
                sides.extend(ways.map(|way| (norms, way)));
            }
        }
        force(None);
        sides.push((Norms::None, Way::Burn));
        sides
    }
}

struct Side<B: Block> {
    norms: Norms,
    way: Way,
    training: Training<B>,
    /// Milliseconds.
    times: Vec<f64>,
    losses: Vec<f32>,
    /// The bytes by which the first step makes the device's pools grow.
    memory: u64,
}

impl<B: Block> Side<B> {
    fn step(&mut self, device: &Device, timed: bool) {
        let sync = || device.sync().expect("a device that works");
        sync();
        let first = self.losses.is_empty();
        if first {
            device.memory_cleanup();
        }
        let before = reserved(device);
        force(Some(self.way));
        let start = Instant::now();
        let loss = self.training.step();
        sync();
        if timed {
            self.times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        force(None);
        if first {
            self.memory = reserved(device).saturating_sub(before);
        }
        self.losses.push(loss.into_scalar());
    }
}

/// The size in bytes of the device's memory pools.
fn reserved(device: &Device) -> u64 {
    match device.as_dispatch().clone().inner() {
        DispatchDevice::Cube(device) => {
            let report = device.client().memory_report(MemoryScope::Device);
            report.usage().bytes_reserved
        }
        #[allow(unreachable_patterns)]
        _ => 0,
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// A network with one side's norms.
struct Row {
    network: &'static str,
    shape: String,
    dtype: String,
    norms: Norms,
    way: Way,
    steps: usize,
    /// The smallest time of a step in milliseconds.
    least: f64,
    median: f64,
    /// The smallest time relative to that with Burn's norms.
    of_burns: f64,
    share: f64,
    /// MiB.
    memory: f64,
    /// The largest of the losses, relative to those with Burn's norms.
    difference: f32,
    last_loss: f32,
}

impl Row {
    const HEAD: &str = "| network | type | norms | steps | smallest, ms | median, ms | of Burn's | norms' share \
                        | memory, MiB | losses differ by |\n|---|---|---|---|---|---|---|---|---|---|";

    /// Whether the losses are others than with Burn's norms.
    fn differs(&self) -> bool {
        let most = if self.dtype == "f32" { 1e-3 } else { 2e-2 };
        self.norms != Norms::None && (self.difference.is_nan() || self.difference > most)
    }

    fn name(&self) -> String {
        match (self.norms, self.way) {
            (Norms::Burns, _) => "Burn's".to_owned(),
            (Norms::None, _) => "none".to_owned(),
            (Norms::Ours, way) => format!("ours, {way:?}"),
            (Norms::Fused, way) => format!("fused, {way:?}"),
        }
    }

    fn line(&self) -> String {
        let difference = match self.norms {
            Norms::Burns | Norms::None => String::new(),
            _ => format!("{:.1e}", self.difference),
        };
        format!(
            "| {} {} | {} | {} | {} | {:.2} | {:.2} | {:.2} | {:.0}% | {:.1} | {difference} |",
            self.network,
            self.shape,
            self.dtype,
            self.name(),
            self.steps,
            self.least,
            self.median,
            self.of_burns,
            self.share * 100.0,
            self.memory,
        )
    }

    fn json(&self) -> String {
        format!(
            "  {{\"network\": {:?}, \"shape\": {:?}, \"dtype\": {:?}, \"norms\": {:?}, \"steps\": {}, \
             \"least_ms\": {:.4}, \"median_ms\": {:.4}, \"norms_share\": {:.4}, \"memory_mib\": {:.1}, \
             \"last_loss\": {:?}, \"losses_differ_by\": {:?}}}",
            self.network,
            self.shape,
            self.dtype,
            self.name(),
            self.steps,
            self.least,
            self.median,
            self.share,
            self.memory,
            self.last_loss,
            self.difference,
        )
    }
}
