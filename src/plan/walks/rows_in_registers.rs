//! Rows that registers hold: forward or backward in one reading.

use super::division::Division;
use super::rows::{RowWalk, Rows, sums_columns};
use super::{Known, Reduced, Walk};
use crate::kernels::{BatchTiles, ColumnChannels, InRegisters, InRegistersUniforms};
use crate::plan::dispatch::Binding;
use crate::plan::limits::{Cannot, Unfit, check};
use crate::plan::planner::Planner;
use crate::plan::problem::Family;
use crate::plan::rounds::Rounds;
use crate::plan::sizes::{most_vectors, threads, word};
use crate::plan::stages::combine_groups::sums_of_all_samples;
use crate::plan::stages::finish::Partials;
use crate::plan::workspace::{Region, Workspace};
use crate::tuning::MOST_ROW_VEC4S;
use std::ops::Range;

/// A walk over rows in registers.
pub(crate) struct RowsInRegisters<'a> {
    planner: Planner<'a>,
    walk: RowWalk,
    rounds: Rounds,
}

impl<'a> RowsInRegisters<'a> {
    /// The walk over groups of channels that are each a row, whose channels have parameters of their own. A gradient's
    /// groups are single channels, since it has sums of each.
    pub fn over_groups(mut planner: Planner<'a>) -> Result<Self, Cannot> {
        let (problem, tensors) = (planner.problem, planner.tensors);
        let groups = &problem.groups;
        let grid = &groups.layout.grid;
        let side_by_side =
            groups.layout.general.is_none() && groups.mixed.is_none() && grid.outer == 1;
        // A vec4 then lies in two planes at most.
        let long_planes = grid.inner >= 4 || groups.group_channels == 1;
        let takes_sums =
            !problem.body.is_gradient() || (groups.group_channels == 1 && problem.has_means());
        check(
            takes_sums && tensors.mask.is_none() && side_by_side && long_planes,
            "it is no forward pass over groups that are rows of long planes, nor a gradient of single channels",
        )?;
        check(
            planner.body.centered
                || planner.body.is_gradient()
                || tensors.results.is_empty()
                || stores_statistics(&planner),
            "mean squares of 16 bits share words with those of other groups",
        )?;
        planner.body.of_groups = false;
        Self::new(planner)
    }

    pub fn new(planner: Planner<'a>) -> Result<Self, Cannot> {
        let planner = planner.in_registers();
        let (problem, tensors) = (planner.problem, planner.tensors);
        check(!problem.is_inference(), "statistics are given")?;
        let rows = rows_of_registers(&planner);
        let (columns, fits) = (rows.columns, rows.column_tiles() == 1);
        check(
            fits,
            format_args!("{columns} elements of a row are more than a workgroup's registers hold"),
        )?;
        let summed = sums_columns(&planner);
        let mut walk = RowWalk::new(&planner, rows, true);
        if walk.of_samples && summed {
            walk = walk.with_few_records(&planner);
        }
        let room = planner.partial_records(0).min(planner.held_records(0));
        let rounds = walk.rounds(&planner, summed, room);
        check(rounds.fit(), "its partial sums would outgrow the tensor")?;
        let (results, bound) = (tensors.results.len(), tensors.bound_at_once().count());
        // The workspace takes the place of results that the kernel does not write.
        let stored = results == 0 || stores_statistics(&planner);
        let replaced = if stored { 0 } else { results - 1 };
        planner.profile.check_bound(bound - replaced)?;
        Ok(Self {
            planner,
            walk,
            rounds,
        })
    }
}

/// Whether statistics that are written go to their own tensors. Elements of 16 bits do not: they share words, which
/// would have to be written at once.
fn stores_statistics(planner: &Planner<'_>) -> bool {
    let mut outputs = planner.tensors.results.iter();
    outputs.any(|output| output.tensor.is_statistic() && output.dtype.size() >= 4)
}

