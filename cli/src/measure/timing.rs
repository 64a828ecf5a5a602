//! The time that a submission takes: by the GPU's own timestamps where the adapter has them, and from submission to
//! completion.

use super::busy::Busy;
use super::device::{gpu_error, scoped, storage};
use crate::results::Stamps;
use crate::results::summary::median;
use std::time::{Duration, Instant};
use wgpu_norm::{Error, GpuContext};

/// Measures submissions, one at a time: nothing overlaps the measured work.
pub struct Clock {
    device: wgpu::Device,
    queue: wgpu::Queue,
    timestamps: Option<Timestamps>,
    /// Work to run before whatever timestamps measure.
    busy: Option<Busy>,
    /// A buffer that wgpu believes each run in a row to write, so that it begins after the end of the one before.
    chain: wgpu::Buffer,
}

struct Timestamps {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    readable: wgpu::Buffer,
    nanoseconds_per_tick: f64,
}

/// Bytes of two timestamps.
const PAIR: u64 = 16;

/// Records a run; its number chooses the buffers whose turn it is.
type Record<'a> = dyn Fn(&mut wgpu::CommandEncoder, usize) + 'a;

/// The number of recordings timed in a row.
const RECORDINGS: usize = 200;

/// A run of fewer milliseconds is repeated between two timestamps, which take microseconds themselves, until all take
/// as many as this.
const SHORT: f64 = 0.05;
const REPEATED: f64 = 0.5;
const MOST_REPEATS: f64 = 64.0;

/// Dispatches that do nothing: how many follow a first one in a sample, and samples.
const FURTHER: u32 = 16;
const SAMPLES: usize = 21;

/// The times of a plain submission.
#[derive(Clone, Copy, Debug)]
pub struct Wall {
    /// Making, recording and finishing the encoder.
    pub record: Duration,
    /// From submission to completion.
    pub total: Duration,
}

impl Clock {
    pub fn new(gpu: &GpuContext) -> Result<Self, Error> {
        let (device, queue) = (gpu.device().clone(), gpu.queue().clone());
        let needed =
            wgpu::Features::TIMESTAMP_QUERY | wgpu::Features::TIMESTAMP_QUERY_INSIDE_ENCODERS;
        let timestamps = device.features().contains(needed);
        let timestamps = timestamps.then(|| Timestamps::new(&device, &queue));
        let chain = storage(&device, "chain", 1 << 22)?;
        let mut clock = Self {
            device,
            queue,
            timestamps: timestamps.transpose()?,
            busy: None,
            chain,
        };
        // A driver whose timestamps do not advance while work is done counts as having none.
        let time = clock.stamped(|encoder| encoder.clear_buffer(&clock.chain, 0, None))?;
        if time.is_none() {
            clock.timestamps = None;
        }
        let is_gpu = gpu.adapter_info().device_type != wgpu::DeviceType::Cpu;
        if clock.has_timestamps() && is_gpu {
            let mut busy = Busy::new(gpu, 1024, 16384)?;
            // The first dispatch may still compile, and the clock may still be low.
            for _ in 0..3 {
                if let Some(one) = clock.stamped(|encoder| busy.record(encoder))? {
                    busy.calibrate(one / busy.dispatches);
                }
            }
            clock.busy = Some(busy);
        }
        Ok(clock)
    }

    /// Whether [`gpu`](Self::gpu) uses timestamps.
    pub fn has_timestamps(&self) -> bool {
        self.timestamps.is_some()
    }

