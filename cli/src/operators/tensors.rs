//! The tensors in the file: which of them an operation reads, and whether they fit together.

use super::attributes_of;
use crate::attributes::{Choice as _, Format};
use crate::failure::Failure;
use crate::input::{Input, Stored};
use crate::job::Job;
use crate::numbers;
use crate::output::Described;
use std::ops::Range;
use wgpu_norm::support::Need;
use wgpu_norm::{
    Activation, Axis, Channels, DType, DTypes, DataFormat, Error, Norm, Operation, Pass, Tensor,
    TensorUse,
};

/// The file's tensors, src first.
pub struct Arguments(Vec<Stored>);

/// The role of a tensor, which decides its shape and element type.
#[derive(PartialEq)]
enum Kind {
    Data,
    Params,
    Statistics,
    Mask,
}

fn kind(tensor: Tensor) -> Kind {
    match tensor {
        Tensor::Src | Tensor::DiffDst | Tensor::Residual => Kind::Data,
        Tensor::Gamma | Tensor::Beta | Tensor::Gate => Kind::Params,
        Tensor::Mask => Kind::Mask,
        _ => Kind::Statistics,
    }
}

impl Arguments {
    /// Finds the tensors that a layer's pass with these attributes reads; fails if a required one is missing.
    pub fn find(
        job: &Job,
        norm: &Norm,
        pass: &Pass,
        activation: Activation,
        use_affine: Option<bool>,
    ) -> Result<Self, Failure> {
        let input = &job.input;
        let mut found = Self(vec![]);
        let slots = Operation::slots(norm, pass).into_iter();
        for slot in slots.filter(|slot| slot.access.reads()) {
            let tensor = slot.tensor;
            found.0.extend(match tensor {
                _ if slot.need == Need::Always => Some(input.tensor(tensor, "")?),
                Tensor::Gamma | Tensor::Beta if use_affine == Some(false) => None,
                Tensor::Gamma if use_affine == Some(true) && !input.contains(Tensor::Beta) => {
                    Some(input.tensor(tensor, " (use_affine is true)")?)
                }
                Tensor::Mask => find_mask(input, activation)?,
                Tensor::Beta if matches!(pass, Pass::Backward(_)) => {
                    found.find_beta(job, activation, norm)?
                }
                Tensor::RunningMean if input.contains(Tensor::RunningVariance) => {
                    Some(input.tensor(tensor, " beside running_variance")?)
                }
                Tensor::RunningVariance if input.contains(Tensor::RunningMean) => {
                    Some(input.tensor(tensor, " beside running_mean")?)
                }
                _ => input.optional(tensor)?,
            });
        }
        if let Some(use_affine) = use_affine {
            for tensor in [Tensor::Gamma, Tensor::Beta] {
                // Gradients look for beta, too: a forward pass's may be there, but nothing depends on it.
                if input.contains(tensor) && !use_affine {
                    let name = tensor.name();
                    job.warn(format_args!("{name}: ignored, as use_affine is false"));
                }
            }
        }
        Ok(found)
    }

    /// Finds beta, which a gradient reads for the gate's gradient, or to recompute the activation's argument if there
    /// is no activation mask; without gamma, beta alone has a gradient. If a residual is added after the layer, the
    /// mask is required.
    fn find_beta(
        &self,
        job: &Job,
        activation: Activation,
        norm: &Norm,
    ) -> Result<Option<Stored>, Failure> {
        let input = &job.input;
        let (has_beta, has_residual) = (
            input.contains(Tensor::Beta),
            input.contains(Tensor::Residual),
        );
        let recomputed = activation != Activation::None && self.get(Tensor::Mask).is_none();
        if recomputed && has_residual && norm.begin_norm_axis().is_none() {
            let why = " beside a residual, as the forward pass writes it";
            return Err(input.missing(Tensor::Mask, why));
        }
        if recomputed && !has_beta {
            job.warn("beta: not given, so it is 0 in the activation's argument");
        }
        let has_gate = norm.has_gate() && input.contains(Tensor::Gate);
        match recomputed || has_gate || self.get(Tensor::Gamma).is_none() {
            true => input.optional(Tensor::Beta),
            false => Ok(None),
        }
    }

    pub fn get(&self, tensor: Tensor) -> Option<&Stored> {
        self.0.iter().find(|stored| stored.tensor == tensor)
    }