/// The most vec4s of a row that an invocation holds. For each element a gradient holds diff_dst and x̂, a forward
/// pass only x, and so twice as many vec4s in the same registers, unless it also holds a residual.
fn row_vec4s(planner: &Planner<'_>) -> u32 {
    row_vec4s_of_forward(planner, 2)
}

/// `row_vec4s`, for a forward pass without a residual `times` as many.
fn row_vec4s_of_forward(planner: &Planner<'_>, times: u32) -> u32 {
    let of_gradient = planner.profile.tuning.row_vec4s;
    if planner.body.is_gradient() || planner.problem.epilogue.residual {
        of_gradient
    } else {
        (times * of_gradient).min(MOST_ROW_VEC4S)
    }
}

/// How workgroups divide rows, if registers hold them.
fn rows_of_registers(planner: &Planner<'_>) -> Rows {
    let tuning = &planner.profile.tuning;
    let most = row_vec4s(planner);
    let columns = u64::from(planner.problem.axes.by_row().inner);
    let divided = |workgroup_size| {
        let sharing = threads(workgroup_size, columns, tuning.least_row_vec4s);
        Rows::new(planner, workgroup_size, sharing, most)
    };
    let mut rows = divided(planner.workgroup(tuning.workgroup));
    if rows.column_tiles() > 1 {
        rows = divided(planner.workgroup(tuning.fused_workgroup));
    }
    // No more invocations than a subgroup has, if it can hold the row, which then needs no barrier: on an H200 rows of
    // 1152 to 2048 take 0.6 of the time forward.
    let Division {
        workgroup_size,
        threads_per_row,
        vector_vec4s,
        ..
    } = rows.division;
    let subgroup = planner.subgroup(workgroup_size);
    let most = most_vectors(row_vec4s_of_forward(planner, 4), vector_vec4s);
    let vectors = rows.row_vectors();
    if threads_per_row > subgroup && vectors <= subgroup * most {
        let threads = (workgroup_size, subgroup);
        rows.division = Division::new(threads, (vectors, vector_vec4s), most).compiled(most);
    }
    rows
}

fn is_over_groups(planner: &Planner<'_>) -> bool {
    planner.problem.family == Family::Groups
}

