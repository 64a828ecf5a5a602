//! What a caller gives to an operator.

use crate::element::{DType, Element};
use crate::tensor::Format;

/// An operator's inputs, each by its name in the operator's document, with its shape.
///
/// ```
/// use wgpu_norm::DType;
/// use wgpu_norm::operators::Inputs;
///
/// // In host memory, to be computed with.
/// let inputs = Inputs::new()
///     .with("X", &[2, 3], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0])
///     .with("scale", &[3], &[1.0_f32; 3]);
/// // In buffers of the caller's, to plan for.
/// let described = Inputs::new()
///     .described("X", &[2, 3], DType::F32)
///     .described("scale", &[3], DType::F32);
/// # drop((inputs, described));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Inputs<'a> {
    pub(super) tensors: Vec<Input<'a>>,
}

#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub name: &'a str,
    pub shape: &'a [usize],
    pub format: Format,
    /// Its elements, unless it is described alone.
    pub bytes: Option<&'a [u8]>,
}

impl<'a> Inputs<'a> {
    /// No inputs.
    pub const fn new() -> Self {
        Self {
            tensors: Vec::new(),
        }
    }

    /// Adds a tensor in host memory, its elements in storage order.
    #[must_use]
    pub fn with<E: Element>(self, name: &'a str, shape: &'a [usize], elements: &'a [E]) -> Self {
        let format = Format::Elements(E::DTYPE);
        self.add(name, shape, format, Some(bytemuck::cast_slice(elements)))
    }

    /// Adds a tensor in host memory whose type is known at run time, as bytes in the machine's order.
    #[must_use]
    pub fn with_bytes(
        self,
        name: &'a str,
        shape: &'a [usize],
        dtype: DType,
        bytes: &'a [u8],
    ) -> Self {
        self.add(name, shape, Format::Elements(dtype), Some(bytes))
    }

    /// Adds an activation mask in host memory. The shape is that of the tensor that it is a mask of.
    #[must_use]
    pub fn with_mask(self, name: &'a str, shape: &'a [usize], words: &'a [u32]) -> Self {
        self.add(name, shape, Format::Bits, Some(bytemuck::cast_slice(words)))
    }

    /// Adds a tensor without elements, which suffices for an operation: one in a buffer of the caller's. For a mask the
    /// format is [`Format::Bits`].
    #[must_use]
    pub fn described(self, name: &'a str, shape: &'a [usize], format: impl Into<Format>) -> Self {
        self.add(name, shape, format.into(), None)
    }

    fn add(
        mut self,
        name: &'a str,
        shape: &'a [usize],
        format: Format,
        bytes: Option<&'a [u8]>,
    ) -> Self {
        self.tensors.push(Input {
            name,
            shape,
            format,
            bytes,
        });
        self
    }
}
