//! The gradients of group norm and of instance norm.
//!
//! Parts of their cases' IDs: those of `groups.rs` and `ending.rs`; `frozen` or `neither`; `no_gamma`, `no_beta`.

use super::ending::Ending;
use super::expected::{Expected, gradients};
use super::groups::Groups;
use super::numbers::Numbers;
use super::numbers::of_tensor;
use super::operator::Operator;
use super::values::{Counts, Values, gradient_inputs};
use crate::plan::Plan;
use crate::{
    BackwardOperands, DTypes, Error, GpuContext, GpuGroupNorm, GpuInstanceNorm,
    InstanceNormOptions, ParamGrads, Tensor, reference,
};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct GroupNormBackward {
    groups: Groups,
    param_grads: ParamGrads,
    has_gamma: bool,
    has_beta: bool,
    ending: Ending,
}

impl GroupNormBackward {
    pub const NAME: &'static str = "group_norm_backward";
    pub const INSTANCE: &'static str = "instance_norm_backward";

    pub fn new(groups: Groups) -> Self {
        Self {
            groups,
            param_grads: ParamGrads::Both,
            has_gamma: true,
            has_beta: true,
            ending: Ending::default(),
        }
    }

    /// Whether beta counts.
    fn reads_beta(&self) -> bool {
        self.has_beta && self.ending.is_found_again()
    }

    /// The layer's output, where what follows it finds that again.
    fn output(
        &self,
        inputs: &[Numbers],
        values: Values,
    ) -> Result<Option<reference::Forward>, Error> {
        if !self.ending.is_found_again() {
            return Ok(None);
        }
        let layer = reference::GroupNormForward {
            shape: &values.reference_shape(&self.groups.shape),
            data_format: self.groups.format,
            groups: self.groups.reference_groups(values),
            src: of_tensor(inputs, Tensor::Src),
            gamma: self.has_gamma.then(|| of_tensor(inputs, Tensor::Gamma)),
            beta: self.has_beta.then(|| of_tensor(inputs, Tensor::Beta)),
            epsilon: values.epsilon(),
        };
        let mean = of_tensor(inputs, Tensor::Mean);
        Ok(Some(
            layer.infer(mean, of_tensor(inputs, Tensor::Variance))?,
        ))
    }
}

impl Operator for GroupNormBackward {
    fn name(&self) -> &'static str {
        match self.groups.is_instance() {
            true => Self::INSTANCE,
            false => Self::NAME,
        }
    }

    fn shape(&self) -> &[usize] {
        &self.groups.shape
    }

    fn tokens(&self) -> Vec<String> {
        let param_grads = match self.param_grads {
            ParamGrads::Both => None,
            ParamGrads::Frozen => Some("frozen"),
            ParamGrads::Neither => Some("neither"),
        };
        let gamma = (!self.has_gamma).then_some("no_gamma");
        let beta = (!self.has_beta).then_some("no_beta");
        let others = [param_grads, gamma, beta].into_iter().flatten();
        let mut tokens = self.groups.tokens();
        tokens.extend(others.map(str::to_owned));
        tokens.extend(self.ending.tokens());
        tokens
    }

    fn set(&mut self, token: &str) -> bool {
        match token {
            "frozen" => self.param_grads = ParamGrads::Frozen,
            "neither" => self.param_grads = ParamGrads::Neither,
            "no_gamma" => self.has_gamma = false,
            "no_beta" => self.has_beta = false,
            token => return self.ending.set(token) || self.groups.set(token),
        }
        true
    }

    fn inputs(&self, types: DTypes, values: Values) -> Vec<Numbers> {
        let counts = Counts {
            elements: self.groups.elements(),
            groups: self.groups.count(),
            gamma: self.has_gamma.then_some(self.groups.channels()),
            beta: self.reads_beta().then_some(self.groups.channels()),
            mask: self.ending.is_masked(),
        };
        let mut inputs = gradient_inputs(types, values, counts);
        if let Ok(Some(output)) = self.output(&inputs, values) {
            self.ending.settle(&mut inputs, &output, types);
        }
        inputs
    }

    fn expected(
        &self,
        inputs: &[Numbers],
        types: DTypes,
        values: Values,
    ) -> Result<Vec<Expected>, Error> {
        let layer = reference::GroupNorm {
            shape: &values.reference_shape(&self.groups.shape),
            data_format: self.groups.format,
            groups: self.groups.reference_groups(values),
            src: of_tensor(inputs, Tensor::Src),
            diff_dst: &[],
            mean: of_tensor(inputs, Tensor::Mean),
            variance: of_tensor(inputs, Tensor::Variance),
            gamma: self.has_gamma.then(|| of_tensor(inputs, Tensor::Gamma)),
            epsilon: values.epsilon(),
            param_grads: self.param_grads,
        };
        let output = self.output(inputs, values)?;
        let of_layer = |diff_dst: &[f64]| reference::GroupNorm { diff_dst, ..layer }.backward();
        let (found, diff_residual) = self.ending.backward(inputs, types, output, of_layer)?;
        let elements = self.groups.elements();
        let mut expected = gradients(
            found,
            types,
            self.param_grads,
            elements,
            Some(self.groups.channels()),
            values == Values::Alike,
        );
        expected.extend(diff_residual.map(|expected| expected.of_length(elements)));
        Ok(expected)
    }

    fn plan(&self, gpu: &GpuContext, types: DTypes, values: Values) -> Result<Plan, Error> {
        let shape = &self.groups.shape;
        let operands = BackwardOperands {
            gamma: self.has_gamma,
            beta: self.reads_beta(),
            mask: self.ending.is_masked(),
        };
        let options = self.groups.options(values, self.param_grads, self.ending);
        let plan = match self.groups.is_instance() {
            true => {
                let options = InstanceNormOptions {
                    epsilon: options.epsilon,
                    data_format: options.data_format,
                    param_grads: options.param_grads,
                    activation: options.activation,
                };
                GpuInstanceNorm::new(gpu, options)?.plan_backward(shape, types, operands)?
            }
            false => GpuGroupNorm::new(gpu, options)?.plan_backward(shape, types, operands)?,
        };
        Ok(plan.plan)
    }
}
