//! Any operation over the samples of all ranks.

use super::exchange::{Call, Exchange};
use super::records::{Merged, Sums};
use super::{AllGather, first_half};
use crate::host::Input;
use crate::{
    Access, Channels, DType, Element, Error, Format, Forward, GpuContext, Norm, Operation,
    ParamGrads, Pass, Plan, Ranks, RunningUpdate, RunningVariance, Tensor, TensorUse, memory,
};
use half::{bf16, f16};

/// [`Operation::run_into`] over the samples of all ranks, of which this operation has its own: any number of them, none too.
/// All ranks call it at once, with operations that are the same but for src's first size, and name the same results.
///
/// [`TensorUse::ranks`] says what each tensor is then: this rank's part of it, or what is the same everywhere. Gradients of
/// gamma and beta are sums over all ranks; batch norm's statistics, and running ones, are those of all samples. They are
/// added and merged in the order of ranks, so all ranks have the same bits.
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
/// # let gpu = match GpuContext::new().await {
/// #     Ok(gpu) => gpu,
/// #     Err(Error::NoAdapter { .. }) => return Ok(()),
/// #     Err(error) => return Err(error),
/// # };
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
/// # Ok(()) }).unwrap();
/// ```
///
/// # Errors
///
/// Those of [`Operation::run_into`]; [`Error::Argument`] where ranks cannot share src by samples, its first axis: batch norm
/// with broadcast parameters, rows of more than one sample, channels that are too many for halves; [`Error::Ranks`] where
/// operations differ or another rank fails.
pub async fn run_into<G: AllGather>(
    operation: &Operation,
    gpu: &GpuContext,
    all_gather: G,
    inputs: &[(Tensor, &[u8])],
    outputs: &mut [(Tensor, &mut [u8])],
) -> Result<(), G::Error> {
    let mut exchange = Exchange::new(all_gather);
    let tensors = checked(operation, inputs, outputs);
    let tensors = exchange
        .agree(tensors, |_| description(operation, outputs))
        .await?;
    match (&operation.norm, &operation.pass) {
        (Norm::Batch(_), Pass::Forward(forward)) => {
            let work = Work::new(operation, gpu, &tensors, inputs);
            work.forward(&mut exchange, *forward, outputs).await
        }
        (Norm::Batch(_), Pass::Backward(backward)) => {
            let work = Work::new(operation, gpu, &tensors, inputs);
            work.backward(&mut exchange, backward.param_grads, outputs)
                .await
        }
        _ => {
            let done = operation.run_into(gpu, inputs, outputs).await;
            exchange.end(done).await?;
            for used in tensors.iter().filter(|used| used.ranks == Ranks::Added) {
                add_up(&mut exchange, used, outputs).await?;
            }
            Ok(())
        }
    }
}

/// The tensors; an error if ranks cannot share the samples, or slices are none of these.
fn checked(
    operation: &Operation,
    inputs: &[(Tensor, &[u8])],
    outputs: &[(Tensor, &mut [u8])],
) -> Result<Vec<TensorUse>, Error> {
    // How many elements a channel has is not for this rank to say.
    let mut alone = operation.clone();
    if let Pass::Forward(Forward {
        running: Some(update),
        ..
    }) = &mut alone.pass
    {
        update.variance = RunningVariance::Biased;
    }
    let tensors = alone.tensors()?;
    check_samples(operation)?;
    alone.check_slices(&tensors, inputs, outputs)?;
    Ok(tensors)
}

/// An error if ranks cannot share the samples of src, its first axis.
fn check_samples(operation: &Operation) -> Result<(), Error> {
    let refused = |argument, expected: &str, got: String| {
        Err(Error::Argument {
            argument,
            expected: expected.to_owned(),
            got,
        })
    };
    match &operation.norm {
        Norm::Batch(Channels::Broadcast(_)) => refused(
            "data_format",
            "NCX or NXC, whose first axis ranks share",
            "broadcast".to_owned(),
        ),
        Norm::Layer { begin_axis } | Norm::Rms { begin_axis }
            if !operation.norm.is_of_samples(&operation.shape) =>
        {
            let expected = "an axis behind the first, along which ranks share src";
            refused("begin_norm_axis", expected, begin_axis.to_string())
        }
        _ => Ok(()),
    }
}

