//! What the tensors of a case hold.

use super::numbers::{Numbers, Random, patterns, roundings};
use crate::{DType, DTypes, Tensor};

/// A choice of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Values {
    /// Any of ordinary size.
    #[default]
    Random,
    /// Equal diff_dst, or of a forward pass equal src: the roundings of its sums all have one sign.
    Equal,
    /// Of a forward pass, src that takes two values in turn: the roundings of sums of squares all have one sign.
    Alternating,
    /// Every element of a tensor like its first one: a tensor of any size takes no memory here.
    Alike,
    /// src that hardly varies.
    TinyVariance,
    /// src that hardly varies beside its mean, some ten thousand deviations.
    LargeMean,
    /// The same with a million deviations.
    HugeMean,
    /// src whose variance is beyond the range of f16.
    Wide,
    /// src whose squares are beyond the range of f32.
    Vast,
    /// Results beyond the range of f16.
    Overflow,
    /// diff_dst, or of a forward pass src, is every number of its type of 16 bits, and with constant statistics so is the
    /// result.
    Patterns,
    /// gamma is rounded to the result, of a type of 16 bits, with constant statistics.
    Roundings,
}

impl Values {
    pub const ALL: [Self; 11] = [
        Self::Equal,
        Self::Alternating,
        Self::Alike,
        Self::TinyVariance,
        Self::LargeMean,
        Self::HugeMean,
        Self::Wide,
        Self::Vast,
        Self::Overflow,
        Self::Patterns,
        Self::Roundings,
    ];

    /// Its name in a case's ID; nothing for what is usual.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "",
            Self::Equal => "equal",
            Self::Alternating => "alternating",
            Self::Alike => "alike",
            Self::TinyVariance => "tiny_variance",
            Self::LargeMean => "large_mean",
            Self::HugeMean => "huge_mean",
            Self::Wide => "wide",
            Self::Vast => "vast",
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

    /// The shape that the reference takes for one: of one element, where all are alike.
    pub fn reference_shape(self, shape: &[usize]) -> Vec<usize> {
        match self {
            Self::Alike => vec![1; shape.len()],
            _ => shape.to_vec(),
        }
    }

    /// Whether every result is the nearest number of its type.
    pub const fn exact(self) -> bool {
        matches!(self, Self::Patterns | Self::Roundings)
    }
}

/// The numbers of elements of a gradient's inputs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub elements: usize,
    /// Of mean and variance.
    pub groups: usize,
    /// Of gamma and beta, if there are any.
    pub gamma: Option<usize>,
    pub beta: Option<usize>,
    pub mask: bool,
}

/// Random numbers, so many, evenly in offset ± scale.
fn around(random: &mut Random, len: usize, offset: f64, scale: f64) -> Vec<f64> {
    (0..len).map(|_| random.unit() * scale + offset).collect()
}

/// src with so many elements, and a mean and a variance for each of its groups that are such as src could have.
fn src_and_statistics(
    random: &mut Random,
    values: Values,
    n: usize,
    groups: usize,
) -> [Vec<f64>; 3] {
    let mut around = |len, offset, scale| around(random, len, offset, scale);
    match values {
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
        Values::HugeMean => [
            around(n, 4e6, 7.0),
            around(groups, 4e6, 2.0),
            around(groups, 16.0, 4.0),
        ],
        Values::Wide => [
            around(n, 100.0, 1000.0),
            around(groups, 100.0, 10.0),
            around(groups, 333_000.0, 10_000.0),
        ],
        Values::Vast => [
            around(n, 1e21, 1e16),
            around(groups, 1e21, 1e15),
            around(groups, 3e31, 1e31),
        ],
        Values::Patterns | Values::Roundings => {
            [around(n, 0.5, 2.0), vec![0.0; groups], vec![0.5; groups]]
        }
        Values::Random | Values::Equal | Values::Alternating | Values::Overflow => [
            around(n, 0.5, 2.0),
            around(groups, 0.5, 0.25),
            around(groups, 1.25, 0.5),
        ],
    }
}

/// gamma for so many columns or channels.
fn gamma(random: &mut Random, types: DTypes, values: Values, columns: usize) -> Vec<f64> {
    match values {
        Values::Alike => vec![0.5],
        Values::Overflow => vec![1e5; columns],
        Values::Roundings => {
            let roundings = roundings(types.data).into_iter();
            roundings.cycle().take(columns).collect()
        }
        _ => around(random, columns, 0.25, 1.0),
    }
}

