//! Runs a stream: while the device works on a piece, the piece before it is written and the piece after it is read.

use super::budget::{CHUNK, is_over_diff_dst, largest_overlap, largest_window};
use super::pieces::{Piece, is_streamed, overlap};
use super::{Storage, Stream};
use crate::bound::PieceBinder;
use crate::context::{GpuContext, Held};
use crate::error::Error;
use crate::memory;
use crate::plan::{Plan, Requirement};
use crate::tensor::Tensor;
use std::future::Future;
use std::ops::Range;

type Buffers = Vec<(Tensor, wgpu::Buffer)>;

pub(super) async fn run<S: Storage>(stream: &Stream, storage: &mut S) -> Result<(), S::Error> {
    let (gpu, plan) = (&stream.gpu, &stream.plan);
    let binder = PieceBinder::new(gpu, plan)?;
    let buffers = StreamBuffers::create(stream)?;
    let mut transfer = Transfer {
        gpu,
        plan,
        storage,
        chunk: memory::collect("a chunk", std::iter::repeat_n(0, CHUNK as usize))?,
    };
    transfer.upload_resident(&buffers).await?;
    let mut before = None;
    for (index, piece) in stream.pieces.iter().enumerate() {
        for (tensor, bytes) in piece.windows.iter().filter(|(t, _)| plan.body.reads(*t)) {
            let buffer = find(&buffers.windows, *tensor)?;
            transfer.upload(*tensor, buffer, bytes.clone()).await?;
        }
        let bound = binder.bind(gpu, plan, &piece.dispatches, &buffers.places(piece)?)?;
        let staging = buffers.staging_of(piece, index);
        let watch = gpu.watch(stream.memory);
        let submitted = gpu.submit(&staging, |encoder| {
            buffers.restore(encoder, &stream.pieces, index);
            bound.record(encoder);
            buffers.download(encoder, piece, &staging);
            buffers.save(encoder, &stream.pieces, index);
        })?;
        let done = gpu.done(watch, submitted);
        if let Some((piece, staging, done)) = before.replace((piece, staging, done)) {
            transfer.download(piece, &staging, done).await?;
        }
    }
    if let Some((piece, staging, done)) = before {
        transfer.download(piece, &staging, done).await?;
    }
    transfer.download_resident(&buffers).await
}

/// A stream's buffers on the device, and the buffers that results are read back into.
struct StreamBuffers {
    /// Whole tensors, and the workspace.
    resident: Held<Buffers>,
    /// A window of each streamed tensor; diff_src shares diff_dst's.
    windows: Held<Buffers>,
    /// The bytes of each streamed result that the next window repeats.
    carried: Held<Buffers>,
    /// A window of each streamed result, for two pieces in turns.
    staging: [Held<Buffers>; 2],
}

impl StreamBuffers {
    fn create(stream: &Stream) -> Result<Self, Error> {
        let (gpu, plan) = (&stream.gpu, &stream.plan);
        let mut all = Self {
            resident: gpu.held(),
            windows: gpu.held(),
            carried: gpu.held(),
            staging: [gpu.held(), gpu.held()],
        };
        let on_device = wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_DST
            | wgpu::BufferUsages::COPY_SRC;
        let create = |tensor: Tensor, bytes, usage| -> Result<_, Error> {
            Ok((tensor, gpu.create_buffer(tensor.name(), bytes, usage)?))
        };
        for requirement in plan.tensors.iter().filter(|r| r.tensor != Tensor::Sums) {
            let tensor = requirement.tensor;
            if !is_streamed(tensor) {
                let bytes = requirement.padded_bytes();
                all.resident.push(create(tensor, bytes, on_device)?);
                continue;
            }
            let bytes = largest_window(&stream.pieces, tensor);
            if is_over_diff_dst(plan, tensor) {
                let buffer = find(&all.windows, Tensor::DiffDst)?.clone();
                all.windows.push((tensor, buffer));
            } else {
                all.windows.push(create(tensor, bytes, on_device)?);
            }
            if plan.writes(tensor) {
                let carried = largest_overlap(&stream.pieces, tensor);
                let usage = wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
                all.carried.push(create(tensor, carried, usage)?);
                let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
                for staging in &mut all.staging {
                    staging.push(create(tensor, bytes, usage)?);
                }
            }
        }
        let workspace = create(Tensor::Workspace, plan.workspace_bytes, on_device)?;
        all.resident.push(workspace);
        Ok(all)
    }

