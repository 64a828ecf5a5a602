//! Batch norm over a batch that is spread over processes, each with some of the samples: synchronized batch norm.
//!
//! [`run_into`] runs any operation so; of other layers than batch norm only gradients of gamma and beta meet.
//!
//! How processes reach each other is the caller's: [`AllGather`] asks for one operation. `integrations/mpi` has it over MPI.
//! What is exchanged are statistics and sums, some numbers of each channel. They are merged on the host in the order of
//! ranks, so mean, variance, running statistics and the parameters' gradients are the same to the bit on all ranks, whatever
//! their adapters.
//!
//! ```
//! # pollster::block_on(async {
//! use wgpu_norm::synchronized::{AllGather, SyncBatchNorm};
//! use wgpu_norm::{BatchNormForwardArgs, BatchNormOptions, Error, GpuContext};
//!
//! /// One process alone.
//! struct Alone;
//!
//! impl AllGather for Alone {
//!     type Error = Error;
//!     fn rank(&self) -> usize {
//!         0
//!     }
//!     fn ranks(&self) -> usize {
//!         1
//!     }
//!     async fn all_gather(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Error> {
//!         Ok(bytes.to_vec())
//!     }
//! }
//!
//! let gpu = match GpuContext::new().await {
//!     Ok(gpu) => gpu,
//!     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
//!     Err(error) => return Err(error),
//! };
//! let shape = [2, 2]; // two samples of two channels
//! let mut layer = SyncBatchNorm::new(Alone, &gpu, BatchNormOptions::new(1e-5), &shape).await?;
//! let output = layer
//!     .forward(BatchNormForwardArgs {
//!         shape: &shape,
//!         src: &[1.0_f32, 10.0, 3.0, 30.0],
//!         gamma: None::<&[f32]>,
//!         beta: None,
//!         residual: None,
//!         running: None,
//!     })
//!     .await?;
//! assert_eq!(output.mean, [2.0, 20.0]);
//! # Ok(()) }).unwrap();
//! ```

mod exchange;
mod operation;
mod records;

pub use operation::run_into;

use crate::element::types;
use crate::host::{self, Halves, Input};
use crate::plan::Plan;
use crate::{
    BackwardOperands, BatchNormBackwardArgs, BatchNormBackwardPlan, BatchNormForwardArgs,
    BatchNormForwardOperands, BatchNormForwardPlan, BatchNormOptions, BatchNormOutput, DTypes,
    DataFormat, Element, Error, GpuBatchNorm, GpuContext, Grads, ParamGrads, ParamOf,
    RunningStatistics, RunningVariance, Tensor, memory,
};
use exchange::{Call, Exchange};
use records::{Merged, Sums};
use std::future::Future;

/// What processes that work on one batch need of each other.
pub trait AllGather {
    /// What that may fail with.
    type Error: From<Error>;

    /// This process's number, from 0 on.
    fn rank(&self) -> usize;

    /// How many processes there are.
    fn ranks(&self) -> usize;

    /// Gives all processes everyone's bytes, in the order of ranks. All give as many.
    fn all_gather(&mut self, bytes: &[u8]) -> impl Future<Output = Result<Vec<u8>, Self::Error>>;
}

/// [`GpuBatchNorm`] over the samples of all ranks.
///
/// Every rank makes one, and then all make the same calls in the same order, each with its own samples: any number of them,
/// none too. A rank that fails, or makes another call than the others, makes the call fail on all.
#[derive(Debug)]
pub struct SyncBatchNorm<G> {
    exchange: Exchange<G>,
    layer: GpuBatchNorm,
    gpu: GpuContext,
    /// src's sizes behind the first, which is the number of samples.
    sample: Vec<usize>,
}

