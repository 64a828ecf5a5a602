//! The time that work takes: by the GPU's timestamps where the device has them, else from submission to completion.
//!
//! A browser has timestamps only at the ends of passes, and rounds them to steps. So a sample runs the work many times
//! in one pass. Two passes write their end: a lead, which raises the GPU's clock, and the work. The beginning of a pass
//! is not used, since some drivers note it before earlier work is done. Runs of a sample may overlap where one ends and
//! the next begins; those of copies do so, too.

use super::cases::is_software;
use super::device::{Work, done, scoped};
use web_time::Instant;
use wgpu_norm::{Error, GpuContext};

/// Milliseconds that a sample takes at least, so that a GPU's clock has risen.
const LEAST_STAMPED: f64 = 2.0;
const LEAST_WALL: f64 = 20.0;

/// The steps of the clock that a sample takes at least.
const STEPS: f64 = 100.0;

/// The most runs in a sample.
const MOST_RUNS: usize = 4096;

/// The number of recordings timed in a row.
const RECORDINGS: u32 = 200;

/// Measures work, one sample at a time.
pub struct Clock {
    gpu: GpuContext,
    stamps: Option<Stamps>,
    /// The step of the host's clock, in milliseconds.
    host_step: f64,
}

/// The times of a plain submission, in milliseconds.
pub struct Wall {
    /// Making, recording and finishing the encoder.
    pub record: f64,
    /// From submission to completion.
    pub total: f64,
}

impl Clock {
    /// A clock that uses timestamps if they advance while `probe` runs.
    pub async fn new(gpu: &GpuContext, probe: &impl Work) -> Result<Self, Error> {
        let mut clock = Self {
            gpu: gpu.clone(),
            stamps: None,
            host_step: host_step(),
        };
        let features = gpu.device().features();
        if features.contains(wgpu::Features::TIMESTAMP_QUERY) {
            clock.stamps = Some(Stamps::new(gpu).await?);
            let (begin, mut advanced) = (Instant::now(), 0);
            for doubled in 0..10 {
                if clock.sample(probe, 1 << doubled).await? > 0.0 {
                    advanced += 1;
                }
                if advanced == 4 || begin.elapsed().as_millis() > 500 {
                    break;
                }
            }
            if advanced == 0 {
                clock.stamps = None;
            }
        }
        Ok(clock)
    }

    /// The method, in words.
    pub fn method(&self) -> String {
        match &self.stamps {
            Some(stamps) => format!(
                "GPU timestamps in steps of {}, around as many runs as take {LEAST_STAMPED} ms and {STEPS} steps",
                duration(stamps.step_ms())
            ),
            None => format!(
                "submission to completion of as many runs as take {LEAST_WALL} ms, minus an empty submission; the \
                 clock has steps of {}",
                duration(self.host_step)
            ),
        }
    }

    /// A host's time, if it is long enough to be told from none.
    pub fn resolved(&self, ms: f64) -> Option<f64> {
        (ms > 10.0 * self.host_step).then_some(ms)
    }

    /// The number of runs that make a sample long enough.
    pub async fn runs(&mut self, work: &impl Work) -> Result<usize, Error> {
        let mut runs = 1;
        loop {
            let time = self.sample(work, runs).await?;
            // Known better after each sample.
            let least = match &self.stamps {
                Some(stamps) => LEAST_STAMPED.max(STEPS * stamps.step_ms()),
                None => LEAST_WALL.max(STEPS * self.host_step),
            };
            if time >= least || runs >= MOST_RUNS {
                return Ok(runs);
            }
            let factor = (1.25 * least / time.max(1e-6)).clamp(1.5, 8.0);
            runs = ((runs as f64 * factor).ceil() as usize).min(MOST_RUNS);
        }
    }

    /// The milliseconds of some runs: between timestamps, else those of the submission.
    pub async fn sample(&mut self, work: &impl Work, runs: usize) -> Result<f64, Error> {
        match &mut self.stamps {
            Some(stamps) => stamps.sample(&self.gpu, work, runs).await,
            None => Ok(self.wall(Some(work), runs).await?.total),
        }
    }

    /// The milliseconds of one run, from samples of `runs` runs and those of empty submissions.
    pub fn per_run(&self, samples: &[f64], runs: usize, empties: &[f64]) -> Result<f64, Error> {
        let around = match &self.stamps {
            Some(_) => 0.0,
            None => median(empties),
        };
        let time = (median(samples) - around) / runs as f64;
        match time.is_finite() && time > 0.0 {
            true => Ok(time),
            false => Err(Error::gpu("timing", "the clock did not advance")),
        }
    }

