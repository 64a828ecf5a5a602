//! PyTorch's times of the same cases, as `benches/peers/pytorch.py` writes them. Fields that are none are missing in
//! files made from a printed table.

use super::Row;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pytorch {
    pub version: String,
    pub device: String,
    pub driver: String,
    pub date: Option<String>,
    pub results: Vec<Timed>,
    pub skipped: Vec<super::Skipped>,
}

/// A case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    pub op: String,
    pub shape: String,
    pub dtype: String,
    pub data_format: Option<String>,
    pub params_dtype: Option<String>,
    /// The gradient's GPU time, and the time from the host's call to its end.
    pub time_ms: f64,
    /// The number of runs between two events.
    pub repeats: Option<u64>,
    pub wall_ms: Option<f64>,
    pub forward_ms: Option<f64>,
}

impl Pytorch {
    /// The times of the case that a row describes.
    pub fn of(&self, row: &Row) -> Option<&Timed> {
        self.results.iter().find(|timed| {
            timed.op == row.op
                && timed.shape == row.shape
                && timed.dtype == row.dtype
                && timed.data_format == row.data_format
                && row.variant().is_empty()
        })
    }
}
