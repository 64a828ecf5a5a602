//! The flags of `wgpu-norm bench`, and the cases that they ask for.

use super::sets::{Case, Op, Set, Shape};
use crate::args::path;
use crate::attributes::{Choice, choice};
use clap::Args;
use std::path::PathBuf;
use wgpu_norm::{DType, DataFormat, ParamGrads, Statistics};

#[derive(Debug, Args)]
pub struct Bench {
    /// The set of shapes [default: software or gpu, by the adapter's kind]
    #[arg(long)]
    pub set: Option<Set>,
    /// The operators, separated by commas [default: both; batch-norm with --shape]
    #[arg(long, value_delimiter = ',')]
    pub op: Vec<Op>,
    /// The element types, separated by commas
    #[arg(long, value_name = DType::VALUE_NAME, value_delimiter = ',', value_parser = choice::<DType>(),
        ignore_case = true, default_value = "f32")]
    pub dtype: Vec<DType>,
    /// Where the channels are: axis 1 (NCX) or last (NXC), separated by commas [default: both]
    #[arg(long, value_name = DataFormat::VALUE_NAME, value_delimiter = ',',
        value_parser = choice::<DataFormat>(), ignore_case = true)]
    pub data_format: Vec<DataFormat>,
    /// Shapes instead of a set, written N x C x spatial in either format, like 32x64x56x56,2x3x224x224;
    /// for layer norm the last axis is normalized
    #[arg(
        long,
        value_name = "SHAPE",
        value_delimiter = ',',
        conflicts_with = "set"
    )]
    pub shape: Vec<Shape>,
    /// Of batch norm: whether the gradient flows through mean and variance
    #[arg(long, value_name = Statistics::VALUE_NAME, value_parser = choice::<Statistics>(), ignore_case = true,
        default_value = "batch")]
    pub statistics: Statistics,
    /// The parameter gradients. both: diff_gamma and diff_beta; frozen: none, gamma still scales diff_src;
    /// neither: none, and gamma is ignored
    #[arg(long, value_name = ParamGrads::VALUE_NAME, value_parser = choice::<ParamGrads>(), ignore_case = true,
        default_value = "both")]
    pub param_grads: ParamGrads,
    /// Samples of each [default: 9 at least, and half a second, 1000 at most; with --tune 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: Option<u32>,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE.json", value_parser = path())]
    pub json: Option<PathBuf>,
    /// Draw the results
    #[arg(long, value_name = "FILE.svg", value_parser = path())]
    pub plot: Option<PathBuf>,
    /// Put a table into this document, between <!-- bench:begin NAME --> and <!-- bench:end NAME -->
    #[arg(long, value_name = "FILE.md", value_parser = path())]
    pub markdown: Option<PathBuf>,
    /// The NAME in the document [default: the set's]
    #[arg(long, requires = "markdown")]
    pub name: Option<String>,
    /// Measure nothing: show what --json wrote
    #[arg(long, value_name = "FILE.json", value_parser = path(), conflicts_with_all = ["set", "op", "dtype", "data_format", "shape",
        "statistics", "param_grads", "rounds", "json", "adapter", "backend", "profile"])]
    pub from_json: Option<PathBuf>,
    /// Search the sizes that are fastest on the adapter, and print them as a profile
    #[arg(long, conflicts_with_all = ["set", "json", "plot", "markdown", "from_json"])]
    pub tune: bool,
}

impl Choice for DType {
    const VALUE_NAME: &'static str = "TYPE";
    const VALUES: &'static [(&'static str, Self)] = &[
        ("f32", Self::F32),
        ("f16", Self::F16),
        ("bf16", Self::Bf16),
        ("f64", Self::F64),
    ];
}

impl Bench {
    /// The cases of the shapes given, else of those that `shapes` lists.
    pub fn cases(&self, shapes: impl Fn(Op) -> &'static [&'static [usize]]) -> Vec<Case> {
        let ops = match (self.op.as_slice(), self.shape.as_slice()) {
            ([], []) => &[Op::BatchNorm, Op::LayerNorm][..],
            ([], _) => &[Op::BatchNorm],
            (ops, _) => ops,
        };
        let mut cases: Vec<Case> = Vec::new();
        for &op in ops {
            let shapes = match self.shape.as_slice() {
                [] => shapes(op).iter().map(|s| Shape(s.to_vec())).collect(),
                given => given.to_vec(),
            };
            for shape in shapes {
                for &dtype in &self.dtype {
                    for data_format in self.formats(op, &shape) {
                        let batch_norm = op == Op::BatchNorm;
                        let case = Case {
                            op,
                            shape: shape.clone(),
                            dtype,
                            data_format,
                            statistics: match batch_norm {
                                true => self.statistics,
                                false => Statistics::Batch,
                            },
                            param_grads: self.param_grads,
                        };
                        if !cases.contains(&case) {
                            cases.push(case);
                        }
                    }
                }
            }
        }
        cases
    }

    /// The formats to time; of rank 2 both are the same tensor.
    fn formats(&self, op: Op, shape: &Shape) -> Vec<Option<DataFormat>> {
        let formats = match self.data_format.as_slice() {
            [] => &[DataFormat::Ncx, DataFormat::Nxc],
            given => given,
        };
        let formats = formats.iter().copied().map(Some);
        match (op, shape.0.len()) {
            (Op::LayerNorm, _) => vec![None],
            (Op::BatchNorm, 2) => formats.take(1).collect(),
            (Op::BatchNorm, _) => formats.collect(),
        }
    }
}
