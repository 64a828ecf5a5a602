//! The tensors of a case in buffers, with room around them that nothing may touch.

use super::case::Memory;
use super::numbers::size_of;
use crate::bound::{self, BufferRange};
use crate::context::Transfers;
use crate::plan::Plan;
use crate::{Bound, Error, GpuContext, Tensor, memory};
use std::ops::Range;

/// Fills what is around inputs, as numbers a NaN: what reads it shows.
const NAN: u8 = 0xff;
/// Fills what is around outputs, as numbers small ones: what calculates with it changes it.
const NUMBERS: u8 = 0x3e;

/// Where a tensor is.
struct Slot {
    tensor: Tensor,
    buffer: usize,
    /// Its words.
    bytes: Range<usize>,
    /// Its elements.
    filled: Range<usize>,
    /// Whether it is a result.
    written: bool,
}

/// The buffers' contents.
pub(super) struct Buffers {
    slots: Vec<Slot>,
    images: Vec<Vec<u8>>,
}

impl Buffers {
    /// Places a plan's tensors.
    pub fn new(gpu: &GpuContext, plan: &Plan, memory: Memory, with_sums: bool) -> Self {
        let alignment = usize::try_from(gpu.profile().alignment).unwrap_or(256);
        let mut buffers = Self {
            slots: Vec::new(),
            images: Vec::new(),
        };
        for required in &plan.tensors {
            let over = memory.in_place && required.tensor == Tensor::DiffSrc;
            if over || (required.tensor == Tensor::Sums && !with_sums) {
                continue;
            }
            let bytes = usize::try_from(required.elements).unwrap_or(usize::MAX);
            let bytes = bytes.saturating_mul(size_of(required.dtype));
            let tensor = required.tensor;
            let result = plan.writes(tensor) && !tensor.is_scratch();
            let written = result || (memory.in_place && tensor == Tensor::DiffDst);
            buffers.add((tensor, written), bytes, memory, alignment);
        }
        let workspace = usize::try_from(plan.workspace_bytes).unwrap_or(usize::MAX);
        buffers.add((Tensor::Workspace, false), workspace, memory, alignment);
        buffers
    }

    fn add(
        &mut self,
        (tensor, written): (Tensor, bool),
        bytes: usize,
        memory: Memory,
        alignment: usize,
    ) {
        if self.images.is_empty() || !memory.pooled {
            self.images.push(Vec::new());
        }
        let buffer = self.images.len() - 1;
        // All of a pool has one filler.
        let filler = match memory.pooled {
            true if memory.in_place => NUMBERS,
            false if written => NUMBERS,
            _ => NAN,
        };
        if let Some(image) = self.images.last_mut() {
            let start = (image.len() + 4).next_multiple_of(alignment);
            let words = bytes.next_multiple_of(4);
            // Something has to be there to bind.
            let end = start + words.max(4);
            let room = if memory.exact { 0 } else { 64 };
            image.resize(end + room, filler);
            self.slots.push(Slot {
                tensor,
                buffer,
                bytes: start..start + words,
                filled: start..start + bytes,
                written,
            });
        }
    }

    fn slot(&self, tensor: Tensor) -> Option<&Slot> {
        let of = |tensor| self.slots.iter().find(|slot| slot.tensor == tensor);
        match tensor {
            Tensor::DiffSrc => of(tensor).or_else(|| of(Tensor::DiffDst)),
            other => of(other),
        }
    }

    /// Puts a tensor's elements in its place.
    pub fn fill(&mut self, tensor: Tensor, elements: &[u8]) {
        let place = self
            .slot(tensor)
            .map(|slot| (slot.buffer, slot.filled.clone()));
        if let Some((buffer, range)) = place
            && let Some(image) = self.images.get_mut(buffer)
            && let Some(place) = image.get_mut(range)
            && place.len() == elements.len()
        {
            place.copy_from_slice(elements);
        }
    }

    /// A tensor's elements.
    pub fn elements(&self, tensor: Tensor) -> Option<&[u8]> {
        let slot = self.slot(tensor)?;
        self.images.get(slot.buffer)?.get(slot.filled.clone())
    }

