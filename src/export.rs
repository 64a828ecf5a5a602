//! A plan's dispatches, for a framework that compiles, binds and dispatches by itself.
//!
//! Three steps, none of which touches a GPU:
//!
//! 1. A [`Profile`](crate::Profile) of the device: [`Profile::webgpu`](crate::Profile::webgpu), with what is known of it.
//! 2. A plan: [`BatchNormOptions::plan_backward`](crate::BatchNormOptions::plan_backward) and its like.
//! 3. Its dispatches: [`Plan::dispatches`].
//!
//! ```
//! use wgpu_norm::export::Plan;
//! use wgpu_norm::{BatchNormOptions, DType, Profile, Tensor};
//!
//! let options = BatchNormOptions::new(1e-5);
//! let profile = Profile::webgpu("a GPU");
//! let types = (DType::F32, DType::F32);
//! let plan = Plan::from(options.plan_backward(&profile, &[32, 7, 7, 64], types, true)?);
//! let tensors = plan.tensors();
//! // Every tensor has a buffer of its own here, of just its size.
//! let room = |tensor| tensors.iter().find(|t| t.tensor == tensor).map(|t| t.bytes);
//! for dispatch in plan.dispatches(room)? {
//!     assert!(dispatch.kernel.wgsl().contains(dispatch.kernel.entry_point()));
//!     assert!(dispatch.bindings.iter().all(|binding| binding.tensor != Tensor::Dst));
//!     assert_eq!(dispatch.uniforms.len() % 16, 0);
//! }
//! # Ok::<(), wgpu_norm::Error>(())
//! ```

use crate::kernels::Variant;
use crate::{Bound, BufferRange, Error, GpuContext, Tensor, bound, plan};

/// A plan of any layer, for code that does not care which.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    plan: plan::Plan,
}

impl Plan {
    pub(crate) const fn new(plan: plan::Plan) -> Self {
        Self { plan }
    }

    pub(crate) fn into_plan(self) -> plan::Plan {
        self.plan
    }

    /// The tensors that the whole operator reads and writes, its workspace among them where it needs one.
    pub fn tensors(&self) -> Vec<TensorUse> {
        let plan = &self.plan;
        let operands = plan.tensors.iter();
        let operands = operands.filter(|requirement| requirement.tensor != Tensor::Sums);
        let operands = operands.map(|requirement| TensorUse {
            tensor: requirement.tensor,
            bytes: requirement.bytes(),
            padded_bytes: requirement.padded_bytes(),
            written: plan.writes(requirement.tensor),
        });
        let workspace = (plan.workspace_bytes > 0).then_some(TensorUse {
            tensor: Tensor::Workspace,
            bytes: plan.workspace_bytes,
            padded_bytes: plan.workspace_bytes,
            written: true,
        });
        operands.chain(workspace).collect()
    }

    /// The dispatches of the whole operator, in order. `room` says how many bytes may be bound of a tensor's buffer from
    /// the tensor's start on, none if it has no buffer: kernels load four elements at once to the end where there is room
    /// for the last four.
    ///
    /// # Errors
    ///
    /// [`Error::BufferPresence`] and [`Error::BufferSize`], naming a tensor without a buffer, or with too small a one.
    pub fn dispatches(&self, room: impl Fn(Tensor) -> Option<u64>) -> Result<Vec<Dispatch>, Error> {
        for TensorUse { tensor, bytes, .. } in self.tensors() {
            let got = room(tensor).ok_or(Error::BufferPresence {
                tensor: tensor.name(),
                expected: true,
            })?;
            if got < bytes {
                return Err(Error::BufferSize {
                    tensor: tensor.name(),
                    expected: bytes,
                    got,
                });
            }
        }
        let room = |tensor| room(tensor).unwrap_or(0);
        let whole = self.plan.whole();
        Ok(whole.map(|part| export(&self.plan, part, room)).collect())
    }

