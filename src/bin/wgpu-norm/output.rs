//! Writes safetensors files that appear whole or not at all.

use crate::failure::Failure;
use crate::input::kind_of;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use wgpu_norm::{DType, Element};

/// A tensor to write.
#[derive(Debug)]
pub struct Tensor<'a> {
    name: &'static str,
    dtype: DType,
    shape: &'a [usize],
    bytes: &'a [u8],
}

impl<'a> Tensor<'a> {
    /// A tensor with these elements.
    pub fn new<T: Element>(name: &'static str, shape: &'a [usize], values: &'a [T]) -> Self {
        Self {
            name,
            dtype: T::DTYPE,
            shape,
            bytes: bytemuck::cast_slice(values),
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
    /// The path behind a symbolic link, so that the file is replaced and not the link.
    target: PathBuf,
}

impl Output {
    /// Looks whether a file can stand at the path, before work is spent on its content.
    pub fn prepare(path: &Path) -> Result<Self, Failure> {
        let unwritable = |source| Failure::Write {
            path: path.to_owned(),
            source,
        };
        let target = match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => path.canonicalize().map_err(unwritable)?,
            Ok(metadata) => {
                let message = format!("expected a regular file, got {}", kind_of(&metadata));
                return Err(unwritable(io::Error::other(message)));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => path.to_owned(),
            Err(error) => return Err(unwritable(error)),
        };
        match std::fs::metadata(folder_of(&target)) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Err(unwritable(ErrorKind::NotADirectory.into())),
            Err(error) => return Err(unwritable(error)),
        }
        Ok(Self {
            path: path.to_owned(),
            target,
        })
    }

    /// The path as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the file, in place of one that is there.
    pub fn write(&self, tensors: &[Tensor<'_>]) -> Result<(), Failure> {
        let bytes = encode(tensors).map_err(|source| self.unwritable(source))?;
        self.write_bytes(&bytes)
    }

    /// Writes the file with other content.
    pub fn write_bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        replace(&self.target, bytes).map_err(|source| self.unwritable(source))
    }

    fn unwritable(&self, source: io::Error) -> Failure {
        Failure::Write {
            path: self.path.clone(),
            source,
        }
    }
}

fn encode(tensors: &[Tensor<'_>]) -> io::Result<Vec<u8>> {
    let mut views = Vec::new();
    for tensor in tensors {
        let dtype = match tensor.dtype {
            DType::F16 => Dtype::F16,
            DType::Bf16 => Dtype::BF16,
            DType::F32 => Dtype::F32,
            DType::F64 => Dtype::F64,
        };
        let view = TensorView::new(dtype, tensor.shape.to_vec(), tensor.bytes);
        views.push((tensor.name, view.map_err(io::Error::other)?));
    }
    safetensors::serialize(views, None).map_err(io::Error::other)
}

/// Writes a temporary file beside the target, then moves it there.
fn replace(target: &Path, bytes: &[u8]) -> io::Result<()> {
    let (temporary, mut file) = Temporary::create(folder_of(target))?;
    file.write_all(bytes)?;
    // The name must not be on the disk before the content is.
    file.sync_all()?;
    drop(file);
    temporary.rename(target)
}

/// A file that is removed unless it is renamed.
struct Temporary(Option<PathBuf>);

impl Temporary {
    fn create(folder: &Path) -> io::Result<(Self, File)> {
        let mut attempt = 0_u32;
        loop {
            let path = folder.join(format!(".wgpu-norm-{}-{attempt}.tmp", std::process::id()));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => return Ok((Self(Some(path)), file)),
                // Left by a killed process of the same number.
                Err(error) if error.kind() == ErrorKind::AlreadyExists && attempt < 100 => {
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn rename(mut self, target: &Path) -> io::Result<()> {
        if let Some(path) = &self.0 {
            std::fs::rename(path, target)?;
        }
        self.0 = None;
        // Makes the new name durable where folders can be synchronized; the file is whole anyway.
        #[cfg(unix)]
        let _ = File::open(folder_of(target)).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_failed_write_leaves_nothing() {
        let folder = std::env::temp_dir().join(format!("wgpu-norm-output-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("out.safetensors");
        let output = Output::prepare(&path).unwrap();
        // What stands there now came after the check.
        std::fs::create_dir(&path).unwrap();
        let tensor = Tensor::new("diff_src", &[2], &[1.0_f32, 2.0]);
        assert!(matches!(
            output.write(&[tensor]),
            Err(Failure::Write { .. })
        ));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
