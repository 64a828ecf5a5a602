//! The tensors of a gradient.

use super::Requirement;

/// What a plan reads and writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tensors {
    pub src: Requirement,
    pub diff_dst: Requirement,
    pub mean: Requirement,
    pub variance: Requirement,
    pub gamma: Option<Requirement>,
    /// Whether gamma, if it is there, counts: by oneDNN Graph's rule it may not.
    pub gamma_counts: bool,
    pub diff_src: Requirement,
    pub diff_gamma: Option<Requirement>,
    pub diff_beta: Option<Requirement>,
    /// The sums between the two halves of a gradient that has halves.
    pub sums: Option<Requirement>,
}

impl Tensors {
    /// All that the caller binds, in binding order.
    pub fn all(&self) -> Vec<Requirement> {
        let mut all = vec![self.src, self.diff_dst, self.mean, self.variance];
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
