//! Batch norm: what its passes share.

pub mod backward;
mod channels;
pub mod forward;
pub mod inference;

use super::through::{self, ActivationArgs};
use crate::args::FileArgs;
use crate::attributes::{self, Choice, Format, choice};
use crate::failure::Failure;
use crate::input::Input;
use channels::Channels;
use clap::Args;
use wgpu_norm::BatchNormOptions;

#[derive(Debug, Args)]
pub struct LayerArgs {
    #[command(flatten)]
    pub files: FileArgs,
    /// Added to the variance; above 0 [required unless the file's metadata has it]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, value_parser = attributes::epsilon)]
    epsilon: Option<f64>,
    /// Whether channels are axis 1 (NCX), the last axis (NXC), or the axes that parameters of src's rank
    /// keep (broadcast) [default: the file's metadata, else broadcast if all parameters have src's rank
    /// and that is above 1, else NXC]
    #[arg(long, value_name = Format::VALUE_NAME, value_parser = choice::<Format>(), ignore_case = true)]
    data_format: Option<Format>,
    #[command(flatten)]
    activation: ActivationArgs,
}

/// The attributes of every pass.
struct Layer {
    options: BatchNormOptions,
    channels: Channels,
}

impl LayerArgs {
    /// All options but the data format.
    fn options(&self, input: &Input) -> Result<BatchNormOptions, Failure> {
        let epsilon = attributes::number(self.epsilon, input, "epsilon", attributes::epsilon)?;
        let epsilon = epsilon.ok_or(Failure::NoAttribute {
            attribute: "epsilon",
        })?;
        Ok(BatchNormOptions {
            activation: self.activation.find(input)?,
            ..BatchNormOptions::new(epsilon)
        })
    }
}

impl Layer {
    fn new(options: BatchNormOptions, channels: Channels) -> Self {
        let options = BatchNormOptions {
            data_format: channels.data_format(),
            ..options
        };
        Self { options, channels }
    }

    /// The attributes in force, for people.
    fn attributes(&self) -> String {
        let (format, epsilon) = (self.channels.name(), self.options.epsilon);
        let activation = through::attribute(self.options.activation);
        format!("{format}, epsilon {epsilon:e}{activation}")
    }
}
