//! An operation: one pass of a layer over tensors of given shapes and types, as a value.
//!
//! Plans, buffers, files and checks all ask it for its tensors.

mod norm;
mod pass;

pub use norm::{Axis, Channels, Norm};
pub use pass::{Backward, Epilogue, Forward, Pass, Residual};

use crate::element::DTypes;
use crate::error::Error;
use crate::geometry;
use crate::options::{Activation, DataFormat, Shards, Through, check_epsilon, check_types};
use crate::tensor::{Access, Format, Need, Ranks, Slot, Tensor, TensorUse};
use std::fmt;
use std::hash::{Hash, Hasher};

/// One pass of a layer over tensors of given shapes and types.
///
/// It is a plain value and can be a key: equal operations compute the same.
///
/// ```
/// use wgpu_norm::{Access, Backward, DType, Forward, Norm, Operation, Tensor};
///
/// let norm = Norm::layer(-1);
/// let forward = Operation::new(norm, Forward::default(), &[64, 768], DType::F32).with_epsilon(1e-6);
/// let backward = forward.gradient()?;
/// assert_eq!(backward.pass, Backward::default().into());
/// let written = backward.tensors()?.into_iter().filter(|used| used.access == Access::Out);
/// let written: Vec<_> = written.map(|used| (used.tensor, used.shape)).collect();
/// assert_eq!(written[0], (Tensor::DiffSrc, vec![64, 768]));
/// assert_eq!(written[1], (Tensor::DiffGamma, vec![768]));
/// # Ok::<(), wgpu_norm::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Operation {
    /// The layer.
    pub norm: Norm,
    /// The pass that is computed.
    pub pass: Pass,
    /// The shape of src, and of all tensors with the same elements.
    pub shape: Vec<usize>,
    /// The element types.
    pub types: DTypes,
    /// Added to the variance, or to the mean of squares. It must be finite, normal and above 0, also as f32 unless the
    /// data are f64.
    pub epsilon: f64,
    /// Whether the layer has gamma; without it gamma is 1.
    pub gamma: bool,
    /// Whether gamma is stored less 1, as Gemma's RMS norm and adaptive norms (1 + scale) store it. A missing gamma is
    /// 1.
    pub zero_centered_gamma: bool,
    /// Whether the layer has beta; without it beta is 0. RMS norm has no beta. A gradient reads beta only if it
    /// recomputes the layer's output, for an activation without a mask or for the gate's gradient.
    pub beta: bool,
    /// Whether the layer's output is multiplied by a gate, of gamma's shape, before a residual is added. Only axes norm
    /// has one, and no activation follows it.
    pub gate: bool,
    /// The residual and the activation of the forward pass.
    pub epilogue: Epilogue,
}

impl PartialEq for Operation {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Operation {}

impl Hash for Operation {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// The most parts of a batch: an invocation merges their statistics one after another.
const MOST_SHARDS: u32 = 4096;

impl Operation {
    /// A pass of a layer over src of this shape, with gamma and beta (RMS norm: with gamma), epsilon 1e-5, no residual
    /// and no activation.
    pub fn new(
        norm: Norm,
        pass: impl Into<Pass>,
        shape: &[usize],
        types: impl Into<DTypes>,
    ) -> Self {
        Self {
            beta: norm.has_beta(),
            norm,
            pass: pass.into(),
            shape: shape.to_vec(),
            types: types.into(),
            epsilon: 1e-5,
            gamma: true,
            zero_centered_gamma: false,
            gate: false,
            epilogue: Epilogue::default(),
        }
    }

    /// This operation with another epsilon.
    #[must_use]
    pub fn with_epsilon(self, epsilon: f64) -> Self {
        Self { epsilon, ..self }
    }

    /// This operation with or without gamma and beta.
    #[must_use]
    pub fn with_params(self, gamma: bool, beta: bool) -> Self {
        Self {
            gamma,
            beta,
            ..self
        }
    }

    /// This gradient without those of the parameters, as for a frozen layer; another pass as it is.
    #[must_use]
    pub fn without_param_grads(mut self) -> Self {
        if let Pass::Backward(backward) = &mut self.pass {
            backward.param_grads = false;
        }
        self
    }

