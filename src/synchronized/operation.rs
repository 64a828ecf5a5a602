//! Runs any operation over the samples of all ranks.

use super::AllGather;
use super::exchange::Exchange;
use crate::context::GpuContext;
use crate::element::{DType, DTypes};
use crate::error::Error;
use crate::host::Halves;
use crate::memory;
use crate::operation::{Channels, Forward, Norm, Operation, Pass};
use crate::options::{RunningUpdate, RunningVariance};
use crate::planned::Plan;
use crate::sums::SumsLayout;
use crate::tensor::{Format, Ranks, Tensor, TensorUse};
use std::borrow::Cow;

/// [`Operation::run_into`] over the samples of all ranks. The operation on each rank has that rank's samples: any
/// number of them, even none. All ranks must call it together, with operations that differ only in src's first size,
/// and request the same results.
///
/// [`TensorUse::ranks`] says what each tensor holds: this rank's part, or the same on all ranks. The gradients of
/// parameters are sums over all ranks; batch norm's statistics and running statistics are those of all samples. They
/// are added and merged in the order of ranks, so they are the same to the bit on all ranks, and rounded to 16 bits
/// only then.
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::synchronized::AllGather;
/// use wgpu_norm::synchronized::run_into;
/// use wgpu_norm::{
///     Channels, DType, DataFormat, Error, Forward, GpuContext, Norm, Operation, Tensor, bytemuck,
/// };
///
/// # struct Alone;
/// # impl AllGather for Alone {
/// #     type Error = Error;
/// #     fn rank(&self) -> usize {
/// #         0
/// #     }
/// #     fn ranks(&self) -> usize {
/// #         1
/// #     }
/// #     async fn all_gather(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Error> {
/// #         Ok(bytes.to_vec())
/// #     }
/// # }
/// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
/// let gpu = GpuContext::new().await?;
/// # let ranks = Alone;
/// let norm = Norm::Batch(Channels::Axis(DataFormat::Ncx));
/// let operation = Operation::new(norm, Forward::default(), &[2, 2], DType::F32).with_params(false, false);
/// let src = [1.0_f32, 10.0, 3.0, 30.0]; // two samples of two channels
/// let (mut dst, mut mean) = ([0.0_f32; 4], [0.0_f32; 2]);
/// let inputs = [(Tensor::Src, bytemuck::cast_slice(&src))];
/// let mut outputs = [
///     (Tensor::Dst, bytemuck::cast_slice_mut(&mut dst)),
///     (Tensor::Mean, bytemuck::cast_slice_mut(&mut mean)),
/// ];
/// run_into(&operation, &gpu, ranks, &inputs, &mut outputs).await?;
/// assert_eq!(mean, [2.0, 20.0]); // of all ranks' samples
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
///
/// # Errors
///
/// Those of [`Operation::run_into`]; [`Error::Argument`] if ranks cannot share src along its first axis, the samples:
/// batch norm with broadcast parameters, statistics of more than one sample of other norms, or too many channels for
/// halves; [`Error::Ranks`] if operations differ or another rank fails.
pub async fn run_into<G: AllGather>(
    operation: &Operation,
    gpu: &GpuContext,
    all_gather: G,
    inputs: &[(Tensor, &[u8])],
    outputs: &mut [(Tensor, &mut [u8])],
) -> Result<(), G::Error> {
    let mut exchange = Exchange::new(all_gather);
    let work = Work::new(operation, gpu, inputs, outputs);
    let begun = exchange.begin(work, |work| (work.count, description(operation, outputs)));
    let (work, counts) = begun.await?;
    if work.plan.is_some() {
        return work.in_halves(&mut exchange, &counts, outputs).await;
    }
    let done = work.at_once(outputs).await;
    for (used, own) in exchange.end(done).await? {
        work.add_up(&mut exchange, used, own, outputs).await?;
    }
    Ok(())
}

