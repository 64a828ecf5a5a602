//! A layer's gradient from its output's, without residual and activation.

use super::indices::Indices;
use super::norm::{GradientSums, Statistic};
use super::{OF_CHANNELS, OF_ELEMENTS, unzip};
use wgpu_norm::support;
use wgpu_norm::{Error, Norm, Through};

/// The values that the layer's gradient depends on, besides diff_dst.
pub(super) struct Layer<'a> {
    pub indices: &'a Indices,
    pub src: &'a [f64],
    pub statistics: &'a [Statistic],
    /// gamma, if diff_src depends on it.
    pub gamma: Option<&'a [f64]>,
    pub gate: Option<&'a [f64]>,
    pub through: Through,
    pub norm: &'a Norm,
}

/// diff_src, diff_gamma and diff_beta, each with its scale.
pub(super) struct Gradients {
    pub diff_src: (Vec<f64>, Vec<f64>),
    pub diff_gamma: (Vec<f64>, Vec<f64>),
    pub diff_beta: (Vec<f64>, Vec<f64>),
}

impl Layer<'_> {
    pub fn gradients(&self, diff_dst: &[f64]) -> Result<Gradients, Error> {
        let indices = self.indices;
        let x_hat = |at: usize, statistic: usize| self.statistics[statistic].x_hat(self.src[at]).0;
        let d = |at: usize, parameter: usize| {
            let factor = |values: Option<&[f64]>| values.map_or(1.0, |values| values[parameter]);
            diff_dst[at] * factor(self.gamma) * factor(self.gate)
        };
        let mut of_statistics =
            support::filled(OF_CHANNELS, indices.statistics, GradientSums::default())?;
        let mut of_parameters =
            support::filled(OF_CHANNELS, indices.parameters, GradientSums::default())?;
        for (at, (statistic, parameter)) in indices.each().enumerate() {
            let x_hat = x_hat(at, statistic);
            of_statistics[statistic].add(d(at, parameter), x_hat);
            of_parameters[parameter].add(diff_dst[at], x_hat);
        }
        let m = indices.elements_of_a_statistic();
        let mut values = support::room(OF_ELEMENTS, diff_dst.len())?;
        let mut scales = support::room(OF_ELEMENTS, diff_dst.len())?;
        for (at, (statistic, parameter)) in indices.each().enumerate() {
            let (r, sums) = (self.statistics[statistic].r, &of_statistics[statistic]);
            let (d, x_hat) = (d(at, parameter), x_hat(at, statistic));
            let (value, scale) = match self.through {
                Through::Constant => (d, d.abs()),
                Through::Batch => sums.through_statistics(self.norm, d, x_hat, m),
            };
            values.push(r * value);
            scales.push(r * scale);
        }
        let each =
            |of: fn(&GradientSums) -> (f64, f64)| unzip(OF_CHANNELS, of_parameters.iter().map(of));
        Ok(Gradients {
            diff_src: (values, scales),
            diff_gamma: each(|sums| (sums.d_x_hat, sums.abs_d_x_hat))?,
            diff_beta: each(|sums| (sums.d, sums.abs_d))?,
        })
    }
}
