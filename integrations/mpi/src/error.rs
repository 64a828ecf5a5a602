//! What may go wrong.

/// A failure of the layer, or of MPI.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The layer refused, or another rank failed or did something else: see [`wgpu_norm::Error::Ranks`].
    #[error(transparent)]
    Library(#[from] wgpu_norm::Error),
    /// A function of MPI's failed.
    #[error("{function}: expected MPI_SUCCESS, got {code} ({message})")]
    Mpi {
        /// Its name.
        function: &'static str,
        /// What it returned.
        code: i32,
        /// What MPI says of that.
        message: String,
    },
    /// MPI is not initialized, or finalized already.
    #[error("MPI: expected it to run, got a call before MPI_Init or after MPI_Finalize")]
    NotRunning,
    /// More bytes than MPI counts.
    #[error("{what}: expected at most {limit} bytes, got {got}")]
    TooLarge {
        /// What they are.
        what: &'static str,
        /// How many there may be.
        limit: usize,
        /// How many there are.
        got: usize,
    },
    /// The other ranks did not come in time. The communicator cannot be used any more.
    #[error("rank {rank}: waited {seconds} s for the others in {function}")]
    Timeout {
        /// This rank.
        rank: usize,
        /// How long it waited.
        seconds: u64,
        /// In what.
        function: &'static str,
    },
}