    /// What is wrong with these contents, after work that began with those: something is not the same that is no output,
    /// or the rest of an output's last word is not 0.
    pub fn damage(&self, before: &Self) -> Option<String> {
        for slot in self.slots.iter().filter(|slot| slot.written) {
            let rest = slot.filled.end..slot.bytes.end;
            let image = self.images.get(slot.buffer);
            let rest = image.and_then(|image| image.get(rest)).unwrap_or_default();
            if rest.iter().any(|byte| *byte != 0) {
                let name = slot.tensor.name();
                return Some(format!("the rest of the last word of {name} is not 0"));
            }
        }
        for (buffer, (after, before)) in self.images.iter().zip(&before.images).enumerate() {
            let mut kept: Vec<Range<usize>> = Vec::new();
            let mut from = 0;
            let changed = |slot: &&Slot| slot.written || slot.tensor.is_scratch();
            let own = self.slots.iter().filter(|slot| slot.buffer == buffer);
            let mut own: Vec<_> = own.filter(changed).collect();
            own.sort_by_key(|slot| slot.bytes.start);
            for slot in own {
                kept.push(from..slot.bytes.start);
                from = slot.bytes.end;
            }
            kept.push(from..after.len());
            let differs = |range: &Range<usize>| {
                let (after, before) = (after.get(range.clone()), before.get(range.clone()));
                let (after, before) = (after.unwrap_or_default(), before.unwrap_or_default());
                let at = (after != before).then(|| {
                    after
                        .iter()
                        .zip(before)
                        .position(|(after, before)| after != before)
                });
                at.flatten().map(|at| range.start + at)
            };
            if let Some(byte) = kept.iter().find_map(differs) {
                return Some(self.describe(buffer, byte));
            }
        }
        None
    }

    /// Where a byte is.
    fn describe(&self, buffer: usize, byte: usize) -> String {
        let own = self.slots.iter().filter(|slot| slot.buffer == buffer);
        let before = own.rev().find(|slot| slot.bytes.start <= byte);
        match before {
            Some(slot) if byte < slot.bytes.end => {
                let at = byte - slot.bytes.start;
                format!("byte {at} of {} was changed", slot.tensor.name())
            }
            Some(slot) => {
                let behind = byte - slot.bytes.end;
                format!("byte {behind} behind {} was changed", slot.tensor.name())
            }
            None => "a byte before the first tensor was changed".to_owned(),
        }
    }

    /// The contents after what `record` records has run.
    pub async fn run(
        &self,
        gpu: &GpuContext,
        plan: &Plan,
        record: fn(&Bound, &mut wgpu::CommandEncoder) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let usage = wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_DST
            | wgpu::BufferUsages::COPY_SRC;
        let bytes = self.images.iter().map(|image| image.len() as u64);
        let watch = gpu.watch(bytes.fold(plan.workspace_bytes, u64::saturating_add));
        let mut buffers = gpu.held::<Vec<wgpu::Buffer>>();
        for image in &self.images {
            buffers.push(gpu.create_buffer_of("a case", image.len() as u64, usage)?);
        }
        let place = |tensor: Tensor| {
            let slot = self.slot(tensor)?;
            Some(BufferRange {
                buffer: buffers.get(slot.buffer)?,
                offset: slot.bytes.start as u64,
                size: Some(slot.bytes.len() as u64),
            })
        };
        let mut given: Vec<_> = plan
            .tensors
            .iter()
            .map(|required| (required.tensor, place(required.tensor)))
            .collect();
        given.push((Tensor::Workspace, place(Tensor::Workspace)));
        let bound = bound::bind(gpu, plan, &given)?;
        let whole = self.images.iter().zip(&*buffers);
        let transfers = Transfers {
            uploads: whole
                .clone()
                .map(|(image, buffer)| (Tensor::Src, buffer, &image[..]))
                .collect(),
            downloads: whole
                .map(|(image, buffer)| (Tensor::DiffSrc, buffer, image.len() as u64))
                .collect(),
        };
        let mut images = Vec::new();
        let mut recorded = Ok(());
        let record = |encoder: &mut wgpu::CommandEncoder| recorded = record(&bound, encoder);
        let take = |_, bytes: &[u8]| {
            let mut image = memory::room("a case's results", bytes.len())?;
            image.extend_from_slice(bytes);
            images.push(image);
            Ok(())
        };
        gpu.submit_and_read(watch, &transfers, record, take).await?;
        recorded?;
        let slots = self.slots.iter().map(|slot| Slot {
            bytes: slot.bytes.clone(),
            filled: slot.filled.clone(),
            ..*slot
        });
        Ok(Self {
            slots: slots.collect(),
            images,
        })
    }
}
