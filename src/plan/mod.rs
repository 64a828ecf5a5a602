//! Makes a list of dispatches from shapes, element types and an adapter's profile. Pure: nothing here touches a GPU.

mod assemble;
mod axes;
mod candidates;
mod derived;
mod dispatch;
mod fit;
mod limits;
mod planner;
mod problem;
mod rounds;
mod sizes;
mod slices;
mod stages;
mod tensors;
#[cfg(test)]
pub(crate) mod tests;
mod walks;
mod windows;
mod workspace;

pub(crate) use dispatch::{Binding, Dispatch, Phases, Requirement};
pub(crate) use fit::fit;
pub(crate) use limits::Unfit;
pub(crate) use problem::Problem;
pub(crate) use slices::plan;

use crate::algorithm::Algorithm;
use crate::element::DTypes;
use crate::error::Error;
use crate::f16_encoder::F16Encoder;
use crate::kernels::{Access, Body};
use crate::profile::MAX_BINDING;
use crate::tensor::Tensor;
use limits::MOST_ITERATIONS;

/// A plan: what to bind and what to dispatch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// The body that reads and writes all of the caller's tensors.
    pub body: Body,
    /// The algorithm of the whole operator.
    pub algorithm: Algorithm,
    pub types: DTypes,
    pub tensors: Vec<Requirement>,
    /// The workspace of the whole operator and its halves.
    pub halves_workspace_bytes: u64,
    /// That of the whole alone, whose kernels may need none where those of the halves do.
    pub workspace_bytes: u64,
    /// Bits in the words by which kernels read and write.
    pub word_bits: u32,
    pub f16_encoder: F16Encoder,
    pub dispatches: Vec<(Phases, Dispatch)>,
}

impl Plan {
    pub fn requirement(&self, tensor: Tensor) -> Option<&Requirement> {
        self.tensors.iter().find(|r| r.tensor == tensor)
    }

    /// How kernels read and write the tensors.
    pub fn access(&self) -> Access {
        match self.word_bits {
            64 => Access::LongWords,
            _ => Access::Vec4,
        }
    }

    /// Whether a tensor is written.
    pub fn writes(&self, tensor: Tensor) -> bool {
        tensor.is_scratch() || self.body.writes(tensor)
    }

    /// Names of the kernels that the whole operator runs, in order.
    pub fn kernel_names(&self) -> Vec<&'static str> {
        self.whole().map(|d| d.kernel.entry().name()).collect()
    }

    /// An error if a kernel binds more bytes of a tensor at once than this.
    pub fn check_bindings(&self, max_binding: u64) -> Result<(), Error> {
        let bindings = self.dispatches.iter().flat_map(|(_, d)| &d.bindings);
        for Binding { tensor, bytes, .. } in bindings {
            let what = format_args!("a binding of {}", tensor.name());
            let needed = bytes.end.saturating_sub(bytes.start);
            Error::check_limit(what, MAX_BINDING, needed, max_binding)?;
        }
        Ok(())
    }

    /// An error if a kernel binds more buffers than the device allows, or an invocation makes more loop iterations than
    /// a driver may allow.
    fn check_limits(&self, max_storage_buffers: u32) -> Result<(), Error> {
        let (mut buffers, mut iterations) = (0, 0);
        for (_, dispatch) in &self.dispatches {
            buffers = buffers.max(dispatch.bindings.len() as u64);
            iterations = iterations.max(dispatch.iterations);
        }
        let what = "a dispatch of this layer";
        let limit = "max_storage_buffers_per_shader_stage";
        Error::check_limit(what, limit, buffers, max_storage_buffers)?;
        let limit = "number of iterations";
        Error::check_limit("an invocation's loops", limit, iterations, MOST_ITERATIONS)
    }

    /// The dispatches of the whole operator.
    pub fn whole(&self) -> impl Iterator<Item = &Dispatch> {
        let all = self.dispatches.iter();
        all.filter_map(|(phases, one)| phases.meets(Phases::WHOLE).then_some(one))
    }
}
