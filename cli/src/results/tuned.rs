//! The findings of a search for a tuning.

use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tuned {
    /// The names of the cases that guided the search.
    pub cases: Vec<String>,
    /// The initial profile, and the best so far.
    pub from: String,
    pub to: String,
    /// The number of values tried, and whether all were tried.
    pub tried: u64,
    pub complete: bool,
    /// The adopted changes, in order.
    pub changes: Vec<Change>,
}

impl Tuned {
    /// The speedup of all changes together over all cases, measured in alternation.
    pub fn times_as_fast(&self) -> f64 {
        self.changes.last().map_or(1.0, |change| change.in_all)
    }
}

/// An adopted value, and its speedup over the one before, measured in alternation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    pub key: String,
    pub from: String,
    pub to: String,
    /// The geometric mean over the cases that it changes.
    pub times_as_fast: f64,
    /// The cases that it changes.
    pub cases: Vec<Ratio>,
    /// The geometric mean over all cases of all changes so far.
    pub in_all: f64,
}

/// The speedup of a change in one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    pub case: String,
    pub times_as_fast: f64,
}

impl Change {
    /// The case with the smallest speedup.
    pub fn least(&self) -> Option<&Ratio> {
        let by = |a: &&Ratio, b: &&Ratio| a.times_as_fast.total_cmp(&b.times_as_fast);
        self.cases.iter().min_by(by)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}={} instead of {}: {:.2} times as fast in {} cases",
            self.key,
            self.to,
            self.from,
            self.times_as_fast,
            self.cases.len()
        )?;
        match self.least() {
            Some(least) if self.cases.len() > 1 => {
                write!(f, ", {:.2} at least: {}", least.times_as_fast, least.case)
            }
            _ => Ok(()),
        }
    }
}