    /// The name of the method that [`gpu`](Self::gpu) uses.
    pub fn method(&self) -> &'static str {
        match self.timestamps {
            Some(_) => "GPU timestamps",
            None => "submission to completion",
        }
    }

    /// Records, submits and waits; timed by the host.
    pub fn wall(&self, record: impl FnOnce(&mut wgpu::CommandEncoder)) -> Result<Wall, Error> {
        let begin = Instant::now();
        let mut encoder = self.device.create_command_encoder(&Default::default());
        record(&mut encoder);
        let commands = encoder.finish();
        let recorded = Instant::now();
        let submission = self.queue.submit([commands]);
        self.wait(Some(submission))?;
        Ok(Wall {
            record: recorded.duration_since(begin),
            total: recorded.elapsed(),
        })
    }

    /// The host's median time in milliseconds to create, record and finish an encoder, over many in a row. Nothing is
    /// submitted.
    pub fn record_ms(&self, record: impl Fn(&mut wgpu::CommandEncoder, usize)) -> f64 {
        let mut samples = Vec::new();
        for turn in 0..RECORDINGS {
            let begin = Instant::now();
            let mut encoder = self.device.create_command_encoder(&Default::default());
            record(&mut encoder, turn);
            let commands = encoder.finish();
            samples.push(begin.elapsed());
            drop(commands);
        }
        median_ms(&samples)
    }

    /// The time of a run among `repeats`, each after the end of the one before: between timestamps around all, else
    /// from submission to completion. `turn` counts such samples.
    pub fn gpu(&self, repeats: usize, turn: usize, record: &Record) -> Result<Duration, Error> {
        let all = |encoder: &mut wgpu::CommandEncoder| {
            for run in 0..repeats {
                let chained = wgpu::BufferTransition {
                    buffer: &self.chain,
                    state: wgpu::BufferUses::STORAGE_READ_WRITE,
                };
                encoder.transition_resources([chained].into_iter(), [].into_iter());
                record(encoder, turn * repeats + run);
            }
        };
        let time = match self.stamped(all)? {
            Some(time) => time,
            None => self.wall(all)?.total,
        };
        Ok(time.div_f64(repeats as f64))
    }

    /// The median in milliseconds of samples of a single run.
    fn single_ms(&self, samples: usize, record: &Record) -> Result<f64, Error> {
        let samples = (0..samples).map(|turn| self.gpu(1, turn, record));
        Ok(median_ms(&samples.collect::<Result<Vec<_>, _>>()?))
    }

    /// The number of runs to time between two timestamps: one, unless it is short.
    pub fn repeats(&self, record: &Record) -> Result<usize, Error> {
        let one = self.single_ms(3, record)?;
        if !self.has_timestamps() || one >= SHORT {
            return Ok(1);
        }
        Ok((REPEATED / one).clamp(1.0, MOST_REPEATS) as usize)
    }

    /// The times of dispatches that do nothing.
    pub fn stamps(&self, gpu: &GpuContext) -> Result<Stamps, Error> {
        let mut nothing = Busy::new(gpu, 1, 0)?;
        let first = self.single_ms(SAMPLES, &|encoder, _| nothing.record(encoder))?;
        nothing.dispatches += FURTHER;
        let all = self.single_ms(SAMPLES, &|encoder, _| nothing.record(encoder))?;
        Ok(Stamps {
            first_us: first * 1e3,
            further_us: (all - first) * 1e3 / f64::from(FURTHER),
        })
    }

    /// The time between two timestamps; none if the GPU's clock did not advance.
    fn stamped(
        &self,
        record: impl FnOnce(&mut wgpu::CommandEncoder),
    ) -> Result<Option<Duration>, Error> {
        let Some(timestamps) = &self.timestamps else {
            return Ok(None);
        };
        let mut encoder = self.device.create_command_encoder(&Default::default());
        if let Some(busy) = &self.busy {
            busy.record(&mut encoder);
        }
        encoder.write_timestamp(&timestamps.queries, 0);
        record(&mut encoder);
        encoder.write_timestamp(&timestamps.queries, 1);
        encoder.resolve_query_set(&timestamps.queries, 0..2, &timestamps.resolved, 0);
        encoder.copy_buffer_to_buffer(&timestamps.resolved, 0, &timestamps.readable, 0, PAIR);
        let submission = self.queue.submit([encoder.finish()]);
        timestamps
            .readable
            .map_async(wgpu::MapMode::Read, .., |_| {});
        self.wait(Some(submission))?;
        timestamps.read()
    }

    /// Waits for a submission, or for all.
    pub fn wait(&self, submission: Option<wgpu::SubmissionIndex>) -> Result<(), Error> {
        let poll = wgpu::PollType::Wait {
            submission_index: submission,
            timeout: None,
        };
        match self.device.poll(poll) {
            Ok(_) => Ok(()),
            Err(error) => Err(gpu_error("waiting for the device", error)),
        }
    }
}

