//! What follows from sums: results, and the records that the elementwise pass needs.

use super::dispatch::Requirement;
use super::problem::{Family, Problem};
use super::sizes::word;
use super::tensors::Tensors;
use super::workspace::Region;
use crate::kernels::{Body, Scalars};
use crate::options::Shards;

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

    /// All operands, as one dispatch binds them.
    pub fn all_operands(&self) -> Vec<Requirement> {
        let mut operands = Vec::with_capacity(8);
        for operand in self.operands.iter().flatten() {
            if !operands.contains(operand) {
                operands.push(*operand);
            }
        }
        operands
    }

    /// What follows from the sums of what shares statistics.
    pub fn of_statistics(problem: &Problem, tensors: &Tensors) -> Self {
        match (problem.family, problem.body.is_gradient()) {
            (Family::Channels, false) => Self {
                operands: vec![
                    tensors.params.clone(),
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

/// The results, each with the parameters that its kernel reads; without any, all in a line.
fn result_operands(tensors: &Tensors) -> Vec<Vec<Requirement>> {
    let params = || tensors.params.iter().chain(&tensors.params_of_results);
    let line = |result: &Requirement| -> Vec<_> {
        let reads = Body::read_for(result.tensor);
        let read = params().filter(|param| reads.contains(&param.tensor));
        read.chain([result]).copied().collect()
    };
    let lines: Vec<_> = tensors.results.iter().map(line).collect();
    if lines.iter().all(|line| line.len() == 1) {
        return vec![tensors.results.clone()];
    }
    lines
}
