//! The arguments and results of layers in host memory: the same types for all layers.

use crate::call::Results;
use crate::{Element, Error, RunningUpdate, Tensor};

/// The parameters that a layer is given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Params<'a, P> {
    pub gamma: Option<&'a [P]>,
    pub beta: Option<&'a [P]>,
    pub gate: Option<&'a [P]>,
    /// Whether a gate of another type was set before gamma and beta.
    misplaced_gate: bool,
}

impl<'a, P> Params<'a, P> {
    const fn new(gamma: Option<&'a [P]>, beta: Option<&'a [P]>) -> Self {
        Self {
            gamma,
            beta,
            gate: None,
            misplaced_gate: false,
        }
    }

    /// gamma and beta of another type.
    const fn replaced<Q>(&self, gamma: Option<&'a [Q]>, beta: Option<&'a [Q]>) -> Params<'a, Q> {
        Params {
            misplaced_gate: self.gate.is_some(),
            ..Params::new(gamma, beta)
        }
    }

    /// An error if a gate was set that has no effect.
    pub fn check(&self) -> Result<(), Error> {
        match self.misplaced_gate {
            true => Err(Error::argument(
                Tensor::Gate.name(),
                "one set after params, whose element type it has",
                "one set before",
            )),
            false => Ok(()),
        }
    }
}

/// The tensors of a forward pass.
///
/// ```
/// use wgpu_norm::ForwardArgs;
///
/// let (src, residual, gamma) = (vec![1.0_f32; 6], vec![0.5; 6], vec![2.0; 3]);
/// let args = ForwardArgs::new(&[2, 3], &src)
///     .params(Some(&gamma), None)
///     .residual(Some(&residual));
/// ```
#[derive(Debug)]
pub struct ForwardArgs<'a, T: Element, P = T> {
    pub(crate) shape: &'a [usize],
    pub(crate) src: &'a [T],
    pub(crate) params: Params<'a, P>,
    pub(crate) residual: Option<&'a [T]>,
    pub(crate) keep_statistics: bool,
    pub(crate) running: Option<RunningStatistics<'a, T::Sum>>,
}

impl<'a, T: Element> ForwardArgs<'a, T> {
    /// Arguments with the layer's input alone, of rank 1 to 8. Parameters have src's element type until
    /// [`params`](Self::params) sets another.
    pub const fn new(shape: &'a [usize], src: &'a [T]) -> Self {
        Self {
            shape,
            src,
            params: Params::new(None, None),
            residual: None,
            keep_statistics: true,
            running: None,
        }
    }
}

impl<'a, T: Element, P> ForwardArgs<'a, T, P> {
    /// Sets gamma and beta, each as long as the layer's parameters. A missing gamma is 1, a missing beta is 0. RMS norm
    /// has no beta.
    #[must_use]
    pub fn params<Q>(self, gamma: Option<&'a [Q]>, beta: Option<&'a [Q]>) -> ForwardArgs<'a, T, Q> {
        ForwardArgs {
            shape: self.shape,
            src: self.src,
            params: self.params.replaced(gamma, beta),
            residual: self.residual,
            keep_statistics: self.keep_statistics,
            running: self.running,
        }
    }

    /// Sets the gate of an axes norm, as long as gamma: dst = gate · (x̂ · gamma + beta) + residual. Set it after
    /// [`params`](Self::params), whose element type it has.
    #[must_use]
    pub fn gate(mut self, gate: Option<&'a [P]>) -> Self {
        self.params.gate = gate;
        self
    }

    /// Sets a residual of src's shape. Layer and RMS norm add it to src, as transformer blocks do, and return the sum
    /// as [`Output::sum`]. The other layers add it to their output, before the activation.
    #[must_use]
    pub fn residual(self, residual: Option<&'a [T]>) -> Self {
        Self { residual, ..self }
    }

    /// Leaves out the statistics, which only the gradient needs. Only layer and RMS norm allow this.
    #[must_use]
    pub fn without_statistics(self) -> Self {
        Self {
            keep_statistics: false,
            ..self
        }
    }

    /// Sets running statistics for batch norm to update.
    #[must_use]
    pub fn running(self, running: RunningStatistics<'a, T::Sum>) -> Self {
        Self {
            running: Some(running),
            ..self
        }
    }
}

/// The running statistics of each channel, and how a batch updates them. They do not change if channels have no
/// elements.
#[derive(Debug)]
pub struct RunningStatistics<'a, S> {
    pub(crate) mean: &'a mut [S],
    pub(crate) variance: &'a mut [S],
    pub(crate) update: RunningUpdate,
}

impl<'a, S> RunningStatistics<'a, S> {
    /// The running mean and variance of each channel, and how a batch updates them.
    pub const fn new(mean: &'a mut [S], variance: &'a mut [S], update: RunningUpdate) -> Self {
        Self {
            mean,
            variance,
            update,
        }
    }
}

