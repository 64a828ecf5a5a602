//! The tensors of a plan.

use super::axes::Samples;
use super::windows::Window;
use super::workspace::Region;
use super::{Binding, Requirement};
use crate::{DType, Tensor};

/// Of a mask of so many elements: words of 32 bits, as f32 has them.
pub(super) fn mask(elements: u64) -> Requirement {
    Requirement {
        tensor: Tensor::Mask,
        dtype: DType::F32,
        elements: elements.div_ceil(32),
    }
}

/// What a plan reads and writes.
#[derive(Clone, Debug)]
pub(crate) struct Tensors {
    pub src: Requirement,
    /// What is read element by element, src among it.
    pub inputs: Vec<Requirement>,
    /// Whether a residual among them is added after the layer, so that no sum depends on it.
    pub residual_after: bool,
    /// What passes the activation: a gradient reads it, a forward pass writes it.
    pub mask: Option<Requirement>,
    pub statistics: Statistics,
    pub gamma: Option<Requirement>,
    /// Whether gamma, if it is there, counts: by oneDNN Graph's rule it may not.
    pub gamma_counts: bool,
    pub beta: Option<Requirement>,
    /// Running mean and variance.
    pub running: Vec<Requirement>,
    /// What is written element by element.
    pub outputs: Vec<Requirement>,
    /// What is written of each channel, row or column: parameters' gradients, or statistics.
    pub results: Vec<Requirement>,
    /// The sums between the two halves of an operator that has halves.
    pub sums: Option<Requirement>,
}

/// What a plan reads of each group of elements that are normalized together: tensors of one length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statistics {
    pub tensors: &'static [Tensor],
    pub dtype: DType,
    /// How many groups there are.
    pub groups: u64,
}

impl Statistics {
    pub fn all(&self) -> impl Iterator<Item = Requirement> {
        let Self {
            tensors,
            dtype,
            groups: elements,
        } = *self;
        tensors.iter().map(move |&tensor| Requirement {
            tensor,
            dtype,
            elements,
        })
    }
}

impl Tensors {
    /// All that the caller binds.
    pub fn all(&self) -> Vec<Requirement> {
        let mut all = Vec::with_capacity(16);
        all.extend(&self.inputs);
        all.extend(self.mask);
        all.extend(self.statistics.all());
        all.extend(self.gamma);
        all.extend(self.beta);
        all.extend(&self.running);
        all.extend(&self.outputs);
        all.extend(&self.results);
        all.extend(self.sums);
        all
    }

    /// What a dispatch of the whole operator binds.
    pub fn bound_at_once(&self) -> Vec<Requirement> {
        let mut all = self.all();
        all.retain(|one| match one.tensor {
            Tensor::Gamma => self.gamma_counts,
            tensor => tensor != Tensor::Sums,
        });
        all
    }

    /// What a reduction reads of a window, element by element.
    pub fn reduced(&self, window: &Window) -> Vec<Binding> {
        let inputs = self.inputs.iter();
        let read = inputs.filter(|one| one.tensor != Tensor::Residual || !self.residual_after);
        let mut bindings: Vec<_> = read.map(|tensor| window.bind(tensor)).collect();
        // A forward pass writes its mask later.
        if self.inputs.iter().any(|one| one.tensor == Tensor::DiffDst) {
            bindings.extend(self.mask.as_ref().map(|mask| window.bind_mask(mask)));
        }
        bindings
    }

    /// gamma, if it counts.
    pub fn used_gamma(&self) -> Option<&Requirement> {
        self.gamma.as_ref().filter(|_| self.gamma_counts)
    }

    /// gamma, if it counts, and beta.
    pub fn params(&self) -> impl Iterator<Item = &Requirement> {
        self.used_gamma().into_iter().chain(&self.beta)
    }

    /// What is written of each channel, row or column.
    pub fn result_bindings(&self) -> impl Iterator<Item = Binding> {
        self.results.iter().map(Binding::whole)
    }

    /// Whether the parameter gradients are wanted.
    pub fn param_grads(&self) -> bool {
        self.results
            .iter()
            .any(|output| output.tensor == Tensor::DiffGamma)
    }
}

/// What the elementwise pass over channels depends on beside the tensors.
#[derive(Clone, Copy)]
pub(crate) struct Applied {
    /// Whether src counts: it does not where the gradient takes statistics as constants.
    pub src: bool,
    /// Records of channels.
    pub stats: Region,
    /// Records that complete them.
    pub means: Option<Region>,
    /// How elements find their channels, where these are the channels of each sample and alternate.
    pub samples: Option<Samples>,
}

impl Applied {
    /// What its kernels bind of a window.
    pub fn bindings(&self, tensors: &Tensors, window: &Window) -> Vec<Binding> {
        let inputs = tensors.inputs.iter();
        let read = inputs.filter(|one| one.tensor != Tensor::Src || self.src);
        let mut bindings: Vec<_> = read.map(|tensor| window.bind(tensor)).collect();
        bindings.extend(tensors.mask.as_ref().map(|mask| window.bind_mask(mask)));
        bindings.push(Binding::workspace());
        bindings.extend(tensors.outputs.iter().map(|tensor| window.bind(tensor)));
        bindings
    }
}