    /// Records some runs, or nothing, submits and waits; timed by the host.
    pub async fn wall(&self, work: Option<&impl Work>, runs: usize) -> Result<Wall, Error> {
        let begin = Instant::now();
        let commands = self.commands(work, runs);
        let recorded = Instant::now();
        self.gpu.queue().submit([commands]);
        done(&self.gpu).await?;
        Ok(Wall {
            record: ms(recorded.duration_since(begin)),
            total: ms(recorded.elapsed()),
        })
    }

    /// The host's milliseconds to create, record and finish an encoder: the mean of many, since the host's clock may be
    /// coarse. Nothing is submitted.
    pub fn record(&self, work: &impl Work) -> f64 {
        let begin = Instant::now();
        for _ in 0..RECORDINGS {
            drop(self.commands(Some(work), 1));
        }
        ms(begin.elapsed()) / f64::from(RECORDINGS)
    }

    fn commands(&self, work: Option<&impl Work>, runs: usize) -> wgpu::CommandBuffer {
        let mut encoder = self
            .gpu
            .device()
            .create_command_encoder(&Default::default());
        if let Some(work) = work {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            for _ in 0..runs {
                work.record(&mut pass);
            }
        }
        encoder.finish()
    }
}

struct Stamps {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    ms_per_tick: f64,
    /// The first timestamp, and the largest number that divides the differences of all others from it.
    first: Option<u64>,
    step: u64,
    software: bool,
}

impl Stamps {
    async fn new(gpu: &GpuContext) -> Result<Self, Error> {
        let create = || {
            let device = gpu.device();
            let resolved = device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("timestamps"),
                size: 16,
                usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
                mapped_at_creation: false,
            });
            Ok(Self {
                queries: device.create_query_set(&wgpu::QuerySetDescriptor {
                    label: Some("timestamps"),
                    ty: wgpu::QueryType::Timestamp,
                    count: 2,
                }),
                resolved,
                ms_per_tick: f64::from(gpu.queue().get_timestamp_period()) * 1e-6,
                first: None,
                step: 0,
                software: is_software(gpu),
            })
        };
        scoped(gpu, "timestamps", 16, create).await
    }

    /// The step in milliseconds, as far as is known.
    fn step_ms(&self) -> f64 {
        self.step as f64 * self.ms_per_tick
    }

    /// The milliseconds of some runs; 0 if the clock did not advance.
    async fn sample(
        &mut self,
        gpu: &GpuContext,
        work: &impl Work,
        runs: usize,
    ) -> Result<f64, Error> {
        // A CPU has no clock that this would raise.
        let lead = match self.software {
            true => 0,
            false => runs.div_ceil(2),
        };
        let record = |encoder: &mut wgpu::CommandEncoder| {
            for (index, runs) in [(0, lead), (1, runs)] {
                let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                    label: Some("timed"),
                    timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
                        query_set: &self.queries,
                        beginning_of_pass_write_index: None,
                        end_of_pass_write_index: Some(index),
                    }),
                });
                for _ in 0..runs {
                    work.record(&mut pass);
                }
            }
            encoder.resolve_query_set(&self.queries, 0..2, &self.resolved, 0);
        };
        let buffers = [self.resolved.clone()];
        let read = gpu.submit_and_read(record, &buffers).await?;
        let ticks: Vec<u64> = read
            .first()
            .map(|bytes| bytemuck::pod_collect_to_vec(bytes))
            .unwrap_or_default();
        let &[begin, end] = ticks.as_slice() else {
            return Ok(0.0);
        };
        for tick in ticks {
            let first = *self.first.get_or_insert(tick);
            self.step = greatest_divisor(self.step, tick.abs_diff(first));
        }
        Ok(end.saturating_sub(begin) as f64 * self.ms_per_tick)
    }
}

/// The largest number that divides both; 0 is divided by any.
fn greatest_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The step of the host's clock in milliseconds, which browsers coarsen. It takes a few of them to find out.
fn host_step() -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..3 {
        let begin = Instant::now();
        let mut passed = begin.elapsed();
        // A clock that stands still must not stop the page.
        for _ in 0..1_000_000 {
            if !passed.is_zero() {
                break;
            }
            passed = begin.elapsed();
        }
        if !passed.is_zero() {
            least = least.min(ms(passed));
        }
    }
    if least.is_finite() { least } else { 1.0 }
}

/// A duration as text.
fn duration(ms: f64) -> String {
    match ms {
        ms if ms >= 1.0 => format!("{ms:.1} ms"),
        ms if ms >= 0.001 => format!("{:.1} µs", ms * 1e3),
        ms => format!("{:.0} ns", ms * 1e6),
    }
}

fn ms(duration: web_time::Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// The median of an odd number of samples; NaN if there are none.
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