    /// This operation with a gamma that is stored less 1, or not.
    #[must_use]
    pub fn with_zero_centered_gamma(self, zero_centered_gamma: bool) -> Self {
        Self {
            zero_centered_gamma,
            ..self
        }
    }

    /// This operation with or without a gate.
    #[must_use]
    pub fn with_gate(self, gate: bool) -> Self {
        Self { gate, ..self }
    }

    /// This operation with a residual and an activation.
    #[must_use]
    pub fn with_epilogue(self, epilogue: Epilogue) -> Self {
        Self { epilogue, ..self }
    }

    /// The name of its layer and pass, for example `batch_norm_backward`.
    pub fn name(&self) -> String {
        format!("{}_{}", self.norm.name(), self.pass.name())
    }

    /// The axes of src, in storage order.
    ///
    /// | | statistics reduce | parameters vary along |
    /// |---|---|---|
    /// | batch norm | N, X | C |
    /// | instance norm | X | C |
    /// | group norm | C/G, X | G, C/G |
    /// | layer, RMS norm | trailing axes | the same |
    /// | axes norm | any | any |
    ///
    /// ```
    /// use wgpu_norm::{DType, DataFormat, Forward, Norm, Operation};
    /// let norm = Norm::group(2, DataFormat::Ncx);
    /// let axes = Operation::new(norm, Forward::default(), &[5, 6, 7], DType::F32).axes();
    /// let sizes: Vec<_> = axes.iter().map(|axis| (axis.size, axis.reduced, axis.parameter)).collect();
    /// assert_eq!(sizes, [(5, false, false), (2, false, true), (3, true, true), (7, true, false)]);
    /// ```
    pub fn axes(&self) -> Vec<Axis> {
        self.norm.axes_of(&self.shape)
    }

    /// All that defines it, comparable to the bit.
    fn key(&self) -> impl Hash + PartialEq + '_ {
        (
            (&self.norm, self.pass, &self.shape, self.types),
            self.epsilon.to_bits(),
            (
                self.gamma,
                self.zero_centered_gamma,
                self.beta,
                self.gate,
                self.epilogue,
            ),
        )
    }

    /// The tensors that a pass of a layer may have, in the order of [`tensors`](Self::tensors), for any shape and
    /// types.
    #[doc(hidden)]
    pub fn slots(norm: &Norm, pass: &Pass) -> Vec<Slot> {
        use Access::{In, InOut, Out};
        use Need::{Always, Given, Options};
        let rows = norm.is_over_rows();
        let has_beta = norm.has_beta();
        let has_gate = norm.has_gate();
        let mut slots = Vec::with_capacity(12);
        let mut add = |there: bool, tensors: &[Tensor], access, need| {
            let slot = |&tensor: &Tensor| Slot {
                tensor,
                access,
                need,
            };
            slots.extend(tensors.iter().filter(|_| there).map(slot));
        };
        let statistics = norm.statistics();
        add(true, &[Tensor::Src], In, Always);
        match pass {
            Pass::Backward(_) => {
                add(true, &[Tensor::DiffDst], In, Always);
                add(!rows, &[Tensor::Mask], In, Options);
                add(true, statistics, In, Always);
                add(true, &[Tensor::Gamma], In, Given);
                add(has_beta, &[Tensor::Beta], In, Options);
                add(has_gate, &[Tensor::Gate], In, Given);
                add(true, &[Tensor::DiffSrc], Out, Always);
                add(!rows, &[Tensor::DiffResidual], Out, Options);
                add(true, &[Tensor::DiffGamma], Out, Options);
                add(has_beta, &[Tensor::DiffBeta], Out, Options);
                add(has_gate, &[Tensor::DiffGate], Out, Options);
            }
            Pass::Forward(_) | Pass::Inference => {
                let is_given = matches!(pass, Pass::Inference);
                let is_batch = matches!(norm, Norm::Batch(_));
                let running = [Tensor::RunningMean, Tensor::RunningVariance];
                add(true, &[Tensor::Residual], In, Given);
                add(is_given, statistics, In, Always);
                add(true, &[Tensor::Gamma], In, Given);
                add(has_beta, &[Tensor::Beta], In, Given);
                add(has_gate, &[Tensor::Gate], In, Given);
                add(is_batch && !is_given, &running, InOut, Options);
                add(true, &[Tensor::Dst], Out, Always);
                add(rows, &[Tensor::Sum], Out, Options);
                add(!rows && !is_given, &[Tensor::Mask], Out, Options);
                let kept = if rows { Options } else { Always };
                add(!is_given, statistics, Out, kept);
            }
        }
        slots
    }

