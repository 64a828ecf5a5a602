//! The gradient of RMS norm.
//!
//! Parts of its cases' IDs: `axis_1` for the first normalized axis, the last one where it is absent; `frozen` or
//! `neither`; `no_gamma`.

use super::Operator;
use super::expected::{Expected, gradients};
use super::numbers::Numbers;
use super::problem::of_tensor;
use super::values::{Counts, Types, Values, gradient_inputs};
use crate::kernels::Tensor;
use crate::plan::Plan;
use crate::{Error, GpuContext, GpuRmsNorm, ParamGrads, RmsNormOptions, reference};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct RmsNormBackward {
    shape: Vec<usize>,
    /// Of the axes that are normalized.
    axis: usize,
    has_gamma: bool,
    param_grads: ParamGrads,
}

impl RmsNormBackward {
    pub const NAME: &'static str = "rms_norm_backward";

    pub fn new(shape: &[usize]) -> Self {
        Self {
            shape: shape.to_vec(),
            axis: shape.len().saturating_sub(1),
            has_gamma: true,
            param_grads: ParamGrads::Both,
        }
    }

    /// Rows and columns.
    fn sizes(&self) -> (usize, usize) {
        let (rows, columns) = self.shape.split_at(self.axis.min(self.shape.len()));
        (rows.iter().product(), columns.iter().product())
    }
}

impl Operator for RmsNormBackward {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn tokens(&self) -> Vec<String> {
        let last = self.axis + 1 == self.shape.len();
        let axis = (!last).then(|| format!("axis_{}", self.axis));
        let param_grads = match self.param_grads {
            ParamGrads::Both => None,
            ParamGrads::Frozen => Some("frozen"),
            ParamGrads::Neither => Some("neither"),
        };
        let gamma = (!self.has_gamma).then_some("no_gamma");
        let others = [param_grads, gamma].into_iter().flatten();
        axis.into_iter().chain(others.map(str::to_owned)).collect()
    }

    fn set(&mut self, token: &str) -> bool {
        let axis = token.strip_prefix("axis_").map(str::parse::<usize>);
        match (token, axis) {
            (_, Some(Ok(axis))) if axis < self.shape.len() => self.axis = axis,
            ("frozen", _) => self.param_grads = ParamGrads::Frozen,
            ("neither", _) => self.param_grads = ParamGrads::Neither,
            ("no_gamma", _) => self.has_gamma = false,
            _ => return false,
        }
        true
    }

    /// As layer norm's, with a variance about 0.
    fn inputs(&self, types: Types, values: Values) -> Vec<Numbers> {
        let (rows, columns) = self.sizes();
        let counts = Counts {
            elements: self.shape.iter().product(),
            groups: rows,
            gamma: self.has_gamma.then_some(columns),
        };
        let mut inputs = gradient_inputs(types, values, counts);
        inputs.retain(|numbers| numbers.tensor != Tensor::Mean);
        for numbers in &mut inputs {
            if numbers.tensor == Tensor::Variance {
                numbers.tensor = Tensor::MeanSquare;
            }
        }
        inputs
    }

    fn expected(
        &self,
        inputs: &[Numbers],
        types: Types,
        values: Values,
    ) -> Result<Vec<Expected>, Error> {
        let alike = values == Values::Alike;
        let ones = vec![1; self.shape.len()];
        let found = reference::RmsNorm {
            shape: if alike { &ones } else { &self.shape },
            begin_norm_axis: self.axis,
            src: of_tensor(inputs, Tensor::Src),
            diff_dst: of_tensor(inputs, Tensor::DiffDst),
            mean_square: of_tensor(inputs, Tensor::MeanSquare),
            gamma: self.has_gamma.then(|| of_tensor(inputs, Tensor::Gamma)),
            epsilon: values.epsilon(),
            param_grads: self.param_grads,
        }
        .backward()?;
        let elements = self.shape.iter().product();
        let params = self.has_gamma.then_some(self.sizes().1);
        let mut expected = gradients(found, types, self.param_grads, elements, params, alike);
        expected.retain(|expected| expected.tensor != Tensor::DiffBeta);
        Ok(expected)
    }

    fn plan(&self, gpu: &GpuContext, types: Types, values: Values) -> Result<Plan, Error> {
        let options = RmsNormOptions {
            begin_norm_axis: i64::try_from(self.axis).unwrap_or(i64::MAX),
            epsilon: values.epsilon(),
            param_grads: self.param_grads,
        };
        let layer = GpuRmsNorm::new(gpu, options)?;
        let plan = layer.plan(&self.shape, (types.data, types.params), self.has_gamma)?;
        Ok(plan.plan)
    }
}