    /// src's shape.
    pub fn shape(&self) -> &[usize] {
        self.get(Tensor::Src).map_or(&[], |src| &src.shape)
    }

    fn of_kind(&self, wanted: Kind) -> impl Iterator<Item = &Stored> {
        let all = self.0.iter();
        all.filter(move |stored| kind(stored.tensor) == wanted)
    }

    /// Statistics, gamma and beta, whose shapes tell what the channels are.
    fn of_channels(&self) -> impl Iterator<Item = &Stored> {
        let statistics = self.of_kind(Kind::Statistics);
        statistics.chain(self.of_kind(Kind::Params))
    }

    /// The element types; a failure if they do not fit together. If there is no parameter, parameters have the type of
    /// the statistics; missing statistics have the type of sums.
    pub fn types(&self) -> Result<DTypes, Failure> {
        let src = self.get(Tensor::Src).and_then(Stored::dtype);
        // A missing src was refused before.
        let data = src.unwrap_or(DType::F32);
        expect_alike(self.of_kind(Kind::Data), &[data])?;
        let accepted = DType::ALL.into_iter();
        let mut accepted: Vec<_> = accepted.filter(|&of| data.accepts_params(of)).collect();
        let statistics = expect_alike(self.of_kind(Kind::Statistics), &accepted)?;
        // Statistics may be f32 beside 16-bit parameters.
        accepted.retain(|&params| statistics.is_none_or(|of| of == params || of == DType::F32));
        let params = expect_alike(self.of_kind(Kind::Params), &accepted)?;
        let params = params.or(statistics).unwrap_or(data.accumulator());
        let types = DTypes::from((data, params));
        Ok(types.with_statistics(statistics.unwrap_or(types.statistics)))
    }

    /// The channels of batch norm, from the flag, the file's metadata or the parameters' ranks.
    pub fn channels(&self, job: &Job, format: Option<Format>) -> Result<Channels, Failure> {
        let format = format.unwrap_or_else(|| {
            self.warn_if_ambiguous(job);
            self.recognize()
        });
        match format {
            Format::Axis(_) if self.shape().len() == 1 => Err(Failure::RankOne),
            Format::Axis(format) => Ok(Channels::Axis(format)),
            Format::Broadcast => self.broadcast_shape().map(Channels::Broadcast),
        }
    }

    /// The format that follows from the parameters' ranks; a single axis tells nothing.
    fn recognize(&self) -> Format {
        let rank = self.shape().len();
        let mut ranks = self.of_channels().map(|param| param.shape.len());
        match ranks.next() {
            Some(first) if rank > 1 && first == rank && ranks.all(|other| other == rank) => {
                Format::Broadcast
            }
            _ => Format::Axis(DataFormat::default()),
        }
    }

    /// Warns if the file does not tell the format and axis 1 may hold the channels: the default is NXC.
    fn warn_if_ambiguous(&self, job: &Job) {
        let [_, second, .., last] = self.shape() else {
            return;
        };
        match self.of_channels().next().map(|param| param.shape.as_slice()) {
            Some([channels]) if second == last && last == channels => job.warn(
                "data_format: not given, so NXC, channels last; axis 1 has the same size (--data-format NCX)",
            ),
            None => job.warn(
                "data_format: not given, so NXC, channels last; no parameter tells which (--data-format NCX)",
            ),
            _ => {}
        }
    }

    /// The parameters' shape; a failure if it cannot be broadcast to src, or if they differ in shape.
    fn broadcast_shape(&self) -> Result<Vec<usize>, Failure> {
        let Some(first) = self.of_channels().next() else {
            return Err(Failure::Library(Error::argument(
                "data_format",
                "NCX or NXC where there is no parameter whose shape tells the axes",
                Format::Broadcast.name(),
            )));
        };
        for param in self.of_channels() {
            expect_broadcast(param, self.shape())?;
            param.expect_shape(&[&first.shape], &format!(" as {}", first.tensor.name()))?;
        }
        Ok(first.shape.clone())
    }
}

fn find_mask(input: &Input, activation: Activation) -> Result<Option<Stored>, Failure> {
    match activation {
        // A mask suggests that the activation was forgotten.
        Activation::None if input.contains(Tensor::Mask) => Err(Failure::Library(Error::argument(
            "mask",
            "none without --activation, which tells what the mask belongs to",
            "one",
        ))),
        Activation::None => Ok(None),
        _ => input.optional(Tensor::Mask),
    }
}

