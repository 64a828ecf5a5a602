//! What layers take and give, in host memory: the same types for all of them.

use crate::call::Results;
use crate::{Element, RunningUpdate, Tensor};

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
    pub(crate) gamma: Option<&'a [P]>,
    pub(crate) beta: Option<&'a [P]>,
    pub(crate) residual: Option<&'a [T]>,
    pub(crate) keep_statistics: bool,
    pub(crate) running: Option<RunningStatistics<'a, T::Sum>>,
}

impl<'a, T: Element> ForwardArgs<'a, T> {
    /// The layer's input, of rank 1 to 8, and nothing else. Parameters have src's type until [`params`](Self::params) sets
    /// another.
    pub const fn new(shape: &'a [usize], src: &'a [T]) -> Self {
        Self {
            shape,
            src,
            gamma: None,
            beta: None,
            residual: None,
            keep_statistics: true,
            running: None,
        }
    }
}

impl<'a, T: Element, P> ForwardArgs<'a, T, P> {
    /// Sets gamma and beta, with as many elements as the layer's parameters have. Without gamma it is 1, without beta that is
    /// 0. RMS norm has no beta, and layer norm none without gamma.
    #[must_use]
    pub fn params<Q>(self, gamma: Option<&'a [Q]>, beta: Option<&'a [Q]>) -> ForwardArgs<'a, T, Q> {
        ForwardArgs {
            shape: self.shape,
            src: self.src,
            gamma,
            beta,
            residual: self.residual,
            keep_statistics: self.keep_statistics,
            running: self.running,
        }
    }

    /// Sets a residual of src's shape. Layer and RMS norm add it to src, as in a transformer's block, and
    /// [`Output::sum`] is a result then. The other layers add it to their output, before the activation.
    #[must_use]
    pub fn residual(self, residual: Option<&'a [T]>) -> Self {
        Self { residual, ..self }
    }

    /// Leaves the statistics out of the results. Only layer and RMS norm can; only the gradient needs them.
    #[must_use]
    pub fn without_statistics(self) -> Self {
        Self {
            keep_statistics: false,
            ..self
        }
    }

    /// Sets running statistics, which batch norm updates.
    #[must_use]
    pub fn running(self, running: RunningStatistics<'a, T::Sum>) -> Self {
        Self {
            running: Some(running),
            ..self
        }
    }
}

/// The running statistics of each channel, and how they take in those of the batch. Channels without elements leave them as
/// they are.
#[derive(Debug)]
pub struct RunningStatistics<'a, S> {
    pub(crate) mean: &'a mut [S],
    pub(crate) variance: &'a mut [S],
    pub(crate) update: RunningUpdate,
}

impl<'a, S> RunningStatistics<'a, S> {
    /// Running mean and variance of each channel.
    pub const fn new(mean: &'a mut [S], variance: &'a mut [S], update: RunningUpdate) -> Self {
        Self {
            mean,
            variance,
            update,
        }
    }
}

/// What a forward pass computes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Output<T, S> {
    /// The layer's output, of src's shape.
    pub dst: Vec<T>,
    /// src + residual, where a residual is added before the layer: the gradient's src. Its diff_src is the gradient of both.
    pub sum: Option<Vec<T>>,
    /// What passed the activation, where a residual was added before one: bit i of word w is of element 32 · w + i, in storage
    /// order. The gradient reads it.
    pub mask: Option<Vec<u32>>,
    /// The statistics of src, which the gradient reads.
    pub statistics: Statistics<S>,
}

impl<T: Element> Output<T, T::Sum> {
    pub(crate) fn new<P>(
        mut results: Results<T, P, T::Sum>,
        running: Option<RunningStatistics<'_, T::Sum>>,
    ) -> Self {
        let mut statistic = |tensor| results.statistic(tensor).unwrap_or_default();
        if let Some(running) = running {
            // As many as were given, which was checked.
            let replace = |old: &mut [T::Sum], new: Vec<T::Sum>| {
                old.iter_mut().zip(new).for_each(|(old, new)| *old = new);
            };
            replace(running.mean, statistic(Tensor::RunningMean));
            replace(running.variance, statistic(Tensor::RunningVariance));
        }
        let statistics = Statistics {
            mean: statistic(Tensor::Mean),
            variance: statistic(Tensor::Variance),
            mean_square: statistic(Tensor::MeanSquare),
        };
        Self {
            dst: results.dst(),
            sum: results.sum(),
            mask: results.mask(),
            statistics,
        }
    }
}

