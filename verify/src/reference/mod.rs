//! Every operation in float64 on the CPU, written from the formula: the reference for the kernels' tests.
//!
//! With m elements that share statistics, r = 1/√(variance + epsilon), x̂ = (src − mean)·r and d = diff_dst·gamma (or
//! diff_dst):
//!
//! * diff_beta = Σ diff_dst, diff_gamma = Σ diff_dst·x̂, over the elements that share a parameter
//! * diff_src = r·((d − Σd/m) − x̂·(Σd·x̂/m)), over those that share statistics
//! * with constant statistics diff_src = r·d
//! * RMS norm and others that do not center, with r = 1/√(mean_square + epsilon) and x̂ = src·r:
//!   diff_src = r·(d − x̂·(Σd·x̂/m))
//!
//! The gradients take mean and variance (biased) as given, and never recompute them. Only sizes are checked: NaN,
//! infinity and variance + epsilon ≤ 0 give what the formula gives. But r of an infinite variance is NaN: where squares
//! overflow, 1/√∞ = 0 would give zeros. An empty tensor has an empty diff_src, and zeros as parameter gradients.
//!
//! The forward passes, with x = src, or x = src + residual if layer or RMS norm has a residual:
//!
//! * dst = gamma·x̂ + beta, x̂ = (x − mean)·r, mean = Σx/m, variance = Σ(x − mean)²/m
//! * not centered: x̂ = x·r, mean_square = Σx²/m
//!
//! A gate multiplies gamma·x̂ + beta, and in a gradient diff_dst·gamma; diff_gate = gamma·Σ diff_dst·x̂ + beta·Σ
//! diff_dst. A residual after the layer is added to dst, then the activation is applied. The gradient replaces diff_dst
//! by diff_dst·activation′.
//!
//! x is the sum in float64, never rounded to its storage type. An empty tensor has an empty dst, and zeros as
//! statistics.
//!
//! # Tolerances
//!
//! If diff_dst is nearly constant over a channel, or follows x̂, the bracket above subtracts numbers that are almost
//! equal. The true diff_src is then almost 0, and the results of two correct programs are rounding noise: they can
//! differ by 100 %, or in sign, and be equally good. So compare the difference with the size of the *terms*, not with
//! diff_src itself. [`Computed::scale`] is that size:
//!
//! | gradient | its scale |
//! |---|---|
//! | diff_src | r·(max\|d\| + Σ\|d\|/m + max\|x̂\|·Σ\|d·x̂\|/m), without Σ\|d\|/m for RMS norm |
//! | diff_src, constant statistics | r·\|d\|, the element's own: nothing is subtracted |
//! | diff_gamma, diff_beta | Σ\|diff_dst·x̂\|, Σ\|diff_dst\|, times \|gate\| |
//! | diff_gate | \|gamma\|·Σ\|diff_dst·x̂\| + \|beta\|·Σ\|diff_dst\| |
//!
//! The same holds for forward passes, with σ = √variance. A kernel that adds differences from an element near the mean
//! stays within these scales, however large the mean is; one that subtracts mean² from a mean of squares does not:
//!
//! | output | its scale |
//! |---|---|
//! | mean | \|mean\| + σ |
//! | variance | 2.6·variance: a relative error of 1e-5 in f32 |
//! | dst | \|gamma\|·(1.3·\|x̂\| + σ·r) + \|beta\|: r has half the variance's relative error, and the contribution of the mean's error has σ's size |
//! | dst, inference | \|gamma·x̂\| + \|beta\|, the element's own |
//! | mean_square, dst of RMS norm, sum | \|mean_square\|, \|dst\|, \|sum\|: nothing is subtracted |
//! | layer norm with a residual, X = √(mean² + variance) | variance: also X·(2·σ + X/2²⁴)/64; dst: also \|gamma\|·X·r·(\|x̂\| + 2)/64 |
//!
//! The last line accounts for one rounding, that of src + residual to the type of the sums: it moves x by u·\|x\|, the
//! mean by up to u·X, and σ by up to u·X, which is much of σ if the mean is large. (For dst this is the first order: if
//! u·X·r is near 1, such a sum holds nothing to normalize.) A kernel that normalizes a sum which it has rounded to 16
//! bits exceeds these scales.
//!
//! For a result of type `T` whose sums have type A (f64 for f64, else f32), [`scaled_error`] allows
//! [`SUM_ULPS`]·u(A)·scale for the arithmetic; for f16 and bf16 also u(T)·\|want\|, the one rounding to storage; and an
//! absolute floor, half the spacing of subnormals for f16, else the smallest normal number, as adapters may flush
//! subnormals to 0 (a flushed *input* that is then multiplied up can lose more). u is [`DType::unit_roundoff`]. The
//! gradients' sums here are serial, so their own error is about √m·2⁻⁵³ of their scale, and up to m/4·2⁻⁵³ if all terms
//! are equal: nothing compared with f32, but relevant for f64 data. The forward passes' sums keep their rounding
//! errors.
//!
//! Where squares may overflow the type of sums, the scale is negative, and NaN is also correct.
//!
//! If a gradient recomputes the layer's output, rounding decides whether elements near 0 pass relu. Their scale allows
//! for both ([`Computed::undecided`]).

