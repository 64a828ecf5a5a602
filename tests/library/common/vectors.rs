//! The test vectors: see `tests/vectors/README.md`.

use super::data::Problem;
use safetensors::{Dtype, SafeTensors};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use wgpu_norm::{
    Backward, Channels, DType, DTypes, DataFormat, Element, Format, Norm, Operation, Through,
};
use wgpu_norm_verify::reference::Computed;

/// A vector file.
pub struct Vector {
    pub name: String,
    bytes: Vec<u8>,
    pub metadata: HashMap<String, String>,
}

/// Every file of an operator, including the real layers.
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

    /// A gradient's problem with the file's tensors, and the file's expected results, with the scales for the
    /// tolerance.
    pub fn problem(&self) -> (Problem, Vec<Computed>) {
        let metadata = |key: &str| self.metadata[key].as_str();
        let (norm, through) = match metadata("op") {
            "layer_norm_backward" => {
                let begin_norm_axis = metadata("begin_norm_axis").parse().expect("an axis");
                (Norm::layer(begin_norm_axis), Through::Batch)
            }
            _ => (
                match metadata("data_format") {
                    "NCX" => Norm::batch(DataFormat::Ncx),
                    "NXC" => Norm::batch(DataFormat::Nxc),
                    _ => Norm::Batch(Channels::Broadcast(self.shape("mean"))),
                },
                match metadata("statistics") {
                    "batch" => Through::Batch,
                    "constant" => Through::Constant,
                    other => panic!("{other}"),
                },
            ),
        };
        let statistics = self.dtype("mean");
        let types = DTypes::from((self.dtype("src"), statistics)).with_statistics(statistics);
        let pass = Backward::default().with_through(through);
        let operation = Operation::new(norm, pass, &self.shape("src"), types)
            .with_epsilon(self.epsilon())
            .with_params(self.has("gamma"), false);
        let mut problem = Problem::random(&operation, 0);
        let file = self.file();
        for input in &mut problem.inputs {
            let name = input.used.tensor.name();
            assert_eq!(input.used.format, Format::Elements(self.dtype(name)));
            input.bytes = file.tensor(name).expect("present").data().to_vec();
        }
        let mut want = problem.reference();
        for computed in &mut want {
            // In float64.
            computed.values = self.tensor(&format!("expected.{}", computed.tensor.name()));
        }
        (problem, want)
    }
}
