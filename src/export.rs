//! Plans and kernels for a framework that compiles, binds and dispatches by itself.
//!
//! Three steps, none of which touches a GPU:
//!
//! 1. A [`Profile`](crate::Profile) of the device: [`Profile::webgpu`](crate::Profile::webgpu), completed with what is
//!    known of the device.
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

use crate::f16_encoder::{F16Encoder, PROBE_WORKGROUP};
use crate::kernels::{self, Variant};
use crate::plan;
use crate::tensor::Tensor;
use std::collections::HashMap;
use std::sync::Arc;

/// One dispatch of a plan. A dispatch sees what those before it wrote.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Dispatch {
    /// The kernel that is dispatched.
    pub kernel: Kernel,
    /// Workgroups along x and y; one along z.
    pub workgroups: [u32; 2],
    /// The storage buffers at the bindings from 0 on, in group 0.
    pub bindings: Vec<Binding>,
    /// The contents of the uniform buffer, a multiple of 16 bytes. Its binding follows those of the storage buffers, in
    /// group 0.
    pub uniforms: Vec<u8>,
}

/// A part of a tensor that a dispatch binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Binding {
    /// The tensor.
    pub tensor: Tensor,
    /// Offset of the part from the tensor's start, in bytes: a multiple of the profile's alignment. The tensor's own
    /// start must be one too.
    pub offset: u64,
    /// Size of the part in bytes, a multiple of 4. More may be bound.
    pub size: u64,
    /// Whether the dispatch writes it.
    pub written: bool,
}

/// A kernel to compile. It serves as a key: equal kernels have the same text, so each is compiled once. Equal kernels
/// of a plan share their text, too.
///
/// Every binding is declared `read_write`, so that all of them may be parts of one buffer. The kernel is safe to
/// compile without bounds checks, loop bounds and zeroed workgroup memory. The text is WGSL as naga accepts it: if the
/// profile has subgroups, f64 or 64-bit words, the text uses them without `enable`; with [`F16Encoder::Cast`] it begins
/// with `enable f16;`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kernel {
    entry_point: &'static str,
    workgroup_size: u32,
    text: Arc<str>,
}

impl Kernel {
    fn new(variant: &Variant) -> Self {
        Self {
            entry_point: variant.kernel.entry().name(),
            workgroup_size: variant.workgroup_size,
            text: variant.wgsl().into(),
        }
    }

    /// The kernel by which a device is probed for [`Profile::f16_encoder`](crate::Profile::f16_encoder): it rounds
    /// [`F16Encoder::numbers`] at binding 0 to f16 at binding 1, four in each invocation. It has no uniforms.
    pub fn f16_probe(encoder: F16Encoder) -> Self {
        Self {
            entry_point: kernels::F16_PROBE,
            workgroup_size: PROBE_WORKGROUP,
            text: kernels::f16_probe(encoder).into(),
        }
    }

    /// The name of the entry point.
    pub fn entry_point(&self) -> &'static str {
        self.entry_point
    }

    /// Invocations of a workgroup, all of them along x.
    pub fn workgroup_size(&self) -> u32 {
        self.workgroup_size
    }

    /// The text: WGSL without override constants.
    pub fn wgsl(&self) -> String {
        self.text.to_string()
    }
}

/// Exports a plan's dispatch. `room` returns the number of bytes that may be bound of a tensor; `kernels` are those so
/// far.
pub(crate) fn export(
    plan: &plan::Plan,
    dispatch: &plan::Dispatch,
    room: impl Fn(Tensor) -> u64,
    kernels: &mut HashMap<Variant, Kernel>,
) -> Dispatch {
    let bound: Vec<_> = dispatch.bindings.iter().collect();
    let beyond = bound.iter().filter(|b| b.bytes.end > room(b.tensor));
    let variant = Variant {
        pooled: true,
        exact: beyond.map(|binding| binding.tensor).collect(),
        f16_encoder: plan.f16_encoder,
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
    let variant = variant.normalized();
    let kernel = kernels.entry(variant).or_insert_with_key(Kernel::new);
    Dispatch {
        bindings: bindings.collect(),
        kernel: kernel.clone(),
        workgroups: dispatch.workgroups,
        uniforms: dispatch.uniforms.bytes(plan.types.data.accumulator()),
    }
}
