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
//!   (split, channel) where they are `folded`, or by (row, part), weights by quad of columns, halves of words by row,
//!   sums of groups by (group, quad of channels). Where sums are added up in
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
//!   stores its own elements of it, by `exact` accessors: word by word. Of a word that holds elements of both each
//!   leaves its half in a record of its row, and join_rows has an invocation for each such word, one of each pair of
//!   rows.
//! * Where a window begins inside a row, the row's first packet relative to it wraps below 0; the packets of the
//!   window's tiles, added to it, wrap back.
//! * Loops end: their steps are above 0, and what they count stays below 2³² − 2²⁰ while a step is at most
//!   2²⁰ ([`crate::geometry`], the bounds of [`crate::Tuning`]).

mod source;
#[cfg(test)]
mod tests;
mod uniforms;

pub(crate) use source::{Access, PACKET_QUADS, Variant};
pub(crate) use uniforms::Uniforms;

use crate::geometry::MAX_RANK;

/// A tensor or scratch area that a kernel binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Tensor {
    Src,
    DiffDst,
    Mean,
    Variance,
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

    /// Whether kernels write it.
    pub const fn is_output(self) -> bool {
        matches!(
            self,
            Self::DiffSrc | Self::DiffGamma | Self::DiffBeta | Self::Sums | Self::Workspace
        )
    }
}

/// A kernel of `shaders/`.
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
    /// The same where the invocations of a row are of one subgroup.
    FusedRowsSubgroup,
    /// Over rows that do not begin at quads.
    FusedUnalignedRows,
    FusedUnalignedRowsSubgroup,
    JoinRows,
    ReduceRows,
    /// The same where a row's sums are added up within subgroups before they are written.
    ReduceRowsSubgroup,
    ApplyRows,
}

/// What the manifest says of a kernel.
pub(crate) struct Entry {
    /// Name of its file and entry point.
    pub name: &'static str,
    /// Its text: files of `shaders/parts/`, then its own.
    pub text: &'static [&'static str],
    /// The tensors it may bind, in binding order from 1 on; binding 0 is the uniform.
    pub tensors: &'static [Tensor],
    /// Which of them a variant may leave out: an input reads as 1 then, an output is not written.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "read by the tests of every variant")
    )]
    pub optional: &'static [Tensor],
    /// The constants that a variant's text begins with: lengths of register arrays among them, which
    /// override constants cannot be.
    #[cfg_attr(not(test), expect(dead_code, reason = "read by the tests"))]
    pub sizes: &'static [&'static str],
    /// The override constants that are true or false.
    constants: &'static [&'static str],
    /// Fields of its uniform struct that are u32, in order, but for [`AXIS_WORDS`].
    pub words: &'static [&'static str],
    /// Fields after them that have the accumulator's type.
    pub reals: &'static [&'static str],
    /// Whether it uses operations of subgroups.
    pub subgroups: bool,
}

/// Fields of the uniform struct that follow the other words where a kernel takes `general` axes.
pub(crate) const AXIS_WORDS: [&str; MAX_RANK + 1] = [
    "axis0",
    "axis1",
    "axis2",
    "axis3",
    "axis4",
    "axis5",
    "axis6",
    "axis7",
    "kept_axes",
];

impl Entry {
    /// All fields of its uniform struct that are u32, in order.
    pub fn all_words(&self) -> impl Iterator<Item = &'static str> {
        let axes: &[&str] = match self.constants.contains(&"general") {
            true => &AXIS_WORDS,
            false => &[],
        };
        self.words.iter().chain(axes).copied()
    }
}

