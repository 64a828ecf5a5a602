//! The gradients and the forward passes in float64 on the CPU, written from the formula: what the kernels are
//! tested against.
//!
//! With m elements per group, r = 1/√(variance + epsilon), x̂ = (src − mean)·r and g = gamma or 1:
//!
//! * diff_beta = S1 = Σ diff_dst, diff_gamma = S2 = Σ diff_dst·x̂
//! * batch norm, [`Through::Batch`]: diff_src = g·r·((diff_dst − S1/m) − x̂·(S2/m))
//! * batch norm, [`Through::Constant`]: diff_src = g·r·diff_dst
//! * layer norm, per row, and group norm, per group, d = diff_dst·gamma: diff_src = r·((d − Σd/m) − x̂·(Σd·x̂/m))
//!
//! The gradients take mean and variance (biased) as given, and never recompute them. Nothing but sizes is
//! checked: NaN, infinity and variance + epsilon ≤ 0 give what the formula gives, but r of an infinite variance is NaN: where
//! squares overflow, 1/√∞ = 0 would make zeros of it. An empty tensor has an empty diff_src, and zeros as parameter
//! gradients.
//!
//! The forward passes, with x = src, or src + residual where layer and RMS norm have one:
//!
//! * batch norm, group norm and layer norm: dst = gamma·x̂ + beta, x̂ = (x − mean)·r, mean = Σx/m, variance = Σ(x − mean)²/m
//! * RMS norm, per row: dst = gamma·x·r, r = 1/√(mean_square + epsilon), mean_square = Σx²/m
//!
//! What follows a layer is composed with it: [`Forward::followed_by`], and for the gradients [`through_activation`], whose
//! result is given to them as diff_dst.
//!
//! x is the sum in float64, never rounded to the type that it is stored in. An empty tensor has an empty dst, and zeros as statistics.
//!
//! # Tolerances
//!
//! Where diff_dst is nearly constant over a channel, or follows x̂, the bracket above subtracts numbers
//! that are almost equal. The true diff_src is then almost 0, and what two correct programs print there
//! is rounding noise: they can differ by 100 %, or in sign, and be equally good. So compare the
//! difference with the size of the *terms*, not with diff_src itself. [`Gradients`] holds that size:
//!
//! | gradient | its scale |
//! |---|---|
//! | diff_src, batch statistics | r·\|g\|·(max\|diff_dst\| + Σ\|diff_dst\|/m + max\|x̂\|·Σ\|diff_dst·x̂\|/m), the channel's |
//! | diff_src, layer norm and group norm | r·(max\|d\| + Σ\|d\|/m + max\|x̂\|·Σ\|d·x̂\|/m), the row's or group's |
//! | diff_src, constant statistics | r·\|g\|·\|diff_dst\|, the element's own: nothing is subtracted |
//! | diff_gamma, diff_beta | Σ\|diff_dst·x̂\|, Σ\|diff_dst\| |
//!
//! Likewise [`Forward`], with σ = √variance. A kernel that adds differences from an element near the mean keeps
//! these, however large the mean is; one that subtracts mean² from a mean of squares does not:
//!
//! | output | its scale |
//! |---|---|
//! | mean | \|mean\| + σ |
//! | variance | 2.6·variance: a relative error of 1e-5 in f32 |
//! | dst, batch norm's `train`, group norm and layer norm | \|gamma\|·(1.3·\|x̂\| + σ·r) + \|beta\|: r has half the variance's relative error, and what the mean's error adds is of σ's size |
//! | dst, `infer` of batch norm and group norm | \|gamma·x̂\| + \|beta\|, the element's own |
//! | mean_square, dst of RMS norm, sum | \|mean_square\|, \|dst\|, \|sum\|: nothing is subtracted |
//! | layer norm with a residual, X = √(mean² + variance) | variance: also X·(2·σ + X/2²⁴)/64; dst: also \|gamma\|·X·r·(\|x̂\| + 2)/64 |
//!
//! The last line stands for one rounding, that of src + residual to the type of the sums: it moves x by u·\|x\|,
//! the mean by up to u·X, and σ by up to u·X, which is much of σ where the mean is large. (For dst this is the
//! first order: where u·X·r is near 1, such a sum holds nothing to normalize.) A kernel that normalizes a sum
//! which it has rounded to 16 bits is beyond these scales.
//!
//! [`scaled_error`] allows, for a result of type `T` whose sums are kept in type A (f64 for f64, else f32):
//! [`SUM_ULPS`]·u(A)·scale for the arithmetic; for f16 and bf16 also u(T)·\|want\|, the one rounding to
//! storage; and an absolute floor, half the spacing of subnormals for f16, else the smallest normal number,
//! as adapters may flush subnormals to 0 (a flushed *input* that is then multiplied up can lose more). u is
//! [`DType::unit_roundoff`]. The gradients' sums here are serial, so they are themselves off by about √m·2⁻⁵³ of
//! their scale, and up to m/4·2⁻⁵³ where all terms are equal: nothing beside f32, but mind it for f64 data. The
//! forward passes' sums keep what they round off.

