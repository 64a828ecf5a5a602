//! Runs a case and reports the outcome.

use crate::buffers::Buffers;
use crate::case::{Case, Halves};
use crate::expected::Expected;
use crate::numbers::{Numbers, size_of};
use std::ops::Range;
use wgpu_norm::synchronized::{Ranks, Shards, SumsLayout};
use wgpu_norm::{
    Algorithm, Bound, Channels, DType, DeviceOptions, Error, F16Encoder, GpuContext, Norm,
    Operation, Pass, Plan, Profile, Tensor, wgpu,
};

/// The outcome of a case.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// It ran.
    Ran {
        /// The algorithm that computed it.
        algorithm: Algorithm,
        /// The largest error of a result, in units of the tolerance: above 1 fails.
        error: f64,
        /// The fault, if any: an error above 1, or a failed assertion of the case.
        fault: Option<String>,
    },
    /// The adapter cannot run it.
    Unsupported {
        /// The reason.
        reason: String,
    },
}

/// The results of a run.
struct Results {
    algorithm: Algorithm,
    dispatches: usize,
    /// The bytes of each output's elements.
    outputs: Vec<(Tensor, Vec<u8>)>,
    fault: Option<String>,
}

impl Results {
    fn bytes(&self, tensor: Tensor) -> &[u8] {
        let found = self.outputs.iter().find(|(output, _)| *output == tensor);
        found.map_or(&[], |(_, bytes)| bytes)
    }

    /// The difference from other results, which should be the same.
    fn differ(&self, other: &Self) -> Option<String> {
        let mut pairs = self.outputs.iter();
        let differing = pairs.find(|(tensor, bytes)| bytes != other.bytes(*tensor));
        let name = |(tensor, _): &(Tensor, _)| format!("{} has other bits", tensor.name());
        other.fault.clone().or(differing.map(name))
    }
}

/// Its square is beyond the range of f32, and the square of its 7th power beyond that of f64. Every type but f16
/// represents it exactly; in f16 it is infinite.
const LARGE: f64 = (1_u128 << 84) as f64;

impl Case {
    /// Runs the case under the context's profile with the case's changes, and compares the results with the reference.
    ///
    /// # Errors
    ///
    /// Whatever the library refuses, and failures of the GPU. If the adapter cannot run the case, that is no error but
    /// [`Outcome::Unsupported`].
    pub async fn run(&self, gpu: &GpuContext) -> Result<Outcome, Error> {
        match self.attempt(gpu).await {
            Err(
                error @ (Error::UnsupportedDType { .. }
                | Error::Algorithm { .. }
                | Error::Limit { .. }
                | Error::OutOfMemory { .. }),
            ) => Ok(Outcome::Unsupported {
                reason: error.to_string(),
            }),
            other => other,
        }
    }

    /// The context's profile with the case's changes.
    pub fn profile(&self, gpu: &GpuContext) -> Profile {
        let mut profile = gpu.profile().clone();
        self.setting.apply(&mut profile);
        profile.algorithm = self.algorithm.or(profile.algorithm);
        profile
    }

    async fn attempt(&self, gpu: &GpuContext) -> Result<Outcome, Error> {
        let profile = self.profile(gpu);
        let encoder = profile.f16_encoder;
        if encoder != F16Encoder::Integers {
            gpu.probe_f16().await;
        }
        let gpu = gpu.with_profile(profile);
        if gpu.profile().f16_encoder != encoder {
            let reason = format!("{} does not round to nearest even here", encoder.name());
            return Ok(Outcome::Unsupported { reason });
        }
        let inputs = self.values.inputs(&self.operation)?;
        if self.memory.in_place && !self.is_gradient() {
            return Err(self.refused("a gradient, for in_place"));
        }
        let results = self.results(&gpu, &inputs).await?;
        let expected = self.values.expected(&self.operation, &inputs)?;
        let (error, mut fault) = self.compare(&results, &expected);
        if fault.is_none() {
            fault = self
                .other_faults(&gpu, &inputs, &results, &expected)
                .await?;
        }
        Ok(Outcome::Ran {
            algorithm: results.algorithm,
            error,
            fault,
        })
    }

    /// The largest error of one run, and the fault in its results.
    fn compare(&self, results: &Results, expected: &[Expected]) -> (f64, Option<String>) {
        let mut largest = 0.0;
        let mut fault = results.fault.clone();
        for want in expected {
            let bytes = results.bytes(want.tensor);
            let (index, error) = want.worst(bytes);
            largest = f64::max(largest, error);
            let wrong = match error > 1.0 {
                true => Some(index),
                false if self.values.exact() => want.not_nearest(bytes),
                false => None,
            };
            let got = |index: usize| {
                let size = size_of(want.dtype);
                let element = bytes.get(index * size..(index + 1) * size);
                let element = want.dtype.values(element.unwrap_or_default());
                element.collect::<Vec<_>>()
            };
            if let (Some(index), None) = (wrong, &fault) {
                fault = Some(format!(
                    "{}: expected {} at {index}, got {:?}: {error:.3} tolerances",
                    want.name(),
                    want.at(index),
                    got(index)
                ));
            }
        }
        (largest, fault)
    }

