//! The measurements.
//!
//! | module | knows |
//! |---|---|
//! | `operators` | the operators |
//! | `sets` | the shapes, and the cases built from them |
//! | `selection` | the flags that choose among them |
//! | `device`, `rotation`, `timing`, `busy` | buffers, several sets of them in turns, clocks, work that keeps a GPU's clock up |
//! | `copy`, `subject` | the work that is timed: copies, operators on their buffers |
//! | `bencher`, `around` | both of these in alternation, costs around the kernels |
//! | `budget` | the time budget |
//! | `search`, `trial` | the search for a tuning, and its measurements |

pub mod around;
pub mod bencher;
pub mod budget;
mod busy;
mod copy;
mod device;
pub mod operators;
mod rotation;
pub mod search;
pub mod selection;
pub mod sets;
mod subject;
pub mod timing;
pub mod trial;

use crate::failure::Failure;
use wgpu_norm::Error;

/// A result, or the reason why the adapter cannot run this case; other errors are failures of the whole run.
pub fn possible<T>(result: Result<T, Error>) -> Result<Result<T, Error>, Failure> {
    match result {
        Err(
            error @ (Error::Limit { .. }
            | Error::OutOfMemory { .. }
            | Error::HostMemory { .. }
            | Error::UnsupportedDType { .. }
            | Error::Algorithm { .. }
            | Error::SizeOverflow { .. }),
        ) => Ok(Err(error)),
        Err(error) => Err(error.into()),
        Ok(value) => Ok(Ok(value)),
    }
}
