//! Uniforms that several kernels share.

use super::describe::uniforms;
use crate::geometry::MAX_RANK;

uniforms! {
    /// A dispatch's tiles, and the window of the data that it binds.
    struct TileRange {
        first_tile: u32,
        end_tile: u32,
        /// Workgroups along x.
        grid_width: u32,
        /// The tensor's element at which the binding begins.
        window: u32,
        /// Elements from there to the tensor's end.
        length: u32,
    }
}

uniforms! {
    /// Numbers that an operator needs besides its tensors.
    struct Scalars {
        epsilon: f64,
        /// 1 over the number of elements that share statistics.
        inverse_count: f64,
        /// Weight of the batch in running statistics.
        running_weight: f64,
        /// 1 where the running variance is unbiased, else 0.
        running_correction: f64,
    }
}

uniforms! {
    /// Sizes of up to 8 axes, 1 where there is none.
    struct AxisSizes {
        axis0: u32,
        axis1: u32,
        axis2: u32,
        axis3: u32,
        axis4: u32,
        axis5: u32,
        axis6: u32,
        axis7: u32,
    }
}

impl From<[u32; MAX_RANK]> for AxisSizes {
    fn from(sizes: [u32; MAX_RANK]) -> Self {
        let [axis0, axis1, axis2, axis3, axis4, axis5, axis6, axis7] = sizes;
        Self {
            axis0,
            axis1,
            axis2,
            axis3,
            axis4,
            axis5,
            axis6,
            axis7,
        }
    }
}

uniforms! {
    /// General axes: their sizes, and bit a of `kept_axes` set if channels vary along axis a.
    struct GeneralSizes {
        axes: AxisSizes,
        kept_axes: u32,
    }
}

impl GeneralSizes {
    /// Where axes are not general.
    pub fn none() -> Self {
        Self {
            axes: [1; MAX_RANK].into(),
            kept_axes: 0,
        }
    }
}

uniforms! {
    /// Channels that are columns: all of them, those that alternate along a row, and columns side by side of each.
    struct ColumnChannels {
        channels: u32,
        row_channels: u32,
        inner: u32,
        /// Channels side by side that share statistics.
        group_channels: u32,
        axes: GeneralSizes,
    }
}

impl ColumnChannels {
    /// Where columns are not channels.
    pub fn none() -> Self {
        Self {
            axes: GeneralSizes::none(),
            ..Self::default()
        }
    }
}

uniforms! {
    /// How neighbouring channels share statistics and parameters: group norm's channels are those of all samples.
    struct Sharing {
        /// Channels side by side that share statistics.
        group_channels: u32,
        /// The lengths of mean and variance, and of gamma and beta.
        statistics: u32,
        parameters: u32,
    }
}

uniforms! {
    /// The same, and for channels that share them otherwise.
    struct GroupSizes {
        sharing: Sharing,
        /// The axes of `mixed` channels, and which of these statistics and parameters vary along.
        axes: AxisSizes,
        statistics_axes: u32,
        parameter_axes: u32,
    }
}

impl GroupSizes {
    /// For channels that each have their own.
    pub fn none(channels: u32) -> Self {
        Self {
            sharing: Sharing {
                group_channels: 1,
                statistics: channels,
                parameters: channels,
            },
            axes: [1; MAX_RANK].into(),
            statistics_axes: 0,
            parameter_axes: 0,
        }
    }
}

uniforms! {
    /// Partial sums of channels, as a reduction left them.
    struct SplitPartials {
        channel_stride: u32,
        partial_count: u32,
        partial_stride: u32,
        /// Outer indices and columns of a channel in a split.
        repeats: u32,
        inner: u32,
        /// Where they begin in the workspace.
        partials: u32,
    }
}

uniforms! {
    /// Tiles of planes.
    struct PlaneTiles {
        channels: u32,
        inner: u32,
        /// Elements of a plane in a tile.
        chunk: u32,
        /// Tiles along a plane.
        chunks: u32,
        /// Invocations that share a plane.
        threads_per_plane: u32,
        range: TileRange,
        /// Where the records of statistics begin in the workspace.
        stats: u32,
        sharing: Sharing,
        axes: GeneralSizes,
    }
}

uniforms! {
    /// Tiles of batches of rows of columns. Statistics belong to columns, to channels of columns, or to rows.
    struct BatchTiles {
        /// Rows of a batch, and columns.
        rows: u32,
        columns: u32,
        /// The length of the statistics: columns or rows of all batches, or channels.
        statistics: u32,
        /// The length of gamma and beta.
        parameters: u32,
        channels: ColumnChannels,
        /// The columns that a dispatch does, and its first batch.
        first_column: u32,
        end_column: u32,
        first_batch: u32,
        /// Tiles of these columns.
        column_tiles: u32,
        /// The numbers of the dispatch's column tiles, of all its batches.
        first_column_tile: u32,
        end_column_tile: u32,
        /// Column tiles that a workgroup walks, and workgroups that do one tile of rows of a batch.
        walked_tiles: u32,
        walks_of_a_row: u32,
        /// Rows of a tile of rows, the first such tile, and their number.
        tile_rows: u32,
        first_row_tile: u32,
        row_tiles: u32,
        range: TileRange,
        /// The last vector of the window.
        last_vector: u32,
        stats: u32,
        copies: u32,
    }
}

impl BatchTiles {
    /// One batch, in so many column tiles, one to a workgroup, of all rows.
    pub fn of_whole_rows(rows: u32, columns: u32, column_tiles: u32) -> Self {
        Self {
            rows,
            columns,
            statistics: columns,
            parameters: columns,
            channels: ColumnChannels::none(),
            end_column: columns,
            column_tiles,
            end_column_tile: column_tiles,
            walked_tiles: 1,
            walks_of_a_row: column_tiles,
            tile_rows: rows,
            row_tiles: 1,
            ..Self::default()
        }
    }

    /// Rows that an invocation walks.
    pub fn walk(&self, threads_per_row: u32, workgroup_size: u64) -> u64 {
        let at_once = workgroup_size / u64::from(threads_per_row.max(1));
        u64::from(self.tile_rows).div_ceil(at_once.max(1))
    }
}
