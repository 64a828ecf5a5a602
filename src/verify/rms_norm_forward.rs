//! RMS norm, forward.
//!
//! Parts of its cases' IDs: that of `rows.rs`; `no_gamma`; `residual`; `no_statistics`.

use super::expected::{Expected, forward};
use super::numbers::Numbers;
use super::numbers::of_tensor;
use super::operator::Operator;
use super::rows::Rows;
use super::values::{ForwardCounts, Values, forward_inputs};
use crate::plan::Plan;
use crate::{
    DTypes, Error, GpuContext, GpuRmsNorm, ParamGrads, RmsNormForwardOperands, RmsNormOptions,
    Tensor, reference,
};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct RmsNormForward {
    rows: Rows,
    has_gamma: bool,
    residual: bool,
    keep_statistics: bool,
}

impl RmsNormForward {
    pub const NAME: &'static str = "rms_norm_forward";

    pub fn new(shape: &[usize]) -> Self {
        Self {
            rows: Rows::new(shape),
            has_gamma: true,
            residual: false,
            keep_statistics: true,
        }
    }
}

impl Operator for RmsNormForward {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn shape(&self) -> &[usize] {
        &self.rows.shape
    }

    fn tokens(&self) -> Vec<String> {
        let gamma = (!self.has_gamma).then_some("no_gamma");
        let residual = self.residual.then_some("residual");
        let statistics = (!self.keep_statistics).then_some("no_statistics");
        let others = [gamma, residual, statistics].into_iter().flatten();
        let others = others.map(str::to_owned);
        self.rows.token().into_iter().chain(others).collect()
    }

    fn set(&mut self, token: &str) -> bool {
        match token {
            "no_gamma" => self.has_gamma = false,
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
        let found = reference::RmsNormForward {
            shape: &values.reference_shape(&self.rows.shape),
            begin_norm_axis: self.rows.axis,
            src: of_tensor(inputs, Tensor::Src),
            residual: self.residual.then(|| of_tensor(inputs, Tensor::Residual)),
            gamma: self.has_gamma.then(|| of_tensor(inputs, Tensor::Gamma)),
            epsilon: values.epsilon(),
        }
        .forward()?;
        let (rows, _) = self.rows.sizes();
        let mut expected = forward(found, types, self.rows.elements(), rows);
        expected.retain(|expected| self.keep_statistics || !expected.tensor.is_statistic());
        Ok(expected)
    }

    fn plan(&self, gpu: &GpuContext, types: DTypes, values: Values) -> Result<Plan, Error> {
        let options = RmsNormOptions {
            begin_norm_axis: self.rows.begin_norm_axis(),
            epsilon: values.epsilon(),
            param_grads: ParamGrads::Both,
        };
        let operands = RmsNormForwardOperands {
            residual: self.residual,
            gamma: self.has_gamma,
            keep_statistics: self.keep_statistics,
        };
        let layer = GpuRmsNorm::new(gpu, options)?;
        let plan = layer.plan_forward(&self.rows.shape, types, operands)?;
        Ok(plan.plan)
    }
}