/// The inputs of a gradient. mean and variance are given ones, not those of src: the gradient's formula
/// takes any.
pub(super) fn gradient_inputs(types: DTypes, values: Values, counts: Counts) -> Vec<Numbers> {
    let DTypes {
        data,
        params,
        statistics,
    } = types;
    let mut random = Random::new(counts.elements as u64);
    let (n, groups) = (counts.elements, counts.groups);
    let [src, mean, variance] = src_and_statistics(&mut random, values, n, groups);
    let diff_dst = match values {
        Values::Alike => vec![0.125],
        Values::Equal => vec![0.1; n],
        Values::Patterns => patterns(data).into_iter().cycle().take(n).collect(),
        Values::Roundings => vec![1.0; n],
        _ => around(&mut random, n, 0.1, 1.0),
    };
    let mut inputs = vec![
        Numbers::new(Tensor::Src, data, n, src),
        Numbers::new(Tensor::DiffDst, data, n, diff_dst),
        Numbers::new(Tensor::Mean, statistics, groups, mean),
        Numbers::new(Tensor::Variance, statistics, groups, variance),
    ];
    if let Some(columns) = counts.gamma {
        let gamma = gamma(&mut random, types, values, columns);
        inputs.push(Numbers::new(Tensor::Gamma, params, columns, gamma));
    }
    let alike = values == Values::Alike;
    if let Some(columns) = counts.beta {
        let beta = match alike {
            true => vec![0.125],
            false => around(&mut random, columns, 0.125, 1.0),
        };
        inputs.push(Numbers::new(Tensor::Beta, params, columns, beta));
    }
    if counts.mask {
        let bits = if alike { 1 } else { n };
        let bits = (0..bits).map(|_| f64::from(u8::from(alike || random.unit() < 0.25)));
        inputs.push(Numbers::new(Tensor::Mask, DType::F32, n, bits.collect()));
    }
    inputs
}

/// The numbers of elements of a forward pass's inputs, of those that it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct ForwardCounts {
    pub elements: usize,
    pub residual: bool,
    /// Of mean and variance, where they are given.
    pub given: Option<usize>,
    /// Of running mean and variance.
    pub running: Option<usize>,
    pub gamma: Option<usize>,
    pub beta: Option<usize>,
}

impl ForwardCounts {
    /// Of src alone.
    pub const fn of(elements: usize) -> Self {
        Self {
            elements,
            residual: false,
            given: None,
            running: None,
            gamma: None,
            beta: None,
        }
    }
}

/// The inputs of a forward pass.
pub(super) fn forward_inputs(types: DTypes, values: Values, counts: ForwardCounts) -> Vec<Numbers> {
    let DTypes {
        data,
        params,
        statistics,
    } = types;
    let n = counts.elements;
    let mut random = Random::new(n as u64);
    let alike = values == Values::Alike;
    let groups = counts.given.unwrap_or_default();
    let [src, mean, variance] = src_and_statistics(&mut random, values, n, groups);
    let mut src = match values {
        Values::Equal => vec![0.1; n],
        Values::Alternating => [0.1, 0.7].into_iter().cycle().take(n).collect(),
        Values::Patterns => patterns(data).into_iter().cycle().take(n).collect(),
        Values::Roundings => vec![1.0; n],
        _ => src,
    };
    if let (Values::Random, Some(first)) = (values, src.first_mut()) {
        *first = 30.0; // sums that are shifted by the first element have to do without
    }
    let mut inputs = vec![Numbers::new(Tensor::Src, data, n, src)];
    let mut add = |tensor, dtype, len: Option<usize>, one: f64, scale: f64| {
        if let Some(len) = len {
            let numbers = match alike {
                true => vec![one],
                false => around(&mut random, len, one, scale),
            };
            inputs.push(Numbers::new(tensor, dtype, len, numbers));
        }
    };
    add(
        Tensor::Residual,
        data,
        counts.residual.then_some(n),
        0.25,
        1.0,
    );
    add(Tensor::Beta, params, counts.beta, 0.125, 1.0);
    add(Tensor::RunningMean, statistics, counts.running, 0.75, 0.25);
    add(
        Tensor::RunningVariance,
        statistics,
        counts.running,
        1.25,
        0.5,
    );
    if let Some(groups) = counts.given {
        inputs.push(Numbers::new(Tensor::Mean, statistics, groups, mean));
        inputs.push(Numbers::new(Tensor::Variance, statistics, groups, variance));
    }
    if let Some(columns) = counts.gamma {
        let gamma = gamma(&mut random, types, values, columns);
        inputs.push(Numbers::new(Tensor::Gamma, params, columns, gamma));
    }
    inputs
}
