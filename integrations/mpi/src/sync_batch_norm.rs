//! The layer.

use crate::{Communicator, Error, Options};
use mpi::topology::Communicator as AnyCommunicator;
use wgpu_norm::synchronized;
use wgpu_norm::{
    BackwardArgs, BatchNormOptions, Element, ForwardArgs, GpuContext, Grads, Output, ParamOf,
};

/// [`wgpu_norm::GpuBatchNorm`] over the samples of all ranks of a communicator.
///
/// Every rank creates one; then all make the same calls in the same order, each with its own samples: any number of
/// them, or none. Statistics and sums are gathered and merged on the host in the order of ranks, so mean, variance,
/// running statistics and the parameter gradients are the same to the bit on all ranks, whatever their adapters.
///
/// If a rank fails, or makes another call than the others, the call fails on all of them, with the ranks' numbers. A
/// rank that does not call at all ends the job after [`Options::timeout`].
///
/// Calls block. Each rank sends about 500 bytes, and 16 per channel (8 in the gradient; twice as many for f64 data).
#[derive(Debug)]
pub struct SyncBatchNorm {
    layer: synchronized::SyncBatchNorm<Communicator>,
}

impl SyncBatchNorm {
    /// Creates the layer. All ranks must call this together, as it duplicates the communicator.
    ///
    /// # Errors
    ///
    /// Those of [`wgpu_norm::GpuBatchNorm::new`]; [`Error::Mpi`].
    pub fn new(
        gpu: &GpuContext,
        options: BatchNormOptions,
        communicator: &impl AnyCommunicator,
        waits: Options,
    ) -> Result<Self, Error> {
        let own = Communicator::duplicate(communicator, waits)?;
        Ok(Self {
            layer: synchronized::SyncBatchNorm::new(gpu, options, own)?,
        })
    }

    /// The layer's output for this rank's samples, with the statistics of all ranks' samples:
    /// [`wgpu_norm::synchronized::SyncBatchNorm::forward`].
    ///
    /// # Errors
    ///
    /// Those of that function, and [`Error::Mpi`].
    pub fn forward<T: Element>(
        &mut self,
        args: ForwardArgs<'_, T>,
    ) -> Result<Output<T, T::Sum>, Error> {
        pollster::block_on(self.layer.forward(args))
    }

    /// The gradient of this rank's src, and of gamma and beta over all ranks' samples:
    /// [`wgpu_norm::synchronized::SyncBatchNorm::backward`].
    ///
    /// # Errors
    ///
    /// Those of that function, and [`Error::Mpi`].
    pub fn backward<T: Element, P: ParamOf<T>>(
        &mut self,
        args: BackwardArgs<'_, T, P>,
    ) -> Result<Grads<T, P>, Error> {
        pollster::block_on(self.layer.backward(args))
    }
}
