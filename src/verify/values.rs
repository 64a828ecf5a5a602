//! What the tensors of a case hold.

use super::numbers::{Numbers, Random, patterns, roundings};
use crate::DType;
use crate::kernels::Tensor;

/// A choice of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Values {
    /// Any of ordinary size.
    #[default]
    Random,
    /// Equal diff_dst: the roundings of its sums all have one sign.
    Equal,
    /// Every element of a tensor like its first one: a tensor of any size takes no memory here.
    Alike,
    /// src that hardly varies.
    TinyVariance,
    /// src that hardly varies beside its mean.
    LargeMean,
    /// Gradients beyond the range of f16.
    Overflow,
    /// diff_dst is every number of its type of 16 bits, and with constant statistics so is diff_src.
    Patterns,
    /// gamma is rounded to diff_src, of a type of 16 bits, with constant statistics.
    Roundings,
}

impl Values {
    pub const ALL: [Self; 7] = [
        Self::Equal,
        Self::Alike,
        Self::TinyVariance,
        Self::LargeMean,
        Self::Overflow,
        Self::Patterns,
        Self::Roundings,
    ];

    /// Its name in a case's ID; nothing for what is usual.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "",
            Self::Equal => "equal",
            Self::Alike => "alike",
            Self::TinyVariance => "tiny_variance",
            Self::LargeMean => "large_mean",
            Self::Overflow => "overflow",
            Self::Patterns => "patterns",
            Self::Roundings => "roundings",
        }
    }

    /// Added to the variance. Beside a variance of 0.5 a power of two, so that results can be exact.
    pub const fn epsilon(self) -> f64 {
        match self {
            Self::TinyVariance => 1e-12,
            Self::Patterns | Self::Roundings => 0.5,
            _ => 1e-5,
        }
    }

    /// Whether every result is the nearest number of its type.
    pub const fn exact(self) -> bool {
        matches!(self, Self::Patterns | Self::Roundings)
    }
}

/// The element types of a case: of src, diff_dst and diff_src, and of all other tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Types {
    pub data: DType,
    pub params: DType,
}

/// The numbers of elements of a gradient's inputs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub elements: usize,
    /// Of mean and variance.
    pub groups: usize,
    /// Of gamma, if there is one.
    pub gamma: Option<usize>,
}

/// The inputs of a gradient. mean and variance are given ones, not those of src: the gradient's formula
/// takes any.
pub(super) fn gradient_inputs(types: Types, values: Values, counts: Counts) -> Vec<Numbers> {
    let Types { data, params } = types;
    let mut random = Random::new(counts.elements as u64);
    let mut around = |len: usize, offset: f64, scale: f64| -> Vec<f64> {
        (0..len).map(|_| random.unit() * scale + offset).collect()
    };
    let (n, groups, columns) = (
        counts.elements,
        counts.groups,
        counts.gamma.unwrap_or_default(),
    );
    let [src, mean, variance] = match values {
        Values::Alike => [vec![0.125], vec![0.0], vec![1.0]],
        Values::TinyVariance => [
            around(n, 2e-7, 2e-7),
            vec![2e-7; groups],
            around(groups, 2e-14, 1e-14),
        ],
        Values::LargeMean => [
            around(n, 50_000.0, 2.0),
            around(groups, 50_000.0, 0.5),
            around(groups, 1.25, 0.5),
        ],
        Values::Patterns | Values::Roundings => {
            [around(n, 0.5, 2.0), vec![0.0; groups], vec![0.5; groups]]
        }
        Values::Random | Values::Equal | Values::Overflow => [
            around(n, 0.5, 2.0),
            around(groups, 0.5, 0.25),
            around(groups, 1.25, 0.5),
        ],
    };
    let diff_dst = match values {
        Values::Alike => vec![0.125],
        Values::Equal => vec![0.1; n],
        Values::Patterns => patterns(data).into_iter().cycle().take(n).collect(),
        Values::Roundings => vec![1.0; n],
        _ => around(n, 0.1, 1.0),
    };
    let gamma = match values {
        Values::Alike => vec![0.5],
        Values::Overflow => vec![1e5; columns],
        Values::Roundings => roundings(data).into_iter().cycle().take(columns).collect(),
        _ => around(columns, 0.25, 1.0),
    };
    let mut inputs = vec![
        Numbers::new(Tensor::Src, data, n, src),
        Numbers::new(Tensor::DiffDst, data, n, diff_dst),
        Numbers::new(Tensor::Mean, params, groups, mean),
        Numbers::new(Tensor::Variance, params, groups, variance),
    ];
    if let Some(columns) = counts.gamma {
        inputs.push(Numbers::new(Tensor::Gamma, params, columns, gamma));
    }
    inputs
}
