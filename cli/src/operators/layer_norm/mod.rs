//! Layer norm: what its passes share.

pub mod backward;
pub mod forward;

use super::tensors::Arguments;
use crate::args::FileArgs;
use crate::attributes::{self, Choice, choice};
use crate::failure::Failure;
use crate::input::Input;
use crate::job::Job;
use clap::Args;
use wgpu_norm::LayerNormOptions;

#[derive(Debug, Args)]
pub struct LayerArgs {
    #[command(flatten)]
    pub files: FileArgs,
    /// The first axis that is normalized, with all after it; below 0 it counts from the end [default:
    /// the file's metadata, else -1]
    #[arg(long, value_name = "AXIS", allow_negative_numbers = true, value_parser = attributes::axis)]
    begin_norm_axis: Option<i64>,
    /// Whether gamma and beta belong to the layer; if false, a given gamma or beta is ignored [default: the file's
    /// metadata, else true]
    #[arg(long, value_name = bool::VALUE_NAME, value_parser = choice::<bool>(), ignore_case = true)]
    use_affine: Option<bool>,
    /// Added to the variance; above 0 [default: the file's metadata, else 1e-5]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, value_parser = attributes::epsilon)]
    epsilon: Option<f64>,
}

impl LayerArgs {
    fn options(&self, input: &Input) -> Result<LayerNormOptions, Failure> {
        let begin_norm_axis = attributes::number(
            self.begin_norm_axis,
            input,
            "begin_norm_axis",
            attributes::axis,
        )?;
        let use_affine = attributes::named(self.use_affine, input, "use_affine")?;
        let epsilon = attributes::number(self.epsilon, input, "epsilon", attributes::epsilon)?;
        let default = LayerNormOptions::default();
        Ok(LayerNormOptions {
            begin_norm_axis: begin_norm_axis.unwrap_or(default.begin_norm_axis),
            use_affine: use_affine.unwrap_or(default.use_affine),
            epsilon: epsilon.unwrap_or(default.epsilon),
            ..default
        })
    }
}

/// The attributes in force, for people.
fn attributes(options: &LayerNormOptions) -> String {
    format!(
        "begin_norm_axis {}, epsilon {:e}, use_affine {}",
        options.begin_norm_axis, options.epsilon, options.use_affine
    )
}

/// Adds gamma to an affine layer's tensors.
fn find_gamma(job: &Job, use_affine: bool, arguments: &mut Arguments) -> Result<(), Failure> {
    let input = &job.input;
    if use_affine {
        let gamma = input.tensor("gamma", " (use_affine is true)")?;
        arguments.params.push(gamma);
        return Ok(());
    }
    for name in ["gamma", "beta"] {
        if input.contains(name) {
            job.warn(format_args!("{name}: ignored, as use_affine is false"));
        }
    }
    Ok(())
}
