//! The errors.

/// A failure of the layer, or of MPI.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The layer refused, or another rank failed or made another call: see [`wgpu_norm::Error::Ranks`].
    #[error(transparent)]
    Library(#[from] wgpu_norm::Error),
    /// A function of MPI's failed.
    #[error("{function}: expected MPI_SUCCESS, got {code} ({message})")]
    Mpi {
        /// The function's name.
        function: &'static str,
        /// Its return value.
        code: i32,
        /// MPI's message for that value.
        message: String,
    },
    /// MPI is not initialized, or already finalized.
    #[error("MPI: expected it to run, got a call before MPI_Init or after MPI_Finalize")]
    NotRunning,
    /// More bytes than MPI can count.
    #[error("{what}: expected at most {limit} bytes, got {got}")]
    TooLarge {
        /// The contents of these bytes.
        what: &'static str,
        /// The maximum number.
        limit: usize,
        /// The actual number.
        got: usize,
    },
    /// The other ranks did not come in time. The communicator cannot be used any more.
    #[error("rank {rank}: waited {seconds} s for the others in {function}")]
    Timeout {
        /// This rank.
        rank: usize,
        /// The time that it waited.
        seconds: u64,
        /// The function that it waited in.
        function: &'static str,
    },
}
