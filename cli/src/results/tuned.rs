//! What a search for a tuning found.

use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tuned {
    /// What the search went by.
    pub cases: Vec<String>,
    /// The profile that it began with, and the best so far.
    pub from: String,
    pub to: String,
    /// How many values were tried, and whether there were no more to try.
    pub tried: u64,
    pub complete: bool,
    /// What was taken, in order.
    pub changes: Vec<Change>,
}

impl Tuned {
    /// What all changes together gain over all cases, measured in turns.
    pub fn times_as_fast(&self) -> f64 {
        self.changes.last().map_or(1.0, |change| change.in_all)
    }
}

/// A value that was taken, and what it gained over the one before, measured in turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    pub key: String,
    pub from: String,
    pub to: String,
    /// The geometric mean of the cases that it changes.
    pub times_as_fast: f64,
    /// The cases that it changes.
    pub cases: Vec<Ratio>,
    /// The geometric mean over all cases, of all changes so far.
    pub in_all: f64,
}

/// What a change gains in one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    pub case: String,
    pub times_as_fast: f64,
}

impl Change {
    /// The case that gained least.
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
