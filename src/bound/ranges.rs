//! A caller's buffers, checked against a plan's requirements.

use crate::context::GpuContext;
use crate::error::Error;
use crate::plan::Plan;
use crate::tensor::Tensor;

/// A caller's buffer, or a part of one.
///
/// The offset must be a multiple of the device's `min_storage_buffer_offset_alignment`, and of 32. If the buffer has
/// room, let padding up to a multiple of four elements follow the range, see
/// [`BufferUse::padded_bytes`](crate::BufferUse::padded_bytes): the padding keeps its bytes, and kernels can load four
/// elements at a time to the end.
///
/// A whole buffer or a slice of one can be converted: `(&buffer).into()`, `buffer.slice(256..1024).into()`.
#[derive(Clone, Copy, Debug)]
pub struct BufferRange<'a> {
    /// The buffer, which needs the usage STORAGE.
    pub buffer: &'a wgpu::Buffer,
    /// Offset of the tensor, in bytes.
    pub offset: u64,
    /// Bytes available for the tensor; by default all from the offset on. Kernels may read the bytes that follow in the
    /// buffer, up to the next multiple of four elements, but never write them.
    pub size: Option<u64>,
}

impl<'a> From<&'a wgpu::Buffer> for BufferRange<'a> {
    fn from(buffer: &'a wgpu::Buffer) -> Self {
        Self {
            buffer,
            offset: 0,
            size: None,
        }
    }
}

impl<'a> From<wgpu::BufferSlice<'a>> for BufferRange<'a> {
    fn from(slice: wgpu::BufferSlice<'a>) -> Self {
        Self {
            buffer: slice.buffer(),
            offset: slice.offset(),
            size: Some(slice.size()),
        }
    }
}

/// The range of a buffer that holds a tensor, and how far kernels may reach in it.
pub(super) struct BoundRange<'a> {
    pub tensor: Tensor,
    pub buffer: &'a wgpu::Buffer,
    offset: u64,
    /// The tensor's byte at the offset: 0 unless the buffer holds a piece of the tensor.
    origin: u64,
    /// The tensor's own bytes.
    bytes: u64,
    /// Bytes from the tensor's start to the end of the buffer.
    pub room: u64,
}

impl<'a> BoundRange<'a> {
    /// A piece of a tensor, from the given byte on, at the start of a buffer of this crate.
    pub fn piece(tensor: Tensor, buffer: &'a wgpu::Buffer, origin: u64) -> Self {
        let bytes = buffer.size();
        Self {
            tensor,
            buffer,
            offset: 0,
            origin,
            bytes,
            room: origin.saturating_add(bytes),
        }
    }

    /// Where a byte of the tensor lies in the buffer.
    pub fn at(&self, byte: u64) -> u64 {
        self.offset + byte.saturating_sub(self.origin)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.buffer == other.buffer
            && self.bytes > 0
            && other.bytes > 0
            && self.offset < other.offset + other.bytes
            && other.offset < self.offset + self.bytes
    }

    fn same(&self, other: &Self) -> bool {
        self.buffer == other.buffer && self.offset == other.offset && self.bytes == other.bytes
    }
}

/// The tensors, each with the buffer given for it.
pub(crate) type Given<'a> = [(Tensor, BufferRange<'a>)];

/// The range given for a tensor.
pub(super) fn find<'a>(given: &Given<'a>, tensor: Tensor) -> Option<BufferRange<'a>> {
    let found = given.iter().find(|(known, _)| *known == tensor);
    found.map(|(_, range)| *range)
}

/// All of a plan's tensors.
pub(super) struct BoundRanges<'a>(pub Vec<BoundRange<'a>>);

impl<'a> BoundRanges<'a> {
    /// Checks every buffer against the plan's requirements, and that buffers do not overlap.
    pub fn new(
        gpu: &GpuContext,
        plan: &Plan,
        given: &Given<'a>,
        (own_workspace, workspace_bytes): (Option<&'a wgpu::Buffer>, u64),
    ) -> Result<Self, Error> {
        for (tensor, _) in given {
            if *tensor != Tensor::Workspace && plan.requirement(*tensor).is_none() {
                return Err(Error::BufferPresence {
                    tensor: tensor.name(),
                    expected: false,
                });
            }
        }
        let alignment = gpu.profile().alignment;
        let workspace = find(given, Tensor::Workspace).or(own_workspace.map(BufferRange::from));
        let mut ranges = Vec::new();
        if let Some(range) = workspace {
            let bytes = workspace_bytes;
            ranges.push(check(Tensor::Workspace, range, bytes, alignment)?);
        }
        for requirement in &plan.tensors {
            let tensor = requirement.tensor;
            match find(given, tensor) {
                Some(range) => ranges.push(check(tensor, range, requirement.bytes(), alignment)?),
                None if tensor == Tensor::Sums => {} // for the halves alone
                None => {
                    return Err(Error::no_buffer(tensor));
                }
            }
        }
        check_overlaps(plan, &ranges)?;
        Ok(Self(ranges))
    }

    /// The range of a tensor that a dispatch binds.
    pub fn get(&self, tensor: Tensor) -> Result<&BoundRange<'a>, Error> {
        self.0
            .iter()
            .find(|range| range.tensor == tensor)
            .ok_or(Error::no_buffer(tensor))
    }

    /// Whether diff_src is written over diff_dst.
    pub fn in_place(&self) -> bool {
        match (self.get(Tensor::DiffSrc), self.get(Tensor::DiffDst)) {
            (Ok(diff_src), Ok(diff_dst)) => diff_src.same(diff_dst),
            _ => false,
        }
    }
}

fn check<'a>(
    tensor: Tensor,
    range: BufferRange<'a>,
    expected: u64,
    alignment: u64,
) -> Result<BoundRange<'a>, Error> {
    let name = tensor.name();
    let usage = wgpu::BufferUsages::STORAGE;
    if !range.buffer.usage().contains(usage) {
        return Err(Error::BufferUsage {
            tensor: name,
            expected: usage,
            got: range.buffer.usage(),
        });
    }
    if !range.offset.is_multiple_of(alignment) {
        return Err(Error::BufferAlignment {
            tensor: name,
            offset: range.offset,
            alignment,
        });
    }
    let room = range.buffer.size().saturating_sub(range.offset);
    let got = range.size.unwrap_or(room);
    if got > room || range.offset > range.buffer.size() {
        return Err(Error::BufferRange {
            tensor: name,
            offset: range.offset,
            size: got,
            buffer: range.buffer.size(),
        });
    }
    if got < expected {
        return Err(Error::BufferSize {
            tensor: name,
            expected,
            got,
        });
    }
    Ok(BoundRange {
        tensor,
        buffer: range.buffer,
        offset: range.offset,
        origin: 0,
        bytes: expected,
        room,
    })
}

/// An error if a range that is written overlaps another. diff_src may overlap diff_dst, but only exactly.
fn check_overlaps(plan: &Plan, ranges: &[BoundRange<'_>]) -> Result<(), Error> {
    for (i, first) in ranges.iter().enumerate() {
        for second in ranges.iter().skip(i + 1) {
            let written = plan.writes(first.tensor) || plan.writes(second.tensor);
            let pair = [first.tensor, second.tensor];
            let over_diff_dst = pair == [Tensor::DiffDst, Tensor::DiffSrc] && first.same(second);
            if written && first.overlaps(second) && !over_diff_dst {
                return Err(Error::Overlap {
                    first: first.tensor.name(),
                    second: second.tensor.name(),
                });
            }
        }
    }
    Ok(())
}
