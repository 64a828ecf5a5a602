//! A communicator of this crate's own, which returns errors and whose waits end.
//!
//! All `unsafe` of this crate's library is here. The crate `mpi` ignores what collectives return, and waits without a
//! time limit. So MPI's functions are called directly: `MPI_Comm_idup`, `MPI_Iallgather` and `MPI_Test`, as well as
//! `MPI_Comm_set_errhandler`, `MPI_Abort`, `MPI_Error_string`, `MPI_Initialized` and `MPI_Finalized`. The requirements
//! of each are stated where it is called.

use crate::Error;
use mpi::ffi;
use mpi::topology::Communicator as AnyCommunicator;
use std::ffi::c_int;
use std::io::Write;
use std::marker::PhantomData;
use std::thread;
use std::time::{Duration, Instant};
use wgpu_norm::synchronized::AllGather;

/// The time that ranks wait for each other.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// A rank that waits longer than this for another one ends the job: a collective that has begun cannot be
    /// cancelled, and `MPI_Finalize` would wait for it. 30 seconds by default. Set it higher if ranks may differ by
    /// more in the time that they read or compute between two calls.
    pub timeout: Duration,
    /// Called before a timeout ends the job, since no destructor runs then.
    pub at_end: Option<fn()>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            at_end: None,
        }
    }
}

/// A duplicate of a communicator, so that its messages cannot be confused with others.
///
/// It is not freed before `MPI_Finalize`: freeing is collective, and ranks drop it at different times. After
/// `MPI_Finalize` it only returns errors. It stays on the thread that created it.
#[derive(Debug)]
pub struct Communicator {
    raw: ffi::MPI_Comm,
    rank: usize,
    ranks: usize,
    options: Options,
    /// On some implementations an MPI communicator is not a pointer.
    _on_its_thread: PhantomData<*const ()>,
}

impl Communicator {
    /// Duplicates a communicator. All its ranks must call this together.
    ///
    /// # Errors
    ///
    /// [`Error::Mpi`]. If a rank does not come in time, the job ends.
    pub fn duplicate(of: &impl AnyCommunicator, options: Options) -> Result<Self, Error> {
        let [rank, ranks] = [of.rank(), of.size()].map(|n| usize::try_from(n).unwrap_or(0));
        let original = of.as_raw();
        let waiting = Waiting {
            function: "MPI_Comm_idup",
            rank,
            options,
            comm: original,
        };
        let done = waiting.wait(Pending::new(vec![], vec![]), |pending| {
            // SAFETY: `original` is alive, for `of` is borrowed. Both places that MPI writes to live until the request
            // is done, as `wait` guarantees.
            unsafe {
                ffi::MPI_Comm_idup(
                    original,
                    &raw mut (*pending).comm,
                    &raw mut (*pending).request,
                )
            }
        })?;
        let raw = done.comm;
        // SAFETY: `raw` is alive, as it was just created; the handler is a constant of MPI's.
        let code = unsafe { ffi::MPI_Comm_set_errhandler(raw, ffi::RSMPI_ERRORS_RETURN) };
        check("MPI_Comm_set_errhandler", code)?;
        Ok(Self {
            raw,
            rank,
            ranks,
            options,
            _on_its_thread: PhantomData,
        })
    }

    /// This process's number, from 0 on.
    pub const fn rank(&self) -> usize {
        self.rank
    }

    /// The number of processes.
    pub const fn ranks(&self) -> usize {
        self.ranks
    }

