//! gamma, beta and gate. A layer with a gate, gate · (gamma·x̂ + beta), is one with gate·gamma and gate·beta.

use super::{Computed, Inputs, OF_CHANNELS, unzip};
use wgpu_norm::memory;
use wgpu_norm::{Error, Operation, Tensor};

/// The parameters that an operation is given, as many of each as there are.
pub(super) struct Params<'a> {
    /// gamma, with the 1 that is stored without it.
    gamma: Option<Vec<f64>>,
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
                .map(|gamma| memory::collect(OF_CHANNELS, gamma))
                .transpose()?,
            beta: inputs.given(Tensor::Beta),
            gate: inputs.given(Tensor::Gate),
        })
    }

    /// gamma and beta of the same layer without a gate.
    pub fn without_gate(&self) -> Result<Vec<(Tensor, Vec<f64>)>, Error> {
        let times_gate = |values: &[f64]| match self.gate {
            Some(gate) => memory::collect(OF_CHANNELS, values.iter().zip(gate).map(|(a, b)| a * b)),
            None => memory::collect(OF_CHANNELS, values.iter().copied()),
        };
        let gamma = match (&self.gamma, self.gate) {
            (Some(gamma), _) => Some(times_gate(gamma)?),
            (None, Some(gate)) => Some(memory::collect(OF_CHANNELS, gate.iter().copied())?),
            (None, None) => None,
        };
        let beta = self.beta.map(times_gate).transpose()?;
        let both = [(Tensor::Gamma, gamma), (Tensor::Beta, beta)];
        let given = both.into_iter();
        Ok(given
            .filter_map(|(tensor, values)| Some((tensor, values?)))
            .collect())
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
