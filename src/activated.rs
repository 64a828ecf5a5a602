//! What layers with an activation and a residual have in common: their optional operands, and what is refused.

use crate::{Activation, DType, Error};

/// What the plan of a gradient reads beside src, diff_dst, mean and variance. `true` stands for gamma alone: with an
/// activation name beta, too, if the layer has one, since without it beta is taken for 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackwardOperands {
    /// Whether gamma is given; without it gamma is 1.
    pub gamma: bool,
    /// Whether beta is given; without it beta is 0. It counts only where there is an activation and no mask: the layer's
    /// output is computed again then.
    pub beta: bool,
    /// Whether the mask is given that the forward pass wrote: exactly where a residual was added before the activation.
    /// What it leaves of diff_dst is written as `diff_residual`.
    pub mask: bool,
}

impl From<bool> for BackwardOperands {
    fn from(gamma: bool) -> Self {
        Self {
            gamma,
            ..Self::default()
        }
    }
}

impl BackwardOperands {
    /// An error where there is nothing that beta or a mask could count for.
    pub(crate) fn check(self, activation: Activation, data: DType) -> Result<(), Error> {
        activation.check(data, self.mask)?;
        let useless = |argument, expected: &str| {
            Err(Error::Argument {
                argument,
                expected: expected.to_owned(),
                got: "one".to_owned(),
            })
        };
        match (activation, self.beta, self.mask) {
            (Activation::None, _, true) => useless(
                "mask",
                "none without an activation: diff_dst is the residual's gradient",
            ),
            (Activation::None, true, _) => useless(
                "beta",
                "none without an activation: the gradient does not depend on it",
            ),
            (_, true, true) => useless(
                "beta",
                "none beside a mask, which says what passed the activation",
            ),
            _ => Ok(()),
        }
    }
}

/// What the plan of a forward pass by given statistics reads beside src, mean and variance. `(true, true)` stands for gamma
/// and beta.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InferenceOperands {
    /// Whether gamma is given; without it gamma is 1.
    pub gamma: bool,
    /// Whether beta is given; without it beta is 0.
    pub beta: bool,
    /// Whether a residual is added after the layer, before the activation.
    pub residual: bool,
}

impl From<(bool, bool)> for InferenceOperands {
    fn from((gamma, beta): (bool, bool)) -> Self {
        Self {
            gamma,
            beta,
            residual: false,
        }
    }
}
