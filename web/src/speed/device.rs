//! Objects on the device: errors that are waited for, buffers that are freed, and the end of submitted work.

use super::cases::is_software;
use futures_channel::oneshot;
use std::cell::Cell;
use wgpu_norm::{DType, Error, GpuContext};

/// What is timed.
pub trait Work {
    /// Records one run into a pass; each run takes the next set of buffers.
    fn record(&self, pass: &mut wgpu::ComputePass<'_>);
}

/// Runs `create` and returns its result, or wgpu's complaint, which in a browser comes later. `bytes` is the size of
/// its allocations.
pub async fn scoped<T>(
    gpu: &GpuContext,
    what: &'static str,
    bytes: u64,
    create: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let device = gpu.device();
    let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
    let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let internal = device.push_error_scope(wgpu::ErrorFilter::Internal);
    let made = create();
    // All are closed before anything is waited for, the innermost first.
    let (internal, validation, memory) = (internal.pop(), validation.pop(), memory.pop());
    let complaints = (memory.await, internal.await.or(validation.await));
    match complaints {
        (Some(_), _) => Err(Error::out_of_memory(what, bytes)),
        (_, Some(error)) => Err(Error::gpu(what, error)),
        _ => made,
    }
}

/// Ends when all work submitted so far is done.
pub async fn done(gpu: &GpuContext) -> Result<(), Error> {
    let (sender, receiver) = oneshot::channel();
    gpu.queue().on_submitted_work_done(move || {
        // The receiver is gone if nobody waits any more.
        let _ = sender.send(());
    });
    // A browser runs callbacks by itself.
    #[cfg(not(target_arch = "wasm32"))]
    gpu.device()
        .poll(wgpu::PollType::wait_indefinitely())
        .map_err(|error| Error::gpu("waiting for the device", error))?;
    receiver
        .await
        .map_err(|error| Error::gpu("waiting for the device", error))
}

/// Runs work some times: this triggers lazy compilation, touches memory, and reports any complaint of wgpu's.
pub async fn warm(gpu: &GpuContext, work: &impl Work, times: usize) -> Result<(), Error> {
    let submit = || {
        let mut encoder = gpu.device().create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        for _ in 0..times {
            work.record(&mut pass);
        }
        drop(pass);
        gpu.queue().submit([encoder.finish()]);
        Ok(())
    };
    scoped(gpu, "running", 0, submit).await?;
    done(gpu).await
}

/// The one whose turn it is.
pub fn next<'a, T>(turn: &Cell<usize>, all: &'a [T]) -> Option<&'a T> {
    let index = turn.get().checked_rem(all.len())?;
    turn.set(index + 1);
    all.get(index)
}

/// Buffers that are freed together. In a browser, a buffer that is merely dropped keeps its memory until garbage is
/// collected.
#[derive(Default)]
pub struct Buffers(Vec<wgpu::Buffer>);

impl Buffers {
    /// A new storage buffer that can be a copy's source or destination.
    pub fn storage(
        &mut self,
        gpu: &GpuContext,
        what: &'static str,
        bytes: u64,
    ) -> Result<wgpu::Buffer, Error> {
        let size = bytes.max(32).next_multiple_of(32);
        Error::check_limit(what, "max_buffer_size", size, gpu.profile().max_buffer)?;
        let buffer = gpu.device().create_buffer(&wgpu::BufferDescriptor {
            label: Some(what),
            size,
            usage: wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::COPY_DST
                | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        self.0.push(buffer.clone());
        Ok(buffer)
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        for buffer in &self.0 {
            buffer.destroy();
        }
    }
}

/// The number of sets of buffers that take turns, each of `bytes`: together they are larger than caches, so that by a
/// set's next turn the others have passed through.
pub fn sets(gpu: &GpuContext, bytes: u64) -> u64 {
    let total: u64 = match is_software(gpu) {
        true => 64 << 20,
        false => 256 << 20,
    };
    total.div_ceil(bytes.max(1)).clamp(1, 64)
}

/// The mean of all random numbers; their variance is 1.
pub const MEAN: f64 = 0.25;

/// A buffer of repeated random numbers, about 4 MB.
pub fn pattern(gpu: &GpuContext, dtype: DType) -> Result<wgpu::Buffer, Error> {
    // A prime number of values, so that neighbouring channels and rows differ.
    let values = random(65_537);
    let bytes = dtype.encode(values);
    let mut bytes = bytes.repeat((1 << 22) / bytes.len().max(1));
    bytes.truncate(bytes.len() / 32 * 32);
    gpu.upload("pattern", &bytes)
}

/// Sums of twelve uniform numbers from a fixed seed, about normal.
fn random(count: usize) -> impl Iterator<Item = f64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut uniform = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    (0..count).map(move |_| MEAN + (0..12).map(|_| uniform()).sum::<f64>() - 6.0)
}

/// Fills a buffer with the pattern, starting at an offset in it.
pub fn fill(
    encoder: &mut wgpu::CommandEncoder,
    pattern: &wgpu::Buffer,
    from: u64,
    buffer: &wgpu::Buffer,
) {
    let (mut start, mut offset) = (0, from / 4 * 4 % pattern.size().max(4));
    while start < buffer.size() {
        let bytes = (pattern.size() - offset).min(buffer.size() - start);
        encoder.copy_buffer_to_buffer(pattern, offset, buffer, start, bytes);
        start += bytes;
        offset = 0;
    }
}
