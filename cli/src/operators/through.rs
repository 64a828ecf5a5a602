//! What batch, group and instance norm share: a residual that is added to the layer's output, an activation behind that,
//! and the way of a gradient back through both.
//!
//! A gradient finds again what the activation was applied to, or is told by a mask what passed: exactly where a residual
//! was added before.

use super::forward;
use super::gradients;
use super::tensors::{Arguments, Values};
use super::undecided::{Inputs, Layer, Undecided};
use crate::attributes::{self, Choice, choice};
use crate::check::Expected;
use crate::failure::Failure;
use crate::input::Input;
use crate::job::Job;
use crate::memory;
use clap::Args;
use wgpu_norm::reference::{Forward, Gradients, through_activation, through_activation_scale};
use wgpu_norm::{Activation, BackwardOperands, DType, Error, ParamGrads};

#[derive(Debug, Args)]
pub struct ActivationArgs {
    /// What follows the layer: relu, which is max(y, 0), or silu, which is y / (1 + exp(-y)) and goes neither with f64 data
    /// nor with a residual [default: the file's metadata, else none]
    #[arg(long, value_name = Activation::VALUE_NAME, value_parser = choice::<Activation>(), ignore_case = true)]
    activation: Option<Activation>,
}

impl ActivationArgs {
    /// The flag's, else the metadata's, else none.
    pub fn find(&self, input: &Input) -> Result<Activation, Failure> {
        let activation = attributes::named(self.activation, input, "activation")?;
        Ok(activation.unwrap_or_default())
    }
}

/// An activation among the attributes in force, for people.
pub fn attribute(activation: Activation) -> String {
    match activation {
        Activation::None => String::new(),
        other => format!(", {other}"),
    }
}

/// Finds the residual that a forward pass adds, if it is there.
pub fn find_residual(input: &Input, arguments: &mut Arguments) -> Result<(), Failure> {
    arguments.beside.extend(input.optional("residual")?);
    Ok(())
}

/// Finds what a gradient takes for an activation: a mask, else beta. Without an activation a beta may be there from the
/// forward pass; a mask tells of an activation that was forgotten.
pub fn find_beta_or_mask(
    job: &Job,
    activation: Activation,
    arguments: &mut Arguments,
) -> Result<(), Failure> {
    let input = &job.input;
    let has_beta = input.contains("beta");
    if activation == Activation::None {
        return match input.contains("mask") {
            false => Ok(()),
            true => Err(Failure::Library(Error::Argument {
                argument: "mask",
                expected: "none without --activation, which names what the mask is of".to_owned(),
                got: "one".to_owned(),
            })),
        };
    }
    arguments.mask = input.mask("mask")?;
    let has_residual = input.contains("residual");
    if arguments.mask.is_none() {
        if has_residual {
            return Err(input.missing("mask", " beside a residual, as the forward pass writes it"));
        }
        if !has_beta {
            job.warn("beta: none given, so 0, in what the activation is applied to");
        }
        arguments.params.extend(input.optional("beta")?);
    }
    Ok(())
}

/// Says where gamma does not count, or only in what the activation is applied to.
pub fn warn_of_ignored_gamma(
    job: &Job,
    arguments: &Arguments,
    (activation, param_grads): (Activation, ParamGrads),
) {
    let found_again = activation != Activation::None && arguments.mask.is_none();
    if found_again && param_grads == ParamGrads::Neither && arguments.has("gamma") {
        job.warn(
            "gamma: counts for the activation alone, as --param-grads is neither; frozen lets it scale diff_src",
        );
    } else {
        gradients::warn_of_ignored_gamma(job, arguments, param_grads);
    }
}

/// What the plan of a gradient reads of these.
pub fn operands(arguments: &Arguments) -> BackwardOperands {
    BackwardOperands {
        gamma: arguments.has("gamma"),
        beta: arguments.has("beta"),
        mask: arguments.mask.is_some(),
    }
}

/// The reference's results of a layer with what follows it. In training there is a mask where both follow.
pub fn forward(
    layer: Forward,
    activation: Activation,
    residual: Option<&[f64]>,
    training: bool,
) -> Result<Vec<Expected>, Error> {
    let before = layer.followed_by(Activation::None, residual)?;
    let mask = match training && residual.is_some() && activation != Activation::None {
        true => Some(Expected::new(
            "mask",
            memory::copied("the mask in float64", &before.dst)?,
            memory::copied("the mask in float64", &before.dst_scale)?,
        )),
        false => None,
    };
    let mut expected = forward::expected(before.followed_by(activation, None)?);
    expected.extend(mask);
    Ok(expected)
}

/// The reference's gradients of a layer with what follows it, of data of this type.
pub fn backward<O, G>(
    layer: &Layer<O, G>,
    inputs: &Inputs<'_>,
    (activation, data): (Activation, DType),
    values: &Values<f64, f64, f64>,
) -> Result<Vec<Expected>, Error>
where
    O: Fn(&Inputs<'_>) -> Result<Forward, Error>,
    G: Fn(&[f64]) -> Result<Gradients, Error>,
{
    let diff_dst = values.data("diff_dst");
    if activation == Activation::None {
        return (layer.gradients)(diff_dst).map(gradients::expected);
    }
    if let Some(mask) = &values.mask {
        let passed = passed(mask, diff_dst)?;
        let mut expected = gradients::expected((layer.gradients)(&passed)?);
        let mut sizes = memory::copied("a tensor in float64", &passed)?;
        sizes.iter_mut().for_each(|size| *size = size.abs());
        expected.push(Expected::new("diff_residual", passed, sizes));
        return Ok(expected);
    }
    let y = (layer.output)(inputs)?;
    let through = through_activation(activation, &y.dst, diff_dst)?;
    let sizes = through_activation_scale(activation, &y.dst, &y.dst_scale, diff_dst)?;
    let scales = (layer.gradients)(&sizes)?;
    let mut found = Gradients {
        diff_src_scale: scales.diff_src_scale,
        diff_gamma_scale: scales.diff_gamma_scale,
        diff_beta_scale: scales.diff_beta_scale,
        ..(layer.gradients)(&through)?
    };
    let undecided = Undecided::find(activation, &y, diff_dst, data.accumulator())?;
    undecided.allow(&mut found, layer, inputs)?;
    let expected = gradients::expected(found).into_iter();
    Ok(expected
        .map(|expected| expected.with_undecided(undecided.count()))
        .collect())
}

/// What a mask leaves of diff_dst.
fn passed(mask: &[u32], diff_dst: &[f64]) -> Result<Vec<f64>, Error> {
    let mut passed = memory::copied("diff_residual in float64", diff_dst)?;
    for (elements, word) in passed.chunks_mut(32).zip(mask) {
        for (bit, element) in elements.iter_mut().enumerate() {
            if word >> bit & 1 == 0 {
                *element = 0.0;
            }
        }
    }
    Ok(passed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn bits_are_of_elements_in_order() {
        let diff_dst: Vec<f64> = (1..=34).map(f64::from).collect();
        let passed = passed(&[0x8000_0002, 2], &diff_dst).unwrap();
        let kept: Vec<f64> = passed.iter().copied().filter(|&diff| diff != 0.0).collect();
        assert_eq!((passed.len(), kept), (34, vec![2.0, 32.0, 34.0]));
    }
}