/// The statistics of a layer: a number for each set of elements that is normalized together. Those that a layer does not
/// have, or that were left out, are empty.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Statistics<S> {
    /// The mean, Σ x / m over the m elements of a set.
    pub mean: Vec<S>,
    /// The biased variance, Σ (x − mean)² / m.
    pub variance: Vec<S>,
    /// The mean of squares, Σ x² / m, of RMS norm alone.
    pub mean_square: Vec<S>,
}

/// Statistics that a call reads: those of a forward pass, `&output.statistics`; a pair `(&mean, &variance)`; or RMS norm's
/// mean of squares.
///
/// From a saved invstd = 1/√(variance + epsilon), or rstd of RMS norm, variance or mean_square is 1/invstd² − epsilon.
#[derive(Clone, Copy, Debug)]
pub struct StatisticsRef<'a, S> {
    mean: &'a [S],
    variance: &'a [S],
    mean_square: &'a [S],
}

impl<'a, S> StatisticsRef<'a, S> {
    pub(super) fn of(&self, tensor: Tensor) -> &'a [S] {
        match tensor {
            Tensor::Mean => self.mean,
            Tensor::Variance => self.variance,
            _ => self.mean_square,
        }
    }
}

impl<'a, S> From<&'a Statistics<S>> for StatisticsRef<'a, S> {
    fn from(statistics: &'a Statistics<S>) -> Self {
        Self {
            mean: &statistics.mean,
            variance: &statistics.variance,
            mean_square: &statistics.mean_square,
        }
    }
}

impl<'a, S, M, V> From<(&'a M, &'a V)> for StatisticsRef<'a, S>
where
    M: AsRef<[S]> + ?Sized,
    V: AsRef<[S]> + ?Sized,
{
    fn from((mean, variance): (&'a M, &'a V)) -> Self {
        Self {
            mean: mean.as_ref(),
            variance: variance.as_ref(),
            mean_square: &[],
        }
    }
}

impl<'a, S, const N: usize> From<&'a [S; N]> for StatisticsRef<'a, S> {
    fn from(mean_square: &'a [S; N]) -> Self {
        mean_square.as_slice().into()
    }
}

impl<'a, S> From<&'a [S]> for StatisticsRef<'a, S> {
    fn from(mean_square: &'a [S]) -> Self {
        Self {
            mean: &[],
            variance: &[],
            mean_square,
        }
    }
}

/// The tensors of a forward pass by given statistics.
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
    pub(crate) statistics: StatisticsRef<'a, T::Sum>,
    pub(crate) gamma: Option<&'a [P]>,
    pub(crate) beta: Option<&'a [P]>,
    pub(crate) residual: Option<&'a [T]>,
}

impl<'a, T: Element> InferenceArgs<'a, T> {
    /// The layer's input, and the statistics.
    pub fn new(
        shape: &'a [usize],
        src: &'a [T],
        statistics: impl Into<StatisticsRef<'a, T::Sum>>,
    ) -> Self {
        Self {
            shape,
            src,
            statistics: statistics.into(),
            gamma: None,
            beta: None,
            residual: None,
        }
    }
}

impl<'a, T: Element, P> InferenceArgs<'a, T, P> {
    /// Sets gamma and beta. Without gamma it is 1, without beta that is 0.
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
            gamma,
            beta,
            residual: self.residual,
        }
    }

    /// Sets a residual of src's shape, which is added to the layer's output, before the activation.
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
    pub(crate) statistics: StatisticsRef<'a, T::Sum>,
    pub(crate) gamma: Option<&'a [P]>,
    pub(crate) beta: Option<&'a [P]>,
    pub(crate) mask: Option<&'a [u32]>,
}

impl<'a, T: Element> BackwardArgs<'a, T> {
    /// The layer's input ([`Output::sum`] where a residual was added before the layer), the gradient of the loss with respect
    /// to the layer's output, and the statistics. With an axis of size 0 there are no elements, and parameter gradients are 0.
    pub fn new(
        shape: &'a [usize],
        src: &'a [T],
        diff_dst: &'a [T],
        statistics: impl Into<StatisticsRef<'a, T::Sum>>,
    ) -> Self {
        Self {
            shape,
            src,
            diff_dst,
            statistics: statistics.into(),
            gamma: None,
            beta: None,
            mask: None,
        }
    }
}

impl<'a, T: Element, P> BackwardArgs<'a, T, P> {
    /// Sets the gamma and beta of the forward pass. beta counts only where an activation follows and there is no mask; it may
    /// be given all the same.
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
            statistics: self.statistics,
            gamma,
            beta,
            mask: self.mask,
        }
    }

    /// Sets the forward pass's [`Output::mask`]. [`Grads::diff_residual`](crate::Grads::diff_residual) is a result then.
    #[must_use]
    pub fn mask(self, mask: Option<&'a [u32]>) -> Self {
        Self { mask, ..self }
    }
}