    /// Returns the bytes of all ranks, equally many from each, in the order of ranks.
    ///
    /// # Errors
    ///
    /// [`Error::Mpi`]; [`Error::TooLarge`] from 2 GiB on. If a rank does not come in time, the job ends.
    pub fn all_gather(&self, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        if bytes.is_empty() {
            // Ranks still wait for each other.
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
        // SAFETY: a constant of MPI's.
        let byte = unsafe { ffi::RSMPI_UINT8_T };
        let received = vec![0; bytes.len() * self.ranks];
        let waiting = Waiting {
            function: "MPI_Iallgather",
            rank: self.rank,
            options: self.options,
            comm: self.raw,
        };
        let done = waiting.wait(Pending::new(bytes.to_vec(), received), |pending| {
            // SAFETY: `raw` is alive, since MPI runs. `sent` has `count` bytes and `received` as many for each rank.
            // Both, like the request, stay in place until the request is done, as `wait` guarantees.
            unsafe {
                ffi::MPI_Iallgather(
                    (*pending).sent.cast(),
                    count,
                    byte,
                    (*pending).received.cast(),
                    count,
                    byte,
                    self.raw,
                    &raw mut (*pending).request,
                )
            }
        })?;
        Ok(done.received)
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

/// The command's view of it.
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

/// The data that a collective reads and writes until it is done. It has only pointers, so that MPI's pointers stay
/// valid if it moves.
struct Pending {
    request: ffi::MPI_Request,
    comm: ffi::MPI_Comm,
    sent: *mut u8,
    sent_bytes: usize,
    received: *mut u8,
    received_bytes: usize,
}

/// The result of a collective.
struct Done {
    comm: ffi::MPI_Comm,
    received: Vec<u8>,
}

impl Pending {
    /// Allocates it on the heap, where it stays until [`done`](Self::done).
    fn new(sent: Vec<u8>, received: Vec<u8>) -> *mut Self {
        // SAFETY: constants of MPI's.
        let (request, comm) = unsafe { (ffi::RSMPI_REQUEST_NULL, ffi::RSMPI_COMM_NULL) };
        let [sent, received] = [sent, received].map(Vec::into_boxed_slice);
        Box::into_raw(Box::new(Self {
            request,
            comm,
            sent_bytes: sent.len(),
            sent: Box::into_raw(sent).cast(),
            received_bytes: received.len(),
            received: Box::into_raw(received).cast(),
        }))
    }

    /// Takes it back from the heap.
    ///
    /// # Safety
    ///
    /// `pending` comes from `new` and was not passed here before, and MPI no longer uses it.
    unsafe fn done(pending: *mut Self) -> Done {
        // SAFETY: `new` made `pending` from a box, and both slices from boxes of these lengths.
        let (pending, received) = unsafe {
            let pending = Box::from_raw(pending);
            let slice =
                |start, bytes| Box::from_raw(std::ptr::slice_from_raw_parts_mut(start, bytes));
            drop(slice(pending.sent, pending.sent_bytes));
            let received = slice(pending.received, pending.received_bytes);
            (pending, received)
        };
        Done {
            comm: pending.comm,
            received: received.into_vec(),
        }
    }
}

/// A collective of this thread.
struct Waiting {
    function: &'static str,
    rank: usize,
    options: Options,
    comm: ffi::MPI_Comm,
}

impl Waiting {
    /// Begins the collective and waits until it is done; ends the job if that takes too long. The data given to MPI
    /// stays in place until the collective is done, or forever if that is not known.
    fn wait(
        &self,
        pending: *mut Pending,
        begin: impl FnOnce(*mut Pending) -> c_int,
    ) -> Result<Done, Error> {
        if !is_running() {
            // SAFETY: nobody else has `pending`, and MPI has not seen it.
            drop(unsafe { Pending::done(pending) });
            return Err(Error::NotRunning);
        }
        check(self.function, begin(pending))?;
        let start = Instant::now();
        let mut pause = Duration::from_micros(1);
        loop {
            let mut done: c_int = 0;
            // SAFETY: the request was set by a collective and is not freed yet; `done` is alive; the status is a
            // constant of MPI's that stands for none.
            let code = unsafe {
                ffi::MPI_Test(
                    &raw mut (*pending).request,
                    &mut done,
                    ffi::RSMPI_STATUS_IGNORE,
                )
            };
            check(self.function, code)?;
            if done != 0 {
                // SAFETY: MPI let go of `pending` with the request, and nobody else has it.
                return Ok(unsafe { Pending::done(pending) });
            }
            let waited = start.elapsed();
            if waited > self.options.timeout {
                return Err(self.end_the_job(waited));
            }
            // Takes a few microseconds if all ranks are there; does not occupy a whole processor if one is not.
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
        if let Some(at_end) = self.options.at_end {
            at_end();
        }
        // SAFETY: the communicator is alive: it is the caller's in `duplicate`, else our own.
        let code = unsafe { ffi::MPI_Abort(self.comm, 1) };
        log::error!("MPI_Abort returned {code}");
        error
    }
}

/// Whether MPI was initialized and not finalized yet.
fn is_running() -> bool {
    let (mut begun, mut ended): (c_int, c_int) = (0, 0);
    // SAFETY: both may be called at any time, and write to live variables.
    let codes = unsafe {
        [
            ffi::MPI_Initialized(&mut begun),
            ffi::MPI_Finalized(&mut ended),
        ]
    };
    codes.iter().all(|&code| code == ffi::MPI_SUCCESS as c_int) && begun != 0 && ended == 0
}

fn check(function: &'static str, code: c_int) -> Result<(), Error> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = vec![0_u8; 1024]; // MPI_MAX_ERROR_STRING is 256 or 512 in existing implementations
    let mut length: c_int = 0;
    // SAFETY: the text has room for any message, and it and its length are alive.
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
