//! Columns of channels in one dispatch: when that fits, and how workgroups divide the columns.

use super::channels::Channels;
use super::division::{Division, Pass};
use super::{Known, Reduced, Walk};
use crate::kernels::{BatchTiles, ColumnsWalk, ColumnsWalkUniforms};
use crate::plan::limits::{Cannot, MAX_SEQUENTIAL, Unfit, check};
use crate::plan::planner::Planner;
use crate::plan::sizes::{div_ceil, word};
use crate::plan::workspace::Workspace;

/// The most rows of an invocation.
const MOST_ROWS: u64 = 4096;

/// The fewest invocations side by side in a row: 128 bytes of it, in loads of 16.
const NARROWEST: u32 = 8;

/// A walk over columns of channels in one dispatch.
pub(crate) struct ColumnsOfChannels<'a> {
    over: Channels<'a>,
    division: Division,
}

impl<'a> ColumnsOfChannels<'a> {
    pub fn new(planner: Planner<'a>) -> Result<Self, Cannot> {
        let over = Channels::new(planner);
        over.check_fusible()?;
        let grid = &over.layout.grid;
        check(grid.elements() > 0, "the tensor is empty")?;
        check(grid.inner == 1, "channels are not the last axis")?;
        check(
            grid.channels.is_multiple_of(4),
            format_args!("{} channels are not a multiple of 4", grid.channels),
        )?;
        let fits = planner.tensors.src.padded_bytes() <= planner.profile.longest_window();
        check(fits, "the tensor does not fit one binding")?;
        let division = divide(&planner, grid.channels);
        // Blocks of rows that an invocation adds up, one after another.
        let block_rows = planner.body.block_rows();
        let blocks = div_ceil(grid.outer.into(), block_rows * division.at_once());
        check(
            blocks <= (MOST_ROWS / block_rows).min(MAX_SEQUENTIAL),
            format_args!("{} rows are too many to add up", grid.outer),
        )?;
        Ok(Self { over, division })
    }
}

/// Divides rows of channels, so narrowly that there are enough workgroups.
fn divide(planner: &Planner<'_>, channels: u32) -> Division {
    let tuning = &planner.profile.tuning;
    let workgroup_size = planner.workgroup(tuning.workgroup);
    let threads = |vector_vec4s: u32| {
        let vectors = (channels / (4 * vector_vec4s)).max(1);
        let most = vectors.checked_next_power_of_two().unwrap_or(u32::MAX);
        let mut threads_per_row = planner.threads_per_row(workgroup_size).min(most);
        while threads_per_row > NARROWEST && vectors.div_ceil(threads_per_row) < tuning.fused_blocks
        {
            threads_per_row /= 2;
        }
        threads_per_row
    };
    // Vectors are not wide where invocations share columns: each vec4 of a vector has a tree of sums, with barriers.
    let wide = planner.vector_vec4s(channels.into());
    let vector_vec4s = if threads(wide) == workgroup_size {
        wide
    } else {
        1
    };
    Division {
        workgroup_size,
        threads_per_row: threads(vector_vec4s).into(),
        vector_vec4s: vector_vec4s.into(),
        column_vectors: 1,
    }
}

impl Walk for ColumnsOfChannels<'_> {
    /// Whether a tensor is small and has few rows; larger ones are faster in wider pieces.
    fn is_profitable(&self) -> bool {
        let (profile, grid) = (self.over.planner.profile, &self.over.layout.grid);
        let part = u64::from(grid.outer) * 4 * self.division.threads_per_row;
        part <= u64::from(profile.tuning.fused_block) && profile.is_small(grid.elements())
    }

    fn reduce(&self, known: &Known, _workspace: &mut Workspace) -> Result<Reduced, Unfit> {
        let Self { over, division } = self;
        let (planner, grid) = (&over.planner, &over.layout.grid);
        let kernel = ColumnsWalk {
            of_channels: true,
            columns_are_channels: true,
            ..division.columns_walk(
                planner,
                (Pass::All, known),
                (grid.outer.into(), planner.profile.tuning.loads_at_once),
            )
        };
        let tiles = div_ceil(grid.channels.into(), division.tile_columns());
        let windows = planner.uncut(tiles)?;
        let kernel = (kernel, division.workgroup_size);
        let dispatches = planner.over(&windows, kernel, |window, range| {
            let uniforms = ColumnsWalkUniforms {
                tiles: BatchTiles {
                    range,
                    ..BatchTiles::of_whole_rows(grid.outer, grid.channels, word(tiles))
                },
                scalars: planner.problem.scalars(),
                ..ColumnsWalkUniforms::default()
            };
            let bindings = window.bind_all(planner.tensors.bound_at_once());
            (bindings.collect(), uniforms)
        })?;
        Ok(Reduced {
            dispatches,
            ..Reduced::default()
        })
    }
}
