//! What can go wrong.

use std::fmt;

/// An error of a training.
#[derive(Debug)]
pub enum Error {
    /// The batch size is out of range.
    Batch(usize),
    /// wgpu or wgpu-norm failed.
    Gpu(wgpu_norm::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batch(batch) => write!(f, "batch: expected from 8 to 256 images, got {batch}"),
            Self::Gpu(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<wgpu_norm::Error> for Error {
    fn from(error: wgpu_norm::Error) -> Self {
        Self::Gpu(error)
    }
}
