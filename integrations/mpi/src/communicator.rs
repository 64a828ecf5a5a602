//! A communicator of this crate's own, whose errors come back and whose waits end.
//!
//! All `unsafe` of this crate's library is here. The crate `mpi` calls collectives without looking at what they return, and waits
//! without end; so three of MPI's functions are called as they are: `MPI_Comm_idup`, `MPI_Iallgather` and `MPI_Test`, beside
//! `MPI_Comm_set_errhandler`, `MPI_Abort` and `MPI_Error_string`. What each needs stands where it is called.

use crate::Error;
use mpi::ffi;
use mpi::topology::Communicator as AnyCommunicator;
use std::ffi::c_int;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};
use wgpu_norm::synchronized::AllGather;

/// How long ranks wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// After so long, a rank that waits for another one ends the job: a collective that has begun cannot be taken back, and
    /// `MPI_Finalize` would wait for it. 30 seconds by default; more where a rank may read or compute for longer between
    /// two calls than another.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
        }
    }
}

/// A duplicate of a communicator, so that no other message is taken for one of these.
///
/// It is not freed before `MPI_Finalize`: freeing is collective, and ranks let go of it at different times.
#[derive(Debug)]
pub struct Communicator {
    raw: ffi::MPI_Comm,
    rank: usize,
    ranks: usize,
    options: Options,
}

impl Communicator {
    /// Duplicates a communicator. All its ranks call it at once.
    ///
    /// # Errors
    ///
    /// [`Error::Mpi`]. Where a rank does not come in time, the job ends.
    pub fn duplicate(of: &impl AnyCommunicator, options: Options) -> Result<Self, Error> {
        let [rank, ranks] = [of.rank(), of.size()].map(|n| usize::try_from(n).unwrap_or(0));
        let original = of.as_raw();
        // SAFETY: a constant of MPI's.
        let (none, null) = unsafe { (ffi::RSMPI_REQUEST_NULL, ffi::RSMPI_COMM_NULL) };
        let mut pending = Box::new(Pending {
            request: none,
            comm: null,
            sent: vec![],
            received: vec![],
        });
        let Pending { comm, request, .. } = &mut *pending;
        // SAFETY: `original` is alive, for `of` is borrowed. Both places that MPI writes to are alive until the request is
        // done: `wait` lets go of them only then.
        let code = unsafe { ffi::MPI_Comm_idup(original, comm, request) };
        check("MPI_Comm_idup", code)?;
        let waiting = Waiting {
            function: "MPI_Comm_idup",
            rank,
            options,
            comm: original,
        };
        let raw = waiting.wait(pending)?.comm;
        // SAFETY: `raw` is alive, since it was just made; the handler is a constant of MPI's.
        let code = unsafe { ffi::MPI_Comm_set_errhandler(raw, ffi::RSMPI_ERRORS_RETURN) };
        check("MPI_Comm_set_errhandler", code)?;
        Ok(Self {
            raw,
            rank,
            ranks,
            options,
        })
    }

    /// This process's number, from 0 on.
    pub const fn rank(&self) -> usize {
        self.rank
    }

    /// How many processes there are.
    pub const fn ranks(&self) -> usize {
        self.ranks
    }

