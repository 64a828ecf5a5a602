//! The forward passes.

use super::{
    OF_CHANNELS, OF_ELEMENTS, SUM_ULPS, channel_of, channels, check_length, inverse_deviation,
    one_over_deviation, rows_and_columns,
};
use crate::{DType, Error, memory};

/// The variance's scale, in variances: in f32 [`scaled_error`](super::scaled_error) then allows a relative error of
/// 1e-5. Kernels can promise that even where the mean is a million deviations.
const VARIANCE: f64 = 2.6;

/// What the forward passes compute. An output that an operator does not have is empty, and so is its scale.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forward {
    /// The normalized tensor, one per element.
    pub dst: Vec<f64>,
    /// src + residual, one per element. Empty without a residual.
    pub sum: Vec<f64>,
    /// Mean per channel or row. Empty for RMS norm, and where the statistics were given.
    pub mean: Vec<f64>,
    /// Biased variance per channel or row. Empty where `mean` is.
    pub variance: Vec<f64>,
    /// Mean of the squares per row: RMS norm's only statistic, and empty for the others.
    pub mean_square: Vec<f64>,
    /// Size of the terms of each element of `dst`; see the [module](super) on tolerances.
    pub dst_scale: Vec<f64>,
    /// Size of the terms of each element of `sum`.
    pub sum_scale: Vec<f64>,
    /// Size of the terms of each mean.
    pub mean_scale: Vec<f64>,
    /// Size of the terms of each variance.
    pub variance_scale: Vec<f64>,
    /// Size of the terms of each mean of squares.
    pub mean_square_scale: Vec<f64>,
}

/// Batch norm for any set of channel axes: dst = gamma·x̂ + beta, x̂ = (src − mean)·r, r = 1/√(variance + epsilon).
///
/// ```
/// use wgpu_norm::{DataFormat, reference};
///
/// let layer = reference::BatchNormForward {
///     shape: &[2, 2], // 2 samples of 2 channels
///     channel_axes: &reference::channel_axes(2, DataFormat::Ncx),
///     src: &[1.0, 10.0, 3.0, 30.0],
///     gamma: Some(&[1.0, 2.0]),
///     beta: Some(&[0.0, 5.0]),
///     epsilon: 1e-5,
/// };
/// let batch = layer.train()?;
/// assert_eq!(batch.mean, [2.0, 20.0]);
/// assert_eq!(batch.variance, [1.0, 100.0]);
/// assert!((batch.dst[3] - 7.0).abs() < 1e-4);
///
/// let given = layer.infer(&[0.0, 10.0], &[4.0, 25.0])?;
/// assert!((given.dst[3] - 13.0).abs() < 1e-4);
/// # Ok::<(), wgpu_norm::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct BatchNormForward<'a> {
    /// Sizes of `src`, rank 1 to 8, row-major.
    pub shape: &'a [usize],
    /// True where mean, variance, gamma and beta vary along that axis of `src`.
    pub channel_axes: &'a [bool],
    /// The tensor to normalize.
    pub src: &'a [f64],
    /// Scale per channel; 1 if absent. A channel is one index into the channel axes, row-major.
    pub gamma: Option<&'a [f64]>,
    /// Offset per channel; 0 if absent.
    pub beta: Option<&'a [f64]>,
    /// Added to the variance.
    pub epsilon: f64,
}

