//! The test vectors: see `tests/vectors/README.md`.

use safetensors::{Dtype, SafeTensors};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use wgpu_norm::{DType, Element};

/// A vector file.
pub struct Vector {
    pub name: String,
    bytes: Vec<u8>,
    pub metadata: HashMap<String, String>,
}

/// Every file of an operator, the real layers included.
pub fn of_operator(op: &str) -> Vec<Vector> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut paths: Vec<PathBuf> = [root.clone(), root.join("real")]
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).expect("the vectors are part of the crate"))
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == "safetensors"))
        .collect();
    paths.sort();
    let vectors: Vec<Vector> = paths
        .iter()
        .map(|path| Vector::read(path))
        .filter(|vector| vector.metadata["op"] == op)
        .collect();
    assert!(!vectors.is_empty());
    vectors
}

impl Vector {
    fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).expect("readable");
        let (_, header) = SafeTensors::read_metadata(&bytes).expect("a safetensors file");
        Self {
            name: path.file_stem().expect("a name").to_string_lossy().into(),
            metadata: header.metadata().clone().expect("attributes"),
            bytes,
        }
    }

    fn file(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.bytes).expect("a safetensors file")
    }

    pub fn epsilon(&self) -> f64 {
        self.metadata["epsilon"].parse().expect("a number")
    }

    pub fn has(&self, tensor: &str) -> bool {
        self.file().names().contains(&tensor)
    }

    pub fn shape(&self, tensor: &str) -> Vec<usize> {
        self.file()
            .tensor(tensor)
            .expect("present")
            .shape()
            .to_vec()
    }

    pub fn dtype(&self, tensor: &str) -> DType {
        match self.file().tensor(tensor).expect("present").dtype() {
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::Bf16,
            Dtype::F32 => DType::F32,
            Dtype::F64 => DType::F64,
            other => panic!("{other:?}"),
        }
    }

    pub fn tensor<T: Element>(&self, tensor: &str) -> Vec<T> {
        let file = self.file();
        let view = file.tensor(tensor).expect("present");
        assert_eq!(self.dtype(tensor), T::DTYPE, "{}: {tensor}", self.name);
        bytemuck::pod_collect_to_vec(view.data())
    }
}
