//! The tensors of a case in buffers, with space around them that must not change.

use crate::case::Memory;
use std::ops::Range;
use wgpu_norm::{Bound, BufferRange, Error, GpuContext, Plan, Tensor, TensorUse, wgpu};

/// Fills the space around inputs. As a number it is NaN, so that reading it shows.
const NAN: u8 = 0xff;
/// Fills the space around outputs. As a number it is small, so that calculating with it changes it.
const NUMBERS: u8 = 0x3e;

/// The place of a tensor.
struct Slot {
    tensor: Tensor,
    buffer: usize,
    /// The bytes of its words.
    bytes: Range<usize>,
    /// The bytes of its elements.
    filled: Range<usize>,
    /// Whether it is a result.
    written: bool,
}

/// The buffers' contents.
pub(crate) struct Buffers {
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
        // This cannot fail: the operation has been planned.
        let tensors = plan.operation().tensors().unwrap_or_default();
        for used in plan.buffers() {
            let tensor = used.tensor;
            if memory.in_place && tensor == Tensor::DiffSrc {
                continue;
            }
            let own = tensors.iter().find(|own| own.tensor == tensor);
            let bytes = own.map_or(used.bytes, TensorUse::bytes);
            let result = used.access.writes() && tensor != Tensor::Workspace;
            let written = result || (memory.in_place && tensor == Tensor::DiffDst);
            buffers.add((tensor, written), bytes, memory, alignment);
        }
        if let Some(sums) = plan.sums().filter(|_| with_sums) {
            buffers.add((Tensor::Sums, false), sums.bytes(), memory, alignment);
        }
        buffers
    }

    fn add(
        &mut self,
        (tensor, written): (Tensor, bool),
        bytes: u64,
        memory: Memory,
        alignment: usize,
    ) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if self.images.is_empty() || !memory.pooled {
            self.images.push(Vec::new());
        }
        let buffer = self.images.len() - 1;
        // A pool has one filler for everything.
        let filler = match memory.pooled {
            true if memory.in_place => NUMBERS,
            false if written => NUMBERS,
            _ => NAN,
        };
        if let Some(image) = self.images.last_mut() {
            let start = match memory.offset {
                Some(alignments) if image.is_empty() => usize::from(alignments) * alignment,
                _ => (image.len() + 4).next_multiple_of(alignment),
            };
            let words = bytes.next_multiple_of(4);
            // A binding cannot be empty.
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

    /// Writes a tensor's elements to their place.
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

    /// The fault in these contents, after work that began with those of `before`: something other than an output has
    /// changed, or the rest of an output's last word is not 0.
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
            let changed = |slot: &&Slot| slot.written || is_scratch(slot.tensor);
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

    /// Describes the position of a byte.
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
                format!("byte {behind} after {} was changed", slot.tensor.name())
            }
            None => "a byte before the first tensor was changed".to_owned(),
        }
    }

    /// The contents after running what `record` records.
    pub async fn run(
        &self,
        gpu: &GpuContext,
        plan: &Plan,
        record: fn(&Bound, &mut wgpu::CommandEncoder) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let mut buffers = Vec::new();
        for image in &self.images {
            buffers.push(gpu.upload("a case", image)?);
        }
        let mut given = Vec::new();
        let uses = plan.buffers().into_iter().map(|used| used.tensor);
        for tensor in uses.chain([Tensor::Sums]) {
            if let Some(slot) = self.slot(tensor)
                && let Some(buffer) = buffers.get(slot.buffer)
            {
                let range = BufferRange {
                    buffer,
                    offset: slot.bytes.start as u64,
                    size: Some(slot.bytes.len() as u64),
                };
                given.push((tensor, range));
            }
        }
        let bound = plan.bind(gpu, &given)?;
        let mut recorded = Ok(());
        let record = |encoder: &mut wgpu::CommandEncoder| recorded = record(&bound, encoder);
        let images = gpu.submit_and_read(record, &buffers).await?;
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

/// Whether the tensor is working memory.
fn is_scratch(tensor: Tensor) -> bool {
    matches!(tensor, Tensor::Sums | Tensor::Workspace)
}
