//! Runs a plan on host memory: check, upload, record, read back.

use crate::bound::{self, BufferRange};
use crate::context::Transfers;
use crate::kernels::Tensor;
use crate::plan::Plan;
use crate::{DType, Element, Error, GpuContext, ParamOf, memory};

/// variance + epsilon must be above 0 in every channel (or row), as the kernels add them. NaN passes: it
/// stays in its channel.
fn check_variance<P: Element>(
    argument: &'static str,
    group: &'static str,
    variance: &[P],
    epsilon: f64,
) -> Result<(), Error> {
    let bad = |value: &P| match P::DTYPE.accumulator() {
        DType::F64 => value.to_f64() + epsilon <= 0.0,
        _ => value.to_f64() as f32 + epsilon as f32 <= 0.0,
    };
    match variance.iter().position(bad) {
        None => Ok(()),
        Some(channel) => Err(Error::Variance {
            argument,
            group,
            channel,
            variance: variance.get(channel).map_or(f64::NAN, |v| v.to_f64()),
            epsilon,
        }),
    }
}

/// An operator's inputs.
pub(crate) struct Inputs<'a, T, P> {
    pub src: &'a [T],
    pub diff_dst: &'a [T],
    /// What has a mean and a variance of its own, for messages.
    pub group: &'static str,
    /// In the order of the plan's body.
    pub statistics: &'a [&'a [P]],
    /// Given exactly if the plan has it.
    pub gamma: Option<&'a [P]>,
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
}

/// Checks inputs against a plan and each other, and runs it on them.
pub(crate) async fn backward<T: Element, P: ParamOf<T>>(
    gpu: &GpuContext,
    plan: &Plan,
    epsilon: f64,
    inputs: Inputs<'_, T, P>,
) -> Result<Grads<T, P>, Error> {
    let mut statistics = plan
        .body
        .statistics()
        .iter()
        .copied()
        .zip(inputs.statistics);
    let of_params = statistics
        .clone()
        .map(|(tensor, &values)| (tensor, Some(values)))
        .chain([(Tensor::Gamma, inputs.gamma)]);
    plan.check_length(Tensor::Src, "src", inputs.src.len())?;
    plan.check_length(Tensor::DiffDst, "diff_dst", inputs.diff_dst.len())?;
    let mut bytes: Vec<(Tensor, &[u8])> = vec![
        (Tensor::Src, bytemuck::cast_slice(inputs.src)),
        (Tensor::DiffDst, bytemuck::cast_slice(inputs.diff_dst)),
    ];
    for (tensor, given) in of_params {
        if let Some(given) = given {
            plan.check_length(tensor, tensor.name(), given.len())?;
            bytes.push((tensor, bytemuck::cast_slice(given)));
        }
    }
    if let Some((tensor, variance)) = statistics.next_back() {
        check_variance(tensor.name(), inputs.group, variance, epsilon)?;
    }
    run(gpu, plan, &bytes).await
}

/// Runs a plan. diff_src is written over diff_dst.
async fn run<T: Element, P: ParamOf<T>>(
    gpu: &GpuContext,
    plan: &Plan,
    inputs: &[(Tensor, &[u8])],
) -> Result<Grads<T, P>, Error> {
    let usage =
        wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
    let tensors = plan.tensors.iter().map(|tensor| tensor.padded_bytes());
    let watch = gpu.watch(tensors.fold(plan.workspace_bytes, u64::saturating_add));
    let mut buffers = gpu.held::<Vec<(Tensor, wgpu::Buffer)>>();
    for requirement in &plan.tensors {
        let tensor = requirement.tensor;
        if matches!(tensor, Tensor::DiffSrc | Tensor::Sums) {
            continue;
        }
        let buffer = gpu.create_buffer(tensor.name(), requirement.padded_bytes(), usage)?;
        buffers.push((tensor, buffer));
    }
    let buffer_of = |tensor| {
        let stored = if tensor == Tensor::DiffSrc {
            Tensor::DiffDst
        } else {
            tensor
        };
        buffers.iter().find(|(t, _)| *t == stored).map(|(_, b)| b)
    };
    let given: Vec<_> = plan
        .tensors
        .iter()
        .map(|r| (r.tensor, buffer_of(r.tensor).map(BufferRange::from)))
        .collect();
    let bound = bound::bind(gpu, plan, &given)?;
    let outputs = [Tensor::DiffSrc, Tensor::DiffGamma, Tensor::DiffBeta];
    let transfers = Transfers {
        uploads: inputs
            .iter()
            .filter_map(|&(tensor, bytes)| Some((tensor, buffer_of(tensor)?, bytes)))
            .collect(),
        downloads: outputs
            .iter()
            .filter_map(|&tensor| {
                let requirement = plan.requirement(tensor)?;
                let bytes = requirement.elements * requirement.dtype.size();
                Some((tensor, buffer_of(tensor)?, bytes))
            })
            .collect(),
    };
    let mut grads = Grads {
        diff_src: Vec::new(),
        diff_gamma: None,
        diff_beta: None,
    };
    let record = |encoder: &mut wgpu::CommandEncoder| bound.record(encoder);
    let take = |tensor: Tensor, bytes: &[u8]| {
        match tensor {
            Tensor::DiffSrc => grads.diff_src = elements(tensor, bytes)?,
            Tensor::DiffGamma => grads.diff_gamma = Some(elements(tensor, bytes)?),
            _ => grads.diff_beta = Some(elements(tensor, bytes)?),
        }
        Ok(())
    };
    gpu.submit_and_read(watch, &transfers, record, take).await?;
    Ok(grads)
}

/// A tensor's elements, from bytes that may lie anywhere.
fn elements<T: Element>(tensor: Tensor, bytes: &[u8]) -> Result<Vec<T>, Error> {
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