mod activation;
mod backward;
mod error;
mod forward;
mod indices;
mod layer;
mod norm;
mod params;
#[cfg(test)]
mod tests;
mod undecided;

pub use error::{SUM_ULPS, scaled_error};

use indices::Indices;
use params::Params;
use wgpu_norm::support;
use wgpu_norm::{DType, Element, Error, Operation, Pass, Tensor};

/// The purposes of memory in [`Error::HostMemory`].
const OF_ELEMENTS: &str = "the float64 reference, as large as src";
const OF_CHANNELS: &str = "the float64 reference, as large as gamma";

/// A result by the reference.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Computed {
    /// The tensor.
    pub tensor: Tensor,
    /// Its elements. For a mask, the activation's arguments: a bit is 1 if the argument is above 0 or NaN.
    pub values: Vec<f64>,
    /// The size of each element's terms, to which the tolerance is proportional; negative where NaN is also correct.
    pub scale: Vec<f64>,
    /// The number of elements of src for which rounding decides whether they pass the activation.
    pub undecided: usize,
}

/// The tensors that an operation reads, as float64; for a mask, 0 or 1 for each element.
#[derive(Clone, Copy)]
struct Inputs<'a>(&'a [(Tensor, &'a [f64])]);

impl<'a> Inputs<'a> {
    fn given(&self, tensor: Tensor) -> Option<&'a [f64]> {
        let found = self.0.iter().find(|(name, _)| *name == tensor);
        found.map(|(_, values)| *values)
    }

    /// A tensor of the operation; all of these were looked up before.
    fn get(&self, tensor: Tensor) -> &'a [f64] {
        self.given(tensor).unwrap_or_default()
    }
}

