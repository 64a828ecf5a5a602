//! Batch norm over a batch that is spread over processes, each with some of the samples: synchronized batch norm.
//!
//! [`run_into`] runs any operation this way. For norms other than batch norm, only the gradients of gamma and beta are
//! exchanged.
//!
//! The caller provides the communication between processes: [`AllGather`] needs one operation. The crate
//! `wgpu-norm-mpi` (`integrations/mpi` in the repository) implements it over MPI, with a command for `mpirun`.
//!
//! Processes exchange statistics and sums instead of samples. For each channel of f32 data, a rank sends 16 bytes in a
//! forward pass and 8 in a gradient; `docs/design-notes/ranks.md` in the repository lists what that costs. The numbers
//! are merged on the host in the order of ranks, so mean, variance, running statistics and the gradients of parameters
//! are the same to the bit on all ranks, whatever their adapters.
//!
//! Several adapters of one machine can be used in two ways: by a process for each, which selects its adapter with the
//! environment variable `WGPU_ADAPTER_NAME`; or by one process with a [`GpuContext`] for each adapter, which records
//! the two halves of batch norm, as the example `synchronized` does and
//! [`guide::own_buffers`](crate::guide::own_buffers#a-batch-spread-over-devices) describes.
//!
//! ```
//! # pollster::block_on(async {
//! use wgpu_norm::synchronized::{AllGather, SyncBatchNorm};
//! use wgpu_norm::{BatchNormOptions, DataFormat, Error, ForwardArgs, GpuContext};
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
//! # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
//! let gpu = GpuContext::new().await?;
//! let mut layer = SyncBatchNorm::new(&gpu, BatchNormOptions::new(DataFormat::Nxc), Alone)?;
//! let src = [1.0_f32, 10.0, 3.0, 30.0]; // two samples of two channels
//! let output = layer.forward(ForwardArgs::new(&[2, 2], &src)).await?;
//! assert_eq!(output.saved.mean, [2.0, 20.0]);
//! # Ok::<(), Error>(()) }).unwrap();
//! ```

mod exchange;
mod operation;

pub use crate::options::Shards;
pub use crate::sums::SumsLayout;
pub use crate::tensor::Ranks;
pub use operation::run_into;

use crate::call::{Call, Grads, Results};
use crate::context::GpuContext;
use crate::element::{Element, ParamOf};
use crate::error::Error;
use crate::layers::{BackwardArgs, BatchNormOptions, ForwardArgs, Output};
use std::future::Future;

/// Communication between the processes that share a batch. The future of a call is Send if the caller's type and its
/// futures are, which is not required: MPI's are not.
pub trait AllGather {
    /// The error of the communication.
    type Error: From<Error>;

    /// This process's number, counted from 0.
    fn rank(&self) -> usize;

    /// The number of processes.
    fn ranks(&self) -> usize;

    /// Sends the bytes of all processes to all of them, in the order of ranks. All send the same number of bytes.
    fn all_gather(&mut self, bytes: &[u8]) -> impl Future<Output = Result<Vec<u8>, Self::Error>>;
}

impl<G: AllGather> AllGather for &mut G {
    type Error = G::Error;

    fn rank(&self) -> usize {
        (**self).rank()
    }

    fn ranks(&self) -> usize {
        (**self).ranks()
    }

    fn all_gather(&mut self, bytes: &[u8]) -> impl Future<Output = Result<Vec<u8>, Self::Error>> {
        (**self).all_gather(bytes)
    }
}

/// [`GpuBatchNorm`](crate::GpuBatchNorm) over the samples of all ranks.
///
/// Every rank makes one. Then all ranks make the same calls in the same order, each with its own samples: any number of
/// them, even none. If a rank fails, or makes another call than the others, the call fails on all ranks.
#[derive(Debug)]
pub struct SyncBatchNorm<G> {
    all_gather: G,
    options: BatchNormOptions,
    gpu: GpuContext,
}

impl<G: AllGather> SyncBatchNorm<G> {
    /// Makes the layer on this rank. Nothing passes between ranks yet.
    ///
    /// # Errors
    ///
    /// Those of [`GpuBatchNorm::new`](crate::GpuBatchNorm::new).
    pub fn new(gpu: &GpuContext, options: BatchNormOptions, all_gather: G) -> Result<Self, Error> {
        options.0.check()?;
        Ok(Self {
            all_gather,
            gpu: gpu.clone(),
            options,
        })
    }

    /// [`GpuBatchNorm::forward`](crate::GpuBatchNorm::forward) with the statistics of all samples. dst and the mask
    /// belong to this rank's samples.
    ///
    /// # Errors
    ///
    /// Those of [`run_into`]. There is no unbiased variance if a channel has one element on all ranks together.
    pub async fn forward<T: Element>(
        &mut self,
        args: ForwardArgs<'_, T>,
    ) -> Result<Output<T, T::Sum>, G::Error> {
        let call = self.options.0.forward_call(&args);
        let results = self.run::<T, T>(call).await?;
        Ok(Output::new(results, args))
    }

    /// [`GpuBatchNorm::backward`](crate::GpuBatchNorm::backward) with the sums of all samples. diff_src belongs to this
    /// rank's samples, diff_gamma and diff_beta to all samples.
    ///
    /// # Errors
    ///
    /// Those of [`run_into`].
    pub async fn backward<T: Element, P: ParamOf<T>>(
        &mut self,
        args: BackwardArgs<'_, T, P>,
    ) -> Result<Grads<T, P>, G::Error> {
        let call = self.options.0.backward_call(&args);
        Ok(self.run::<T, P>(call).await?.grads())
    }

    async fn run<T: Element, P: Element>(
        &mut self,
        call: Result<Call<'_>, Error>,
    ) -> Result<Results<T, P, T::Sum>, G::Error> {
        let ready = call.and_then(|mut call| {
            let tensors = call.operation.tensors()?;
            let results = call.take_results(&tensors)?;
            Ok((call, results))
        });
        match ready {
            Ok((call, mut results)) => {
                let (given, mut slices) = (&call.given, results.slices());
                let all_gather = &mut self.all_gather;
                run_into(&call.operation, &self.gpu, all_gather, given, &mut slices).await?;
                drop(slices);
                Ok(results)
            }
            Err(error) => Err(operation::fail(&mut self.all_gather, error).await),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Operation;
    use crate::tensor::Tensor;

    struct Alone;

    impl AllGather for Alone {
        type Error = Error;

        fn rank(&self) -> usize {
            0
        }

        fn ranks(&self) -> usize {
            1
        }

        async fn all_gather(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Error> {
            Ok(bytes.to_vec())
        }
    }

    /// Compiling it is the test.
    #[expect(dead_code)]
    fn futures_are_send(
        gpu: &GpuContext,
        operation: &Operation,
        outputs: &mut [(Tensor, &mut [u8])],
        layer: &mut SyncBatchNorm<Alone>,
        args: ForwardArgs<'_, f32>,
    ) {
        fn is_send(_: impl Send) {}
        is_send(run_into(operation, gpu, Alone, &[], outputs));
        is_send(layer.forward(args));
    }
}