impl<G: AllGather> SyncBatchNorm<G> {
    /// A layer for src of this shape, but for the number of samples, its first size. All ranks call it at once.
    ///
    /// # Errors
    ///
    /// Those of [`GpuBatchNorm::new`]; [`Error::Rank`] in the shape; [`Error::Ranks`] on all ranks, where shapes or options
    /// differ.
    pub async fn new(
        all_gather: G,
        gpu: &GpuContext,
        options: BatchNormOptions,
        shape: &[usize],
    ) -> Result<Self, G::Error> {
        let mut exchange = Exchange::new(all_gather);
        let layer = GpuBatchNorm::new(gpu, options);
        let sample = match shape {
            [_, sample @ ..] if (2..=8).contains(&shape.len()) => Ok(sample.to_vec()),
            _ => Err(Error::Rank {
                tensor: "src",
                min: 2,
                max: 8,
                got: shape.len(),
            }),
        };
        let checked = layer.and_then(|layer| Ok((layer, sample?)));
        let (layer, sample) = exchange
            .agree(checked, |(_, sample)| description(&options, sample))
            .await?;
        Ok(Self {
            exchange,
            layer,
            gpu: gpu.clone(),
            sample,
        })
    }

    /// What it computes.
    pub const fn options(&self) -> &BatchNormOptions {
        self.layer.options()
    }

    /// [`GpuBatchNorm::forward`] by the statistics of all samples: dst, and the mask, are of this rank's samples.
    ///
    /// # Errors
    ///
    /// Those of [`GpuBatchNorm::forward`], and [`Error::Ranks`] where another rank fails or makes another call. Of one element
    /// a channel on all ranks together there is no unbiased variance.
    pub async fn forward<T: Element, P: ParamOf<T>>(
        &mut self,
        args: BatchNormForwardArgs<'_, T, P>,
    ) -> Result<BatchNormOutput<T, T::Sum>, G::Error> {
        self.forward_with_statistics(args).await
    }

