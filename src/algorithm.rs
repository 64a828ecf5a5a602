//! The names of the algorithms.

use std::fmt;

/// A way to compute a gradient or a forward pass: which kernels walk the tensor, and how often.
///
/// A plan uses the first algorithm of [`ALL`](Self::ALL) that supports the operation and is profitable on the adapter;
/// [`Profile::algorithm`](crate::Profile::algorithm) forces one. All algorithms give the same results up to rounding.
///
/// ```
/// use wgpu_norm::Algorithm;
/// assert_eq!("channels_last".parse::<Algorithm>()?, Algorithm::ChannelsLast);
/// assert_eq!(Algorithm::ChannelsLast.to_string(), "channels_last");
/// # Ok::<(), wgpu_norm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Algorithm {
    /// Layer or RMS norm in one reading: each row is held in registers. So are groups that are rows, forward, and planes
    /// of instance norm.
    RowsInRegisters,
    /// Layer or RMS norm in two readings: sums of rows and columns, then diff_src; in a forward pass, statistics, then
    /// dst.
    RowsReadTwice,
    /// Axes norm over an axis that is not the last one, like layer norm over channels (`NCX`), in one reading: a
    /// workgroup holds columns in registers.
    ColumnsInRegisters,
    /// Axes norm over an axis that is not the last one, like layer norm over channels (`NCX`), in two readings: sums of
    /// columns and rows, then diff_src; in a forward pass, statistics of columns, then dst.
    ColumnsReadTwice,
    /// Batch, group or instance norm in one dispatch over planes, the elements that a channel has at one index of N
    /// (`NCX`): a workgroup adds up its channels and reads them again from a cache.
    FusedChannelsFirst,
    /// Batch norm in one dispatch over small tensors whose channels are the last axis (`NXC`).
    FusedChannelsLast,
    /// Batch norm over axes that do not fold to (outer, channels, inner), with a table of the axes. Also group or
    /// instance norm of several samples whose channels are the last axis (`NXC`).
    General,
    /// Batch, group or instance norm over rows in which channels alternate (`NXC`, rank 2, short planes): sums or
    /// statistics, then diff_src or dst.
    ChannelsLast,
    /// Batch, group or instance norm over planes, the elements that a channel has at one index of N (`NCX`): sums or
    /// statistics, then diff_src or dst.
    ChannelsFirst,
}

impl Algorithm {
    /// All algorithms, in the order in which plans try them.
    pub const ALL: [Self; 9] = [
        Self::RowsInRegisters,
        Self::RowsReadTwice,
        Self::ColumnsInRegisters,
        Self::ColumnsReadTwice,
        Self::FusedChannelsFirst,
        Self::FusedChannelsLast,
        Self::General,
        Self::ChannelsLast,
        Self::ChannelsFirst,
    ];

    /// Its name, as the command accepts it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RowsInRegisters => "rows_in_registers",
            Self::RowsReadTwice => "rows_read_twice",
            Self::ColumnsInRegisters => "columns_in_registers",
            Self::ColumnsReadTwice => "columns_read_twice",
            Self::FusedChannelsFirst => "fused_channels_first",
            Self::FusedChannelsLast => "fused_channels_last",
            Self::General => "general",
            Self::ChannelsFirst => "channels_first",
            Self::ChannelsLast => "channels_last",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
