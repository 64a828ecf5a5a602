//! A table in a document, between two marks:
//!
//! ```text
//! <!-- bench:begin NAME -->
//! <!-- bench:end NAME -->
//! ```

use crate::failure::Failure;
use crate::files;
use crate::output::Output;
use crate::results::{Results, markdown};
use crate::text::one_line;
use std::io::ErrorKind;
use std::path::Path;

/// A document whose table is to be replaced.
pub struct Document {
    output: Output,
    before: String,
    after: String,
}

impl Document {
    /// Looks for the marks before work is spent on the table. A document that does not exist yet will have nothing
    /// else.
    pub fn open(path: &Path, name: &str) -> Result<Self, Failure> {
        let output = Output::prepare(path)?;
        let (begin, end) = marks(name);
        let text = match files::read_text(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => format!("{begin}\n{end}\n"),
            Err(source) => {
                let path = path.to_owned();
                return Err(Failure::Read { path, source });
            }
        };
        let parts = text.split_once(&begin).and_then(|(before, rest)| {
            let (_, after) = rest.split_once(&end)?;
            Some((format!("{before}{begin}\n"), format!("{end}{after}")))
        });
        let (before, after) = parts.ok_or_else(|| Failure::Format {
            path: path.to_owned(),
            expected: format!("the lines {begin} and {end}"),
            got: "a text without them".to_owned(),
        })?;
        Ok(Self {
            output,
            before,
            after,
        })
    }

    /// Writes the document with the results' table.
    pub fn write(&self, results: &Results) -> Result<(), Failure> {
        let table = markdown::all(results);
        let text = format!("{}\n{table}\n{}", self.before, self.after);
        self.output.write_bytes(&[text.as_bytes()])
    }
}

/// The lines of the marks; the name may come from a file.
fn marks(name: &str) -> (String, String) {
    let name = one_line(name);
    (
        format!("<!-- bench:begin {name} -->"),
        format!("<!-- bench:end {name} -->"),
    )
}