    /// The buffer of each tensor of a piece, and the tensor's byte at which the buffer begins.
    fn places(&self, piece: &Piece) -> Result<Vec<(Tensor, &wgpu::Buffer, u64)>, Error> {
        let resident = self.resident.iter();
        let resident = resident.map(|(tensor, buffer)| Ok((*tensor, buffer, 0)));
        let windows = piece.windows.iter().map(|(tensor, bytes)| {
            let buffer = find(&self.windows, *tensor)?;
            Ok((*tensor, buffer, bytes.start))
        });
        resident.chain(windows).collect()
    }

    /// The buffers that a piece's results are read back into.
    fn staging_of(&self, piece: &Piece, index: usize) -> Buffers {
        let [even, odd] = &self.staging;
        let staging = if index.is_multiple_of(2) { even } else { odd };
        let staging = staging.iter();
        let written = staging.filter(|(tensor, _)| piece.window(*tensor).is_some());
        written.cloned().collect()
    }

    /// Restores the start of a window with the bytes that the piece before it wrote.
    fn restore(&self, encoder: &mut wgpu::CommandEncoder, pieces: &[Piece], index: usize) {
        for (tensor, carried) in self.carried.iter() {
            let bytes = overlap(pieces, index, *tensor).unwrap_or(0);
            if let (1.., Ok(window)) = (bytes, find(&self.windows, *tensor)) {
                encoder.copy_buffer_to_buffer(carried, 0, window, 0, bytes);
            }
        }
    }

    /// Saves the bytes that the next window repeats.
    fn save(&self, encoder: &mut wgpu::CommandEncoder, pieces: &[Piece], index: usize) {
        for (tensor, carried) in self.carried.iter() {
            let Some(own) = pieces.get(index).and_then(|piece| piece.window(*tensor)) else {
                continue;
            };
            let later = (index + 1..pieces.len()).find_map(|next| overlap(pieces, next, *tensor));
            let bytes = later.unwrap_or(0);
            if let (1.., Ok(window)) = (bytes, find(&self.windows, *tensor)) {
                let from = own.end.saturating_sub(own.start).saturating_sub(bytes);
                encoder.copy_buffer_to_buffer(window, from, carried, 0, bytes);
            }
        }
    }

    fn download(&self, encoder: &mut wgpu::CommandEncoder, piece: &Piece, staging: &Buffers) {
        for (tensor, buffer) in staging {
            let bytes = piece.window(*tensor).map(|w| w.end.saturating_sub(w.start));
            if let (Some(bytes), Ok(window)) = (bytes, find(&self.windows, *tensor)) {
                encoder.copy_buffer_to_buffer(window, 0, buffer, 0, bytes);
            }
        }
    }
}

fn find(buffers: &Buffers, tensor: Tensor) -> Result<&wgpu::Buffer, Error> {
    let found = buffers.iter().find(|(known, _)| *known == tensor);
    found
        .map(|(_, buffer)| buffer)
        .ok_or(Error::no_buffer(tensor))
}

/// Bytes of a tensor itself, without padding.
fn own_bytes(requirement: &Requirement) -> u64 {
    requirement
        .elements
        .saturating_mul(requirement.dtype.size())
}

/// Moves tensors between a caller's storage and the device, through a chunk of host memory.
struct Transfer<'a, S> {
    gpu: &'a GpuContext,
    plan: &'a Plan,
    storage: &'a mut S,
    chunk: Vec<u8>,
}