    /// Whether it has the tensor of a slot.
    fn has(&self, slot: &Slot) -> bool {
        let is_written = slot.access == Access::Out;
        match (slot.tensor, &self.pass) {
            (Tensor::Residual, _) => self.epilogue.residual != Residual::None,
            (Tensor::Sum, _) => self.epilogue.residual == Residual::Before,
            (Tensor::Mask | Tensor::DiffResidual, _) => self.epilogue.is_masked(),
            (Tensor::Gamma, _) => self.gamma,
            (Tensor::Beta, Pass::Backward(backward)) => {
                let for_gate = self.gate && backward.param_grads;
                self.beta && (self.epilogue.is_recomputed() || for_gate)
            }
            (Tensor::Beta, _) => self.beta,
            (Tensor::Gate, _) => self.gate,
            (Tensor::DiffGate, Pass::Backward(backward)) => self.gate && backward.param_grads,
            (Tensor::RunningMean | Tensor::RunningVariance, Pass::Forward(forward)) => {
                forward.running.is_some()
            }
            (Tensor::DiffGamma | Tensor::DiffBeta, Pass::Backward(backward)) => {
                let of_given = self.norm.is_over_rows() || matches!(self.norm, Norm::Axes { .. });
                let computed = self.gamma || self.beta || !of_given;
                computed && backward.param_grads
            }
            (tensor, Pass::Forward(forward)) if is_written && tensor.is_statistic() => {
                forward.keep_statistics
            }
            _ => true,
        }
    }

    /// The tensors that it reads and writes, which do not depend on the adapter.
    ///
    /// # Errors
    ///
    /// Errors in shape, types or options, whatever the adapter. One element of a channel is no error, even where the
    /// unbiased variance updates running statistics: the other elements may be on other ranks.
    pub fn tensors(&self) -> Result<Vec<TensorUse>, Error> {
        self.check()?;
        Ok(self.bound().iter().map(|slot| self.used(slot)).collect())
    }

    /// The slots of the tensors that it has.
    pub(crate) fn bound(&self) -> Vec<Slot> {
        let mut slots = Self::slots(&self.norm, &self.pass);
        slots.retain(|slot| self.has(slot));
        slots
    }

    /// Whether there are any sets of elements that are normalized together.
    pub(crate) fn has_statistics(&self) -> Result<bool, Error> {
        self.check()?;
        Ok(!self.norm.statistics_shape(&self.shape).contains(&0))
    }

    /// Whether this tensor is one of its own.
    pub(crate) fn has_tensor(&self, tensor: Tensor) -> bool {
        self.bound().iter().any(|slot| slot.tensor == tensor)
    }

    fn used(&self, slot: &Slot) -> TensorUse {
        let Slot { tensor, access, .. } = *slot;
        let types = self.types;
        let (shape, dtype, ranks) = if tensor.is_param() {
            let ranks = match access {
                _ if self.norm.has_params_of_samples(&self.shape) => Ranks::Split,
                Access::In => Ranks::Same,
                _ => Ranks::Added,
            };
            (self.norm.params_shape(&self.shape), types.params, ranks)
        } else if tensor.is_statistic() {
            let ranks = match access {
                _ if self.norm.is_of_samples(&self.shape) => Ranks::Split,
                Access::In => Ranks::Same,
                _ => Ranks::Merged,
            };
            let shape = self.norm.statistics_shape(&self.shape);
            (shape, types.statistics, ranks)
        } else {
            (self.shape.clone(), types.data, Ranks::Split)
        };
        TensorUse {
            tensor,
            access,
            format: match tensor {
                Tensor::Mask => Format::Bits,
                _ => Format::Elements(dtype),
            },
            shape,
            ranks,
        }
    }

