//! Elements of which rounding decides whether they pass relu, where a gradient computes the layer's output once more. Results
//! with them and without them are right, and all between.

use super::layer::{Gradients, Layer};
use super::{OF_CHANNELS, OF_ELEMENTS, SUM_ULPS, sums};
use wgpu_norm::memory;
use wgpu_norm::{Activation, DType, Error, Operation, Through};

/// These elements.
pub(super) struct Undecided {
    /// Of each element the size of diff_dst if it is one of these, else 0.
    diff_dst: Vec<f64>,
    count: usize,
    sums: DType,
}

impl Undecided {
    /// Those whose y, of which diff_dst is relu's gradient, is 0 but for roundings.
    pub fn find(
        operation: &Operation,
        (y, scale): &(Vec<f64>, Vec<f64>),
        diff_dst: &[f64],
    ) -> Result<Self, Error> {
        let sums = sums(operation);
        let is_relu = operation.epilogue.activation == Activation::Relu;
        let mut count = 0;
        let mut sizes = memory::collect(OF_ELEMENTS, diff_dst.iter().copied())?;
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

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Widens the tolerance of gradients by what these elements change at most.
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

    /// Scales count in roundings: so many of them are a change as large as `by`. Where it is there it is rounded itself.
    fn widen(&self, scales: &mut [f64], by: &[f64]) {
        let roundings = SUM_ULPS * self.sums.unit_roundoff();
        for (scale, by) in scales.iter_mut().zip(by) {
            *scale += by / roundings + by;
        }
    }

    /// What these elements may add to each element of diff_src. One of them is gamma · r · diff_dst of its own diff_src, and a
    /// part (1 + x̂ · x̂ of that one)/m of that of the m elements that share its statistics.
    fn of_src(&self, layer: &Layer<'_>) -> Result<Vec<f64>, Error> {
        let indices = layer.indices;
        let mut own = memory::collect(OF_ELEMENTS, self.diff_dst.iter().copied())?;
        for (own, (statistic, parameter)) in own.iter_mut().zip(indices.each()) {
            let gamma = layer.gamma.map_or(1.0, |gamma| gamma[parameter]);
            *own = (*own * gamma * layer.statistics[statistic].r).abs();
        }
        if layer.through == Through::Constant {
            return Ok(own);
        }
        // Of own, and of own · |x̂|.
        let mut sums = memory::filled(OF_CHANNELS, indices.statistics, (0.0, 0.0))?;
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

/// Whether a number that is off by at most so many roundings may lie on either side of 0.
pub(crate) fn is_undecided(value: f64, roundings: f64, sums: DType) -> bool {
    let tolerance = sums.unit_roundoff() * roundings;
    tolerance > 0.0 && tolerance.is_finite() && value.abs() <= tolerance
}