mod activation;
mod forward;
mod group_norm;
mod rms_norm;

pub use activation::{through_activation, through_activation_scale};
pub use forward::{BatchNormForward, Forward, LayerNormForward, RmsNormForward, running};
pub use group_norm::{GroupNorm, GroupNormForward};
pub use rms_norm::RmsNorm;

use crate::{DType, DataFormat, Element, Error, ParamGrads, Through, memory};

/// The error of the arithmetic that [`scaled_error`] allows, in unit roundoffs of the sums' type.
///
/// Where a kernel's invocations add serially in 4 accumulators that a tree then adds, f32 sums of random terms,
/// of one sign or both, came out within 2 units for 1024 and for 4096 adds an invocation: roundings have
/// random signs, and the scale counts every term as if all had one sign. *Equal* terms are the worst case (the
/// gradient of a mean is such a diff_dst): their roundings agree in sign, and the error was up to a quarter of
/// the adds per accumulator. So 64 stands for 256 adds per accumulator, 1024 per invocation. Kernels that add
/// more in one chain exceed it on such data; with random data they do so only much later.
pub const SUM_ULPS: f64 = 64.0;

const MAX_RANK: usize = 8;

/// What memory is for, as [`Error::HostMemory`] says it.
const OF_ELEMENTS: &str = "the float64 reference, as large as src";
const OF_CHANNELS: &str = "the float64 reference, as large as gamma";

/// What [`BatchNorm::backward`] and [`LayerNorm::backward`] compute.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradients {
    /// Gradient of `src`, one per element.
    pub diff_src: Vec<f64>,
    /// Gradient of gamma, always computed, whatever `param_grads` says.
    pub diff_gamma: Vec<f64>,
    /// Gradient of beta, always computed, whatever `param_grads` says.
    pub diff_beta: Vec<f64>,
    /// Size of the terms of each element of `diff_src`; see the [module](self) on tolerances.
    pub diff_src_scale: Vec<f64>,
    /// Size of the terms of each element of `diff_gamma`.
    pub diff_gamma_scale: Vec<f64>,
    /// Size of the terms of each element of `diff_beta`.
    pub diff_beta_scale: Vec<f64>,
}