    /// The gradient that belongs to this forward pass, with those of the parameters: through the batch's statistics, or
    /// with constant statistics after inference. If a residual is added before the layer, the gradient's src is the
    /// forward pass's sum.
    ///
    /// # Errors
    ///
    /// Errors in this operation; [`Error::Argument`] if it is itself a gradient, does not keep its statistics, or is
    /// inference of a layer other than batch norm.
    pub fn gradient(&self) -> Result<Self, Error> {
        self.check()?;
        let through = match &self.pass {
            Pass::Forward(forward) if forward.keep_statistics => Through::Batch,
            Pass::Forward(_) => {
                let expected = "true, because a gradient needs the statistics";
                return Err(Error::argument("keep_statistics", expected, false));
            }
            Pass::Inference => Through::Constant,
            Pass::Backward(_) => {
                return Err(Error::argument("pass", "a forward pass", "a gradient"));
            }
        };
        let backward = Backward::default().with_through(through);
        let gradient = Self {
            pass: backward.into(),
            epilogue: Epilogue {
                residual: if self.epilogue.is_masked() {
                    Residual::After
                } else {
                    Residual::None
                },
                ..self.epilogue
            },
            ..self.clone()
        };
        gradient.check()?;
        Ok(gradient)
    }

    /// An error if this operation is invalid on any adapter.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.norm.check(&self.shape)?;
        check_types(self.types)?;
        check_epsilon(self.epsilon, self.types.data)?;
        self.check_params()?;
        self.check_epilogue()?;
        match &self.pass {
            Pass::Forward(forward) => self.check_forward(forward),
            Pass::Inference if self.norm.is_over_rows() => Err(Error::argument(
                "pass",
                "forward, because layer and RMS norm use the statistics of src in inference too",
                self.pass.name(),
            )),
            Pass::Inference => Ok(()),
            Pass::Backward(backward) => match (&self.norm, backward.through) {
                (Norm::Batch(_), _) | (_, Through::Batch) => Ok(()),
                _ => Err(Error::argument(
                    "statistics",
                    "those of src, because only batch norm supports constant ones",
                    "constants",
                )),
            },
        }
    }

    fn check_params(&self) -> Result<(), Error> {
        self.check_gate()?;
        if self.beta && !self.norm.has_beta() {
            let expected = "none, because RMS norm has no beta";
            return Err(Error::argument(Tensor::Beta.name(), expected, "one"));
        }
        Ok(())
    }

    /// An error if beta, on which perhaps no result depends, does not have this many elements.
    pub(crate) fn check_param(&self, param: Tensor, elements: usize) -> Result<(), Error> {
        self.check()?;
        let shape = self.norm.params_shape(&self.shape);
        let expected = shape.iter().map(|&size| size as u64).product();
        geometry::check_length(param.name(), expected, elements)
            .map_err(|error| self.explained(error, param))
    }

    /// An error in the number of a parameter's or statistic's elements, with the axis or the sizes that they belong to,
    /// and the other layout if that fits.
    pub(crate) fn explained(&self, mut error: Error, own: Tensor) -> Error {
        let Error::Length {
            got, place, hint, ..
        } = &mut error
        else {
            return error;
        };
        let of_channels = own.is_param() || matches!(self.norm, Norm::Batch(_));
        let shape = &self.shape;
        match self.norm.format() {
            _ if !own.is_param() && !own.is_statistic() => {}
            Some(format) if of_channels => {
                let (other, which) = match format {
                    DataFormat::Nxc => (DataFormat::Ncx, "is PyTorch's layout"),
                    DataFormat::Ncx => (DataFormat::Nxc, "has the channels last"),
                };
                let [axis, other_axis] = [format, other].map(|format| format.axis(shape.len()));
                *place = format!(" (axis {axis} of {shape:?} in {format:?})");
                if shape.get(other_axis) == Some(got) {
                    *hint = format!(", the size of axis {other_axis}: {other:?} {which}");
                }
            }
            _ => {
                let own = if own.is_param() {
                    self.norm.params_shape(shape)
                } else {
                    self.norm.statistics_shape(shape)
                };
                *place = format!(" (shape {own:?} for data of {shape:?})");
            }
        }
        error
    }

