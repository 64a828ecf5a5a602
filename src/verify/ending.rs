//! What follows a layer, as parts of an ID: `relu` or `silu`; `residual`, which a forward pass adds before that, and whose
//! gradient is then taken by a mask.

use super::expected::Expected;
use super::numbers::Numbers;
use super::numbers::of_tensor;
use crate::reference::{
    Forward, Gradients, SUM_ULPS, through_activation, through_activation_scale,
};
use crate::{Activation, DTypes, Error, Tensor};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Ending {
    pub activation: Activation,
    pub residual: bool,
}

impl Ending {
    pub fn tokens(self) -> impl Iterator<Item = String> {
        let activation = (self.activation != Activation::None).then(|| self.activation.name());
        let residual = self.residual.then_some("residual");
        [activation, residual]
            .into_iter()
            .flatten()
            .map(str::to_owned)
    }

    /// Takes a part of an ID, if it is one of these.
    pub fn set(&mut self, token: &str) -> bool {
        match token {
            "relu" => self.activation = Activation::Relu,
            "silu" => self.activation = Activation::Silu,
            "residual" => self.residual = true,
            _ => return false,
        }
        true
    }

    /// Whether a gradient finds the layer's output again.
    pub fn is_found_again(self) -> bool {
        self.activation != Activation::None && !self.residual
    }

    /// Whether a forward pass in training writes a mask, and a gradient reads one.
    pub fn is_masked(self) -> bool {
        self.activation != Activation::None && self.residual
    }

    /// A layer's output with what follows it, and in `training` the mask.
    pub fn forward(
        self,
        layer: Forward,
        inputs: &[Numbers],
        types: DTypes,
        training: bool,
    ) -> Result<(Forward, Option<Expected>), Error> {
        let residual = self.residual.then(|| of_tensor(inputs, Tensor::Residual));
        let before = layer.followed_by(Activation::None, residual)?;
        let mask = (training && self.is_masked()).then(|| Expected {
            tensor: Tensor::Mask,
            dtype: types.data.accumulator(),
            len: before.dst.len(),
            values: before.dst.clone(),
            scale: before.dst_scale.clone(),
        });
        Ok((before.followed_by(self.activation, None)?, mask))
    }

    /// A gradient's diff_dst is 0 where rounding decides whether it passes.
    pub fn settle(self, inputs: &mut [Numbers], output: &Forward, types: DTypes) {
        if self.activation != Activation::Relu {
            return;
        }
        let roundings = 2.0 * SUM_ULPS * types.data.accumulator().unit_roundoff();
        let diff_dst = inputs.iter_mut().find(|n| n.tensor == Tensor::DiffDst);
        let values = diff_dst.into_iter().flat_map(|n| &mut n.values);
        for (value, (y, scale)) in values.zip(output.dst.iter().zip(&output.dst_scale)) {
            if y.abs() <= roundings * scale {
                *value = 0.0;
            }
        }
    }

    /// The gradients of the layer and of what follows it, each for itself: `gradients` has the layer's, by its output's
    /// gradient; `output` the layer's output, where that is found again.
    pub fn backward(
        self,
        inputs: &[Numbers],
        types: DTypes,
        output: Option<Forward>,
        gradients: impl Fn(&[f64]) -> Result<Gradients, Error>,
    ) -> Result<(Gradients, Option<Expected>), Error> {
        let diff_dst = of_tensor(inputs, Tensor::DiffDst);
        if let Some(y) = output {
            let found = gradients(&through_activation(self.activation, &y.dst, diff_dst)?)?;
            let scales = gradients(&through_activation_scale(
                self.activation,
                &y.dst,
                &y.dst_scale,
                diff_dst,
            )?)?;
            return Ok((
                Gradients {
                    diff_src_scale: scales.diff_src_scale,
                    diff_gamma_scale: scales.diff_gamma_scale,
                    diff_beta_scale: scales.diff_beta_scale,
                    ..found
                },
                None,
            ));
        }
        if !self.is_masked() {
            return Ok((gradients(diff_dst)?, None));
        }
        let passed = diff_dst.iter().zip(of_tensor(inputs, Tensor::Mask));
        let passed: Vec<f64> = passed
            .map(|(&diff, &bit)| if bit == 0.0 { 0.0 } else { diff })
            .collect();
        let found = gradients(&passed)?;
        let diff_residual = Expected {
            tensor: Tensor::DiffResidual,
            dtype: types.data,
            len: passed.len(),
            scale: passed.iter().map(|diff| diff.abs()).collect(),
            values: passed,
        };
        Ok((found, Some(diff_residual)))
    }
}
