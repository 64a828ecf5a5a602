//! The gradients.

use super::indices::Indices;
use super::moments::Statistic;
use super::undecided::Undecided;
use super::{Computed, Inputs, OF_CHANNELS, OF_ELEMENTS, activation, forward};
use crate::memory;
use wgpu_norm::{Activation, Backward, Error, Norm, Operation, ParamGrads, Statistics, Tensor};

/// The layer's gradient by diff_dst: what it depends on beside that.
pub(super) struct Layer<'a> {
    pub indices: &'a Indices,
    pub src: &'a [f64],
    pub statistics: &'a [Statistic],
    /// gamma, where diff_src depends on it.
    pub gamma: Option<&'a [f64]>,
    pub through: Statistics,
    pub is_rms: bool,
}

/// Of diff_src, diff_gamma and diff_beta.
pub(super) struct Gradients {
    pub diff_src: (Vec<f64>, Vec<f64>),
    pub diff_gamma: (Vec<f64>, Vec<f64>),
    pub diff_beta: (Vec<f64>, Vec<f64>),
}

/// All that a gradient may write.
pub(super) fn compute(
    operation: &Operation,
    backward: Backward,
    indices: &Indices,
    inputs: Inputs<'_>,
) -> Result<Vec<Computed>, Error> {
    let src = inputs.get(Tensor::Src);
    let of = (&*indices.statistic, indices.statistics);
    let statistics = Statistic::all(operation, inputs, src, of)?;
    let gamma = inputs.given(Tensor::Gamma);
    let layer = Layer {
        indices,
        src,
        statistics: &statistics,
        gamma: gamma.filter(|_| backward.param_grads != ParamGrads::Neither),
        through: backward.through,
        is_rms: matches!(operation.norm, Norm::Rms { .. }),
    };
    let diff_dst = inputs.get(Tensor::DiffDst);
    let mut results = Vec::new();
    let mut undecided = 0;
    let gradients = if let Some(mask) = inputs.given(Tensor::Mask) {
        let passed = diff_dst.iter().zip(mask);
        let passed = passed.map(|(&diff, &bit)| if bit == 0.0 { 0.0 } else { diff });
        let passed = memory::collect(OF_ELEMENTS, passed)?;
        let gradients = layer.gradients(&passed)?;
        let sizes = memory::collect(OF_ELEMENTS, passed.iter().map(|diff| diff.abs()))?;
        results.push(Computed::new(Tensor::DiffResidual, (passed, sizes)));
        gradients
    } else if operation.epilogue.activation != Activation::None {
        let y = forward::output(operation, indices, inputs, src, &statistics)?;
        let through = y.0.iter().zip(&y.1).zip(diff_dst);
        let through = through.map(|((&y, &scale), &diff)| {
            activation::backward(operation.epilogue.activation, (y, scale), diff)
        });
        let (through, sizes) = super::unzip(OF_ELEMENTS, through)?;
        let scales = layer.gradients(&sizes)?;
        let mut gradients = layer.gradients(&through)?;
        gradients.diff_src.1 = scales.diff_src.1;
        gradients.diff_gamma.1 = scales.diff_gamma.1;
        gradients.diff_beta.1 = scales.diff_beta.1;
        let either = Undecided::find(operation, &y, diff_dst)?;
        either.allow(&mut gradients, &layer)?;
        undecided = either.count();
        gradients
    } else {
        layer.gradients(diff_dst)?
    };
    for (tensor, gradient) in [
        (Tensor::DiffSrc, gradients.diff_src),
        (Tensor::DiffGamma, gradients.diff_gamma),
        (Tensor::DiffBeta, gradients.diff_beta),
    ] {
        results.push(Computed {
            undecided,
            ..Computed::new(tensor, gradient)
        });
    }
    Ok(results)
}

impl Layer<'_> {
    pub fn gradients(&self, diff_dst: &[f64]) -> Result<Gradients, Error> {
        let indices = self.indices;
        let x_hat = |at: usize, statistic: usize| self.statistics[statistic].x_hat(self.src[at]).0;
        let d = |at: usize, parameter: usize| {
            diff_dst[at] * self.gamma.map_or(1.0, |gamma| gamma[parameter])
        };
        let mut of_statistics = memory::filled(OF_CHANNELS, indices.statistics, Sums::default())?;
        let mut of_parameters = memory::filled(OF_CHANNELS, indices.parameters, Sums::default())?;
        for (at, (statistic, parameter)) in indices.each().enumerate() {
            let x_hat = x_hat(at, statistic);
            of_statistics[statistic].add(d(at, parameter), x_hat);
            of_parameters[parameter].add(diff_dst[at], x_hat);
        }
        let m = indices.elements_of_a_statistic();
        let mut values = memory::room(OF_ELEMENTS, diff_dst.len())?;
        let mut scales = memory::room(OF_ELEMENTS, diff_dst.len())?;
        for (at, (statistic, parameter)) in indices.each().enumerate() {
            let (r, sums) = (self.statistics[statistic].r, &of_statistics[statistic]);
            let (d, x_hat) = (d(at, parameter), x_hat(at, statistic));
            let (value, scale) = match (self.through, self.is_rms) {
                (Statistics::Constant, _) => (d, d.abs()),
                (_, true) => (sums.along_x_hat(d, x_hat, m), sums.scale_along_x_hat(m)),
                (_, false) => (sums.centred(d, x_hat, m), sums.scale(m)),
            };
            values.push(r * value);
            scales.push(r * scale);
        }
        let each =
            |of: fn(&Sums) -> (f64, f64)| super::unzip(OF_CHANNELS, of_parameters.iter().map(of));
        Ok(Gradients {
            diff_src: (values, scales),
            diff_gamma: each(|sums| (sums.d_x_hat, sums.abs_d_x_hat))?,
            diff_beta: each(|sums| (sums.d, sums.abs_d))?,
        })
    }
}

/// Sums over some elements, of d and x̂.
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

    /// d less its projections on 1 and on x̂: the gradient through mean and variance of m elements.
    fn centred(&self, d: f64, x_hat: f64, m: f64) -> f64 {
        (d - self.d / m) - x_hat * (self.d_x_hat / m)
    }

    /// Upper bound of the terms of [`Self::centred`].
    fn scale(&self, m: f64) -> f64 {
        self.max_d + self.abs_d / m + self.max_x_hat * (self.abs_d_x_hat / m)
    }

    /// d less its projection on x̂: the gradient through the mean of squares.
    fn along_x_hat(&self, d: f64, x_hat: f64, m: f64) -> f64 {
        d - x_hat * (self.d_x_hat / m)
    }

    /// Upper bound of the terms of [`Self::along_x_hat`].
    fn scale_along_x_hat(&self, m: f64) -> f64 {
        self.max_d + self.max_x_hat * (self.abs_d_x_hat / m)
    }
}