/// Makes the call fail on all ranks, as on this one.
pub(super) async fn fail<G: AllGather>(all_gather: G, error: Error) -> G::Error {
    let mut exchange = Exchange::new(all_gather);
    match exchange.begin(Err(error), |()| (0, vec![])).await {
        Err(error) => error,
        Ok(_) => Error::Ranks {
            what: "call",
            got: "one that failed".to_owned(),
        }
        .into(),
    }
}

/// An error if ranks cannot share src along its first axis, the samples.
fn check_samples(operation: &Operation) -> Result<(), Error> {
    let refused =
        |argument, expected: &str, got: String| Err(Error::argument(argument, expected, got));
    match (&operation.norm, operation.norm.begin_norm_axis()) {
        (Norm::Batch(Channels::Broadcast(_)), _) => refused(
            "data_format",
            "NCX or NXC, since ranks share the first axis",
            "broadcast".to_owned(),
        ),
        (Norm::Axes { axes, .. }, _) if !operation.norm.is_of_samples(&operation.shape) => {
            let expected = "axes after the first, along which ranks share src";
            refused("axes", expected, format!("{axes:?}"))
        }
        (norm, Some(begin_norm_axis)) if !norm.is_of_samples(&operation.shape) => {
            let expected = "an axis after the first, along which ranks share src";
            refused("begin_norm_axis", expected, begin_norm_axis.to_string())
        }
        _ => Ok(()),
    }
}

/// The properties that all ranks must agree on, as text.
fn description(
    operation: &Operation,
    outputs: &[(Tensor, &mut [u8])],
) -> Vec<(&'static str, String)> {
    let results = outputs.iter().map(|(tensor, _)| tensor.name());
    let sample = operation.shape.get(1..).unwrap_or_default();
    let types = operation.types;
    vec![
        ("operation", operation.name()),
        (
            "types",
            format!("{}, {}, {}", types.data, types.params, types.statistics),
        ),
        ("shape of a sample", format!("{sample:?}")),
        ("epsilon", format!("{:e}", operation.epsilon)),
        ("norm", format!("{:?}", operation.norm)),
        ("pass", format!("{:?}", operation.pass)),
        (
            "gamma, beta and gate",
            format!(
                "{}, {}, {}",
                operation.gamma, operation.beta, operation.gate
            ),
        ),
        (
            "zero_centered_gamma",
            operation.zero_centered_gamma.to_string(),
        ),
        ("epilogue", format!("{:?}", operation.epilogue)),
        ("results", results.collect::<Vec<_>>().join(", ")),
    ]
}

/// The slice of a tensor.
fn find<'s>(outputs: &'s mut [(Tensor, &mut [u8])], tensor: Tensor) -> Option<&'s mut [u8]> {
    let mut outputs = outputs.iter_mut();
    let found = outputs.find(|(name, _)| *name == tensor);
    found.map(|(_, bytes)| &mut **bytes)
}

/// Replaces a tensor's elements by functions of the old ones and numbers, if the tensor is requested.
fn replace(
    used: &TensorUse,
    outputs: &mut [(Tensor, &mut [u8])],
    numbers: &[f64],
    new: impl Fn(f64, f64) -> f64,
) {
    if let (Format::Elements(dtype), Some(to)) = (used.format, find(outputs, used.tensor)) {
        let elements = dtype.values(to).zip(numbers);
        let elements = dtype.encode(elements.map(|(old, number)| new(old, *number)));
        to.iter_mut().zip(elements).for_each(|(to, new)| *to = new);
    }
}

/// The work of one rank.
struct Work<'a> {
    operation: &'a Operation,
    gpu: &'a GpuContext,
    tensors: Vec<TensorUse>,
    inputs: &'a [(Tensor, &'a [u8])],
    /// The plan with halves, between which ranks exchange sums; none for other operations.
    plan: Option<Plan>,
    layout: SumsLayout,
    /// Elements of a channel on this rank.
    count: u64,
}

