//! RMS norm: what its passes share.

pub mod backward;
pub mod forward;

use crate::args::FileArgs;
use crate::attributes;
use crate::failure::Failure;
use crate::input::Input;
use clap::Args;
use wgpu_norm::RmsNormOptions;

#[derive(Debug, Args)]
pub struct LayerArgs {
    #[command(flatten)]
    pub files: FileArgs,
    /// The first axis that is normalized, with all after it; below 0 it counts from the end [default:
    /// the file's metadata, else -1]
    #[arg(long, value_name = "AXIS", allow_negative_numbers = true, value_parser = attributes::axis)]
    begin_norm_axis: Option<i64>,
    /// Added to the mean of squares; above 0 [default: the file's metadata, else 1e-5]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, value_parser = attributes::epsilon)]
    epsilon: Option<f64>,
}

impl LayerArgs {
    fn options(&self, input: &Input) -> Result<RmsNormOptions, Failure> {
        let begin_norm_axis = attributes::number(
            self.begin_norm_axis,
            input,
            "begin_norm_axis",
            attributes::axis,
        )?;
        let epsilon = attributes::number(self.epsilon, input, "epsilon", attributes::epsilon)?;
        let default = RmsNormOptions::default();
        Ok(RmsNormOptions {
            begin_norm_axis: begin_norm_axis.unwrap_or(default.begin_norm_axis),
            epsilon: epsilon.unwrap_or(default.epsilon),
            ..default
        })
    }
}

/// The attributes in force, for people.
fn attributes(options: &RmsNormOptions) -> String {
    format!(
        "begin_norm_axis {}, epsilon {:e}",
        options.begin_norm_axis, options.epsilon
    )
}
