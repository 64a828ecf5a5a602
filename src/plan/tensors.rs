//! The tensors of a gradient.

use super::Requirement;
use crate::DType;
use crate::kernels::Tensor;

/// What a plan reads and writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tensors {
    pub src: Requirement,
    pub diff_dst: Requirement,
    pub statistics: Statistics,
    pub gamma: Option<Requirement>,
    /// Whether gamma, if it is there, counts: by oneDNN Graph's rule it may not.
    pub gamma_counts: bool,
    pub diff_src: Requirement,
    pub diff_gamma: Option<Requirement>,
    pub diff_beta: Option<Requirement>,
    /// The sums between the two halves of a gradient that has halves.
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
    /// All that the caller binds, in binding order.
    pub fn all(&self) -> Vec<Requirement> {
        let mut all = vec![self.src, self.diff_dst];
        all.extend(self.statistics.all());
        all.extend(self.gamma);
        all.push(self.diff_src);
        all.extend(self.diff_gamma);
        all.extend(self.diff_beta);
        all.extend(self.sums);
        all
    }

    /// What a dispatch of the whole gradient binds, in order.
    pub fn bound_at_once(&self) -> Vec<Requirement> {
        let bound = Self {
            gamma: self.used_gamma().copied(),
            sums: None,
            ..*self
        };
        bound.all()
    }

    /// gamma, if it counts.
    pub fn used_gamma(&self) -> Option<&Requirement> {
        self.gamma.as_ref().filter(|_| self.gamma_counts)
    }

    /// Whether the parameter gradients are wanted.
    pub fn param_grads(&self) -> bool {
        self.diff_gamma.is_some()
    }
}
