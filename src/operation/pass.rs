//! The passes of a layer, and what comes with it.

use crate::{Activation, ParamGrads, RunningUpdate, Shards, Through};

/// What is computed of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pass {
    /// Its output, by statistics of src.
    Forward(Forward),
    /// Its output, by given statistics.
    Inference,
    /// Its gradients.
    Backward(Backward),
}

/// A forward pass by statistics of src: of batch norm, in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Forward {
    /// Whether the statistics are written, which the gradient takes. Layer and RMS norm alone can do without.
    pub keep_statistics: bool,
    /// How running statistics take in the batch's, if there are any; of batch norm alone.
    pub running: Option<RunningUpdate>,
    /// Of a batch that is spread over several devices, which part this is; of batch norm alone. It counts for the two halves:
    /// [`Bound::record`](crate::Bound::record) normalizes by this part's own statistics.
    pub shards: Shards,
}

impl Default for Forward {
    fn default() -> Self {
        Self {
            keep_statistics: true,
            running: None,
            shards: Shards::default(),
        }
    }
}

impl Forward {
    /// The same without statistics among the results.
    #[must_use]
    pub fn without_statistics(self) -> Self {
        Self {
            keep_statistics: false,
            ..self
        }
    }

    /// The same with running statistics that take in the batch's.
    #[must_use]
    pub fn with_running(self, update: RunningUpdate) -> Self {
        Self {
            running: Some(update),
            ..self
        }
    }

    /// The same of a part of the batch.
    #[must_use]
    pub fn with_shards(self, shards: Shards) -> Self {
        Self { shards, ..self }
    }
}

/// A gradient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Backward {
    /// What the statistics are to it: of batch norm they may be constants.
    pub through: Through,
    /// Which parameters' gradients are computed. Without gamma, batch, group and instance norm compute both; layer and RMS
    /// norm none.
    pub param_grads: ParamGrads,
}

impl Backward {
    /// The same with statistics that are constants, or not.
    #[must_use]
    pub fn with_through(self, through: Through) -> Self {
        Self { through, ..self }
    }

    /// The same with other parameters' gradients.
    #[must_use]
    pub fn with_param_grads(self, param_grads: ParamGrads) -> Self {
        Self {
            param_grads,
            ..self
        }
    }
}

impl From<Forward> for Pass {
    fn from(forward: Forward) -> Self {
        Self::Forward(forward)
    }
}

impl From<Backward> for Pass {
    fn from(backward: Backward) -> Self {
        Self::Backward(backward)
    }
}

impl Pass {
    /// Its name: `forward`, `inference` or `backward`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Forward(_) => "forward",
            Self::Inference => "inference",
            Self::Backward(_) => "backward",
        }
    }
}

/// Where a residual is added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Residual {
    /// Nowhere.
    #[default]
    None,
    /// To src, before layer or RMS norm, as in a transformer's block. The sum is written, too: it is the gradient's src, and
    /// diff_src is the gradient of both.
    Before,
    /// To the output of the others, before the activation. With an activation a forward pass writes a mask of what passed,
    /// and the gradient reads it and writes diff_residual; without one the residual's gradient is diff_dst.
    After,
}

/// What is computed with a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Epilogue {
    /// Where a residual is added.
    pub residual: Residual,
    /// What follows batch, group or instance norm.
    pub activation: Activation,
}

impl Epilogue {
    /// An activation, and a residual before it or before the layer.
    pub const fn new(residual: Residual, activation: Activation) -> Self {
        Self {
            residual,
            activation,
        }
    }

    /// Whether a mask says what passed the activation.
    pub(crate) fn is_masked(self) -> bool {
        self.residual == Residual::After && self.activation != Activation::None
    }

    /// Whether a gradient computes the layer's output once more, to know what the activation was applied to.
    pub(crate) fn is_recomputed(self) -> bool {
        self.residual == Residual::None && self.activation != Activation::None
    }
}
