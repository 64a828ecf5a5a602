//! What a stream keeps in memory, and how large its windows may be.

use super::pieces::is_streamed;
use crate::kernels::Tensor;
use crate::plan::{Plan, Requirement};

/// Bytes that are read or written at once.
pub(super) const CHUNK: u64 = 1 << 20;

/// Elements by which windows may be longer than the largest one of src: each begins at an aligned place, that of a mask at a
/// multiple of 2048.
const AROUND: u64 = 4096;

/// Bytes that a stream takes: host and device together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Memory {
    /// Tensors that stay, and the workspace.
    resident: u64,
    /// Bits for each element of a window: of buffers on the device; of two pieces on their way there, and of one that wgpu
    /// has not let go of yet; of two on their way back.
    window_bits: u64,
    /// Bytes of an element of src.
    element: u64,
}

impl Memory {
    pub fn of(plan: &Plan) -> Self {
        let tensors = || plan.tensors.iter().filter(|r| r.tensor != Tensor::Sums);
        let resident = tensors().filter(|r| !is_streamed(r.tensor));
        let resident = resident.fold(plan.workspace_bytes, |bytes, r| {
            bytes.saturating_add(r.padded_bytes())
        });
        let bits = |requirement: &Requirement| match requirement.tensor {
            Tensor::Mask => 1,
            _ => 8 * requirement.dtype.size(),
        };
        let window_bits = tensors().filter(|r| is_streamed(r.tensor)).map(|r| {
            let on_device = match is_over_diff_dst(plan, r.tensor) {
                true => 0,
                false => bits(r),
            };
            let on_the_way = if plan.writes(r.tensor) { 2 } else { 3 };
            on_device + on_the_way * bits(r)
        });
        Self {
            resident: resident.saturating_add(4 * CHUNK),
            window_bits: window_bits.sum(),
            element: plan.types.data.size(),
        }
    }

    /// The bytes of a window of src that a budget allows.
    pub fn window(&self, budget: u64) -> u64 {
        let bits = budget.saturating_sub(self.resident).saturating_mul(8);
        (bits / self.window_bits.max(1)).saturating_sub(AROUND) * self.element
    }

    /// The budget that windows of so many bytes of src need.
    pub fn budget(&self, window: u64) -> u64 {
        let elements = window.div_ceil(self.element.max(1)).saturating_add(AROUND);
        let windows = elements.saturating_mul(self.window_bits).div_ceil(8);
        self.resident.saturating_add(windows)
    }
}

/// Whether a tensor lies over diff_dst on the device.
pub(super) fn is_over_diff_dst(plan: &Plan, tensor: Tensor) -> bool {
    tensor == Tensor::DiffSrc && plan.requirement(Tensor::DiffDst).is_some()
}
