//! The gradient of RMS norm.
//!
//! Parts of its cases' IDs: that of `rows.rs`; `frozen` or `neither`; `no_gamma`.

use super::expected::{Expected, gradients};
use super::numbers::Numbers;
use super::numbers::of_tensor;
use super::operator::Operator;
use super::rows::Rows;
use super::values::{Counts, Values, gradient_inputs};
use crate::plan::Plan;
use crate::{DTypes, Error, GpuContext, GpuRmsNorm, ParamGrads, RmsNormOptions, Tensor, reference};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct RmsNormBackward {
    rows: Rows,
    has_gamma: bool,
    param_grads: ParamGrads,
}

impl RmsNormBackward {
    pub const NAME: &'static str = "rms_norm_backward";

    pub fn new(shape: &[usize]) -> Self {
        Self {
            rows: Rows::new(shape),
            has_gamma: true,
            param_grads: ParamGrads::Both,
        }
    }
}

impl Operator for RmsNormBackward {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn shape(&self) -> &[usize] {
        &self.rows.shape
    }

    fn tokens(&self) -> Vec<String> {
        let param_grads = match self.param_grads {
            ParamGrads::Both => None,
            ParamGrads::Frozen => Some("frozen"),
            ParamGrads::Neither => Some("neither"),
        };
        let gamma = (!self.has_gamma).then_some("no_gamma");
        let others = [param_grads, gamma].into_iter().flatten();
        let others = others.map(str::to_owned);
        self.rows.token().into_iter().chain(others).collect()
    }

    fn set(&mut self, token: &str) -> bool {
        match token {
            "frozen" => self.param_grads = ParamGrads::Frozen,
            "neither" => self.param_grads = ParamGrads::Neither,
            "no_gamma" => self.has_gamma = false,
            token => return self.rows.set(token),
        }
        true
    }

    /// As layer norm's, with a variance about 0.
    fn inputs(&self, types: DTypes, values: Values) -> Vec<Numbers> {
        let (rows, columns) = self.rows.sizes();
        let counts = Counts {
            elements: self.rows.elements(),
            groups: rows,
            gamma: self.has_gamma.then_some(columns),
            beta: None,
            mask: false,
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
        types: DTypes,
        values: Values,
    ) -> Result<Vec<Expected>, Error> {
        let alike = values == Values::Alike;
        let found = reference::RmsNorm {
            shape: &values.reference_shape(&self.rows.shape),
            begin_norm_axis: self.rows.axis,
            src: of_tensor(inputs, Tensor::Src),
            diff_dst: of_tensor(inputs, Tensor::DiffDst),
            mean_square: of_tensor(inputs, Tensor::MeanSquare),
            gamma: self.has_gamma.then(|| of_tensor(inputs, Tensor::Gamma)),
            epsilon: values.epsilon(),
            param_grads: self.param_grads,
        }
        .backward()?;
        let elements = self.rows.elements();
        let params = self.has_gamma.then_some(self.rows.sizes().1);
        let mut expected = gradients(found, types, self.param_grads, elements, params, alike);
        expected.retain(|expected| expected.tensor != Tensor::DiffBeta);
        Ok(expected)
    }

    fn plan(&self, gpu: &GpuContext, types: DTypes, values: Values) -> Result<Plan, Error> {
        let options = RmsNormOptions {
            begin_norm_axis: self.rows.begin_norm_axis(),
            epsilon: values.epsilon(),
            param_grads: self.param_grads,
        };
        let layer = GpuRmsNorm::new(gpu, options)?;
        let plan = layer.plan_backward(&self.rows.shape, types, self.has_gamma)?;
        Ok(plan.plan)
    }
}
