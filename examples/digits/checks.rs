//! Compares the norms of a step with the same computation in float64.
//!
//! Each of the reference's numbers has a scale, the size of its terms. Errors are relative to the scale, because a
//! gradient near 0 may be the difference of large terms: `scaled_error` is 1 at the tolerance.

use crate::norms::{BatchNorm, BatchNormPass, EPSILON, LayerNorm, LayerNormPass, UPDATE};
use wgpu_norm::{
    Activation, DType, DataFormat, Epilogue, Error, Forward, Grads, Norm, Operation, Parameters,
    Pass, Residual, Running, Tensor,
};
use wgpu_norm_verify::reference::{compute, scaled_error};

/// The errors of tensors, in units of their tolerances.
pub struct Errors(Vec<(&'static str, f64)>);

impl Errors {
    /// Describes the largest error; an error itself if that is above 1.
    pub fn within_tolerance(&self) -> Result<String, String> {
        let worse = |a: &&(_, f64), b: &&(_, f64)| a.1.total_cmp(&b.1);
        let Some((tensor, error)) = self.0.iter().max_by(worse) else {
            return Err("nothing was compared".to_owned());
        };
        match *error <= 1.0 {
            true => {
                let percent = 100.0 * error;
                Ok(format!(
                    "largest error {percent:.0} % of what rounding may cause, in {tensor}"
                ))
            }
            false => Err(format!("{tensor} is off by {error:.3} times the tolerance")),
        }
    }

    /// Compares results with an operation's results for these tensors. A missing result has an infinite error.
    fn compare(
        &mut self,
        operation: &Operation,
        tensors: &[(Tensor, &[f32])],
        got: &[(Tensor, &[f32])],
    ) -> Result<(), Error> {
        let tensors: Vec<_> = tensors
            .iter()
            .map(|(t, values)| (*t, f64s(values)))
            .collect();
        let tensors: Vec<_> = tensors.iter().map(|(t, values)| (*t, &**values)).collect();
        for want in compute(operation, &tensors)? {
            let found = got.iter().find(|(tensor, _)| *tensor == want.tensor);
            let got = found.map_or(&[][..], |(_, values)| values);
            let error = scaled_error(got, &want.values, &want.scale);
            self.0.push((want.tensor.name(), error));
        }
        Ok(())
    }

    /// The gradient's reference uses the GPU's statistics, so that only the gradient's own error is measured.
    fn compare_grads(
        &mut self,
        forward: &Operation,
        tensors: &[(Tensor, &[f32])],
        got: &Grads<f32, f32>,
    ) -> Result<(), Error> {
        let got = [
            (Tensor::DiffSrc, &*got.diff_src),
            (
                Tensor::DiffGamma,
                got.diff_gamma.as_deref().unwrap_or_default(),
            ),
            (
                Tensor::DiffBeta,
                got.diff_beta.as_deref().unwrap_or_default(),
            ),
        ];
        self.compare(&forward.gradient()?, tensors, &got)
    }
}

/// A training step of batch norm: output, statistics, running statistics, gradients.
pub fn batch_norm(
    layer: &BatchNorm,
    pass: &BatchNormPass,
    diff_dst: &[f32],
    grads: &Grads<f32, f32>,
) -> Result<Errors, Error> {
    let statistics = &pass.output.saved;
    let [gamma, beta] = params_of(&layer.parameters);
    let [running_mean, running_variance] = running_of(&pass.running_before);
    let tensors = [
        (Tensor::Src, &*pass.src),
        (Tensor::DiffDst, diff_dst),
        gamma,
        beta,
        (Tensor::Mean, &statistics.mean),
        (Tensor::Variance, &statistics.variance),
        (Tensor::RunningMean, running_mean),
        (Tensor::RunningVariance, running_variance),
    ];
    let [running_mean, running_variance] = running_of(&layer.parameters.running);
    let got = [
        (Tensor::Dst, &*pass.output.dst),
        (Tensor::Mean, &statistics.mean),
        (Tensor::Variance, &statistics.variance),
        (Tensor::RunningMean, running_mean),
        (Tensor::RunningVariance, running_variance),
    ];
    let forward = batch_norm_of(&pass.shape, Forward::default().with_running(UPDATE));
    let mut errors = Errors(Vec::new());
    errors.compare(&forward, &tensors, &got)?;
    errors.compare_grads(&forward, &tensors, grads)?;
    Ok(errors)
}

/// Batch norm with running statistics.
pub fn inference(layer: &BatchNorm, src: &[f32], dst: &[f32]) -> Result<Errors, Error> {
    let [gamma, beta] = params_of(&layer.parameters);
    let [mean, variance] = running_of(&layer.parameters.running);
    let tensors = [
        (Tensor::Src, src),
        gamma,
        beta,
        (Tensor::Mean, mean),
        (Tensor::Variance, variance),
    ];
    let operation = batch_norm_of(&layer.shape(src), Pass::Inference);
    let mut errors = Errors(Vec::new());
    errors.compare(&operation, &tensors, &[(Tensor::Dst, dst)])?;
    Ok(errors)
}

/// A training step of layer norm: output, sum, statistics, gradients.
pub fn layer_norm(
    layer: &LayerNorm,
    pass: &LayerNormPass,
    diff_dst: &[f32],
    grads: &Grads<f32, f32>,
) -> Result<Errors, Error> {
    let statistics = &pass.output.saved;
    let [gamma, beta] = params_of(&layer.parameters);
    let params = [
        gamma,
        beta,
        (Tensor::Mean, &*statistics.mean),
        (Tensor::Variance, &*statistics.variance),
    ];
    let summands = [
        (Tensor::Src, &*pass.src),
        (Tensor::Residual, &pass.residual),
    ];
    let sum = [
        (Tensor::Src, pass.normalized()),
        (Tensor::DiffDst, diff_dst),
    ];
    let got = [
        (Tensor::Dst, &*pass.output.dst),
        (Tensor::Sum, pass.normalized()),
        (Tensor::Mean, &statistics.mean),
        (Tensor::Variance, &statistics.variance),
    ];
    let norm = Norm::layer(1);
    let forward = Operation::new(norm, Forward::default(), &pass.shape, DType::F32)
        .with_epsilon(EPSILON)
        .with_epilogue(Epilogue::new(Residual::Before, Activation::None));
    let mut errors = Errors(Vec::new());
    errors.compare(&forward, &[&summands[..], &params].concat(), &got)?;
    errors.compare_grads(&forward, &[&sum[..], &params].concat(), grads)?;
    Ok(errors)
}

fn params_of(parameters: &Parameters<f32>) -> [(Tensor, &[f32]); 2] {
    [
        (
            Tensor::Gamma,
            parameters.gamma.as_deref().unwrap_or_default(),
        ),
        (Tensor::Beta, parameters.beta.as_deref().unwrap_or_default()),
    ]
}

/// Mean and variance.
fn running_of(running: &Option<Running<f32>>) -> [&[f32]; 2] {
    running
        .as_ref()
        .map_or([&[]; 2], |running| [&running.mean, &running.variance])
}

fn batch_norm_of(shape: &[usize], pass: impl Into<Pass>) -> Operation {
    let norm = Norm::batch(DataFormat::Ncx);
    Operation::new(norm, pass, shape, DType::F32).with_epsilon(EPSILON)
}

fn f64s(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| value.into()).collect()
}
