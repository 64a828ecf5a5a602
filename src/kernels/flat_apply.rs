//! The elementwise pass of a forward pass that writes a mask.

use super::describe::{constants, uniforms};
use super::files::{File, file};
use super::shared_uniforms::{GeneralSizes, TileRange};
use super::{Body, Describe, Kernel};

constants! {
    struct FlatApply {
        general: bool,
        /// Where axes are general, the last one is kept.
        keeps_last: bool,
        /// Channels are those of all samples, and a sample's alternate in its rows.
        sampled: bool,
    }
}

uniforms! {
    struct FlatApplyUniforms {
        /// Channels that alternate: those of a sample, if it is `sampled`.
        row_channels: u32,
        /// Elements in a plane; with general axes, in a row.
        inner: u32,
        /// Elements in a sample.
        sample: u32,
        range: TileRange,
        /// Where the records of channels begin in the workspace.
        stats: u32,
        axes: GeneralSizes,
    }
}

impl Describe for FlatApply {
    const KERNEL: Kernel = Kernel::FlatApply;
    const FILE: File = file!("traversals/flat_apply");
    type Uniforms = FlatApplyUniforms;

    fn iterations(&self, _: Body, _: &Self::Uniforms, _: u64) -> u64 {
        8 + 8
    }
}
