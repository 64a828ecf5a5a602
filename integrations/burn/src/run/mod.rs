//! Runs a problem's plan on CubeCL's tensors.

mod kernels;
mod plans;
mod submission;

pub use plans::{Prepared, prepare};
pub use submission::{RegisterError, is_registered, register};

use crate::problem::Problem;
use crate::way::{Launch, count};
use burn::backend::wgpu::{CubeTensor, into_contiguous};
use burn::tensor::{DType, Shape};
use cubecl::client::Client;
use cubecl::server::Handle;
use submission::context;
use wgpu_norm::Error;
use wgpu_norm::Tensor;

/// A tensor of a plan, and what it is in.
pub type Bound = (Tensor, CubeTensor);

/// A tensor of a plan, and the memory that it is in.
type Memory = (Tensor, Handle);

/// Runs a problem on tensors of one device: what it reads, and what it writes.
///
/// # Panics
///
/// An operation of Burn's has no other way to report that it failed. A layer asks for the plan before it chooses an
/// operation, so that a problem without one does not come here. What is left: with [`Launch::Submission`] an input that
/// carries the failure of an earlier operation, or a device that has no memory left or is lost.
pub fn run(problem: &Problem, inputs: Vec<Bound>, outputs: &[Bound]) {
    if let Err(error) = try_run(problem, inputs, outputs) {
        panic!("burn-wgpu-norm: {problem:?}: {error}");
    }
    count(problem.launch.into());
}

fn try_run(problem: &Problem, inputs: Vec<Bound>, outputs: &[Bound]) -> Result<(), Error> {
    let (_, first) = inputs.first().ok_or_else(|| missing(Tensor::Src))?;
    let (client, device) = (first.client.clone(), first.device.clone());
    let prepared = prepare(&device, problem)?;
    let inputs = inputs
        .into_iter()
        .map(|(role, tensor)| (role, into_contiguous(tensor)));
    let all = inputs.chain(outputs.iter().cloned());
    let mut handles: Vec<Memory> = all.map(|(role, tensor)| (role, tensor.handle)).collect();
    let alignment = client.properties().memory.alignment;
    for (role, handle) in &handles {
        check_alignment(*role, handle, alignment)?;
    }
    let tensors = prepared.plan.tensors();
    let workspace = tensors.iter().find(|t| t.tensor == Tensor::Workspace);
    if let Some(workspace) = workspace {
        let workspace = room(&client, workspace.bytes as usize);
        handles.push((Tensor::Workspace, workspace));
    }
    match problem.launch {
        Launch::Kernels => kernels::run(&client, &prepared, &handles),
        Launch::Submission => submission::run(&client, &device, &prepared, handles),
    }
}

/// An error if a tensor's bytes begin where no binding may. Burn's slices begin where one may, or are copies.
fn check_alignment(role: Tensor, handle: &Handle, alignment: u64) -> Result<(), Error> {
    let offset = handle.offset_start.unwrap_or(0);
    match offset.is_multiple_of(alignment) {
        true => Ok(()),
        false => Err(Error::BufferAlignment {
            tensor: role.name(),
            offset,
            alignment,
        }),
    }
}

/// A tensor that a plan binds was not given.
fn missing(tensor: Tensor) -> Error {
    Error::BufferPresence {
        tensor: tensor.name(),
        expected: true,
    }
}

/// A new tensor, with room for whole vec4s.
pub fn empty(like: &CubeTensor, shape: &[usize], dtype: DType) -> CubeTensor {
    let shape = Shape::from(shape.to_vec());
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

/// So many bytes; wgpu binds no fewer than a vec4 of f64.
fn room(client: &Client, bytes: usize) -> Handle {
    client.empty(bytes.max(32))
}
