//! The arguments and results of layers in host memory: the same types for all layers.

use crate::call::Results;
use crate::element::{DType, Element, ParamOf};
use crate::error::Error;
use crate::operation::Operation;
use crate::options::RunningUpdate;
use crate::tensor::Tensor;
use std::marker::PhantomData;

/// Elements of a parameter, and their type.
pub(crate) type Param<'a> = (DType, &'a [u8]);

fn param<'a, P: Element>(elements: impl OptionalSlice<'a, P>) -> Option<Param<'a>> {
    let elements = elements.slice()?;
    Some((P::DTYPE, bytemuck::cast_slice(elements)))
}

/// A slice, or an option of one.
pub trait OptionalSlice<'a, E> {
    /// The slice, if there is one.
    fn slice(self) -> Option<&'a [E]>;
}

impl<'a, E> OptionalSlice<'a, E> for &'a [E] {
    fn slice(self) -> Option<&'a [E]> {
        Some(self)
    }
}

impl<'a, E> OptionalSlice<'a, E> for &'a Vec<E> {
    fn slice(self) -> Option<&'a [E]> {
        Some(self)
    }
}

impl<'a, E, const N: usize> OptionalSlice<'a, E> for &'a [E; N] {
    fn slice(self) -> Option<&'a [E]> {
        Some(self)
    }
}

impl<'a, E> OptionalSlice<'a, E> for &'a Option<Vec<E>> {
    fn slice(self) -> Option<&'a [E]> {
        self.as_deref()
    }
}

impl<'a, E, S: OptionalSlice<'a, E>> OptionalSlice<'a, E> for Option<S> {
    fn slice(self) -> Option<&'a [E]> {
        self?.slice()
    }
}

/// The parameters that a layer is given.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Params<'a> {
    pub gamma: Option<Param<'a>>,
    pub beta: Option<Param<'a>>,
    pub gate: Option<Param<'a>>,
}

impl<'a> Params<'a> {
    pub fn all(&self) -> [(Tensor, Option<Param<'a>>); 3] {
        [
            (Tensor::Gamma, self.gamma),
            (Tensor::Beta, self.beta),
            (Tensor::Gate, self.gate),
        ]
    }

    /// The type of all that are given; `default` if none are. An error if their types differ.
    pub fn dtype(&self, default: DType) -> Result<DType, Error> {
        let given = self.all().into_iter();
        let mut given = given.filter_map(|(tensor, param)| Some((tensor, param?.0)));
        let Some((first, dtype)) = given.next() else {
            return Ok(default);
        };
        match given.find(|(_, other)| *other != dtype) {
            None => Ok(dtype),
            Some((tensor, other)) => Err(Error::argument(
                tensor.name(),
                format!("{dtype} elements, as {} has", first.name()),
                other,
            )),
        }
    }

    /// Which are given.
    pub fn given(&self) -> Given {
        self.all().map(|(_, param)| param.is_some())
    }
}

/// Whether gamma, beta and the gate are given.
pub(crate) type Given = [bool; 3];

/// The tensors of a forward pass.
///
/// ```
/// use wgpu_norm::ForwardArgs;
///
/// let (src, residual, gamma) = (vec![1.0_f32; 6], vec![0.5; 6], vec![2.0_f32; 3]);
/// let args = ForwardArgs::new(&[2, 3], &src).gamma(&gamma).residual_before(&residual);
/// ```
#[derive(Debug)]
pub struct ForwardArgs<'a, T: Element> {
    pub(crate) shape: &'a [usize],
    pub(crate) src: &'a [T],
    pub(crate) params: Params<'a>,
    pub(crate) residual_before: Option<&'a [T]>,
    pub(crate) residual_after: Option<&'a [T]>,
    pub(crate) keep_statistics: bool,
    pub(crate) running: Option<RunningStatistics<'a, T::Sum>>,
}

impl<'a, T: Element> ForwardArgs<'a, T> {
    /// Arguments with the layer's input alone, of rank 1 to 8.
    pub fn new(shape: &'a [usize], src: &'a [T]) -> Self {
        Self {
            shape,
            src,
            params: Params::default(),
            residual_before: None,
            residual_after: None,
            keep_statistics: true,
            running: None,
        }
    }