/// Batch norm's gradient for any set of channel axes.
///
/// oneDNN Graph's and nGraph's `BatchNormTrainingBackward`/`Backprop` have one channel axis (see [`channel_axes`]),
/// DirectML's `BATCH_NORMALIZATION_(TRAINING_)GRAD` any set of them.
///
/// ```
/// use wgpu_norm::reference;
/// use wgpu_norm::{DataFormat, ParamGrads, Statistics};
///
/// let gradients = reference::BatchNorm {
///     shape: &[2, 2], // 2 samples of 2 channels
///     channel_axes: &reference::channel_axes(2, DataFormat::Ncx),
///     src: &[1.0, 10.0, 3.0, 30.0],
///     diff_dst: &[1.0, 0.0, 0.0, 4.0],
///     mean: &[2.0, 20.0],
///     variance: &[1.0, 100.0],
///     gamma: Some(&[1.0, 2.0]),
///     epsilon: 1e-5,
///     statistics: Through::Batch,
///     param_grads: ParamGrads::Both,
/// }
/// .backward()?;
/// assert_eq!(gradients.diff_beta, [1.0, 4.0]);
/// assert!((gradients.diff_gamma[0] - -1.0).abs() < 1e-4);
///
/// // An f32 result is right if it is within the tolerance of the terms' size:
/// let result: Vec<f32> = gradients.diff_src.iter().map(|&x| x as f32).collect();
/// assert!(reference::scaled_error(&result, &gradients.diff_src, &gradients.diff_src_scale) < 1.0);
/// # Ok::<(), wgpu_norm::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm<'a> {
    /// Sizes of `src` and `diff_dst`, rank 1 to 8, row-major.
    pub shape: &'a [usize],
    /// True where mean, variance and gamma vary along that axis of `src`.
    pub channel_axes: &'a [bool],
    /// The forward pass's input.
    pub src: &'a [f64],
    /// Gradient of the forward pass's output.
    pub diff_dst: &'a [f64],
    /// Mean per channel. A channel is one index into the channel axes, row-major.
    pub mean: &'a [f64],
    /// Biased variance per channel.
    pub variance: &'a [f64],
    /// Scale per channel; 1 if absent.
    pub gamma: Option<&'a [f64]>,
    /// Added to the variance.
    pub epsilon: f64,
    /// What mean and variance are to the gradient.
    pub statistics: Through,
    /// [`ParamGrads::Neither`] makes `diff_src` ignore gamma.
    pub param_grads: ParamGrads,
}

impl BatchNorm<'_> {
    /// Computes the gradients by the formulas of the [module](self).
    ///
    /// # Errors
    /// [`Error::Rank`], [`Error::SizeOverflow`], or [`Error::Length`] for an argument that does not fit the shape;
    /// [`Error::HostMemory`].
    pub fn backward(&self) -> Result<Gradients, Error> {
        let (elements, channels) = channels(self.shape, self.channel_axes)?;
        check_length("src", elements, self.src.len())?;
        check_length("diff_dst", elements, self.diff_dst.len())?;
        check_length("mean", channels, self.mean.len())?;
        check_length("variance", channels, self.variance.len())?;
        check_length("gamma", channels, self.gamma.map_or(channels, <[f64]>::len))?;

        let channel_of = channel_of(self.shape, self.channel_axes)?;
        let r = inverse_deviation(self.variance, self.epsilon);
        let r = memory::collect(OF_CHANNELS, r)?;
        let x_hat = |i: usize, c: usize| (self.src[i] - self.mean[c]) * r[c];
        let gamma = counted(self.gamma, self.param_grads);
        let g = |c: usize| gamma.map_or(1.0, |gamma| gamma[c]);

        let mut sums = zeros(channels)?;
        for (i, &c) in channel_of.iter().enumerate() {
            sums[c].add(self.diff_dst[i], x_hat(i, c));
        }

        let m = elements as f64 / channels as f64;
        let mut diff_src = memory::room(OF_ELEMENTS, elements)?;
        let mut diff_src_scale = memory::room(OF_ELEMENTS, elements)?;
        for (i, &c) in channel_of.iter().enumerate() {
            let dy = self.diff_dst[i];
            let (bracket, scale) = match self.statistics {
                Through::Batch => (sums[c].centred(dy, x_hat(i, c), m), sums[c].scale(m)),
                Through::Constant => (dy, dy.abs()),
            };
            diff_src.push(g(c) * r[c] * bracket);
            diff_src_scale.push(g(c).abs() * r[c] * scale);
        }
        Gradients::new(diff_src, diff_src_scale, &sums)
    }
}

