//! The flags that choose the cases to time.

use super::operators::{Groups, Op, Ops, ops};
use super::sets::{Case, Set, Shape};
use crate::attributes::{Choice, choice};
use crate::failure::Failure;
use crate::results::summary::distinct;
use bytesize::ByteSize;
use clap::Args;
use wgpu_norm::{Activation, DType, DataFormat, Error, Through};

#[derive(Debug, Args)]
pub struct Selection {
    /// The operators, separated by commas: a gradient is named by its layer alone; also forward passes, or all
    /// [default: batch-norm with --shape; else `report` has all, `bench` the gradients of batch, layer and RMS norm]
    #[arg(long, value_name = "OP", value_delimiter = ',', value_parser = ops())]
    pub op: Vec<Ops>,
    /// The axis of the channels: 1 (NCX) or the last (NXC), separated by commas [default: both]
    #[arg(long, value_name = DataFormat::VALUE_NAME, value_delimiter = ',',
        value_parser = choice::<DataFormat>(), ignore_case = true)]
    pub data_format: Vec<DataFormat>,
    /// Shapes instead of a set, written N x C x spatial in either format, like 32x64x56x56,2x3x224x224; layer and RMS
    /// norm normalize the last axis; group norm has 32 groups, or the largest smaller number that divides C
    #[arg(long, value_name = "SHAPE", value_delimiter = ',')]
    pub shape: Vec<Shape>,
    /// For batch norm's gradient: whether the gradient flows through mean and variance
    #[arg(long, value_name = Through::VALUE_NAME, value_parser = choice::<Through>(), ignore_case = true,
        default_value = "batch")]
    pub statistics: Through,
    /// Whether the parameters' gradients are computed; without them gamma still scales diff_src
    #[arg(long, action = clap::ArgAction::Set, value_name = bool::VALUE_NAME, value_parser = choice::<bool>(),
        ignore_case = true, default_value = "true")]
    pub param_grads: bool,
    /// The activation after each layer; gradients recompute its argument
    #[arg(long, value_name = Activation::VALUE_NAME, value_parser = choice::<Activation>(), ignore_case = true,
        default_value = "none")]
    pub activation: Activation,
    /// The adapter's last-level cache, like 40MB: if batch norm's inputs are larger, its limit counts their second
    /// reading [default: unknown; the limit counts every tensor once]
    #[arg(long, value_name = "SIZE")]
    pub cache: Option<ByteSize>,
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

impl Selection {
    /// The name of the cases' set: that of `set`, unless shapes are given.
    pub fn set(&self, set: Set) -> &'static str {
        match self.shape.is_empty() {
            true => set.name(),
            false => "custom",
        }
    }

    /// A failure if an element type lacks the activation.
    pub fn check(&self, dtypes: &[DType]) -> Result<(), Failure> {
        let of_f64 = [Activation::None, Activation::Relu];
        if !dtypes.contains(&DType::F64) || of_f64.contains(&self.activation) {
            return Ok(());
        }
        Err(Failure::Library(Error::argument(
            "activation",
            "none or relu with f64",
            self.activation,
        )))
    }

    /// The operators that are named, else the usual ones.
    fn ops(&self, usual: &[Op]) -> Vec<Op> {
        match (self.op.as_slice(), self.shape.as_slice()) {
            ([], []) => usual.into(),
            ([], _) => vec![Op::BatchNorm],
            (ops, _) => ops.iter().flat_map(Ops::iter).collect(),
        }
    }

    /// The cases of the given shapes, else of those that `shapes` lists, by operator, shape, type and format.
    pub fn cases(
        &self,
        usual: &[Op],
        set: Set,
        shapes: impl Fn(Set, Op) -> &'static [&'static [usize]],
        dtypes: &[DType],
    ) -> Vec<Case> {
        let mut cases = Vec::new();
        for op in self.ops(usual) {
            let shapes = match self.shape.as_slice() {
                [] => shapes(set, op).iter().map(|s| Shape(s.to_vec())).collect(),
                given => given.to_vec(),
            };
            for shape in shapes {
                for &dtype in dtypes {
                    for data_format in self.formats(op, &shape) {
                        cases.push(Case {
                            set: self.set(set),
                            op,
                            shape: shape.clone(),
                            dtype,
                            data_format,
                            statistics: match op {
                                Op::BatchNorm => self.statistics,
                                _ => Through::Batch,
                            },
                            param_grads: self.param_grads || !op.is_gradient(),
                            activation: self.activation,
                            cache: self.cache.map(|size| size.as_u64()),
                        });
                    }
                }
            }
        }
        distinct(cases)
    }

    /// The formats to time; at rank 2 both are the same tensor.
    fn formats(&self, op: Op, shape: &Shape) -> Vec<Option<DataFormat>> {
        let formats = match self.data_format.as_slice() {
            [] => &[DataFormat::Ncx, DataFormat::Nxc],
            given => given,
        };
        let formats = formats.iter().copied().map(Some);
        match (op.groups(), shape.0.len()) {
            (Groups::Rows | Groups::Tokens | Groups::Positions, _) => vec![None],
            (Groups::Channels | Groups::OfSamples, 2) => formats.take(1).collect(),
            (Groups::Channels | Groups::OfSamples, _) => formats.collect(),
        }
    }
}