    /// Sets a residual of src's shape that layer or RMS norm adds to src, as transformer blocks do. The sum is
    /// returned as [`Output::sum`]. Other layers refuse it.
    #[must_use]
    pub fn residual_before(self, residual: impl OptionalSlice<'a, T>) -> Self {
        Self {
            residual_before: residual.slice(),
            ..self
        }
    }

    /// Sets a residual of src's shape that is added to the layer's output, before the activation. Layer and RMS norm
    /// refuse it.
    #[must_use]
    pub fn residual_after(self, residual: impl OptionalSlice<'a, T>) -> Self {
        Self {
            residual_after: residual.slice(),
            ..self
        }
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
    pub(crate) batches: Option<&'a mut u64>,
}

impl<'a, S> RunningStatistics<'a, S> {
    /// The running mean and variance of each channel, and how a batch updates them.
    pub const fn new(mean: &'a mut [S], variance: &'a mut [S], update: RunningUpdate) -> Self {
        Self {
            mean,
            variance,
            update,
            batches: None,
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
    pub(crate) fn new<P>(mut results: Results<T, P, T::Sum>, args: ForwardArgs<'_, T>) -> Self {
        let mut statistic = |tensor| results.statistic(tensor).unwrap_or_default();
        if let Some(running) = args.running {
            // The lengths are equal: they were checked.
            let replace = |old: &mut [T::Sum], new: Vec<T::Sum>| {
                old.iter_mut().zip(new).for_each(|(old, new)| *old = new);
            };
            replace(running.mean, statistic(Tensor::RunningMean));
            replace(running.variance, statistic(Tensor::RunningVariance));
            if let Some(batches) = running.batches {
                *batches = batches.saturating_add(1);
            }
        }
        let saved = Saved {
            mean: statistic(Tensor::Mean),
            variance: statistic(Tensor::Variance),
            mean_square: statistic(Tensor::MeanSquare),
            mask: results.mask(),
            given: Some(args.params.given()),
            sum: None,
        };
        let sum = results.sum();
        Self {
            dst: results.dst(),
            saved: Saved {
                sum: sum.as_deref().map(fingerprint),
                ..saved
            },
            sum,
        }
    }
}

/// A hash of some elements of a tensor, by which it is told from others.
pub(super) fn fingerprint<T: Element>(values: &[T]) -> u64 {
    let step = (values.len() / 64).max(1);
    let bytes = values.iter().step_by(step).flat_map(bytemuck::bytes_of);
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
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
    /// Which parameters the forward pass was given, if it is known.
    pub(crate) given: Option<Given>,
    /// The fingerprint of src + residual, if that is what was normalized.
    pub(super) sum: Option<u64>,
}

/// Statistics, and what else a gradient reads of a forward pass's results: `(&output.saved).into()`, or numbers that
/// come from elsewhere, without a mask: see [`BackwardArgs::mask`].
///
/// If a forward pass saved invstd = 1/√(variance + epsilon), or rstd for RMS norm, then variance or mean_square is
/// 1/invstd² − epsilon.
#[derive(Clone, Copy, Debug)]
pub struct SavedRef<'a, S> {
    mean: &'a [S],
    variance: &'a [S],
    mean_square: &'a [S],
    pub(super) mask: Option<&'a [u32]>,
    pub(super) given: Option<Given>,
    pub(super) sum: Option<u64>,
}

impl<'a, S> SavedRef<'a, S> {
    /// Mean and biased variance.
    pub const fn moments(mean: &'a [S], variance: &'a [S]) -> Self {
        Self {
            mean,
            variance,
            mean_square: &[],
            mask: None,
            given: None,
            sum: None,
        }
    }

    /// The mean of squares: RMS norm's statistic.
    pub const fn mean_square(mean_square: &'a [S]) -> Self {
        Self {
            mean_square,
            ..Self::moments(&[], &[])
        }
    }

