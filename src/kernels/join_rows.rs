//! The kernel that joins words of diff_src of two rows.

use super::describe::{Constants, Describe, Uniform, constants, uniforms};
use super::{Entry, Kernel, Part, Tensor, parts};

constants! {
    struct JoinRows {}
}

uniforms! {
    struct JoinRowsUniforms {
        rows: u32,
        columns: u32,
        first_pair: u32,
        end_pair: u32,
        /// Workgroups along x.
        grid_width: u32,
        window: u32,
        halves: u32,
    }
}

impl Describe for JoinRows {
    const KERNEL: Kernel = Kernel::JoinRows;
    type Uniforms = JoinRowsUniforms;

    fn iterations(&self, _: &Self::Uniforms, _: u64) -> u64 {
        0
    }
}

pub(super) const ENTRY: Entry = Entry {
    name: "join_rows",
    text: &[
        Part::Always(parts::TILES),
        Part::Always(include_str!("../../shaders/join_rows.wgsl")),
    ],
    tensors: &[Tensor::Workspace, Tensor::DiffSrc],
    constants: JoinRows::SAMPLES,
    uniforms: JoinRowsUniforms::KIND,
    ..Entry::OVER_CHANNELS
};
