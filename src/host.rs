//! Runs a plan on host memory: check, upload, record, read back.

use crate::bound::{self, BufferRange};
use crate::context::{Held, Transfers, Watch};
use crate::kernels::Tensor;
use crate::plan::Plan;
use crate::{Bound, DType, Element, Error, GpuContext, ParamOf, memory};

/// variance + epsilon must be above 0 and finite in every channel (or row), as the kernels add them. NaN passes: it
/// stays in its channel. By an infinite variance gradients would be 0, as if there were nothing to learn.
pub(crate) fn check_variance<P: Element>(
    tensor: Tensor,
    group: &'static str,
    variance: &[P],
    epsilon: f64,
) -> Result<(), Error> {
    let bad = |value: &P| {
        let sum = match P::DTYPE.accumulator() {
            DType::F64 => value.to_f64() + epsilon,
            _ => f64::from(value.to_f64() as f32 + epsilon as f32),
        };
        sum <= 0.0 || sum.is_infinite()
    };
    match variance.iter().position(bad) {
        None => Ok(()),
        Some(channel) => Err(Error::Variance {
            argument: tensor.name(),
            group,
            channel,
            variance: variance.get(channel).map_or(f64::NAN, |v| v.to_f64()),
            epsilon,
        }),
    }
}

/// A tensor that the caller gives.
pub(crate) struct Input<'a> {
    tensor: Tensor,
    bytes: &'a [u8],
    len: usize,
}

impl<'a> Input<'a> {
    pub fn new<T: Element>(tensor: Tensor, values: &'a [T]) -> Self {
        Self {
            tensor,
            bytes: bytemuck::cast_slice(values),
            len: values.len(),
        }
    }

    /// Of a mask.
    pub fn mask(words: &'a [u32]) -> Self {
        Self {
            tensor: Tensor::Mask,
            bytes: bytemuck::cast_slice(words),
            len: words.len(),
        }
    }

    /// An error if a plan's tensor has another length.
    pub fn check(&self, plan: &Plan) -> Result<(), Error> {
        plan.check_length(self.tensor, self.tensor.name(), self.len)
    }

    /// Of one that may not be given.
    pub fn given<T: Element>(tensor: Tensor, values: Option<&'a [T]>) -> Option<Self> {
        values.map(|values| Self::new(tensor, values))
    }
}

/// The gradients that an operator computes, in host memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Grads<T, P> {
    /// Gradient with respect to src, of src's shape.
    pub diff_src: Vec<T>,
    /// Gradient with respect to gamma, as long as gamma; with [`ParamGrads::Both`](crate::ParamGrads::Both),
    /// of layer norm if the layer is affine.
    pub diff_gamma: Option<Vec<P>>,
    /// Gradient with respect to beta, likewise.
    pub diff_beta: Option<Vec<P>>,
    /// Gradient with respect to the residual that was added before an activation, where a mask was given. A residual without
    /// an activation has diff_dst for its gradient.
    pub diff_residual: Option<Vec<T>>,
}

