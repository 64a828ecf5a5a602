//! The gradient of layer norm.
//!
//! Parts of its cases' IDs: that of `rows.rs`; `frozen` or `neither`; `no_gamma`.

use super::expected::{Expected, gradients};
use super::numbers::Numbers;
use super::numbers::of_tensor;
use super::operator::Operator;
use super::rows::Rows;
use super::values::{Counts, Values, gradient_inputs};
use crate::plan::Plan;
use crate::{
    DTypes, Error, GpuContext, GpuLayerNorm, LayerNormOptions, ParamGrads, Tensor, reference,
};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct LayerNormBackward {
    rows: Rows,
    has_gamma: bool,
    param_grads: ParamGrads,
}

impl LayerNormBackward {
    pub const NAME: &'static str = "layer_norm_backward";

    pub fn new(shape: &[usize]) -> Self {
        Self {
            rows: Rows::new(shape),
            has_gamma: true,
            param_grads: ParamGrads::Both,
        }
    }
}

impl Operator for LayerNormBackward {
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

    fn inputs(&self, types: DTypes, values: Values) -> Vec<Numbers> {
        let (rows, columns) = self.rows.sizes();
        let counts = Counts {
            elements: self.rows.elements(),
            groups: rows,
            gamma: self.has_gamma.then_some(columns),
            beta: None,
            mask: false,
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
        let found = reference::LayerNorm {
            shape: &values.reference_shape(&self.rows.shape),
            begin_norm_axis: self.rows.axis,
            src: of_tensor(inputs, Tensor::Src),
            diff_dst: of_tensor(inputs, Tensor::DiffDst),
            mean: of_tensor(inputs, Tensor::Mean),
            variance: of_tensor(inputs, Tensor::Variance),
            gamma: self.has_gamma.then(|| of_tensor(inputs, Tensor::Gamma)),
            epsilon: values.epsilon(),
            param_grads: self.param_grads,
        }
        .backward()?;
        let elements = self.rows.elements();
        let params = self.has_gamma.then_some(self.rows.sizes().1);
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
        let options = LayerNormOptions {
            begin_norm_axis: self.rows.begin_norm_axis(),
            use_affine: self.has_gamma,
            epsilon: values.epsilon(),
            param_grads: self.param_grads,
        };
        let layer = GpuLayerNorm::new(gpu, options)?;
        let plan = layer.plan_backward(&self.rows.shape, types)?;
        Ok(plan.plan)
    }
}
