//! The files of a report. Each is replaced as a whole, so that a run may end at any time.

use super::data::Data;
use super::page::{self, PLOT};
use crate::failure::Failure;
use crate::output::Output;
use crate::results::{self, plot};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

pub struct Folder {
    json: Output,
    page: Output,
    plot: Output,
}

/// The files' names.
const JSON: &str = "report.json";
const PAGE: &str = "report.md";

impl Folder {
    /// A folder for a new report. An existing report is not replaced: its numbers may be all that there will ever be
    /// for an adapter.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let unwritable = |path: PathBuf, source| Failure::Write { path, source };
        std::fs::create_dir_all(path).map_err(|source| unwritable(path.to_owned(), source))?;
        let json = path.join(JSON);
        match std::fs::symlink_metadata(&json) {
            Err(error) if error.kind() == ErrorKind::NotFound => Self::at(path),
            Err(error) => Err(unwritable(json, error)),
            Ok(_) => {
                let message = "there is one already; name another folder";
                Err(unwritable(json, io::Error::other(message)))
            }
        }
    }

    /// A folder that has a report.
    pub fn open(path: &Path) -> Result<(Self, Data), Failure> {
        let data = results::read(&path.join(JSON), "`wgpu-norm report`")?;
        Ok((Self::at(path)?, data))
    }

    fn at(path: &Path) -> Result<Self, Failure> {
        Ok(Self {
            json: Output::prepare(&path.join(JSON))?,
            page: Output::prepare(&path.join(PAGE))?,
            plot: Output::prepare(&path.join(PLOT))?,
        })
    }

    /// The path of the page.
    pub fn page(&self) -> impl std::fmt::Display {
        self.page.path().display()
    }

    /// Writes all files.
    pub fn write(&self, data: &Data) -> Result<(), Failure> {
        self.json
            .write_bytes(&[results::to_json(data).as_bytes()])?;
        self.write_page(data)
    }

    /// Writes the files for people to read.
    pub fn write_page(&self, data: &Data) -> Result<(), Failure> {
        let plot = plot::svg(&data.results, data.pytorch.as_ref());
        self.plot.write_bytes(&[plot.as_bytes()])?;
        self.page.write_bytes(&[page::markdown(data).as_bytes()])
    }
}
