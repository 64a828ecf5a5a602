//! A problem to plan: an operation as the axes of src, each with two flags, and what is computed over them.

use super::axes::{Axes, Groups};
use super::dispatch::Requirement;
use super::sizes::word;
use super::tensors::{Tensors, mask};
use crate::element::DTypes;
use crate::kernels::{Body, Epilogue, Scalars};
use crate::operation::{Forward, Norm, Operation, Pass, Residual};
use crate::options::{RunningUpdate, RunningVariance, Shards, Through};
use crate::tensor::{Access, Slot, Tensor};

/// The things that have statistics of their own, which decide the list of algorithms. They follow from the norm; only
/// for axes norm from the axes: rows, columns, or else groups. With a mask, axes norm is always groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Channels,
    Groups,
    Rows,
    Columns,
}

impl Family {
    /// The operators of the family, for errors.
    pub fn operators(self) -> &'static str {
        match self {
            Self::Channels => "batch norm",
            Self::Groups => "norms over groups of channels",
            Self::Rows => "norms over rows",
            Self::Columns => "norms over columns",
        }
    }
}

/// An operation as plans see it.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub family: Family,
    pub axes: Axes,
    /// The axes as those of channels that share statistics in groups.
    pub groups: Groups,
    pub body: Body,
    pub epilogue: Epilogue,
    pub types: DTypes,
    pub epsilon: f64,
    /// How a gradient treats statistics.
    pub through: Through,
    /// How running statistics take in the batch's, if there are any.
    pub running: Option<RunningUpdate>,
    /// The shards of a batch that is spread over several devices.
    pub shards: Shards,
    /// The operation's tensors.
    slots: Vec<Slot>,
}

impl Problem {
    /// The problem of a checked operation.
    pub fn new(operation: &Operation) -> Self {
        let (forward, through) = match operation.pass {
            Pass::Forward(forward) => (forward, Through::Batch),
            Pass::Inference => (Forward::default(), Through::Batch),
            Pass::Backward(backward) => (Forward::default(), backward.through),
        };
        let epilogue = operation.epilogue;
        let axes = Axes::new(operation);
        let body = Body::of(&operation.norm, operation.pass);
        let as_rows = match operation.norm {
            Norm::Axes { centered, .. } if !epilogue.is_masked() => {
                Some(Body::over_rows(centered, operation.pass))
            }
            _ => None,
        };
        let are_rows = axes.are_rows() || axes.rows_of_a_sample().is_some();
        let (family, body) = match (as_rows, axes.by_column()) {
            (Some(of_rows), _) if are_rows => (Family::Rows, of_rows),
            (Some(of_rows), Some(_)) => (Family::Columns, of_rows),
            _ if operation.norm.is_over_rows() => (Family::Rows, body),
            _ if matches!(operation.norm, Norm::Batch(_)) => (Family::Channels, body),
            _ => (Family::Groups, body),
        };
        Self {
            family,
            groups: axes.groups(),
            axes,
            body,
            epilogue: Epilogue {
                activation: epilogue.activation,
                residual: epilogue.residual == Residual::After,
                zero_centered_gamma: operation.gamma && operation.zero_centered_gamma,
                gated: operation.gate,
            },
            types: operation.types,
            epsilon: operation.epsilon,
            through,
            running: forward.running,
            shards: forward.shards,
            slots: operation.bound(),
        }
    }

    /// The number of samples or rows that can be planned some at a time: those of norms over columns are cut otherwise.
    pub fn separate_lines(&self) -> u64 {
        match self.family {
            Family::Rows | Family::Groups => self.axes.separate_lines(),
            Family::Channels | Family::Columns => 1,
        }
    }

    /// The same problem for `lines` of these.
    pub fn of_lines(&self, lines: u64) -> Self {
        let axes = self.axes.of_lines(lines);
        Self {
            groups: axes.groups(),
            axes,
            ..self.clone()
        }
    }

    /// Whether statistics are given to a forward pass.
    pub fn is_inference(&self) -> bool {
        self.body.is_inference()
    }