    /// The faults that show only in further runs.
    async fn other_faults(
        &self,
        gpu: &GpuContext,
        inputs: &[Numbers],
        first: &Results,
        expected: &[Expected],
    ) -> Result<Option<String>, Error> {
        if self.checks.repeats {
            for _ in 0..2 {
                let again = self.results(gpu, inputs).await?;
                if let Some(fault) = first.differ(&again) {
                    return Ok(Some(format!("in another run {fault}")));
                }
            }
        }
        if self.checks.checked {
            let options = DeviceOptions::default()
                .shader_checks(true)
                .profile(gpu.profile().clone());
            let checked =
                GpuContext::from_device(gpu.device().clone(), gpu.queue().clone(), options);
            let again = self.results(&checked, inputs).await?;
            // With checks between them, compilers fuse other multiplications and additions: GPUs' and Mesa's, which
            // shows in rows of six. SwiftShader fuses none.
            let bits = gpu.adapter_info().name.contains("SwiftShader");
            let differs = bits.then(|| first.differ(&again)).flatten();
            if let Some(fault) = differs.or(self.compare(&again, expected).1) {
                return Ok(Some(format!("with shader checks {fault}")));
            }
        }
        if let Some(bytes) = self.checks.windows {
            let mut profile = gpu.profile().clone();
            profile.max_binding = profile.max_binding.min(bytes.into());
            let cut = self.results(&gpu.with_profile(profile), inputs).await?;
            if cut.dispatches <= first.dispatches {
                return Ok(Some("it was not cut into windows".to_owned()));
            }
            if let Some(fault) = first.differ(&cut) {
                return Ok(Some(format!("in windows {fault}")));
            }
        }
        let values = [
            (self.checks.nan, f64::NAN),
            (self.checks.infinite, f64::INFINITY),
            (self.checks.infinite, f64::NEG_INFINITY),
            (self.checks.square_overflow, LARGE),
        ];
        for (_, value) in values.into_iter().filter(|(wanted, _)| *wanted) {
            let fault = self.spread(gpu, inputs, first, value).await?;
            if fault.is_some() {
                return Ok(fault);
            }
        }
        Ok(None)
    }

