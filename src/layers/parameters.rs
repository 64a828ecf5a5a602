//! A layer's parameters as a value.

use super::args::RunningStatistics;
use super::{BackwardArgs, ForwardArgs, InferenceArgs, SavedRef};
use crate::element::{Element, ParamOf};
use crate::options::RunningUpdate;

/// A layer's gamma and beta, and for batch norm its running statistics, in host memory. S is the type of sums: f32, or
/// f64 for f64 data.
///
/// `forward` takes them and updates the running statistics; `infer` and `backward` read them. What an optimizer does
/// with gamma and beta is the caller's.
///
/// ```
/// # pollster::block_on(async {
/// use wgpu_norm::{BackwardArgs, BatchNormOptions, DataFormat, Error, ForwardArgs, GpuBatchNorm, GpuContext};
/// use wgpu_norm::{InferenceArgs, Parameters, RunningUpdate, RunningVariance};
///
/// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
/// let gpu = GpuContext::new().await?;
/// let layer = GpuBatchNorm::new(&gpu, BatchNormOptions::new(DataFormat::Ncx))?;
/// let update = RunningUpdate::new(0.1, RunningVariance::Unbiased); // PyTorch's momentum
/// let mut parameters: Parameters<f32> = Parameters::new(2).with_running(update);
///
/// let (shape, src) = ([3, 2], [1.0_f32, 10.0, 2.0, 20.0, 3.0, 30.0]);
/// let output = layer.forward(ForwardArgs::new(&shape, &src).parameters(&mut parameters)).await?;
/// let diff_dst = [0.0, 1.0, 1.0, 0.0, 0.0, 1.0];
/// let args = BackwardArgs::new(&shape, &src, &diff_dst, &output.saved).parameters(&parameters);
/// let grads = layer.backward(args).await?;
/// for (beta, diff) in parameters.beta.iter_mut().flatten().zip(grads.diff_beta.into_iter().flatten()) {
///     *beta -= 0.5 * diff;
/// }
/// assert_eq!(parameters.beta.as_deref(), Some(&[-0.5, -1.0][..]));
///
/// let dst = layer.infer(InferenceArgs::by_parameters(&shape, &src, &parameters)).await?;
/// # assert_eq!(dst.len(), 6);
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Parameters<P, S = f32> {
    /// Scale. Without it gamma is 1.
    pub gamma: Option<Vec<P>>,
    /// Shift. Without it beta is 0; RMS norm has none.
    pub beta: Option<Vec<P>>,
    /// Batch norm's running statistics.
    pub running: Option<Running<S>>,
}

/// The running statistics of each channel, and how a batch updates them.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Running<S> {
    /// Mean.
    pub mean: Vec<S>,
    /// Variance, biased or not as `update` says.
    pub variance: Vec<S>,
    /// How a batch updates them.
    pub update: RunningUpdate,
    /// The number of batches that have: PyTorch's `num_batches_tracked`.
    pub batches: u64,
}

impl<P: Element, S: Element> Parameters<P, S> {
    /// As many ones for gamma and zeros for beta as the layer has parameters, without running statistics. A layer with
    /// `zero_centered_gamma` begins with [`zero_centered`](Self::zero_centered) ones.
    pub fn new(elements: usize) -> Self {
        Self {
            gamma: Some(vec![P::from_f64(1.0); elements]),
            beta: Some(vec![P::from_f64(0.0); elements]),
            running: None,
        }
    }

    /// These for a layer whose gamma is stored less 1: zeros for gamma.
    #[must_use]
    pub fn zero_centered(self) -> Self {
        let gamma = self.gamma.map(|gamma| vec![P::from_f64(0.0); gamma.len()]);
        Self { gamma, ..self }
    }

    /// These without beta, as RMS norm has them.
    #[must_use]
    pub fn without_beta(self) -> Self {
        Self { beta: None, ..self }
    }

    /// These with running statistics of no batch: a mean of 0 and a variance of 1, as many as there are parameters.
    #[must_use]
    pub fn with_running(self, update: RunningUpdate) -> Self {
        let elements = self
            .gamma
            .as_ref()
            .or(self.beta.as_ref())
            .map_or(0, Vec::len);
        let running = Running {
            mean: vec![S::from_f64(0.0); elements],
            variance: vec![S::from_f64(1.0); elements],
            update,
            batches: 0,
        };
        Self {
            running: Some(running),
            ..self
        }
    }
}

impl<'a, T: Element> ForwardArgs<'a, T> {
    /// Sets gamma and beta, and running statistics for batch norm to update. Where nothing is to be updated,
    /// `gamma(&parameters.gamma)` and `beta(&parameters.beta)` do not borrow them mutably.
    #[must_use]
    pub fn parameters<P: ParamOf<T>>(self, parameters: &'a mut Parameters<P, T::Sum>) -> Self {
        let args = self
            .gamma(parameters.gamma.as_deref())
            .beta(parameters.beta.as_deref());
        match &mut parameters.running {
            Some(running) => args.running(RunningStatistics {
                mean: &mut running.mean,
                variance: &mut running.variance,
                update: running.update,
                batches: Some(&mut running.batches),
            }),
            None => args,
        }
    }
}

impl<'a, T: Element> InferenceArgs<'a, T> {
    /// Arguments with the layer's input, gamma and beta, and the running statistics.
    pub fn by_parameters<P: ParamOf<T>>(
        shape: &'a [usize],
        src: &'a [T],
        parameters: &'a Parameters<P, T::Sum>,
    ) -> Self {
        let running = parameters.running.as_ref();
        let statistics = running.map_or(SavedRef::moments(&[], &[]), |running| {
            SavedRef::moments(&running.mean, &running.variance)
        });
        Self::new(shape, src, statistics)
            .gamma(parameters.gamma.as_deref())
            .beta(parameters.beta.as_deref())
    }
}

impl<'a, T: Element, P> BackwardArgs<'a, T, P> {
    /// Sets gamma and beta of the forward pass, or says that it had none.
    #[must_use]
    pub fn parameters<Q: ParamOf<T>>(
        self,
        parameters: &'a Parameters<Q, T::Sum>,
    ) -> BackwardArgs<'a, T, Q> {
        let args = self
            .gamma(parameters.gamma.as_deref())
            .beta(parameters.beta.as_deref());
        match parameters.beta {
            Some(_) => args,
            None => args.without_beta(),
        }
    }
}
