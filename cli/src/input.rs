//! Reads safetensors files. The header is checked against the file before anything is allocated by
//! it, and of the tensors only those that are asked for are read.

use crate::failure::Failure;
use crate::text::excerpt;
use crate::{files, header, memory};
use bytemuck::Pod;
use half::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use wgpu_norm::{DType, Element};

/// Bytes before the header, which hold its length.
const PREFIX: u64 = 8;

/// The longest header, as the safetensors library has it.
const MAX_HEADER: u64 = 100_000_000;

/// Names of which a message tells at most so many.
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
    /// Whether running statistics stand for given ones.
    takes_running: Cell<bool>,
}

/// Where a tensor is, and what it is.
#[derive(Clone, Debug)]
pub struct Tensor {
    name: &'static str,
    dtype: DType,
    shape: Vec<usize>,
    place: Place,
}

/// Where a mask is, which has a bit for each element of src, 32 in a word.
#[derive(Clone, Debug)]
pub struct Mask {
    name: &'static str,
    shape: Vec<usize>,
    place: Place,
}

/// Some bytes of the file.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: u64,
    bytes: u64,
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
        let kind = std::fs::metadata(path).map_err(unreadable)?;
        files::expect_regular(&kind).map_err(unreadable)?;
        let mut file = File::open(path).map_err(unreadable)?;
        let size = file.metadata().map_err(unreadable)?.len();
        if size < PREFIX {
            let expected = format!("a safetensors file of at least {PREFIX} bytes");
            return Err(malformed(expected, format!("{size} bytes")));
        }
        let mut prefix = [0; PREFIX as usize];
        file.read_exact(&mut prefix).map_err(unreadable)?;
        let length = u64::from_le_bytes(prefix);
        let most = MAX_HEADER.min(size - PREFIX);
        if length > most {
            let expected = format!("a safetensors file, with a header of at most {most} bytes");
            return Err(malformed(expected, format!("one of {length} bytes")));
        }
        let mut header = Vec::new();
        let read = file.by_ref().take(length).read_to_end(&mut header);
        read.map_err(unreadable)?;
        let header = header::parse(&header)
            .map_err(|got| malformed("a safetensors header".to_owned(), got))?;
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

    /// From now on running statistics stand for mean and variance where these are not there.
    pub fn take_running_statistics(&self) {
        self.takes_running.set(true);
    }

    /// What a tensor may be called: by its own name, else by PyTorch's or ONNX's.
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

    /// The name in the file of the tensor that stands for one, if there is any.
    fn stored(&self, name: &'static str) -> Option<&'static str> {
        self.names(name)
            .find(|name| self.header.info(name).is_some())
    }

    /// What the file has of the tensor, which is looked for from now on.
    fn info(&self, name: &'static str) -> Option<&TensorInfo> {
        self.asked.borrow_mut().insert(name);
        self.header.info(self.stored(name)?)
    }

    /// Which tensors of the file nobody looked for, and which names were looked for; nothing where none was left out.
    /// PyTorch's number of batches has no part in any operator, and `expected.…` are answers to compare with.
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
        self.header
            .metadata()
            .as_ref()?
            .get(key)
            .map(String::as_str)
    }

    /// Whether a tensor is there.
    pub fn contains(&self, name: &'static str) -> bool {
        self.info(name).is_some()
    }

    /// A tensor that has to be there; `why` follows that in the message.
    pub fn tensor(&self, name: &'static str, why: &'static str) -> Result<Tensor, Failure> {
        self.optional(name)?.ok_or_else(|| self.missing(name, why))
    }

    /// The failure of a tensor that has to be there; `why` follows that in the message.
    pub fn missing(&self, tensor: &'static str, why: &'static str) -> Failure {
        Failure::Missing {
            tensor,
            why,
            path: self.path.clone(),
            has: {
                let mut names: Vec<_> = self.header.tensors().into_keys().collect();
                names.sort();
                listed(&names)
            },
        }
    }

    /// A tensor that may be there; if it is, its element type must be one of the library's.
    pub fn optional(&self, name: &'static str) -> Result<Option<Tensor>, Failure> {
        let Some(info) = self.info(name) else {
            return Ok(None);
        };
        let dtype = known(info.dtype).ok_or_else(|| Failure::DType {
            tensor: name,
            expected: either(&DType::ALL),
            got: info.dtype.to_string().to_lowercase(),
        })?;
        Ok(Some(Tensor {
            name,
            dtype,
            shape: info.shape.clone(),
            place: self.place(info),
        }))
    }

    /// A mask that may be there; if it is, it must consist of words.
    pub fn mask(&self, name: &'static str) -> Result<Option<Mask>, Failure> {
        match self.info(name) {
            None => Ok(None),
            Some(info) if info.dtype == Dtype::U32 => Ok(Some(Mask {
                name,
                shape: info.shape.clone(),
                place: self.place(info),
            })),
            Some(info) => Err(Failure::DType {
                tensor: name,
                expected: "u32".to_owned(),
                got: info.dtype.to_string().to_lowercase(),
            }),
        }
    }

    /// A tensor's elements.
    pub fn read<T: Element>(&self, tensor: &Tensor) -> Result<Vec<T>, Failure> {
        tensor.expect_dtype(&[T::DTYPE])?;
        self.read_at(tensor.name, tensor.place)
    }

    /// Some of a tensor's elements.
    pub fn read_part<T: Element>(
        &self,
        tensor: &Tensor,
        elements: &Range<usize>,
    ) -> Result<Vec<T>, Failure> {
        tensor.expect_dtype(&[T::DTYPE])?;
        self.read_at(tensor.name, tensor.place.part(elements, size_of::<T>()))
    }

    /// Some of a tensor's elements, in a type that holds them.
    pub fn read_as<T: Element>(
        &self,
        tensor: &Tensor,
        elements: &Range<usize>,
    ) -> Result<Vec<T>, Failure> {
        fn widened<N: Element, T: Element>(values: Vec<N>) -> Vec<T> {
            values
                .into_iter()
                .map(|value| T::from_f64(value.to_f64()))
                .collect()
        }
        match tensor.dtype {
            dtype if dtype == T::DTYPE => self.read_part(tensor, elements),
            DType::F16 => Ok(widened::<f16, T>(self.read_part(tensor, elements)?)),
            DType::Bf16 => Ok(widened::<bf16, T>(self.read_part(tensor, elements)?)),
            DType::F32 => Ok(widened::<f32, T>(self.read_part(tensor, elements)?)),
            DType::F64 => Ok(widened::<f64, T>(self.read_part(tensor, elements)?)),
        }
    }

    /// Some of a mask's words.
    pub fn read_mask_part(&self, mask: &Mask, words: &Range<usize>) -> Result<Vec<u32>, Failure> {
        self.read_at(mask.name, mask.place.part(words, size_of::<u32>()))
    }

    /// Some bytes of a tensor or mask that is there, from an offset on.
    pub fn read_bytes(
        &self,
        name: &'static str,
        offset: u64,
        to: &mut [u8],
    ) -> Result<(), Failure> {
        let place = self.info(name).map(|info| self.place(info));
        let place = place.filter(|place| offset + to.len() as u64 <= place.bytes);
        let mut file = &self.file;
        let read = match place {
            Some(place) => file
                .seek(SeekFrom::Start(place.offset + offset))
                .and_then(|_| file.read_exact(to)),
            None => Err(io::Error::other("it has no such bytes")),
        };
        read.map_err(|source| self.unreadable(name, source))
    }

    /// A mask's words.
    pub fn read_mask(&self, mask: &Mask) -> Result<Vec<u32>, Failure> {
        self.read_at(mask.name, mask.place)
    }

    fn place(&self, info: &TensorInfo) -> Place {
        let (start, end) = info.data_offsets;
        Place {
            offset: self.data + start as u64,
            bytes: end.saturating_sub(start) as u64,
        }
    }

    fn read_at<T: Pod>(&self, name: &'static str, place: Place) -> Result<Vec<T>, Failure> {
        let elements = place.bytes / size_of::<T>().max(1) as u64;
        let elements = usize::try_from(elements).unwrap_or(usize::MAX);
        let mut values: Vec<T> = memory::filled(name, elements, T::zeroed())?;
        let mut file = &self.file;
        file.seek(SeekFrom::Start(place.offset))
            .and_then(|_| file.read_exact(bytemuck::cast_slice_mut(&mut values)))
            .map_err(|source| self.unreadable(name, source))?;
        Ok(values)
    }

    fn unreadable(&self, name: &str, source: io::Error) -> Failure {
        Failure::Read {
            path: self.path.clone(),
            source: io::Error::new(source.kind(), format!("{name}: {source}")),
        }
    }
}

