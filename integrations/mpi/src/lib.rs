//! [`wgpu_norm`] over MPI: [`SyncBatchNorm`] is batch norm with the statistics of a batch that is spread over the ranks
//! of a communicator. The binary `wgpu-norm-mpi` is the command `wgpu-norm` under `mpirun`.
//!
//! ```no_run
//! use mpi::traits::Communicator as _;
//! use wgpu_norm::{BatchNormOptions, DataFormat, ForwardArgs, GpuContext};
//! use wgpu_norm_mpi::{Options, SyncBatchNorm};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Other threads do not call MPI.
//! let threading = mpi::Threading::Funneled;
//! let (universe, _) = mpi::initialize_with_threading(threading).ok_or("MPI runs already")?;
//! let world = universe.world();
//! let gpu = pollster::block_on(GpuContext::new())?;
//! let samples = 8 + world.rank() as usize; // any number on any rank
//! let shape = [samples, 32, 32, 64];
//! let options = BatchNormOptions::new(DataFormat::Nxc);
//! let mut layer = SyncBatchNorm::new(&gpu, options, &world, Options::default())?;
//! let src = vec![1.0_f32; shape.iter().product()];
//! let output = layer.forward(ForwardArgs::new(&shape, &src).gamma(&[1.0_f32; 64]))?;
//! assert_eq!(output.saved.mean, [1.0; 64]);
//! # Ok(())
//! # }
//! ```

mod communicator;
mod error;
mod sync_batch_norm;

pub use communicator::{Communicator, Options};
pub use error::Error;
pub use sync_batch_norm::SyncBatchNorm;
