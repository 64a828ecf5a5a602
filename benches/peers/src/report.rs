//! Measurements as JSON: what every peer writes.

use crate::Result;
use crate::case::{Case, Groups};
use crate::gpu::Gpu;
use crate::measure::Statistic;
use crate::peer::Peer;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The lock file says which versions were built.
const LOCK: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.lock"));

/// A peer's measurements on one device.
#[derive(Serialize, Deserialize)]
pub struct Report {
    pub peer: String,
    pub version: String,
    #[serde(alias = "adapter")]
    pub device: String,
    pub driver: String,
    pub date: String,
    /// What was made of many times; medians where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<String>,
    pub results: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
pub struct Entry {
    pub op: String,
    pub shape: String,
    pub dtype: String,
    /// Where an operator has several.
    pub data_format: Option<String>,
    pub time_ms: f64,
    /// Which of the peer's ways it was.
    pub variant: String,
}

impl Report {
    /// An empty one of today.
    pub fn new(peer: Peer, gpu: &Gpu, statistic: Statistic) -> Self {
        Self {
            peer: peer.name().to_owned(),
            version: version(peer.package()).unwrap_or("unknown").to_owned(),
            device: gpu.name(),
            driver: gpu.driver(),
            date: today(),
            times: (statistic == Statistic::Least).then(|| "minima".to_owned()),
            results: Vec::new(),
        }
    }

    pub fn add(&mut self, case: &Case, variant: &str, time_ms: f64) {
        self.results.push(Entry {
            op: case.op(),
            shape: case.shape().to_string(),
            dtype: "f32".to_owned(),
            data_format: (case.groups != Groups::Rows).then(|| "NCX".to_owned()),
            time_ms,
            variant: variant.to_owned(),
        });
    }
}

pub fn write(path: &Path, reports: &[Report]) -> Result<()> {
    let mut text = serde_json::to_string_pretty(reports)?;
    text.push('\n');
    std::fs::write(path, text)
        .map_err(|error| format!("writing {}: {error}", path.display()).into())
}

/// One report or an array of them.
pub fn read(path: &Path) -> Result<Vec<Report>> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum File {
        Many(Vec<Report>),
        One(Report),
    }
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("reading {name}: {error}"))?;
    match serde_json::from_str(&text) {
        Ok(File::Many(reports)) => Ok(reports),
        Ok(File::One(report)) => Ok(vec![report]),
        Err(error) => Err(format!("{name} is not a file of measurements: {error}").into()),
    }
}

fn version(package: &str) -> Option<&'static str> {
    let (_, rest) = LOCK.split_once(&format!("name = \"{package}\"\nversion = \""))?;
    rest.split_once('"').map(|(version, _)| version)
}

/// Today in UTC, as year-month-day.
fn today() -> String {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let mut days = seconds / 86_400;
    let leap = |year: u64| {
        (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400)
    };
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
}
