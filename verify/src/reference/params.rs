//! gamma, beta and gate, where there are any, and the gradients of a layer with a gate, gate · (gamma·x̂ + beta).

use super::{Computed, Inputs, OF_CHANNELS, unzip};
use wgpu_norm::support;
use wgpu_norm::{Error, Operation, Tensor};

/// The parameters that an operation is given, as many of each as there are.
pub(super) struct Params<'a> {
    /// gamma, with the 1 that is stored without it.
    pub gamma: Option<Vec<f64>>,
    beta: Option<&'a [f64]>,
    gate: Option<&'a [f64]>,
}

impl<'a> Params<'a> {
    pub fn new(operation: &Operation, inputs: Inputs<'a>) -> Result<Self, Error> {
        let stored_less = f64::from(u8::from(operation.zero_centered_gamma));
        let gamma = inputs.given(Tensor::Gamma);
        let gamma = gamma.map(|gamma| gamma.iter().map(|gamma| gamma + stored_less));
        Ok(Self {
            gamma: gamma
                .map(|gamma| support::collect(OF_CHANNELS, gamma))
                .transpose()?,
            beta: inputs.given(Tensor::Beta),
            gate: inputs.given(Tensor::Gate),
        })
    }

    /// Makes the gradients of gamma, beta and gate from those of the layer without a gate.
    pub fn with_gate(&self, results: &mut Vec<Computed>) -> Result<(), Error> {
        let Some(gate) = self.gate else {
            return Ok(());
        };
        let find = |tensor| results.iter().find(|computed| computed.tensor == tensor);
        let (Some(of_gamma), Some(of_beta)) = (find(Tensor::DiffGamma), find(Tensor::DiffBeta))
        else {
            return Ok(());
        };
        let of_gate = (0..gate.len()).map(|at| {
            let gamma = self.gamma.as_ref().map_or(1.0, |gamma| gamma[at]);
            let beta = self.beta.map_or(0.0, |beta| beta[at]);
            (
                gamma * of_gamma.values[at] + beta * of_beta.values[at],
                gamma.abs() * of_gamma.scale[at] + beta.abs() * of_beta.scale[at],
            )
        });
        let of_gate = Computed::new(Tensor::DiffGate, unzip(OF_CHANNELS, of_gate)?);
        let of_params = results
            .iter_mut()
            .filter(|one| matches!(one.tensor, Tensor::DiffGamma | Tensor::DiffBeta));
        for computed in of_params {
            for (at, &gate) in gate.iter().enumerate() {
                computed.values[at] *= gate;
                computed.scale[at] *= gate.abs();
            }
        }
        results.push(of_gate);
        Ok(())
    }
}
