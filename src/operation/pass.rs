//! The passes of a layer, and the residual and activation that are computed with it.

use crate::options::{Activation, RunningUpdate, Shards, Through};

/// A pass of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pass {
    /// Its output, with the statistics of src.
    Forward(Forward),
    /// Its output, with given statistics.
    Inference,
    /// Its gradients.
    Backward(Backward),
}

/// A forward pass with the statistics of src; for batch norm, training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Forward {
    /// Whether the statistics, which the gradient needs, are written. Only layer and RMS norm can leave them out.
    pub keep_statistics: bool,
    /// How the batch updates running statistics, if there are any; only for batch norm.
    pub running: Option<RunningUpdate>,
    /// The part of a batch that is spread over several devices; only for batch norm. It matters for the two halves:
    /// [`Bound::record`](crate::Bound::record) normalizes with this part's own statistics.
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
    /// This pass without statistics among the results.
    #[must_use]
    pub fn without_statistics(self) -> Self {
        Self {
            keep_statistics: false,
            ..self
        }
    }

    /// This pass with running statistics that the batch updates.
    #[must_use]
    pub fn with_running(self, update: RunningUpdate) -> Self {
        Self {
            running: Some(update),
            ..self
        }
    }

    /// This pass for a part of the batch.
    #[must_use]
    pub fn with_shards(self, shards: Shards) -> Self {
        Self { shards, ..self }
    }
}

/// A gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Backward {
    /// Whether the gradient flows through the statistics. For batch norm they may be constants.
    pub through: Through,
    /// Whether the parameters' gradients are computed: those of gamma and beta if the layer has one of them, where a
    /// missing gamma is 1, and the gate's if it has a gate. Batch, group and instance norm compute those of gamma and
    /// beta even if they have neither.
    pub param_grads: bool,
}

impl Default for Backward {
    /// Through the batch's statistics, with the parameters' gradients.
    fn default() -> Self {
        Self::new()
    }
}

impl Backward {
    pub(crate) const fn new() -> Self {
        Self {
            through: Through::Batch,
            param_grads: true,
        }
    }

    /// This gradient with statistics that are constants, or not.
    #[must_use]
    pub fn with_through(self, through: Through) -> Self {
        Self { through, ..self }
    }

    /// This gradient with or without those of the parameters, as for a frozen layer.
    #[must_use]
    pub fn with_param_grads(self, param_grads: bool) -> Self {
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
    /// To src, before layer or RMS norm, as in a transformer's block. The sum is written too: it is the gradient's src,
    /// and its diff_src is the gradient of both.
    Before,
    /// To the output of the other layers, before the activation. With an activation, the forward pass writes a mask of
    /// the elements that passed; the gradient reads the mask and writes diff_residual. Without one, the residual's
    /// gradient is diff_dst.
    After,
}

/// The residual and the activation that are computed with a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Epilogue {
    /// Where a residual is added.
    pub residual: Residual,
    /// The activation that follows the layer.
    pub activation: Activation,
}

impl Epilogue {
    /// A residual before or after the layer, and an activation after both.
    pub const fn new(residual: Residual, activation: Activation) -> Self {
        Self {
            residual,
            activation,
        }
    }

    /// Whether a mask records which elements passed the activation.
    pub(crate) fn is_masked(self) -> bool {
        self.residual == Residual::After && self.activation != Activation::None
    }

    /// Whether a gradient recomputes the layer's output, which is the argument of the activation.
    pub(crate) fn is_recomputed(self) -> bool {
        self.residual == Residual::None && self.activation != Activation::None
    }
}