/// The kernel by where rows begin and by one of its two ways to add up rows.
macro_rules! fused_rows {
    ($begin:literal, $row_sum:literal, $subgroups:literal) => {
        Entry {
            name: "fused_rows",
            text: &[
                include_str!("../../shaders/parts/tiles.wgsl"),
                include_str!("../../shaders/parts/paired_sums.wgsl"),
                include_str!("../../shaders/parts/packets.wgsl"),
                include_str!("../../shaders/parts/rows.wgsl"),
                include_str!("../../shaders/parts/column_sums.wgsl"),
                include_str!(concat!("../../shaders/parts/", $begin)),
                include_str!(concat!("../../shaders/parts/", $row_sum)),
                include_str!("../../shaders/fused_rows.wgsl"),
            ],
            tensors: &[
                Tensor::Src,
                Tensor::DiffDst,
                Tensor::Mean,
                Tensor::Variance,
                Tensor::Gamma,
                Tensor::Workspace,
                Tensor::DiffSrc,
            ],
            optional: &[Tensor::Gamma],
            sizes: &["lanes", "column_packets", PACKET_QUADS],
            constants: &["complete", "scaled", "summed", "stacked", "odd"],
            words: &[
                "rows",
                "columns",
                "row_quads",
                "tile_rows",
                "row_step",
                "shifts",
                "first_tile",
                "end_tile",
                "grid_width",
                "window",
                "length",
                "last_packet",
                "partials",
                "halves",
            ],
            reals: &["epsilon", "inverse_count"],
            subgroups: $subgroups,
        }
    };
}

/// The kernel by one of its two ways to add up rows.
macro_rules! reduce_rows {
    ($row_sum:literal, $subgroups:literal) => {
        Entry {
            name: "reduce_rows",
            text: &[
                include_str!("../../shaders/parts/tiles.wgsl"),
                include_str!("../../shaders/parts/paired_sums.wgsl"),
                include_str!("../../shaders/parts/packets.wgsl"),
                include_str!("../../shaders/parts/rows.wgsl"),
                include_str!("../../shaders/parts/column_sums.wgsl"),
                include_str!(concat!("../../shaders/parts/", $row_sum)),
                include_str!("../../shaders/parts/split_rows.wgsl"),
                include_str!("../../shaders/reduce_rows.wgsl"),
            ],
            tensors: &[
                Tensor::Src,
                Tensor::DiffDst,
                Tensor::Gamma,
                Tensor::Workspace,
                Tensor::DiffGamma,
                Tensor::DiffBeta,
            ],
            optional: &[Tensor::Gamma, Tensor::DiffGamma, Tensor::DiffBeta],
            sizes: &["lanes", "joined", "column_packets", PACKET_QUADS],
            constants: &[
                "complete", "scaled", "weighted", "summed", "stacked", "direct", "aligned",
            ],
            words: &[
                "rows",
                "columns",
                "row_quads",
                "tile_rows",
                "row_step",
                "shifts",
                "column_tiles",
                "row_parts",
                "first_tile",
                "end_tile",
                "grid_width",
                "window",
                "length",
                "last_packet",
                "stats",
                "weights",
                "row_partials",
                "partials",
            ],
            reals: &[],
            subgroups: $subgroups,
        }
    };
}

impl Kernel {
    /// Whether it computes the whole gradient of rows.
    pub fn fuses_rows(self) -> bool {
        matches!(self, Self::FusedRows | Self::FusedRowsSubgroup) || self.fuses_unaligned_rows()
    }

    /// Whether it walks rows, along which gamma and the parameters' gradients lie.
    pub fn is_over_rows(self) -> bool {
        let split = [Self::ReduceRows, Self::ReduceRowsSubgroup, Self::ApplyRows];
        self.fuses_rows() || split.contains(&self)
    }

    /// Whether it does so for rows that do not begin at quads.
    pub fn fuses_unaligned_rows(self) -> bool {
        matches!(
            self,
            Self::FusedUnalignedRows | Self::FusedUnalignedRowsSubgroup
        )
    }

    /// Whether a quad of diff_src is stored by several, each some words of it.
    pub fn shares_quads(self) -> bool {
        self.fuses_unaligned_rows() || self == Self::JoinRows
    }

    #[cfg(test)]
    pub const ALL: [Self; 17] = [
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
        Self::FusedRowsSubgroup,
        Self::FusedUnalignedRows,
        Self::FusedUnalignedRowsSubgroup,
        Self::JoinRows,
        Self::ReduceRows,
        Self::ReduceRowsSubgroup,
        Self::ApplyRows,
    ];