/// Computes an operation's results in float64. Tensors that it does not read may also be given.
///
/// ```
/// use wgpu_norm::{Backward, Channels, DType, DataFormat, Norm, Operation, Tensor};
/// use wgpu_norm_verify::reference::{compute, scaled_error};
///
/// let norm = Norm::Batch(Channels::Axis(DataFormat::Ncx));
/// let operation = Operation::new(norm, Backward::default(), &[2, 2], DType::F32);
/// let results = compute(
///     &operation,
///     &[
///         (Tensor::Src, &[1.0, 10.0, 3.0, 30.0]), // 2 samples of 2 channels
///         (Tensor::DiffDst, &[1.0, 0.0, 0.0, 4.0]),
///         (Tensor::Mean, &[2.0, 20.0]),
///         (Tensor::Variance, &[1.0, 100.0]),
///         (Tensor::Gamma, &[1.0, 2.0]),
///     ],
/// )?;
/// let [diff_src, _, diff_beta] = &results[..] else { return Ok(()) };
/// assert_eq!((diff_beta.tensor, &diff_beta.values[..]), (Tensor::DiffBeta, &[1.0, 4.0][..]));
///
/// // An f32 result is right if it is within the tolerance of the terms' size:
/// let result: Vec<f32> = diff_src.values.iter().map(|&x| x as f32).collect();
/// assert!(scaled_error(&result, &diff_src.values, &diff_src.scale) < 1.0);
/// # Ok::<(), wgpu_norm::Error>(())
/// ```
///
/// # Errors
///
/// Those of [`Operation::tensors`]; [`Error::Argument`] for a tensor that is missing or has the wrong length, or for
/// the unbiased variance of channels with one element; [`Error::HostMemory`].
pub fn compute(operation: &Operation, inputs: &[(Tensor, &[f64])]) -> Result<Vec<Computed>, Error> {
    let tensors = operation.tensors()?;
    let is_read = |tensor| {
        let mut read = tensors.iter().filter(|used| used.access.reads());
        read.any(|used| used.tensor == tensor)
    };
    let inputs = inputs.iter().copied();
    let inputs: Vec<_> = inputs.filter(|(tensor, _)| is_read(*tensor)).collect();
    let inputs = Inputs(&inputs);
    for used in tensors.iter().filter(|used| used.access.reads()) {
        let expected: usize = used.shape.iter().product();
        let got = inputs.get(used.tensor).len();
        if got != expected {
            let tensor = used.tensor.name();
            return Err(Error::argument(tensor, format!("{expected} elements"), got));
        }
    }
    let params = Params::new(operation, inputs)?;
    let others = inputs.0.iter().copied();
    let others = others.filter(|(tensor, _)| *tensor != Tensor::Gamma);
    let gamma = params.gamma.as_deref();
    let gamma = gamma.map(|gamma| (Tensor::Gamma, gamma));
    let inputs: Vec<_> = others.chain(gamma).collect();
    let inputs = Inputs(&inputs);
    let indices = Indices::new(&operation.axes())?;
    let mut results = match &operation.pass {
        Pass::Backward(backward) => backward::compute(operation, *backward, &indices, inputs)?,
        _ => forward::compute(operation, &indices, inputs)?,
    };
    params.with_gate(&mut results)?;
    let is_result = |tensor| {
        let written = tensors.iter().filter(|used| used.access.writes());
        written
            .map(|used| used.tensor)
            .any(|written| written == tensor)
    };
    results.retain(|computed| is_result(computed.tensor));
    Ok(results)
}

impl Computed {
    fn new(tensor: Tensor, (values, scale): (Vec<f64>, Vec<f64>)) -> Self {
        Self {
            tensor,
            values,
            scale,
            undecided: 0,
        }
    }
}

/// Converts a tensor's elements to the reference's input.
///
/// # Errors
///
/// [`Error::HostMemory`], which names `tensor`.
pub fn to_f64<T: Element>(tensor: &'static str, values: &[T]) -> Result<Vec<f64>, Error> {
    support::collect(tensor, values.iter().map(|value| value.to_f64()))
}

/// r; NaN for an infinite variance, which only says that squares have overflowed.
fn one_over_deviation(variance: f64, epsilon: f64) -> f64 {
    match variance + epsilon {
        f64::INFINITY => f64::NAN,
        sum => 1.0 / sum.sqrt(),
    }
}

/// Values and their scales.
fn unzip(
    what: &'static str,
    pairs: impl ExactSizeIterator<Item = (f64, f64)>,
) -> Result<(Vec<f64>, Vec<f64>), Error> {
    let mut values = support::room(what, pairs.len())?;
    let mut scales = support::room(what, pairs.len())?;
    for (value, scale) in pairs {
        values.push(value);
        scales.push(scale);
    }
    Ok((values, scales))
}

/// The type of an operation's sums.
fn sums(operation: &Operation) -> DType {
    operation.types.data.accumulator()
}
