//! "Is it right here?": the default list of `wgpu-norm verify`, one case at a time.

use serde_json::{Value, json};
use web_time::Instant;
use wgpu_norm::{Error, GpuContext};
use wgpu_norm_verify::{Case, Outcome, Summary, cases};

/// The list, and what has been found so far.
pub struct Verify {
    cases: Vec<Case>,
    summary: Summary,
    seconds: f64,
}

impl Verify {
    /// The cases whose IDs contain one of these words, separated by commas, or all if there is none. Nothing has run
    /// yet.
    pub fn new(gpu: &GpuContext, words: &str) -> Self {
        let mut cases = cases(false);
        cases.retain(|case| {
            let id = case.to_string();
            words.split(',').any(|word| id.contains(word))
        });
        Self {
            cases,
            summary: Summary::new(gpu),
            seconds: 0.0,
        }
    }

    /// The number of cases.
    pub fn len(&self) -> usize {
        self.cases.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.cases.is_empty()
    }

    /// Runs the case at this place of the list.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceLost`] alone: any other error is the case's fault.
    pub async fn run(&mut self, gpu: &GpuContext, index: usize) -> Result<Value, Error> {
        let Some(case) = self.cases.get(index) else {
            return Ok(Value::Null);
        };
        // The full list has thousands of pipelines, which no later case needs.
        if index % 64 == 63 {
            gpu.forget_pipelines();
        }
        let begun = Instant::now();
        let outcome = case.run(gpu).await;
        let seconds = begun.elapsed().as_secs_f64();
        self.seconds += seconds;
        if let Err(error @ Error::DeviceLost { .. }) = outcome {
            return Err(error);
        }
        let unsupported = match &outcome {
            Ok(Outcome::Unsupported { reason }) => Some(reason.clone()),
            _ => None,
        };
        let fault = self.summary.add(index, case, outcome, seconds);
        Ok(json!({
            "case": case.to_string(),
            "operator": case.operation().name(),
            "unsupported": unsupported,
            "fault": fault,
        }))
    }

    /// The results as a report has them, if any case has run.
    pub fn verdict(&self) -> Option<Value> {
        if self.seconds == 0.0 {
            return None;
        }
        let mut summary = self.summary.clone();
        summary.finish(self.cases.len(), self.seconds);
        Some(json!({
            "passed": summary.failed() == 0,
            "words": summary.verdict(),
            "table": summary.to_markdown(),
            "details": summary.to_json(),
        }))
    }
}