impl<'a> Work<'a> {
    /// Checks everything that concerns only this rank.
    fn new(
        operation: &'a Operation,
        gpu: &'a GpuContext,
        inputs: &'a [(Tensor, &'a [u8])],
        outputs: &[(Tensor, &mut [u8])],
    ) -> Result<Self, Error> {
        let tensors = operation.tensors()?;
        check_samples(operation)?;
        operation.check_slices(&tensors, inputs, outputs)?;
        let is_in_halves = matches!(
            (&operation.norm, &operation.pass),
            (Norm::Batch(_), Pass::Forward(_) | Pass::Backward(_))
        );
        let channels = operation.norm.params_shape(&operation.shape);
        let channels = channels
            .iter()
            .fold(1, |all: u64, &size| all.saturating_mul(size as u64));
        Ok(Self {
            operation,
            gpu,
            tensors,
            inputs,
            plan: if is_in_halves {
                Some(in_halves(operation, gpu, channels)?)
            } else {
                None
            },
            layout: SumsLayout::new(operation),
            count: operation.elements_of_a_channel(),
        })
    }

    /// Runs an operation without halves on this rank's samples. Returns its sums of each requested tensor that ranks
    /// add up: in 16 bits they would be rounded too early, or infinite, so they have the type of sums. Parameters and
    /// statistics have one type with them.
    async fn at_once(
        &self,
        outputs: &mut [(Tensor, &mut [u8])],
    ) -> Result<Vec<(&TensorUse, Vec<u8>)>, Error> {
        let find = |tensor| self.tensors.iter().find(|used| used.tensor == tensor);
        let mut operation = self.operation.clone();
        let (data, wide) = (operation.types.data, self.sum_type());
        let (mut sums, mut taken) = (Vec::new(), Vec::new());
        for (tensor, bytes) in outputs {
            match find(*tensor).filter(|used| used.ranks == Ranks::Added) {
                Some(used) => {
                    operation.types = DTypes::from((data, wide));
                    let bytes = used.elements().saturating_mul(wide.size());
                    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                    sums.push((used, memory::filled("sums", bytes, 0)?));
                }
                None => taken.push((*tensor, &mut **bytes)),
            }
        }
        let given = self.inputs.iter().map(|&(tensor, bytes)| {
            let bytes = match find(tensor).map(|used| used.format) {
                Some(Format::Elements(dtype)) if !sums.is_empty() && !tensor.is_data() => {
                    Cow::Owned(wide.encode(dtype.values(bytes)))
                }
                _ => Cow::Borrowed(bytes),
            };
            (tensor, bytes)
        });
        let given: Vec<_> = given.collect();
        let given: Vec<_> = given
            .iter()
            .map(|(tensor, bytes)| (*tensor, &**bytes))
            .collect();
        let taken_sums = sums.iter_mut();
        taken.extend(taken_sums.map(|(used, bytes)| (used.tensor, &mut **bytes)));
        operation.run_into(self.gpu, &given, &mut taken).await?;
        Ok(sums)
    }

    /// The type of sums.
    fn sum_type(&self) -> DType {
        self.operation.types.data.accumulator()
    }

    /// Adds up the ranks' sums, in the order of ranks, and rounds the total to the tensor's type.
    async fn add_up<G: AllGather>(
        &self,
        exchange: &mut Exchange<G>,
        used: &TensorUse,
        own: Vec<u8>,
        outputs: &mut [(Tensor, &mut [u8])],
    ) -> Result<(), G::Error> {
        let (bytes, dtype) = (own.len(), self.sum_type());
        let ((), all) = exchange.share(Ok(((), own)), bytes).await?;
        let mut total = memory::filled("sums", bytes / dtype.size() as usize, 0.0)?;
        for part in all.chunks_exact(bytes.max(1)) {
            for (total, sum) in total.iter_mut().zip(dtype.values(part)) {
                *total += sum;
            }
        }
        replace(used, outputs, &total, |_, total| total);
        Ok(())
    }

    async fn in_halves<G: AllGather>(
        &self,
        exchange: &mut Exchange<G>,
        counts: &[u64],
        outputs: &mut [(Tensor, &mut [u8])],
    ) -> Result<(), G::Error> {
        let count = counts.iter().fold(0, |sum: u64, &n| sum.saturating_add(n));
        let bytes = usize::try_from(self.layout.part_bytes()).unwrap_or(usize::MAX);
        let (first, all) = exchange.share(self.first_half().await, bytes).await?;
        let parts: Vec<_> = all.chunks_exact(bytes.max(1)).collect();
        let merged = self.layout.merge(&parts)?;
        let second = match first {
            Some(first) => {
                let take = |tensor, bytes: &[u8]| take(outputs, tensor, bytes);
                first.second(&merged, take).await
            }
            None => Ok(()),
        };
        let second = second.and_then(|()| match &self.operation.pass {
            Pass::Forward(Forward {
                running: Some(update),
                ..
            }) => update.check_count(count),
            _ => Ok(()),
        });
        exchange.end(second).await?;
        let [first, second] = self.layout.of_channels(&merged)?;
        for used in &self.tensors {
            match used.tensor {
                Tensor::Mean | Tensor::DiffBeta if used.access.writes() => {
                    replace(used, outputs, &first, |_, new| new);
                }
                Tensor::Variance | Tensor::DiffGamma if used.access.writes() => {
                    replace(used, outputs, &second, |_, new| new);
                }
                Tensor::RunningMean | Tensor::RunningVariance => {
                    self.update(used, outputs, [&first, &second], count);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Runs the first half, if this rank has elements, and returns its sums.
    async fn first_half(&self) -> Result<(Option<Halves<'_>>, Vec<u8>), Error> {
        let plan = self.plan.as_ref().filter(|_| self.count > 0);
        let Some(plan) = plan else {
            return Ok((None, Vec::new()));
        };
        let mut sums = Vec::new();
        let take = |_: Tensor, bytes: &[u8]| {
            sums = memory::collect("sums", bytes.iter().copied())?;
            Ok(())
        };
        let first = Halves::first(self.gpu, plan.inner(), self.inputs, take).await?;
        Ok((Some(first), sums))
    }

    /// Updates running statistics with the mean and variance of a batch. Without elements they do not change.
    fn update(
        &self,
        used: &TensorUse,
        outputs: &mut [(Tensor, &mut [u8])],
        [mean, variance]: [&[f64]; 2],
        count: u64,
    ) {
        let Pass::Forward(Forward {
            running: Some(update),
            ..
        }) = &self.operation.pass
        else {
            return;
        };
        let RunningUpdate { weight, .. } = *update;
        let (numbers, factor) = match (used.tensor, update.variance) {
            (Tensor::RunningMean, _) => (mean, 1.0),
            (_, RunningVariance::Biased) => (variance, 1.0),
            (_, RunningVariance::Unbiased) => {
                (variance, count as f64 / count.saturating_sub(1) as f64)
            }
        };
        if count > 0 {
            let merge = |old, batch: f64| (1.0 - weight) * old + weight * (factor * batch);
            replace(used, outputs, numbers, merge);
        }
    }
}

/// A plan with halves for this rank's part of the batch. The host updates running statistics with those of all ranks.
fn in_halves(operation: &Operation, gpu: &GpuContext, channels: u64) -> Result<Plan, Error> {
    let mut alone = operation.clone();
    if let Pass::Forward(forward) = &mut alone.pass {
        forward.running = None;
    }
    let plan = alone.plan(gpu.profile())?;
    match plan.sums() {
        // Without channels there is nothing to add up.
        None if channels > 0 => Err(Error::argument(
            "channels",
            format!(
                "no more than a binding of {} bytes has room for, with the sums of both halves",
                gpu.profile().max_binding
            ),
            channels,
        )),
        _ => Ok(plan),
    }
}

/// Copies a result, if it is requested.
fn take(outputs: &mut [(Tensor, &mut [u8])], tensor: Tensor, bytes: &[u8]) -> Result<(), Error> {
    if let Some(to) = find(outputs, tensor).filter(|to| to.len() == bytes.len()) {
        to.copy_from_slice(bytes);
    }
    Ok(())
}
