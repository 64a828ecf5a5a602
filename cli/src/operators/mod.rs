//! The operators: a subcommand each, which takes tensors from one safetensors file and puts gradients into another.
//!
//! | module | knows |
//! |---|---|
//! | one of each operator's name | its flags, its tensors and what shapes they have |
//! | `rows` | what the operators over rows share |
//! | `operator`, `tensors` | what all share, from tensors in the file to results |

mod batch_norm;
mod layer_norm;
mod operator;
mod rms_norm;
mod rows;
mod tensors;

use crate::args::GpuArgs;
use crate::failure::Failure;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
#[expect(clippy::enum_variant_names, reason = "the operators' names")]
pub enum Operators {
    BatchNormBackward(batch_norm::BatchNormBackward),
    LayerNormBackward(layer_norm::LayerNormBackward),
    RmsNormBackward(rms_norm::RmsNormBackward),
}

impl Operators {
    /// Runs the subcommand.
    pub fn run(&self, gpu: &GpuArgs) -> Result<(), Failure> {
        match self {
            Self::BatchNormBackward(command) => batch_norm::run(command, gpu),
            Self::LayerNormBackward(command) => layer_norm::run(command, gpu),
            Self::RmsNormBackward(command) => rms_norm::run(command, gpu),
        }
    }
}