    /// Checks how far a value spreads from the start, the middle and the end of each input: whatever does not depend on
    /// it keeps its bits. Whatever becomes NaN in the reference is NaN if the value is NaN, and otherwise not finite.
    /// Everything else is correct or not finite, unless the value is NaN.
    async fn spread(
        &self,
        gpu: &GpuContext,
        inputs: &[Numbers],
        clean: &Results,
        value: f64,
    ) -> Result<Option<String>, Error> {
        let without = self.values.expected(&self.operation, inputs)?;
        for victim in inputs.iter().filter(|input| input.tensor != Tensor::Mask) {
            if victim.tensor.takes_epsilon() && value == f64::NEG_INFINITY {
                continue; // below −epsilon, which the operators refuse
            }
            for index in [0, victim.len / 2, victim.len.saturating_sub(1)] {
                // A gradient multiplies such numbers with each other, and the reference itself is in f64.
                let value = match (value.is_finite() && !self.is_gradient(), victim.dtype) {
                    (true, DType::F64) => LARGE.powi(7),
                    _ => value,
                };
                let ill = |value: f64| {
                    let mut ill = inputs.to_vec();
                    for numbers in ill.iter_mut().filter(|n| n.tensor == victim.tensor) {
                        numbers.set(index, value);
                    }
                    ill
                };
                let got = self.results(gpu, &ill(value)).await?;
                let with = self.values.expected(&self.operation, &ill(value))?;
                // A ReLU hides that an infinity has come so far, but not a NaN, which in turn changes no mask.
                let marked = match value.is_infinite() {
                    true => self.values.expected(&self.operation, &ill(f64::NAN))?,
                    false => with.clone(),
                };
                let name = victim.tensor.name();
                let what = |fault: &str| Some(format!("{value} in {name} at {index}: {fault}"));
                if let Some(fault) = &got.fault {
                    return Ok(what(fault));
                }
                let pairs = without.iter().zip(with.iter().zip(&marked));
                let pairs = pairs.filter(|(_, (with, _))| with.tensor != Tensor::Mask);
                for (without, (with, marked)) in pairs {
                    let after: Vec<_> = with.dtype.values(got.bytes(with.tensor)).collect();
                    let before: Vec<_> = with.dtype.values(clean.bytes(with.tensor)).collect();
                    let differs = |(a, b): (&f64, &f64)| a.to_bits() != b.to_bits();
                    let is_marked = marked.values.iter().zip(&without.values).map(differs);
                    let is_changed = with.values.iter().zip(&without.values).map(differs);
                    let is_reached = is_marked.zip(is_changed);
                    let is_reached = is_reached.map(|(marked, changed)| marked || changed);
                    let reached = with.values.iter().zip(is_reached);
                    let mut all = reached.zip(after.iter().zip(&before)).enumerate();
                    let is_wrong = |at: usize| with.error_at(got.bytes(with.tensor), at) > 1.0;
                    let wrong = all.find(|(at, ((with, is_reached), (after, before)))| {
                        if !is_reached {
                            after.to_bits() != before.to_bits()
                        } else if value.is_nan() {
                            with.is_nan() && !after.is_nan()
                        } else {
                            after.is_finite() && (with.is_nan() || is_wrong(*at))
                        }
                    });
                    if let Some((at, (_, (after, _)))) = wrong {
                        return Ok(what(&format!("{} at {at} is {after}", with.name())));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Runs the case once.
    async fn results(&self, gpu: &GpuContext, inputs: &[Numbers]) -> Result<Results, Error> {
        let shape = &self.operation.shape;
        let samples = shape.first().copied().unwrap_or_default();
        let cut = match self.halves {
            None => {
                let plan = self.operation.plan(gpu.profile())?;
                let before = self.buffers(gpu, &plan, inputs, false);
                let record = |bound: &Bound, encoder: &mut wgpu::CommandEncoder| {
                    bound.record(encoder);
                    Ok(())
                };
                let after = before.run(gpu, &plan, record).await?;
                return Ok(of_run(&plan, &before, &after));
            }
            Some(Halves::Both) => 0,
            Some(Halves::TwoShards) => samples / 3,
        };
        let mut parts = Vec::new();
        let shards = [0..cut, cut..samples].into_iter();
        let shards: Vec<_> = shards.filter(|samples| !samples.is_empty()).collect();
        let count = u32::try_from(shards.len()).unwrap_or(u32::MAX);
        for (samples, index) in shards.into_iter().zip(0..) {
            let part = Shards::new(count, index);
            let operation = self.shard(&samples, part);
            let operation = operation
                .ok_or_else(|| self.refused("an operator that has halves, with axis 0 reduced"))?;
            let sample: usize = shape.iter().skip(1).product();
            let elements = samples.start * sample..samples.end * sample;
            let inputs = inputs
                .iter()
                .map(|numbers| match self.is_split(numbers.tensor) {
                    true => numbers.part(elements.clone()),
                    false => numbers.clone(),
                });
            parts.push((operation, inputs.collect()));
        }
        self.halves(gpu, &parts).await
    }

    /// Runs the first halves, adds their sums or puts their statistics side by side, and runs the second halves.
    async fn halves(
        &self,
        gpu: &GpuContext,
        parts: &[(Operation, Vec<Numbers>)],
    ) -> Result<Results, Error> {
        let mut total = Vec::new();
        let mut begun = Vec::new();
        let mut fault = None;
        for (operation, inputs) in parts {
            let plan = operation.plan(gpu.profile())?;
            let before = self.buffers(gpu, &plan, inputs, true);
            let after = before.run(gpu, &plan, Bound::record_reduce).await?;
            let sums = after.elements(Tensor::Sums).unwrap_or_default();
            let Some(layout) = plan.sums() else {
                begun.push((plan, before)); // without channels
                continue;
            };
            if self.is_gradient() {
                total = match total.is_empty() {
                    true => sums.to_vec(),
                    false => layout.merge(&[&total, sums])?,
                };
            } else {
                let empty = before.elements(Tensor::Sums).unwrap_or_default();
                total.resize(sums.len(), 0);
                fault = fault.or(put(operation, layout, &mut total, [empty, sums]));
            }
            begun.push((plan, before));
        }
        let mut results: Option<Results> = None;
        let mut joined = 0;
        for (plan, mut buffers) in begun {
            // The workspace has its old contents again: other work may have used it.
            buffers.fill(Tensor::Sums, &total);
            let after = buffers.run(gpu, &plan, Bound::record_apply).await?;
            let own = of_run(&plan, &buffers, &after);
            let elements: usize = plan.operation().shape.iter().product();
            results = Some(match results {
                None => own,
                Some(all) => self.joined(all, own, joined..joined + elements),
            });
            joined += elements;
        }
        let mut results = results.ok_or_else(|| self.refused("samples"))?;
        results.fault = results.fault.or(fault);
        Ok(results)
    }

    /// Joins the results of all samples: each part has its own elements, and all have the same shared results.
    fn joined(&self, mut all: Results, part: Results, elements: Range<usize>) -> Results {
        for (tensor, bytes) in part.outputs {
            for (_, own) in all.outputs.iter_mut().filter(|(own, _)| *own == tensor) {
                if tensor == Tensor::Mask {
                    append_bits(own, &bytes, elements.clone());
                } else if self.is_split(tensor) {
                    own.extend_from_slice(&bytes);
                } else if *own != bytes {
                    let fault = format!("two parts have different {}", tensor.name());
                    all.fault.get_or_insert(fault);
                }
            }
        }
        all.fault = all.fault.or(part.fault);
        all
    }

    /// Whether each part of the samples has its own part of a tensor.
    fn is_split(&self, tensor: Tensor) -> bool {
        let tensors = self.operation.tensors().unwrap_or_default();
        let mut own = tensors.iter().filter(|used| used.tensor == tensor);
        own.any(|used| used.ranks == Ranks::Split)
    }

    fn is_gradient(&self) -> bool {
        matches!(self.operation.pass, Pass::Backward(_))
    }

    /// The operation on these samples as this part of the batch, if it has halves.
    fn shard(&self, samples: &Range<usize>, part: Shards) -> Option<Operation> {
        let mut operation = self.operation.clone();
        match (&operation.norm, &mut operation.pass) {
            (Norm::Batch(Channels::Axis(_)), Pass::Forward(forward)) => forward.shards = part,
            (Norm::Batch(Channels::Axis(_)), Pass::Backward(_)) => {}
            _ => return None,
        }
        *operation.shape.first_mut()? = samples.len();
        Some(operation)
    }

    fn refused(&self, expected: &str) -> Error {
        Error::argument("case", expected, self)
    }

    fn buffers(
        &self,
        gpu: &GpuContext,
        plan: &Plan,
        inputs: &[Numbers],
        with_sums: bool,
    ) -> Buffers {
        let mut buffers = Buffers::new(gpu, plan, self.memory, with_sums);
        for numbers in inputs {
            buffers.fill(numbers.tensor, &numbers.bytes());
        }
        buffers
    }
}

/// Puts a part's statistics in their place among those of all parts, and returns the fault, if any: the others have
/// changed, or the counts of elements are wrong. Results of equal elements hardly depend on the count.
fn put(
    operation: &Operation,
    layout: SumsLayout,
    all: &mut [u8],
    [before, after]: [&[u8]; 2],
) -> Option<String> {
    let part = layout.part();
    let own = part.start as usize..part.end as usize;
    let others = |bytes: &[u8]| {
        let (left, right) = (bytes.get(..own.start), bytes.get(own.end..));
        [left, right].map(Option::unwrap_or_default).concat()
    };
    if others(before) != others(after) {
        return Some("a part changed the statistics of another one".to_owned());
    }
    let got = after.get(own.clone()).unwrap_or_default();
    if let Some(place) = all.get_mut(own).filter(|place| place.len() == got.len()) {
        place.copy_from_slice(got);
    }
    let reduced = operation.axes().into_iter().filter(|axis| axis.reduced);
    let want = reduced.map(|axis| axis.size).product::<usize>() as f64;
    // Each channel has four numbers, the first of which is its count of elements.
    let mut counts = operation.types.data.accumulator().values(got).step_by(4);
    let wrong = counts.find(|got| (got - want).abs() > 1e-6 * want);
    wrong.map(|got| format!("a channel has {got} elements, not {want}"))
}

fn of_run(plan: &Plan, before: &Buffers, after: &Buffers) -> Results {
    let outputs = plan.buffers().into_iter();
    let outputs = outputs.filter(|used| used.access.writes() && used.tensor != Tensor::Workspace);
    let elements = |tensor| (tensor, after.elements(tensor).unwrap_or_default().to_vec());
    Results {
        algorithm: plan.algorithm(),
        dispatches: plan.kernels().len(),
        outputs: outputs.map(|used| elements(used.tensor)).collect(),
        fault: after.damage(before),
    }
}

/// Puts the bits of a mask after those of another, where they are the bits of these elements.
fn append_bits(mask: &mut Vec<u8>, bits: &[u8], elements: Range<usize>) {
    mask.resize(elements.end.div_ceil(32) * 4, 0);
    for (at, element) in elements.enumerate() {
        let is_set = bits
            .get(at / 8)
            .is_some_and(|byte| byte >> (at % 8) & 1 == 1);
        if let (true, Some(byte)) = (is_set, mask.get_mut(element / 8)) {
            *byte |= 1 << (element % 8);
        }
    }
}
