//! Progress on stderr: a spinner if that is a terminal, and lines that stay.

use crate::text::visible;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// A spinner that disappears when dropped.
pub struct Progress(ProgressBar);

impl Progress {
    /// A spinner, hidden if stderr is no terminal.
    pub fn new() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::quiet();
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }

    /// A hidden spinner.
    pub fn quiet() -> Self {
        Self(ProgressBar::hidden())
    }

    /// Whether nobody sees the spinner.
    pub fn is_hidden(&self) -> bool {
        self.0.is_hidden()
    }

    /// Says what is being done now.
    pub fn step(&self, what: &str) {
        self.0.reset_elapsed();
        self.0.set_message(visible(what));
    }

    /// Says what part of something is done.
    pub fn portion(&self, what: &str, done: u64, all: u64) {
        let percent = 100.0 * done as f64 / all.max(1) as f64;
        let message = format!("{} {percent:.0} %", visible(what));
        self.0.set_message(message);
    }

    /// Writes a line that stays.
    pub fn note(&self, line: &str) {
        // Not `eprintln!`, which panics where stderr is closed.
        self.suspend(|| _ = writeln!(std::io::stderr(), "{}", visible(line)));
    }

    /// Does work that may itself write to stderr.
    pub fn suspend<T>(&self, work: impl FnOnce() -> T) -> T {
        self.0.suspend(work)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