/// The type of the tensors, if there are any; a failure if the first one's is not accepted, or another's differs from
/// it.
fn expect_alike<'a>(
    mut tensors: impl Iterator<Item = &'a Stored>,
    accepted: &[DType],
) -> Result<Option<DType>, Failure> {
    let Some(first) = tensors.next() else {
        return Ok(None);
    };
    first.expect_dtype(accepted)?;
    let dtype = first.dtype();
    tensors.try_for_each(|tensor| tensor.expect_dtype(dtype.as_slice()))?;
    Ok(dtype)
}

fn expect_broadcast(param: &Stored, src: &[usize]) -> Result<(), Failure> {
    if param.shape.len() != src.len() {
        return param.expect_shape(&[src], " with 1 along the axes that are reduced");
    }
    let mut axes = param.shape.iter().zip(src).enumerate();
    match axes.find(|(_, (got, size))| **got != 1 && got != size) {
        None => Ok(()),
        Some((axis, (got, size))) => Err(Failure::Library(Error::argument(
            param.tensor.name(),
            match size {
                1 => format!("size 1 along axis {axis}"),
                _ => format!("size 1 or {size} along axis {axis}"),
            },
            got,
        ))),
    }
}

/// The computation to do, on tensors whose shapes and types were checked.
pub struct Work {
    pub operation: Operation,
    /// The tensors that the operation reads and writes; results in the order of messages.
    pub tensors: Vec<TensorUse>,
    arguments: Arguments,
}

impl Work {
    /// A failure if the operation does not exist, or a tensor in the file does not have the shape that it requires.
    pub fn new(operation: Operation, arguments: Arguments) -> Result<Self, Failure> {
        let mut tensors = operation.tensors()?;
        // Running statistics last.
        tensors.sort_by_key(|used| used.access.reads() && used.access.writes());
        for used in &tensors {
            // A beta that no result depends on has its gradient's shape.
            let read = match used.tensor {
                Tensor::DiffBeta => Tensor::Beta,
                tensor => tensor,
            };
            if let Some(stored) = arguments.get(read) {
                check_shape(stored, used, &operation)?;
            }
        }
        Ok(Self {
            operation,
            tensors,
            arguments,
        })
    }

    /// Describes the computation in a line.
    pub fn describe(&self) -> String {
        let Operation { types, shape, .. } = &self.operation;
        let attributes = attributes_of(&self.operation);
        format!("src {} {shape:?}, {attributes}", types.data)
    }

    /// Describes everything that ranks must agree on to compute the same files.
    pub fn in_full(&self) -> String {
        let (name, types) = (self.operation.name(), self.operation.types);
        let stored = self.arguments.0.iter();
        let stored: Vec<_> = stored
            .map(|stored| (stored.tensor.name(), &stored.shape))
            .collect();
        format!("{name} of {}, {types:?} of {stored:?}", self.describe())
    }

    /// The tensors that are read.
    pub fn inputs(&self) -> impl Iterator<Item = &TensorUse> {
        self.tensors.iter().filter(|used| used.access.reads())
    }

    /// The tensors that are written.
    pub fn results(&self) -> impl Iterator<Item = &TensorUse> {
        self.tensors.iter().filter(|used| used.access.writes())
    }

    /// A result in the file. Parameter gradients have gamma's shape there, or beta's.
    pub fn described(&self, used: &TensorUse) -> Described {
        let mut params = self.arguments.of_kind(Kind::Params);
        let shape = match (used.tensor, params.next()) {
            (Tensor::Mask, _) => vec![used.elements() as usize],
            (tensor, Some(param)) if tensor.is_param() => param.shape.clone(),
            _ => used.shape.clone(),
        };
        Described {
            tensor: used.tensor,
            format: used.format,
            shape,
        }
    }
}

/// Reads a part of a tensor's bytes.
pub fn read(input: &Input, tensor: Tensor, part: Range<u64>) -> Result<Vec<u8>, Failure> {
    let mut read = numbers::zeros(tensor, part.end - part.start)?;
    input.read(tensor, part.start, &mut read)?;
    Ok(read)
}

