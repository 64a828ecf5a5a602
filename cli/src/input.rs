//! Reads safetensors files. The header is checked against the file before its sizes cause any allocation, and only the
//! requested tensors are read.

use crate::failure::Failure;
use crate::text::excerpt;
use crate::{files, header};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use wgpu_norm::{DType, Format, Tensor};

/// Bytes before the header, which hold its length.
const PREFIX: u64 = 8;

/// The longest header that the safetensors library accepts.
const MAX_HEADER: u64 = 100_000_000;

/// The way to a safetensors file.
const SAVE: &str = "save the tensors by safetensors.";

/// The maximum number of names in a message.
const MOST_NAMES: usize = 8;

/// An open file whose header was read.
#[derive(Debug)]
pub struct Input {
    path: PathBuf,
    file: File,
    header: Metadata,
    data: u64,
    /// The names of tensors that were looked for.
    asked: RefCell<BTreeSet<&'static str>>,
    /// Whether running statistics may replace mean and variance.
    takes_running: Cell<bool>,
}

/// A tensor in the file.
#[derive(Clone, Debug)]
pub struct Stored {
    pub tensor: Tensor,
    pub format: Format,
    pub shape: Vec<usize>,
}

impl Input {
    /// Opens a file and checks its header.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let unreadable = |source| Failure::Read {
            path: path.to_owned(),
            source,
        };
        let malformed = |expected: String, got: String| Failure::Format {
            path: path.to_owned(),
            expected,
            got,
        };
        let mut file = files::open(path).map_err(unreadable)?;
        let size = file.metadata().map_err(unreadable)?.len();
        if size < PREFIX {
            let expected = format!("a safetensors file of at least {PREFIX} bytes");
            return Err(malformed(expected, format!("{size} bytes")));
        }
        let mut prefix = [0; PREFIX as usize];
        file.read_exact(&mut prefix).map_err(unreadable)?;
        let length = u64::from_le_bytes(prefix);
        let or_other = |got| match &prefix {
            b"version " => "a Git LFS pointer; `git lfs pull` fetches the file".to_owned(),
            [b'P', b'K', 3, 4, ..] => format!("a zip archive (.pt, .npz); {SAVE}torch.save_file"),
            [0x80, 2, 0x8a, 0x0a, ..] => format!("a .pt file; {SAVE}torch.save_file"),
            [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => {
                format!("a .npy file; {SAVE}numpy.save_file")
            }
            _ => got,
        };
        let most = MAX_HEADER.min(size - PREFIX);
        if length > most {
            let expected = format!("a safetensors file, with a header of at most {most} bytes");
            let got = format!("one of {length} bytes");
            return Err(malformed(expected, or_other(got)));
        }
        let mut header = Vec::new();
        let read = file.by_ref().take(length).read_to_end(&mut header);
        read.map_err(unreadable)?;
        let header = header::parse(&header)
            .map_err(|got| malformed("a safetensors header".to_owned(), or_other(got)))?;
        let (expected, got) = (header.data_len() as u64, size - PREFIX - length);
        if expected != got {
            return Err(malformed(
                format!("{expected} bytes of tensors, as the header says"),
                format!("{got}"),
            ));
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            header,
            data: PREFIX + length,
            asked: RefCell::default(),
            takes_running: Cell::new(false),
        })
    }

    /// From now on, running statistics replace mean and variance where these are missing.
    pub fn take_running_statistics(&self) {
        self.takes_running.set(true);
    }

    /// The names that a tensor may have: its own, else PyTorch's or ONNX's.
    fn names(&self, name: &'static str) -> impl Iterator<Item = &'static str> {
        let others: &[&'static str] = match name {
            "src" => &["X"],
            "gamma" => &["weight", "Scale"],
            "beta" => &["bias", "B"],
            "running_mean" => &["input_mean"],
            "running_variance" => &["running_var", "input_var"],
            "mean" if self.takes_running.get() => &["running_mean", "input_mean"],
            "variance" if self.takes_running.get() => {
                &["running_variance", "running_var", "input_var"]
            }
            _ => &[],
        };
        std::iter::once(name).chain(others.iter().copied())
    }

    /// The name under which the file has a tensor, if it has it.
    fn stored(&self, name: &'static str) -> Option<&'static str> {
        self.names(name)
            .find(|name| self.header.info(name).is_some())
    }

    /// The file's description of a tensor, which counts as looked for from now on.
    fn info(&self, name: &'static str) -> Option<&TensorInfo> {
        self.asked.borrow_mut().insert(name);
        self.header.info(self.stored(name)?)
    }

    /// Names the tensors of the file that nobody looked for, and the names that were looked for; none if no tensor was
    /// left out. PyTorch's number of batches, which no operator uses, and `expected.…`, results to compare with, do not
    /// count.
    pub fn left_out(&self) -> Option<String> {
        let asked = self.asked.borrow();
        let taken: Vec<_> = asked.iter().filter_map(|name| self.stored(name)).collect();
        let passed_over = |name: &str| {
            name == "num_batches_tracked" || name.starts_with("expected.") || taken.contains(&name)
        };
        let names = self.header.tensors().into_keys();
        let mut left: Vec<String> = names.filter(|name| !passed_over(name)).collect();
        if left.is_empty() {
            return None;
        }
        left.sort();
        let asked: Vec<String> = asked
            .iter()
            .map(|name| self.names(name).collect::<Vec<_>>().join(" or "))
            .collect();
        Some(format!(
            "tensors: {} left out; looked for {}",
            listed(&left),
            asked.join(", ")
        ))
    }

    /// An attribute in the file's metadata.
    pub fn attribute(&self, key: &str) -> Option<&str> {
        Some(self.header.metadata().as_ref()?.get(key)?.trim())
    }

    /// The keys of the file's metadata, in no order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.header
            .metadata()
            .iter()
            .flatten()
            .map(|(key, _)| key.as_str())
    }

    /// Whether a tensor is there.
    pub fn contains(&self, tensor: Tensor) -> bool {
        self.info(tensor.name()).is_some()
    }

    /// A required tensor; `why` is appended to the requirement in the message.
    pub fn tensor(&self, tensor: Tensor, why: &'static str) -> Result<Stored, Failure> {
        self.optional(tensor)?
            .ok_or_else(|| self.missing(tensor, why))
    }

    /// The failure of a missing tensor; `why` is appended to the requirement in the message.
    pub fn missing(&self, tensor: Tensor, why: &'static str) -> Failure {
        Failure::Missing {
            tensor: tensor.name(),
            why,
            path: self.path.clone(),
            has: {
                let mut names: Vec<_> = self.header.tensors().into_keys().collect();
                names.sort();
                listed(&names)
            },
        }
    }

    /// An optional tensor. If it is there, its elements must be numbers of one of the library's types, or a mask's
    /// words.
    pub fn optional(&self, tensor: Tensor) -> Result<Option<Stored>, Failure> {
        let Some(info) = self.info(tensor.name()) else {
            return Ok(None);
        };
        let is_mask = tensor == Tensor::Mask;
        let format = match info.dtype {
            Dtype::U32 if is_mask => Some(Format::Bits),
            dtype if !is_mask => known(dtype).map(Format::Elements),
            _ => None,
        };
        let format = format.ok_or_else(|| Failure::DType {
            tensor: tensor.name(),
            expected: match is_mask {
                true => "u32".to_owned(),
                false => either(&DType::ALL),
            },
            got: info.dtype.to_string().to_lowercase(),
        })?;
        Ok(Some(Stored {
            tensor,
            format,
            shape: info.shape.clone(),
        }))
    }

    /// Reads bytes of a tensor that is there, from an offset on.
    pub fn read(&self, tensor: Tensor, offset: u64, to: &mut [u8]) -> Result<(), Failure> {
        let name = tensor.name();
        let place = self.info(name).map(|info| info.data_offsets);
        let place = place.map(|(start, end)| (start as u64, end as u64));
        let place = place.filter(|(start, end)| start + offset + to.len() as u64 <= *end);
        let mut file = &self.file;
        let read = match place {
            Some((start, _)) => file
                .seek(SeekFrom::Start(self.data + start + offset))
                .and_then(|_| file.read_exact(to)),
            None => Err(io::Error::other("it has no such bytes")),
        };
        read.map_err(|source| Failure::Read {
            path: self.path.clone(),
            source: io::Error::new(source.kind(), format!("{name}: {source}")),
        })
    }
}

