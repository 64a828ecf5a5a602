//! Writes safetensors files that appear whole or not at all.

use crate::failure::Failure;
use crate::files;
use crate::temporary::{Temporary, folder_of};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use std::cmp::Reverse;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use wgpu_norm::{DType, Element};

/// A tensor to write.
#[derive(Debug)]
pub struct Tensor<'a> {
    name: &'static str,
    dtype: Dtype,
    /// Bytes of an element.
    width: usize,
    shape: &'a [usize],
    bytes: &'a [u8],
}

impl<'a> Tensor<'a> {
    /// A tensor with these elements.
    pub fn new<T: Element>(name: &'static str, shape: &'a [usize], values: &'a [T]) -> Self {
        Self {
            name,
            dtype: match T::DTYPE {
                DType::F16 => Dtype::F16,
                DType::Bf16 => Dtype::BF16,
                DType::F32 => Dtype::F32,
                DType::F64 => Dtype::F64,
            },
            width: size_of::<T>(),
            shape,
            bytes: bytemuck::cast_slice(values),
        }
    }

    /// A mask of these words.
    pub fn mask(name: &'static str, shape: &'a [usize], words: &'a [u32]) -> Self {
        Self {
            name,
            dtype: Dtype::U32,
            width: size_of::<u32>(),
            shape,
            bytes: bytemuck::cast_slice(words),
        }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

/// A place to write to.
#[derive(Debug)]
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
        // Tensors of wider elements first, so that all are aligned.
        let mut tensors: Vec<&Tensor<'_>> = tensors.iter().collect();
        tensors.sort_by_key(|tensor| (Reverse(tensor.width), tensor.name));
        let mut parts = vec![];
        let header = header(&tensors).map_err(|source| self.unwritable(source))?;
        parts.push(header.as_slice());
        parts.extend(tensors.iter().map(|tensor| tensor.bytes));
        self.write_bytes(&parts)
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

/// What comes before the tensors' bytes: the length of the header, and the header.
///
/// Not by `safetensors::serialize`, which copies all tensors into one vector and ends the process where memory does.
fn header(tensors: &[&Tensor<'_>]) -> io::Result<Vec<u8>> {
    let mut end = 0;
    let infos = tensors.iter().map(|tensor| {
        let start = end;
        end += tensor.bytes.len();
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
            let view = file.tensor(tensor.name).unwrap();
            assert_eq!((view.shape(), view.data()), (tensor.shape, tensor.bytes));
        }
        assert!(bytes.ends_with(bytemuck::bytes_of(&narrow)));
    }
}