    /// Binds buffers for this crate's own recording: `bind` of the layer's plan, with tensors named by value.
    ///
    /// # Errors
    ///
    /// As those of [`BatchNormBackwardPlan::bind`](crate::BatchNormBackwardPlan::bind), and [`Error::Argument`] naming a
    /// tensor that is given twice.
    pub fn bind(
        &self,
        gpu: &GpuContext,
        buffers: &[(Tensor, BufferRange<'_>)],
    ) -> Result<Bound, Error> {
        let mut given: Vec<(Tensor, Option<BufferRange<'_>>)> = Vec::new();
        for &(tensor, range) in buffers {
            if given.iter().any(|&(known, _)| known == tensor) {
                return Err(Error::Argument {
                    argument: tensor.name(),
                    expected: "one buffer".to_owned(),
                    got: "two".to_owned(),
                });
            }
            given.push((tensor, Some(range)));
        }
        bound::bind(gpu, &self.plan, &given)
    }
}

/// A tensor that a plan reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorUse {
    /// Which one.
    pub tensor: Tensor,
    /// Bytes that its buffer must have: the tensor's own, up to the next multiple of 4.
    pub bytes: u64,
    /// Bytes that its buffer had best have: those of the elements up to the next multiple of four.
    pub padded_bytes: u64,
    /// Whether it is written.
    pub written: bool,
}

/// One dispatch of a plan. A dispatch sees what those before it wrote.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Dispatch {
    /// What is dispatched.
    pub kernel: Kernel,
    /// Workgroups along x and y; one along z.
    pub workgroups: [u32; 2],
    /// The storage buffers of the text's bindings from 0 on, in group 0.
    pub bindings: Vec<Binding>,
    /// The bytes of the uniform buffer of the binding after them; a multiple of 16.
    pub uniforms: Vec<u8>,
}

/// A part of a tensor that a dispatch binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Binding {
    /// The tensor.
    pub tensor: Tensor,
    /// Where the part begins, in bytes from the tensor's start: a multiple of the profile's alignment.
    pub offset: u64,
    /// Its bytes, a multiple of 4. More may be bound.
    pub size: u64,
    /// Whether the dispatch writes it.
    pub written: bool,
}

/// A kernel to compile: a key, to which one text belongs, so that it is compiled once.
///
/// Every binding is declared `read_write`, so that all of them may be parts of one buffer. Indices stay in bounds
/// without checks, loops end without bounds of the compiler's, and workgroup memory needs no zeros.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kernel {
    variant: Variant,
}

impl Kernel {
    /// The name of the entry point.
    pub fn entry_point(&self) -> &'static str {
        self.variant.kernel.entry().name
    }

    /// Invocations of a workgroup, all of them along x.
    pub fn workgroup_size(&self) -> u32 {
        self.variant.workgroup_size
    }

    /// The text: WGSL without override constants.
    pub fn wgsl(&self) -> String {
        self.variant.wgsl()
    }
}

/// A plan's dispatch.
fn export(plan: &plan::Plan, dispatch: &plan::Dispatch, room: impl Fn(Tensor) -> u64) -> Dispatch {
    let bound: Vec<_> = dispatch.bindings.iter().collect();
    let beyond = bound.iter().filter(|b| b.bytes.end > room(b.tensor));
    let variant = Variant {
        pooled: true,
        exact: beyond.map(|binding| binding.tensor).collect(),
        ..dispatch.variant(plan.types, plan.access(), &bound)
    };
    let bindings = bound.iter().map(|binding| {
        let bytes = binding.within(room(binding.tensor));
        Binding {
            tensor: binding.tensor,
            offset: bytes.start,
            size: bytes.end.saturating_sub(bytes.start),
            written: plan.writes(binding.tensor),
        }
    });
    Dispatch {
        bindings: bindings.collect(),
        kernel: Kernel {
            variant: variant.normalized(),
        },
        workgroups: dispatch.workgroups,
        uniforms: dispatch.uniforms.bytes(plan.types.data.accumulator()),
    }
}