impl Timestamps {
    fn new(device: &wgpu::Device, queue: &wgpu::Queue) -> Result<Self, Error> {
        let buffer = |usage| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("timestamps"),
                size: PAIR,
                usage,
                mapped_at_creation: false,
            })
        };
        let (copy_src, copy_dst) = (wgpu::BufferUsages::COPY_SRC, wgpu::BufferUsages::COPY_DST);
        scoped(device, "timestamps", PAIR, || Self {
            queries: device.create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("timestamps"),
                ty: wgpu::QueryType::Timestamp,
                count: 2,
            }),
            resolved: buffer(wgpu::BufferUsages::QUERY_RESOLVE | copy_src),
            readable: buffer(wgpu::BufferUsages::MAP_READ | copy_dst),
            nanoseconds_per_tick: f64::from(queue.get_timestamp_period()),
        })
    }

    fn read(&self) -> Result<Option<Duration>, Error> {
        let view = self.readable.get_mapped_range(..);
        let view = view.map_err(|error| gpu_error("reading timestamps", error))?;
        let ticks: Vec<u64> = bytemuck::pod_collect_to_vec(&view);
        drop(view);
        self.readable.unmap();
        let &[begin, end] = ticks.as_slice() else {
            return Ok(None);
        };
        let ticks = end.checked_sub(begin).filter(|&ticks| ticks > 0);
        let seconds = ticks.map(|ticks| ticks as f64 * self.nanoseconds_per_tick * 1e-9);
        Ok(seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()))
    }
}

/// The number of samples, if given.
#[derive(Clone, Copy, Debug)]
pub struct Rounds(pub Option<u32>);

impl Rounds {
    const LEAST: usize = 9;
    const MOST: usize = 1000;
    const TIME: Duration = Duration::from_millis(500);

    /// Whether another sample is due: the given number, else at least 9 and half a second, at most 1000.
    pub fn go_on(self, done: usize, since: Instant) -> bool {
        match self.0 {
            Some(rounds) => done < rounds as usize,
            None => done < Self::LEAST || (done < Self::MOST && since.elapsed() < Self::TIME),
        }
    }
}

/// The median in milliseconds; NaN if there are no samples.
pub fn median_ms(samples: &[Duration]) -> f64 {
    let samples: Vec<f64> = samples.iter().map(|&sample| ms(sample)).collect();
    median(&samples)
}

/// A bandwidth in GB/s (10⁹ bytes).
pub fn gb_per_s(bytes: u64, ms: f64) -> f64 {
    bytes as f64 / (ms * 1e6)
}

/// Milliseconds.
pub fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn samples_go_on_with_the_turns_of_those_before() {
        let gpu = pollster::block_on(GpuContext::new()).unwrap();
        let clock = Clock::new(&gpu).unwrap();
        let nothing = Busy::new(&gpu, 1, 0).unwrap();
        let runs = RefCell::new(Vec::new());
        for turn in 0..3 {
            let record = |encoder: &mut _, run| {
                runs.borrow_mut().push(run);
                nothing.record(encoder);
            };
            clock.gpu(4, turn, &record).unwrap();
        }
        // A GPU whose clock did not advance is measured once more.
        let mut runs = runs.into_inner();
        runs.sort_unstable();
        runs.dedup();
        assert_eq!(runs, (0..12).collect::<Vec<_>>());
    }
}
