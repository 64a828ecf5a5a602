//! Batch norm in training.
//!
//! Parts of its cases' IDs: those of `channels.rs` and `ending.rs`; `no_gamma`, `no_beta`; `running` or `running_unbiased` for running
//! statistics, with a batch's weight such as `running=0.1`, or a quarter.

use super::channels::Channels;
use super::ending::Ending;
use super::expected::{Expected, forward};
use super::numbers::Numbers;
use super::numbers::of_tensor;
use super::operator::Operator;
use super::operator::Records;
use super::values::{ForwardCounts, Values, forward_inputs};
use crate::plan::Plan;
use crate::{
    BatchNormForwardOperands, DType, DTypes, Error, GpuBatchNorm, GpuContext, RunningUpdate,
    RunningVariance, Shards, Tensor, reference,
};
use std::ops::Range;

/// A batch's weight that IDs do not name.
const WEIGHT: f64 = 0.25;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct BatchNormForward {
    channels: Channels,
    has_gamma: bool,
    has_beta: bool,
    ending: Ending,
    running: Option<RunningUpdate>,
    shards: Shards,
}

impl BatchNormForward {
    pub const NAME: &'static str = "batch_norm_forward";

    pub fn new(shape: &[usize]) -> Self {
        Self {
            channels: Channels::new(shape),
            has_gamma: true,
            has_beta: true,
            ending: Ending::default(),
            running: None,
            shards: Shards::default(),
        }
    }

    /// Elements of a channel.
    fn count(&self) -> usize {
        self.channels.elements() / self.channels.count().max(1)
    }

    /// The running statistics after a batch's: of the mean, or of the variance.
    fn running(
        &self,
        update: RunningUpdate,
        tensor: Tensor,
        dtype: DType,
        old: &[f64],
        batch: &Expected,
    ) -> Result<Expected, Error> {
        let unbiased =
            tensor == Tensor::RunningVariance && update.variance == RunningVariance::Unbiased;
        let after = |old: &[f64], batch: &[f64]| {
            reference::running(old, batch, update.weight, self.count() as u64, unbiased)
        };
        let sizes: Vec<f64> = old.iter().map(|old| old.abs()).collect();
        Ok(Expected {
            tensor,
            dtype,
            len: batch.len,
            values: after(old, &batch.values)?,
            scale: after(&sizes, &batch.scale)?,
        })
    }
}

/// `running`, `running_unbiased`, or one of them with a weight.
fn read_running(token: &str) -> Option<RunningUpdate> {
    let (name, weight) = match token.split_once('=') {
        None => (token, WEIGHT),
        Some((name, weight)) => (name, weight.parse().ok()?),
    };
    let variance = match name {
        "running" => RunningVariance::Biased,
        "running_unbiased" => RunningVariance::Unbiased,
        _ => return None,
    };
    Some(RunningUpdate { weight, variance })
}

fn show_running(update: RunningUpdate) -> String {
    let name = match update.variance {
        RunningVariance::Biased => "running",
        RunningVariance::Unbiased => "running_unbiased",
    };
    match update.weight == WEIGHT {
        true => name.to_owned(),
        false => format!("{name}={}", update.weight),
    }
}

impl Operator for BatchNormForward {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn shape(&self) -> &[usize] {
        &self.channels.shape
    }

    fn tokens(&self) -> Vec<String> {
        let gamma = (!self.has_gamma).then(|| "no_gamma".to_owned());
        let beta = (!self.has_beta).then(|| "no_beta".to_owned());
        let running = self.running.map(show_running);
        let others = [gamma, beta, running].into_iter().flatten();
        let mut tokens = vec![self.channels.token()];
        tokens.extend(others);
        tokens.extend(self.ending.tokens());
        tokens
    }

    fn set(&mut self, token: &str) -> bool {
        match (token, read_running(token)) {
            ("no_gamma", _) => self.has_gamma = false,
            ("no_beta", _) => self.has_beta = false,
            (_, Some(update)) => self.running = Some(update),
            (token, None) => return self.ending.set(token) || self.channels.set(token),
        }
        true
    }

    fn inputs(&self, types: DTypes, values: Values) -> Vec<Numbers> {
        let channels = self.channels.count();
        let counts = ForwardCounts {
            gamma: self.has_gamma.then_some(channels),
            beta: self.has_beta.then_some(channels),
            residual: self.ending.residual,
            running: self.running.map(|_| channels),
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
        .train()?;
        let channels = self.channels.count();
        let elements = self.channels.elements();
        let (found, mask) = self.ending.forward(found, inputs, types, true)?;
        let mut expected = forward(found, types, elements, channels);
        expected.extend(mask.map(|mask| mask.of_length(elements)));
        if let Some(update) = self.running {
            for (tensor, of) in [
                (Tensor::RunningMean, Tensor::Mean),
                (Tensor::RunningVariance, Tensor::Variance),
            ] {
                if let Some(batch) = expected.iter().find(|batch| batch.tensor == of) {
                    let old = of_tensor(inputs, tensor);
                    let after = self.running(update, tensor, types.statistics, old, batch)?;
                    expected.push(after);
                }
            }
        }
        Ok(expected)
    }

    fn plan(&self, gpu: &GpuContext, types: DTypes, values: Values) -> Result<Plan, Error> {
        let layer = GpuBatchNorm::new(gpu, self.channels.options(values, self.ending))?;
        let operands = BatchNormForwardOperands {
            gamma: self.has_gamma,
            beta: self.has_beta,
            running: self.running,
            shards: self.shards,
            residual: self.ending.residual,
        };
        let shape = &self.channels.shape;
        let plan = match self.channels.params() {
            None => layer.plan_forward(shape, types, operands)?,
            Some(params) => layer.plan_forward_broadcast(shape, params, types, operands)?,
        };
        Ok(plan.plan)
    }

    fn shard(&self, samples: Range<usize>, part: Shards) -> Option<Self> {
        let channels = self.channels.shard(&samples)?;
        Some(Self {
            channels,
            shards: part,
            ..self.clone()
        })
    }

    fn records(&self) -> Option<Records> {
        Some(Records {
            part: self.shards,
            count: self.count() as f64,
        })
    }
}