/// Runs a plan of a gradient.
pub(crate) async fn backward<T: Element, P: ParamOf<T>>(
    gpu: &GpuContext,
    plan: &Plan,
    inputs: &[Input<'_>],
) -> Result<Grads<T, P>, Error> {
    let mut grads = Grads {
        diff_src: Vec::new(),
        diff_gamma: None,
        diff_beta: None,
        diff_residual: None,
    };
    run(gpu, plan, inputs, |tensor, bytes| {
        match tensor {
            Tensor::DiffSrc => grads.diff_src = elements(tensor, bytes)?,
            Tensor::DiffResidual => grads.diff_residual = Some(elements(tensor, bytes)?),
            Tensor::DiffGamma => grads.diff_gamma = Some(elements(tensor, bytes)?),
            _ => grads.diff_beta = Some(elements(tensor, bytes)?),
        }
        Ok(())
    })
    .await?;
    Ok(grads)
}

/// Checks inputs against a plan, runs it on them, and hands over what it writes. diff_src is written over diff_dst.
pub(crate) async fn run(
    gpu: &GpuContext,
    plan: &Plan,
    inputs: &[Input<'_>],
    take: impl FnMut(Tensor, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let watch = watch(gpu, plan);
    let whole = OnDevice::new(gpu, plan, inputs, false)?;
    let transfers = Transfers {
        uploads: whole.uploads(inputs),
        downloads: whole.downloads(|tensor| tensor != Tensor::Sums),
    };
    let record = |encoder: &mut wgpu::CommandEncoder| whole.bound.record(encoder);
    gpu.submit_and_read(watch, &transfers, record, take).await
}

/// A plan with two halves, bound to buffers of its own.
pub(crate) struct Halves<'a>(OnDevice<'a>);

impl<'a> Halves<'a> {
    /// Checks inputs against a plan, and runs the first half on them; `take` is given the sums.
    pub async fn first(
        gpu: &'a GpuContext,
        plan: &'a Plan,
        inputs: &[Input<'_>],
        take: impl FnMut(Tensor, &[u8]) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let watch = watch(gpu, plan);
        let whole = OnDevice::new(gpu, plan, inputs, true)?;
        let transfers = Transfers {
            uploads: whole.uploads(inputs),
            downloads: whole.downloads(|tensor| tensor == Tensor::Sums),
        };
        let mut recorded = Ok(());
        let record =
            |encoder: &mut wgpu::CommandEncoder| recorded = whole.bound.record_reduce(encoder);
        gpu.submit_and_read(watch, &transfers, record, take).await?;
        recorded?;
        Ok(Self(whole))
    }

    /// Runs the second half from these sums on, and hands over the tensors of src's shape that it writes.
    pub async fn second(
        &self,
        sums: &[u8],
        take: impl FnMut(Tensor, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Self(whole) = self;
        let buffer = whole.buffer_of(Tensor::Sums);
        let transfers = Transfers {
            uploads: buffer
                .map(|b| (Tensor::Sums, b, sums))
                .into_iter()
                .collect(),
            downloads: whole.downloads(|tensor| tensor.is_data() || tensor == Tensor::Mask),
        };
        let mut recorded = Ok(());
        let record =
            |encoder: &mut wgpu::CommandEncoder| recorded = whole.bound.record_apply(encoder);
        let watch = watch(whole.gpu, whole.plan);
        let gpu = whole.gpu;
        gpu.submit_and_read(watch, &transfers, record, take).await?;
        recorded
    }
}

/// A plan, bound to buffers of its own.
struct OnDevice<'a> {
    gpu: &'a GpuContext,
    plan: &'a Plan,
    bound: Bound,
    buffers: Held<Vec<(Tensor, wgpu::Buffer)>>,
}

impl<'a> OnDevice<'a> {
    /// Checks inputs against a plan, and binds it; with the buffer `sums` where there are to be two halves.
    fn new(
        gpu: &'a GpuContext,
        plan: &'a Plan,
        inputs: &[Input<'_>],
        with_sums: bool,
    ) -> Result<Self, Error> {
        for input in inputs {
            input.check(plan)?;
        }
        let usage = wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_DST
            | wgpu::BufferUsages::COPY_SRC;
        let mut buffers = gpu.held::<Vec<(Tensor, wgpu::Buffer)>>();
        for requirement in &plan.tensors {
            let tensor = requirement.tensor;
            if tensor == Tensor::DiffSrc || (tensor == Tensor::Sums && !with_sums) {
                continue;
            }
            let buffer = gpu.create_buffer(tensor.name(), requirement.padded_bytes(), usage)?;
            buffers.push((tensor, buffer));
        }
        let given: Vec<_> = plan
            .tensors
            .iter()
            .map(|r| (r.tensor, find(&buffers, r.tensor).map(BufferRange::from)))
            .collect();
        let bound = bound::bind(gpu, plan, &given)?;
        Ok(Self {
            gpu,
            plan,
            bound,
            buffers,
        })
    }

    fn buffer_of(&self, tensor: Tensor) -> Option<&wgpu::Buffer> {
        find(&self.buffers, tensor)
    }

    fn uploads<'i>(&'i self, inputs: &[Input<'i>]) -> Vec<(Tensor, &'i wgpu::Buffer, &'i [u8])> {
        let uploads = inputs.iter();
        let uploads = uploads
            .filter_map(|input| Some((input.tensor, self.buffer_of(input.tensor)?, input.bytes)));
        uploads.collect()
    }

    fn downloads(&self, wanted: impl Fn(Tensor) -> bool) -> Vec<(Tensor, &wgpu::Buffer, u64)> {
        let outputs = self.plan.tensors.iter();
        let outputs = outputs.filter(|r| self.plan.writes(r.tensor) && wanted(r.tensor));
        outputs
            .filter_map(|requirement| {
                let bytes = requirement.elements * requirement.dtype.size();
                Some((
                    requirement.tensor,
                    self.buffer_of(requirement.tensor)?,
                    bytes,
                ))
            })
            .collect()
    }
}

/// Looks out for what wgpu says of a plan's buffers.
fn watch(gpu: &GpuContext, plan: &Plan) -> Watch {
    let tensors = plan.tensors.iter().map(|r| r.padded_bytes());
    gpu.watch(tensors.fold(plan.workspace_bytes, u64::saturating_add))
}

/// The buffer that a tensor lies in: diff_src lies over diff_dst.
fn find(buffers: &[(Tensor, wgpu::Buffer)], tensor: Tensor) -> Option<&wgpu::Buffer> {
    let stored = match tensor {
        Tensor::DiffSrc => Tensor::DiffDst,
        other => other,
    };
    let found = buffers.iter().find(|(known, _)| *known == stored);
    found.map(|(_, buffer)| buffer)
}

/// A tensor's elements, from bytes that may lie anywhere.
pub(crate) fn elements<T: Element>(tensor: Tensor, bytes: &[u8]) -> Result<Vec<T>, Error> {
    let what = tensor.name();
    match bytemuck::try_cast_slice(bytes) {
        Ok(aligned) => {
            let mut values = memory::room(what, aligned.len())?;
            values.extend_from_slice(aligned);
            Ok(values)
        }
        Err(_) => {
            let each = bytes.chunks_exact(size_of::<T>());
            memory::collect(what, each.map(bytemuck::pod_read_unaligned))
        }
    }
}

/// A mask's words.
pub(crate) fn words(tensor: Tensor, bytes: &[u8]) -> Result<Vec<u32>, Error> {
    let each = bytes.chunks_exact(size_of::<u32>());
    memory::collect(tensor.name(), each.map(bytemuck::pod_read_unaligned))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// In a browser, what is read back lies anywhere.
    #[test]
    fn elements_at_any_address() {
        let numbers = [1.5_f64, -2.0, 3.25];
        let mut bytes = vec![0; 8];
        bytes.extend(bytemuck::cast_slice::<_, u8>(&numbers));
        for shift in 0..8 {
            bytes.rotate_left(usize::from(shift > 0));
            let at = bytes.get(8 - shift..32 - shift).unwrap();
            assert_eq!(elements::<f64>(Tensor::DiffSrc, at).unwrap(), numbers);
        }
    }
}