/// What all ranks have to agree on, as text.
fn description(
    operation: &Operation,
    outputs: &[(Tensor, &mut [u8])],
) -> Vec<(&'static str, String)> {
    let results = outputs.iter().map(|(tensor, _)| tensor.name());
    let sample = operation.shape.get(1..).unwrap_or_default();
    vec![
        ("operation", operation.name()),
        ("shape of a sample", format!("{sample:?}")),
        ("epsilon", format!("{:e}", operation.epsilon)),
        (
            "gamma and beta",
            format!("{}, {}", operation.gamma, operation.beta),
        ),
        ("activation", operation.epilogue.activation.to_string()),
        ("results", results.collect::<Vec<_>>().join(", ")),
    ]
}

/// The slice of a tensor.
fn find<'s>(outputs: &'s mut [(Tensor, &mut [u8])], tensor: Tensor) -> Option<&'s mut [u8]> {
    let mut outputs = outputs.iter_mut();
    let found = outputs.find(|(name, _)| *name == tensor);
    found.map(|(_, bytes)| &mut **bytes)
}

/// Makes new elements of old ones and numbers, if the tensor is asked for.
fn replace(
    used: &TensorUse,
    outputs: &mut [(Tensor, &mut [u8])],
    numbers: &[f64],
    new: impl Fn(f64, f64) -> f64,
) {
    fn set<T: Element>(element: &mut [u8], new: impl Fn(f64) -> f64) {
        let old = bytemuck::pod_read_unaligned::<T>(element).to_f64();
        element.copy_from_slice(bytemuck::bytes_of(&T::from_f64(new(old))));
    }
    let (Format::Elements(dtype), Some(to)) = (used.format, find(outputs, used.tensor)) else {
        return;
    };
    let elements = to.chunks_exact_mut(dtype.size() as usize);
    for (element, &number) in elements.zip(numbers) {
        let new = |old| new(old, number);
        match dtype {
            DType::F16 => set::<f16>(element, new),
            DType::Bf16 => set::<bf16>(element, new),
            DType::F32 => set::<f32>(element, new),
            DType::F64 => set::<f64>(element, new),
        }
    }
}

/// Adds up what each rank has of a tensor, if it is asked for, in the order of ranks.
async fn add_up<G: AllGather>(
    exchange: &mut Exchange<G>,
    used: &TensorUse,
    outputs: &mut [(Tensor, &mut [u8])],
) -> Result<(), G::Error> {
    let (Format::Elements(dtype), Some(own)) = (used.format, find(outputs, used.tensor)) else {
        return Ok(());
    };
    let bytes = own.len();
    let own = memory::collect("sums", own.iter().copied());
    let ((), all) = exchange.share(own.map(|own| ((), own)), bytes).await?;
    let elements = bytes / dtype.size() as usize;
    let mut sums = memory::collect("sums", std::iter::repeat_n(0.0, elements))?;
    for part in all.chunks_exact(bytes.max(1)) {
        for (sum, value) in sums.iter_mut().zip(dtype.values(part)) {
            *sum += value;
        }
    }
    replace(used, outputs, &sums, |_, sum| sum);
    Ok(())
}

/// Batch norm's passes by sums of all samples.
struct Work<'a> {
    operation: &'a Operation,
    gpu: &'a GpuContext,
    tensors: &'a [TensorUse],
    inputs: Vec<Input<'a>>,
    channels: usize,
    /// Elements of a channel on this rank.
    count: u64,
}

