//! The gradient of batch norm.
//!
//! Parts of its cases' IDs: those of `channels.rs`; `constant`; `frozen` or `neither`; `no_gamma`.

use super::Operator;
use super::channels::Channels;
use super::expected::{Expected, gradients};
use super::numbers::Numbers;
use super::problem::of_tensor;
use super::values::{Counts, Values, gradient_inputs};
use crate::kernels::Tensor;
use crate::plan::Plan;
use crate::{
    BatchNormOptions, DTypes, Error, GpuBatchNorm, GpuContext, ParamGrads, Shards, Statistics,
    reference,
};
use std::ops::Range;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct BatchNormBackward {
    channels: Channels,
    statistics: Statistics,
    param_grads: ParamGrads,
    has_gamma: bool,
}

impl BatchNormBackward {
    pub const NAME: &'static str = "batch_norm_backward";

    pub fn new(shape: &[usize]) -> Self {
        Self {
            channels: Channels::new(shape),
            statistics: Statistics::Batch,
            param_grads: ParamGrads::Both,
            has_gamma: true,
        }
    }
}

impl Operator for BatchNormBackward {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn shape(&self) -> &[usize] {
        &self.channels.shape
    }

    fn tokens(&self) -> Vec<String> {
        let constant = (self.statistics == Statistics::Constant).then_some("constant");
        let param_grads = match self.param_grads {
            ParamGrads::Both => None,
            ParamGrads::Frozen => Some("frozen"),
            ParamGrads::Neither => Some("neither"),
        };
        let gamma = (!self.has_gamma).then_some("no_gamma");
        let others = [constant, param_grads, gamma].into_iter().flatten();
        [self.channels.token()]
            .into_iter()
            .chain(others.map(str::to_owned))
            .collect()
    }

    fn set(&mut self, token: &str) -> bool {
        match token {
            "constant" => self.statistics = Statistics::Constant,
            "frozen" => self.param_grads = ParamGrads::Frozen,
            "neither" => self.param_grads = ParamGrads::Neither,
            "no_gamma" => self.has_gamma = false,
            token => return self.channels.set(token),
        }
        true
    }

    fn inputs(&self, types: DTypes, values: Values) -> Vec<Numbers> {
        let channels = self.channels.count();
        let counts = Counts {
            elements: self.channels.elements(),
            groups: channels,
            gamma: self.has_gamma.then_some(channels),
        };
        gradient_inputs(types, values, counts)
    }

    fn expected(
        &self,
        inputs: &[Numbers],
        types: DTypes,
        values: Values,
    ) -> Result<Vec<Expected>, Error> {
        let alike = values == Values::Alike;
        let found = reference::BatchNorm {
            shape: &values.reference_shape(&self.channels.shape),
            channel_axes: &self.channels.axes(),
            src: of_tensor(inputs, Tensor::Src),
            diff_dst: of_tensor(inputs, Tensor::DiffDst),
            mean: of_tensor(inputs, Tensor::Mean),
            variance: of_tensor(inputs, Tensor::Variance),
            gamma: self.has_gamma.then(|| of_tensor(inputs, Tensor::Gamma)),
            epsilon: values.epsilon(),
            statistics: self.statistics,
            param_grads: self.param_grads,
        }
        .backward()?;
        let elements = self.channels.elements();
        let params = Some(self.channels.count());
        Ok(gradients(
            found,
            types,
            self.param_grads,
            elements,
            params,
            alike,
        ))
    }

    fn plan(&self, gpu: &GpuContext, types: DTypes, values: Values) -> Result<Plan, Error> {
        let options = BatchNormOptions {
            statistics: self.statistics,
            param_grads: self.param_grads,
            ..self.channels.options(values)
        };
        let layer = GpuBatchNorm::new(gpu, options)?;
        let shape = &self.channels.shape;
        let plan = match self.channels.params() {
            None => layer.plan_backward(shape, types, self.has_gamma)?,
            Some(params) => layer.plan_backward_broadcast(shape, params, types, self.has_gamma)?,
        };
        Ok(plan.plan)
    }

    fn shard(&self, samples: Range<usize>, _part: Shards) -> Option<Self> {
        let channels = self.channels.shard(&samples)?;
        Some(Self {
            channels,
            ..self.clone()
        })
    }
}
