//! What is measured: operators and shapes.

use clap::ValueEnum;
use std::fmt;
use std::str::FromStr;

/// A gradient, by the layer's name alone, or a forward pass: those of `wgpu-norm bench`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Op {
    /// The gradient of batch norm over NCX: the second axis is the channel's.
    BatchNorm,
    /// The gradient of layer norm over the last axis.
    LayerNorm,
    /// The gradient of RMS norm over the last axis.
    RmsNorm,
    /// Batch norm in training: the output and the batch's statistics.
    BatchNormForward,
    /// Batch norm by given statistics.
    BatchNormInference,
    /// Layer norm: the output and the rows' statistics.
    LayerNormForward,
    /// RMS norm: the output and the rows' statistics.
    RmsNormForward,
    /// The gradient of group norm over NCX.
    GroupNorm,
    /// The gradient of instance norm over NCX.
    InstanceNorm,
    /// Group norm: the output and the groups' statistics.
    GroupNormForward,
    /// Instance norm: the output and the statistics of each sample's channels.
    InstanceNormForward,
}

/// What an operator normalizes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Groups {
    Channels,
    Rows,
    /// Some channels of one sample.
    OfSamples,
}

impl Op {
    const GRADIENTS: [Self; 5] = [
        Self::BatchNorm,
        Self::LayerNorm,
        Self::RmsNorm,
        Self::GroupNorm,
        Self::InstanceNorm,
    ];

    pub fn is_gradient(self) -> bool {
        Self::GRADIENTS.contains(&self)
    }

    pub fn groups(self) -> Groups {
        match self {
            Self::BatchNorm | Self::BatchNormForward | Self::BatchNormInference => Groups::Channels,
            Self::LayerNorm | Self::RmsNorm | Self::LayerNormForward | Self::RmsNormForward => {
                Groups::Rows
            }
            Self::GroupNorm
            | Self::InstanceNorm
            | Self::GroupNormForward
            | Self::InstanceNormForward => Groups::OfSamples,
        }
    }

    /// Whether statistics are given, not computed.
    pub fn takes_statistics(self) -> bool {
        self.is_gradient() || self == Self::BatchNormInference
    }

    /// Whether it subtracts a mean, and has beta: RMS norm does not.
    pub fn centers(self) -> bool {
        !matches!(self, Self::RmsNorm | Self::RmsNormForward)
    }

    /// Tensors of src's size that it reads or writes.
    fn large_tensors(self) -> usize {
        match self.is_gradient() {
            true => 3,
            false => 2,
        }
    }

    /// onednn.cpp and pytorch.py have the same.
    fn shapes(self) -> &'static [&'static [usize]] {
        match self.groups() {
            Groups::Channels => &[
                &[32, 64, 56, 56],
                &[32, 256, 14, 14],
                &[4, 64, 112, 112],
                &[8, 512, 28, 28],
                &[16, 1024, 14, 14],
                &[2, 3, 512, 512],
                &[4096, 256],
                &[4, 32, 64, 64, 64],
            ],
            Groups::Rows => &[&[4096, 768], &[512, 4096], &[65536, 64]],
            Groups::OfSamples => &[
                &[8, 256, 64, 64],
                &[32, 64, 56, 56],
                &[2, 320, 64, 64],
                &[8, 1280, 16, 16],
            ],
        }
    }
}

/// The name on the command line.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value()
            .map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}

/// Sizes of a tensor's axes, written with an x between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape(pub Vec<usize>);

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let size = |part: &str| match part.parse() {
            Ok(0) | Err(_) => Err(format!("'{part}' is not the size of an axis")),
            Ok(size) => Ok(size),
        };
        let sizes: Vec<usize> = text.split('x').map(size).collect::<Result<_, _>>()?;
        match sizes.len() {
            2..=5 => Ok(Self(sizes)),
            rank => Err(format!("rank {rank}; 2 to 5 are supported")),
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&sizes.join("x"))
    }
}

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub op: Op,
    pub shape: Shape,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.op, self.shape)
    }
}

/// Each operator, or gradient where none is named, with each shape, or its default ones.
pub fn cases(ops: &[Op], shapes: &[Shape]) -> Vec<Case> {
    let mut cases = Vec::new();
    for &op in if ops.is_empty() { &Op::GRADIENTS } else { ops } {
        let shapes = match shapes {
            [] => op.shapes().iter().map(|s| Shape(s.to_vec())).collect(),
            given => given.to_vec(),
        };
        cases.extend(shapes.into_iter().map(|shape| Case { op, shape }));
    }
    cases
}

impl Case {
    pub fn elements(&self) -> usize {
        self.shape.0.iter().product()
    }

    /// The tensor seen as (outer, channels, inner); where rows are normalized it is (rows, columns, 1).
    pub fn grid(&self) -> [usize; 3] {
        let sizes = &self.shape.0;
        match self.op.groups() {
            Groups::Channels | Groups::OfSamples => {
                [sizes[0], sizes[1], sizes[2..].iter().product()]
            }
            Groups::Rows => {
                let columns = sizes.last().copied().unwrap_or(1);
                [self.elements() / columns, columns, 1]
            }
        }
    }

    /// Groups of a sample's channels: of instance norm one for each, of group norm 32, as most networks have it, or the
    /// most below that divide the channels.
    pub fn channel_groups(&self) -> usize {
        let [_, channels, _] = self.grid();
        let most = match self.op {
            Op::InstanceNorm | Op::InstanceNormForward => channels,
            _ => channels.min(32),
        };
        let mut groups = (1..=most).rev();
        groups
            .find(|&groups| channels.is_multiple_of(groups))
            .unwrap_or(1)
    }

    /// How many channels, rows or groups are normalized.
    pub fn group_count(&self) -> usize {
        let [outer, channels, _] = self.grid();
        match self.op.groups() {
            Groups::Channels => channels,
            Groups::Rows => outer,
            Groups::OfSamples => outer * self.channel_groups(),
        }
    }

    /// The channel or (layer and RMS norm) column of an element, whose gamma and beta it has.
    pub fn channel(&self, i: usize) -> usize {
        let [_, channels, inner] = self.grid();
        i / inner % channels
    }

    /// The channel, row or group that an element is normalized with.
    pub fn group(&self, i: usize) -> usize {
        match self.op.groups() {
            Groups::Channels => self.channel(i),
            // Elements of a row or of a group lie side by side.
            Groups::Rows | Groups::OfSamples => i / (self.elements() / self.group_count()),
        }
    }

    /// How many sets of buffers take turns, so that small tensors do not stay in a cache.
    pub fn sets(&self) -> usize {
        const TOTAL: usize = 256 << 20;
        (TOTAL / (self.op.large_tensors() * 4 * self.elements())).clamp(1, 8)
    }
}