/// The channel axes of a tensor with one channel axis: axis 1 for NCX, the last for NXC.
pub fn channel_axes(rank: usize, format: DataFormat) -> Vec<bool> {
    let is_channel = |axis| match format {
        DataFormat::Ncx => axis == 1,
        DataFormat::Nxc => axis + 1 == rank,
    };
    (0..rank).map(is_channel).collect()
}

/// A tensor's elements as the reference takes them.
///
/// # Errors
/// [`Error::HostMemory`], which names `tensor`.
pub fn to_f64<T: Element>(tensor: &'static str, values: &[T]) -> Result<Vec<f64>, Error> {
    memory::collect(tensor, values.iter().map(|value| value.to_f64()))
}

/// Layer norm's gradient: oneDNN Graph's `LayerNormBackward`.
///
/// A row is one index into the axes before `begin_norm_axis`, a column one into the others.
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm<'a> {
    /// Sizes of `src` and `diff_dst`, rank 1 to 8, row-major.
    pub shape: &'a [usize],
    /// The first normalized axis, from 0 to rank − 1.
    pub begin_norm_axis: usize,
    /// The forward pass's input.
    pub src: &'a [f64],
    /// Gradient of the forward pass's output.
    pub diff_dst: &'a [f64],
    /// Mean per row.
    pub mean: &'a [f64],
    /// Biased variance per row.
    pub variance: &'a [f64],
    /// Scale per column; 1 if absent.
    pub gamma: Option<&'a [f64]>,
    /// Added to the variance.
    pub epsilon: f64,
    /// [`ParamGrads::Neither`] makes `diff_src` ignore gamma.
    pub param_grads: ParamGrads,
}

impl LayerNorm<'_> {
    /// Computes the gradients by the formulas of the [module](self).
    ///
    /// # Errors
    /// As [`BatchNorm::backward`], and [`Error::Argument`] if `begin_norm_axis` is not an axis.
    pub fn backward(&self) -> Result<Gradients, Error> {
        let (elements, rows, columns) = rows_and_columns(self.shape, self.begin_norm_axis, "mean")?;
        check_length("src", elements, self.src.len())?;
        check_length("diff_dst", elements, self.diff_dst.len())?;
        check_length("mean", rows, self.mean.len())?;
        check_length("variance", rows, self.variance.len())?;
        check_length("gamma", columns, self.gamma.map_or(columns, <[f64]>::len))?;

        let m = columns as f64;
        let mut diff_src = memory::room(OF_ELEMENTS, elements)?;
        let mut diff_src_scale = memory::room(OF_ELEMENTS, elements)?;
        let mut column_sums = zeros(columns)?;
        let gamma = counted(self.gamma, self.param_grads);
        for (row, r) in inverse_deviation(self.variance, self.epsilon).enumerate() {
            let start = row * columns;
            let x_hat = |i: usize| (self.src[i] - self.mean[row]) * r;
            let d = |i: usize| self.diff_dst[i] * gamma.map_or(1.0, |gamma| gamma[i - start]);

            let mut sums = Sums::default();
            for (i, column) in (start..).zip(&mut column_sums) {
                sums.add(d(i), x_hat(i));
                column.add(self.diff_dst[i], x_hat(i));
            }
            for i in start..start + columns {
                diff_src.push(r * sums.centred(d(i), x_hat(i), m));
                diff_src_scale.push(r * sums.scale(m));
            }
        }
        Gradients::new(diff_src, diff_src_scale, &column_sums)
    }
}

/// gamma, where diff_src depends on it.
fn counted(gamma: Option<&[f64]>, param_grads: ParamGrads) -> Option<&[f64]> {
    gamma.filter(|_| param_grads != ParamGrads::Neither)
}