impl Place {
    /// Some elements of so many bytes each, as far as they are there.
    fn part(&self, elements: &Range<usize>, width: usize) -> Self {
        let at = |element: usize| {
            (element as u64)
                .saturating_mul(width as u64)
                .min(self.bytes)
        };
        Self {
            offset: self.offset + at(elements.start),
            bytes: at(elements.end).saturating_sub(at(elements.start)),
        }
    }
}

impl Mask {
    /// A failure if it has not a bit for each element of src.
    pub fn expect_elements_of(&self, src: &Tensor) -> Result<(), Failure> {
        let words = (src.place.bytes / src.dtype.size()).div_ceil(32);
        if matches!(*self.shape.as_slice(), [got] if got as u64 == words) {
            return Ok(());
        }
        Err(Failure::Shape {
            tensor: self.name,
            expected: format!("[{words}]"),
            why: " (a bit for each element of src, 32 in a word)".to_owned(),
            got: self.shape.clone(),
        })
    }
}

impl Tensor {
    /// How many elements it has.
    pub fn elements(&self) -> usize {
        usize::try_from(self.place.bytes / self.dtype.size().max(1)).unwrap_or(usize::MAX)
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Its shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// A failure if the element type is none of these.
    pub fn expect_dtype(&self, expected: &[DType]) -> Result<(), Failure> {
        if expected.contains(&self.dtype) {
            return Ok(());
        }
        Err(Failure::DType {
            tensor: self.name,
            expected: either(expected),
            got: self.dtype.to_string(),
        })
    }

    /// A failure if the shape is none of these; `why` follows them in the message.
    pub fn expect_shape(&self, expected: &[&[usize]], why: &str) -> Result<(), Failure> {
        if expected.contains(&self.shape.as_slice()) {
            return Ok(());
        }
        let shapes: Vec<String> = expected.iter().map(|s| format!("{s:?}")).collect();
        Err(Failure::Shape {
            tensor: self.name,
            expected: shapes.join(" or "),
            why: why.to_owned(),
            got: self.shape.clone(),
        })
    }
}

/// Names for a message, the first of them if there are many.
fn listed(names: &[String]) -> String {
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

/// The library's name of a file's element type.
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
