//! The forward passes.

use super::indices::Indices;
use super::norm::Statistic;
use super::{Computed, Inputs, OF_CHANNELS, OF_ELEMENTS, activation, unzip};
use wgpu_norm::support;
use wgpu_norm::{
    DType, Error, Forward, Operation, Pass, Residual, RunningUpdate, RunningVariance, Tensor,
};

/// The most by which squares in a kernel may exceed their sum about the mean: it begins with sums about one of the
/// elements, of up to 32.
const SQUARES: f64 = 64.0;

/// All results that a forward pass may write.
pub(super) fn compute(
    operation: &Operation,
    indices: &Indices,
    inputs: Inputs<'_>,
) -> Result<Vec<Computed>, Error> {
    let src = inputs.get(Tensor::Src);
    let residual = inputs.given(Tensor::Residual);
    let before = residual.filter(|_| operation.epilogue.residual == Residual::Before);
    let sum = match before {
        Some(residual) => {
            let sum = src.iter().zip(residual).map(|(a, b)| a + b);
            Some(support::collect(OF_ELEMENTS, sum)?)
        }
        None => None,
    };
    let x = sum.as_deref().unwrap_or(src);
    let of = (&*indices.statistic, indices.statistics);
    let statistics = Statistic::all(operation, inputs, x, of)?;
    let y = output(operation, indices, inputs, x, &statistics)?;
    let dst = y.0.iter().zip(&y.1);
    let dst =
        dst.map(|(&y, &scale)| activation::forward(operation.epilogue.activation, (y, scale)));
    let mut results = vec![
        Computed::new(Tensor::Dst, unzip(OF_ELEMENTS, dst)?),
        Computed::new(Tensor::Mask, y),
    ];
    if let Some(sum) = sum {
        let sizes = support::collect(OF_ELEMENTS, sum.iter().map(|x| x.abs()))?;
        results.push(Computed::new(Tensor::Sum, (sum, sizes)));
    }
    let mean = unzip(OF_CHANNELS, statistics.iter().map(Statistic::mean))?;
    let variance = unzip(OF_CHANNELS, statistics.iter().map(Statistic::variance))?;
    if let Pass::Forward(Forward {
        running: Some(update),
        ..
    }) = operation.pass
    {
        let count = indices.elements_of_a_statistic() as u64;
        for (tensor, batch) in [
            (Tensor::RunningMean, &mean),
            (Tensor::RunningVariance, &variance),
        ] {
            let after = running(update, tensor, inputs.get(tensor), batch, count)?;
            results.push(Computed::new(tensor, after));
        }
    }
    for &tensor in operation.norm.statistics() {
        let own = match tensor.takes_epsilon() {
            true => variance.clone(),
            false => mean.clone(),
        };
        results.push(Computed::new(tensor, own));
    }
    // f64's own squares overflow here, too.
    if matches!(operation.pass, Pass::Forward(_)) && super::sums(operation) == DType::F32 {
        let most = f64::from(f32::MAX) / (SQUARES * indices.elements_of_a_statistic());
        for computed in results.iter_mut().filter(|of| of.tensor != Tensor::Sum) {
            let of_elements = matches!(computed.tensor, Tensor::Dst | Tensor::Mask);
            for (at, scale) in computed.scale.iter_mut().enumerate() {
                let of_element = indices.statistic.get(at).filter(|_| of_elements);
                if variance.0[of_element.map_or(at, |&of| of as usize)] > most {
                    *scale = -scale.max(f64::MIN_POSITIVE);
                }
            }
        }
    }
    Ok(results)
}

/// The layer's output before an activation, including a residual added after the layer, and the size of its terms.
pub(super) fn output(
    operation: &Operation,
    indices: &Indices,
    inputs: Inputs<'_>,
    x: &[f64],
    statistics: &[Statistic],
) -> Result<(Vec<f64>, Vec<f64>), Error> {
    let (gamma, beta) = (inputs.given(Tensor::Gamma), inputs.given(Tensor::Beta));
    let gate = inputs.given(Tensor::Gate);
    let residual = inputs.given(Tensor::Residual);
    let after = residual.filter(|_| operation.epilogue.residual == Residual::After);
    let mut values = support::room(OF_ELEMENTS, x.len())?;
    let mut scales = support::room(OF_ELEMENTS, x.len())?;
    for (at, ((statistic, parameter), &x)) in indices.each().zip(x).enumerate() {
        let (x_hat, scale) = statistics[statistic].x_hat(x);
        let gamma = gamma.map_or(1.0, |gamma| gamma[parameter]);
        let beta = beta.map_or(0.0, |beta| beta[parameter]);
        let gate = gate.map_or(1.0, |gate| gate[parameter]);
        let residual = after.map_or(0.0, |residual| residual[at]);
        values.push(gate * (gamma * x_hat + beta) + residual);
        scales.push(gate.abs() * (gamma.abs() * scale + beta.abs()) + residual.abs());
    }
    Ok((values, scales))
}

/// Running statistics after a batch with `count` elements for each, and their scale, the same function of |old| and the
/// batch's scale.
fn running(
    update: RunningUpdate,
    tensor: Tensor,
    old: &[f64],
    (batch, scale): &(Vec<f64>, Vec<f64>),
    count: u64,
) -> Result<(Vec<f64>, Vec<f64>), Error> {
    let is_unbiased =
        update.variance == RunningVariance::Unbiased && tensor == Tensor::RunningVariance;
    let factor = match (count, is_unbiased) {
        (1, true) => {
            return Err(Error::argument(
                "running variance",
                "channels of two elements at least, for the unbiased variance",
                "channels of one",
            ));
        }
        (2.., true) => count as f64 / (count - 1) as f64,
        _ => 1.0,
    };
    // A batch without elements changes nothing.
    let weight = if count == 0 { 0.0 } else { update.weight };
    let take_in = |old: f64, batch: f64| (1.0 - weight) * old + weight * (factor * batch);
    let pairs = old.iter().zip(batch).zip(scale);
    let after =
        pairs.map(|((&old, &batch), &scale)| (take_in(old, batch), take_in(old.abs(), scale)));
    unzip(OF_CHANNELS, after)
}
