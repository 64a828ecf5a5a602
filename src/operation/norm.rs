//! The layers: which elements share statistics, and which share parameters.

use crate::error::Error;
use crate::geometry;
use crate::options::DataFormat;
use crate::tensor::Tensor;

/// A normalization layer.
///
/// A layer's *statistics* are the mean and the biased variance of the elements that are normalized together, or for RMS
/// norm the mean of their squares. Its *parameters* are gamma, beta and the gate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Norm {
    /// Batch norm: each channel has its own statistics and parameters.
    Batch(Channels),
    /// Group norm: each group of channels of a sample has its own statistics, each channel its own parameters.
    #[non_exhaustive]
    Group {
        /// The number of groups of a sample's channels, all of the same size.
        groups: usize,
        /// Where the channel axis is.
        format: DataFormat,
    },
    /// Instance norm: each channel of a sample has its own statistics, each channel its own parameters.
    #[non_exhaustive]
    Instance {
        /// Where the channel axis is.
        format: DataFormat,
    },
    /// Layer norm: each row, which consists of the elements with the same indices along the leading axes, has its own
    /// statistics; each position in a row has its own parameters.
    #[non_exhaustive]
    Layer {
        /// The first axis of rows, from −rank to rank − 1; a negative axis counts from the end. Errors call it
        /// `begin_norm_axis`.
        begin_norm_axis: i64,
    },
    /// RMS norm, over rows like layer norm. It has no beta.
    #[non_exhaustive]
    Rms {
        /// The first axis of rows, from −rank to rank − 1; a negative axis counts from the end. Errors call it
        /// `begin_norm_axis`.
        begin_norm_axis: i64,
    },
    /// Norm over any axes, with parameters along any axes. Both are sets of axes from −rank to rank − 1; a negative
    /// axis counts from the end.
    #[non_exhaustive]
    Axes {
        /// The axes that the statistics are taken over, at least one.
        axes: Vec<i64>,
        /// The axes that gamma, beta and a gate vary along; along none, each is a single number. They are stored in the
        /// order of src's axes, whatever the order here.
        param_axes: Vec<i64>,
        /// Whether elements are centered: mean and variance are the statistics. If not, the mean of squares is, as in
        /// RMS norm.
        centered: bool,
    },
}

/// An axis of src; axes are listed from the outermost on. Group norm's channel axis counts as two: the groups, and the
/// channels of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Axis {
    /// Its size.
    pub size: usize,
    /// Whether the statistics are taken over it; else they vary along it.
    pub reduced: bool,
    /// Whether gamma and beta vary along it.
    pub parameter: bool,
}

/// Batch norm's channels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Channels {
    /// Along one axis.
    Axis(DataFormat),
    /// Along all axes where the parameters, of this shape, have src's size. The shape has src's rank, and size 1 along
    /// the other axes.
    Broadcast(Vec<usize>),
}

impl DataFormat {
    /// The channel axis of a tensor of some rank.
    pub(super) fn axis(self, rank: usize) -> usize {
        match self {
            Self::Ncx => 1,
            Self::Nxc => rank.saturating_sub(1),
        }
    }
}

/// Whether an axis, counted from 0, is one of these, which may count from the end.
fn is_among(axes: &[i64], rank: usize, axis: usize) -> bool {
    let mut counted = axes
        .iter()
        .map(|&axis| geometry::axis_from_start(rank, axis));
    counted.any(|one| one == Some(axis))
}

/// The sizes of some axes.
fn sizes_where(shape: &[usize], is_one: impl Fn(usize) -> bool) -> Vec<usize> {
    let sizes = shape.iter().enumerate().filter(|(at, _)| is_one(*at));
    sizes.map(|(_, &size)| size).collect()
}

impl Norm {
    /// Batch norm of channels along one axis.
    pub const fn batch(format: DataFormat) -> Self {
        Self::Batch(Channels::Axis(format))
    }

    /// Group norm.
    pub const fn group(groups: usize, format: DataFormat) -> Self {
        Self::Group { groups, format }
    }

    /// Instance norm.
    pub const fn instance(format: DataFormat) -> Self {
        Self::Instance { format }
    }

    /// Layer norm over the axes from `begin_norm_axis` on.
    pub const fn layer(begin_norm_axis: i64) -> Self {
        Self::Layer { begin_norm_axis }
    }

