//! The stages of a plan, and the dispatches of those that do not walk the tensors: they gather parameters, add partial
//! sums up, and derive what follows.

pub(super) mod combine_groups;
pub(super) mod finish;
pub(super) mod pack;
pub(super) mod params;

/// A stage of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Writes a record of each channel, row or column, what is known before the sums, where no walk reads that itself.
    Pack,
    /// Reads the tensors for partial sums.
    Reduce,
    /// Adds up the partial sums, and derives what follows: results, and the records that the elementwise pass reads.
    Finish,
    /// Combines the sums of a group's channels.
    Combine,
    /// Reads and writes the tensors element by element.
    Apply,
    /// Everything but the last sums of parameters.
    Whole,
}
