//! The gradients of an operation.

use super::indices::Indices;
use super::layer::Layer;
use super::norm::Statistic;
use super::undecided::Undecided;
use super::{Computed, Inputs, OF_ELEMENTS, activation, forward};
use wgpu_norm::support;
use wgpu_norm::{Activation, Backward, Error, Operation, Tensor};

/// All results that a gradient may write.
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
        gamma,
        gate: inputs.given(Tensor::Gate),
        through: backward.through,
        norm: &operation.norm,
    };
    let diff_dst = inputs.get(Tensor::DiffDst);
    let mut results = Vec::new();
    let mut undecided = 0;
    let gradients = if let Some(mask) = inputs.given(Tensor::Mask) {
        let passed = diff_dst.iter().zip(mask);
        let passed = passed.map(|(&diff, &bit)| if bit == 0.0 { 0.0 } else { diff });
        let passed = support::collect(OF_ELEMENTS, passed)?;
        let gradients = layer.gradients(&passed)?;
        let sizes = support::collect(OF_ELEMENTS, passed.iter().map(|diff| diff.abs()))?;
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
