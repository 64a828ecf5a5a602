//! Writes safetensors files that appear whole or not at all.

use crate::failure::Failure;
use crate::files;
use crate::temporary::{Temporary, folder_of};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use std::cmp::Reverse;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use wgpu_norm::{DType, Format, Tensor};

/// A tensor in the file.
#[derive(Clone, Debug)]
pub struct Described {
    pub tensor: Tensor,
    pub format: Format,
    pub shape: Vec<usize>,
}

impl Described {
    /// The name of the element type in the file, and the size of an element in bytes.
    fn dtype(&self) -> (Dtype, usize) {
        match self.format {
            Format::Elements(DType::F16) => (Dtype::F16, 2),
            Format::Elements(DType::Bf16) => (Dtype::BF16, 2),
            Format::Elements(DType::F32) => (Dtype::F32, 4),
            Format::Elements(DType::F64) => (Dtype::F64, 8),
            _ => (Dtype::U32, 4),
        }
    }

    fn bytes(&self) -> usize {
        let (_, width) = self.dtype();
        self.shape.iter().product::<usize>() * width
    }

    /// The sort key of tensors in the file: wider elements first, so that all are aligned.
    fn rank(&self) -> (Reverse<usize>, &'static str) {
        let (_, width) = self.dtype();
        (Reverse(width), self.tensor.name())
    }
}

/// A file that is being written in parts. It appears when it is finished.
pub struct Parts {
    output: Output,
    file: PartsFile,
    /// Where each tensor begins.
    places: Vec<(Tensor, u64)>,
}

enum PartsFile {
    /// This process's, removed unless it is finished.
    Own(Temporary),
    /// Another process's.
    Joined(File),
}

impl Parts {
    /// The path of the unfinished file, if this process created it.
    pub fn path(&self) -> Option<&Path> {
        match &self.file {
            PartsFile::Own(temporary) => Some(temporary.path()),
            PartsFile::Joined(_) => None,
        }
    }

    /// Writes bytes of a tensor, from an offset on.
    pub fn write(&mut self, tensor: Tensor, offset: u64, bytes: &[u8]) -> Result<(), Failure> {
        let mut places = self.places.iter();
        let place = places.find(|(placed, _)| *placed == tensor);
        let file = match &mut self.file {
            PartsFile::Own(temporary) => temporary.file(),
            PartsFile::Joined(file) => file,
        };
        let written = match place {
            Some((_, start)) => file
                .seek(SeekFrom::Start(start + offset))
                .and_then(|_| file.write_all(bytes)),
            None => {
                let message = format!("{} is not one of its tensors", tensor.name());
                Err(io::Error::other(message))
            }
        };
        written.map_err(|source| self.output.unwritable(source))
    }

    /// Moves the file to its place. Of another process's file, only makes what was written durable.
    pub fn finish(self) -> Result<(), Failure> {
        let done = match self.file {
            PartsFile::Own(temporary) => temporary.replace(&self.output.target),
            PartsFile::Joined(file) => file.sync_all(),
        };
        done.map_err(|source| self.output.unwritable(source))
    }
}

/// A place to write to.
#[derive(Clone, Debug)]
pub struct Output {
    path: PathBuf,
    /// The path after following symbolic links, so that the file is replaced and not a link.
    target: PathBuf,
}

