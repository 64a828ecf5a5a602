//! Runs a plan on CubeCL's tensors.

mod kernels;
mod submission;

use crate::plans::Prepared;
use crate::way::{Launch, count};
use burn::backend::fusion::custom::TensorSpec;
use burn::backend::wgpu::{CubeTensor, into_contiguous};
use cubecl::client::Client;
use cubecl::server::Handle;
use wgpu_norm::{Error, Tensor};

/// A tensor of a plan, with its CubeCL tensor.
pub type Bound = (Tensor, CubeTensor);

/// A tensor of a plan, with its memory.
type Memory = (Tensor, Handle);

/// Runs a plan on its inputs, which are tensors of one device with src first. Returns its outputs.
///
/// # Panics
///
/// An operation of Burn's has no other way to report a failure. A layer plans before it chooses an operation, so
/// operations without a plan do not come here. The remaining cases: with [`Launch::Submission`], an input that carries
/// the failure of an earlier operation; or a device that is lost or has no memory left.
pub fn run(prepared: &Prepared, inputs: Vec<Bound>) -> Vec<Bound> {
    let outputs = try_run(prepared, inputs).unwrap_or_else(|error| {
        panic!("burn-wgpu-norm: {}: {error}", prepared.plan.operation());
    });
    count(prepared.launch.into());
    outputs
}

fn try_run(prepared: &Prepared, mut inputs: Vec<Bound>) -> Result<Vec<Bound>, Error> {
    let (_, src) = inputs.first().ok_or_else(|| missing(Tensor::Src))?;
    let (client, device) = (src.client.clone(), src.device.clone());
    // Burn's convolutions write the channels last. Other inputs than src are copied if they differ.
    let channels_last = prepared.channels_last.as_deref();
    if let Some(last) = channels_last.filter(|_| has_channels_last(src)) {
        for (_, tensor) in inputs.iter_mut().filter(|(role, _)| role.is_data()) {
            *tensor = with_channels_last(tensor.clone());
        }
        let outputs = try_run(last, inputs)?.into_iter().zip(&prepared.outputs);
        let outputs = outputs.map(|((role, tensor), (_, spec))| {
            let first = if role.is_data() {
                with_channels_first(tensor)
            } else {
                CubeTensor::new_contiguous(
                    client.clone(),
                    device.clone(),
                    spec.shape.clone(),
                    tensor.handle,
                    tensor.dtype,
                )
            };
            (role, first)
        });
        return Ok(outputs.collect());
    }
    let outputs = prepared.outputs.iter();
    let outputs = outputs.map(|(role, spec)| (*role, empty(src, spec.clone())));
    let outputs: Vec<Bound> = outputs.collect();
    let inputs = inputs
        .into_iter()
        .map(|(role, tensor)| (role, into_contiguous(tensor)));
    let all = inputs.chain(outputs.iter().cloned());
    let mut handles: Vec<Memory> = all.map(|(role, tensor)| (role, tensor.handle)).collect();
    let alignment = client.properties().memory.alignment;
    for (role, handle) in &handles {
        check_alignment(*role, handle, alignment)?;
    }
    let workspace = prepared.plan.workspace_bytes();
    if workspace > 0 {
        handles.push((Tensor::Workspace, room(&client, workspace as usize)));
    }
    match prepared.launch {
        Launch::Kernels => kernels::run(&client, prepared, &handles),
        Launch::Submission => submission::run(&client, &device, prepared, handles),
    }?;
    Ok(outputs)
}

/// Whether a tensor's channels are last in memory, and not first.
fn has_channels_last(tensor: &CubeTensor) -> bool {
    !tensor.meta.is_tiled()
        && !tensor.is_contiguous()
        && with_channels_last(tensor.clone()).is_contiguous()
}

/// A tensor's view with axis 1 last.
fn with_channels_last(mut tensor: CubeTensor) -> CubeTensor {
    let rank = tensor.meta.rank();
    for axis in 1..rank.saturating_sub(1) {
        tensor.meta.swap(axis, axis + 1);
    }
    tensor
}

/// A tensor's view with the last axis as axis 1.
fn with_channels_first(mut tensor: CubeTensor) -> CubeTensor {
    let rank = tensor.meta.rank();
    for axis in (1..rank.saturating_sub(1)).rev() {
        tensor.meta.swap(axis, axis + 1);
    }
    tensor
}

/// An error if a tensor's bytes begin at an offset that cannot be bound. Burn's slices begin at a valid offset, or are
/// copies.
fn check_alignment(role: Tensor, handle: &Handle, alignment: u64) -> Result<(), Error> {
    let offset = handle.offset_start.unwrap_or(0);
    match offset.is_multiple_of(alignment) {
        true => Ok(()),
        false => Err(Error::argument(
            role.name(),
            format!("an offset that is a multiple of {alignment}"),
            offset,
        )),
    }
}

/// The error for a tensor that a plan binds but was not given.
fn missing(tensor: Tensor) -> Error {
    Error::argument(tensor.name(), "a buffer", "none")
}

/// A new tensor, with room for whole vec4s.
fn empty(like: &CubeTensor, TensorSpec { shape, dtype }: TensorSpec) -> CubeTensor {
    let elements = shape.num_elements().next_multiple_of(4);
    let handle = room(&like.client, elements * dtype.size());
    CubeTensor::new_contiguous(
        like.client.clone(),
        like.device.clone(),
        shape,
        handle,
        dtype,
    )
}

/// Memory of this many bytes; wgpu binds no fewer than a vec4 of f64.
fn room(client: &Client, bytes: usize) -> Handle {
    client.empty(bytes.max(32))
}
