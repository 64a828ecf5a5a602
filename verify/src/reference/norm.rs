//! The differences between norms: their statistics, and the gradient through them.

use super::{Inputs, OF_CHANNELS, SUM_ULPS, one_over_deviation};
use wgpu_norm::support;
use wgpu_norm::{DType, Error, Norm, Operation, Pass, Residual, Tensor};

/// The variance's scale, as a multiple of the variance: in f32 [`scaled_error`](super::scaled_error) then allows a
/// relative error of 1e-5. Kernels can guarantee that even if the mean is a million deviations.
const VARIANCE: f64 = 2.6;

/// A sum that keeps the rounding errors of its additions. In a plain sum of equal terms, or of squares that share their
/// last bits, m/4 roundings agree in sign, which is more than f64 kernels are allowed.
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
struct Moments {
    count: f64,
    shift: f64,
    shifted: Sum,
    d: Sum,
    d_squared: Sum,
}

impl Moments {
    /// Shifting by the first element makes the mean of equal elements exact, and so their variance 0.
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

    /// The first mean is rounded, so the differences from it do not add up to 0; their sum corrects it.
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

/// The statistics that elements which share them are normalized with.
#[derive(Clone)]
pub(super) struct Statistic {
    /// The mean in two parts: a single f64 would lose much of a deviation that is small compared with the mean.
    mean: f64,
    correction: f64,
    /// For RMS norm, the mean of squares.
    variance: f64,
    pub r: f64,
    kind: Kind,
}

/// The kind of errors that x̂ has.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Nothing is subtracted, or only given statistics.
    Exact,
    /// Mean and variance are computed. `rounded` is √(mean² + variance), the root mean square, if kernels round x, and
    /// 0 if x is stored.
    Computed { rounded: f64 },
}

impl Statistic {
    /// The statistics by which an operation normalizes x.
    pub fn all(
        operation: &Operation,
        inputs: Inputs<'_>,
        x: &[f64],
        (of, count): (&[u32], usize),
    ) -> Result<Vec<Self>, Error> {
        let epsilon = operation.epsilon;
        let is_centered = operation.norm.is_centered();
        if !matches!(operation.pass, Pass::Forward(_)) {
            let given = match is_centered {
                true => inputs.get(Tensor::Variance),
                false => inputs.get(Tensor::MeanSquare),
            };
            let mean = inputs.given(Tensor::Mean).filter(|_| is_centered);
            let each = given.iter().enumerate().map(|(at, &variance)| {
                let mean = mean.and_then(|mean| mean.get(at)).copied();
                Self::exact(mean.unwrap_or(0.0), variance, epsilon)
            });
            return support::collect(OF_CHANNELS, each);
        }
        let mut moments = support::filled(OF_CHANNELS, count, Moments::default())?;
        if !is_centered {
            for (&at, &x) in of.iter().zip(x) {
                moments[at as usize].count += 1.0;
                moments[at as usize].d_squared.add(x * x);
            }
            let square = |of: &Moments| of.d_squared.total() / of.count.max(1.0);
            let each = moments
                .iter()
                .map(|of| Self::exact(0.0, square(of), epsilon));
            return support::collect(OF_CHANNELS, each);
        }
        for (&at, &x) in of.iter().zip(x) {
            moments[at as usize].add_to_mean(x);
        }
        for (&at, &x) in of.iter().zip(x) {
            moments[at as usize].add_to_variance(x);
        }
        let is_sum = operation.epilogue.residual == Residual::Before;
        let each = moments.iter().map(|of| Self::computed(of, epsilon, is_sum));
        support::collect(OF_CHANNELS, each)
    }

    fn exact(mean: f64, variance: f64, epsilon: f64) -> Self {
        Self {
            mean,
            correction: 0.0,
            variance,
            r: one_over_deviation(variance, epsilon),
            kind: Kind::Exact,
        }
    }

    fn computed(moments: &Moments, epsilon: f64, x_is_sum: bool) -> Self {
        let (mean, variance) = (moments.first_mean(), moments.variance());
        Self {
            mean,
            correction: moments.correction(),
            variance,
            r: one_over_deviation(variance, epsilon),
            kind: Kind::Computed {
                rounded: match x_is_sum {
                    true => mean.hypot(variance.sqrt()),
                    false => 0.0,
                },
            },
        }
    }

    /// x̂ and its scale. r has half the relative error of the variance.
    pub fn x_hat(&self, x: f64) -> (f64, f64) {
        let x_hat = ((x - self.mean) - self.correction) * self.r;
        let Kind::Computed { rounded } = self.kind else {
            return (x_hat, x_hat.abs());
        };
        let of_statistics = VARIANCE / 2.0 * x_hat.abs() + self.variance.sqrt() * self.r;
        let of_rounding = rounded * self.r * (x_hat.abs() + 2.0) / SUM_ULPS;
        (x_hat, of_statistics + of_rounding)
    }

    pub fn mean(&self) -> (f64, f64) {
        let (mean, deviation) = (self.mean + self.correction, self.variance.sqrt());
        // A mean can be finite where squares overflow.
        let deviation = if deviation.is_finite() {
            deviation
        } else {
            0.0
        };
        (mean, mean.abs() + deviation)
    }

    /// The variance, or the mean of squares.
    pub fn variance(&self) -> (f64, f64) {
        let Kind::Computed { rounded } = self.kind else {
            return (self.variance, self.variance);
        };
        // The square of the rounding has a factor u of its own. f32's serves for f64, too: there it shows only if the
        // deviation is below 2⁻²⁵ of the mean.
        let u = DType::F32.unit_roundoff();
        let of_rounding = rounded * (2.0 * self.variance.sqrt() + u * rounded);
        let scale = VARIANCE * self.variance + of_rounding / SUM_ULPS;
        (self.variance, scale)
    }
}

/// Sums of d and x̂ over some elements.
#[derive(Clone, Default)]
pub(super) struct GradientSums {
    pub d: f64,
    pub d_x_hat: f64,
    pub abs_d: f64,
    pub abs_d_x_hat: f64,
    max_d: f64,
    max_x_hat: f64,
}

impl GradientSums {
    pub fn add(&mut self, d: f64, x_hat: f64) {
        self.d += d;
        self.d_x_hat += d * x_hat;
        self.abs_d += d.abs();
        self.abs_d_x_hat += (d * x_hat).abs();
        self.max_d = self.max_d.max(d.abs());
        self.max_x_hat = self.max_x_hat.max(x_hat.abs());
    }

    /// An element's gradient through the statistics that it shares with m elements, divided by r, and an upper bound of
    /// its terms: d minus its projections on 1 and on x̂ if there is a mean, else on x̂ alone.
    pub fn through_statistics(&self, norm: &Norm, d: f64, x_hat: f64, m: f64) -> (f64, f64) {
        let of_mean = self.d / m;
        let of_r = x_hat * (self.d_x_hat / m);
        let scale = self.max_d + self.max_x_hat * (self.abs_d_x_hat / m);
        match norm.is_centered() {
            true => ((d - of_mean) - of_r, scale + self.abs_d / m),
            false => (d - of_r, scale),
        }
    }
}
