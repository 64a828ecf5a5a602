//! The results: the data, to and from JSON, and ways to show them.
//!
//! | module | shows |
//! |---|---|
//! | `row`, `tuned`, `pytorch` | nothing: data of cases, a search, another library's times |
//! | `summary` | median and lowest fraction of each kind of case |
//! | `table` | lines on stdout |
//! | `markdown` | a table for a document |
//! | `plot`, `svg` | a picture |

mod date;
pub mod markdown;
pub mod plot;
mod pytorch;
mod row;
pub mod summary;
mod svg;
pub mod table;
mod tuned;

pub use pytorch::Pytorch;
pub use row::{Model, Row};
pub use tuned::{Change, Ratio, Tuned};

use crate::failure::Failure;
use crate::files;
use crate::text::excerpt;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;
use wgpu_norm::GpuContext;

/// The measurements of a `bench` run. The fields have these names in JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    pub adapter: String,
    pub backend: String,
    pub driver: String,
    /// wgpu's name for the adapter's kind.
    pub kind: String,
    /// This crate's version.
    pub version: String,
    pub date: String,
    /// The method by which times were taken.
    pub timing: String,
    pub profile: String,
    /// How kernels round to f16.
    pub f16_encoder: Option<String>,
    pub stamps: Option<Stamps>,
    /// The copy bandwidth of the largest case, where caches help least.
    pub copy_gb_per_s: Option<f64>,
    pub around: Option<Around>,
    #[serde(rename = "results")]
    pub rows: Vec<Row>,
    pub skipped: Vec<Skipped>,
}

/// A case that could not run here, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Skipped {
    pub case: String,
    pub reason: String,
}

/// Costs around the kernels, measured for one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Around {
    pub case: String,
    pub open_ms: f64,
    pub bind_ms: f64,
    pub first_run_ms: f64,
    pub second_run_ms: f64,
    pub host_slices_ms: f64,
    pub host_slices_bytes: u64,
}

/// The times of dispatches that do nothing, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stamps {
    /// One alone, with the timestamps around it.
    pub first_us: f64,
    /// What each further one adds that waits for the one before.
    pub further_us: f64,
}

impl fmt::Display for Stamps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, more) = (self.first_us, self.further_us);
        write!(f, "empty dispatches: {first:.1} µs, then {more:.1} each")
    }
}

impl fmt::Display for Around {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "around the kernels, {}: {:.1} ms to open a device; the first call takes {:.1} ms to plan, compile and \
             bind and {:.1} ms to run, a second run {:.1} ms; a call on host slices, {:.1} MB in all, takes {:.1} ms",
            self.case,
            self.open_ms,
            self.bind_ms,
            self.first_run_ms,
            self.second_run_ms,
            self.host_slices_bytes as f64 / 1e6,
            self.host_slices_ms
        )
    }
}

impl Results {
    /// Results on this adapter, without any measurement yet.
    pub fn new(gpu: &GpuContext, timing: &str, stamps: Stamps) -> Self {
        let info = gpu.adapter_info();
        Self {
            adapter: info.name,
            backend: info.backend.to_string(),
            driver: format!("{} {}", info.driver, info.driver_info)
                .trim()
                .to_owned(),
            kind: format!("{:?}", info.device_type),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            date: date::now(),
            timing: timing.to_owned(),
            profile: gpu.profile().tuning.to_string(),
            f16_encoder: Some(gpu.profile().f16_encoder.name().to_owned()),
            stamps: Some(stamps),
            copy_gb_per_s: None,
            around: None,
            rows: Vec::new(),
            skipped: Vec::new(),
        }
    }

    /// Adds a case.
    pub fn push(&mut self, row: Row) {
        self.rows.push(row);
        let largest = self.rows.iter().max_by_key(|row| row.bytes());
        self.copy_gb_per_s = largest.and_then(|row| row.copy_gb_per_s);
    }

    /// The adapter, in words.
    pub fn place(&self) -> String {
        let Self {
            adapter,
            backend,
            driver,
            ..
        } = self;
        format!("{adapter} ({backend}, {driver})")
    }

    /// Whether shaders ran on a CPU.
    pub fn is_software(&self) -> bool {
        self.kind == "Cpu"
    }

    /// The name of the first case's set.
    pub fn set(&self) -> &str {
        self.rows.first().map_or("custom", |row| &row.set)
    }

    /// Reads what `bench --json` or `report` wrote.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        read(path, "`wgpu-norm bench --json` or `wgpu-norm report`")
    }
}

/// A value as JSON text.
pub fn to_json(value: &impl Serialize) -> String {
    // Keys are strings, and numbers are finite or null, so serialization succeeds.
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    format!("{text}\n")
}

/// Reads JSON written by `origin`.
pub fn read<T: DeserializeOwned>(path: &Path, origin: &str) -> Result<T, Failure> {
    let text = files::read_text(path).map_err(|source| Failure::Read {
        path: path.to_owned(),
        source,
    })?;
    serde_json::from_str(&text).map_err(|error| Failure::Format {
        path: path.to_owned(),
        expected: format!("what {origin} writes"),
        got: excerpt(&error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_holds_every_bit() {
        let mut results = Results {
            adapter: "an adapter".to_owned(),
            backend: "vulkan".to_owned(),
            driver: "a driver".to_owned(),
            kind: "Cpu".to_owned(),
            version: "0.1.0".to_owned(),
            date: "1970-01-01T00:00:00Z".to_owned(),
            timing: "GPU timestamps".to_owned(),
            profile: "workgroup=8".to_owned(),
            f16_encoder: None,
            stamps: None,
            copy_gb_per_s: None,
            around: Some(Around {
                case: "batch-norm 4x8x16x16 f32 NCX".to_owned(),
                open_ms: 100.0 / 3.0,
                bind_ms: 100.0 / 7.0,
                first_run_ms: 100.0 / 9.0,
                second_run_ms: 100.0 / 11.0,
                host_slices_ms: 100.0 / 13.0,
                host_slices_bytes: 100,
            }),
            rows: Vec::new(),
            skipped: vec![Skipped {
                case: "a case".to_owned(),
                reason: "a reason".to_owned(),
            }],
        };
        for n in 1..1000 {
            results.push(Row::example(n as f64 / 100.0));
        }
        let read: Results = serde_json::from_str(&to_json(&results)).unwrap();
        assert!(read == results, "numbers of the results changed");
    }
}