/// Largest |got − want| in units of the tolerance: above 1 fails. The [module](self) defines the tolerance.
///
/// Where `want` is not finite, whatever is not finite is right: the order of a sum decides whether infinite terms make it
/// infinite or NaN. Where `want` is finite but beyond the range of `T`, or so near its end that the tolerance reaches
/// beyond, infinity is right as well; NaN is not.
/// A mismatch of these, different lengths, or a scale that is not finite beside a finite `want` give infinity.
#[must_use]
pub fn scaled_error<T: Element>(got: &[T], want: &[f64], scale: &[f64]) -> f64 {
    if got.len() != want.len() || want.len() != scale.len() {
        return f64::INFINITY;
    }
    let pairs = got.iter().zip(want).zip(scale);
    pairs
        .map(|((&got, &want), &scale)| element_error::<T>(got.to_f64(), want, scale))
        .fold(0.0, f64::max)
}

/// [`scaled_error`] of one element. Never NaN, which `f64::max` would drop.
fn element_error<T: Element>(got: f64, want: f64, scale: f64) -> f64 {
    let matches = |same: bool| if same { 0.0 } else { f64::INFINITY };
    if got.is_nan() || !want.is_finite() {
        return matches(!got.is_finite() && !want.is_finite());
    }
    if !scale.is_finite() {
        return f64::INFINITY;
    }
    let accumulator = T::DTYPE.accumulator();
    let sums = SUM_ULPS * accumulator.unit_roundoff() * scale.abs();
    if got.is_infinite() {
        let farthest = T::from_f64(want + sums.copysign(got));
        return matches(farthest.to_f64() == got);
    }
    // For f32 and f64 `sums` covers the last rounding, as |want| is at most the scale.
    let is_narrow = T::DTYPE != accumulator;
    let storage = f64::from(is_narrow) * T::DTYPE.unit_roundoff() * want.abs();
    let floor = match T::DTYPE {
        DType::F16 => 1.0 / (1u64 << 25) as f64,
        DType::Bf16 | DType::F32 => f64::from(f32::MIN_POSITIVE),
        DType::F64 => f64::MIN_POSITIVE,
    };
    (got - want).abs() / (sums + storage + floor)
}

/// The sums over one group of elements, of d (diff_dst, or diff_dst·gamma) and x̂.
#[derive(Clone, Default)]
struct Sums {
    d: f64,
    d_x_hat: f64,
    abs_d: f64,
    abs_d_x_hat: f64,
    max_d: f64,
    max_x_hat: f64,
}

impl Sums {
    fn add(&mut self, d: f64, x_hat: f64) {
        self.d += d;
        self.d_x_hat += d * x_hat;
        self.abs_d += d.abs();
        self.abs_d_x_hat += (d * x_hat).abs();
        self.max_d = self.max_d.max(d.abs());
        self.max_x_hat = self.max_x_hat.max(x_hat.abs());
    }

    /// d less its projections on 1 and on x̂: the gradient through statistics taken from m elements.
    fn centred(&self, d: f64, x_hat: f64, m: f64) -> f64 {
        (d - self.d / m) - x_hat * (self.d_x_hat / m)
    }

    /// Upper bound of the terms of [`Self::centred`].
    fn scale(&self, m: f64) -> f64 {
        self.max_d + self.abs_d / m + self.max_x_hat * (self.abs_d_x_hat / m)
    }
}

impl Gradients {
    fn new(diff_src: Vec<f64>, diff_src_scale: Vec<f64>, sums: &[Sums]) -> Result<Self, Error> {
        let each = |of: fn(&Sums) -> f64| memory::collect(OF_CHANNELS, sums.iter().map(of));
        Ok(Self {
            diff_src,
            diff_src_scale,
            diff_gamma: each(|s| s.d_x_hat)?,
            diff_beta: each(|s| s.d)?,
            diff_gamma_scale: each(|s| s.abs_d_x_hat)?,
            diff_beta_scale: each(|s| s.abs_d)?,
        })
    }
}