/// The results of a forward pass.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Output<T, S> {
    /// The layer's output, of src's shape.
    pub dst: Vec<T>,
    /// src + residual, if a residual is added before the layer. It is the src of the gradient, whose diff_src is the
    /// gradient of both.
    pub sum: Option<Vec<T>>,
    /// The tensors that the gradient needs beside src, diff_dst and the parameters.
    pub saved: Saved<S>,
}

impl<T: Element> Output<T, T::Sum> {
    pub(crate) fn new<P>(
        mut results: Results<T, P, T::Sum>,
        running: Option<RunningStatistics<'_, T::Sum>>,
    ) -> Self {
        let mut statistic = |tensor| results.statistic(tensor).unwrap_or_default();
        if let Some(running) = running {
            // The lengths are equal: they were checked.
            let replace = |old: &mut [T::Sum], new: Vec<T::Sum>| {
                old.iter_mut().zip(new).for_each(|(old, new)| *old = new);
            };
            replace(running.mean, statistic(Tensor::RunningMean));
            replace(running.variance, statistic(Tensor::RunningVariance));
        }
        let saved = Saved {
            mean: statistic(Tensor::Mean),
            variance: statistic(Tensor::Variance),
            mean_square: statistic(Tensor::MeanSquare),
            mask: results.mask(),
        };
        Self {
            dst: results.dst(),
            sum: results.sum(),
            saved,
        }
    }
}

/// The tensors that a forward pass saves for the gradient. Each statistic has one number for each set of elements that
/// are normalized together. It is empty if the layer does not have it or it was left out.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Saved<S> {
    /// The mean, Σ x / m over the m elements of a set.
    pub mean: Vec<S>,
    /// The biased variance, Σ (x − mean)² / m.
    pub variance: Vec<S>,
    /// The mean of squares, Σ x² / m; RMS norm's only statistic.
    pub mean_square: Vec<S>,
    /// A bit for each element, if a residual was added before the activation: whether the element passed it. Bit i of
    /// word w belongs to element 32 · w + i, in storage order.
    pub mask: Option<Vec<u32>>,
}

/// The results of a forward pass that a gradient reads: `&output.saved`; or mean and variance as a pair,
/// `(&mean, &variance)`; or RMS norm's mean_square. The latter two have no mask: see [`BackwardArgs::mask`].
///
/// If a forward pass saved invstd = 1/√(variance + epsilon), or rstd for RMS norm, then variance or mean_square is
/// 1/invstd² − epsilon.
#[derive(Clone, Copy, Debug)]
pub struct SavedRef<'a, S> {
    mean: &'a [S],
    variance: &'a [S],
    mean_square: &'a [S],
    pub(super) mask: Option<&'a [u32]>,
}

impl<'a, S> SavedRef<'a, S> {
    pub(super) fn statistic(&self, tensor: Tensor) -> &'a [S] {
        match tensor {
            Tensor::Mean => self.mean,
            Tensor::Variance => self.variance,
            Tensor::MeanSquare => self.mean_square,
            _ => &[],
        }
    }
}

impl<'a, S> From<&'a Saved<S>> for SavedRef<'a, S> {
    fn from(saved: &'a Saved<S>) -> Self {
        Self {
            mean: &saved.mean,
            variance: &saved.variance,
            mean_square: &saved.mean_square,
            mask: saved.mask.as_deref(),
        }
    }
}

impl<'a, S, M, V> From<(&'a M, &'a V)> for SavedRef<'a, S>
where
    M: AsRef<[S]> + ?Sized,
    V: AsRef<[S]> + ?Sized,
{
    fn from((mean, variance): (&'a M, &'a V)) -> Self {
        Self {
            mean: mean.as_ref(),
            variance: variance.as_ref(),
            mean_square: &[],
            mask: None,
        }
    }
}

impl<'a, S, const N: usize> From<&'a [S; N]> for SavedRef<'a, S> {
    fn from(mean_square: &'a [S; N]) -> Self {
        mean_square.as_slice().into()
    }
}

impl<'a, S> From<&'a Vec<S>> for SavedRef<'a, S> {
    fn from(mean_square: &'a Vec<S>) -> Self {
        mean_square.as_slice().into()
    }
}

impl<'a, S> From<&'a [S]> for SavedRef<'a, S> {
    fn from(mean_square: &'a [S]) -> Self {
        Self {
            mean: &[],
            variance: &[],
            mean_square,
            mask: None,
        }
    }
}

/// The tensors of a forward pass with given statistics.
///
/// ```
/// use wgpu_norm::InferenceArgs;
///
/// let (src, beta) = (vec![1.0_f32; 6], vec![2.0_f32; 3]);
/// let (mean, variance) = ([0.5, 1.0, 1.5], [1.0, 1.0, 1.0]);
/// let args = InferenceArgs::new(&[2, 3], &src, (&mean, &variance)).params(None, Some(&beta));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct InferenceArgs<'a, T: Element, P = T> {
    pub(crate) shape: &'a [usize],
    pub(crate) src: &'a [T],
    pub(crate) statistics: SavedRef<'a, T::Sum>,
    pub(crate) params: Params<'a, P>,
    pub(crate) residual: Option<&'a [T]>,
}

