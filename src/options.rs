//! The options that an operation's caller chooses.

use crate::element::{DType, DTypes};
use crate::error::Error;
use std::fmt;
use std::hash::{Hash, Hasher};

/// The position of the channel axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DataFormat {
    /// `(N, C, …)`: axis 1 is the channel.
    Ncx,
    /// `(N, …, C)`: the last axis is the channel.
    #[default]
    Nxc,
}

impl fmt::Display for DataFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ncx => "NCX",
            Self::Nxc => "NXC",
        })
    }
}

/// Whether the gradient flows through mean and variance. No forward pass depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Through {
    /// They were computed from `src`, so the gradient flows through them (training).
    #[default]
    Batch,
    /// They are constants: `diff_src = diff_dst · gamma / sqrt(variance + epsilon)`.
    Constant,
}

/// The activation that follows a layer and is computed with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Activation {
    /// No activation.
    #[default]
    None,
    /// max(y, 0). The gradient passes unless y is at most 0, as in PyTorch, so NaN passes in both directions.
    Relu,
    /// y / (1 + exp(−y)), which diffusion networks use after group norm. Not for f64, for which WGSL has no
    /// exponential, and not after a residual.
    Silu,
    /// y · Φ(y), with the normal distribution's Φ: PyTorch's `gelu`. Not for f64, and not after a residual.
    Gelu,
    /// y · (1 + tanh(√(2/π) · (y + 0.044715 · y³))) / 2: PyTorch's `gelu` with `approximate="tanh"`. Not for f64, and
    /// not after a residual.
    GeluTanh,
}

impl Activation {
    /// All activations, with their names.
    pub const NAMES: &[(&'static str, Self)] = &[
        ("none", Self::None),
        ("relu", Self::Relu),
        ("silu", Self::Silu),
        ("gelu", Self::Gelu),
        ("gelu_tanh", Self::GeluTanh),
    ];

    pub(crate) fn name(self) -> &'static str {
        let mut names = Self::NAMES.iter();
        names
            .find(|(_, own)| *own == self)
            .map_or("", |(name, _)| name)
    }

    /// An error if it cannot be computed for this data type, or after a residual.
    pub(crate) fn check(self, data: DType, residual: bool) -> Result<(), Error> {
        let expected = match self {
            Self::None | Self::Relu => return Ok(()),
            _ if data == DType::F64 => "none or relu for f64 data",
            _ if residual => "none or relu with a residual or a mask",
            _ => return Ok(()),
        };
        Err(Error::argument("activation", expected, self.name()))
    }
}

impl fmt::Display for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An error if these element types cannot be combined.
pub(crate) fn check_types(types: DTypes) -> Result<(), Error> {
    let DTypes {
        data,
        params,
        statistics,
    } = types;
    if !data.accepts_params(params) {
        return Err(Error::ParamDType { data, params });
    }
    if statistics != params && !(statistics == DType::F32 && data.accepts_params(statistics)) {
        return Err(Error::StatisticsDType { params, statistics });
    }
    Ok(())
}

/// An error if epsilon is invalid in the type in which it is used.
pub(crate) fn check_epsilon(epsilon: f64, data: DType) -> Result<(), Error> {
    // An adapter may treat a subnormal number as 0.
    let (used, normal) = match data.accumulator() {
        DType::F64 => (epsilon, epsilon.is_normal()),
        _ => (f64::from(epsilon as f32), (epsilon as f32).is_normal()),
    };
    if normal && used > 0.0 {
        Ok(())
    } else {
        Err(Error::Epsilon {
            got: epsilon,
            used,
            dtype: data.accumulator(),
        })
    }
}

/// Which variance of a batch updates the running variance. Frameworks differ: PyTorch, candle and cuDNN use the
/// unbiased one; ONNX, oneDNN and Burn use the biased one. dst and the gradient always use the biased one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RunningVariance {
    /// Σ(src − mean)² / m.
    #[default]
    Biased,
    /// Σ(src − mean)² / (m − 1). A channel of the whole batch must have at least two elements.
    Unbiased,
}

/// How a batch updates running statistics: (1 − weight) · old + weight · batch.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RunningUpdate {
    /// The weight of the batch, from 0 to 1: PyTorch's `momentum`, or 1 − `momentum` for ONNX and oneDNN. For PyTorch's
    /// cumulative average (`momentum=None`) it is 1 / (number of batches so far, including this one). Each weight needs
    /// an operation and a plan of its own.
    pub weight: f64,
    /// Which variance of the batch is used.
    pub variance: RunningVariance,
}

impl PartialEq for RunningUpdate {
    fn eq(&self, other: &Self) -> bool {
        self.weight.to_bits() == other.weight.to_bits() && self.variance == other.variance
    }
}

impl Eq for RunningUpdate {}

impl Hash for RunningUpdate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.weight.to_bits(), self.variance).hash(state);
    }
}

impl RunningUpdate {
    /// An update with this weight of the batch and this variance.
    pub const fn new(weight: f64, variance: RunningVariance) -> Self {
        Self { weight, variance }
    }

    /// An error if the weight is none.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if (0.0..=1.0).contains(&self.weight) {
            return Ok(());
        }
        let expected = "the batch's weight, a number from 0 to 1";
        Err(Error::argument("running weight", expected, self.weight))
    }

    /// An error if channels of `count` elements in the whole batch do not have its variance.
    pub(crate) fn check_count(&self, count: u64) -> Result<(), Error> {
        match (self.variance, count) {
            (RunningVariance::Unbiased, 1) => Err(Error::argument(
                "running variance",
                "channels of two elements at least in the whole batch, for the unbiased variance",
                "channels of one",
            )),
            _ => Ok(()),
        }
    }
}

/// The number of parts of a batch that is spread over several devices, and the part that a plan is for. Each part has
/// some of the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shards {
    pub(crate) count: u32,
    pub(crate) index: u32,
}

impl Shards {
    /// Part `index` of `count` parts; `index` is below `count`.
    pub const fn new(count: u32, index: u32) -> Self {
        Self { count, index }
    }
}

/// All samples on one device.
impl Default for Shards {
    fn default() -> Self {
        Self { count: 1, index: 0 }
    }
}