impl BatchNormForward<'_> {
    /// Normalizes by each channel's own mean and biased variance, which are outputs too: `dst`, `mean` and
    /// `variance`. A channel without elements has mean 0 and variance 0.
    ///
    /// # Errors
    /// [`Error::Rank`], [`Error::SizeOverflow`], or [`Error::Length`] for an argument that does not fit the shape;
    /// [`Error::HostMemory`].
    pub fn train(&self) -> Result<Forward, Error> {
        let channels = self.check()?;
        let channel_of = channel_of(self.shape, self.channel_axes)?;
        let moments = moments(self.src, |i| channel_of[i], channels)?;
        let groups = groups(&moments, self.epsilon, false)?;
        let dst = (self.src.iter().zip(&channel_of))
            .map(|(&x, &c)| self.affine().apply(c, groups[c].x_hat(x)));
        Forward::new(dst, &groups)
    }

    /// Normalizes by a given mean and variance per channel. Of the outputs there is `dst` alone.
    ///
    /// # Errors
    /// As [`Self::train`].
    pub fn infer(&self, mean: &[f64], variance: &[f64]) -> Result<Forward, Error> {
        let channels = self.check()?;
        check_length("mean", channels, mean.len())?;
        check_length("variance", channels, variance.len())?;
        let channel_of = channel_of(self.shape, self.channel_axes)?;
        let r = memory::collect(OF_CHANNELS, inverse_deviation(variance, self.epsilon))?;
        let dst = self.src.iter().zip(&channel_of).map(|(&x, &c)| {
            let x_hat = (x - mean[c]) * r[c];
            self.affine().apply(c, (x_hat, x_hat.abs()))
        });
        let (dst, dst_scale) = unzip(OF_ELEMENTS, dst)?;
        Ok(Forward {
            dst,
            dst_scale,
            ..Forward::default()
        })
    }

    /// The number of channels, where all lengths fit the shape.
    fn check(&self) -> Result<usize, Error> {
        let (elements, channels) = channels(self.shape, self.channel_axes)?;
        check_length("src", elements, self.src.len())?;
        self.affine().check(channels)?;
        Ok(channels)
    }

    fn affine(&self) -> Affine<'_> {
        Affine {
            gamma: self.gamma,
            beta: self.beta,
        }
    }
}

/// Layer norm of x = src + residual: per row, dst = gamma·x̂ + beta, x̂ = (x − mean)·r, r = 1/√(variance + epsilon).
///
/// A row is one index into the axes before `begin_norm_axis`, a column one into the others.
///
/// ```
/// use wgpu_norm::reference;
///
/// let row = reference::LayerNormForward {
///     shape: &[1, 2],
///     begin_norm_axis: 1,
///     src: &[1.0, 2.0],
///     residual: Some(&[0.0, 3.0]),
///     gamma: None,
///     beta: Some(&[0.0, 10.0]),
///     epsilon: 1e-5,
/// }
/// .forward()?;
/// assert_eq!(row.sum, [1.0, 5.0]);
/// assert_eq!((row.mean[0], row.variance[0]), (3.0, 4.0));
/// assert!((row.dst[1] - 11.0).abs() < 1e-4);
/// # Ok::<(), wgpu_norm::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LayerNormForward<'a> {
    /// Sizes of `src` and `residual`, rank 1 to 8, row-major.
    pub shape: &'a [usize],
    /// The first normalized axis, from 0 to rank − 1.
    pub begin_norm_axis: usize,
    /// The tensor to normalize.
    pub src: &'a [f64],
    /// Added to `src` first. The sum is an output then.
    pub residual: Option<&'a [f64]>,
    /// Scale per column; 1 if absent.
    pub gamma: Option<&'a [f64]>,
    /// Offset per column; 0 if absent.
    pub beta: Option<&'a [f64]>,
    /// Added to the variance.
    pub epsilon: f64,
}

impl LayerNormForward<'_> {
    /// Normalizes each row by its own mean and biased variance: `dst`, `mean`, `variance`, and `sum` if there is a
    /// residual. A row without elements has mean 0 and variance 0.
    ///
    /// # Errors
    /// As [`BatchNormForward::train`], and [`Error::Argument`] if `begin_norm_axis` is not an axis.
    pub fn forward(&self) -> Result<Forward, Error> {
        let (elements, rows, columns) = rows_and_columns(self.shape, self.begin_norm_axis, "mean")?;
        let affine = Affine {
            gamma: self.gamma,
            beta: self.beta,
        };
        check_length("src", elements, self.src.len())?;
        affine.check(columns)?;

        let sum = added(self.src, self.residual)?;
        let x = sum.as_deref().unwrap_or(self.src);
        let moments = moments(x, |i| i / columns, rows)?;
        let groups = groups(&moments, self.epsilon, sum.is_some())?;
        let dst = x.iter().enumerate();
        let dst = dst.map(|(i, &x)| affine.apply(i % columns, groups[i / columns].x_hat(x)));
        Forward::new(dst, &groups)?.with_sum(sum)
    }
}

