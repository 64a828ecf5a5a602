//! Group norm and instance norm, which is group norm with a group for each channel: what their passes share.

pub mod backward;
pub mod forward;

use super::tensors::Arguments;
use super::through::{self, ActivationArgs};
use crate::args::FileArgs;
use crate::attributes::{self, Choice, choice};
use crate::failure::Failure;
use crate::input::Input;
use clap::Args;
use wgpu_norm::{DataFormat, GroupNormOptions};

#[derive(Debug, Args)]
pub struct LayerArgs {
    #[command(flatten)]
    pub files: FileArgs,
    /// Added to the variance; above 0 [default: the file's metadata, else 1e-5]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, value_parser = attributes::epsilon)]
    epsilon: Option<f64>,
    /// Whether channels are axis 1 (NCX) or the last axis (NXC) [default: the file's metadata, else NCX]
    #[arg(long, value_name = DataFormat::VALUE_NAME, value_parser = choice::<DataFormat>(), ignore_case = true)]
    data_format: Option<DataFormat>,
    #[command(flatten)]
    activation: ActivationArgs,
}

#[derive(Debug, Args)]
pub struct GroupArgs {
    #[command(flatten)]
    pub layer: LayerArgs,
    /// Groups of a sample's channels, which they divide [required unless the file's metadata has it]
    #[arg(long, value_name = "G", allow_negative_numbers = true, value_parser = attributes::count)]
    groups: Option<usize>,
}

impl LayerArgs {
    /// The options of instance norm of a tensor.
    fn of_channels(
        &self,
        input: &Input,
        arguments: &Arguments,
    ) -> Result<GroupNormOptions, Failure> {
        let options = self.options(input, 1)?;
        Ok(GroupNormOptions {
            // Too few axes are the library's error.
            groups: channels(arguments.src.shape(), options.data_format).unwrap_or(1),
            ..options
        })
    }

    fn options(&self, input: &Input, groups: usize) -> Result<GroupNormOptions, Failure> {
        let epsilon = attributes::number(self.epsilon, input, "epsilon", attributes::epsilon)?;
        let data_format = attributes::named(self.data_format, input, "data_format")?;
        let default = GroupNormOptions::new(groups);
        Ok(GroupNormOptions {
            epsilon: epsilon.unwrap_or(default.epsilon),
            data_format: data_format.unwrap_or(default.data_format),
            activation: self.activation.find(input)?,
            ..default
        })
    }
}

impl GroupArgs {
    fn options(&self, input: &Input) -> Result<GroupNormOptions, Failure> {
        let groups = attributes::number(self.groups, input, "groups", attributes::count)?;
        let groups = groups.ok_or(Failure::NoAttribute {
            attribute: "groups",
        })?;
        self.layer.options(input, groups)
    }
}

/// The size of the channel axis, if src has one.
fn channels(src: &[usize], format: DataFormat) -> Option<usize> {
    match format {
        DataFormat::Ncx => src.get(1).copied(),
        DataFormat::Nxc => src.last().copied(),
    }
}

/// The shapes of statistics and parameters.
fn shapes(src: &[usize], options: &GroupNormOptions) -> [Vec<usize>; 2] {
    let samples = src.first().copied().into_iter();
    [
        samples.chain([options.groups]).collect(),
        channels(src, options.data_format).into_iter().collect(),
    ]
}

/// A failure if a statistic is not of shape [N, G], for instance norm [N, C], or a parameter not of [C].
fn check_shapes(
    arguments: &Arguments,
    options: &GroupNormOptions,
    instance: bool,
) -> Result<(), Failure> {
    let src = arguments.src.shape();
    let [statistics, params] = shapes(src, options);
    let groups = options.groups;
    let why = match instance {
        true => " (one per channel of each sample)".to_owned(),
        false => format!(" (one per group of each sample; groups is {groups})"),
    };
    // Where groups do not divide the channels, the library says so: no shape would fit.
    let divided = channels(src, options.data_format).is_some_and(|c| c.is_multiple_of(groups));
    for tensor in arguments.statistics.iter().filter(|_| divided) {
        tensor.expect_shape(&[&statistics], &why)?;
    }
    for tensor in &arguments.params {
        tensor.expect_shape(&[&params], " (one per channel of src)")?;
    }
    Ok(())
}

/// The attributes in force, for people.
fn attributes(options: &GroupNormOptions) -> String {
    format!(
        "{} groups, {}, epsilon {:e}{}",
        options.groups,
        options.data_format.name(),
        options.epsilon,
        through::attribute(options.activation)
    )
}
