//! The gradient of batch norm.
//!
//! Parts of its cases' IDs: those of `channels.rs` and `ending.rs`; `constant`; `frozen` or `neither`; `no_gamma`, `no_beta`.

use super::channels::Channels;
use super::ending::Ending;
use super::expected::{Expected, gradients};
use super::numbers::Numbers;
use super::numbers::of_tensor;
use super::operator::Operator;
use super::values::{Counts, Values, gradient_inputs};
use crate::plan::Plan;
use crate::{
    BackwardOperands, BatchNormOptions, DTypes, Error, GpuBatchNorm, GpuContext, ParamGrads,
    Shards, Statistics, Tensor, reference,
};
use std::ops::Range;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct BatchNormBackward {
    channels: Channels,
    statistics: Statistics,
    param_grads: ParamGrads,
    has_gamma: bool,
    has_beta: bool,
    ending: Ending,
}

impl BatchNormBackward {
    pub const NAME: &'static str = "batch_norm_backward";

    pub fn new(shape: &[usize]) -> Self {
        Self {
            channels: Channels::new(shape),
            statistics: Statistics::Batch,
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
        let layer = reference::BatchNormForward {
            shape: &values.reference_shape(&self.channels.shape),
            channel_axes: &self.channels.axes(),
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
        let beta = (!self.has_beta).then_some("no_beta");
        let others = [constant, param_grads, gamma, beta].into_iter().flatten();
        let mut tokens = vec![self.channels.token()];
        tokens.extend(others.map(str::to_owned));
        tokens.extend(self.ending.tokens());
        tokens
    }

    fn set(&mut self, token: &str) -> bool {
        match token {
            "constant" => self.statistics = Statistics::Constant,
            "frozen" => self.param_grads = ParamGrads::Frozen,
            "neither" => self.param_grads = ParamGrads::Neither,
            "no_gamma" => self.has_gamma = false,
            "no_beta" => self.has_beta = false,
            token => return self.ending.set(token) || self.channels.set(token),
        }
        true
    }

    fn inputs(&self, types: DTypes, values: Values) -> Vec<Numbers> {
        let channels = self.channels.count();
        let counts = Counts {
            elements: self.channels.elements(),
            groups: channels,
            gamma: self.has_gamma.then_some(channels),
            beta: self.reads_beta().then_some(channels),
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
        let alike = values == Values::Alike;
        let layer = reference::BatchNorm {
            shape: &values.reference_shape(&self.channels.shape),
            channel_axes: &self.channels.axes(),
            src: of_tensor(inputs, Tensor::Src),
            diff_dst: &[],
            mean: of_tensor(inputs, Tensor::Mean),
            variance: of_tensor(inputs, Tensor::Variance),
            gamma: self.has_gamma.then(|| of_tensor(inputs, Tensor::Gamma)),
            epsilon: values.epsilon(),
            statistics: self.statistics,
            param_grads: self.param_grads,
        };
        let output = self.output(inputs, values)?;
        let of_layer = |diff_dst: &[f64]| reference::BatchNorm { diff_dst, ..layer }.backward();
        let (found, diff_residual) = self.ending.backward(inputs, types, output, of_layer)?;
        let elements = self.channels.elements();
        let params = Some(self.channels.count());
        let mut expected = gradients(found, types, self.param_grads, elements, params, alike);
        expected.extend(diff_residual.map(|expected| expected.of_length(elements)));
        Ok(expected)
    }

    fn plan(&self, gpu: &GpuContext, types: DTypes, values: Values) -> Result<Plan, Error> {
        let options = BatchNormOptions {
            statistics: self.statistics,
            param_grads: self.param_grads,
            ..self.channels.options(values, self.ending)
        };
        let layer = GpuBatchNorm::new(gpu, options)?;
        let operands = BackwardOperands {
            gamma: self.has_gamma,
            beta: self.reads_beta(),
            mask: self.ending.is_masked(),
        };
        let shape = &self.channels.shape;
        let plan = match self.channels.params() {
            None => layer.plan_backward(shape, types, operands)?,
            Some(params) => layer.plan_backward_broadcast(shape, params, types, operands)?,
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