    /// Gives all ranks everyone's bytes, as many of each, in the order of ranks.
    ///
    /// # Errors
    ///
    /// [`Error::Mpi`]; [`Error::TooLarge`] from 2 GiB on. Where a rank does not come in time, the job ends.
    pub fn all_gather(&self, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        if bytes.is_empty() {
            // Ranks wait for each other all the same.
            return self.all_gather(&[0]).map(|_| vec![]);
        }
        let limit = c_int::MAX as usize / self.ranks.max(1);
        let count = match c_int::try_from(bytes.len()) {
            Ok(count) if bytes.len() <= limit => count,
            _ => {
                return Err(Error::TooLarge {
                    what: "a rank's message",
                    limit,
                    got: bytes.len(),
                });
            }
        };
        // SAFETY: constants of MPI's.
        let (none, byte, null) = unsafe {
            (
                ffi::RSMPI_REQUEST_NULL,
                ffi::RSMPI_UINT8_T,
                ffi::RSMPI_COMM_NULL,
            )
        };
        let mut pending = Box::new(Pending {
            request: none,
            comm: null,
            sent: bytes.to_vec(),
            received: vec![0; bytes.len() * self.ranks],
        });
        let Pending {
            request,
            sent,
            received,
            ..
        } = &mut *pending;
        // SAFETY: `raw` is alive. `sent` has `count` bytes and `received` as many for each rank, and both, like the request,
        // stay where they are until the request is done: `wait` lets go of them only then.
        let code = unsafe {
            ffi::MPI_Iallgather(
                sent.as_ptr().cast(),
                count,
                byte,
                received.as_mut_ptr().cast(),
                count,
                byte,
                self.raw,
                request,
            )
        };
        check("MPI_Iallgather", code)?;
        let waiting = Waiting {
            function: "MPI_Iallgather",
            rank: self.rank,
            options: self.options,
            comm: self.raw,
        };
        Ok(waiting.wait(pending)?.received)
    }
}

impl AllGather for Communicator {
    type Error = Error;

    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    async fn all_gather(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        Self::all_gather(self, bytes)
    }
}

/// For the command.
impl wgpu_norm_cli::Ranks for Communicator {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn all_gather(&mut self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        Self::all_gather(self, bytes).map_err(|error| error.to_string())
    }
}

/// What a collective reads and writes until it is done.
struct Pending {
    request: ffi::MPI_Request,
    comm: ffi::MPI_Comm,
    sent: Vec<u8>,
    received: Vec<u8>,
}

/// A collective that has begun.
struct Waiting {
    function: &'static str,
    rank: usize,
    options: Options,
    comm: ffi::MPI_Comm,
}

impl Waiting {
    /// Waits until it is done; ends the job where that takes too long.
    fn wait(&self, mut pending: Box<Pending>) -> Result<Box<Pending>, Error> {
        let start = Instant::now();
        let mut pause = Duration::from_micros(1);
        loop {
            let mut done: c_int = 0;
            // SAFETY: the request is one that a collective has set, and not freed yet; `done` is alive; the status is a
            // constant of MPI's that stands for none.
            let code =
                unsafe { ffi::MPI_Test(&mut pending.request, &mut done, ffi::RSMPI_STATUS_IGNORE) };
            if let Err(error) = check(self.function, code) {
                // It is not known whether MPI still writes there.
                Box::leak(pending);
                return Err(error);
            }
            if done != 0 {
                return Ok(pending);
            }
            let waited = start.elapsed();
            if waited > self.options.timeout {
                // MPI goes on writing there.
                Box::leak(pending);
                return Err(self.end_the_job(waited));
            }
            // Few microseconds where all are at it; no whole processor where one is not.
            if waited > Duration::from_micros(200) {
                thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(1));
            }
        }
    }

    fn end_the_job(&self, waited: Duration) -> Error {
        let error = Error::Timeout {
            rank: self.rank,
            seconds: waited.as_secs(),
            function: self.function,
        };
        // Not `eprintln!`, which panics where stderr is closed.
        let _ = writeln!(std::io::stderr(), "error: {error}");
        // SAFETY: the communicator is alive: of `duplicate` its caller's, else our own.
        let code = unsafe { ffi::MPI_Abort(self.comm, 1) };
        log::error!("MPI_Abort returned {code}");
        error
    }
}

fn check(function: &'static str, code: c_int) -> Result<(), Error> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = vec![0_u8; 1024]; // MPI_MAX_ERROR_STRING is 256 and 512 in what there is
    let mut length: c_int = 0;
    // SAFETY: the text is as long as any message is, and alive, as is its length.
    let said = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut length) };
    let known = said == ffi::MPI_SUCCESS as c_int;
    text.truncate(usize::try_from(length).unwrap_or(0));
    Err(Error::Mpi {
        function,
        code,
        message: match known {
            true => String::from_utf8_lossy(&text).into_owned(),
            false => "unknown".to_owned(),
        },
    })
}
