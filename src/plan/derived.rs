//! What follows from sums: results, and the records that the elementwise pass needs.

use super::dispatch::Requirement;
use super::problem::{Family, Problem};
use super::sizes::word;
use super::tensors::Tensors;
use super::workspace::Region;
use crate::kernels::Scalars;
use crate::{Shards, Tensor};

/// The results that follow from sums of channels of `count` elements.
pub(crate) struct Derived {
    pub count: u64,
    /// The tensors that are read for them, and those that are written. Each line is bound together.
    pub operands: Vec<Vec<Requirement>>,
    /// The region of the records that the elementwise pass needs: means of a gradient's sums, or else what follows from
    /// a forward pass's. The first line is read for them.
    pub means: Option<Region>,
    pub scalars: Scalars,
    pub shards: Shards,
}

impl Derived {
    /// Plain means of sums of `count` elements, and no results.
    pub fn of(count: u64) -> Self {
        Self {
            count,
            operands: Vec::new(),
            means: None,
            scalars: Scalars {
                epsilon: 0.0,
                inverse_count: 1.0 / f64::from(word(count).max(1)),
                running_weight: 0.0,
                running_correction: 0.0,
            },
            shards: Shards::default(),
        }
    }

    /// What follows from the sums of what shares statistics.
    pub fn of_statistics(problem: &Problem, tensors: &Tensors) -> Self {
        match (problem.family, problem.body.is_gradient()) {
            (Family::Channels, false) => Self {
                operands: vec![
                    tensors.params().copied().collect(),
                    tensors.results.clone(),
                    tensors.running.clone(),
                ],
                shards: problem.shards,
                ..Self::of_results(problem, tensors)
            },
            (Family::Channels, true) | (_, false) => Self::of_results(problem, tensors),
            (_, true) => Self::of(problem.axes.count()),
        }
    }

    /// The results of each channel, group, row or column.
    pub fn of_results(problem: &Problem, tensors: &Tensors) -> Self {
        let operands = result_operands(tensors);
        if problem.family == Family::Rows && problem.body.is_gradient() {
            return Self {
                operands,
                ..Self::of(problem.axes.lines())
            };
        }
        Self {
            operands,
            scalars: problem.scalars(),
            ..Self::of(problem.axes.count())
        }
    }
}

/// The results, with the parameters that they follow from: a line for each gradient where there is a gate.
fn result_operands(tensors: &Tensors) -> Vec<Vec<Requirement>> {
    let Some(gate) = tensors.gate.filter(|_| tensors.param_grads()) else {
        return vec![tensors.results.clone()];
    };
    let of_gate = tensors.gamma.into_iter().chain(tensors.beta);
    let line = |result: &Requirement| match result.tensor {
        Tensor::DiffGate => of_gate.clone().chain([*result]).collect(),
        _ => vec![gate, *result],
    };
    tensors.results.iter().map(line).collect()
}
