//! Reductions in rounds: where there is no room for the partial sums of all splits, those of some splits are added up
//! before the next ones overwrite them.

use super::dispatch::Dispatch;
use super::limits::{MAX_SEQUENTIAL, Unfit, check_dispatches};
use super::planner::Planner;
use super::sizes::{div_ceil, word};
use super::stages::finish::Partials;
use super::workspace::{Region, Workspace};
use crate::error::Error;
use std::ops::Range;

/// The most rounds of a plan.
const MOST_ROUNDS: u64 = 4096;

/// The splits of a reduction.
pub(crate) struct Rounds {
    pub splits: u64,
    /// Records that the partial sums of a split take.
    pub records: u64,
    /// Splits for which there is room at a time.
    pub round: u64,
}

impl Rounds {
    /// All splits at once if that takes no more records than `room`, or than a subtotal of every channel; otherwise as
    /// many as leave room for subtotals of `subtotal_records` records each.
    pub fn new(splits: u64, records: u64, subtotal_records: u64, room: u64) -> Self {
        let beside = |sums| room.saturating_sub(sums * (subtotal_records + 16)) / records.max(1);
        // Too many rounds for one accumulator: each block of rounds has its own.
        let many = |round| div_ceil(splits, round) > MAX_SEQUENTIAL;
        let round = match splits.saturating_mul(records) <= room.max(subtotal_records) {
            true => splits,
            false if many(beside(1)) => beside(2),
            false => beside(1),
        };
        Self {
            splits,
            records,
            round,
        }
    }

    /// Whether there is room for at least one split, if there are any.
    pub fn fit(&self) -> bool {
        self.splits == 0 || self.round > 0
    }

    /// Whether there is one round.
    pub fn at_once(&self) -> bool {
        self.round == self.splits
    }
}

impl Planner<'_> {
    /// The dispatches of all rounds. `reduce` returns those of some splits, given the region where the partial sums of
    /// split 0 would begin; `partials` returns the partial sums that a number of splits leaves in a region.
    pub fn in_rounds(
        &self,
        rounds: &Rounds,
        workspace: &mut Workspace,
        mut reduce: impl FnMut(Region, Range<u64>) -> Result<Vec<Dispatch>, Unfit>,
        partials: impl Fn(Region, u64) -> Partials,
    ) -> Result<(Vec<Dispatch>, Partials), Unfit> {
        let round = rounds.round.max(1);
        let what = "the workspace's partial sums";
        let limit = "rounds that fit max_storage_buffer_binding_size";
        Error::check_limit(what, limit, rounds.splits / round, MOST_ROUNDS).map_err(Unfit::Room)?;
        let region = workspace.reserve(round * rounds.records)?;
        if rounds.at_once() {
            let dispatches = reduce(region, 0..rounds.splits)?;
            return Ok((dispatches, partials(region, rounds.splits)));
        }
        let count = div_ceil(rounds.splits, round);
        let mut sums = self.running_sums(partials(region, 1).channels, count, workspace)?;
        let mut dispatches = Vec::new();
        let before_subtotals = *workspace;
        let mut first = 0;
        while first < rounds.splits {
            let end = (first + round).min(rounds.splits);
            let before = Region {
                first: region.first.wrapping_sub(word(first * rounds.records)),
            };
            dispatches.extend(reduce(before, first..end)?);
            // The subtotals of all rounds share one region.
            let mut scratch = before_subtotals;
            let some = partials(region, end - first);
            dispatches.extend(self.add_up(&mut sums, some, &mut scratch)?);
            workspace.grow_to(&scratch);
            check_dispatches(dispatches.len() as u64)?;
            first = end;
        }
        Ok((dispatches, self.total(&sums)))
    }

    /// Reserves a region for sums of channels to which partial sums are added `count` times.
    pub fn running_sums(
        &self,
        channels: u32,
        count: u64,
        workspace: &mut Workspace,
    ) -> Result<RunningSums, Unfit> {
        let of_block = workspace.reserve(self.subtotal_records(channels))?;
        let total = if count > MAX_SEQUENTIAL {
            workspace.reserve(self.subtotal_records(channels))?
        } else {
            of_block
        };
        Ok(RunningSums {
            channels,
            of_block,
            total,
            count,
            done: 0,
        })
    }

    /// Adds partial sums, one of `count` times.
    pub fn add_up(
        &self,
        sums: &mut RunningSums,
        partials: Partials,
        workspace: &mut Workspace,
    ) -> Result<Vec<Dispatch>, Unfit> {
        let (mut dispatches, partials) = self.add_subtotals(partials, workspace)?;
        let begun = !sums.done.is_multiple_of(MAX_SEQUENTIAL);
        dispatches.push(self.add_to(&partials, partials.count, sums.of_block, begun)?);
        sums.done += 1;
        let ends = sums.done.is_multiple_of(MAX_SEQUENTIAL) || sums.done == sums.count;
        if sums.count > MAX_SEQUENTIAL && ends {
            let block = self.subtotals(sums.of_block, sums.channels, 1);
            let begun = sums.done > MAX_SEQUENTIAL;
            dispatches.push(self.add_to(&block, block.count, sums.total, begun)?);
        }
        Ok(dispatches)
    }

    /// The sums of everything that was added.
    pub fn total(&self, sums: &RunningSums) -> Partials {
        self.subtotals(sums.total, sums.channels, 1)
    }
}

/// Sums of channels that are added one after another, in blocks so short that rounding errors do not pile up.
pub(crate) struct RunningSums {
    channels: u32,
    of_block: Region,
    total: Region,
    /// How many times partial sums are added, and how many times they were.
    count: u64,
    done: u64,
}
