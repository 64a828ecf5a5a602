//! Results on stdout.

use crate::failure::Failure;
use std::fmt::Display;
use std::io::{ErrorKind, Write};

/// Prints a line. A reader that went away wants no more, which is no failure.
pub fn line(text: impl Display) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::Stdout(error)),
        _ => Ok(()),
    }
}
