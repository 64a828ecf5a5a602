//! A problem's tensors in buffers of a device.

use super::Subject;
use super::data::{Problem, Values};
use wgpu_norm::{Bound, BufferRange, BufferUse, Plan, Tensor};

/// The size of a tensor's buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Room {
    /// Up to the next word.
    Exact,
    /// Up to the next four elements.
    Padded,
}

/// One buffer per tensor, without the workspace.
#[derive(Clone, Debug)]
pub struct Buffers(pub Vec<(BufferUse, wgpu::Buffer)>);

impl Buffers {
    /// Uploads the inputs; fills the outputs and all padding with 1 bits, which are NaN as numbers.
    pub fn new(subject: &Subject, problem: &Problem, plan: &Plan, room: Room) -> Self {
        let uses = plan.buffers().into_iter();
        let uses = uses.filter(|used| used.tensor != Tensor::Workspace);
        let buffers = uses.map(|used| {
            let values = problem.inputs.iter();
            let mut values = values.filter(|values| values.used.tensor == used.tensor);
            let mut bytes = values.next().map_or(vec![], |values| values.bytes.clone());
            let size = match room {
                Room::Exact => used.bytes,
                Room::Padded => used.padded_bytes,
            };
            bytes.resize(size.max(4) as usize, 0xff);
            (used, subject.buffer(bytes.len() as u64, &bytes))
        });
        Self(buffers.collect())
    }

    /// The buffer of a tensor.
    #[track_caller]
    pub fn of(&self, tensor: Tensor) -> &wgpu::Buffer {
        let found = self.0.iter().find(|(used, _)| used.tensor == tensor);
        let found = found.unwrap_or_else(|| panic!("no {}", tensor.name()));
        &found.1
    }

    pub fn ranges(&self) -> Vec<(Tensor, BufferRange<'_>)> {
        let all = self.0.iter();
        all.map(|(used, buffer)| (used.tensor, buffer.into()))
            .collect()
    }

    /// The results, as stored in the buffers.
    pub fn results(&self, subject: &Subject, problem: &Problem) -> Vec<Values> {
        let mut results = problem.results();
        for result in &mut results {
            let bytes = subject.read(self.of(result.used.tensor));
            let len = result.bytes.len();
            result.bytes.copy_from_slice(&bytes[..len]);
        }
        results
    }
}

/// The ranges, with another one for a tensor, or without it.
pub fn with<'a>(
    ranges: &[(Tensor, BufferRange<'a>)],
    tensor: Tensor,
    range: Option<BufferRange<'a>>,
) -> Vec<(Tensor, BufferRange<'a>)> {
    let others = ranges.iter().filter(|(name, _)| *name != tensor).copied();
    others.chain(range.map(|range| (tensor, range))).collect()
}

/// A range of a buffer.
pub fn range(buffer: &wgpu::Buffer, offset: u64, size: u64) -> BufferRange<'_> {
    BufferRange {
        buffer,
        offset,
        size: Some(size),
    }
}

/// Records into an encoder of its own and submits it.
pub fn submit(subject: &Subject, bound: &Bound) {
    let descriptor = wgpu::CommandEncoderDescriptor::default();
    let mut encoder = subject.gpu.device().create_command_encoder(&descriptor);
    bound.record(&mut encoder);
    subject.gpu.queue().submit([encoder.finish()]);
}