impl<S: Storage> Transfer<'_, S> {
    /// Divides some bytes of a tensor into chunks, without its padding.
    fn chunks(
        &self,
        tensor: Tensor,
        bytes: Range<u64>,
    ) -> impl Iterator<Item = Range<u64>> + use<S> {
        let own = self.plan.requirement(tensor).map_or(0, own_bytes);
        let end = bytes.end.min(own);
        let starts = (bytes.start..end).step_by(CHUNK as usize);
        starts.map(move |start| start..end.min(start + CHUNK))
    }

    /// Reads bytes of a tensor from the storage into the start of a buffer.
    async fn upload(
        &mut self,
        tensor: Tensor,
        buffer: &wgpu::Buffer,
        bytes: Range<u64>,
    ) -> Result<(), S::Error> {
        for part in self.chunks(tensor, bytes.clone()) {
            let chunk = first(&mut self.chunk, &part);
            self.storage.read(tensor, part.start, chunk).await?;
            let at = part.start.saturating_sub(bytes.start);
            self.gpu.write_buffer(tensor.name(), buffer, at, chunk)?;
        }
        Ok(())
    }

    /// Reads the tensors that stay on the device, a few chunks at a time.
    async fn upload_resident(&mut self, buffers: &StreamBuffers) -> Result<(), S::Error> {
        for (tensor, buffer) in buffers.resident.iter() {
            if !self.plan.body.reads(*tensor) {
                continue;
            }
            for part in self.chunks(*tensor, 0..u64::MAX) {
                let chunk = first(&mut self.chunk, &part);
                self.storage.read(*tensor, part.start, chunk).await?;
                self.gpu
                    .write_buffer(tensor.name(), buffer, part.start, chunk)?;
                // Written data is kept twice until something is submitted.
                if (part.end / CHUNK).is_multiple_of(4) {
                    let watch = self.gpu.watch(CHUNK);
                    let submitted = self.gpu.submit(&[], |_| {})?;
                    self.gpu.done(watch, submitted).await?;
                }
            }
        }
        Ok(())
    }

    /// Waits for a piece and writes its results.
    async fn download(
        &mut self,
        piece: &Piece,
        staging: &Buffers,
        done: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), S::Error> {
        done.await?;
        for (tensor, buffer) in staging {
            let first = piece.window(*tensor).map_or(0, |bytes| bytes.start);
            let written = piece.written(*tensor).cloned().unwrap_or_default();
            for part in self.chunks(*tensor, written) {
                let at = part.start.saturating_sub(first);
                self.write(*tensor, buffer, at, part).await?;
            }
            self.gpu.scoped("unmapping", || buffer.unmap())?;
        }
        Ok(())
    }

    /// Writes the results that stayed on the device.
    async fn download_resident(&mut self, buffers: &StreamBuffers) -> Result<(), S::Error> {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        for (tensor, buffer) in buffers.resident.iter() {
            if !self.plan.body.writes(*tensor) {
                continue;
            }
            let mut staging = self.gpu.held::<Buffers>();
            let made = self.gpu.create_buffer(tensor.name(), CHUNK, usage)?;
            staging.push((*tensor, made.clone()));
            for part in self.chunks(*tensor, 0..u64::MAX) {
                let bytes = (part.end - part.start).next_multiple_of(4);
                let watch = self.gpu.watch(CHUNK);
                let submitted = self.gpu.submit(&staging, |encoder| {
                    encoder.copy_buffer_to_buffer(buffer, part.start, &made, 0, bytes);
                })?;
                self.gpu.done(watch, submitted).await?;
                self.write(*tensor, &made, 0, part).await?;
                self.gpu.scoped("unmapping", || made.unmap())?;
            }
        }
        Ok(())
    }

    /// Writes a part of a tensor, which lies in a mapped buffer from `at` on, to the storage.
    async fn write(
        &mut self,
        tensor: Tensor,
        buffer: &wgpu::Buffer,
        at: u64,
        part: Range<u64>,
    ) -> Result<(), S::Error> {
        let chunk = first(&mut self.chunk, &part);
        let bytes = at..at + chunk.len() as u64;
        self.gpu.read_mapped(tensor, buffer, &bytes, |from| {
            for (to, from) in chunk.iter_mut().zip(from) {
                *to = *from;
            }
        })?;
        self.storage.write(tensor, part.start, chunk).await
    }
}

/// The start of the chunk, as long as a part.
fn first<'c>(chunk: &'c mut [u8], part: &Range<u64>) -> &'c mut [u8] {
    let bytes = usize::try_from(part.end.saturating_sub(part.start)).unwrap_or(usize::MAX);
    let bytes = bytes.min(chunk.len());
    chunk.get_mut(..bytes).unwrap_or_default()
}
