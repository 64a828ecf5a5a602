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
use wgpu_norm::{DType, Element};

/// What a tensor of the file is.
#[derive(Clone, Copy, Debug)]
pub struct Described<'a> {
    name: &'static str,
    dtype: Dtype,
    /// Bytes of an element.
    width: usize,
    shape: &'a [usize],
    bytes: usize,
}

impl<'a> Described<'a> {
    /// A tensor of one of the library's element types, of so many bytes.
    pub fn new(name: &'static str, dtype: DType, shape: &'a [usize], bytes: usize) -> Self {
        let (dtype, width) = match dtype {
            DType::F16 => (Dtype::F16, 2),
            DType::Bf16 => (Dtype::BF16, 2),
            DType::F32 => (Dtype::F32, 4),
            DType::F64 => (Dtype::F64, 8),
        };
        Self {
            name,
            dtype,
            width,
            shape,
            bytes,
        }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The order of tensors in the file: those of wider elements first, so that all are aligned.
    fn rank(&self) -> (Reverse<usize>, &'static str) {
        (Reverse(self.width), self.name)
    }

    /// A mask.
    pub fn mask(name: &'static str, shape: &'a [usize], bytes: usize) -> Self {
        Self {
            name,
            dtype: Dtype::U32,
            width: size_of::<u32>(),
            shape,
            bytes,
        }
    }
}

/// A tensor to write.
#[derive(Debug)]
pub struct Tensor<'a> {
    described: Described<'a>,
    bytes: &'a [u8],
}

impl<'a> Tensor<'a> {
    /// A tensor with these elements.
    pub fn new<T: Element>(name: &'static str, shape: &'a [usize], values: &'a [T]) -> Self {
        let bytes = bytemuck::cast_slice(values);
        Self {
            described: Described::new(name, T::DTYPE, shape, bytes.len()),
            bytes,
        }
    }

    /// A mask of these words.
    pub fn mask(name: &'static str, shape: &'a [usize], words: &'a [u32]) -> Self {
        let bytes = bytemuck::cast_slice(words);
        Self {
            described: Described::mask(name, shape, bytes.len()),
            bytes,
        }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.described.name
    }
}

/// A file that is being written in parts. It appears when it is finished.
pub struct Parts {
    output: Output,
    file: PartsFile,
    /// Where each tensor begins.
    places: Vec<(&'static str, u64)>,
}

enum PartsFile {
    /// Removed unless it is finished.
    Own(Temporary),
    /// Another process's.
    Joined(File),
}

impl Parts {
    /// Where the file is until it is finished, if it is this process's.
    pub fn path(&self) -> Option<&Path> {
        match &self.file {
            PartsFile::Own(temporary) => Some(temporary.path()),
            PartsFile::Joined(_) => None,
        }
    }

    /// Writes bytes of a tensor, from an offset on.
    pub fn write(&mut self, tensor: &str, offset: u64, bytes: &[u8]) -> Result<(), Failure> {
        let mut places = self.places.iter();
        let place = places.find(|(name, _)| *name == tensor);
        let file = match &mut self.file {
            PartsFile::Own(temporary) => temporary.file(),
            PartsFile::Joined(file) => file,
        };
        let written = match place {
            Some((_, start)) => file
                .seek(SeekFrom::Start(start + offset))
                .and_then(|_| file.write_all(bytes)),
            None => Err(io::Error::other(format!("{tensor} is none of its tensors"))),
        };
        written.map_err(|source| self.output.unwritable(source))
    }

    /// Moves the file to its place, or has what was written of another process's on the disk.
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
    /// The path behind symbolic links, so that the file is replaced and not a link.
    target: PathBuf,
}

impl Output {
    /// Looks whether a file can be written there, before work is spent on its content.
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