    fn statistic(&self, tensor: Tensor) -> &'a [S] {
        match tensor {
            Tensor::Mean => self.mean,
            Tensor::Variance => self.variance,
            Tensor::MeanSquare => self.mean_square,
            _ => &[],
        }
    }

    /// A norm's statistics; an error if these are another norm's, or were left out.
    pub(super) fn statistics(
        &self,
        operation: &Operation,
    ) -> Result<Vec<(Tensor, &'a [S])>, Error> {
        let wanted = operation.norm.statistics().iter();
        let given: Vec<_> = wanted
            .map(|&tensor| (tensor, self.statistic(tensor)))
            .collect();
        let others = [Tensor::Mean, Tensor::Variance, Tensor::MeanSquare].into_iter();
        let others = others.filter(|&tensor| !self.statistic(tensor).is_empty());
        let others: Vec<_> = others.map(Tensor::name).collect();
        let lacks_all = given.iter().all(|(_, values)| values.is_empty());
        if let Some((tensor, _)) = given.first()
            && lacks_all
            && operation.has_statistics()?
        {
            let got = if others.is_empty() {
                "none: they were left out, or there are no running statistics".to_owned()
            } else {
                format!("{} alone", others.join(" and "))
            };
            return Err(Error::argument(
                tensor.name(),
                "this norm's statistics",
                got,
            ));
        }
        Ok(given)
    }
}

impl<'a, S> From<&'a Saved<S>> for SavedRef<'a, S> {
    fn from(saved: &'a Saved<S>) -> Self {
        Self {
            mean: &saved.mean,
            variance: &saved.variance,
            mean_square: &saved.mean_square,
            mask: saved.mask.as_deref(),
            given: saved.given,
            sum: saved.sum,
        }
    }
}

/// The tensors of a forward pass with given statistics.
///
/// ```
/// use wgpu_norm::{InferenceArgs, SavedRef};
///
/// let (src, beta) = (vec![1.0_f32; 6], vec![2.0_f32; 3]);
/// let (mean, variance) = ([0.5, 1.0, 1.5], [1.0, 1.0, 1.0]);
/// let args = InferenceArgs::new(&[2, 3], &src, SavedRef::moments(&mean, &variance)).beta(&beta);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct InferenceArgs<'a, T: Element> {
    pub(crate) shape: &'a [usize],
    pub(crate) src: &'a [T],
    pub(crate) statistics: SavedRef<'a, T::Sum>,
    pub(crate) params: Params<'a>,
    pub(crate) residual_after: Option<&'a [T]>,
}

impl<'a, T: Element> InferenceArgs<'a, T> {
    /// Arguments with the layer's input and its statistics; for batch norm, the running mean and variance.
    pub fn new(
        shape: &'a [usize],
        src: &'a [T],
        statistics: impl Into<SavedRef<'a, T::Sum>>,
    ) -> Self {
        Self {
            shape,
            src,
            statistics: statistics.into(),
            params: Params::default(),
            residual_after: None,
        }
    }

    /// Sets a residual of src's shape that is added to the layer's output, before the activation.
    #[must_use]
    pub fn residual_after(self, residual: impl OptionalSlice<'a, T>) -> Self {
        Self {
            residual_after: residual.slice(),
            ..self
        }
    }
}

/// Defines the setters of the parameters.
macro_rules! params {
    ($Args:ident) => {
        impl<'a, T: Element> $Args<'a, T> {
            /// Sets gamma, a slice or an option of one, as long as the layer's parameters. A missing gamma is 1.
            #[must_use]
            pub fn gamma<P: ParamOf<T>>(mut self, gamma: impl OptionalSlice<'a, P>) -> Self {
                self.params.gamma = param(gamma);
                self
            }

            /// Sets beta, as long as gamma and of its type. A missing beta is 0; RMS norm has none.
            #[must_use]
            pub fn beta<P: ParamOf<T>>(mut self, beta: impl OptionalSlice<'a, P>) -> Self {
                self.params.beta = param(beta);
                self
            }

            /// Sets the gate of an axes norm, as long as gamma and of its type: dst = gate · (x̂ · gamma + beta) +
            /// residual.
            #[must_use]
            pub fn gate<P: ParamOf<T>>(mut self, gate: impl OptionalSlice<'a, P>) -> Self {
                self.params.gate = param(gate);
                self
            }
        }
    };
}

