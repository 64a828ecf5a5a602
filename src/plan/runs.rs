//! Tiles, splits and windows of the kernels over runs.

use super::finish::Partials;
use super::rounds::Rounds;
use super::windows::{Window, windows};
use super::workspace::{Part, Workspace};
use super::{
    Binding, Dispatch, MAX_SERIAL, Planner, Requirement, RunAlignment, axis_sizes, div_ceil, lanes,
    word,
};
use crate::Error;
use crate::geometry::{Grid, Layout};
use crate::kernels::{
    ApplyRuns, ApplyRunsUniforms, ReduceRuns, ReduceRunsUniforms, RunTiles, TileRange,
};
use std::ops::Range;

/// Quads of a run from which on each invocation shares it with others, if there are others, whatever the tuning says.
const MOST_LANE_QUADS: u32 = 256;

/// How runs are cut into tiles: some runs, or one chunk of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tiles {
    runs: u64,
    chunk: u64,
    chunks: u64,
}

impl Tiles {
    /// Tiles of a channel.
    fn of_a_channel(&self, grid: &Grid) -> u64 {
        div_ceil(u64::from(grid.outer).max(1), self.runs) * self.chunks
    }

    /// What both kernels are told of the tiles.
    fn uniforms(&self, layout: &Layout, lanes: u32, range: TileRange, stats: Part) -> RunTiles {
        RunTiles {
            channels: layout.grid.channels,
            inner: layout.grid.inner,
            chunk: word(self.chunk),
            chunks: word(self.chunks),
            lanes,
            range,
            stats: stats.first,
            axes: axis_sizes(layout),
        }
    }
}