    /// Whether it may be recorded in two halves, with the sums between them.
    pub fn has_halves(&self) -> bool {
        self.family == Family::Channels && !self.is_inference()
    }

    /// Whether its statistics are constants, through which the gradient does not flow.
    pub fn by_constants(&self) -> bool {
        self.through == Through::Constant
    }

    /// The tensors that it reads and writes.
    pub fn tensors(&self) -> Tensors {
        let of = |tensor: Tensor| {
            let (dtype, elements) = match tensor {
                Tensor::Mask => return mask(self.axes.elements()),
                param if param.is_param() => (self.types.params, self.axes.parameters()),
                own if own.is_statistic() => (self.types.statistics, self.axes.statistics()),
                _ => (self.types.data, self.axes.elements()),
            };
            Requirement::new(tensor, dtype, elements)
        };
        let there = |tensor: Tensor| {
            let mut slots = self.slots.iter();
            slots.any(|slot| slot.tensor == tensor).then(|| of(tensor))
        };
        let all = |access, is_one: fn(Tensor) -> bool| {
            let slots = self.slots.iter();
            let slots = slots.filter(|slot| slot.access == access && is_one(slot.tensor));
            slots.map(|slot| of(slot.tensor)).collect::<Vec<_>>()
        };
        let of_body = |tensors: &[Tensor]| tensors.iter().filter_map(|&t| there(t)).collect();
        let is_used = |param: &Requirement| self.epilogue.uses(param.tensor, self.body);
        let (params, params_of_results) = all(Access::In, Tensor::is_param)
            .into_iter()
            .partition(is_used);
        Tensors {
            src: of(Tensor::Src),
            inputs: of_body(self.body.inputs()),
            residual_after: self.epilogue.residual,
            mask: there(Tensor::Mask),
            statistics: of_body(self.body.statistics()),
            params,
            params_of_results,
            running: all(Access::InOut, |_| true),
            outputs: of_body(self.body.outputs()),
            results: all(Access::Out, |one| one.is_param() || one.is_statistic()),
            sums: self.has_halves().then(|| {
                let elements = sums_elements(self.body, self.axes.parameters(), self.shards);
                Requirement::new(Tensor::Sums, self.types.data.accumulator(), elements)
            }),
        }
    }

    /// The numbers that kernels need besides the tensors.
    pub fn scalars(&self) -> Scalars {
        let unbiased = |update: RunningUpdate| update.variance == RunningVariance::Unbiased;
        Scalars {
            epsilon: self.epsilon,
            running_weight: self.running.map_or(0.0, |update| update.weight),
            running_correction: f64::from(u8::from(self.running.is_some_and(unbiased))),
            inverse_count: 1.0 / f64::from(word(self.axes.count()).max(1)),
        }
    }

    /// Whether sums are taken: not where statistics are given, or are constants and no parameter's gradient is wanted.
    pub fn has_sums(&self, tensors: &Tensors) -> bool {
        !self.is_inference() && (!self.by_constants() || tensors.param_grads())
    }

    /// Whether diff_src does not need the sums that are taken.
    pub fn needs_no_sums(&self, tensors: &Tensors) -> bool {
        self.by_constants() && tensors.param_grads()
    }

    /// Whether a gradient has means of sums.
    pub fn has_means(&self) -> bool {
        self.body.is_gradient() && !self.by_constants()
    }

    /// Why no kernel can do it in one dispatch, if none can.
    pub fn not_fusible(&self) -> Option<&'static str> {
        match self.body.is_gradient() {
            true if self.by_constants() => Some("mean and variance are constants"),
            false if self.is_inference() => Some("statistics are given"),
            false if self.epilogue.residual => Some("a residual is added"),
            _ => None,
        }
    }
}

/// Elements of the buffer `sums`: two sums of each channel, then the number of their elements; or a record of each
/// channel and each shard.
pub(super) fn sums_elements(body: Body, channels: u64, shards: Shards) -> u64 {
    if body.pairs() {
        2 * channels + 1
    } else {
        4 * channels * u64::from(shards.count)
    }
}
