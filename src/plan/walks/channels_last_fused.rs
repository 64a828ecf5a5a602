//! Columns of channels in one dispatch: when that fits, and how workgroups divide the columns.

use super::channels::Channels;
use super::division::Division;
use super::{Known, Reduced, Walk};
use crate::kernels::{BatchTiles, ColumnsWalk, ColumnsWalkUniforms, TileRange};
use crate::plan::dispatch::Binding;
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
}

impl<'a> ColumnsOfChannels<'a> {
    pub fn new(planner: Planner<'a>) -> Result<Self, Cannot> {
        let over = Channels::new(planner);
        over.check_fusible()?;
        let walk = Self { over };
        let grid = &walk.over.layout.grid;
        check(grid.elements() > 0, "the tensor is empty")?;
        check(grid.inner == 1, "channels are not the last axis")?;
        check(
            grid.channels.is_multiple_of(4),
            format_args!("{} channels are not a multiple of 4", grid.channels),
        )?;
        let fits = planner.tensors.src.padded_bytes() <= planner.profile.longest_window();
        check(fits, "the tensor does not fit one binding")?;
        // Blocks of rows that an invocation adds up, one after another.
        let (threads_per_row, workgroup_size) = walk.threads(1);
        let block_rows = planner.body.block_rows();
        let rows = block_rows * u64::from(workgroup_size / threads_per_row);
        check(
            div_ceil(grid.outer.into(), rows) <= (MOST_ROWS / block_rows).min(MAX_SEQUENTIAL),
            format_args!("{} rows are too many to add up", grid.outer),
        )?;
        Ok(walk)
    }
}

impl ColumnsOfChannels<'_> {
    /// The number of a workgroup's invocations that are side by side in a row, with loads of `vector_vec4s` vec4s, and
    /// of all its invocations.
    fn threads(&self, vector_vec4s: u32) -> (u32, u32) {
        let planner = &self.over.planner;
        let tuning = &planner.profile.tuning;
        let workgroup_size = planner.workgroup(tuning.workgroup);
        let threads_per_row = tuning.channels_last_threads.clamp(1, workgroup_size);
        let vectors = (self.over.layout.grid.channels / (4 * vector_vec4s)).max(1);
        let most = vectors.checked_next_power_of_two().unwrap_or(u32::MAX);
        let mut threads_per_row = 1 << threads_per_row.min(most).ilog2();
        while threads_per_row > NARROWEST && vectors.div_ceil(threads_per_row) < tuning.fused_blocks
        {
            threads_per_row /= 2;
        }
        (threads_per_row, workgroup_size)
    }
}

impl Walk for ColumnsOfChannels<'_> {
    /// Whether a tensor is small and has few rows; larger ones are faster in wider pieces.
    fn is_profitable(&self) -> bool {
        let (profile, grid) = (self.over.planner.profile, &self.over.layout.grid);
        let (threads_per_row, _) = self.threads(1);
        let part = u64::from(grid.outer) * 4 * u64::from(threads_per_row);
        part <= u64::from(profile.tuning.fused_block) && profile.is_small(grid.elements())
    }

    fn reduce(&self, _known: &Known, _workspace: &mut Workspace) -> Result<Reduced, Unfit> {
        let (planner, grid) = (&self.over.planner, &self.over.layout.grid);
        // Vectors are not wide where invocations share columns: each vec4 of a vector has a tree of sums, with
        // barriers.
        let wide = planner.vector_vec4s(u64::from(grid.channels));
        let (threads_per_row, workgroup_size) = self.threads(wide);
        let shared = threads_per_row < workgroup_size;
        let vector_vec4s = if shared { 1 } else { wide };
        let (threads_per_row, _) = self.threads(vector_vec4s);
        let vectors = grid.channels / (4 * vector_vec4s);
        let division = Division {
            workgroup_size,
            threads_per_row: threads_per_row.into(),
            vector_vec4s: vector_vec4s.into(),
            column_vectors: 1,
        };
        let tiles = vectors.div_ceil(threads_per_row);
        let workgroups = planner.profile.workgroups(tiles.into())?;
        let loads = planner.profile.tuning.loads_at_once;
        let kernel = ColumnsWalk {
            of_channels: true,
            reduced: true,
            applied: true,
            add_thread_rows: division.at_once() > 1,
            ..division.columns_walk(planner, grid.outer.into(), loads)
        };
        let range = TileRange {
            first_tile: 0,
            end_tile: tiles,
            grid_width: workgroups[0],
            window: 0,
            length: word(grid.elements()),
        };
        let uniforms = ColumnsWalkUniforms {
            tiles: BatchTiles::of_one_batch(grid.outer, grid.channels, tiles, range),
            row_groups: 1,
            partials_per_row: 1,
            row_partials: 0,
            means: 0,
            partials: 0,
            partial_stride: 0,
            scalars: planner.problem.scalars(),
        };
        let tensors = planner.tensors.bound_at_once();
        let bindings = tensors.map(Binding::whole).collect();
        let dispatch = planner.dispatch(kernel, workgroup_size, bindings, &uniforms, workgroups);
        Ok(Reduced {
            dispatches: vec![dispatch],
            ..Reduced::default()
        })
    }
}
