//! The layer.

use crate::{Communicator, Error, Options};
use mpi::topology::Communicator as AnyCommunicator;
use wgpu_norm::synchronized;
use wgpu_norm::{
    BatchNormBackwardArgs, BatchNormForwardArgs, BatchNormOptions, BatchNormOutput, Element,
    GpuContext, Grads, ParamOf,
};

/// [`wgpu_norm::GpuBatchNorm`] over the samples of all ranks of a communicator.
///
/// Every rank makes one, and then all make the same calls in the same order, each with its own samples: any number of them,
/// none too. Statistics and sums are gathered and merged on the host in the order of ranks, so mean, variance, running
/// statistics and the parameters' gradients are the same to the bit on all ranks, whatever their adapters.
///
/// A rank that fails, or makes another call than the others, makes the call fail on all of them, with the ranks' numbers. A
/// rank that does not call at all ends the job after [`Options::timeout`].
///
/// Calls block. Between ranks pass 257 bytes, and of each channel 16 (gradient 8; twice as many of f64 data).
#[derive(Debug)]
pub struct SyncBatchNorm {
    layer: synchronized::SyncBatchNorm<Communicator>,
}

impl SyncBatchNorm {
    /// A layer for src of this shape, but for the number of samples, its first size. All ranks call it at once: it duplicates
    /// the communicator, and compares shapes and options.
    ///
    /// # Errors
    ///
    /// [`wgpu_norm::Error::Ranks`] on all ranks, where shapes or options differ; those of
    /// [`wgpu_norm::GpuBatchNorm::new`]; [`Error::Mpi`].
    pub fn new(
        communicator: &impl AnyCommunicator,
        gpu: &GpuContext,
        options: BatchNormOptions,
        shape: &[usize],
        waits: Options,
    ) -> Result<Self, Error> {
        let own = Communicator::duplicate(communicator, waits)?;
        let layer = synchronized::SyncBatchNorm::new(own, gpu, options, shape);
        Ok(Self {
            layer: pollster::block_on(layer)?,
        })
    }

    /// What it computes.
    pub const fn options(&self) -> &BatchNormOptions {
        self.layer.options()
    }

    /// The layer's output for this rank's samples, by the statistics of all ranks':
    /// [`wgpu_norm::synchronized::SyncBatchNorm::forward`].
    ///
    /// # Errors
    ///
    /// Those of that function, and [`Error::Mpi`].
    pub fn forward<T: Element, P: ParamOf<T>>(
        &mut self,
        args: BatchNormForwardArgs<'_, T, P>,
    ) -> Result<BatchNormOutput<T, T::Sum>, Error> {
        self.forward_with_statistics(args)
    }

    /// The same with statistics of another type: of 16 bits, as parameters of that type. They hold less, as
    /// [`DTypes::statistics`](wgpu_norm::DTypes::statistics) says.
    ///
    /// # Errors
    ///
    /// Those of [`forward`](Self::forward), and [`wgpu_norm::Error::StatisticsDType`].
    pub fn forward_with_statistics<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &mut self,
        args: BatchNormForwardArgs<'_, T, P, S>,
    ) -> Result<BatchNormOutput<T, S>, Error> {
        pollster::block_on(self.layer.forward_with_statistics(args))
    }

    /// The gradient of this rank's src, and of gamma and beta over all ranks' samples:
    /// [`wgpu_norm::synchronized::SyncBatchNorm::backward`].
    ///
    /// # Errors
    ///
    /// Those of that function, and [`Error::Mpi`].
    pub fn backward<T: Element, P: ParamOf<T>>(
        &mut self,
        args: BatchNormBackwardArgs<'_, T, P>,
    ) -> Result<Grads<T, P>, Error> {
        self.backward_with_statistics(args)
    }

    /// The same with statistics of another type: of 16 bits, as parameters of that type. They hold less, as
    /// [`DTypes::statistics`](wgpu_norm::DTypes::statistics) says.
    ///
    /// # Errors
    ///
    /// Those of [`backward`](Self::backward), and [`wgpu_norm::Error::StatisticsDType`].
    pub fn backward_with_statistics<T: Element, P: ParamOf<T>, S: ParamOf<T>>(
        &mut self,
        args: BatchNormBackwardArgs<'_, T, P, S>,
    ) -> Result<Grads<T, P>, Error> {
        pollster::block_on(self.layer.backward_with_statistics(args))
    }
}