/// RMS norm of x = src + residual: per row, dst = gamma·x·r, r = 1/√(mean_square + epsilon), mean_square the mean of x².
///
/// A row is one index into the axes before `begin_norm_axis`, a column one into the others.
///
/// ```
/// use wgpu_norm::reference;
///
/// let row = reference::RmsNormForward {
///     shape: &[1, 2],
///     begin_norm_axis: 1,
///     src: &[3.0, 4.0],
///     residual: None,
///     gamma: Some(&[1.0, 10.0]),
///     epsilon: 12.5,
/// }
/// .forward()?;
/// assert_eq!(row.mean_square, [12.5]);
/// assert!((row.dst[1] - 8.0).abs() < 1e-12);
/// # Ok::<(), wgpu_norm::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RmsNormForward<'a> {
    /// Sizes of `src` and `residual`, rank 1 to 8, row-major.
    pub shape: &'a [usize],
    /// The first normalized axis, from 0 to rank − 1.
    pub begin_norm_axis: usize,
    /// The tensor to normalize.
    pub src: &'a [f64],
    /// Added to `src` first. The sum is an output then.
    pub residual: Option<&'a [f64]>,
    /// Scale per column; 1 if absent.
    pub gamma: Option<&'a [f64]>,
    /// Added to the mean of squares.
    pub epsilon: f64,
}

impl RmsNormForward<'_> {
    /// Normalizes each row by the mean of its squares: `dst`, `mean_square`, and `sum` if there is a residual. A row
    /// without elements has mean_square 0.
    ///
    /// # Errors
    /// As [`LayerNormForward::forward`].
    pub fn forward(&self) -> Result<Forward, Error> {
        let (elements, rows, columns) =
            rows_and_columns(self.shape, self.begin_norm_axis, "mean_square")?;
        let affine = Affine {
            gamma: self.gamma,
            beta: None,
        };
        check_length("src", elements, self.src.len())?;
        affine.check(columns)?;

        let sum = added(self.src, self.residual)?;
        let x = sum.as_deref().unwrap_or(self.src);
        let none = std::iter::repeat_n(Sum::default(), rows);
        let mut squares = memory::collect(OF_CHANNELS, none)?;
        for (i, x) in x.iter().enumerate() {
            squares[i / columns].add(x * x);
        }
        let mean = |sum: &Sum| sum.total() / columns.max(1) as f64;
        let mean_square = memory::collect(OF_CHANNELS, squares.iter().map(mean))?;
        let r = memory::collect(OF_CHANNELS, inverse_deviation(&mean_square, self.epsilon))?;
        let dst = x.iter().enumerate().map(|(i, &x)| {
            let x_hat = x * r[i / columns];
            affine.apply(i % columns, (x_hat, x_hat.abs()))
        });
        let (dst, dst_scale) = unzip(OF_ELEMENTS, dst)?;
        let mean_square_scale = memory::collect(OF_CHANNELS, mean_square.iter().copied())?;
        Forward {
            dst,
            dst_scale,
            mean_square,
            mean_square_scale,
            ..Forward::default()
        }
        .with_sum(sum)
    }
}

/// Running statistics after a batch: (1 − weight_of_batch)·old + weight_of_batch·batch, per channel.
///
/// `batch` is the batch's mean, or its biased variance. `unbiased` multiplies it by count/(count − 1) first, which
/// some libraries do with the variance; it is wrong for the mean. `count` is the number of elements per channel:
/// a batch of none leaves `old` as it is.
///
/// For a weight from 0 to 1, the scale of the result is the same function of |old| and of the batch's scale.
///
/// ```
/// use wgpu_norm::reference::running;
///
/// assert_eq!(running(&[2.0], &[6.0], 0.25, 3, false)?, [3.0]);
/// assert_eq!(running(&[2.0], &[6.0], 0.25, 3, true)?, [3.75]); // 6 · 3/2 = 9
/// assert_eq!(running(&[2.0], &[0.0], 0.25, 0, true)?, [2.0]);
/// # Ok::<(), wgpu_norm::Error>(())
/// ```
///
/// # Errors
/// [`Error::Length`] if `batch` is not as long as `old`; [`Error::Argument`] for `unbiased` and a count of 1, which has
/// no unbiased variance; [`Error::HostMemory`].
pub fn running(
    old: &[f64],
    batch: &[f64],
    weight_of_batch: f64,
    count: u64,
    unbiased: bool,
) -> Result<Vec<f64>, Error> {
    check_length("batch", old.len(), batch.len())?;
    let factor = match (count, unbiased) {
        (0, _) => return memory::collect(OF_CHANNELS, old.iter().copied()),
        (1, true) => {
            return Err(Error::Argument {
                argument: "count",
                expected: "2 or more elements per channel for an unbiased variance".to_owned(),
                got: count.to_string(),
            });
        }
        (_, true) => count as f64 / (count - 1) as f64,
        (_, false) => 1.0,
    };
    let new = |(old, batch)| (1.0 - weight_of_batch) * old + weight_of_batch * (factor * batch);
    memory::collect(OF_CHANNELS, old.iter().zip(batch).map(new))
}