    /// The same with statistics of another type: of 16 bits, as parameters of that type. They hold less, as
    /// [`DTypes::statistics`](crate::DTypes::statistics) says.
    ///
    /// # Errors
    ///
    /// As those of [`forward`](Self::forward), and [`Error::StatisticsDType`].
    pub async fn forward_with_statistics<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &mut self,
        args: BatchNormForwardArgs<'_, T, P, S>,
    ) -> Result<BatchNormOutput<T, S>, G::Error> {
        let BatchNormForwardArgs {
            shape,
            src,
            gamma,
            beta,
            residual,
            running,
        } = args;
        let types = types::<T, P, S>();
        let inputs = [
            Some(Input::new(Tensor::Src, src)),
            Input::given(Tensor::Gamma, gamma),
            Input::given(Tensor::Beta, beta),
            Input::given(Tensor::Residual, residual),
        ];
        let inputs: Vec<_> = inputs.into_iter().flatten().collect();
        let operands = BatchNormForwardOperands {
            gamma: gamma.is_some(),
            beta: beta.is_some(),
            residual: residual.is_some(),
            running: running.as_ref().map(|running| running.update),
            ..Default::default()
        };
        let plan = self.plan_forward(shape, types, operands, &inputs, running.as_ref());
        let call = Call::Forward(operands.running);
        let count = self.count(shape);
        let (plan, counts) = self.exchange.begin(call, types, count, plan).await?;
        let channels = self.channels();

        let bytes = Merged::bytes(types.data, channels);
        let plan = (count > 0).then_some(&plan.plan);
        let (first, all) = first_half(&mut self.exchange, &self.gpu, plan, &inputs, bytes).await?;
        let merged = Merged::of(types.data, &all, channels, &counts)?;

        let mut output = BatchNormOutput {
            dst: Vec::new(),
            mean: merged.mean()?,
            variance: merged.variance()?,
            mask: (residual.is_some() && self.has_activation()).then(Vec::new),
        };
        let take = |tensor: Tensor, bytes: &[u8]| {
            match tensor {
                Tensor::Mask => output.mask = Some(host::words(tensor, bytes)?),
                _ => output.dst = host::elements(tensor, bytes)?,
            }
            Ok(())
        };
        let second = match first {
            Some(first) => first.second(&merged.record(), take).await,
            None => Ok(()),
        };
        let second = second.and_then(|()| match &running {
            Some(running) => merged.check_update(running.update),
            None => Ok(()),
        });
        self.exchange.end(second).await?;
        if let Some(running) = running {
            merged.update(running);
        }
        Ok(output)
    }

    /// [`GpuBatchNorm::backward`] by the sums of all samples: diff_src is of this rank's samples, diff_gamma and diff_beta are
    /// of all.
    ///
    /// # Errors
    ///
    /// Those of [`GpuBatchNorm::backward`], and [`Error::Ranks`] where another rank fails or makes another call.
    pub async fn backward<T: Element, P: ParamOf<T>>(
        &mut self,
        args: BatchNormBackwardArgs<'_, T, P>,
    ) -> Result<Grads<T, P>, G::Error> {
        self.backward_with_statistics(args).await
    }

    /// The same with statistics of another type: of 16 bits, as parameters of that type. They hold less, as
    /// [`DTypes::statistics`](crate::DTypes::statistics) says.
    ///
    /// # Errors
    ///
    /// As those of [`backward`](Self::backward), and [`Error::StatisticsDType`].
    pub async fn backward_with_statistics<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &mut self,
        args: BatchNormBackwardArgs<'_, T, P, S>,
    ) -> Result<Grads<T, P>, G::Error> {
        let BatchNormBackwardArgs {
            shape,
            src,
            diff_dst,
            mean,
            variance,
            gamma,
            beta,
            mask,
        } = args;
        let types = types::<T, P, S>();
        let inputs = [
            Some(Input::new(Tensor::Src, src)),
            Some(Input::new(Tensor::DiffDst, diff_dst)),
            Some(Input::new(Tensor::Mean, mean)),
            Some(Input::new(Tensor::Variance, variance)),
            Input::given(Tensor::Gamma, gamma),
            Input::given(Tensor::Beta, beta),
            mask.map(Input::mask),
        ];
        let inputs: Vec<_> = inputs.into_iter().flatten().collect();
        let operands = BackwardOperands {
            gamma: gamma.is_some(),
            beta: beta.is_some(),
            mask: mask.is_some(),
        };
        let epsilon = self.options().epsilon;
        let plan = self
            .plan_backward(shape, types, operands, &inputs)
            .and_then(|plan| {
                host::check_variance(Tensor::Variance, "channel", variance, epsilon)?;
                Ok(plan)
            });
        let call = Call::Backward;
        let count = self.count(shape);
        let (plan, counts) = self.exchange.begin(call, types, count, plan).await?;
        let channels = self.channels();

        let bytes = Sums::bytes(types.data, channels);
        let plan = (count > 0).then_some(&plan.plan);
        let (first, all) = first_half(&mut self.exchange, &self.gpu, plan, &inputs, bytes).await?;
        let sums = Sums::of(types.data, &all, channels, &counts)?;

        let mut grads = Grads {
            diff_src: Vec::new(),
            diff_gamma: None,
            diff_beta: None,
            diff_residual: mask.map(|_| Vec::new()),
        };
        if self.options().param_grads == ParamGrads::Both {
            grads.diff_beta = Some(sums.diff_beta()?);
            grads.diff_gamma = Some(sums.diff_gamma()?);
        }
        let take = |tensor: Tensor, bytes: &[u8]| {
            match tensor {
                Tensor::DiffResidual => {
                    grads.diff_residual = Some(host::elements(tensor, bytes)?);
                }
                _ => grads.diff_src = host::elements(tensor, bytes)?,
            }
            Ok(())
        };
        let second = match first {
            Some(first) => first.second(&sums.to_bytes(), take).await,
            None => Ok(()),
        };
        self.exchange.end(second).await?;
        Ok(grads)
    }

    /// Checks all that is this rank's alone.
    fn plan_forward<S: Element>(
        &self,
        shape: &[usize],
        types: DTypes,
        operands: BatchNormForwardOperands,
        inputs: &[Input<'_>],
        running: Option<&RunningStatistics<'_, S>>,
    ) -> Result<BatchNormForwardPlan, Error> {
        self.check_shape(shape)?;
        let channels = self.channels();
        for of in running.into_iter().flat_map(|r| [&*r.mean, &*r.variance]) {
            crate::geometry::check_length("running statistics", channels as u64, of.len())?;
        }
        // Biased here, since what counts is the number of all ranks' elements.
        let update = operands.running.map(|update| crate::RunningUpdate {
            variance: RunningVariance::Biased,
            ..update
        });
        let weighed = BatchNormForwardOperands {
            running: update,
            ..operands
        };
        drop(self.layer.plan_forward(shape, types, weighed)?);
        let without = BatchNormForwardOperands {
            running: None,
            ..operands
        };
        let plan = self.layer.plan_forward(shape, types, without)?;
        self.check_halves(plan.sizes().sums)?;
        check_inputs(&plan.plan, inputs)?;
        Ok(plan)
    }

    fn plan_backward(
        &self,
        shape: &[usize],
        types: DTypes,
        operands: BackwardOperands,
        inputs: &[Input<'_>],
    ) -> Result<BatchNormBackwardPlan, Error> {
        self.check_shape(shape)?;
        let plan = self.layer.plan_backward(shape, types, operands)?;
        self.check_halves(plan.sums_size())?;
        check_inputs(&plan.plan, inputs)?;
        Ok(plan)
    }

    fn check_shape(&self, shape: &[usize]) -> Result<(), Error> {
        match shape {
            [_, sample @ ..] if sample == self.sample => Ok(()),
            _ => Err(Error::Argument {
                argument: "shape",
                expected: format!("samples of shape {:?}", self.sample),
                got: format!("{shape:?}"),
            }),
        }
    }

    fn check_halves(&self, sums: u64) -> Result<(), Error> {
        match sums {
            // Without channels there is nothing to add up.
            0 if self.channels() > 0 => Err(Error::Argument {
                argument: "channels",
                expected: format!(
                    "as many as have room for the sums of both halves in a binding of {} bytes",
                    self.gpu.profile().max_binding
                ),
                got: self.channels().to_string(),
            }),
            _ => Ok(()),
        }
    }

    fn has_activation(&self) -> bool {
        self.options().activation != crate::Activation::None
    }

    fn channels(&self) -> usize {
        let channels = match self.options().data_format {
            DataFormat::Ncx => self.sample.first(),
            DataFormat::Nxc => self.sample.last(),
        };
        channels.copied().unwrap_or(0)
    }

    /// Elements of a channel in src of a shape that was, or will be, checked.
    fn count(&self, shape: &[usize]) -> u64 {
        let all = shape
            .iter()
            .fold(1_u64, |product, &size| product.saturating_mul(size as u64));
        all / (self.channels() as u64).max(1)
    }
}

/// Runs the first half of a plan, if this rank has elements, and gathers every rank's sums, so many bytes of each.
async fn first_half<'a, G: AllGather>(
    exchange: &mut Exchange<G>,
    gpu: &'a GpuContext,
    plan: Option<&'a Plan>,
    inputs: &[Input<'_>],
    bytes: usize,
) -> Result<(Option<Halves<'a>>, Vec<u8>), G::Error> {
    let mut sums = Vec::new();
    let first = match plan {
        Some(plan) => {
            let take = |_: Tensor, bytes: &[u8]| {
                sums = memory::collect("sums", bytes.iter().copied())?;
                Ok(())
            };
            Halves::first(gpu, plan, inputs, take).await.map(Some)
        }
        None => Ok(None),
    };
    let first = first.and_then(|first| Ok((first, records::padded(sums, bytes)?)));
    exchange.share(first, bytes).await
}

/// What all ranks have to agree on, as text.
fn description(options: &BatchNormOptions, sample: &[usize]) -> Vec<(&'static str, String)> {
    vec![
        ("shape of a sample", format!("{sample:?}")),
        ("epsilon", format!("{:e}", options.epsilon)),
        ("data_format", format!("{:?}", options.data_format)),
        ("statistics", format!("{:?}", options.statistics)),
        ("param_grads", format!("{:?}", options.param_grads)),
        ("activation", options.activation.to_string()),
    ]
}

fn check_inputs(plan: &Plan, inputs: &[Input<'_>]) -> Result<(), Error> {
    inputs.iter().try_for_each(|input| input.check(plan))
}