impl<'a> Work<'a> {
    fn new(
        operation: &'a Operation,
        gpu: &'a GpuContext,
        tensors: &'a [TensorUse],
        inputs: &[(Tensor, &'a [u8])],
    ) -> Self {
        let given = tensors.iter().filter_map(|used| {
            let found = inputs.iter().find(|(tensor, _)| *tensor == used.tensor);
            found.map(|(_, bytes)| Input::of_bytes(used, bytes))
        });
        let channels = operation.norm.params_shape(&operation.shape);
        let channels = channels.iter().product::<usize>();
        let elements = operation.shape.iter().map(|&size| size as u64);
        let elements = elements.fold(1, u64::saturating_mul);
        Self {
            operation,
            gpu,
            tensors,
            inputs: given.collect(),
            channels,
            count: elements / (channels as u64).max(1),
        }
    }

    /// A plan with halves.
    fn plan(&self, operation: &Operation) -> Result<Plan, Error> {
        let plan = operation.plan(self.gpu.profile())?;
        match plan.sums_bytes() {
            // Without channels there is nothing to add up.
            None if self.channels > 0 => Err(Error::Argument {
                argument: "channels",
                expected: format!(
                    "as many as have room for the sums of both halves in a binding of {} bytes",
                    self.gpu.profile().max_binding
                ),
                got: self.channels.to_string(),
            }),
            _ => Ok(plan),
        }
    }

    async fn forward<G: AllGather>(
        &self,
        exchange: &mut Exchange<G>,
        forward: Forward,
        outputs: &mut [(Tensor, &mut [u8])],
    ) -> Result<(), G::Error> {
        // Running statistics take in those of all ranks, on the host.
        let alone = Operation {
            pass: Forward {
                running: None,
                ..forward
            }
            .into(),
            ..self.operation.clone()
        };
        let types = self.operation.types;
        let call = Call::Forward(forward.running);
        let plan = self.plan(&alone);
        let (plan, counts) = exchange.begin(call, types, self.count, plan).await?;
        let bytes = Merged::bytes(types.data, self.channels);
        let some = (self.count > 0).then_some(plan.inner());
        let (first, all) = first_half(exchange, self.gpu, some, &self.inputs, bytes).await?;
        let merged = Merged::of(types.data, &all, self.channels, &counts)?;
        let second = match first {
            Some(first) => {
                first
                    .second(&merged.record(), |tensor, bytes| {
                        take(outputs, tensor, bytes)
                    })
                    .await
            }
            None => Ok(()),
        };
        let second = second.and_then(|()| match forward.running {
            Some(update) => merged.check_update(update),
            None => Ok(()),
        });
        exchange.end(second).await?;
        let count = counts.iter().fold(0, |sum: u64, &n| sum.saturating_add(n));
        let (mean, variance) = (merged.mean::<f64>()?, merged.variance::<f64>()?);
        for used in self.tensors {
            let numbers = match used.tensor {
                Tensor::Mean | Tensor::RunningMean => &mean,
                Tensor::Variance | Tensor::RunningVariance => &variance,
                _ => continue,
            };
            match forward.running.filter(|_| used.access == Access::InOut) {
                None => replace(used, outputs, numbers, |_, batch| batch),
                // None of no elements.
                Some(_) if count == 0 => {}
                Some(RunningUpdate { weight, variance }) => {
                    let factor = match (used.tensor, variance) {
                        (Tensor::RunningVariance, RunningVariance::Unbiased) => {
                            count as f64 / (count - 1) as f64
                        }
                        _ => 1.0,
                    };
                    let merge = |old, batch| (1.0 - weight) * old + weight * (factor * batch);
                    replace(used, outputs, numbers, merge);
                }
            }
        }
        Ok(())
    }

    async fn backward<G: AllGather>(
        &self,
        exchange: &mut Exchange<G>,
        param_grads: ParamGrads,
        outputs: &mut [(Tensor, &mut [u8])],
    ) -> Result<(), G::Error> {
        let types = self.operation.types;
        let plan = self.plan(self.operation);
        let call = Call::Backward;
        let (plan, counts) = exchange.begin(call, types, self.count, plan).await?;
        let bytes = Sums::bytes(types.data, self.channels);
        let some = (self.count > 0).then_some(plan.inner());
        let (first, all) = first_half(exchange, self.gpu, some, &self.inputs, bytes).await?;
        let sums = Sums::of(types.data, &all, self.channels, &counts)?;
        let second = match first {
            Some(first) => {
                first
                    .second(&sums.to_bytes(), |tensor, bytes| {
                        take(outputs, tensor, bytes)
                    })
                    .await
            }
            None => Ok(()),
        };
        exchange.end(second).await?;
        if param_grads != ParamGrads::Both {
            return Ok(());
        }
        for used in self.tensors {
            match used.tensor {
                Tensor::DiffGamma => {
                    replace(used, outputs, &sums.diff_gamma::<f64>()?, |_, sum| sum)
                }
                Tensor::DiffBeta => replace(used, outputs, &sums.diff_beta::<f64>()?, |_, sum| sum),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Copies a result, if it is asked for.
fn take(outputs: &mut [(Tensor, &mut [u8])], tensor: Tensor, bytes: &[u8]) -> Result<(), Error> {
    if let Some(to) = find(outputs, tensor).filter(|to| to.len() == bytes.len()) {
        to.copy_from_slice(bytes);
    }
    Ok(())
}
