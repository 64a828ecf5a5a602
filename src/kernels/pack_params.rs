//! The kernel that copies a parameter to the workspace.

use super::describe::{constants, uniforms};
use super::files::{File, file};
use super::{Body, Describe, Kernel};

constants! {
    struct PackParams {}
}

uniforms! {
    struct PackParamsUniforms {
        parameters: u32,
        /// Where the copy begins in the workspace.
        copy: u32,
        /// Workgroups along x.
        grid_width: u32,
    }
}

impl Describe for PackParams {
    const KERNEL: Kernel = Kernel::PackParams;
    const FILE: File = file!("traversals/pack_params");
    type Uniforms = PackParamsUniforms;

    fn iterations(&self, _: Body, _: &Self::Uniforms, _: u64) -> u64 {
        0
    }
}
