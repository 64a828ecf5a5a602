//! The kernels: one manifest of their texts, bindings, uniforms and variants, from which pipelines,
//! translations and tests are made.
//!
//! # Words
//!
//! * A *quad* is four neighbouring elements, a *packet* what one load moves: a quad or two.
//! * A *run* is the elements of one channel at one index of N. A *row* is what layer norm normalizes together; in the
//!   kernels over columns, whose channels alternate quickly, some outer indices side by side. A *column* is a position
//!   in rows.
//! * A *tile* is what a workgroup does at a time: a *block* of runs, rows or channels, or a *chunk* of one run. Where a
//!   channel's reduction is *split*, each share has a *partial* sum.
//! * *Lanes* are invocations side by side in a run or row; what one of them does after another is its *walk*.
//! * A *window* is the part of a tensor that a dispatch binds.
//!
//! # Why every index is in bounds
//!
//! Pipelines are made without the checks that naga can add, so the kernels and the plan must not need
//! them.
//! * Data are moved by quads, groups of four elements, or by packets of one or two quads; a tensor is in packets
//!   of two only if it has a multiple of eight elements. Data tensors are bound from `window` (a multiple of 32
//!   elements) at least to the end of the last packet that the dispatch's tiles touch; [`crate::plan`] computes
//!   both from the same tile bounds. The kernels over runs reach only packets that hold an element of one of
//!   their tiles. Those over columns clamp what is beside the last column or behind the last element to that
//!   column and element, which are in the window: only the last window's last row can be incomplete. The fused
//!   kernel over columns clamps columns likewise; its rows are whole packets, all bound. The fused
//!   kernel over rows clamps columns and rows to the last ones, and where rows do not begin at quads, like the kernels
//!   over split rows, packets to the window's last; what they store passes the same comparisons without the clamp. Where a
//!   buffer has no room for the last quad of a tensor, the `exact` accessors clamp every index that they load to the
//!   tensor's length, and store no more elements than they are told; the kernels tell them those that are in the tensor.
//!   Such a tensor is not in packets of two.
//! * Parameters: quads below ⌈length / 4⌉, bound whole, padded or through `exact` accessors; the length
//!   is `channels`, or where they lie along rows or columns `rows` or `columns`.
//! * The workspace is bound whole; the plan lays out every part with its size rounded up to sixteen
//!   records, and kernels index a part below the size that the plan reserved: records by channel or row,
//!   partial sums by (split, column), of two columns where they are `paired`, which come in whole quads, by
//!   (split, channel) where they are `folded`, or by (row, part), weights by quad of columns, sums of groups by (group, quad of channels). Where sums are added up in
//!   rounds, the plan's offsets of later rounds wrap below 0, and the splits added to them wrap back: the records of
//!   all rounds together may be more than 2³², but both sums are taken modulo 2³², and what they name is in the part.
//! * Workgroup arrays have `workgroup_size` elements and are indexed by the invocation's index plus a
//!   stride that the loop bounds keep below it, or by a channel of the block (`block` is a multiple of 4
//!   and at most `workgroup_size`). `lanes` is a power of two and at most `workgroup_size`, and so is
//!   `lanes` · `outer_lanes`; `joined` is one too, and at most `lanes`.
//!   The reduction by columns, where it is `folded`, has rows of at most `workgroup_size` quads, all of
//!   which one workgroup owns.
//! * The sums have 2 · `channels` + 1 reals and are indexed below that.
//! * Private arrays have `column_packets` packets of `packet_quads` quads and are indexed below these.
//! * A dispatch has a workgroup for each tile and, folded into two dimensions, up to 65,534 more. They return
//!   at once; in finish and fused_columns they first compute for the last channel or of no parts, and store nothing.
//! * What a clamped load reads, another invocation may be writing in place, and so it may the other row's elements of
//!   a quad that two rows share. They are never used.
//! * A part of a quad is stored through 64-bit words by reading the quad and writing all of it: all of it is
//!   bound, or the tensor would be exact, and every quad is stored by one invocation alone.
//! * Where two rows share a quad, in the fused kernel over rows that do not begin at quads, each row's invocation
//!   stores its own elements of it, word by word. It takes no rows that share a word.
//! * Where a window begins inside a row, the row's first packet relative to it wraps below 0; the packets of the
//!   window's tiles, added to it, wrap back.
//! * Loops end: their steps are above 0, and what they count stays below 2³² − 2²⁰ while a step is at most
//!   2²⁰ ([`crate::geometry`], the bounds of [`crate::Tuning`]).