impl Walk for RowsInRegisters<'_> {
    /// Groups are not on drivers for the CPU.
    fn is_profitable(&self) -> bool {
        !is_over_groups(&self.planner) || self.planner.profile.cheap_barriers()
    }

    /// Statistics that the kernel does not write itself, or sums of rows that are channels.
    fn kept_records(&self) -> u64 {
        let keeps_sums = !self.planner.body.is_gradient() || is_over_groups(&self.planner);
        let keeps = keeps_sums && !self.planner.tensors.results.is_empty();
        u64::from(keeps && !stores_statistics(&self.planner)) * self.walk.rows.rows
    }

    fn reduce(&self, known: &Known, workspace: &mut Workspace) -> Result<Reduced, Unfit> {
        let (planner, walk, rows) = (&self.planner, &self.walk, &self.walk.rows);
        let (tensors, groups) = (planner.tensors, &planner.problem.groups);
        let summed = sums_columns(planner);
        let (stored, kept) = (stores_statistics(planner), self.kept_records() > 0);
        let kernel = InRegisters {
            threads_per_row: word(rows.division.threads_per_row),
            column_vectors: word(rows.division.column_vectors),
            held_rows: 1,
            vector_vec4s: word(rows.division.vector_vec4s),
            of_rows: true,
            one_tile: true,
            of_planes: is_over_groups(planner),
            aligned: rows.aligned(),
            shares_words: planner.shares_words(rows.columns),
            complete: rows.complete(),
            kept,
            stored,
            summed,
            of_samples: walk.of_samples,
            add_thread_rows: walk.add_thread_rows && summed,
            paired_columns: summed && walk.pairs_columns(),
            ..InRegisters::default()
        };
        let start = |split: u64| walk.start(split);
        let reduce = |region: Region, splits: Range<u64>| {
            let windows = planner.windows(splits, walk.misalignments, start)?;
            let kernel = (kernel, rows.division.workgroup_size);
            planner.over(&windows, kernel, |window, range| {
                let read = tensors.inputs.iter().chain(&tensors.statistics);
                let results = tensors.results.iter().filter(|_| stored);
                let mut bindings: Vec<_> = window.bind_all(read.chain(&tensors.params)).collect();
                bindings.extend((summed || kept).then(Binding::workspace));
                bindings.extend(window.bind_all(tensors.outputs.iter().chain(results)));
                let uniforms = InRegistersUniforms {
                    tiles: BatchTiles {
                        stats: known.kept.first,
                        parameters: word(planner.problem.axes.parameters()),
                        channels: ColumnChannels {
                            row_channels: groups.channels,
                            inner: groups.layout.grid.inner,
                            group_channels: groups.group_channels,
                            ..ColumnChannels::none()
                        },
                        ..walk.tiles(window, range)
                    },
                    row_step: word(walk.step),
                    misalignments: word(walk.misalignments),
                    partials: region.first,
                    partial_stride: word(walk.partial_stride()),
                    scalars: planner.problem.scalars(),
                    ..InRegistersUniforms::default()
                };
                (bindings, uniforms)
            })
        };
        let partials = |region, splits| walk.column_partials(region, splits);
        let (dispatches, sums) = planner.in_rounds(&self.rounds, workspace, reduce, partials)?;
        let unfinished = if !kept {
            sums
        } else if planner.body.is_gradient() {
            sums_of_all_samples(planner.problem, known.kept)
        } else {
            Partials::plain(known.kept, word(rows.rows), 1, rows.rows)
        };
        Ok(Reduced {
            dispatches,
            statistics: None,
            parameters: (kept || planner.body.is_gradient()).then_some(unfinished),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::DType;
    use crate::operation::{Backward, Norm, Operation};
    use crate::plan::tests::with_planner;
    use crate::profile::Profile;
    use crate::tuning::Tuning;

    /// The rows of a gradient, if registers hold them.
    fn rows_in_registers(profile: &Profile, data: DType, columns: usize) -> Option<Rows> {
        let norm = Norm::layer(-1);
        let operation = Operation::new(norm, Backward::default(), &[4096, columns], data);
        with_planner(profile, &operation, |planner| {
            RowsInRegisters::new(planner)
                .ok()
                .map(|walk| walk.walk.rows)
        })
    }

    #[test]
    fn rows_that_registers_hold_are_fused() {
        let profile = Profile {
            tuning: Tuning::SOFTWARE,
            ..Profile::usual()
        };
        let aligned =
            |data, columns| rows_in_registers(&profile, data, columns).map(|rows| rows.aligned());
        for data in [DType::F32, DType::F64, DType::F16, DType::Bf16] {
            assert_eq!(aligned(data, 768), Some(true), "{data}");
            assert_eq!(aligned(data, 770), Some(false), "{data}");
            // Two rows of an odd number of 16-bit elements share a word.
            for columns in [769, 1] {
                assert_eq!(aligned(data, columns), Some(false), "{data} {columns}");
            }
            assert_eq!(aligned(data, 40_001), None, "{data}");
        }
    }
    #[test]
    fn long_rows_take_wide_workgroups() {
        let gpu = Profile {
            max_invocations: 1024,
            max_workgroup_storage: 32768,
            ..Profile::usual()
        };
        let workgroup = |profile: &Profile, columns| {
            let rows = rows_in_registers(profile, DType::F32, columns)?;
            Some((rows.division.workgroup_size, rows.division.column_vectors))
        };
        assert_eq!(workgroup(&gpu, 4096), Some((256, 4)));
        assert_eq!(workgroup(&gpu, 4100), Some((512, 3)));
        assert_eq!(workgroup(&gpu, 8192), Some((512, 4)));
        assert_eq!(workgroup(&gpu, 8196), None);
        // The limits that every device has.
        assert_eq!(workgroup(&Profile::usual(), 4100), None);
    }
}