/// gamma and beta.
#[derive(Clone, Copy)]
pub(super) struct Affine<'a> {
    pub gamma: Option<&'a [f64]>,
    pub beta: Option<&'a [f64]>,
}

impl Affine<'_> {
    pub fn check(&self, expected: usize) -> Result<(), Error> {
        let length = |of: Option<&[f64]>| of.map_or(expected, <[f64]>::len);
        check_length("gamma", expected, length(self.gamma))?;
        check_length("beta", expected, length(self.beta))
    }

    /// An element of dst and its scale, from x̂ and the scale of x̂.
    pub fn apply(&self, parameter: usize, (x_hat, scale): (f64, f64)) -> (f64, f64) {
        let gamma = self.gamma.map_or(1.0, |gamma| gamma[parameter]);
        let beta = self.beta.map_or(0.0, |beta| beta[parameter]);
        (gamma * x_hat + beta, gamma.abs() * scale + beta.abs())
    }
}

/// A sum that keeps what its additions round off. Of a plain sum of equal terms, or of squares that share their
/// last bits, m/4 roundings agree in sign, and that is more than f64 kernels are allowed.
#[derive(Clone, Default)]
struct Sum {
    sum: f64,
    rest: f64,
}

impl Sum {
    fn add(&mut self, x: f64) {
        let sum = self.sum + x;
        let added = sum - self.sum;
        self.rest += (self.sum - (sum - added)) + (x - added);
        self.sum = sum;
    }

    fn total(&self) -> f64 {
        match self.rest.is_finite() {
            true => self.sum + self.rest,
            false => self.sum, // infinity less itself is no rest
        }
    }
}

/// Sums over one group of elements: of x − shift for the mean, then of d = x − mean and of d².
#[derive(Clone, Default)]
pub(super) struct Moments {
    count: f64,
    shift: f64,
    shifted: Sum,
    d: Sum,
    d_squared: Sum,
}

impl Moments {
    /// The first element as the shift makes the mean of equal elements exact, and with it their variance 0.
    fn add_to_mean(&mut self, x: f64) {
        if self.count == 0.0 && x.is_finite() {
            self.shift = x;
        }
        self.count += 1.0;
        self.shifted.add(x - self.shift);
    }

    fn add_to_variance(&mut self, x: f64) {
        let d = x - self.first_mean();
        self.d.add(d);
        self.d_squared.add(d * d);
    }

    fn first_mean(&self) -> f64 {
        self.shift + self.shifted.total() / self.count.max(1.0)
    }

    /// The first mean is rounded, so the differences from it do not add up to 0; what they add up to corrects it.
    fn correction(&self) -> f64 {
        match self.first_mean().is_finite() {
            true => self.d.total() / self.count.max(1.0),
            false => 0.0, // d is NaN
        }
    }

    fn variance(&self) -> f64 {
        let (count, d) = (self.count.max(1.0), self.d.total());
        (self.d_squared.total() - d * (d / count)) / count
    }
}

/// Mean and variance of the elements of each group, in two passes.
pub(super) fn moments(
    x: &[f64],
    group: impl Fn(usize) -> usize,
    groups: usize,
) -> Result<Vec<Moments>, Error> {
    let none = std::iter::repeat_n(Moments::default(), groups);
    let mut moments = memory::collect(OF_CHANNELS, none)?;
    for (i, &x) in x.iter().enumerate() {
        moments[group(i)].add_to_mean(x);
    }
    for (i, &x) in x.iter().enumerate() {
        moments[group(i)].add_to_variance(x);
    }
    Ok(moments)
}

