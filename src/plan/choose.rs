//! Chooses a plan's algorithm: the first of its operator's list that can do the problem and is profitable, or the one
//! that the profile forces.

use super::axes::{ByColumn, Grid, Layout};
use super::channels_first_fused::LONE_PLANE;
use super::channels_last::ChannelsLast;
use super::problem::{Family, Problem};
use super::tensors::Tensors;
use super::{Planner, Requirement, word};
use crate::{Algorithm, Error};

/// An algorithm of an operator's list.
struct Candidate<P> {
    algorithm: Algorithm,
    /// Why it cannot do a problem, if it cannot.
    unsupported_reason: fn(&Planner<'_>, &P) -> Option<String>,
    /// Whether it is taken where it can: it is faster than those after it.
    is_profitable: fn(&Planner<'_>, &P) -> bool,
}

/// All that the choice of an algorithm over channels depends on.
struct Channels {
    layout: Layout,
    src: Requirement,
    /// Channels side by side that share statistics.
    group_channels: u32,
    /// Whether channels that share statistics or parameters are not side by side.
    mixed: bool,
    /// Why the operator cannot be fused, if it cannot.
    not_fusible: Option<&'static str>,
    /// Storage buffers that a fused kernel binds: for groups the workspace in place of the results of channels and
    /// groups.
    fused_bindings: usize,
}

impl Channels {
    fn new(problem: &Problem, tensors: &Tensors) -> Self {
        let (bound, outputs) = (tensors.bound_at_once().len(), tensors.results.len());
        Self {
            layout: problem.axes.layout(),
            src: tensors.src,
            group_channels: word(problem.axes.group_parameters()),
            mixed: problem.axes.groups().mixed.is_some(),
            not_fusible: problem.not_fusible(),
            fused_bindings: match problem.family {
                Family::Groups => bound - outputs + usize::from(outputs > 0),
                _ => bound,
            },
        }
    }
}

/// The algorithms of the whole operator and of its two halves.
#[derive(Clone, Copy)]
pub(crate) struct Chosen {
    pub whole: Algorithm,
    pub halves: Algorithm,
}

/// All that the choice of an algorithm over rows depends on.
pub(crate) struct RowsOf {
    /// The elements by row; the parameters vary by column.
    pub by_row: Grid,
    pub tensors: Tensors,
    /// The rows that share parameters, if not all do.
    pub rows_of_a_sample: Option<u64>,
}

impl RowsOf {
    pub fn new(problem: &Problem, tensors: &Tensors) -> Self {
        Self {
            by_row: problem.axes.by_row(),
            tensors: tensors.clone(),
            rows_of_a_sample: problem.axes.rows_of_a_sample(),
        }
    }
}

/// All that the choice of an algorithm over columns depends on.
struct ColumnsOf {
    by_column: ByColumn,
    tensors: Tensors,
}

/// Batch norm in one dispatch.
const FUSED_BATCH_NORM: [Candidate<Channels>; 2] = [
    Candidate {
        algorithm: Algorithm::FusedChannelsFirst,
        unsupported_reason: |planner, problem| {
            not_fusible(planner, problem).or_else(|| {
                planner.channels_first_fused_unsupported_reason(
                    &problem.layout.grid,
                    problem.group_channels,
                    &problem.src,
                )
            })
        },
        is_profitable: |planner, problem| {
            planner.channels_first_fused_pay(&problem.layout, problem.group_channels)
        },
    },
    Candidate {
        algorithm: Algorithm::FusedChannelsLast,
        unsupported_reason: |planner, problem| {
            not_fusible(planner, problem).or_else(|| {
                planner.channels_last_fused_unsupported_reason(&problem.layout.grid, &problem.src)
            })
        },
        is_profitable: |planner, problem| planner.channels_last_fused_pay(&problem.layout.grid),
    },
];

/// Batch norm by a reduction and an elementwise pass, which are also its two halves.
const SPLIT_BATCH_NORM: [Candidate<Channels>; 3] = [
    Candidate {
        algorithm: Algorithm::General,
        unsupported_reason: |_, problem| match problem.layout.general {
            Some(_) => None,
            None => Some("the axes fold to (outer, channels, inner)".to_owned()),
        },
        is_profitable: |_, _| true,
    },
    Candidate {
        algorithm: Algorithm::ChannelsLast,
        unsupported_reason: |planner, problem| {
            not_folded(problem).or_else(|| {
                let walk = ChannelsLast {
                    planner: *planner,
                    layout: &problem.layout,
                    src: &problem.src,
                };
                walk.unsupported_reason()
            })
        },
        is_profitable: |_, problem| !problem.layout.has_planes(),
    },
    Candidate {
        algorithm: Algorithm::ChannelsFirst,
        unsupported_reason: |_, problem| not_folded(problem),
        is_profitable: |_, _| true,
    },
];

/// Group norm by a reduction and an elementwise pass. Where all planes are in one row, a column would have a sum of its
/// own.
const SPLIT_GROUP_NORM: [Candidate<Channels>; 3] = {
    let [general, columns, planes] = SPLIT_BATCH_NORM;
    let columns = Candidate {
        is_profitable: |_, problem: &Channels| {
            problem.layout.grid.outer > 1 || problem.layout.grid.inner < LONE_PLANE
        },
        ..columns
    };
    [general, columns, planes]
};

const ROWS: [Candidate<RowsOf>; 2] = [
    Candidate {
        algorithm: Algorithm::RowsInRegisters,
        unsupported_reason: |planner, problem| {
            planner.rows_in_registers_unsupported_reason(problem)
        },
        is_profitable: |_, _| true,
    },
    Candidate {
        algorithm: Algorithm::RowsReadTwice,
        unsupported_reason: |_, _| None,
        is_profitable: |_, _| true,
    },
];

const COLUMNS: [Candidate<ColumnsOf>; 3] = [
    Candidate {
        algorithm: Algorithm::ColumnsInRegisters,
        unsupported_reason: |planner, problem| {
            planner.columns_in_registers_unsupported_reason(&problem.by_column, &problem.tensors)
        },
        // It takes 0.55 of the time on an H200; on drivers for the CPU, which hold little and read pieces of rows
        // slowly, 3 times.
        is_profitable: |planner, problem| {
            planner.cheap_barriers()
                || !planner.columns_have_room(&problem.by_column, &problem.tensors)
        },
    },
    Candidate {
        algorithm: Algorithm::FusedColumns,
        unsupported_reason: |planner, problem| {
            planner.fused_columns_unsupported_reason(&problem.by_column, &problem.tensors)
        },
        is_profitable: |planner, problem| {
            !planner.columns_have_room(&problem.by_column, &problem.tensors)
        },
    },
    Candidate {
        algorithm: Algorithm::ColumnsReadTwice,
        unsupported_reason: |_, _| None,
        is_profitable: |_, _| true,
    },
];

fn not_folded(problem: &Channels) -> Option<String> {
    let general = problem.layout.general.is_some();
    general.then(|| "the axes do not fold to (outer, channels, inner)".to_owned())
}

/// Why no fused algorithm of batch norm can do a problem, if none can.
fn not_fusible(planner: &Planner<'_>, problem: &Channels) -> Option<String> {
    let apart = "channels that share statistics or parameters are not side by side";
    not_folded(problem)
        .or_else(|| problem.mixed.then(|| apart.to_owned()))
        .or_else(|| problem.not_fusible.map(str::to_owned))
        .or_else(|| planner.more_bindings_than_allowed(problem.fused_bindings))
}

impl Planner<'_> {
    /// The algorithms of batch norm and of its two halves. The halves have a split one, their own where the whole is
    /// fused.
    pub fn choose_halves(&self, problem: &Problem, tensors: &Tensors) -> Result<Chosen, Error> {
        let problem = &Channels::new(problem, tensors);
        let all = FUSED_BATCH_NORM.iter().chain(&SPLIT_BATCH_NORM);
        let whole = self.choose("batch norm", all, problem)?;
        let halves = match whole {
            // A row of channels: read as columns, every element would have a partial sum.
            Algorithm::FusedChannelsFirst if problem.layout.grid.outer == 1 => {
                Algorithm::ChannelsFirst
            }
            Algorithm::FusedChannelsFirst | Algorithm::FusedChannelsLast => {
                self.first_profitable(SPLIT_BATCH_NORM.iter(), problem)?
            }
            split => split,
        };
        Ok(Chosen { whole, halves })
    }

    /// The algorithm of group norm, fused over whole groups of channels first, or split; or of batch norm by given
    /// statistics.
    pub fn choose_channels(
        &self,
        problem: &Problem,
        tensors: &Tensors,
    ) -> Result<Algorithm, Error> {
        let channels = &Channels::new(problem, tensors);
        match problem.family {
            Family::Groups => {
                let all = FUSED_BATCH_NORM.iter().take(1).chain(&SPLIT_GROUP_NORM);
                self.choose("group and instance norm", all, channels)
            }
            _ => self.choose("batch norm", SPLIT_BATCH_NORM.iter(), channels),
        }
    }

    /// The algorithm of an operator over rows.
    pub fn choose_rows(&self, problem: &RowsOf) -> Result<Algorithm, Error> {
        self.choose("layer and RMS norm", ROWS.iter(), problem)
    }

    /// The algorithm of a norm over columns.
    pub fn choose_columns(
        &self,
        by_column: &ByColumn,
        tensors: &Tensors,
    ) -> Result<Algorithm, Error> {
        let problem = ColumnsOf {
            by_column: *by_column,
            tensors: tensors.clone(),
        };
        self.choose("norms over columns", COLUMNS.iter(), &problem)
    }

    fn choose<'c, P: 'c>(
        &self,
        operator: &str,
        mut list: impl Iterator<Item = &'c Candidate<P>>,
        problem: &P,
    ) -> Result<Algorithm, Error> {
        let Some(forced) = self.profile.algorithm else {
            return self.first_profitable(list, problem);
        };
        let reason = match list.find(|candidate| candidate.algorithm == forced) {
            Some(candidate) => (candidate.unsupported_reason)(self, problem),
            None => Some(format!("it is not one of {operator}'s")),
        };
        match reason {
            None => Ok(forced),
            Some(reason) => Err(refused(forced, reason)),
        }
    }

    fn first_profitable<'c, P: 'c>(
        &self,
        list: impl Iterator<Item = &'c Candidate<P>>,
        problem: &P,
    ) -> Result<Algorithm, Error> {
        let mut error = refused(Algorithm::General, "there is none".to_owned());
        for candidate in list {
            match (candidate.unsupported_reason)(self, problem) {
                None if (candidate.is_profitable)(self, problem) => return Ok(candidate.algorithm),
                None => {}
                Some(reason) => error = refused(candidate.algorithm, reason),
            }
        }
        // Not reached: each list ends with an algorithm that can do all that those before it cannot.
        Err(error)
    }
}

fn refused(algorithm: Algorithm, reason: String) -> Error {
    Error::Algorithm { algorithm, reason }
}