mod accessors;
mod apply_columns;
mod apply_rows;
mod apply_runs;
mod bodies;
mod describe;
mod finish;
mod fused_columns;
mod fused_rows;
mod fused_runs;
mod groups;
mod pack_statistics;
mod pack_weights;
mod parts;
mod reduce_columns;
mod reduce_rows;
mod reduce_runs;
mod source;
#[cfg(test)]
mod tests;
mod uniforms;

pub(crate) use apply_columns::{ApplyColumns, ApplyColumnsUniforms};
pub(crate) use apply_rows::{ApplyRows, ApplyRowsUniforms};
pub(crate) use apply_runs::{ApplyRuns, ApplyRunsUniforms};
pub(crate) use bodies::Body;
#[cfg(test)]
pub(crate) use describe::Value;
pub(crate) use describe::{Constant, Describe};
pub(crate) use finish::{Finish, FinishUniforms};
pub(crate) use fused_columns::{FusedColumns, FusedColumnsUniforms};
pub(crate) use fused_rows::{FusedRows, FusedRowsUniforms};
pub(crate) use fused_runs::{FusedRuns, FusedRunsUniforms};
pub(crate) use groups::{AxisSizes, ColumnTiles, RowTiles, RunTiles, TileRange};
pub(crate) use pack_statistics::{PackStatistics, PackStatisticsUniforms};
pub(crate) use pack_weights::{PackWeights, PackWeightsUniforms};
pub(crate) use reduce_columns::{ReduceColumns, ReduceColumnsUniforms};
pub(crate) use reduce_rows::{ReduceRows, ReduceRowsUniforms};
pub(crate) use reduce_runs::{ReduceRuns, ReduceRunsUniforms};
pub(crate) use source::{Access, Variant};
pub(crate) use uniforms::Uniforms;

use describe::Kind;

/// A tensor or scratch area that a kernel binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Tensor {
    Src,
    DiffDst,
    Mean,
    Variance,
    MeanSquare,
    Gamma,
    DiffSrc,
    DiffGamma,
    DiffBeta,
    Sums,
    Workspace,
}

impl Tensor {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Src => "src",
            Self::DiffDst => "diff_dst",
            Self::Mean => "mean",
            Self::Variance => "variance",
            Self::MeanSquare => "mean_square",
            Self::Gamma => "gamma",
            Self::DiffSrc => "diff_src",
            Self::DiffGamma => "diff_gamma",
            Self::DiffBeta => "diff_beta",
            Self::Sums => "sums",
            Self::Workspace => "workspace",
        }
    }

    /// Whether it has the data's element type (else the parameters').
    pub const fn is_data(self) -> bool {
        matches!(self, Self::Src | Self::DiffDst | Self::DiffSrc)
    }

    /// Whether it is none of the caller's operands.
    pub const fn is_scratch(self) -> bool {
        matches!(self, Self::Sums | Self::Workspace)
    }

    /// Whether there is one of it for each group of elements that are normalized together.
    pub const fn is_statistic(self) -> bool {
        matches!(self, Self::Mean | Self::Variance | Self::MeanSquare)
    }

    /// Whether kernels write it.
    pub const fn is_output(self) -> bool {
        matches!(
            self,
            Self::DiffSrc | Self::DiffGamma | Self::DiffBeta | Self::Sums | Self::Workspace
        )
    }
}

/// A kernel of `shaders/traversals/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kernel {
    PackStatistics,
    PackWeights,
    ReduceRuns,
    ReduceColumns,
    Finish,
    ApplyRuns,
    ApplyColumns,
    FusedRuns,
    FusedColumns,
    FusedRows,
    ReduceRows,
    ApplyRows,
}