params!(ForwardArgs);
params!(InferenceArgs);

/// The tensors of a gradient. P is the type of the parameters' gradients.
///
/// ```
/// use wgpu_norm::{BackwardArgs, SavedRef};
///
/// let (src, diff_dst, gamma) = (vec![1.0_f32; 6], vec![0.5; 6], vec![2.0_f32; 3]);
/// let (mean, variance) = ([1.0, 1.0], [0.0, 0.0]);
/// let args = BackwardArgs::new(&[2, 3], &src, &diff_dst, SavedRef::moments(&mean, &variance)).gamma(&gamma);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct BackwardArgs<'a, T: Element, P = T> {
    pub(crate) shape: &'a [usize],
    pub(crate) src: &'a [T],
    pub(crate) diff_dst: &'a [T],
    pub(crate) saved: SavedRef<'a, T::Sum>,
    pub(crate) params: Params<'a>,
    pub(crate) without_beta: bool,
    gradients: PhantomData<P>,
}

impl<'a, T: Element> BackwardArgs<'a, T> {
    /// Arguments with the layer's input, the gradient of the loss with respect to its output, and the tensors that the
    /// forward pass saved, `&output.saved`. If a residual was added before the layer, src is [`Output::sum`]. If an
    /// axis has size 0 there are no elements, and the gradients of the parameters are 0.
    ///
    /// The call refuses a parameter more or fewer than `&output.saved` remembers.
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
            params: Params::default(),
            without_beta: false,
            gradients: PhantomData,
        }
    }
}

impl<'a, T: Element, P> BackwardArgs<'a, T, P> {
    /// The arguments for gradients of another type.
    fn retyped<Q>(self) -> BackwardArgs<'a, T, Q> {
        BackwardArgs {
            shape: self.shape,
            src: self.src,
            diff_dst: self.diff_dst,
            saved: self.saved,
            params: self.params,
            without_beta: self.without_beta,
            gradients: PhantomData,
        }
    }

    /// Sets the forward pass's gamma.
    #[must_use]
    pub fn gamma<Q: ParamOf<T>>(
        mut self,
        gamma: impl OptionalSlice<'a, Q>,
    ) -> BackwardArgs<'a, T, Q> {
        self.params.gamma = param(gamma);
        self.retyped()
    }

    /// Sets the forward pass's beta, of gamma's type. The gradients of an activation and of a gate depend on it, and
    /// without gamma it still has a gradient.
    #[must_use]
    pub fn beta<Q: ParamOf<T>>(
        mut self,
        beta: impl OptionalSlice<'a, Q>,
    ) -> BackwardArgs<'a, T, Q> {
        self.params.beta = param(beta);
        self.retyped()
    }

    /// Says that the forward pass had no beta, where the gradient depends on it and `saved` does not know.
    #[must_use]
    pub fn without_beta(self) -> Self {
        Self {
            without_beta: true,
            ..self
        }
    }

    /// Sets the forward pass's gate, of gamma's type. The results then include
    /// [`Grads::diff_gate`](crate::Grads::diff_gate).
    #[must_use]
    pub fn gate<Q: ParamOf<T>>(
        mut self,
        gate: impl OptionalSlice<'a, Q>,
    ) -> BackwardArgs<'a, T, Q> {
        self.params.gate = param(gate);
        self.retyped()
    }

    /// Sets the forward pass's [`Saved::mask`], if `&output.saved` has not set it. The results then include
    /// [`Grads::diff_residual`](crate::Grads::diff_residual).
    ///
    /// If a residual was added before the activation, the gradient is wrong without the mask: it recomputes the
    /// activation's argument without the residual.
    #[must_use]
    pub fn mask(mut self, mask: impl OptionalSlice<'a, u32>) -> Self {
        self.saved.mask = mask.slice();
        self
    }
}
