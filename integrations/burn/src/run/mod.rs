//! Runs a problem's plan on CubeCL's tensors.

mod kernels;
mod plans;
mod submission;

pub use plans::{Prepared, prepare};
pub use submission::{context, register};

use crate::problem::Problem;
use crate::way::{Way, count};
use burn::backend::Scalar;
use burn::backend::ops::FloatTensorOps;
use burn::backend::wgpu::{CubeBackend, CubeTensor, into_contiguous};
use burn::tensor::{DType, Shape};
use cubecl::client::Client;
use cubecl::server::Handle;
use wgpu_norm::export::Tensor;

/// A tensor of a plan, and what it is in.
pub type Bound = (Tensor, CubeTensor);

/// A tensor of a plan, and the memory that it is in.
type Memory = (Tensor, Handle);

/// Runs a problem on tensors of one device: what it reads, and what it writes.
///
/// # Panics
///
/// Where it cannot, which was found out before the operation was chosen.
pub fn run(problem: &Problem, inputs: Vec<Bound>, outputs: &[Bound]) {
    let Some((_, first)) = inputs.first() else {
        return;
    };
    let (client, device) = (first.client.clone(), first.device.clone());
    let prepared = prepare(&device, problem)
        .unwrap_or_else(|error| panic!("burn-wgpu-norm: {problem:?}: {error}"));
    let alignment = client.properties().memory.alignment;
    let inputs = inputs
        .into_iter()
        .map(|(role, tensor)| (role, aligned(into_contiguous(tensor), alignment)));
    let all = inputs.chain(outputs.iter().cloned());
    let mut handles: Vec<Memory> = all.map(|(role, tensor)| (role, tensor.handle)).collect();
    let tensors = prepared.plan.tensors();
    let workspace = tensors.iter().find(|t| t.tensor == Tensor::Workspace);
    if let Some(workspace) = workspace {
        let workspace = room(&client, workspace.bytes as usize);
        handles.push((Tensor::Workspace, workspace));
    }
    let ran = match problem.way {
        Way::Submission => submission::run(&client, &device, &prepared, handles),
        Way::Kernels | Way::Burn => kernels::run(&client, &prepared, &handles),
    };
    if let Err(error) = ran {
        panic!("burn-wgpu-norm: {problem:?}: {error}");
    }
    count(problem.way);
}

/// A tensor whose bytes begin where a binding may: a slice may begin anywhere.
fn aligned(tensor: CubeTensor, alignment: u64) -> CubeTensor {
    let start = tensor.handle.offset_start.unwrap_or(0);
    if start.is_multiple_of(alignment.max(32)) {
        return tensor;
    }
    // With a second owner the product is written elsewhere. It is exact: of NaN and zeros, too.
    let kept = tensor.clone();
    let copy = CubeBackend::float_mul_scalar(tensor, Scalar::Float(1.0));
    drop(kept);
    copy
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
