//! A reduction in rounds: where there is no room for the partial sums of all splits, those of some splits are added up
//! before the next ones take their place.

use super::finish::Partials;
use super::workspace::{Part, Workspace};
use super::{Dispatch, MAX_SERIAL, Planner, div_ceil, word};
use crate::Error;
use std::ops::Range;

/// Rounds of a plan, at most.
const MOST_ROUNDS: u64 = 4096;

/// The splits of a reduction.
pub(crate) struct Rounds {
    pub splits: u64,
    /// Records of the partial sums of a split.
    pub records: u64,
    /// Splits that there is room for at a time.
    pub round: u64,
}

impl Rounds {
    /// All splits at once if that takes no more records than `room`, or than the sums; else as many as leave room for
    /// groups' sums, of so many records each.
    pub fn new(splits: u64, records: u64, group_records: u64, room: u64) -> Self {
        let beside = |sums| room.saturating_sub(sums * (group_records + 16)) / records.max(1);
        let rounds = |round| Self {
            splits,
            records,
            round,
        };
        match splits.saturating_mul(records) <= room.max(group_records) {
            true => rounds(splits),
            false if rounds(beside(1)).many() => rounds(beside(2)),
            false => rounds(beside(1)),
        }
    }

    /// Whether there is room for one split at least, if there are any.
    pub fn fit(&self) -> bool {
        self.splits == 0 || self.round > 0
    }

    /// Whether one accumulator must not add up the sums of all rounds: a block of rounds has its own.
    fn many(&self) -> bool {
        div_ceil(self.splits, self.round.max(1)) > MAX_SERIAL
    }

    /// Whether there is one round.
    pub fn at_once(&self) -> bool {
        self.round == self.splits
    }
}

impl Planner<'_> {
    /// All rounds: `reduce` gives the dispatches of some splits, whose partial sums are where those of the first split
    /// would be at the given part, and `partials` says what so many splits leave there.
    pub fn in_rounds(
        &self,
        rounds: &Rounds,
        workspace: &mut Workspace,
        mut reduce: impl FnMut(Part, Range<u64>) -> Result<Vec<Dispatch>, Error>,
        partials: impl Fn(Part, u64) -> Partials,
    ) -> Result<(Vec<Dispatch>, Partials), Error> {
        let round = rounds.round.max(1);
        Error::check_limit(
            "the workspace's partial sums",
            "rounds that fit max_storage_buffer_binding_size",
            rounds.splits / round,
            MOST_ROUNDS,
        )?;
        let part = workspace.reserve(round * rounds.records)?;
        if rounds.at_once() {
            let dispatches = reduce(part, 0..rounds.splits)?;
            return Ok((dispatches, partials(part, rounds.splits)));
        }
        let channels = partials(part, 1).channels;
        let of_block = workspace.reserve(self.group_records(channels))?;
        let total = match rounds.many() {
            true => workspace.reserve(self.group_records(channels))?,
            false => of_block,
        };
        let mut dispatches = Vec::new();
        let before_groups = workspace.clone();
        let mut first = 0;
        let mut done = 0;
        while first < rounds.splits {
            let end = (first + round).min(rounds.splits);
            let before = Part {
                first: part.first.wrapping_sub(word(first * rounds.records)),
            };
            dispatches.extend(reduce(before, first..end)?);
            // The groups of all rounds have one place.
            let mut scratch = before_groups.clone();
            let (groups, sums) = self.group(partials(part, end - first), &mut scratch)?;
            workspace.grow_to(&scratch);
            dispatches.extend(groups);
            dispatches.push(self.add_to(&sums, of_block, done % MAX_SERIAL > 0)?);
            done += 1;
            if rounds.many() && (done % MAX_SERIAL == 0 || end == rounds.splits) {
                let block = self.groups(of_block, channels, 1);
                dispatches.push(self.add_to(&block, total, done > MAX_SERIAL)?);
            }
            first = end;
        }
        Ok((dispatches, self.groups(total, channels, 1)))
    }
}
