//! Everything that a report has found, as in report.json.

use super::options::Kind;
use super::verify::Verdict;
use crate::adapters::Adapter;
use crate::args::name_of;
use crate::results::{Pytorch, Results, Tuned};
use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Data {
    /// The command line.
    pub command: String,
    pub minutes: f64,
    pub parts: Vec<Part>,
    pub adapters: Vec<Adapter>,
    pub verify: Option<Verdict>,
    /// The measurements, as `bench --json` writes them.
    #[serde(flatten)]
    pub results: Results,
    pub search: Option<Tuned>,
    /// Added by `benches/peers/pytorch.py`.
    pub pytorch: Option<Pytorch>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    pub kind: Kind,
    pub state: State,
    /// How much was done, or why not.
    pub note: String,
    pub seconds: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    NotBegun,
    /// In a report that was cut off; it keeps what there was until then.
    UnderWay,
    Done,
    OutOfTime,
    NotMeasured,
    Failed,
}

impl Data {
    /// A report without any measurements.
    pub fn new(results: Results, minutes: f64, parts: &[Kind]) -> Self {
        let part = |&kind: &Kind| Part {
            kind,
            state: State::NotBegun,
            note: String::new(),
            seconds: 0.0,
        };
        let words = std::env::args_os().skip(1);
        let words: Vec<_> = words
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        Self {
            command: format!("wgpu-norm {}", words.join(" ")),
            minutes,
            parts: parts.iter().map(part).collect(),
            adapters: Vec::new(),
            verify: None,
            results,
            search: None,
            pytorch: None,
        }
    }

    /// A part, if it was asked for.
    pub fn part(&self, kind: Kind) -> Option<&Part> {
        self.parts.iter().find(|part| part.kind == kind)
    }

    /// How much was verified and measured: two sentences.
    pub fn extent(&self) -> [String; 2] {
        [("Verified", Kind::Verify), ("Measured", Kind::Bench)].map(|(word, kind)| {
            let part = self.part(kind);
            let outcome = part.map_or("not asked for".to_owned(), Part::outcome);
            format!("{word}: {outcome}.")
        })
    }

    /// Says how far a part has come.
    pub fn note(&mut self, kind: Kind, note: String) {
        if let Some(part) = self.parts.iter_mut().find(|part| part.kind == kind) {
            part.note = note;
        }
    }

    /// The parts that failed, as text, if any did.
    pub fn failure(&self) -> Option<String> {
        let failed = self.parts.iter().filter(|part| part.state == State::Failed);
        let failed: Vec<String> = failed.map(Part::to_string).collect();
        (!failed.is_empty()).then(|| failed.join("; "))
    }
}

impl Part {
    /// What has become of it, in words.
    fn outcome(&self) -> String {
        let state = match self.state {
            State::NotBegun => "not begun",
            State::UnderWay => "cut off, or still under way",
            State::Done => "done",
            State::OutOfTime if self.note.is_empty() => "left out for want of time",
            State::OutOfTime => "out of time",
            State::NotMeasured => "not measured",
            State::Failed => "failed",
        };
        match (self.state, self.note.as_str()) {
            (_, "") => state.to_owned(),
            (State::Done, note) => note.to_owned(),
            (_, note) => format!("{state}, {note}"),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", name_of(self.kind), self.outcome())
    }
}
