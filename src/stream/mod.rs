//! Tensors that are larger than memory: runs an operation over pieces of them, which a caller reads and writes.
//!
//! A [`Stream`] keeps the buffers of the device and of the host together within a budget. The command's
//! `--memory-budget` streams safetensors files this way.
//!
//! ```
//! # pollster::block_on(async {
//! use wgpu_norm::stream::{Storage, Stream};
//! use wgpu_norm::{Backward, DType, DataFormat, Error, GpuContext, Norm, Operation, Tensor};
//!
//! /// Tensors in host memory, to be short; files are alike.
//! struct Tensors {
//!     src: Vec<u8>,
//!     diff_dst: Vec<u8>,
//!     statistics: Vec<u8>,
//!     diff_src: Vec<u8>,
//! }
//!
//! impl Storage for Tensors {
//!     type Error = Error;
//!
//!     async fn read(&mut self, tensor: Tensor, offset: u64, to: &mut [u8]) -> Result<(), Error> {
//!         let from = match tensor {
//!             Tensor::Src => &self.src,
//!             Tensor::DiffDst => &self.diff_dst,
//!             _ => &self.statistics, // mean and variance
//!         };
//!         to.copy_from_slice(&from[offset as usize..][..to.len()]);
//!         Ok(())
//!     }
//!
//!     async fn write(&mut self, tensor: Tensor, offset: u64, from: &[u8]) -> Result<(), Error> {
//!         if tensor == Tensor::DiffSrc {
//!             self.diff_src[offset as usize..][..from.len()].copy_from_slice(from);
//!         }
//!         Ok(())
//!     }
//! }
//!
//! # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
//! let gpu = GpuContext::new().await?;
//! let (shape, channels) = ([8, 16, 16, 4], 4);
//! let bytes = shape.iter().product::<usize>() * 4;
//! let mut tensors = Tensors {
//!     src: vec![0; bytes],
//!     diff_dst: vec![0; bytes],
//!     statistics: vec![0; channels * 4],
//!     diff_src: vec![1; bytes],
//! };
//! let norm = Norm::batch(DataFormat::Nxc);
//! let operation = Operation::new(norm, Backward::default(), &shape, DType::F32).with_params(false, false);
//! let stream = Stream::new(&gpu, &operation, 512 << 20)?;
//! stream.run(&mut tensors).await?;
//! assert_eq!(tensors.diff_src, vec![0; bytes]);
//! # Ok::<(), Error>(()) }).unwrap();
//! ```

mod budget;
mod pieces;
mod run;

use crate::context::GpuContext;
use crate::error::Error;
use crate::operation::Operation;
use crate::plan::Plan;
use crate::profile::Profile;
use crate::tensor::Tensor;
use pieces::{Piece, is_streamed};
use std::future::Future;

/// A caller's tensors, each from byte 0 on in storage order. The future of [`Stream::run`] is Send if the storage and
/// its futures are, which is not required.
pub trait Storage {
    /// The error of reading and writing.
    type Error: From<Error>;

    /// Fills `to` with the bytes of a tensor from `offset` on, at most one MiB at a time.
    ///
    /// Each pass of the operation reads a tensor of src's shape once from start to end. There is one pass, or two if a
    /// reduction comes before the elementwise pass, or more if the adapter binds few buffers. In a pass, pieces may
    /// overlap by some hundred bytes. If there are so many rows, samples or columns that only some are processed at a
    /// time, these go through all passes before the next ones; of columns, each row's piece is read by itself.
    fn read(
        &mut self,
        tensor: Tensor,
        offset: u64,
        to: &mut [u8],
    ) -> impl Future<Output = Result<(), Self::Error>>;

    /// Writes the bytes of a result from `offset` on. The last write to a place counts: the first bytes of a piece may
    /// repeat the last bytes of the piece before it.
    fn write(
        &mut self,
        tensor: Tensor,
        offset: u64,
        from: &[u8],
    ) -> impl Future<Output = Result<(), Self::Error>>;
}

/// An operation over tensors that pass through memory in pieces.
///
/// Tensors of src's shape are read and written piece by piece. All others (statistics, gamma and beta, their gradients)
/// and the sums stay on the device. While the device works on a piece, the piece before it is written and the next one
/// is read. diff_src overwrites diff_dst on the device.
///
/// Pieces end where the plan of the whole tensor may be cut. So the results are the same to the bit as those of the
/// operation in one piece, if [`algorithm`](Self::algorithm) is the same and is neither
/// [`RowsReadTwice`](crate::Algorithm::RowsReadTwice) nor [`ColumnsReadTwice`](crate::Algorithm::ColumnsReadTwice), and
/// all samples are planned at once. Otherwise they agree within rounding: a fused algorithm, or a gradient of rows that
/// do not fit in registers, may need a tensor as a whole, and sums are added in another order if it is cut.
#[derive(Clone, Debug)]
pub struct Stream {
    gpu: GpuContext,
    plan: Plan,
    pieces: Vec<Piece>,
    memory: u64,
}

impl Stream {
    /// Plans an operation within a budget: the most bytes that buffers of the device and of the host use together.
    ///
    /// # Errors
    ///
    /// Those of [`Operation::plan`]; [`Error::Budget`], which names a sufficient budget.
    pub fn new(gpu: &GpuContext, operation: &Operation, budget: u64) -> Result<Self, Error> {
        let planned = budget::within(budget, |max_window| {
            let profile = Profile {
                max_window,
                ..gpu.profile().clone()
            };
            operation.planned_or_unfit(&profile)
        })?;
        if let Some(tensor) = pieces::out_of_order(&planned.plan, &planned.pieces) {
            return Err(Error::gpu(
                "planning a stream",
                format_args!("{} is not written in order", tensor.name()),
            ));
        }
        Ok(Self {
            gpu: gpu.clone(),
            plan: planned.plan,
            pieces: planned.pieces,
            memory: planned.memory,
        })
    }

    /// The algorithm that it uses.
    pub fn algorithm(&self) -> crate::algorithm::Algorithm {
        self.plan.algorithm
    }

    /// The number of pieces.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Bytes of its buffers, on the device and on the host together.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Bytes that it reads and writes; those that are read twice count twice.
    pub fn traffic(&self) -> u64 {
        let windows = self.pieces.iter().flat_map(|piece| &piece.windows);
        let streamed = windows.map(|(_, bytes)| bytes.end.saturating_sub(bytes.start));
        let resident = self.plan.tensors.iter().filter(|r| !is_streamed(r.tensor));
        let resident = resident
            .filter(|r| r.tensor != Tensor::Sums)
            .map(|r| r.bytes());
        streamed.chain(resident).fold(0, u64::saturating_add)
    }

    /// Reads, computes and writes.
    ///
    /// variance + epsilon is not checked: a channel in which it is not above 0 becomes NaN or infinite.
    ///
    /// # Errors
    ///
    /// Those of `storage`; out of memory; device lost. The results written so far are then incomplete.
    pub async fn run<S: Storage>(&self, storage: &mut S) -> Result<(), S::Error> {
        run::run(self, storage).await
    }
}
