//! The groups of group and instance norm, as parts of an ID: `ncx`, or `nxc`; `groups_4` for so many of a sample's
//! channels, of which instance norm has one for each channel.

use super::ending::Ending;
use super::values::Values;
use crate::{DataFormat, GroupNormOptions, ParamGrads};

/// The shape of src, and its groups.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Groups {
    pub shape: Vec<usize>,
    pub format: DataFormat,
    /// Of a sample; none for one of each channel.
    groups: Option<usize>,
}

impl Groups {
    /// One group of all channels, as long as no part says how many.
    pub fn new(shape: &[usize]) -> Self {
        Self {
            groups: Some(1),
            ..Self::of_channels(shape)
        }
    }

    /// A group of each channel.
    pub fn of_channels(shape: &[usize]) -> Self {
        Self {
            shape: shape.to_vec(),
            format: DataFormat::Ncx,
            groups: None,
        }
    }

    pub fn is_instance(&self) -> bool {
        self.groups.is_none()
    }

    pub fn tokens(&self) -> Vec<String> {
        let format = match self.format {
            DataFormat::Ncx => "ncx",
            DataFormat::Nxc => "nxc",
        };
        let groups = self.groups.map(|groups| format!("groups_{groups}"));
        [Some(format.to_owned()), groups]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Takes a part of an ID, if it is one of these.
    pub fn set(&mut self, token: &str) -> bool {
        match (token, token.strip_prefix("groups_").map(str::parse)) {
            ("ncx", _) => self.format = DataFormat::Ncx,
            ("nxc", _) => self.format = DataFormat::Nxc,
            (_, Some(Ok(groups))) if !self.is_instance() => self.groups = Some(groups),
            _ => return false,
        }
        true
    }

    /// How many channels a sample has.
    pub fn channels(&self) -> usize {
        let size = match self.format {
            DataFormat::Ncx => self.shape.get(1),
            DataFormat::Nxc => self.shape.last(),
        };
        size.copied().unwrap_or_default()
    }

    /// How many groups a sample has.
    pub fn of_a_sample(&self) -> usize {
        self.groups.unwrap_or(self.channels())
    }

    /// How many groups there are.
    pub fn count(&self) -> usize {
        self.shape.first().copied().unwrap_or_default() * self.of_a_sample()
    }

    /// How many elements there are.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The groups of a sample that the reference takes: one, where all elements are alike.
    pub fn reference_groups(&self, values: Values) -> usize {
        match values {
            Values::Alike => 1,
            _ => self.of_a_sample(),
        }
    }

    pub fn options(
        &self,
        values: Values,
        param_grads: ParamGrads,
        ending: Ending,
    ) -> GroupNormOptions {
        GroupNormOptions {
            activation: ending.activation,
            epsilon: values.epsilon(),
            data_format: self.format,
            param_grads,
            ..GroupNormOptions::new(self.of_a_sample())
        }
    }
}
