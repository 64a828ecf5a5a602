//! The one list that decides which plan an operation gets: the first candidate of its family that can do the problem
//! and is profitable, or the one that the profile forces. A walk says why it cannot do a problem, and whether it is
//! profitable.

use super::limits::{Cannot, Unfit, check};
use super::planner::Planner;
use super::problem::Family;
use super::stages::Stage;
use super::walks::Walk;
use super::walks::channels_first::Planes;
use super::walks::channels_first_fused::PlanesFused;
use super::walks::channels_last::ChannelsLast;
use super::walks::channels_last_fused::ColumnsOfChannels;
use super::walks::columns::WalkedColumns;
use super::walks::columns_in_registers::ColumnsInRegisters;
use super::walks::groups_as_rows::GroupsAsRows;
use super::walks::rows_in_registers::RowsInRegisters;
use super::walks::rows_read_twice::RowsReadTwice;
use crate::algorithm::Algorithm;
use crate::error::Error;

const SPLIT: &[Stage] = &[Stage::Pack, Stage::Reduce, Stage::Finish, Stage::Apply];
const GROUPS: &[Stage] = &[Stage::Pack, Stage::Reduce, Stage::Combine, Stage::Apply];
const ROWS_OF_GROUPS: &[Stage] = &[Stage::Reduce, Stage::Finish, Stage::Apply];
pub(super) const WHOLE: &[Stage] = &[Stage::Whole];

/// A walk, or why there is none.
type Made<'a> = Result<Box<dyn Walk + 'a>, Cannot>;

/// A way to do the operations of a family.
struct Candidate {
    family: Family,
    algorithm: Algorithm,
    stages: &'static [Stage],
    walk: for<'a> fn(Planner<'a>) -> Made<'a>,
}

const fn candidate(
    family: Family,
    algorithm: Algorithm,
    stages: &'static [Stage],
    walk: for<'a> fn(Planner<'a>) -> Made<'a>,
) -> Candidate {
    Candidate {
        family,
        algorithm,
        stages,
        walk,
    }
}

#[rustfmt::skip]
const CANDIDATES: [Candidate; 15] = {
    use Algorithm as By;
    use Family::{Channels, Columns, Groups, Rows};
    [
        candidate(Channels, By::FusedChannelsFirst, WHOLE, |planner| made(PlanesFused::new(folded(planner)?))),
        candidate(Channels, By::FusedChannelsLast, WHOLE, |planner| made(ColumnsOfChannels::new(folded(planner)?))),
        candidate(Channels, By::General, SPLIT, general),
        candidate(Channels, By::ChannelsLast, SPLIT, |planner| made(ChannelsLast::new(folded(planner)?))),
        candidate(Channels, By::ChannelsFirst, SPLIT, |planner| made(Ok(Planes::new(folded(planner)?)))),

        candidate(Groups, By::RowsInRegisters, WHOLE, |planner| made(RowsInRegisters::over_groups(planner))),
        candidate(Groups, By::FusedChannelsFirst, WHOLE, |planner| made(PlanesFused::new(folded(planner)?))),
        candidate(Groups, By::General, GROUPS, general),
        candidate(Groups, By::ChannelsLast, GROUPS, |planner| made(ChannelsLast::new(folded(planner)?))),
        candidate(Groups, By::ChannelsFirst, ROWS_OF_GROUPS, |planner| made(GroupsAsRows::new(folded(planner)?))),
        candidate(Groups, By::ChannelsFirst, GROUPS, |planner| made(Ok(Planes::new(folded(planner)?)))),

        candidate(Rows, By::RowsInRegisters, WHOLE, |planner| made(RowsInRegisters::new(planner))),
        candidate(Rows, By::RowsReadTwice, SPLIT, |planner| made(Ok(RowsReadTwice::new(planner)))),

        candidate(Columns, By::ColumnsInRegisters, WHOLE, |planner| made(ColumnsInRegisters::new(planner))),
        candidate(Columns, By::ColumnsReadTwice, SPLIT, |planner| made(WalkedColumns::new(planner))),
    ]
};

fn made<'a>(walk: Result<impl Walk + 'a, Cannot>) -> Made<'a> {
    Ok(Box::new(walk?))
}

/// The planner, if the axes fold to three.
fn folded(planner: Planner<'_>) -> Result<Planner<'_>, Cannot> {
    let folds = planner.problem.groups.layout.general.is_none();
    check(folds, "the axes do not fold to (outer, channels, inner)")?;
    Ok(planner)
}

/// The walk over axes that do not.
fn general(planner: Planner<'_>) -> Made<'_> {
    let general = planner.problem.groups.layout.general;
    check(
        general.is_some(),
        "the axes fold to (outer, channels, inner)",
    )?;
    if general.is_some_and(|general| general.keeps_last) {
        made(ChannelsLast::new(planner))
    } else {
        made(Ok(Planes::new(planner)))
    }
}

/// The way that an operation is done.
pub(super) struct Way<'a> {
    pub algorithm: Algorithm,
    pub stages: &'static [Stage],
    pub walk: Box<dyn Walk + 'a>,
}

impl<'a> Way<'a> {
    /// The way of the whole operation.
    pub fn of(planner: Planner<'a>) -> Result<Self, Unfit> {
        let forced = planner.profile.algorithm;
        Self::first(planner, forced, |_| true)
    }

    /// The way of its two halves, where the whole takes one dispatch.
    pub fn of_halves(planner: Planner<'a>, whole: Algorithm) -> Result<Self, Unfit> {
        // In a row of channels, every element would have a partial sum if it were read as columns.
        let lone = planner.problem.groups.layout.grid.outer == 1;
        let forced =
            (whole == Algorithm::FusedChannelsFirst && lone).then_some(Algorithm::ChannelsFirst);
        Self::first(planner, forced, |candidate| candidate.stages != WHOLE)
    }

    fn first(
        planner: Planner<'a>,
        forced: Option<Algorithm>,
        is_meant: impl Fn(&Candidate) -> bool,
    ) -> Result<Self, Unfit> {
        let family = planner.problem.family;
        let mut refused = None;
        for candidate in CANDIDATES
            .iter()
            .filter(|candidate| candidate.family == family && is_meant(candidate))
        {
            let &Candidate {
                algorithm,
                stages,
                walk,
                ..
            } = candidate;
            if forced.is_some_and(|forced| forced != algorithm) {
                continue;
            }
            match walk(planner) {
                Ok(walk) if forced.is_some() || walk.is_profitable() => {
                    return Ok(Self {
                        algorithm,
                        stages,
                        walk,
                    });
                }
                Ok(_) => {}
                Err(cannot) => refused = Some((algorithm, cannot)),
            }
        }
        // If none is forced, the last candidate can do every problem of its family, so only its size is refused.
        let (algorithm, reason) = match refused {
            Some((_, Cannot::Fit(unfit))) => return Err(unfit),
            Some((algorithm, Cannot::Because(reason))) => (algorithm, reason),
            None => {
                let not_one = format!("it is not for {}", family.operators());
                (forced.unwrap_or(Algorithm::General), not_one)
            }
        };
        Err(Error::Algorithm { algorithm, reason }.into())
    }
}
