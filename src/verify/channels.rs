//! Where batch norm's channels are, as parts of an ID: `ncx` or `nxc`, or `params_4x1x6` for parameters of src's rank.

use super::ending::Ending;
use super::numbers::read_shape;
use super::numbers::show_shape;
use super::values::Values;
use crate::{BatchNormOptions, DataFormat, reference};
use std::ops::Range;

#[derive(Clone, Debug, PartialEq)]
enum Place {
    /// Along one axis.
    Format(DataFormat),
    /// Along those where parameters of this shape have src's size.
    Params(Vec<usize>),
}

/// The shape of src, and its channels.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Channels {
    pub shape: Vec<usize>,
    place: Place,
}

impl Channels {
    pub fn new(shape: &[usize]) -> Self {
        Self {
            shape: shape.to_vec(),
            place: Place::Format(DataFormat::Nxc),
        }
    }

    pub fn token(&self) -> String {
        match &self.place {
            Place::Format(DataFormat::Ncx) => "ncx".to_owned(),
            Place::Format(DataFormat::Nxc) => "nxc".to_owned(),
            Place::Params(shape) => format!("params_{}", show_shape(shape)),
        }
    }

    /// Takes a part of an ID, if it is one of these.
    pub fn set(&mut self, token: &str) -> bool {
        match (token, token.strip_prefix("params_").and_then(read_shape)) {
            ("ncx", _) => self.place = Place::Format(DataFormat::Ncx),
            ("nxc", _) => self.place = Place::Format(DataFormat::Nxc),
            (_, Some(params)) => self.place = Place::Params(params),
            _ => return false,
        }
        true
    }

    pub fn options(&self, values: Values, ending: Ending) -> BatchNormOptions {
        BatchNormOptions {
            activation: ending.activation,
            data_format: match self.place {
                Place::Format(format) => format,
                Place::Params(_) => DataFormat::Nxc,
            },
            ..BatchNormOptions::new(values.epsilon())
        }
    }

    /// The shape of parameters of src's rank.
    pub fn params(&self) -> Option<&[usize]> {
        match &self.place {
            Place::Format(_) => None,
            Place::Params(shape) => Some(shape),
        }
    }

    pub fn axes(&self) -> Vec<bool> {
        match &self.place {
            Place::Format(format) => reference::channel_axes(self.shape.len(), *format),
            Place::Params(params) => {
                let pairs = self.shape.iter().zip(params);
                pairs.map(|(size, param)| size == param).collect()
            }
        }
    }

    /// How many channels there are.
    pub fn count(&self) -> usize {
        let axes = self.axes();
        let kept = self.shape.iter().zip(axes).filter(|(_, kept)| *kept);
        kept.map(|(size, _)| size).product()
    }

    /// How many elements there are.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The same of some of the samples, if axis 0 is one that is reduced.
    pub fn shard(&self, samples: &Range<usize>) -> Option<Self> {
        let mut shard = self.clone();
        match (&self.place, shard.shape.first_mut()) {
            (Place::Format(_), Some(size)) if samples.end <= *size => *size = samples.len(),
            _ => return None,
        }
        Some(shard)
    }
}
