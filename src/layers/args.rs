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
    /// What the gradient needs beside src, diff_dst, gamma and beta.
    pub saved: Saved<S>,
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

/// What a forward pass saves for the gradient. Each statistic has a number for each set of elements that is normalized
/// together; a statistic that the layer does not have, or that was left out, is empty.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Saved<S> {
    /// The mean, Σ x / m over the m elements of a set.
    pub mean: Vec<S>,
    /// The biased variance, Σ (x − mean)² / m.
    pub variance: Vec<S>,
    /// The mean of squares, Σ x² / m, of RMS norm alone.
    pub mean_square: Vec<S>,
    /// Which elements passed the activation, where a residual was added before it: bit i of word w is of element 32 · w + i, in
    /// storage order.
    pub mask: Option<Vec<u32>>,
}

/// What a gradient reads of a forward pass: `&output.saved`; or mean and variance as a pair, `(&mean, &variance)`; or RMS norm's
/// mean_square. These have no mask: see [`BackwardArgs::mask`].
///
/// From a saved invstd = 1/√(variance + epsilon), or rstd of RMS norm, variance or mean_square is 1/invstd² − epsilon.
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
            _ => self.mean_square,
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

/// The tensors of a forward pass by given statistics.
///
/// ```
/// use wgpu_norm::InferenceArgs;
///
/// let (src, beta) = (vec![1.0_f32; 6], vec![2.0_f32; 3]);
/// let (mean, variance) = ([0.5, 1.0, 1.5], [1.0, 1.0, 1.0]);
/// let args = InferenceArgs::new(&[2, 3], &src, &mean, &variance).params(None, Some(&beta));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct InferenceArgs<'a, T: Element, P = T> {
    pub(crate) shape: &'a [usize],
    pub(crate) src: &'a [T],
    pub(crate) mean: &'a [T::Sum],
    pub(crate) variance: &'a [T::Sum],
    pub(crate) gamma: Option<&'a [P]>,
    pub(crate) beta: Option<&'a [P]>,
    pub(crate) residual: Option<&'a [T]>,
}

impl<'a, T: Element> InferenceArgs<'a, T> {
    /// The layer's input, and mean and variance: batch norm's running ones.
    pub const fn new(
        shape: &'a [usize],
        src: &'a [T],
        mean: &'a [T::Sum],
        variance: &'a [T::Sum],
    ) -> Self {
        Self {
            shape,
            src,
            mean,
            variance,
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
            mean: self.mean,
            variance: self.variance,
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
    pub(crate) saved: SavedRef<'a, T::Sum>,
    pub(crate) gamma: Option<&'a [P]>,
    pub(crate) beta: Option<&'a [P]>,
}

impl<'a, T: Element> BackwardArgs<'a, T> {
    /// The layer's input, the gradient of the loss by its output, and what the forward pass saved, `&output.saved`. Where a
    /// residual was added before the layer, its input is [`Output::sum`]. With an axis of size 0 there are no elements, and
    /// parameter gradients are 0.
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
            gamma: None,
            beta: None,
        }
    }
}

impl<'a, T: Element, P> BackwardArgs<'a, T, P> {
    /// Sets gamma and beta, those of the forward pass: both of them, as the gradient of an activation depends on beta.
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
            gamma,
            beta,
        }
    }

    /// Sets the forward pass's [`Saved::mask`], where `&output.saved` has not set it.
    /// [`Grads::diff_residual`](crate::Grads::diff_residual) is a result then.
    ///
    /// The gradient of a residual and an activation is wrong without the mask: it computes the activation's argument once more,
    /// and knows of no residual.
    #[must_use]
    pub fn mask(mut self, mask: Option<&'a [u32]>) -> Self {
        self.saved.mask = mask;
        self
    }
}
