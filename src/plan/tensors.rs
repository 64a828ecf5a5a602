//! The tensors of a plan.

use super::dispatch::{Binding, Requirement};
use super::windows::Window;
use crate::element::DType;
use crate::tensor::Tensor;
use std::borrow::Cow;
use std::ops::Range;

/// The requirement for a mask of `elements` elements: words of 32 bits, as f32 has them.
pub(super) fn mask(elements: u64) -> Requirement {
    Requirement::new(Tensor::Mask, DType::F32, elements.div_ceil(32))
}

/// The tensors that a plan reads and writes.
#[derive(Clone, Debug)]
pub(crate) struct Tensors {
    pub src: Requirement,
    /// The tensors that are read element by element, src among them.
    pub inputs: Vec<Requirement>,
    /// Whether a residual among them is added after the layer, so that no sum depends on it.
    pub residual_after: bool,
    /// The mask of elements that pass the activation: a gradient reads it, a forward pass writes it.
    pub mask: Option<Requirement>,
    /// The statistics that are read.
    pub statistics: Vec<Requirement>,
    /// The parameters that elements depend on, all of one length.
    pub params: Vec<Requirement>,
    /// Those that only other parameters' gradients depend on.
    pub params_of_results: Vec<Requirement>,
    /// Running mean and variance.
    pub running: Vec<Requirement>,
    /// The tensors that are written element by element.
    pub outputs: Vec<Requirement>,
    /// The results of each channel, row or column: parameters' gradients, or statistics.
    pub results: Vec<Requirement>,
    /// The sums between the two halves of an operator that has halves.
    pub sums: Option<Requirement>,
}

impl Tensors {
    /// All tensors that the caller binds.
    pub fn all(&self) -> impl Iterator<Item = &Requirement> {
        let read = self.bound_by_elements().chain(&self.params_of_results);
        read.chain(self.written()).chain(&self.sums)
    }

    /// The tensors that a dispatch of the whole operator binds.
    pub fn bound_at_once(&self) -> impl Iterator<Item = &Requirement> {
        self.bound_by_elements().chain(self.written())
    }

    /// The tensors that elements depend on.
    fn bound_by_elements(&self) -> impl Iterator<Item = &Requirement> {
        let read = self.inputs.iter().chain(&self.mask);
        read.chain(&self.statistics).chain(&self.params)
    }

    /// The tensors that are written, or updated.
    fn written(&self) -> impl Iterator<Item = &Requirement> {
        let results = self.outputs.iter().chain(&self.results);
        self.running.iter().chain(results)
    }

    /// The same tensors with a range of the statistics.
    pub fn of_statistics(&self, range: &Range<u64>) -> Cow<'_, Self> {
        let elements = range.end - range.start;
        let is_cut = |one: &Requirement| one.tensor.is_statistic() && one.elements != elements;
        let mut own = Cow::Borrowed(self);
        if self.statistics.iter().chain(&self.results).any(is_cut) {
            let own = own.to_mut();
            for tensor in own.statistics.iter_mut().chain(&mut own.results) {
                if tensor.tensor.is_statistic() {
                    tensor.elements = elements;
                }
            }
        }
        own
    }

    /// The bindings that a reduction reads element by element in a window.
    pub fn reduced(&self, window: &Window) -> Vec<Binding> {
        window.bind_all(self.reads_to_reduce()).collect()
    }

    /// The tensors that a reduction reads element by element.
    pub fn reads_to_reduce(&self) -> impl Iterator<Item = &Requirement> {
        let inputs = self.inputs.iter();
        let read = inputs.filter(|one| one.tensor != Tensor::Residual || !self.residual_after);
        // A forward pass writes its mask later.
        let reads_mask = self.inputs.iter().any(|one| one.tensor == Tensor::DiffDst);
        let mask = self.mask.iter().filter(move |_| reads_mask);
        read.chain(mask)
    }

    /// The statistics that a forward pass writes.
    pub fn written_statistics(&self) -> impl Iterator<Item = &Requirement> {
        let results = self.results.iter();
        results.filter(|result| result.tensor.is_statistic())
    }

    /// Whether the parameter gradients are wanted.
    pub fn param_grads(&self) -> bool {
        self.results.iter().any(|result| result.tensor.is_param())
    }
}
