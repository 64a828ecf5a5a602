//! Elements for which rounding decides whether they pass relu, if a gradient recomputes the layer's output. Results
//! with them, without them, and all between are correct.

use super::layer::{Gradients, Layer};
use super::{OF_CHANNELS, OF_ELEMENTS, SUM_ULPS, sums};
use wgpu_norm::support;
use wgpu_norm::{Activation, DType, Error, Operation, Through};

/// These elements.
pub(super) struct Undecided {
    /// For each of these elements the size of diff_dst, and 0 for others.
    diff_dst: Vec<f64>,
    count: usize,
    sums: DType,
}

impl Undecided {
    /// Finds the elements whose y, relu's argument, is 0 within rounding error.
    pub fn find(
        operation: &Operation,
        (y, scale): &(Vec<f64>, Vec<f64>),
        diff_dst: &[f64],
    ) -> Result<Self, Error> {
        let sums = sums(operation);
        let is_relu = operation.epilogue.activation == Activation::Relu;
        let mut count = 0;
        let mut sizes = support::collect(OF_ELEMENTS, diff_dst.iter().copied())?;
        for (size, (&y, &scale)) in sizes.iter_mut().zip(y.iter().zip(scale)) {
            // Twice the tolerance, as y has one and the mean in it another.
            if is_relu && is_undecided(y, 2.0 * SUM_ULPS * scale, sums) {
                count += 1;
                *size = size.abs();
            } else {
                *size = 0.0;
            }
        }
        Ok(Self {
            diff_dst: sizes,
            count,
            sums,
        })
    }

    /// The number of these elements.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Widens the tolerance of gradients by the largest change that these elements can cause.
    pub fn allow(&self, gradients: &mut Gradients, layer: &Layer<'_>) -> Result<(), Error> {
        if self.count == 0 {
            return Ok(());
        }
        let own = layer.gradients(&self.diff_dst)?;
        self.widen(&mut gradients.diff_gamma.1, &own.diff_gamma.1);
        self.widen(&mut gradients.diff_beta.1, &own.diff_beta.1);
        self.widen(&mut gradients.diff_src.1, &self.of_src(layer)?);
        Ok(())
    }

    /// Widens scales, which count in roundings, by a change as large as `by` and the rounding of that.
    fn widen(&self, scales: &mut [f64], by: &[f64]) {
        let roundings = SUM_ULPS * self.sums.unit_roundoff();
        for (scale, by) in scales.iter_mut().zip(by) {
            *scale += by / roundings + by;
        }
    }

    /// The largest change of each element of diff_src by these elements. Each of them adds gamma · r · diff_dst to its
    /// own diff_src, and (1 + x̂ · its own x̂)/m of that to the diff_src of each of the m elements that share its
    /// statistics.
    fn of_src(&self, layer: &Layer<'_>) -> Result<Vec<f64>, Error> {
        let indices = layer.indices;
        let mut own = support::collect(OF_ELEMENTS, self.diff_dst.iter().copied())?;
        for (own, (statistic, parameter)) in own.iter_mut().zip(indices.each()) {
            let gamma = layer.gamma.map_or(1.0, |gamma| gamma[parameter]);
            *own = (*own * gamma * layer.statistics[statistic].r).abs();
        }
        if layer.through == Through::Constant {
            return Ok(own);
        }
        // The sums of own, and of own · |x̂|.
        let mut sums = support::filled(OF_CHANNELS, indices.statistics, (0.0, 0.0))?;
        let x_hat =
            |at: usize, statistic: usize| layer.statistics[statistic].x_hat(layer.src[at]).0.abs();
        for (at, (statistic, _)) in indices.each().enumerate() {
            sums[statistic].0 += own[at];
            sums[statistic].1 += own[at] * x_hat(at, statistic);
        }
        let m = indices.elements_of_a_statistic();
        for (at, (statistic, _)) in indices.each().enumerate() {
            let (of_own, of_own_x_hat) = sums[statistic];
            if of_own > 0.0 {
                own[at] += (of_own + x_hat(at, statistic) * of_own_x_hat) / m;
            }
        }
        Ok(own)
    }
}

/// Whether a number with an error of up to this many roundings may be on either side of 0.
pub(crate) fn is_undecided(value: f64, roundings: f64, sums: DType) -> bool {
    let tolerance = sums.unit_roundoff() * roundings;
    tolerance > 0.0 && tolerance.is_finite() && value.abs() <= tolerance
}