fn inverse_deviation(variance: &[f64], epsilon: f64) -> impl ExactSizeIterator<Item = f64> {
    variance
        .iter()
        .map(move |&v| one_over_deviation(v, epsilon))
}

/// r: NaN of an infinite variance, of which nothing is known but that squares have overflowed.
fn one_over_deviation(variance: f64, epsilon: f64) -> f64 {
    match variance + epsilon {
        f64::INFINITY => f64::NAN,
        sum => 1.0 / sum.sqrt(),
    }
}

/// The channel of every element, in row-major order, by adding one axis after the other.
fn channel_of(shape: &[usize], channel_axes: &[bool]) -> Result<Vec<usize>, Error> {
    if shape.contains(&0) {
        return Ok(Vec::new()); // the sizes before a 0 could ask for any amount of memory
    }
    let mut channel = vec![0];
    for (&size, &is_channel) in shape.iter().zip(channel_axes) {
        let along = |c| (0..size).map(move |i| if is_channel { c * size + i } else { c });
        let mut longer = memory::room(OF_ELEMENTS, channel.len() * size)?;
        longer.extend(channel.into_iter().flat_map(along));
        channel = longer;
    }
    Ok(channel)
}

/// The number of elements, and of channels.
fn channels(shape: &[usize], channel_axes: &[bool]) -> Result<(usize, usize), Error> {
    check_rank(shape)?;
    check_length("channel_axes", shape.len(), channel_axes.len())?;
    let kept = shape.iter().zip(channel_axes);
    let kept: Vec<usize> = kept.filter(|(_, is)| **is).map(|(&size, _)| size).collect();
    Ok((product("src", shape)?, product("mean", &kept)?))
}

/// The number of elements, of rows, each of which has a `statistic`, and of columns.
fn rows_and_columns(
    shape: &[usize],
    begin_norm_axis: usize,
    statistic: &'static str,
) -> Result<(usize, usize, usize), Error> {
    check_rank(shape)?;
    match shape.split_at_checked(begin_norm_axis) {
        Some((leading, trailing)) if !trailing.is_empty() => {
            let elements = product("src", shape)?;
            let (rows, columns) = (product(statistic, leading)?, product("gamma", trailing)?);
            Ok((elements, rows, columns))
        }
        _ => Err(Error::Argument {
            argument: "begin_norm_axis",
            expected: format!("an axis from 0 to {}", shape.len() - 1),
            got: begin_norm_axis.to_string(),
        }),
    }
}

fn product(what: &'static str, shape: &[usize]) -> Result<usize, Error> {
    if shape.contains(&0) {
        return Ok(0); // whatever the other sizes are
    }
    let product = shape.iter().try_fold(1usize, |p, &s| p.checked_mul(s));
    product.ok_or_else(|| Error::SizeOverflow {
        what,
        shape: shape.to_vec(),
        limit: isize::MAX as u64 / 8,
    })
}

/// Sums for every channel or column. With no rows, no argument bounds the number of columns.
fn zeros(groups: usize) -> Result<Vec<Sums>, Error> {
    memory::collect(OF_CHANNELS, std::iter::repeat_n(Sums::default(), groups))
}

fn check_rank(shape: &[usize]) -> Result<(), Error> {
    let (tensor, min, max, got) = ("src", 1, MAX_RANK, shape.len());
    #[rustfmt::skip]
    let error = Error::Rank { tensor, min, max, got };
    (min..=max).contains(&got).then_some(()).ok_or(error)
}

fn check_length(tensor: &'static str, expected: usize, got: usize) -> Result<(), Error> {
    #[rustfmt::skip]
    let error = Error::Length { tensor, expected, got };
    (expected == got).then_some(()).ok_or(error)
}

#[cfg(test)]
mod tests;
