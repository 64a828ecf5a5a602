//! The kernel that copies a parameter to the workspace.

use super::describe::{Constants, Uniform, constants, uniforms};
use super::files::file;
use super::{Body, Describe, Entry, Kernel};

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
    type Uniforms = PackParamsUniforms;

    fn iterations(&self, _: Body, _: &Self::Uniforms, _: u64) -> u64 {
        0
    }
}

pub(super) const ENTRY: Entry = Entry {
    name: "pack_params",
    file: file!("traversals/pack_params"),
    constants: PackParams::SAMPLES,
    uniforms: PackParamsUniforms::KIND,
    gamma_length: "parameters",
    ..Entry::OVER_CHANNELS
};