impl Planner<'_> {
    /// Invocations that share a run's chunk: as many as it gives work to, within a workgroup.
    pub(super) fn lanes(&self, workgroup_size: u32, chunk: u64, packet_quads: u32) -> u32 {
        let fewest = self.profile.tuning.lane_quads.min(MOST_LANE_QUADS);
        let fewest = fewest.max(packet_quads);
        lanes(workgroup_size, chunk, fewest)
    }

    /// Quads of a packet in the kernels over runs, where a packet may hold elements of two neighbouring runs.
    pub(super) fn packet_of_runs(&self, grid: &Grid) -> u32 {
        match grid.inner {
            0..8 => 1,
            _ => self.packet_quads(grid.elements()),
        }
    }

    /// The same where every packet is of one run, if quads are.
    fn packet_of_one_run(&self, grid: &Grid) -> u32 {
        match grid.inner.is_multiple_of(8) {
            true => self.packet_of_runs(grid),
            false => 1,
        }
    }

    /// Splits of a channel's reduction: enough to keep the adapter busy, no channel's share too small, no more
    /// partial sums than there is room for, no block larger than a window may be, and no invocation adding too many
    /// numbers in a row.
    fn split_runs(
        &self,
        layout: &Layout,
        src: &Requirement,
        workgroup_size: u32,
        packet_quads: u32,
    ) -> Tiles {
        let tuning = &self.profile.tuning;
        let grid = &layout.grid;
        let count = grid.count().max(1);
        let outer = u64::from(grid.outer).max(1);
        let inner = u64::from(grid.inner).max(1);
        let channels = u64::from(grid.channels).max(1);
        let plane = channels * inner;
        // With general axes a channel's runs may be anywhere.
        let apart = if layout.general.is_none() { plane } else { 0 };
        let room = (self.partial_records(src, channels) / channels).max(1);
        // Runs are cut alike.
        let room = if room > outer {
            room / outer * outer
        } else {
            room
        };
        let wanted = div_ceil(u64::from(tuning.busy_workgroups), channels)
            .min(div_ceil(count, u64::from(tuning.tile)));
        let blocks = div_ceil(outer, self.most_apart(apart)).min(outer);
        let mut window = match layout.general {
            Some(_) => u64::MAX,
            None => self.window_unit(grid.elements()),
        };
        let mut splits = wanted.max(blocks).min(room).max(1);
        // Larger windows than usual, where they have room for fewer partial sums.
        if self.tiles_of_runs(grid, splits, window).of_a_channel(grid) > room {
            window = window.max(self.held_unit());
        }
        loop {
            let tiles = self.tiles_of_runs(grid, splits, window);
            let (_, adds) = self.lanes_and_adds(grid, &tiles, workgroup_size, packet_quads);
            let smallest = tiles.runs == 1 && tiles.chunk <= 64;
            if adds <= MAX_SERIAL || smallest {
                return tiles;
            }
            splits = tiles.of_a_channel(grid) * div_ceil(adds, MAX_SERIAL).max(2);
        }
    }

    /// Tiles that are so many of a channel at least, and fit a window.
    fn tiles_of_runs(&self, grid: &Grid, splits: u64, window: u64) -> Tiles {
        let outer = u64::from(grid.outer).max(1);
        let inner = u64::from(grid.inner).max(1);
        let plane = u64::from(grid.channels).max(1) * inner;
        let runs = div_ceil(outer, splits).min((window / plane).max(1));
        let of_a_run = div_ceil(inner, window).max(div_ceil(splits, outer));
        if runs > 1 || of_a_run == 1 {
            return Tiles {
                runs,
                chunk: inner,
                chunks: 1,
            };
        }
        self.chunk_run(inner, of_a_run)
    }

    /// Invocations that share a run's chunk, and numbers that an accumulator adds then: as few invocations as the
    /// tuning wants, unless others are needed to bound the adds.
    fn lanes_and_adds(
        &self,
        grid: &Grid,
        tiles: &Tiles,
        workgroup_size: u32,
        packet_quads: u32,
    ) -> (u32, u64) {
        let packet = 4 * u64::from(packet_quads);
        let aligned = u64::from(grid.inner).is_multiple_of(packet);
        let packets = div_ceil(tiles.chunk, packet) + u64::from(!aligned);
        let adds = |lanes: u32| {
            let runs = div_ceil(tiles.runs, u64::from(workgroup_size / lanes));
            runs * div_ceil(packets, u64::from(lanes)) * u64::from(packet_quads)
        };
        let tuned = self.lanes(workgroup_size, tiles.chunk, packet_quads);
        if adds(tuned) <= MAX_SERIAL {
            return (tuned, adds(tuned));
        }
        let powers = (0..=workgroup_size.ilog2()).map(|bit| 1 << bit);
        let fewest = powers.min_by_key(|&lanes| adds(lanes)).unwrap_or(tuned);
        (fewest, adds(fewest))
    }

    /// A run in about so many chunks, each a multiple of 64 elements.
    fn chunk_run(&self, inner: u64, chunks: u64) -> Tiles {
        let chunk = div_ceil(inner, chunks).next_multiple_of(64);
        Tiles {
            runs: 1,
            chunk: chunk.min(inner),
            chunks: div_ceil(inner, chunk),
        }
    }

    /// The reduction of a tensor's runs into partial sums. For `one_pass`, which has it write diff_src too, by
    /// packets of one run: also where it is used without writing, so that sums agree to the bit.
    pub fn reduce_runs(
        &self,
        layout: &Layout,
        src: &Requirement,
        diff_dst: &Requirement,
        one_pass: bool,
        stats: Part,
        workspace: &mut Workspace,
    ) -> Result<(Vec<Dispatch>, Partials), Error> {
        let grid = &layout.grid;
        let workgroup_size = self.profile.workgroup(self.profile.tuning.workgroup);
        let packet_quads = match one_pass {
            true => self.packet_of_one_run(grid),
            false => self.packet_of_runs(grid),
        };
        let tiles = self.split_runs(layout, src, workgroup_size, packet_quads);
        let (lanes, _) = self.lanes_and_adds(grid, &tiles, workgroup_size, packet_quads);
        let channels = u64::from(grid.channels);
        let inner = u64::from(grid.inner);
        let all = tiles.of_a_channel(grid);
        // Between two cuts: a block of outer indices, or where that is one, a single tile. With general
        // axes neither is in one piece.
        let (unit_tiles, units) = match tiles.runs {
            _ if layout.general.is_some() => (all * channels, 1),
            1 => (1, grid.runs() * tiles.chunks),
            _ => (channels, all),
        };
        let start = |unit: u64| match tiles.runs {
            _ if layout.general.is_some() => unit * grid.elements(),
            1 => (unit / tiles.chunks) * inner + (unit % tiles.chunks) * tiles.chunk,
            runs => (unit * runs).min(u64::from(grid.outer)) * channels * inner,
        };
        let alignment = RunAlignment::of(grid, packet_quads);
        let kernel = ReduceRuns {
            packet_quads,
            general: layout.general.is_some(),
            packet_aligned: alignment.packet_aligned,
            quad_aligned: alignment.quad_aligned,
        };
        let reduce = |part: Part, splits: Range<u64>| {
            let units = splits.start * units / all..splits.end * units / all;
            let dispatch = |window: Window| {
                let (first, end) = (
                    window.units.start * unit_tiles,
                    window.units.end * unit_tiles,
                );
                let workgroups = self.workgroups(end - first)?;
                let range = window.tile_range(src, first..end, workgroups);
                Ok(Dispatch::new(
                    kernel,
                    workgroup_size,
                    vec![
                        window.bind(src),
                        window.bind(diff_dst),
                        Binding::workspace(),
                    ],
                    &ReduceRunsUniforms {
                        outer: grid.outer,
                        outer_block: word(tiles.runs),
                        tiles: tiles.uniforms(layout, lanes, range, stats),
                        partials: part.first,
                    },
                    workgroups,
                ))
            };
            let windows = windows(self.profile, src, units, start)?;
            windows.into_iter().map(dispatch).collect()
        };
        // Chunks of a run are splits, too, and not in the order of the tensor; they are long.
        let room = match (tiles.chunks, &layout.general) {
            (1, None) => self.partial_records(src, channels),
            _ => u64::MAX,
        };
        let rounds = Rounds::new(all, channels, channels, room);
        self.in_rounds(&rounds, workspace, reduce, |part, splits| {
            Partials::plain(part, grid.channels, splits, channels)
        })
    }

    /// The elementwise pass over a tensor's runs. Without src, statistics are constant.
    pub fn apply_runs(
        &self,
        layout: &Layout,
        src: Option<&Requirement>,
        diff_dst: &Requirement,
        diff_src: &Requirement,
        stats: Part,
        means: Part,
    ) -> Result<Vec<Dispatch>, Error> {
        let grid = &layout.grid;
        let workgroup_size = self.profile.workgroup(self.profile.tuning.workgroup);
        let inner = u64::from(grid.inner).max(1);
        let packet_quads = self.packet_of_runs(grid);
        // An invocation makes up to 3 loop iterations for a quad, and 7 for a run of less than one.
        let target = u64::from(self.profile.tuning.tile)
            .min(self.window_unit(grid.elements()))
            .min(8192 * u64::from(workgroup_size))
            .max(64);
        let tiles = if inner > target {
            self.chunk_run(inner, div_ceil(inner, target))
        } else {
            Tiles {
                runs: (target / inner).min(4096 * u64::from(workgroup_size)),
                chunk: inner,
                chunks: 1,
            }
        };
        let lanes = self.lanes(workgroup_size, tiles.chunk, packet_quads);
        let runs = grid.runs();
        let units = div_ceil(runs, tiles.runs) * tiles.chunks;
        let start = |unit: u64| {
            let run = (unit / tiles.chunks * tiles.runs).min(runs);
            run * inner + (unit % tiles.chunks) * tiles.chunk
        };
        let alignment = RunAlignment::of(grid, packet_quads);
        let kernel = ApplyRuns {
            packet_quads,
            general: layout.general.is_some(),
            packet_aligned: alignment.packet_aligned,
            quad_aligned: alignment.quad_aligned,
            narrow: alignment.narrow,
            whole: alignment.whole,
            batch_statistics: src.is_some(),
        };
        windows(self.profile, diff_dst, 0..units, start)?
            .into_iter()
            .map(|window| {
                let (first, end) = (window.units.start, window.units.end);
                let workgroups = self.workgroups(end - first)?;
                let mut bindings: Vec<_> = src.map(|src| window.bind(src)).into_iter().collect();
                bindings.push(window.bind(diff_dst));
                bindings.push(Binding::workspace());
                bindings.push(window.bind(diff_src));
                let range = window.tile_range(diff_dst, first..end, workgroups);
                Ok(Dispatch::new(
                    kernel,
                    workgroup_size,
                    bindings,
                    &ApplyRunsUniforms {
                        runs: word(runs),
                        run_block: word(tiles.runs),
                        tiles: tiles.uniforms(layout, lanes, range, stats),
                        means: means.first,
                    },
                    workgroups,
                ))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Tensor;
    use crate::{DType, Profile, Tuning};

    #[test]
    fn runs_a_page_apart_are_walked_few_at_a_time() {
        let software = Profile {
            tuning: Tuning::SOFTWARE,
            ..Profile::usual()
        };
        let runs = |profile: &Profile, outer, channels, inner| {
            let data = DType::F32;
            let planner = Planner {
                profile,
                body: crate::kernels::Body::Gradient,
                data,
            };
            let layout = Layout::from(Grid {
                outer,
                channels,
                inner,
            });
            let src = Requirement {
                tensor: Tensor::Src,
                dtype: data,
                elements: layout.grid.elements(),
            };
            planner.split_runs(&layout, &src, 8, 1).runs
        };
        assert_eq!(runs(&software, 32, 256, 196), 16);
        assert_eq!(runs(&software, 12, 256, 196), 12);
        assert_eq!(runs(&software, 36, 256, 196), 12); // three equal blocks
        assert_eq!(runs(&software, 64, 4, 128), 32); // no more than an accumulator adds
        assert_eq!(runs(&Profile::usual(), 32, 2048, 49), 32);
    }
}