/// What one channel or row is normalized with.
pub(super) struct Group {
    /// The mean in two parts: one number would be off by much of what f64 holds of a deviation that is small beside it.
    mean: f64,
    correction: f64,
    variance: f64,
    r: f64,
    /// √(mean² + variance), the root mean square, if kernels round x, and 0 if x is stored.
    rounded: f64,
}

pub(super) fn groups(
    moments: &[Moments],
    epsilon: f64,
    x_is_sum: bool,
) -> Result<Vec<Group>, Error> {
    let group = |moments: &Moments| {
        let (mean, variance) = (moments.first_mean(), moments.variance());
        Group {
            mean,
            correction: moments.correction(),
            variance,
            r: one_over_deviation(variance, epsilon),
            rounded: match x_is_sum {
                true => mean.hypot(variance.sqrt()),
                false => 0.0,
            },
        }
    };
    memory::collect(OF_CHANNELS, moments.iter().map(group))
}

impl Group {
    /// x̂ and its scale. r has half the relative error of the variance.
    pub fn x_hat(&self, x: f64) -> (f64, f64) {
        let x_hat = ((x - self.mean) - self.correction) * self.r;
        let of_statistics = VARIANCE / 2.0 * x_hat.abs() + self.variance.sqrt() * self.r;
        let of_rounding = self.rounded * self.r * (x_hat.abs() + 2.0) / SUM_ULPS;
        (x_hat, of_statistics + of_rounding)
    }

    fn mean(&self) -> (f64, f64) {
        let (mean, deviation) = (self.mean + self.correction, self.variance.sqrt());
        // A mean can be finite where squares overflow.
        let deviation = if deviation.is_finite() {
            deviation
        } else {
            0.0
        };
        (mean, mean.abs() + deviation)
    }

    fn variance(&self) -> (f64, f64) {
        // The square of the rounding needs a u of its own. f32's is as good for f64: there it shows only where
        // the deviation is below 2⁻²⁵ of the mean.
        let u = DType::F32.unit_roundoff();
        let of_rounding = self.rounded * (2.0 * self.variance.sqrt() + u * self.rounded);
        let scale = VARIANCE * self.variance + of_rounding / SUM_ULPS;
        (self.variance, scale)
    }
}

impl Forward {
    pub(super) fn new(
        dst: impl ExactSizeIterator<Item = (f64, f64)>,
        groups: &[Group],
    ) -> Result<Self, Error> {
        let (dst, dst_scale) = unzip(OF_ELEMENTS, dst)?;
        let (mean, mean_scale) = unzip(OF_CHANNELS, groups.iter().map(Group::mean))?;
        let (variance, variance_scale) = unzip(OF_CHANNELS, groups.iter().map(Group::variance))?;
        Ok(Self {
            dst,
            dst_scale,
            mean,
            mean_scale,
            variance,
            variance_scale,
            ..Self::default()
        })
    }

    fn with_sum(mut self, sum: Option<Vec<f64>>) -> Result<Self, Error> {
        self.sum = sum.unwrap_or_default();
        self.sum_scale = memory::collect(OF_ELEMENTS, self.sum.iter().map(|x| x.abs()))?;
        Ok(self)
    }
}

/// src + residual, if there is one.
fn added(src: &[f64], residual: Option<&[f64]>) -> Result<Option<Vec<f64>>, Error> {
    let Some(residual) = residual else {
        return Ok(None);
    };
    check_length("residual", src.len(), residual.len())?;
    let sum = src.iter().zip(residual).map(|(a, b)| a + b);
    memory::collect(OF_ELEMENTS, sum).map(Some)
}

/// Values and their scales.
pub(super) fn unzip(
    what: &'static str,
    pairs: impl ExactSizeIterator<Item = (f64, f64)>,
) -> Result<(Vec<f64>, Vec<f64>), Error> {
    let mut values = memory::room(what, pairs.len())?;
    let mut scales = memory::room(what, pairs.len())?;
    for (value, scale) in pairs {
        values.push(value);
        scales.push(scale);
    }
    Ok((values, scales))
}