impl<'a, T: Element> InferenceArgs<'a, T> {
    /// Arguments with the layer's input and its statistics, `(&mean, &variance)`; for batch norm, the running mean and
    /// variance.
    pub fn new(
        shape: &'a [usize],
        src: &'a [T],
        statistics: impl Into<SavedRef<'a, T::Sum>>,
    ) -> Self {
        Self {
            shape,
            src,
            statistics: statistics.into(),
            params: Params::new(None, None),
            residual: None,
        }
    }
}

impl<'a, T: Element, P> InferenceArgs<'a, T, P> {
    /// Sets gamma and beta. A missing gamma is 1, a missing beta is 0.
    #[must_use]
    pub fn params<Q>(
        self,
        gamma: Option<&'a [Q]>,
        beta: Option<&'a [Q]>,
    ) -> InferenceArgs<'a, T, Q> {
        InferenceArgs {
            shape: self.shape,
            src: self.src,
            statistics: self.statistics,
            params: self.params.replaced(gamma, beta),
            residual: self.residual,
        }
    }

    /// Sets the gate of an axes norm, as long as gamma: dst = gate · (x̂ · gamma + beta) + residual. Set it after
    /// [`params`](Self::params), whose element type it has.
    #[must_use]
    pub fn gate(mut self, gate: Option<&'a [P]>) -> Self {
        self.params.gate = gate;
        self
    }

    /// Sets a residual of src's shape. It is added to the layer's output, before the activation.
    #[must_use]
    pub fn residual(self, residual: Option<&'a [T]>) -> Self {
        Self { residual, ..self }
    }
}

/// The tensors of a gradient.
///
/// ```
/// use wgpu_norm::BackwardArgs;
///
/// let (src, diff_dst, gamma) = (vec![1.0_f32; 6], vec![0.5; 6], vec![2.0; 3]);
/// let (mean, variance) = ([1.0, 1.0], [0.0, 0.0]);
/// let args = BackwardArgs::new(&[2, 3], &src, &diff_dst, (&mean, &variance)).params(Some(&gamma), None);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct BackwardArgs<'a, T: Element, P = T> {
    pub(crate) shape: &'a [usize],
    pub(crate) src: &'a [T],
    pub(crate) diff_dst: &'a [T],
    pub(crate) saved: SavedRef<'a, T::Sum>,
    pub(crate) params: Params<'a, P>,
}

impl<'a, T: Element> BackwardArgs<'a, T> {
    /// Arguments with the layer's input, the gradient of the loss with respect to its output, and the tensors that the
    /// forward pass saved, `&output.saved`. If a residual was added before the layer, src is [`Output::sum`]. If an
    /// axis has size 0 there are no elements, and the gradients of the parameters are 0.
    pub fn new(
        shape: &'a [usize],
        src: &'a [T],
        diff_dst: &'a [T],
        saved: impl Into<SavedRef<'a, T::Sum>>,
    ) -> Self {
        Self {
            shape,
            src,
            diff_dst,
            saved: saved.into(),
            params: Params::new(None, None),
        }
    }
}

impl<'a, T: Element, P> BackwardArgs<'a, T, P> {
    /// Sets the gamma and beta of the forward pass. Give both: the gradients of an activation and of a gate depend on
    /// beta, and without gamma beta still has a gradient.
    #[must_use]
    pub fn params<Q>(
        self,
        gamma: Option<&'a [Q]>,
        beta: Option<&'a [Q]>,
    ) -> BackwardArgs<'a, T, Q> {
        BackwardArgs {
            shape: self.shape,
            src: self.src,
            diff_dst: self.diff_dst,
            saved: self.saved,
            params: self.params.replaced(gamma, beta),
        }
    }

    /// Sets the gate of the forward pass, after [`params`](Self::params), whose element type it has. The results then
    /// include [`Grads::diff_gate`](crate::Grads::diff_gate).
    #[must_use]
    pub fn gate(mut self, gate: Option<&'a [P]>) -> Self {
        self.params.gate = gate;
        self
    }

    /// Sets the forward pass's [`Saved::mask`], if `&output.saved` has not set it. The results then include
    /// [`Grads::diff_residual`](crate::Grads::diff_residual).
    ///
    /// If a residual was added before the activation, the gradient is wrong without the mask: it recomputes the
    /// activation's argument without the residual.
    #[must_use]
    pub fn mask(mut self, mask: Option<&'a [u32]>) -> Self {
        self.saved.mask = mask;
        self
    }
}