/// A file of a kernel's text.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Always(&'static str),
    /// The body of the variant's operator.
    Body,
    /// Where a constant is true.
    If(&'static str, &'static str),
    /// Where it is not.
    Unless(&'static str, &'static str),
}

#[cfg(test)]
impl Part {
    pub fn text(self) -> &'static str {
        match self {
            Self::Always(text) | Self::If(_, text) | Self::Unless(_, text) => text,
            Self::Body => "",
        }
    }
}

/// What is known of a kernel, whatever its constants.
pub(crate) struct Entry {
    /// Name of its file and entry point.
    pub name: &'static str,
    /// Its text: files of `shaders/parts/`, then its own.
    pub text: &'static [Part],
    /// The tensors it may bind, in binding order from 1 on; binding 0 is the uniform. Those of them that its body names
    /// are bound.
    pub tensors: &'static [Tensor],
    /// Whether it binds the body's statistics, before gamma.
    pub statistics: bool,
    /// Which of them a variant may leave out: an input reads as 1 then, an output is not written.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "read by the tests of every variant")
    )]
    pub optional: &'static [Tensor],
    /// The constants that a variant's text begins with, each with a value of its type.
    #[cfg_attr(not(test), expect(dead_code, reason = "read by the tests"))]
    pub constants: &'static [(&'static str, Constant)],
    /// Its uniform struct.
    pub uniforms: Kind,
    /// The uniforms with the lengths of mean and variance, and of gamma, diff_gamma and diff_beta.
    pub statistics_length: &'static str,
    pub gamma_length: &'static str,
}

impl Entry {
    /// Of a kernel to which every parameter has an element for each channel.
    const OVER_CHANNELS: Self = Self {
        name: "",
        text: &[],
        tensors: &[],
        statistics: false,
        optional: &[],
        constants: &[],
        uniforms: Kind::Group(&[]),
        statistics_length: "channels",
        gamma_length: "channels",
    };
}

impl Kernel {
    #[cfg(test)]
    pub const ALL: [Self; 12] = [
        Self::PackStatistics,
        Self::PackWeights,
        Self::ReduceRuns,
        Self::ReduceColumns,
        Self::Finish,
        Self::ApplyRuns,
        Self::ApplyColumns,
        Self::FusedRuns,
        Self::FusedColumns,
        Self::FusedRows,
        Self::ReduceRows,
        Self::ApplyRows,
    ];

    pub fn entry(self) -> &'static Entry {
        match self {
            Self::PackStatistics => &pack_statistics::ENTRY,
            Self::PackWeights => &pack_weights::ENTRY,
            Self::ReduceRuns => &reduce_runs::ENTRY,
            Self::ReduceColumns => &reduce_columns::ENTRY,
            Self::Finish => &finish::ENTRY,
            Self::ApplyRuns => &apply_runs::ENTRY,
            Self::ApplyColumns => &apply_columns::ENTRY,
            Self::FusedRuns => &fused_runs::ENTRY,
            Self::FusedColumns => &fused_columns::ENTRY,
            Self::FusedRows => &fused_rows::ENTRY,
            Self::ReduceRows => &reduce_rows::ENTRY,
            Self::ApplyRows => &apply_rows::ENTRY,
        }
    }
}

impl Entry {
    /// The tensors that it may bind with a body, in binding order.
    pub fn tensors(&self, body: Body) -> Vec<Tensor> {
        let mut tensors = Vec::new();
        for &tensor in self.tensors {
            if tensor == Tensor::Gamma && self.statistics {
                tensors.extend(body.statistics());
            }
            if tensor.is_scratch() || body.tensors().contains(&tensor) {
                tensors.push(tensor);
            }
        }
        tensors
    }
}

/// Steps of a tree of sums over so many invocations.
fn tree(invocations: impl Into<u64>) -> u64 {
    u64::from(invocations.into().max(1).ilog2())
}

/// Iterations of the loops over one packet's elements: each quad for itself, and if quads are of several channels or
/// rows each element too.
fn of_a_packet(packet_quads: u32, by_element: bool) -> u64 {
    1 + u64::from(packet_quads) * (1 + 4 * u64::from(by_element))
}