    fn check_gate(&self) -> Result<(), Error> {
        let expected = match self.gate {
            true if !self.norm.has_gate() => "none, because only axes norm has a gate",
            true if self.epilogue.activation != Activation::None => {
                "none before an activation, or no activation"
            }
            _ => return Ok(()),
        };
        Err(Error::argument(Tensor::Gate.name(), expected, "one"))
    }

    fn check_epilogue(&self) -> Result<(), Error> {
        let Epilogue {
            residual,
            activation,
        } = self.epilogue;
        let is_gradient = matches!(self.pass, Pass::Backward(_));
        let misplaced = |expected| Err(Error::argument("residual", expected, "one"));
        match (residual, self.norm.is_over_rows()) {
            (Residual::Before, false) => misplaced("none before this layer (only after it)"),
            (Residual::After, true) => misplaced("none after this layer (only before it)"),
            (Residual::Before, true) if is_gradient => {
                misplaced("none in a gradient, whose src is the forward pass's sum")
            }
            (Residual::After, false) if is_gradient && activation == Activation::None => {
                misplaced("none without an activation: diff_dst is its gradient")
            }
            _ => activation.check(self.types.data, residual == Residual::After),
        }
    }

    fn check_forward(&self, forward: &Forward) -> Result<(), Error> {
        let Forward {
            keep_statistics,
            running,
            shards,
        } = *forward;
        let is_batch = matches!(self.norm, Norm::Batch(_));
        if !keep_statistics && !self.norm.is_over_rows() {
            let expected = "true, because only layer and RMS norm can leave the statistics out";
            return Err(Error::argument(
                "keep_statistics",
                expected,
                keep_statistics,
            ));
        }
        if running.is_some() && !is_batch {
            return Err(Error::argument(
                "running",
                "none except for batch norm",
                "one",
            ));
        }
        if let Some(update) = running {
            update.check()?;
        }
        if shards != Shards::default() && !is_batch {
            return Err(Error::argument(
                "shards",
                "one part except for batch norm",
                shards.count,
            ));
        }
        if shards.index >= shards.count || shards.count > MOST_SHARDS {
            return Err(Error::argument(
                "shards",
                format!("an index below the count, and a count of at most {MOST_SHARDS}"),
                format_args!("{} of {}", shards.index, shards.count),
            ));
        }
        Ok(())
    }

    /// An error if this is a whole batch, not a part, whose channels have too few elements for their running variance.
    pub(crate) fn check_batch(&self) -> Result<(), Error> {
        let Pass::Forward(Forward {
            running: Some(update),
            shards: Shards { count: 1, .. },
            ..
        }) = &self.pass
        else {
            return Ok(());
        };
        update.check_count(self.elements_of_a_channel())
    }

    /// The number of elements of a channel of batch norm; 0 if there are no channels.
    pub(crate) fn elements_of_a_channel(&self) -> u64 {
        let product = |sizes: &[usize]| sizes.iter().map(|&size| size as u64).product::<u64>();
        let channels = product(&self.norm.params_shape(&self.shape));
        product(&self.shape).checked_div(channels).unwrap_or(0)
    }
}

/// For logs: `layer_norm_forward of f32 [64, 768]`, and what is unusual: `over [2] along [0, 2], gate, silu`.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} {:?}", self.name(), self.types.data, self.shape)?;
        if let Norm::Axes {
            axes, param_axes, ..
        } = &self.norm
        {
            write!(f, " over {axes:?} along {param_axes:?}")?;
        }
        let Epilogue {
            residual,
            activation,
        } = self.epilogue;
        for (is, word) in [
            (!self.gamma, "no gamma"),
            (self.zero_centered_gamma, "zero-centered gamma"),
            (self.gate, "gate"),
            (residual == Residual::Before, "residual before"),
            (residual == Residual::After, "residual after"),
            (activation != Activation::None, activation.name()),
        ] {
            if is {
                write!(f, ", {word}")?;
            }
        }
        Ok(())
    }
}
