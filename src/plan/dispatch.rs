//! Dispatches, and what they bind.

use crate::element::{DType, DTypes};
use crate::f16_encoder::F16Encoder;
use crate::kernels::{Access, Body, Constant, Epilogue, Kernel, Uniforms, Variant};
use crate::tensor::Tensor;
use std::ops::Range;

/// The recordings of a plan in which a dispatch takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Phases(u8);

impl Phases {
    /// The whole operator at once.
    pub const WHOLE: Self = Self(1);
    /// Up to the sums.
    pub const REDUCE: Self = Self(2);
    /// From the sums on.
    pub const APPLY: Self = Self(4);

    /// All of them.
    pub const ALL: Self = Self(7);

    /// The phases that are in both, if there are any.
    pub fn and(self, other: Self) -> Option<Self> {
        let both = self.0 & other.0;
        (both != 0).then_some(Self(both))
    }

    /// The phases of both.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether both have a phase in common.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// The range of a tensor that a dispatch binds, in bytes from the tensor's start.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Binding {
    pub tensor: Tensor,
    pub bytes: Range<u64>,
    /// The bytes that it writes, if it leaves all others alone; else the ends of `bytes` may be written by other
    /// dispatches, too.
    pub owned: Option<Range<u64>>,
}

impl Binding {
    /// Some bytes of a tensor.
    pub fn new(tensor: Tensor, bytes: Range<u64>) -> Self {
        Self {
            tensor,
            bytes,
            owned: None,
        }
    }

    /// All of a tensor.
    pub fn whole(tensor: &Requirement) -> Self {
        let elements = match tensor.tensor {
            Tensor::Mask => tensor.elements,
            _ => tensor.elements.next_multiple_of(4),
        };
        Self::elements(tensor, &(0..elements))
    }

    /// Some elements of a tensor.
    pub fn elements(tensor: &Requirement, elements: &Range<u64>) -> Self {
        let size = tensor.dtype.size();
        Self::new(tensor.tensor, elements.start * size..elements.end * size)
    }

    /// The same binding, some bytes further on.
    pub fn shift(&mut self, by: u64) {
        for bytes in std::iter::once(&mut self.bytes).chain(&mut self.owned) {
            *bytes = bytes.start + by..bytes.end + by;
        }
    }

    /// The bytes that it binds of a buffer that has room for `room` of the tensor's bytes.
    pub fn within(&self, room: u64) -> Range<u64> {
        self.bytes.start..self.bytes.end.min(room / 4 * 4)
    }

    /// The workspace, whose size is known when the plan is complete.
    pub fn workspace() -> Self {
        Self::new(Tensor::Workspace, 0..0)
    }
}

/// One dispatch of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dispatch {
    pub kernel: Kernel,
    pub body: Body,
    pub epilogue: Epilogue,
    pub workgroup_size: u32,
    /// Constants of the kernel's text.
    pub constants: Vec<(&'static str, Constant)>,
    pub bindings: Vec<Binding>,
    pub uniforms: Uniforms,
    /// Workgroups along x and y, together at least one for each tile.
    pub workgroups: [u32; 2],
    /// The most loop iterations that an invocation makes.
    pub iterations: u64,
    /// The most numbers that one accumulator adds in a row.
    pub sequential_adds: u64,
}

impl Dispatch {
    /// Binds each tensor so many bytes further on.
    pub fn shift(&mut self, by: impl Fn(Tensor) -> u64) {
        for binding in &mut self.bindings {
            binding.shift(by(binding.tensor));
        }
    }

    /// The kernel's variant for some of its bindings, each bound to a buffer of its own with room for whole vec4s.
    pub fn variant(&self, types: DTypes, access: Access, bound: &[&Binding]) -> Variant {
        Variant {
            kernel: self.kernel,
            body: self.body,
            epilogue: self.epilogue,
            data: types.data,
            params: types.params,
            statistics: types.statistics,
            bound: bound.iter().map(|binding| binding.tensor).collect(),
            in_place: false,
            pooled: false,
            access,
            f16_encoder: F16Encoder::Integers,
            exact: Vec::new(),
            workgroup_size: self.workgroup_size,
            constants: self.constants.clone(),
        }
    }
}

/// A plan's requirement for a tensor that the caller binds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Requirement {
    pub tensor: Tensor,
    pub dtype: DType,
    pub elements: u64,
}

impl Requirement {
    pub fn new(tensor: Tensor, dtype: DType, elements: u64) -> Self {
        Self {
            tensor,
            dtype,
            elements,
        }
    }

    /// The size in bytes, in whole words of storage.
    pub fn bytes(&self) -> u64 {
        (self.elements * self.dtype.size()).next_multiple_of(4)
    }

    /// The size in bytes, with the last vec4 made whole.
    pub fn padded_bytes(&self) -> u64 {
        self.elements.next_multiple_of(4) * self.dtype.size()
    }
}
