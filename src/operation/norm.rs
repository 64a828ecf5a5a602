//! The layers: which elements share statistics, and which share parameters.

use crate::{DataFormat, Error, Tensor, geometry};

/// A normalization layer.
///
/// A layer's *statistics* are mean and variance (biased) of the elements that are normalized together, of RMS norm the mean
/// of their squares. Its *parameters* are gamma and beta.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Norm {
    /// Batch norm: statistics and parameters are of each channel.
    Batch(Channels),
    /// Group norm: statistics are of each group of channels of a sample, parameters of each channel.
    Group {
        /// Groups of a sample's channels, all as large.
        groups: usize,
        /// Where the channel axis stands.
        format: DataFormat,
    },
    /// Instance norm: statistics are of each channel of a sample, parameters of each channel.
    Instance {
        /// Where the channel axis stands.
        format: DataFormat,
    },
    /// Layer norm: statistics are of each row, the elements that share the leading axes; parameters of each position in
    /// rows.
    Layer {
        /// The first axis of rows, from −rank to rank − 1; negative counts from the end.
        begin_axis: i64,
    },
    /// RMS norm, over rows as layer norm. It has no beta.
    Rms {
        /// The first axis of rows, from −rank to rank − 1; negative counts from the end.
        begin_axis: i64,
    },
}

/// Batch norm's channels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Channels {
    /// Along one axis.
    Axis(DataFormat),
    /// Along all axes where parameters of this shape, which has src's rank, have src's size; they have 1 along the others.
    Broadcast(Vec<usize>),
}

/// The channel axis of a tensor of some rank.
fn channel_axis(rank: usize, format: DataFormat) -> usize {
    match format {
        DataFormat::Ncx => 1,
        DataFormat::Nxc => rank.saturating_sub(1),
    }
}

impl Norm {
    /// Batch norm of channels along one axis.
    pub const fn batch(format: DataFormat) -> Self {
        Self::Batch(Channels::Axis(format))
    }

    /// Its name: `batch_norm`, `group_norm`, `instance_norm`, `layer_norm` or `rms_norm`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Batch(_) => "batch_norm",
            Self::Group { .. } => "group_norm",
            Self::Instance { .. } => "instance_norm",
            Self::Layer { .. } => "layer_norm",
            Self::Rms { .. } => "rms_norm",
        }
    }

    /// What has statistics of its own: `channel`, `group` or `row`.
    pub const fn unit(&self) -> &'static str {
        match self {
            Self::Batch(_) | Self::Instance { .. } => "channel",
            Self::Group { .. } => "group",
            Self::Layer { .. } | Self::Rms { .. } => "row",
        }
    }

    /// Its statistics.
    pub const fn statistics(&self) -> &'static [Tensor] {
        match self {
            Self::Rms { .. } => &[Tensor::MeanSquare],
            _ => &[Tensor::Mean, Tensor::Variance],
        }
    }

    /// Whether it normalizes rows.
    pub(crate) const fn is_over_rows(&self) -> bool {
        matches!(self, Self::Layer { .. } | Self::Rms { .. })
    }

    /// Whether statistics are of single samples, the first axis of src.
    pub(crate) fn is_of_samples(&self, shape: &[usize]) -> bool {
        match self {
            Self::Batch(_) => false,
            Self::Group { .. } | Self::Instance { .. } => true,
            Self::Layer { .. } | Self::Rms { .. } => self.rows(shape).is_none_or(|axis| axis > 0),
        }
    }

    /// How many groups a sample's channels make.
    pub(crate) fn groups(&self, shape: &[usize]) -> usize {
        match self {
            Self::Group { groups, .. } => *groups,
            Self::Instance { format } => {
                let axis = channel_axis(shape.len(), *format);
                // Too few axes are an error of their own.
                shape.get(axis).copied().unwrap_or(1)
            }
            _ => 1,
        }
    }

    /// An error if there is no such layer of a shape.
    pub(crate) fn check(&self, shape: &[usize]) -> Result<(), Error> {
        match self {
            Self::Batch(Channels::Axis(_)) => geometry::check_channels(shape),
            Self::Batch(Channels::Broadcast(params)) => geometry::check_broadcast(shape, params),
            Self::Group { format, .. } | Self::Instance { format } => {
                let axis = channel_axis(shape.len(), *format);
                geometry::check_groups(shape, axis, self.groups(shape))
            }
            Self::Layer { begin_axis } | Self::Rms { begin_axis } => {
                geometry::check_rows(shape, *begin_axis)
            }
        }
    }

    /// The first axis of rows.
    pub(super) fn rows(&self, shape: &[usize]) -> Option<usize> {
        match self {
            Self::Layer { begin_axis } | Self::Rms { begin_axis } => {
                geometry::first_row_axis(shape.len(), *begin_axis)
            }
            _ => None,
        }
    }

    /// The shape of the statistics of src of a shape that was checked.
    pub(crate) fn statistics_shape(&self, shape: &[usize]) -> Vec<usize> {
        match self {
            Self::Batch(_) => self.params_shape(shape),
            Self::Group { .. } | Self::Instance { .. } => {
                let samples = shape.first().copied().unwrap_or(1);
                vec![samples, self.groups(shape)]
            }
            Self::Layer { .. } | Self::Rms { .. } => {
                let rows = self.rows(shape).and_then(|axis| shape.get(..axis));
                rows.unwrap_or_default().to_vec()
            }
        }
    }

    /// The shape of gamma and beta beside src of a shape that was checked.
    pub(crate) fn params_shape(&self, shape: &[usize]) -> Vec<usize> {
        match self {
            Self::Batch(Channels::Broadcast(params)) => params.clone(),
            Self::Batch(Channels::Axis(format))
            | Self::Group { format, .. }
            | Self::Instance { format } => {
                let axis = channel_axis(shape.len(), *format);
                shape.get(axis).copied().into_iter().collect()
            }
            Self::Layer { .. } | Self::Rms { .. } => {
                let columns = self.rows(shape).and_then(|axis| shape.get(axis..));
                columns.unwrap_or_default().to_vec()
            }
        }
    }
}