impl Output {
    /// Checks that a file can be written there, before work is spent on its content.
    pub fn prepare(path: &Path) -> Result<Self, Failure> {
        match prepare(path) {
            Ok(target) => Ok(Self {
                path: path.to_owned(),
                target,
            }),
            Err(source) => Err(Failure::Write {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// The path as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a safetensors file, replacing any that is there.
    pub fn write(&self, tensors: &[(Described, &[u8])]) -> Result<(), Failure> {
        let mut tensors: Vec<_> = tensors.iter().collect();
        tensors.sort_by_key(|(described, _)| described.rank());
        let all = tensors.iter().map(|(described, _)| described);
        let header = header(all).map_err(|source| self.unwritable(source))?;
        let bytes = tensors.iter().map(|(_, bytes)| *bytes);
        let parts: Vec<&[u8]> = std::iter::once(header.as_slice()).chain(bytes).collect();
        self.write_bytes(&parts)
    }

    /// Creates the file; parts of its tensors may then be written in any order.
    pub fn create(&self, tensors: &[Described]) -> Result<Parts, Failure> {
        let create = || {
            let layout = layout(tensors)?;
            let mut temporary = Temporary::beside(&self.target)?;
            temporary.file().write_all(&layout.header)?;
            // Fails now if the disk is too small, where the system can tell.
            temporary.file().set_len(layout.end)?;
            Ok(Parts {
                output: self.clone(),
                file: PartsFile::Own(temporary),
                places: layout.places,
            })
        };
        create().map_err(|source| self.unwritable(source))
    }

    /// Opens a file that another process creates here, to write parts of its tensors as well.
    pub fn join(&self, path: &Path, tensors: &[Described]) -> Result<Parts, Failure> {
        let joined = layout(tensors).and_then(|layout| {
            let file = OpenOptions::new().write(true).open(path)?;
            Ok(Parts {
                output: self.clone(),
                file: PartsFile::Joined(file),
                places: layout.places,
            })
        });
        joined.map_err(|source| Failure::Write {
            path: path.to_owned(),
            source,
        })
    }

    /// Writes the file with other content, given in parts.
    pub fn write_bytes(&self, parts: &[&[u8]]) -> Result<(), Failure> {
        let write = || {
            let mut temporary = Temporary::beside(&self.target)?;
            for part in parts {
                temporary.file().write_all(part)?;
            }
            temporary.replace(&self.target)
        };
        write().map_err(|source| self.unwritable(source))
    }

    fn unwritable(&self, source: io::Error) -> Failure {
        Failure::Write {
            path: self.path.clone(),
            source,
        }
    }
}

/// The file that a path leads to, if it can be written.
fn prepare(path: &Path) -> io::Result<PathBuf> {
    if path.to_string_lossy().ends_with(std::path::is_separator) {
        return Err(io::Error::other("expected a file's name, got a folder's"));
    }
    let replaces = match std::fs::metadata(path) {
        Ok(kind) => files::expect_regular(&kind).map(|()| true)?,
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => return Err(error),
    };
    let target = behind_links(path)?;
    if replaces {
        // The file is replaced, which its own mode would not prevent.
        OpenOptions::new().write(true).open(&target)?;
    }
    // Checks that the folder accepts a file, with one that has no name.
    tempfile::tempfile_in(folder_of(&target))?;
    Ok(target)
}

/// Follows symbolic links, even to a file that does not exist yet.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut target = path.to_owned();
    // As many links as Linux follows.
    for _ in 0..40 {
        match std::fs::read_link(&target) {
            Ok(link) => target = folder_of(&target).join(link),
            Err(_) => return Ok(target),
        }
    }
    Err(io::Error::other("expected a file, got a loop of links"))
}

/// The beginning of a file of these tensors, and the offset of each of them.
struct Layout {
    header: Vec<u8>,
    places: Vec<(Tensor, u64)>,
    end: u64,
}

fn layout(tensors: &[Described]) -> io::Result<Layout> {
    let mut tensors: Vec<_> = tensors.iter().collect();
    tensors.sort_by_key(|described| described.rank());
    let header = header(tensors.iter().copied())?;
    let mut end = header.len() as u64;
    let places = tensors.iter().map(|described| {
        let start = end;
        end += described.bytes() as u64;
        (described.tensor, start)
    });
    Ok(Layout {
        places: places.collect(),
        header,
        end,
    })
}

/// The bytes before the tensors: the length of the header, and the header.
///
/// Does not use `safetensors::serialize`, which copies all tensors into one vector and ends the process if memory runs
/// out.
fn header<'a>(tensors: impl Iterator<Item = &'a Described>) -> io::Result<Vec<u8>> {
    let mut end = 0;
    let infos = tensors.map(|described| {
        let start = end;
        end += described.bytes();
        let (dtype, _) = described.dtype();
        let info = TensorInfo {
            dtype,
            shape: described.shape.clone(),
            data_offsets: (start, end),
        };
        (described.tensor.name().to_owned(), info)
    });
    let header = Metadata::new(None, infos.collect()).map_err(io::Error::other)?;
    let mut json = serde_json::to_vec(&header)?;
    json.resize(json.len().next_multiple_of(8), b' ');
    let length = json.len() as u64;
    Ok([&length.to_le_bytes(), json.as_slice()].concat())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use safetensors::SafeTensors;

    fn described(tensor: Tensor, dtype: DType, elements: usize) -> Described {
        Described {
            tensor,
            format: Format::Elements(dtype),
            shape: vec![elements],
        }
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.safetensors");
        let output = Output::prepare(&path).unwrap();
        // The folder was created after the check.
        std::fs::create_dir(&path).unwrap();
        let tensor = described(Tensor::DiffSrc, DType::F32, 2);
        assert!(matches!(
            output.write(&[(tensor, &[1; 8])]),
            Err(Failure::Write { .. })
        ));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn wider_elements_come_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.safetensors");
        let tensors: [(_, &[u8]); 3] = [
            (described(Tensor::DiffSrc, DType::F16, 3), &[1; 6]),
            (described(Tensor::DiffGamma, DType::F32, 1), &[2; 4]),
            (described(Tensor::DiffBeta, DType::F32, 1), &[3; 4]),
        ];
        Output::prepare(&path).unwrap().write(&tensors).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let (header, _) = SafeTensors::read_metadata(&bytes).unwrap();
        assert_eq!(header % 8, 0);
        let file = SafeTensors::deserialize(&bytes).unwrap();
        for (described, bytes) in &tensors {
            let view = file.tensor(described.tensor.name()).unwrap();
            assert_eq!((view.shape(), view.data()), (&*described.shape, *bytes));
        }
        assert!(bytes.ends_with(&[1; 6]));
    }
}
