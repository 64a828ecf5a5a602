//! What an operator returns.

use crate::element::Element;
use crate::error::Error;
use crate::memory;
use crate::tensor::{Format, TensorUse};
use bytemuck::Pod;

/// An operator's outputs in host memory, each by its name in the operator's document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outputs {
    pub(super) tensors: Vec<Output>,
}

/// A tensor that an operator returns.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Its name in the document.
    pub name: &'static str,
    /// Its sizes; for a mask, those of the tensor that it is a mask of.
    pub shape: Vec<usize>,
    /// The kind of its elements.
    pub format: Format,
    /// Its elements, in words that are aligned for every type, and their number of bytes.
    words: Vec<u64>,
    bytes: usize,
}

impl Outputs {
    /// An output's elements in storage order.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for a name that is not among the outputs, and for another type than the tensor's.
    pub fn get<E: Element>(&self, name: &str) -> Result<&[E], Error> {
        self.elements(name, Format::Elements(E::DTYPE))
    }

    /// A mask's words in storage order.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for a name that is not among the outputs, and for one that is no mask.
    pub fn mask(&self, name: &str) -> Result<&[u32], Error> {
        self.elements(name, Format::Bits)
    }

    /// An output, if there is one of this name.
    pub fn output(&self, name: &str) -> Option<&Output> {
        self.tensors.iter().find(|output| output.name == name)
    }

    /// All outputs, in the document's order.
    pub fn iter(&self) -> impl Iterator<Item = &Output> {
        self.tensors.iter()
    }

    fn elements<E: Pod>(&self, name: &str, format: Format) -> Result<&[E], Error> {
        let Some(output) = self.output(name) else {
            let names: Vec<_> = self.tensors.iter().map(|output| output.name).collect();
            let expected = format!("one of {}", names.join(", "));
            return Err(Error::argument("name of an output", expected, name));
        };
        match bytemuck::try_cast_slice(output.bytes()) {
            Ok(elements) if output.format == format => Ok(elements),
            _ => {
                let expected = format!("{}, as {} has", output.format, output.name);
                Err(Error::argument("type of an output", expected, format))
            }
        }
    }
}

impl Output {
    /// Room for a result.
    pub(super) fn new(name: &'static str, used: &TensorUse) -> Result<Self, Error> {
        let bytes = usize::try_from(used.bytes()).unwrap_or(usize::MAX);
        Ok(Self {
            name,
            shape: used.shape.clone(),
            format: used.format,
            words: memory::filled(name, bytes.div_ceil(size_of::<u64>()), 0)?,
            bytes,
        })
    }

    /// Its elements in storage order, in the machine's byte order.
    pub fn bytes(&self) -> &[u8] {
        let bytes = bytemuck::cast_slice(&self.words);
        bytes.get(..self.bytes).unwrap_or(bytes)
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.words);
        let len = self.bytes.min(bytes.len());
        bytes.split_at_mut(len).0
    }
}
