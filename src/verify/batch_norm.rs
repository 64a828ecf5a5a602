//! The gradient of batch norm.
//!
//! Parts of its cases' IDs: `ncx` or `nxc`, or `params_4x1x6` for parameters of src's rank; `constant`; `frozen` or
//! `neither`; `no_gamma`.

use super::Operator;
use super::expected::{Expected, gradients};
use super::numbers::Numbers;
use super::problem::{of_tensor, read_shape, show_shape};
use super::values::{Counts, Types, Values, gradient_inputs};
use crate::kernels::Tensor;
use crate::plan::Plan;
use crate::{
    BatchNormOptions, DataFormat, Error, GpuBatchNorm, GpuContext, ParamGrads, Statistics,
    reference,
};
use std::ops::Range;

/// Where the channels are.
#[derive(Clone, Debug, PartialEq)]
enum Channels {
    /// Along one axis.
    Format(DataFormat),
    /// Along those where parameters of this shape have src's size.
    Params(Vec<usize>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct BatchNormBackward {
    shape: Vec<usize>,
    channels: Channels,
    statistics: Statistics,
    param_grads: ParamGrads,
    has_gamma: bool,
}

impl BatchNormBackward {
    pub const NAME: &'static str = "batch_norm_backward";

    pub fn new(shape: &[usize]) -> Self {
        Self {
            shape: shape.to_vec(),
            channels: Channels::Format(DataFormat::Nxc),
            statistics: Statistics::Batch,
            param_grads: ParamGrads::Both,
            has_gamma: true,
        }
    }

    fn options(&self, values: Values) -> BatchNormOptions {
        BatchNormOptions {
            epsilon: values.epsilon(),
            data_format: match self.channels {
                Channels::Format(format) => format,
                Channels::Params(_) => DataFormat::Nxc,
            },
            statistics: self.statistics,
            param_grads: self.param_grads,
        }
    }

    fn axes(&self) -> Vec<bool> {
        match &self.channels {
            Channels::Format(format) => reference::channel_axes(self.shape.len(), *format),
            Channels::Params(params) => {
                let pairs = self.shape.iter().zip(params);
                pairs.map(|(size, param)| size == param).collect()
            }
        }
    }

    fn channel_count(&self) -> usize {
        let axes = self.axes();
        let kept = self.shape.iter().zip(axes).filter(|(_, kept)| *kept);
        kept.map(|(size, _)| size).product()
    }
}

impl Operator for BatchNormBackward {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn tokens(&self) -> Vec<String> {
        let channels = match &self.channels {
            Channels::Format(DataFormat::Ncx) => "ncx".to_owned(),
            Channels::Format(DataFormat::Nxc) => "nxc".to_owned(),
            Channels::Params(shape) => format!("params_{}", show_shape(shape)),
        };
        let constant = (self.statistics == Statistics::Constant).then_some("constant");
        let param_grads = match self.param_grads {
            ParamGrads::Both => None,
            ParamGrads::Frozen => Some("frozen"),
            ParamGrads::Neither => Some("neither"),
        };
        let gamma = (!self.has_gamma).then_some("no_gamma");
        let others = [constant, param_grads, gamma].into_iter().flatten();
        [channels]
            .into_iter()
            .chain(others.map(str::to_owned))
            .collect()
    }

    fn set(&mut self, token: &str) -> bool {
        match (token, token.strip_prefix("params_").and_then(read_shape)) {
            ("ncx", _) => self.channels = Channels::Format(DataFormat::Ncx),
            ("nxc", _) => self.channels = Channels::Format(DataFormat::Nxc),
            (_, Some(params)) => self.channels = Channels::Params(params),
            ("constant", _) => self.statistics = Statistics::Constant,
            ("frozen", _) => self.param_grads = ParamGrads::Frozen,
            ("neither", _) => self.param_grads = ParamGrads::Neither,
            ("no_gamma", _) => self.has_gamma = false,
            _ => return false,
        }
        true
    }

    fn inputs(&self, types: Types, values: Values) -> Vec<Numbers> {
        let channels = self.channel_count();
        let counts = Counts {
            elements: self.shape.iter().product(),
            groups: channels,
            gamma: self.has_gamma.then_some(channels),
        };
        gradient_inputs(types, values, counts)
    }

    fn expected(
        &self,
        inputs: &[Numbers],
        types: Types,
        values: Values,
    ) -> Result<Vec<Expected>, Error> {
        let alike = values == Values::Alike;
        let ones = vec![1; self.shape.len()];
        let found = reference::BatchNorm {
            shape: if alike { &ones } else { &self.shape },
            channel_axes: &self.axes(),
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
        let elements = self.shape.iter().product();
        let params = Some(self.channel_count());
        Ok(gradients(
            found,
            types,
            self.param_grads,
            elements,
            params,
            alike,
        ))
    }

    fn plan(&self, gpu: &GpuContext, types: Types, values: Values) -> Result<Plan, Error> {
        let layer = GpuBatchNorm::new(gpu, self.options(values))?;
        let Types { data, params } = types;
        let plan = match &self.channels {
            Channels::Format(_) => layer.plan(&self.shape, (data, params), self.has_gamma)?,
            Channels::Params(shape) => {
                layer.plan_broadcast(&self.shape, shape, (data, params), self.has_gamma)?
            }
        };
        Ok(plan.plan)
    }

    fn has_halves(&self) -> bool {
        true
    }

    /// Axis 0 is one that is reduced.
    fn shard(&self, samples: Range<usize>) -> Option<Self> {
        let mut shard = self.clone();
        match (&self.channels, shard.shape.first_mut()) {
            (Channels::Format(_), Some(size)) if samples.end <= *size => *size = samples.len(),
            _ => return None,
        }
        Some(shard)
    }
}
