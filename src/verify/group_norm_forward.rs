//! Group norm and instance norm, forward, and group norm by given statistics.
//!
//! Parts of their cases' IDs: those of `groups.rs` and `ending.rs`; `no_gamma`, `no_beta`.

use super::ending::Ending;
use super::expected::{Expected, forward};
use super::groups::Groups;
use super::numbers::Numbers;
use super::numbers::of_tensor;
use super::operator::Operator;
use super::values::{ForwardCounts, Values, forward_inputs};
use crate::plan::Plan;
use crate::{
    DTypes, Error, GpuContext, GpuGroupNorm, GpuInstanceNorm, GroupNormForwardOperands,
    InferenceOperands, InstanceNormOptions, ParamGrads, Tensor, reference,
};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct GroupNormForward {
    groups: Groups,
    /// Whether mean and variance are given.
    given: bool,
    has_gamma: bool,
    has_beta: bool,
    ending: Ending,
}

impl GroupNormForward {
    pub const NAME: &'static str = "group_norm_forward";
    pub const INSTANCE: &'static str = "instance_norm_forward";
    pub const INFERENCE: &'static str = "group_norm_inference";

    pub fn new(groups: Groups) -> Self {
        Self {
            groups,
            given: false,
            has_gamma: true,
            has_beta: true,
            ending: Ending::default(),
        }
    }

    /// By given statistics.
    pub fn inference(groups: Groups) -> Self {
        Self {
            given: true,
            ..Self::new(groups)
        }
    }
}

impl Operator for GroupNormForward {
    fn name(&self) -> &'static str {
        match (self.groups.is_instance(), self.given) {
            (true, _) => Self::INSTANCE,
            (false, true) => Self::INFERENCE,
            (false, false) => Self::NAME,
        }
    }

    fn shape(&self) -> &[usize] {
        &self.groups.shape
    }

    fn tokens(&self) -> Vec<String> {
        let gamma = (!self.has_gamma).then_some("no_gamma");
        let beta = (!self.has_beta).then_some("no_beta");
        let mut tokens = self.groups.tokens();
        tokens.extend([gamma, beta].into_iter().flatten().map(str::to_owned));
        tokens.extend(self.ending.tokens());
        tokens
    }

    fn set(&mut self, token: &str) -> bool {
        match token {
            "no_gamma" => self.has_gamma = false,
            "no_beta" => self.has_beta = false,
            token => return self.ending.set(token) || self.groups.set(token),
        }
        true
    }

    fn inputs(&self, types: DTypes, values: Values) -> Vec<Numbers> {
        let channels = self.groups.channels();
        let counts = ForwardCounts {
            given: self.given.then_some(self.groups.count()),
            gamma: self.has_gamma.then_some(channels),
            beta: self.has_beta.then_some(channels),
            residual: self.ending.residual,
            ..ForwardCounts::of(self.groups.elements())
        };
        forward_inputs(types, values, counts)
    }

    fn expected(
        &self,
        inputs: &[Numbers],
        types: DTypes,
        values: Values,
    ) -> Result<Vec<Expected>, Error> {
        let layer = reference::GroupNormForward {
            shape: &values.reference_shape(&self.groups.shape),
            data_format: self.groups.format,
            groups: self.groups.reference_groups(values),
            src: of_tensor(inputs, Tensor::Src),
            gamma: self.has_gamma.then(|| of_tensor(inputs, Tensor::Gamma)),
            beta: self.has_beta.then(|| of_tensor(inputs, Tensor::Beta)),
            epsilon: values.epsilon(),
        };
        let [mean, variance] =
            [Tensor::Mean, Tensor::Variance].map(|tensor| of_tensor(inputs, tensor));
        let found = match self.given {
            true => layer.infer(mean, variance)?,
            false => layer.forward()?,
        };
        let (elements, groups) = (self.groups.elements(), self.groups.count());
        let (found, mask) = self.ending.forward(found, inputs, types, !self.given)?;
        let mut expected = forward(found, types, elements, groups);
        expected.extend(mask.map(|mask| mask.of_length(elements)));
        Ok(expected)
    }

    fn plan(&self, gpu: &GpuContext, types: DTypes, values: Values) -> Result<Plan, Error> {
        let shape = &self.groups.shape;
        let operands = GroupNormForwardOperands {
            gamma: self.has_gamma,
            beta: self.has_beta,
            residual: self.ending.residual,
        };
        let options = self.groups.options(values, ParamGrads::Both, self.ending);
        if self.groups.is_instance() {
            let options = InstanceNormOptions {
                epsilon: options.epsilon,
                data_format: options.data_format,
                param_grads: options.param_grads,
                activation: options.activation,
            };
            let layer = GpuInstanceNorm::new(gpu, options)?;
            return Ok(layer.plan_forward(shape, types, operands)?.plan);
        }
        let layer = GpuGroupNorm::new(gpu, options)?;
        let inference = InferenceOperands {
            gamma: self.has_gamma,
            beta: self.has_beta,
            residual: self.ending.residual,
        };
        Ok(match self.given {
            true => layer.plan_inference(shape, types, inference)?.plan,
            false => layer.plan_forward(shape, types, operands)?.plan,
        })
    }
}
