//! What a framework needs that compiles, binds and dispatches by itself.
//!
//! Three steps, none of which touches a GPU:
//!
//! 1. A [`Profile`](crate::Profile) of the device: [`Profile::webgpu`](crate::Profile::webgpu), with what is known of it.
//! 2. A plan: [`Operation::plan`](crate::Operation::plan).
//! 3. Its dispatches: [`Plan::dispatches`](crate::Plan::dispatches).
//!
//! ```
//! use wgpu_norm::{Backward, DType, DataFormat, Norm, Operation, Profile, Tensor};
//!
//! let norm = Norm::batch(DataFormat::Nxc);
//! let operation = Operation::new(norm, Backward::default(), &[32, 7, 7, 64], DType::F32);
//! let plan = operation.plan(&Profile::webgpu("a GPU"))?;
//! let buffers = plan.buffers();
//! // Every tensor has a buffer of its own here, of just its size.
//! let room = |tensor| buffers.iter().find(|used| used.tensor == tensor).map(|used| used.bytes);
//! for dispatch in plan.dispatches(room)? {
//!     assert!(dispatch.kernel.wgsl().contains(dispatch.kernel.entry_point()));
//!     assert!(dispatch.bindings.iter().all(|binding| binding.tensor != Tensor::Dst));
//!     assert_eq!(dispatch.uniforms.len() % 16, 0);
//! }
//! # Ok::<(), wgpu_norm::Error>(())
//! ```

use crate::kernels::Variant;
use crate::{Tensor, plan};

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
    /// The contents of the uniform buffer at the binding after them, in group 0; a multiple of 16 bytes.
    pub uniforms: Vec<u8>,
}

/// A part of a tensor that a dispatch binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Binding {
    /// The tensor.
    pub tensor: Tensor,
    /// Where the part begins, in bytes from the tensor's start: a multiple of the profile's alignment, which the tensor's own
    /// start must be, too.
    pub offset: u64,
    /// Its bytes, a multiple of 4. More may be bound.
    pub size: u64,
    /// Whether the dispatch writes it.
    pub written: bool,
}

/// A kernel to compile: a key, to which one text belongs, so that it is compiled once.
///
/// Every binding is declared `read_write`, so that all of them may be parts of one buffer. It is safe to compile without bounds
/// checks, loop bounds and zeroed workgroup memory. The text is WGSL as naga takes it: where the profile has subgroups, f64 or
/// 64-bit words, it uses them without `enable`.
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

/// A plan's dispatch, where so many bytes of each tensor may be bound.
pub(crate) fn export(
    plan: &plan::Plan,
    dispatch: &plan::Dispatch,
    room: impl Fn(Tensor) -> u64,
) -> Dispatch {
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
