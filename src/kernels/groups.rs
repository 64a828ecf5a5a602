//! Uniforms that several kernels have.

use super::describe::uniforms;

uniforms! {
    /// A dispatch's tiles, and the part of the data that it binds.
    struct TileRange {
        first_tile: u32,
        end_tile: u32,
        /// Workgroups along x.
        grid_width: u32,
        /// The element of the tensor with which the binding begins.
        window: u32,
        /// Elements from there to the tensor's end.
        length: u32,
    }
}

uniforms! {
    /// General axes: their sizes, and bit a of `kept_axes` set if the parameters vary along axis a.
    struct AxisSizes {
        axis0: u32,
        axis1: u32,
        axis2: u32,
        axis3: u32,
        axis4: u32,
        axis5: u32,
        axis6: u32,
        axis7: u32,
        kept_axes: u32,
    }
}

uniforms! {
    /// Tiles of runs.
    struct RunTiles {
        channels: u32,
        inner: u32,
        /// Elements of a run that a tile takes.
        chunk: u32,
        /// Tiles along a run.
        chunks: u32,
        /// Invocations side by side on a run.
        lanes: u32,
        range: TileRange,
        /// Where the records of statistics begin in the workspace.
        stats: u32,
        axes: AxisSizes,
    }
}

uniforms! {
    /// Tiles of columns.
    struct ColumnTiles {
        channels: u32,
        inner: u32,
        width_packets: u32,
        /// Rows of a tile, and all.
        tile_rows: u32,
        rows: u32,
        /// Invocations side by side in a workgroup.
        column_lanes: u32,
        range: TileRange,
        /// Tiles along the window's columns.
        column_tiles: u32,
        /// The window's columns, in packets.
        first_packet: u32,
        end_packet: u32,
        /// Blocks of rows.
        row_tiles: u32,
        stats: u32,
        axes: AxisSizes,
    }
}

uniforms! {
    /// Tiles of rows.
    struct RowTiles {
        rows: u32,
        columns: u32,
        /// Quads that a row touches, at most.
        row_quads: u32,
        /// A multiple of `row_step`.
        tile_rows: u32,
        /// Rows between two that an invocation walks.
        row_step: u32,
        /// Workgroups that share `tile_rows` rows.
        shifts: u32,
        range: TileRange,
        /// The last packet of the window.
        last_packet: u32,
    }
}

impl RowTiles {
    /// Rows that an invocation walks.
    pub fn walk(&self) -> u64 {
        self.tile_rows.div_ceil(self.row_step.max(1)).into()
    }
}
