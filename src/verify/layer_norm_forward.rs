//! Layer norm, forward.
//!
//! Parts of its cases' IDs: that of `rows.rs`; `no_gamma`, which leaves out beta, too, or `no_beta`; `residual`;
//! `no_statistics`.

use super::expected::{Expected, forward};
use super::numbers::Numbers;
use super::numbers::of_tensor;
use super::operator::Operator;
use super::rows::Rows;
use super::values::{ForwardCounts, Values, forward_inputs};
use crate::plan::Plan;
use crate::{
    DTypes, Error, GpuContext, GpuLayerNorm, LayerNormForwardOperands, LayerNormOptions,
    ParamGrads, Tensor, reference,
};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct LayerNormForward {
    rows: Rows,
    has_gamma: bool,
    has_beta: bool,
    residual: bool,
    keep_statistics: bool,
}

impl LayerNormForward {
    pub const NAME: &'static str = "layer_norm_forward";

    pub fn new(shape: &[usize]) -> Self {
        Self {
            rows: Rows::new(shape),
            has_gamma: true,
            has_beta: true,
            residual: false,
            keep_statistics: true,
        }
    }
}

impl Operator for LayerNormForward {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn shape(&self) -> &[usize] {
        &self.rows.shape
    }

    fn tokens(&self) -> Vec<String> {
        let params = match (self.has_gamma, self.has_beta) {
            (false, _) => Some("no_gamma"),
            (true, false) => Some("no_beta"),
            (true, true) => None,
        };
        let residual = self.residual.then_some("residual");
        let statistics = (!self.keep_statistics).then_some("no_statistics");
        let others = [params, residual, statistics].into_iter().flatten();
        let others = others.map(str::to_owned);
        self.rows.token().into_iter().chain(others).collect()
    }

    fn set(&mut self, token: &str) -> bool {
        match token {
            "no_gamma" => {
                self.has_gamma = false;
                self.has_beta = false;
            }
            "no_beta" => self.has_beta = false,
            "residual" => self.residual = true,
            "no_statistics" => self.keep_statistics = false,
            token => return self.rows.set(token),
        }
        true
    }

    fn inputs(&self, types: DTypes, values: Values) -> Vec<Numbers> {
        let (_, columns) = self.rows.sizes();
        let counts = ForwardCounts {
            residual: self.residual,
            gamma: self.has_gamma.then_some(columns),
            beta: self.has_beta.then_some(columns),
            ..ForwardCounts::of(self.rows.elements())
        };
        forward_inputs(types, values, counts)
    }

    fn expected(
        &self,
        inputs: &[Numbers],
        types: DTypes,
        values: Values,
    ) -> Result<Vec<Expected>, Error> {
        let found = reference::LayerNormForward {
            shape: &values.reference_shape(&self.rows.shape),
            begin_norm_axis: self.rows.axis,
            src: of_tensor(inputs, Tensor::Src),
            residual: self.residual.then(|| of_tensor(inputs, Tensor::Residual)),
            gamma: self.has_gamma.then(|| of_tensor(inputs, Tensor::Gamma)),
            beta: self.has_beta.then(|| of_tensor(inputs, Tensor::Beta)),
            epsilon: values.epsilon(),
        }
        .forward()?;
        let (rows, _) = self.rows.sizes();
        let mut expected = forward(found, types, self.rows.elements(), rows);
        expected.retain(|expected| self.keep_statistics || !expected.tensor.is_statistic());
        Ok(expected)
    }

    fn plan(&self, gpu: &GpuContext, types: DTypes, values: Values) -> Result<Plan, Error> {
        let options = LayerNormOptions {
            begin_norm_axis: self.rows.begin_norm_axis(),
            use_affine: self.has_gamma,
            epsilon: values.epsilon(),
            param_grads: ParamGrads::Both,
        };
        let operands = LayerNormForwardOperands {
            residual: self.residual,
            beta: self.has_beta,
            keep_statistics: self.keep_statistics,
        };
        let layer = GpuLayerNorm::new(gpu, options)?;
        let plan = layer.plan_forward(&self.rows.shape, types, operands)?;
        Ok(plan.plan)
    }
}
