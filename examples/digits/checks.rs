//! The norms of a step beside the same in float64.
//!
//! Each of the reference's numbers has a scale, the size of the terms that it is made of. An error is measured against
//! that, since a gradient near 0 may be the difference of large terms: `scaled_error` is 1 at the tolerance.

use crate::norms::{BatchNorm, BatchNormPass, EPSILON, LayerNorm, LayerNormPass, UPDATE};
use wgpu_norm::reference::{self, Gradients, scaled_error};
use wgpu_norm::{DataFormat, Error, Grads, ParamGrads, RunningVariance, Statistics};

/// How far tensors are from the reference, in units of their tolerances.
pub struct Errors(Vec<(&'static str, f64)>);

impl Errors {
    /// Says what the largest one is; an error if it is above 1.
    pub fn within_tolerance(&self) -> Result<String, String> {
        let worse = |a: &&(_, f64), b: &&(_, f64)| a.1.total_cmp(&b.1);
        let Some((tensor, error)) = self.0.iter().max_by(worse) else {
            return Err("nothing was compared".to_owned());
        };
        match *error <= 1.0 {
            true => Ok(format!("within {error:.3} of the tolerance, at {tensor}")),
            false => Err(format!("{tensor} is off by {error:.3} times the tolerance")),
        }
    }

    fn compare(&mut self, tensor: &'static str, got: &[f32], want: &[f64], scale: &[f64]) {
        self.0.push((tensor, scaled_error(got, want, scale)));
    }

    /// A gradient that is missing is infinitely wrong.
    fn compare_grads(&mut self, got: &Grads<f32, f32>, want: &Gradients) {
        let gamma = got.diff_gamma.as_deref().unwrap_or_default();
        let beta = got.diff_beta.as_deref().unwrap_or_default();
        let (src, scale) = (&want.diff_src, &want.diff_src_scale);
        self.compare("diff_src", &got.diff_src, src, scale);
        self.compare(
            "diff_gamma",
            gamma,
            &want.diff_gamma,
            &want.diff_gamma_scale,
        );
        self.compare("diff_beta", beta, &want.diff_beta, &want.diff_beta_scale);
    }
}

/// A training step of batch norm: output, statistics, running statistics, gradients.
pub fn batch_norm(
    layer: &BatchNorm,
    pass: &BatchNormPass,
    diff_dst: &[f32],
    grads: &Grads<f32, f32>,
) -> Result<Errors, Error> {
    let mut errors = Errors(Vec::new());
    let channel_axes = reference::channel_axes(pass.shape.len(), DataFormat::Ncx);
    let (src, output) = (f64s(&pass.src), &pass.output);
    let gamma = f64s(&layer.gamma.value);
    let want = reference::BatchNormForward {
        shape: &pass.shape,
        channel_axes: &channel_axes,
        src: &src,
        gamma: Some(&gamma),
        beta: Some(&f64s(&layer.beta.value)),
        epsilon: EPSILON,
    }
    .train()?;
    let (mean, mean_scale) = (&want.mean, &want.mean_scale);
    let (variance, variance_scale) = (&want.variance, &want.variance_scale);
    errors.compare("dst", &output.dst, &want.dst, &want.dst_scale);
    errors.compare("mean", &output.mean, mean, mean_scale);
    errors.compare("variance", &output.variance, variance, variance_scale);

    // The scale of a running statistic follows from those of old and new by the same formula.
    let count = (src.len() / gamma.len()) as u64;
    let mut running = |name, got: &[f32], old: &[f32], batch: &[f64], scale: &[f64], unbiased| {
        let old = f64s(old);
        let sizes: Vec<f64> = old.iter().map(|old| old.abs()).collect();
        let want = reference::running(&old, batch, UPDATE.weight, count, unbiased)?;
        let scale = reference::running(&sizes, scale, UPDATE.weight, count, unbiased)?;
        errors.compare(name, got, &want, &scale);
        Ok::<(), Error>(())
    };
    let unbiased = UPDATE.variance == RunningVariance::Unbiased;
    let (now, before) = (&layer.running, &pass.running_before);
    running(
        "running mean",
        &now.mean,
        &before.mean,
        mean,
        mean_scale,
        false,
    )?;
    #[rustfmt::skip]
    running("running variance", &now.variance, &before.variance, variance, variance_scale, unbiased)?;

    // The gradient's reference takes the statistics that the GPU took: what is measured is the gradient's own error.
    let want = reference::BatchNorm {
        shape: &pass.shape,
        channel_axes: &channel_axes,
        src: &src,
        diff_dst: &f64s(diff_dst),
        mean: &f64s(&output.mean),
        variance: &f64s(&output.variance),
        gamma: Some(&gamma),
        epsilon: EPSILON,
        statistics: Through::Batch,
        param_grads: ParamGrads::Both,
    }
    .backward()?;
    errors.compare_grads(grads, &want);
    Ok(errors)
}

/// Batch norm by running statistics.
pub fn inference(layer: &BatchNorm, src: &[f32], dst: &[f32]) -> Result<Errors, Error> {
    let shape = layer.shape(src);
    let want = reference::BatchNormForward {
        shape: &shape,
        channel_axes: &reference::channel_axes(shape.len(), DataFormat::Ncx),
        src: &f64s(src),
        gamma: Some(&f64s(&layer.gamma.value)),
        beta: Some(&f64s(&layer.beta.value)),
        epsilon: EPSILON,
    }
    .infer(&f64s(&layer.running.mean), &f64s(&layer.running.variance))?;
    let mut errors = Errors(Vec::new());
    errors.compare("dst", dst, &want.dst, &want.dst_scale);
    Ok(errors)
}

/// A training step of layer norm: output, sum, statistics, gradients.
pub fn layer_norm(
    layer: &LayerNorm,
    pass: &LayerNormPass,
    diff_dst: &[f32],
    grads: &Grads<f32, f32>,
) -> Result<Errors, Error> {
    let mut errors = Errors(Vec::new());
    let output = &pass.output;
    let gamma = f64s(&layer.gamma.value);
    let want = reference::LayerNormForward {
        shape: &pass.shape,
        begin_norm_axis: 1,
        src: &f64s(&pass.src),
        residual: Some(&f64s(&pass.residual)),
        gamma: Some(&gamma),
        beta: Some(&f64s(&layer.beta.value)),
        epsilon: EPSILON,
    }
    .forward()?;
    errors.compare("dst", &output.dst, &want.dst, &want.dst_scale);
    errors.compare("sum", pass.normalized(), &want.sum, &want.sum_scale);
    errors.compare("mean", &output.mean, &want.mean, &want.mean_scale);
    let (variance, scale) = (&want.variance, &want.variance_scale);
    errors.compare("variance", &output.variance, variance, scale);

    let want = reference::LayerNorm {
        shape: &pass.shape,
        begin_norm_axis: 1,
        src: &f64s(pass.normalized()),
        diff_dst: &f64s(diff_dst),
        mean: &f64s(&output.mean),
        variance: &f64s(&output.variance),
        gamma: Some(&gamma),
        epsilon: EPSILON,
        param_grads: ParamGrads::Both,
    }
    .backward()?;
    errors.compare_grads(grads, &want);
    Ok(errors)
}

fn f64s(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| value.into()).collect()
}
