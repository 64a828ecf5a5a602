//! The tensors of typed calls, in host memory: what layers take, and what they give.

use crate::call::Call;
use crate::element::types;
use crate::{
    Activation, Backward, Element, Epilogue, Error, Forward, GpuContext, Grads, Norm, Operation,
    ParamOf, Pass, Residual, Tensor,
};

/// Tensors of a layer's forward pass.
///
/// ```
/// use wgpu_norm::ForwardArgs;
///
/// let (src, residual, gamma) = (vec![1.0_f32; 6], vec![0.5; 6], vec![2.0; 3]);
/// let args = ForwardArgs::new(&[2, 3], &src)
///     .params(Some(&gamma), None)
///     .residual(Some(&residual));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ForwardArgs<'a, T, P = T> {
    shape: &'a [usize],
    src: &'a [T],
    gamma: Option<&'a [P]>,
    beta: Option<&'a [P]>,
    residual: Option<&'a [T]>,
    keep_statistics: bool,
}

impl<'a, T> ForwardArgs<'a, T> {
    /// With the layer's input, of a shape of rank 1 to 8, and nothing else. Parameters have src's type until
    /// [`params`](Self::params) sets another.
    pub const fn new(shape: &'a [usize], src: &'a [T]) -> Self {
        Self {
            shape,
            src,
            gamma: None,
            beta: None,
            residual: None,
            keep_statistics: true,
        }
    }
}

impl<'a, T, P> ForwardArgs<'a, T, P> {
    /// The same with these parameters. Without gamma it is 1, without beta that is 0; RMS norm has no beta.
    #[must_use]
    pub fn params<Q>(self, gamma: Option<&'a [Q]>, beta: Option<&'a [Q]>) -> ForwardArgs<'a, T, Q> {
        ForwardArgs {
            shape: self.shape,
            src: self.src,
            gamma,
            beta,
            residual: self.residual,
            keep_statistics: self.keep_statistics,
        }
    }

    /// The same with a tensor of src's shape that is added to src before the layer, as in a transformer's block.
    /// [`Output::sum`] is a result then.
    #[must_use]
    pub fn residual(self, residual: Option<&'a [T]>) -> Self {
        Self { residual, ..self }
    }

    /// The same without statistics among the results, which only the gradient needs.
    #[must_use]
    pub fn without_statistics(self) -> Self {
        Self {
            keep_statistics: false,
            ..self
        }
    }

    /// Runs the forward pass of a layer over rows.
    pub(crate) async fn run(
        self,
        gpu: &GpuContext,
        norm: Norm,
        epsilon: f64,
    ) -> Result<Output<T, T::Sum>, Error>
    where
        T: Element,
        P: ParamOf<T>,
    {
        let pass = Forward {
            keep_statistics: self.keep_statistics,
            ..Forward::default()
        };
        let residual = match self.residual {
            Some(_) => Residual::Before,
            None => Residual::None,
        };
        let operation = Operation::new(norm, pass, self.shape, types::<T, P, T::Sum>())
            .with_epsilon(epsilon)
            .with_params(self.gamma.is_some(), self.beta.is_some())
            .with_epilogue(Epilogue::new(residual, Activation::None));
        let call = Call::new(operation, self.src)
            .params(self.gamma, self.beta)
            .with(Tensor::Residual, self.residual);
        let mut results = call.run::<T, P, T::Sum>(gpu).await?;
        let mut statistic = |tensor| results.statistic(tensor).unwrap_or_default();
        let statistics = SavedStatistics {
            mean: statistic(Tensor::Mean),
            variance: statistic(Tensor::Variance),
            mean_square: statistic(Tensor::MeanSquare),
        };
        Ok(Output {
            dst: results.dst(),
            sum: results.sum(),
            statistics,
        })
    }
}

/// What a layer's forward pass computes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Output<T, S> {
    /// The layer's output, of src's shape.
    pub dst: Vec<T>,
    /// src + residual, if there is a residual before the layer: what the gradient takes for src. Its diff_src is the
    /// gradient of both.
    pub sum: Option<Vec<T>>,
    /// The statistics by which the gradient is computed.
    pub statistics: SavedStatistics<S>,
}

/// A layer's statistics: one number of each for every set of elements that is normalized together. Those that a layer does
/// not have, or that are not kept, are empty.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SavedStatistics<S> {
    /// Σ x / m over the m elements of a set.
    pub mean: Vec<S>,
    /// The biased variance, Σ (x − mean)² / m.
    pub variance: Vec<S>,
    /// Σ x² / m, of RMS norm alone.
    pub mean_square: Vec<S>,
}

/// Statistics that a call reads: those that a forward pass gave, a pair `(&mean, &variance)`, or RMS norm's mean of squares.
///
/// From a saved invstd = 1/√(variance + epsilon), or rstd of RMS norm, variance or mean_square is 1/invstd² − epsilon.
#[derive(Clone, Copy, Debug)]
pub struct StatisticsRef<'a, S> {
    mean: &'a [S],
    variance: &'a [S],
    mean_square: &'a [S],
}

impl<'a, S> StatisticsRef<'a, S> {
    fn of(&self, tensor: Tensor) -> &'a [S] {
        match tensor {
            Tensor::Mean => self.mean,
            Tensor::Variance => self.variance,
            _ => self.mean_square,
        }
    }
}

impl<'a, S> From<&'a SavedStatistics<S>> for StatisticsRef<'a, S> {
    fn from(saved: &'a SavedStatistics<S>) -> Self {
        Self {
            mean: &saved.mean,
            variance: &saved.variance,
            mean_square: &saved.mean_square,
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

/// Tensors of a layer's gradient.
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
    shape: &'a [usize],
    src: &'a [T],
    diff_dst: &'a [T],
    statistics: StatisticsRef<'a, T::Sum>,
    gamma: Option<&'a [P]>,
    beta: Option<&'a [P]>,
}

impl<'a, T: Element> BackwardArgs<'a, T> {
    /// With the layer's input, after a residual before the layer [`Output::sum`]; the gradient of the loss with respect to the
    /// layer's output; and the statistics. With an axis of size 0 there are no elements, and parameter gradients are 0.
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
        }
    }
}

impl<'a, T: Element, P> BackwardArgs<'a, T, P> {
    /// The same with the parameters of the forward pass.
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
        }
    }

    /// Runs the gradient of a layer over rows.
    pub(crate) async fn run(
        self,
        gpu: &GpuContext,
        norm: Norm,
        epsilon: f64,
        backward: Backward,
    ) -> Result<Grads<T, P>, Error>
    where
        P: ParamOf<T>,
    {
        let statistics = norm.statistics();
        let operation = Operation::new(
            norm,
            Pass::Backward(backward),
            self.shape,
            types::<T, P, T::Sum>(),
        );
        let operation = operation
            .with_epsilon(epsilon)
            .with_params(self.gamma.is_some(), self.beta.is_some());
        let mut call = Call::new(operation, self.src)
            .with(Tensor::DiffDst, self.diff_dst)
            .with(Tensor::Gamma, self.gamma);
        for &tensor in statistics {
            call = call.with(tensor, self.statistics.of(tensor));
        }
        Ok(call.run::<T, P, T::Sum>(gpu).await?.grads())
    }
}