    /// Writes a safetensors file, in place of one that is there.
    pub fn write(&self, tensors: &[Tensor<'_>]) -> Result<(), Failure> {
        let mut tensors: Vec<&Tensor<'_>> = tensors.iter().collect();
        tensors.sort_by_key(|tensor| tensor.described.rank());
        let mut parts = vec![];
        let all = tensors.iter().map(|tensor| tensor.described);
        let header = header(all).map_err(|source| self.unwritable(source))?;
        parts.push(header.as_slice());
        parts.extend(tensors.iter().map(|tensor| tensor.bytes));
        self.write_bytes(&parts)
    }

    /// Creates the file, for parts of its tensors to be written in any order.
    pub fn create(&self, tensors: &[Described<'_>]) -> Result<Parts, Failure> {
        let create = || {
            let layout = layout(tensors)?;
            let mut temporary = Temporary::beside(&self.target)?;
            temporary.file().write_all(&layout.header)?;
            // A disk that is too small says so now, where it can.
            temporary.file().set_len(layout.end)?;
            Ok(Parts {
                output: self.clone(),
                file: PartsFile::Own(temporary),
                places: layout.places,
            })
        };
        create().map_err(|source| self.unwritable(source))
    }

    /// Opens a file that another process creates here, to write parts of its tensors too.
    pub fn join(&self, path: &Path, tensors: &[Described<'_>]) -> Result<Parts, Failure> {
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

    /// Writes the file with other content, which comes in parts.
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

/// Where a path leads, if a file can be written there.
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
        // Another file takes its place, which its own mode would not hinder.
        OpenOptions::new().write(true).open(&target)?;
    }
    // Whether the folder takes a file, by one that has no name.
    tempfile::tempfile_in(folder_of(&target))?;
    Ok(target)
}

/// Follows symbolic links, also to where nothing is yet.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut target = path.to_owned();
    // As many as Linux follows.
    for _ in 0..40 {
        match std::fs::read_link(&target) {
            Ok(link) => target = folder_of(&target).join(link),
            Err(_) => return Ok(target),
        }
    }
    Err(io::Error::other("expected a file, got a circle of links"))
}

/// How a file of these tensors begins, and where each of them does.
struct Layout {
    header: Vec<u8>,
    places: Vec<(&'static str, u64)>,
    end: u64,
}

fn layout(tensors: &[Described<'_>]) -> io::Result<Layout> {
    let mut tensors = tensors.to_vec();
    tensors.sort_by_key(Described::rank);
    let header = header(tensors.iter().copied())?;
    let mut end = header.len() as u64;
    let places = tensors.iter().map(|tensor| {
        let start = end;
        end += tensor.bytes as u64;
        (tensor.name, start)
    });
    Ok(Layout {
        places: places.collect(),
        header,
        end,
    })
}

/// What comes before the tensors' bytes: the length of the header, and the header.
///
/// Not by `safetensors::serialize`, which copies all tensors into one vector and ends the process where memory does.
fn header<'a>(tensors: impl Iterator<Item = Described<'a>>) -> io::Result<Vec<u8>> {
    let mut end = 0;
    let infos = tensors.map(|tensor| {
        let start = end;
        end += tensor.bytes;
        let info = TensorInfo {
            dtype: tensor.dtype,
            shape: tensor.shape.to_vec(),
            data_offsets: (start, end),
        };
        (tensor.name.to_owned(), info)
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

    #[test]
    fn a_failed_write_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.safetensors");
        let output = Output::prepare(&path).unwrap();
        // What stands there now came after the check.
        std::fs::create_dir(&path).unwrap();
        let tensor = Tensor::new("diff_src", &[2], &[1.0_f32, 2.0]);
        assert!(matches!(
            output.write(&[tensor]),
            Err(Failure::Write { .. })
        ));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn wider_elements_come_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.safetensors");
        let narrow = [half::f16::ONE; 3];
        let tensors = [
            Tensor::new("diff_src", &[3], &narrow),
            Tensor::new("diff_gamma", &[1], &[2.0_f32]),
            Tensor::new("diff_beta", &[1], &[3.0_f32]),
        ];
        Output::prepare(&path).unwrap().write(&tensors).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let (header, _) = SafeTensors::read_metadata(&bytes).unwrap();
        assert_eq!(header % 8, 0);
        let file = SafeTensors::deserialize(&bytes).unwrap();
        for tensor in &tensors {
            let view = file.tensor(tensor.name()).unwrap();
            assert_eq!(
                (view.shape(), view.data()),
                (tensor.described.shape, tensor.bytes)
            );
        }
        assert!(bytes.ends_with(bytemuck::bytes_of(&narrow)));
    }
}
