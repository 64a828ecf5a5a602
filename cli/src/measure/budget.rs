//! A time budget.

use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
pub struct Budget {
    begin: Instant,
    total: Duration,
}

impl Budget {
    /// A budget of this many minutes from now on.
    pub fn minutes(minutes: f64) -> Self {
        let total = Duration::try_from_secs_f64(minutes * 60.0);
        Self {
            begin: Instant::now(),
            total: total.unwrap_or(Duration::ZERO),
        }
    }

    /// A budget that ends when this share of the whole is spent.
    pub fn until(self, share: f64) -> Self {
        Self {
            total: self.total.mul_f64(share.clamp(0.0, 1.0)),
            ..self
        }
    }

    pub fn is_over(&self) -> bool {
        self.begin.elapsed() >= self.total
    }
}

/// Parses minutes: from 0 to a week.
pub fn parse(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(minutes) if (0.0..=10_080.0).contains(&minutes) => Ok(minutes),
        _ => Err("expected minutes from 0 to 10080, like 10 or 0.5".to_owned()),
    }
}
