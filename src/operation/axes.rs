//! The two sets of axes that a layer is made of.

use super::{Channels, Norm, Operation};
use crate::DataFormat;

/// An axis of src, from the outermost on. Group norm's channels are two of them: the groups, and the channels of a group.
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

impl Operation {
    /// The axes of src, in storage order.
    ///
    /// | | statistics reduce | parameters vary along |
    /// |---|---|---|
    /// | batch norm | N, X | C |
    /// | instance norm | X | C |
    /// | group norm | C/G, X | G, C/G |
    /// | layer, RMS norm | trailing axes | the same |
    ///
    /// ```
    /// use wgpu_norm::{DType, DataFormat, Forward, Norm, Operation};
    /// let norm = Norm::Group { groups: 2, format: DataFormat::Ncx };
    /// let axes = Operation::new(norm, Forward::default(), &[5, 6, 7], DType::F32).axes();
    /// let sizes: Vec<_> = axes.iter().map(|axis| (axis.size, axis.reduced, axis.parameter)).collect();
    /// assert_eq!(sizes, [(5, false, false), (2, false, true), (3, true, true), (7, true, false)]);
    /// ```
    pub fn axes(&self) -> Vec<Axis> {
        let channel = |format: &DataFormat| match format {
            DataFormat::Ncx => 1,
            DataFormat::Nxc => self.shape.len().saturating_sub(1),
        };
        let sizes = self.shape.iter().copied().enumerate();
        match &self.norm {
            Norm::Batch(Channels::Axis(format)) => {
                let channel = channel(format);
                sizes
                    .map(|(at, size)| one(size, at != channel, at == channel))
                    .collect()
            }
            Norm::Batch(Channels::Broadcast(params)) => {
                let pairs = self.shape.iter().zip(params);
                pairs
                    .map(|(&size, &param)| one(size, size != param, size == param))
                    .collect()
            }
            Norm::Group { format, .. } | Norm::Instance { format } => {
                let (channel, groups) = (channel(format), self.norm.groups(&self.shape));
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
            Norm::Layer { .. } | Norm::Rms { .. } => {
                let rows = self.norm.rows(&self.shape).unwrap_or(0);
                sizes
                    .map(|(at, size)| one(size, at >= rows, at >= rows))
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
