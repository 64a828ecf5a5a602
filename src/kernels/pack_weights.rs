//! The kernel that copies gamma or beta to the workspace.

use super::describe::{Constants, Uniform, constants, uniforms};
use super::files::file;
use super::{Body, Describe, Entry, Kernel};

constants! {
    struct PackWeights {
        /// It copies beta instead of gamma.
        of_beta: bool,
    }
}

uniforms! {
    struct PackWeightsUniforms {
        columns: u32,
        /// Where the weights begin in the workspace.
        weights: u32,
        /// Workgroups along x.
        grid_width: u32,
    }
}

impl Describe for PackWeights {
    const KERNEL: Kernel = Kernel::PackWeights;
    type Uniforms = PackWeightsUniforms;

    fn iterations(&self, _: Body, _: &Self::Uniforms, _: u64) -> u64 {
        0
    }
}

pub(super) const ENTRY: Entry = Entry {
    name: "pack_weights",
    file: file!("traversals/pack_weights"),
    constants: PackWeights::SAMPLES,
    uniforms: PackWeightsUniforms::KIND,
    gamma_length: "columns",
    ..Entry::OVER_CHANNELS
};
