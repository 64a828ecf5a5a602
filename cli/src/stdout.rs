//! Results on stdout.

use crate::failure::Failure;
use crate::text::visible;
use std::fmt::Display;
use std::io::{ErrorKind, Write};

/// Prints a line. It is no failure if the reader has closed the pipe.
pub fn line(text: impl Display) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    let text = visible(&text.to_string());
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::Stdout(error)),
        _ => Ok(()),
    }
}
