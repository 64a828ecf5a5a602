//! Batch norm by given statistics.
//!
//! Parts of its cases' IDs: those of `channels.rs` and `ending.rs`; `no_gamma`, `no_beta`.

use super::channels::Channels;
use super::ending::Ending;
use super::expected::{Expected, forward};
use super::numbers::Numbers;
use super::numbers::of_tensor;
use super::operator::Operator;
use super::values::{ForwardCounts, Values, forward_inputs};
use crate::plan::Plan;
use crate::{DTypes, Error, GpuBatchNorm, GpuContext, InferenceOperands, Tensor, reference};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct BatchNormInference {
    channels: Channels,
    has_gamma: bool,
    has_beta: bool,
    ending: Ending,
}

impl BatchNormInference {
    pub const NAME: &'static str = "batch_norm_inference";

    pub fn new(shape: &[usize]) -> Self {
        Self {
            channels: Channels::new(shape),
            has_gamma: true,
            has_beta: true,
            ending: Ending::default(),
        }
    }
}

impl Operator for BatchNormInference {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn shape(&self) -> &[usize] {
        &self.channels.shape
    }

    fn tokens(&self) -> Vec<String> {
        let gamma = (!self.has_gamma).then_some("no_gamma");
        let beta = (!self.has_beta).then_some("no_beta");
        let others = [gamma, beta].into_iter().flatten().map(str::to_owned);
        let mut tokens = vec![self.channels.token()];
        tokens.extend(others);
        tokens.extend(self.ending.tokens());
        tokens
    }

    fn set(&mut self, token: &str) -> bool {
        match token {
            "no_gamma" => self.has_gamma = false,
            "no_beta" => self.has_beta = false,
            token => return self.ending.set(token) || self.channels.set(token),
        }
        true
    }

    fn inputs(&self, types: DTypes, values: Values) -> Vec<Numbers> {
        let channels = self.channels.count();
        let counts = ForwardCounts {
            given: Some(channels),
            gamma: self.has_gamma.then_some(channels),
            beta: self.has_beta.then_some(channels),
            residual: self.ending.residual,
            ..ForwardCounts::of(self.channels.elements())
        };
        forward_inputs(types, values, counts)
    }

    fn expected(
        &self,
        inputs: &[Numbers],
        types: DTypes,
        values: Values,
    ) -> Result<Vec<Expected>, Error> {
        let found = reference::BatchNormForward {
            shape: &values.reference_shape(&self.channels.shape),
            channel_axes: &self.channels.axes(),
            src: of_tensor(inputs, Tensor::Src),
            gamma: self.has_gamma.then(|| of_tensor(inputs, Tensor::Gamma)),
            beta: self.has_beta.then(|| of_tensor(inputs, Tensor::Beta)),
            epsilon: values.epsilon(),
        }
        .infer(
            of_tensor(inputs, Tensor::Mean),
            of_tensor(inputs, Tensor::Variance),
        )?;
        let channels = self.channels.count();
        let (found, _) = self.ending.forward(found, inputs, types, false)?;
        Ok(forward(found, types, self.channels.elements(), channels))
    }

    fn plan(&self, gpu: &GpuContext, types: DTypes, values: Values) -> Result<Plan, Error> {
        let layer = GpuBatchNorm::new(gpu, self.channels.options(values, self.ending))?;
        let operands = InferenceOperands {
            gamma: self.has_gamma,
            beta: self.has_beta,
            residual: self.ending.residual,
        };
        let shape = &self.channels.shape;
        let plan = match self.channels.params() {
            None => layer.plan_inference(shape, types, operands)?,
            Some(params) => layer.plan_inference_broadcast(shape, params, types, operands)?,
        };
        Ok(plan.plan)
    }
}
