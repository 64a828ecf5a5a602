//! What tells the channels of src: one of its axes, or the shape of parameters of its rank.

use super::super::tensors::Arguments;
use crate::attributes::{self, Choice as _, Format};
use crate::failure::Failure;
use crate::input::Tensor;
use crate::job::Job;
use wgpu_norm::reference::channel_axes;
use wgpu_norm::{DataFormat, Error};

pub enum Channels {
    Axis(DataFormat),
    /// The axes along which parameters of this shape have src's size and not 1.
    Broadcast(Vec<usize>),
}

impl Channels {
    /// As the flag, the file's metadata or the parameters' ranks tell; a failure if a parameter has another shape.
    pub fn find(job: &Job, flag: Option<Format>, arguments: &Arguments) -> Result<Self, Failure> {
        let format = attributes::named(flag, &job.input, "data_format")?;
        if format.is_none() {
            warn_if_ambiguous(job, arguments);
        }
        match format.unwrap_or_else(|| recognize(arguments)) {
            Format::Axis(data_format) => {
                check_channels(arguments, data_format)?;
                Ok(Self::Axis(data_format))
            }
            Format::Broadcast => Ok(Self::Broadcast(broadcast_shape(arguments)?)),
        }
    }

    /// An error if samples may not be src's first axis.
    pub fn check_samples(&self) -> Result<(), Error> {
        match self {
            Self::Axis(_) => Ok(()),
            Self::Broadcast(_) => Err(Error::Argument {
                argument: "data_format",
                expected: "NCX or NXC, whose first axis ranks share".to_owned(),
                got: self.name().to_owned(),
            }),
        }
    }

    /// The format's name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Axis(format) => Format::Axis(*format).name(),
            Self::Broadcast(_) => Format::Broadcast.name(),
        }
    }

    /// What the layer's options say; with broadcast parameters it does not count.
    pub fn data_format(&self) -> DataFormat {
        match self {
            Self::Axis(format) => *format,
            Self::Broadcast(_) => DataFormat::default(),
        }
    }

    /// The shape of parameters beside src.
    pub fn shape(&self, src: &[usize]) -> Vec<usize> {
        match self {
            Self::Axis(format) => channel_size(src, *format).into_iter().collect(),
            Self::Broadcast(shape) => shape.clone(),
        }
    }

    /// Which axes of src are the channels'.
    pub fn axes(&self, src: &[usize]) -> Vec<bool> {
        match self {
            Self::Axis(format) => channel_axes(src.len(), *format),
            Self::Broadcast(shape) => shape.iter().zip(src).map(|(p, s)| p == s).collect(),
        }
    }
}

/// The size of the channel axis, if src has one.
fn channel_size(src: &[usize], format: DataFormat) -> Option<usize> {
    match format {
        DataFormat::Ncx => src.get(1).copied(),
        DataFormat::Nxc => src.last().copied(),
    }
}

/// The format that the parameters' ranks tell; of one axis they tell nothing.
fn recognize(arguments: &Arguments) -> Format {
    let rank = arguments.src.shape().len();
    let mut ranks = arguments.of_groups().map(|param| param.shape().len());
    match ranks.next() {
        Some(first) if rank > 1 && first == rank && ranks.all(|other| other == rank) => {
            Format::Broadcast
        }
        _ => Format::Axis(DataFormat::default()),
    }
}

/// The default is NXC; a file that does not tell may mean that axis 1 is the channels.
fn warn_if_ambiguous(job: &Job, arguments: &Arguments) {
    let [_, second, .., last] = arguments.src.shape() else {
        return;
    };
    match arguments.of_groups().next().map(Tensor::shape) {
        Some([channels]) if second == last && last == channels => job.warn(
            "data_format: not given, so NXC, channels last; axis 1 has as many (--data-format NCX)",
        ),
        None => job.warn(
            "data_format: not given, so NXC, channels last; no parameter tells (--data-format NCX)",
        ),
        _ => {}
    }
}

/// A failure if a parameter is not of shape `[C]`.
fn check_channels(arguments: &Arguments, format: DataFormat) -> Result<(), Failure> {
    let src = arguments.src.shape();
    if src.len() == 1 {
        return Err(Failure::RankOne);
    }
    // Without such an axis the rank is out of range, which the library says.
    let Some(channels) = channel_size(src, format) else {
        return Ok(());
    };
    let mut params = arguments.of_groups();
    params.try_for_each(|p| p.expect_shape(&[&[channels]], " (one per channel of src)"))
}

/// The parameters' shape; a failure if one cannot be broadcast to src, or they are not all of one shape.
fn broadcast_shape(arguments: &Arguments) -> Result<Vec<usize>, Failure> {
    let Some(first) = arguments.of_groups().next() else {
        return Err(Failure::Library(Error::Argument {
            argument: "data_format",
            expected: "NCX or NXC where there is no parameter whose shape tells the axes"
                .to_owned(),
            got: Format::Broadcast.name().to_owned(),
        }));
    };
    for param in arguments.of_groups() {
        expect_broadcast(param, &arguments.src)?;
        param.expect_shape(&[first.shape()], &format!(" as {}", first.name()))?;
    }
    Ok(first.shape().to_vec())
}

fn expect_broadcast(param: &Tensor, src: &Tensor) -> Result<(), Failure> {
    if param.shape().len() != src.shape().len() {
        return param.expect_shape(&[src.shape()], " with 1 along the axes that are reduced");
    }
    let axes = param.shape().iter().zip(src.shape()).enumerate();
    for (axis, (&got, &size)) in axes {
        if got != 1 && got != size {
            let expected = match size {
                1 => format!("size 1 along axis {axis}"),
                _ => format!("size 1 or {size} along axis {axis}"),
            };
            return Err(Failure::Library(Error::Argument {
                argument: param.name(),
                expected,
                got: got.to_string(),
            }));
        }
    }
    Ok(())
}
