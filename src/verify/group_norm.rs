//! The gradients of group norm and of instance norm.
//!
//! Parts of their cases' IDs: those of `groups.rs`; `frozen` or `neither`; `no_gamma`.

use super::Operator;
use super::expected::{Expected, gradients};
use super::groups::Groups;
use super::numbers::Numbers;
use super::problem::of_tensor;
use super::values::{Counts, Values, gradient_inputs};
use crate::kernels::Tensor;
use crate::plan::Plan;
use crate::{
    DTypes, Error, GpuContext, GpuGroupNorm, GpuInstanceNorm, InstanceNormOptions, ParamGrads,
    reference,
};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct GroupNormBackward {
    groups: Groups,
    param_grads: ParamGrads,
    has_gamma: bool,
}

impl GroupNormBackward {
    pub const NAME: &'static str = "group_norm_backward";
    pub const INSTANCE: &'static str = "instance_norm_backward";

    pub fn new(groups: Groups) -> Self {
        Self {
            groups,
            param_grads: ParamGrads::Both,
            has_gamma: true,
        }
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
        let others = [param_grads, gamma].into_iter().flatten();
        let mut tokens = self.groups.tokens();
        tokens.extend(others.map(str::to_owned));
        tokens
    }

    fn set(&mut self, token: &str) -> bool {
        match token {
            "frozen" => self.param_grads = ParamGrads::Frozen,
            "neither" => self.param_grads = ParamGrads::Neither,
            "no_gamma" => self.has_gamma = false,
            token => return self.groups.set(token),
        }
        true
    }

    fn inputs(&self, types: DTypes, values: Values) -> Vec<Numbers> {
        let counts = Counts {
            elements: self.groups.elements(),
            groups: self.groups.count(),
            gamma: self.has_gamma.then_some(self.groups.channels()),
        };
        gradient_inputs(types, values, counts)
    }

    fn expected(
        &self,
        inputs: &[Numbers],
        types: DTypes,
        values: Values,
    ) -> Result<Vec<Expected>, Error> {
        let found = reference::GroupNorm {
            shape: &values.reference_shape(&self.groups.shape),
            data_format: self.groups.format,
            groups: self.groups.reference_groups(values),
            src: of_tensor(inputs, Tensor::Src),
            diff_dst: of_tensor(inputs, Tensor::DiffDst),
            mean: of_tensor(inputs, Tensor::Mean),
            variance: of_tensor(inputs, Tensor::Variance),
            gamma: self.has_gamma.then(|| of_tensor(inputs, Tensor::Gamma)),
            epsilon: values.epsilon(),
            param_grads: self.param_grads,
        }
        .backward()?;
        Ok(gradients(
            found,
            types,
            self.param_grads,
            self.groups.elements(),
            Some(self.groups.channels()),
            values == Values::Alike,
        ))
    }

    fn plan(&self, gpu: &GpuContext, types: DTypes, values: Values) -> Result<Plan, Error> {
        let shape = &self.groups.shape;
        let options = self.groups.options(values, self.param_grads);
        let plan = match self.groups.is_instance() {
            true => {
                let options = InstanceNormOptions {
                    epsilon: options.epsilon,
                    data_format: options.data_format,
                    param_grads: options.param_grads,
                };
                GpuInstanceNorm::new(gpu, options)?.plan_backward(shape, types, self.has_gamma)?
            }
            false => {
                GpuGroupNorm::new(gpu, options)?.plan_backward(shape, types, self.has_gamma)?
            }
        };
        Ok(plan.plan)
    }
}