    pub fn entry(self) -> &'static Entry {
        use Tensor::*;
        match self {
            Self::PackStatistics => &Entry {
                name: "pack_statistics",
                text: &[
                    include_str!("../../shaders/parts/tiles.wgsl"),
                    include_str!("../../shaders/pack_statistics.wgsl"),
                ],
                tensors: &[Mean, Variance, Gamma, Workspace],
                optional: &[Gamma],
                sizes: &[],
                constants: &[],
                words: &["channels", "stats", "grid_width"],
                reals: &["epsilon"],
                subgroups: false,
            },
            Self::PackWeights => &Entry {
                name: "pack_weights",
                text: &[
                    include_str!("../../shaders/parts/tiles.wgsl"),
                    include_str!("../../shaders/pack_weights.wgsl"),
                ],
                tensors: &[Gamma, Workspace],
                optional: &[],
                sizes: &[],
                constants: &[],
                words: &["columns", "weights", "grid_width"],
                reals: &[],
                subgroups: false,
            },
            Self::ReduceRuns => &Entry {
                name: "reduce_runs",
                text: &[
                    include_str!("../../shaders/parts/tiles.wgsl"),
                    include_str!("../../shaders/parts/lanes.wgsl"),
                    include_str!("../../shaders/parts/workgroup_sum.wgsl"),
                    include_str!("../../shaders/parts/axes.wgsl"),
                    include_str!("../../shaders/parts/packets.wgsl"),
                    include_str!("../../shaders/parts/quads.wgsl"),
                    include_str!("../../shaders/parts/runs.wgsl"),
                    include_str!("../../shaders/reduce_runs.wgsl"),
                ],
                tensors: &[Src, DiffDst, Workspace, DiffSrc],
                optional: &[DiffSrc],
                sizes: &[PACKET_QUADS],
                constants: &["general", "packet_aligned", "quad_aligned"],
                words: &[
                    "outer",
                    "channels",
                    "inner",
                    "outer_block",
                    "chunk",
                    "chunks",
                    "lanes",
                    "first_tile",
                    "end_tile",
                    "grid_width",
                    "window",
                    "length",
                    "stats",
                    "partials",
                ],
                reals: &[],
                subgroups: false,
            },
            Self::ReduceColumns => &Entry {
                name: "reduce_columns",
                text: &[
                    include_str!("../../shaders/parts/tiles.wgsl"),
                    include_str!("../../shaders/parts/lanes.wgsl"),
                    include_str!("../../shaders/parts/axes.wgsl"),
                    include_str!("../../shaders/parts/packets.wgsl"),
                    include_str!("../../shaders/parts/columns.wgsl"),
                    include_str!("../../shaders/parts/stacked_sum.wgsl"),
                    include_str!("../../shaders/parts/paired_sums.wgsl"),
                    include_str!("../../shaders/reduce_columns.wgsl"),
                ],
                tensors: &[Src, DiffDst, Workspace, DiffSrc],
                optional: &[DiffSrc],
                sizes: &["column_packets", PACKET_QUADS],
                constants: &[
                    "general", "complete", "whole", "stacked", "folded", "paired",
                ],
                words: &[
                    "channels",
                    "inner",
                    "width_packets",
                    "tile_rows",
                    "rows",
                    "column_lanes",
                    "first_tile",
                    "end_tile",
                    "column_tiles",
                    "first_packet",
                    "end_packet",
                    "grid_width",
                    "window",
                    "length",
                    "stats",
                    "partials",
                    "row_tiles",
                ],
                reals: &[],
                subgroups: false,
            },
            Self::Finish => &Entry {
                name: "finish",
                text: &[
                    include_str!("../../shaders/parts/tiles.wgsl"),
                    include_str!("../../shaders/finish.wgsl"),
                ],
                tensors: &[Workspace, Sums, DiffGamma, DiffBeta],
                optional: &[Sums, DiffGamma, DiffBeta],
                sizes: &["lanes"],
                constants: &[
                    "plain",
                    "paired",
                    "grouped",
                    "added",
                    "from_sums",
                    "to_sums",
                    "derive",
                ],
                words: &[
                    "channels",
                    "channel_stride",
                    "channel_tiles",
                    "parts",
                    "part_stride",
                    "group_parts",
                    "repeats",
                    "inner",
                    "grid_width",
                    "partials",
                    "groups",
                    "means",
                ],
                reals: &["count", "inverse_count"],
                subgroups: false,
            },
            Self::ApplyRuns => &Entry {
                name: "apply_runs",
                text: &[
                    include_str!("../../shaders/parts/tiles.wgsl"),
                    include_str!("../../shaders/parts/lanes.wgsl"),
                    include_str!("../../shaders/parts/apply_tiles.wgsl"),
                    include_str!("../../shaders/parts/axes.wgsl"),
                    include_str!("../../shaders/parts/packets.wgsl"),
                    include_str!("../../shaders/parts/quads.wgsl"),
                    include_str!("../../shaders/parts/runs.wgsl"),
                    include_str!("../../shaders/parts/gradient.wgsl"),
                    include_str!("../../shaders/parts/apply_run.wgsl"),
                    include_str!("../../shaders/apply_runs.wgsl"),
                ],
                tensors: &[Src, DiffDst, Workspace, DiffSrc],
                optional: &[Src],
                sizes: &[PACKET_QUADS],
                constants: &[
                    "backwards",
                    "general",
                    "packet_aligned",
                    "quad_aligned",
                    "narrow",
                    "whole",
                    "batch_statistics",
                ],
                words: &[
                    "runs",
                    "channels",
                    "inner",
                    "run_block",
                    "chunk",
                    "chunks",
                    "lanes",
                    "first_tile",
                    "end_tile",
                    "grid_width",
                    "window",
                    "length",
                    "stats",
                    "means",
                ],
                reals: &[],
                subgroups: false,
            },
            Self::ApplyColumns => &Entry {
                name: "apply_columns",
                text: &[
                    include_str!("../../shaders/parts/tiles.wgsl"),
                    include_str!("../../shaders/parts/lanes.wgsl"),
                    include_str!("../../shaders/parts/apply_tiles.wgsl"),
                    include_str!("../../shaders/parts/axes.wgsl"),
                    include_str!("../../shaders/parts/packets.wgsl"),
                    include_str!("../../shaders/parts/columns.wgsl"),
                    include_str!("../../shaders/apply_columns.wgsl"),
                ],
                tensors: &[Src, DiffDst, Workspace, DiffSrc],
                optional: &[Src],
                sizes: &["column_packets", PACKET_QUADS],
                constants: &[
                    "backwards",
                    "general",
                    "complete",
                    "whole",
                    "batch_statistics",
                ],
                words: &[
                    "channels",
                    "inner",
                    "width_packets",
                    "tile_rows",
                    "rows",
                    "column_lanes",
                    "first_tile",
                    "end_tile",
                    "column_tiles",
                    "first_packet",
                    "end_packet",
                    "grid_width",
                    "window",
                    "length",
                    "stats",
                    "means",
                    "row_tiles",
                ],
                reals: &[],
                subgroups: false,
            },
            Self::FusedRuns => &Entry {
                name: "fused_runs",
                text: &[
                    include_str!("../../shaders/parts/tiles.wgsl"),
                    include_str!("../../shaders/parts/lanes.wgsl"),
                    include_str!("../../shaders/parts/packets.wgsl"),
                    include_str!("../../shaders/parts/quads.wgsl"),
                    include_str!("../../shaders/parts/gradient.wgsl"),
                    include_str!("../../shaders/parts/apply_run.wgsl"),
                    include_str!("../../shaders/fused_runs.wgsl"),
                ],
                tensors: &[
                    Src, DiffDst, Mean, Variance, Gamma, DiffSrc, DiffGamma, DiffBeta,
                ],
                optional: &[Gamma, DiffGamma, DiffBeta],
                sizes: &[PACKET_QUADS],
                constants: &[
                    "packet_aligned",
                    "quad_aligned",
                    "narrow",
                    "whole",
                    "in_turns",
                ],
                words: &[
                    "outer",
                    "channels",
                    "inner",
                    "block",
                    "lanes",
                    "outer_lanes",
                    "first_block",
                    "end_block",
                    "grid_width",
                    "window",
                    "length",
                ],
                reals: &["epsilon", "inverse_count"],
                subgroups: false,
            },
            Self::FusedColumns => &Entry {
                name: "fused_columns",
                text: &[
                    include_str!("../../shaders/parts/tiles.wgsl"),
                    include_str!("../../shaders/parts/lanes.wgsl"),
                    include_str!("../../shaders/parts/packets.wgsl"),
                    include_str!("../../shaders/parts/stacked_sum.wgsl"),
                    include_str!("../../shaders/fused_columns.wgsl"),
                ],
                tensors: &[
                    Src, DiffDst, Mean, Variance, Gamma, DiffSrc, DiffGamma, DiffBeta,
                ],
                optional: &[Gamma, DiffGamma, DiffBeta],
                sizes: &[PACKET_QUADS],
                constants: &["stacked"],
                words: &["rows", "channels", "column_lanes", "grid_width", "length"],
                reals: &["epsilon", "inverse_count"],
                subgroups: false,
            },
            Self::FusedRows => &fused_rows!("aligned_rows.wgsl", "row_sum_workgroup.wgsl", false),
            Self::FusedRowsSubgroup => {
                &fused_rows!("aligned_rows.wgsl", "row_sum_subgroup.wgsl", true)
            }
            Self::FusedUnalignedRows => {
                &fused_rows!("unaligned_rows.wgsl", "row_sum_workgroup.wgsl", false)
            }
            Self::FusedUnalignedRowsSubgroup => {
                &fused_rows!("unaligned_rows.wgsl", "row_sum_subgroup.wgsl", true)
            }
            Self::JoinRows => &Entry {
                name: "join_rows",
                text: &[
                    include_str!("../../shaders/parts/tiles.wgsl"),
                    include_str!("../../shaders/join_rows.wgsl"),
                ],
                tensors: &[Workspace, DiffSrc],
                optional: &[],
                sizes: &[],
                constants: &[],
                words: &[
                    "rows",
                    "columns",
                    "first_pair",
                    "end_pair",
                    "grid_width",
                    "window",
                    "halves",
                ],
                reals: &[],
                subgroups: false,
            },
            Self::ReduceRows => &reduce_rows!("row_sum_workgroup.wgsl", false),
            Self::ReduceRowsSubgroup => &reduce_rows!("row_sum_subgroup.wgsl", true),
            Self::ApplyRows => &Entry {
                name: "apply_rows",
                text: &[
                    include_str!("../../shaders/parts/tiles.wgsl"),
                    include_str!("../../shaders/parts/apply_tiles.wgsl"),
                    include_str!("../../shaders/parts/packets.wgsl"),
                    include_str!("../../shaders/parts/rows.wgsl"),
                    include_str!("../../shaders/parts/split_rows.wgsl"),
                    include_str!("../../shaders/parts/gradient.wgsl"),
                    include_str!("../../shaders/apply_rows.wgsl"),
                ],
                tensors: &[Src, DiffDst, Gamma, Workspace, DiffSrc],
                optional: &[Gamma],
                sizes: &["lanes", "column_packets", PACKET_QUADS],
                constants: &[
                    "backwards",
                    "complete",
                    "scaled",
                    "weighted",
                    "aligned",
                    "narrow",
                    "whole",
                ],
                words: &[
                    "rows",
                    "columns",
                    "row_quads",
                    "tile_rows",
                    "row_step",
                    "shifts",
                    "column_tiles",
                    "first_tile",
                    "end_tile",
                    "grid_width",
                    "window",
                    "length",
                    "last_packet",
                    "stats",
                    "means",
                    "weights",
                ],
                reals: &[],
                subgroups: false,
            },
        }
    }
}