    /// RMS norm over the axes from `begin_norm_axis` on.
    pub const fn rms(begin_norm_axis: i64) -> Self {
        Self::Rms { begin_norm_axis }
    }

    /// Norm over some axes, with parameters along some axes, by mean and variance.
    pub fn axes(axes: &[i64], param_axes: &[i64]) -> Self {
        Self::Axes {
            axes: axes.to_vec(),
            param_axes: param_axes.to_vec(),
            centered: true,
        }
    }

    /// An axes norm with or without the mean subtracted; another norm as it is.
    #[must_use]
    pub fn centered(mut self, is_centered: bool) -> Self {
        if let Self::Axes { centered, .. } = &mut self {
            *centered = is_centered;
        }
        self
    }

    /// Its name: `batch_norm`, `group_norm`, `instance_norm`, `layer_norm`, `rms_norm` or `axes_norm`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Batch(_) => "batch_norm",
            Self::Group { .. } => "group_norm",
            Self::Instance { .. } => "instance_norm",
            Self::Layer { .. } => "layer_norm",
            Self::Rms { .. } => "rms_norm",
            Self::Axes { .. } => "axes_norm",
        }
    }

    /// The unit that has its own statistics: `channel`, `group`, `row` or `set`.
    pub const fn unit(&self) -> &'static str {
        match self {
            Self::Batch(_) | Self::Instance { .. } => "channel",
            Self::Group { .. } => "group",
            Self::Layer { .. } | Self::Rms { .. } => "row",
            Self::Axes { .. } => "set",
        }
    }

    /// Whether the mean is subtracted. If not, the statistic is the mean of squares.
    pub const fn is_centered(&self) -> bool {
        !matches!(
            self,
            Self::Rms { .. }
                | Self::Axes {
                    centered: false,
                    ..
                }
        )
    }

    /// Its statistics.
    pub const fn statistics(&self) -> &'static [Tensor] {
        if self.is_centered() {
            &[Tensor::Mean, Tensor::Variance]
        } else {
            &[Tensor::MeanSquare]
        }
    }

    /// The first axis of rows, for layer and RMS norm.
    pub const fn begin_norm_axis(&self) -> Option<i64> {
        match self {
            Self::Layer { begin_norm_axis } | Self::Rms { begin_norm_axis } => {
                Some(*begin_norm_axis)
            }
            _ => None,
        }
    }

    /// Where the channel axis is, if there is one.
    pub(super) const fn format(&self) -> Option<DataFormat> {
        match self {
            Self::Batch(Channels::Axis(format))
            | Self::Group { format, .. }
            | Self::Instance { format } => Some(*format),
            _ => None,
        }
    }

    /// Whether it normalizes rows.
    pub(crate) const fn is_over_rows(&self) -> bool {
        self.begin_norm_axis().is_some()
    }

    /// Whether it may have beta.
    pub const fn has_beta(&self) -> bool {
        !matches!(self, Self::Rms { .. })
    }

    /// Whether it may have a gate.
    pub const fn has_gate(&self) -> bool {
        matches!(self, Self::Axes { .. })
    }

    /// Whether each statistic belongs to a single sample: an index of src's first axis.
    pub(crate) fn is_of_samples(&self, shape: &[usize]) -> bool {
        match self {
            Self::Batch(_) => false,
            Self::Group { .. } | Self::Instance { .. } => true,
            Self::Layer { .. } | Self::Rms { .. } => self.rows(shape).is_none_or(|axis| axis > 0),
            Self::Axes { axes, .. } => !is_among(axes, shape.len(), 0),
        }
    }

    /// Whether each sample has parameters of its own.
    pub(crate) fn has_params_of_samples(&self, shape: &[usize]) -> bool {
        match self {
            Self::Axes { param_axes, .. } => is_among(param_axes, shape.len(), 0),
            _ => false,
        }
    }

    /// The number of groups of a sample's channels.
    pub(crate) fn groups(&self, shape: &[usize]) -> usize {
        match self {
            Self::Group { groups, .. } => *groups,
            Self::Instance { format } => {
                let axis = format.axis(shape.len());
                // Another check reports too few axes.
                shape.get(axis).copied().unwrap_or(1)
            }
            _ => 1,
        }
    }

    /// An error if the layer does not support this shape.
    pub(crate) fn check(&self, shape: &[usize]) -> Result<(), Error> {
        match self {
            Self::Batch(Channels::Axis(_)) => geometry::check_channels(shape),
            Self::Batch(Channels::Broadcast(params)) => geometry::check_broadcast(shape, params),
            Self::Group { format, .. } | Self::Instance { format } => {
                let axis = format.axis(shape.len());
                geometry::check_groups(shape, axis, self.groups(shape))
            }
            Self::Layer { begin_norm_axis } | Self::Rms { begin_norm_axis } => {
                geometry::check_rows(shape, *begin_norm_axis)
            }
            Self::Axes {
                axes, param_axes, ..
            } => {
                geometry::check_rank("src", 1..=geometry::MAX_RANK, shape.len())?;
                geometry::elements("src", shape)?;
                if axes.is_empty() {
                    let expected = "at least one axis, over which the statistics are taken";
                    return Err(Error::argument("axes", expected, "none"));
                }
                geometry::check_axes("axes", shape.len(), axes)?;
                geometry::check_axes("param_axes", shape.len(), param_axes)
            }
        }
    }

    /// The first axis of rows, counted from 0.
    fn rows(&self, shape: &[usize]) -> Option<usize> {
        let begin_norm_axis = self.begin_norm_axis()?;
        geometry::axis_from_start(shape.len(), begin_norm_axis)
    }

    /// The shape of the statistics, for src of a checked shape.
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
            Self::Axes { axes, .. } => sizes_where(shape, |at| !is_among(axes, shape.len(), at)),
        }
    }

    /// The shape of gamma and beta, for src of a checked shape.
    pub(crate) fn params_shape(&self, shape: &[usize]) -> Vec<usize> {
        match self {
            Self::Batch(Channels::Broadcast(params)) => params.clone(),
            Self::Axes { param_axes, .. } => {
                sizes_where(shape, |at| is_among(param_axes, shape.len(), at))
            }
            Self::Batch(Channels::Axis(format))
            | Self::Group { format, .. }
            | Self::Instance { format } => {
                let axis = format.axis(shape.len());
                shape.get(axis).copied().into_iter().collect()
            }
            Self::Layer { .. } | Self::Rms { .. } => {
                let columns = self.rows(shape).and_then(|axis| shape.get(axis..));
                columns.unwrap_or_default().to_vec()
            }
        }
    }

    /// The axes of src of this shape, in storage order.
    pub(super) fn axes_of(&self, shape: &[usize]) -> Vec<Axis> {
        let channel = |format: &DataFormat| format.axis(shape.len());
        let sizes = shape.iter().copied().enumerate();
        match self {
            Self::Batch(Channels::Axis(format)) => {
                let channel = channel(format);
                sizes
                    .map(|(at, size)| one(size, at != channel, at == channel))
                    .collect()
            }
            Self::Batch(Channels::Broadcast(params)) => {
                let pairs = shape.iter().zip(params);
                pairs
                    .map(|(&size, &param)| one(size, size != param, size == param))
                    .collect()
            }
            Self::Group { format, .. } | Self::Instance { format } => {
                let (channel, groups) = (channel(format), self.groups(shape));
                let each = sizes.flat_map(|(at, size)| match at {
                    0 => vec![one(size, false, false)],
                    _ if at == channel => {
                        let of_a_group = size.checked_div(groups).unwrap_or(0);
                        vec![one(groups, false, true), one(of_a_group, true, true)]
                    }
                    _ => vec![one(size, true, false)],
                });
                each.collect()
            }
            Self::Layer { .. } | Self::Rms { .. } => {
                let rows = self.rows(shape).unwrap_or(0);
                sizes
                    .map(|(at, size)| one(size, at >= rows, at >= rows))
                    .collect()
            }
            Self::Axes {
                axes, param_axes, ..
            } => {
                let is_one = |set: &[i64], at| is_among(set, shape.len(), at);
                sizes
                    .map(|(at, size)| one(size, is_one(axes, at), is_one(param_axes, at)))
                    .collect()
            }
        }
    }
}

const fn one(size: usize, reduced: bool, parameter: bool) -> Axis {
    Axis {
        size,
        reduced,
        parameter,
    }
}