impl Stored {
    /// The element type; none for a mask.
    pub fn dtype(&self) -> Option<DType> {
        match self.format {
            Format::Elements(dtype) => Some(dtype),
            _ => None,
        }
    }

    /// A failure unless the element type is one of these.
    pub fn expect_dtype(&self, expected: &[DType]) -> Result<(), Failure> {
        match self.dtype() {
            Some(got) if !expected.contains(&got) => Err(Failure::DType {
                tensor: self.tensor.name(),
                expected: either(expected),
                got: got.to_string(),
            }),
            _ => Ok(()),
        }
    }

    /// A failure unless the shape is one of these; `why` follows them in the message.
    pub fn expect_shape(&self, expected: &[&[usize]], why: &str) -> Result<(), Failure> {
        if expected.contains(&self.shape.as_slice()) {
            return Ok(());
        }
        let shapes: Vec<String> = expected.iter().map(|s| format!("{s:?}")).collect();
        Err(Failure::Shape {
            tensor: self.tensor.name(),
            expected: shapes.join(" or "),
            why: why.to_owned(),
            got: self.shape.clone(),
        })
    }
}

/// Names for a message; only the first of many.
pub fn listed(names: &[String]) -> String {
    let first = names.iter().take(MOST_NAMES).cloned().collect::<Vec<_>>();
    let first = match first.is_empty() {
        true => "none".to_owned(),
        false => excerpt(&first.join(", ")),
    };
    match names.len().saturating_sub(MOST_NAMES) {
        0 => first,
        others => format!("{first} and {others} others"),
    }
}

/// The library's name for a file's element type.
fn known(dtype: Dtype) -> Option<DType> {
    match dtype {
        Dtype::F16 => Some(DType::F16),
        Dtype::BF16 => Some(DType::Bf16),
        Dtype::F32 => Some(DType::F32),
        Dtype::F64 => Some(DType::F64),
        _ => None,
    }
}

fn either(dtypes: &[DType]) -> String {
    let names: Vec<String> = dtypes.iter().map(DType::to_string).collect();
    names.join(" or ")
}