/// A failure if a tensor in the file does not have the shape that the operation requires.
fn check_shape(stored: &Stored, used: &TensorUse, operation: &Operation) -> Result<(), Failure> {
    let norm = &operation.norm;
    let over_rows = norm.begin_norm_axis().is_some();
    let why = match (kind(stored.tensor), norm) {
        (Kind::Data, _) => " as src".to_owned(),
        (Kind::Mask, _) => {
            let words = [used.elements() as usize];
            let why = " (a bit for each element of src, 32 in a word)";
            return stored.expect_shape(&[&words], why);
        }
        (Kind::Params, _) if over_rows => {
            let other = of_axes_norm(stored, operation).unwrap_or_default();
            format!(" (src's axes from begin_norm_axis on{other})")
        }
        (Kind::Statistics, _) if over_rows => " (src's axes before begin_norm_axis)".to_owned(),
        (Kind::Statistics, Norm::Group { groups, .. }) => {
            format!(" (one per group of each sample; groups is {groups})")
        }
        (Kind::Statistics, Norm::Instance { .. }) => " (one per channel of each sample)".to_owned(),
        (Kind::Statistics, Norm::Axes { .. }) => " (src's axes that are not among axes)".to_owned(),
        (Kind::Params, Norm::Axes { .. }) => " (src's axes that are among param_axes)".to_owned(),
        _ => " (one per channel of src)".to_owned(),
    };
    let may_have_all_axes = match (kind(stored.tensor), norm) {
        // The latter has a data format for this.
        (Kind::Data, _) | (_, Norm::Batch(_)) => false,
        (Kind::Params, _) => !over_rows,
        _ => true,
    };
    if may_have_all_axes && stored.shape == with_all_axes(used, operation) {
        return Ok(());
    }
    // Those of rows may have one axis in place of all of their own.
    let flat = [used.elements() as usize];
    match !over_rows || kind(stored.tensor) == Kind::Data || used.shape == flat {
        true => stored.expect_shape(&[&used.shape], &why),
        false => stored.expect_shape(&[&used.shape, &flat], &why),
    }
}

/// The shape of parameters or statistics of src's rank, with size 1 along the axes that they do not vary along.
fn with_all_axes(used: &TensorUse, operation: &Operation) -> Vec<usize> {
    let mut axes = operation.axes();
    if let Norm::Group { .. } | Norm::Instance { .. } = operation.norm {
        // The channels of a group are no axis of src.
        axes.retain(|axis| !(axis.reduced && axis.parameter));
    }
    let statistic = kind(used.tensor) == Kind::Statistics;
    let varies = |of: &Axis| if statistic { !of.reduced } else { of.parameter };
    let mut sizes = used.shape.iter();
    let each = axes.iter().map(|axis| {
        let size = if varies(axis) { sizes.next() } else { None };
        size.copied().unwrap_or(1)
    });
    each.collect()
}

/// The axes norm that takes a gamma which does not fit rows, in words that follow others: ConvNeXt's gamma is along the
/// channels, an adaptive norm's of each sample.
fn of_axes_norm(gamma: &Stored, operation: &Operation) -> Option<String> {
    let first = operation.norm.begin_norm_axis()?;
    let centered = operation.norm.is_centered();
    let rank = operation.shape.len() as i64;
    let rows: Vec<i64> = (first.rem_euclid(rank.max(1))..rank).collect();
    let of_samples = [&[0], &*rows].concat();
    let kinds: [(&[i64], &[i64]); 3] = [(&rows, &of_samples), (&[1], &[1]), (&[1], &[0, 1])];
    let words = kinds.into_iter().find_map(|(axes, param_axes)| {
        let words = format!("--axes {axes:?} --param-axes {param_axes:?} --centered {centered}");
        let mut other = operation.clone();
        other.norm = Norm::axes(axes, param_axes).centered(centered);
        // An error if src has no such axes.
        let mut tensors = other.tensors().ok()?.into_iter();
        let used = tensors.find(|used| used.tensor == gamma.tensor)?;
        check_shape(gamma, &used, &other).is_ok().then_some(words)
    })?;
    let words = words.replace(", ", ",").replace(['[', ']'], "");
    let pass = operation.pass.name();
    Some(format!("; axes-norm-{pass} {words} takes it"))
}
