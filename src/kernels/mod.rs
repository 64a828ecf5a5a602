//! The kernels: one manifest of their texts, bindings, uniforms and variants. Pipelines, translations and tests are
//! made from it.
//!
//! The glossary of `ARCHITECTURE.md` explains their words.
//!
//! # Why every index is in bounds
//!
//! Pipelines are made without the checks that naga can add, so the kernels and the plan must not need them.
//!
//! Data:
//! * Data move in vectors of one or two vec4s, of two only if the tensor has a multiple of eight elements. A data
//!   tensor is bound from `window` (a multiple of 32 elements) at least to the end of the last vector that the
//!   dispatch's tiles touch; [`crate::plan`] computes both from the same tile bounds.
//! * The channels-first kernels reach only vectors that hold an element of one of their tiles.
//! * `flat_apply` reaches only vec4s that begin before the tensor's end, all of one of its tiles.
//! * `columns_walk` and `in_registers` clamp columns to the dispatch's last and rows to a tile's last, and store only
//!   where neither is clamped. Windows hold whole tiles. Where columns belong to channels, vectors are clamped to the
//!   tensor's last: only the last window's last row can be incomplete. Where rows do not begin at vec4s, vectors are
//!   clamped to the window's last, in `columns_walk` over rows instead of columns, and elements are stored only up to
//!   the dispatch's last column.
//! * Where a buffer has no room for the last vec4 of a tensor, the `exact` accessors clamp every index that they load
//!   to the tensor's length, and store only as many elements as a kernel tells them, which are those in the tensor.
//!   Such a tensor does not move in vectors of two.
//! * Another invocation may be writing, in place, the elements that a clamped load reads, the other row's elements
//!   of a vec4 that two rows share, or another tile's running statistics in a vec4. These elements are never used.
//!   Where a row's means go to its record, invocations past the tile's last row may read it meanwhile: its statistics,
//!   which stay what they are, for sums that count 0.
//! * Some elements of a vec4 are stored through 64-bit words by reading the vec4 and writing all of it. All of it is
//!   bound, or the tensor would be exact, and only one invocation stores each vec4.
//! * Where two rows share a vec4, since rows do not begin at vec4s, each row's invocation stores its own elements of
//!   it, word by word. In a word that two rows share, which is atomic, each stores its half.
//! * Where a window begins inside a row, the row's first vector relative to it wraps below 0; the vectors of the
//!   window's tiles, added to it, wrap back.
//!
//! Parameters, workspace, sums:
//! * Parameters are read by vec4s below ⌈length / 4⌉, bound whole, padded or through `exact` accessors; the length is
//!   `parameters`, or `channels`. The kernels over columns index them by row, or by batch and row. Copies in the
//!   workspace have as many vec4s each. Where statistics belong to groups, mean and variance are read at
//!   channel / `group_channels`, which is below `statistics`, and parameters at channel mod `parameters`. Where
//!   channels are `mixed`, these indices consist of some of the channel's digits along the axes, and are below the
//!   product of these axes' sizes, which is the length. Where rows have parameters of each sample, the length is a
//!   whole row for each; the sample is the batch of the tile, and the vec4 is clamped to its last. Where rows are
//!   groups of planes, the channel is below `row_channels`, which is the length: the first of the row's group, plus the
//!   column's plane among those of the group, the column clamped to the row's last.
//! * The workspace is bound whole. The plan lays out every region of it with its size rounded up to sixteen records,
//!   and kernels index a region below the size that the plan reserved:
//!   statistics, means and the sums of groups' channels by channel or row (in `combine_groups` by channel k, below
//!   `group_channels`, of a group that is clamped to the last, or by channel k, below `channels` / `parameters`, of
//!   those with a parameter that is clamped to the last; where channels are `mixed`, by an index joined of digits along
//!   the channels' axes, below the product of their sizes, in `finish`, too); partial sums by (split, column), or where
//!   they are `paired` by (split, two columns) in whole vec4s, by (split, channel) where they are `by_channel`, or by
//!   (row, partial sum); copies of parameters by vec4 of their elements; the records to which `channels_first_apply`
//!   adds parameters by statistic, which is below `statistics`; subtotals by (subtotal, vec4 of channels).
//! * Where columns are done in ranges, the plan's offsets of later ranges wrap below 0, and the statistics added to
//!   them wrap back. Where sums are added up in rounds, the plan's offsets of later rounds wrap below 0, and the splits
//!   added to them wrap back: the records of all rounds together may be more than 2³², but both additions are modulo
//!   2³², and their result is in the region.
//! * `mask` is bound from a multiple of `mask_unit` elements at or before `window` to the word of the last element that
//!   is bound, or of the tensor's last one; a word is read for a vec4 of data that is in bounds.
//! * `sums` has 2 · `channels` + 1 reals, or for a forward pass 4 · `channels` · `shards`, and is indexed below that.
//!
//! Workgroup and private arrays:
//! * Workgroup arrays have `workgroup_size` elements (or one, where nothing is summed) and are indexed by the
//!   invocation's index plus a stride that the loop bounds keep below it; or by its subgroup's number, of which there
//!   are at most `workgroup_size` / 2, in one half or the other; or by a channel of the tile (`tile_channels` is at
//!   most `workgroup_size`; where statistics belong to groups it is a multiple of `group_channels`), or by one of its
//!   planes, of which there are at most `workgroup_size` where a kernel walks `by_vectors`. `threads` is a power of two
//!   and at most `workgroup_size`, and so is `threads_per_plane` · `planes_at_once`; `threads_per_partial` is one too,
//!   and at most `threads_per_row`. The walk over columns, where it is `by_channel`, has rows of at most
//!   `workgroup_size` vec4s, all of which one workgroup owns.
//! * Private arrays have `column_vectors` or `vectors_at_once` vectors of `vector_vec4s` vec4s, in `in_registers` of
//!   `held_rows` rows, and are indexed below these.
//!
//! Workgroups and loops:
//! * A dispatch has a workgroup for each tile and, since its grid has two dimensions, up to 65,534 more. Those return
//!   at once; in `finish` and `combine_groups` they first compute with the last channel or with no partial sums, and
//!   store nothing.
//! * Loops end: their steps are above 0, and what they count stays below 2³² − 2²⁰ while a step is at most
//!   2²⁰ ([`crate::geometry`], the bounds of [`crate::Tuning`]).

mod accessors;
mod bodies;
mod channels_first_apply;
mod channels_first_fused;
mod channels_first_reduce;
mod columns_walk;
mod combine_groups;
mod describe;
mod epilogue;
mod files;
mod finish;
mod flat_apply;
mod functions;
mod in_registers;
#[cfg(wgpu_norm_mutants)]
mod mutants;
mod pack_params;
mod pack_statistics;
mod params;
mod shared_uniforms;
mod source;
mod streams;
mod sums;
#[cfg(test)]
pub(crate) mod tests;
mod uniforms;

pub(crate) use accessors::Access;
pub(crate) use bodies::{Body, Computes};
pub(crate) use channels_first_apply::{ChannelsFirstApply, ChannelsFirstApplyUniforms};
pub(crate) use channels_first_fused::{ChannelsFirstFused, ChannelsFirstFusedUniforms};
pub(crate) use channels_first_reduce::{ChannelsFirstReduce, ChannelsFirstReduceUniforms};
pub(crate) use columns_walk::{ColumnsWalk, ColumnsWalkUniforms};
pub(crate) use combine_groups::{CombineGroups, CombineGroupsUniforms, TIER};
pub(crate) use describe::Constant;
#[cfg(test)]
pub(crate) use describe::Value;
pub(crate) use epilogue::Epilogue;
pub(crate) use finish::{Finish, FinishUniforms};
pub(crate) use flat_apply::{FlatApply, FlatApplyUniforms};
pub(crate) use in_registers::{InRegisters, InRegistersUniforms};
pub(crate) use pack_params::{PackParams, PackParamsUniforms};
pub(crate) use pack_statistics::{PackStatistics, PackStatisticsUniforms};
pub(crate) use params::bit;
pub(crate) use shared_uniforms::{
    BatchTiles, ColumnChannels, GeneralSizes, GroupSizes, PlaneTiles, Scalars, Sharing,
    SplitPartials, TileRange,
};
pub(crate) use source::{
    F16_PROBE, MASK_UNIT, ROWS_AT_ONCE, SUBGROUP_SIZE, SUBGROUPS, Variant, f16_probe,
};
pub(crate) use uniforms::Uniforms;

use crate::tensor::Tensor;
use describe::{Constants, Kind, Uniform};
use files::File;

macro_rules! kernels {
    ($($name:ident)*) => {
        /// A kernel of `shaders/traversals/`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) enum Kernel {
            $($name),*
        }

        impl Kernel {
            #[cfg(test)]
            pub const ALL: [Self; [$(Self::$name),*].len()] = [$(Self::$name),*];

            pub fn entry(self) -> &'static Entry {
                match self {
                    $(Self::$name => const { &Entry::of::<$name>() },)*
                }
            }
        }
    };
}

kernels! {
    PackStatistics
    PackParams
    ChannelsFirstReduce
    CombineGroups
    Finish
    ChannelsFirstApply
    ChannelsFirstFused
    FlatApply
    ColumnsWalk
    InRegisters
}

/// A kernel's description, whatever its constants.
pub(crate) struct Entry {
    /// Its own file, which says what it imports from `shaders/parts/`. Kernel and entry point have the file's name.
    pub file: File,
    /// The constants that a variant's text begins with, each with a value of its type.
    #[cfg_attr(not(test), expect(dead_code, reason = "read by the tests"))]
    pub constants: &'static [(&'static str, Constant)],
    /// Its uniform struct.
    pub uniforms: Kind,
}

/// A kernel with its constants chosen.
pub(crate) trait Describe: Constants {
    const KERNEL: Kernel;
    const FILE: File;
    type Uniforms: Uniform;
    /// The most loop iterations that one invocation makes. Loops count as the text has them, none unrolled, and nested
    /// loops with the most iterations that each can make: the invocations that a software driver runs side by side all
    /// go on until the last one is done.
    fn iterations(&self, body: Body, uniforms: &Self::Uniforms, workgroup_size: u64) -> u64;

    /// Invocations that add up a sum together, by subgroups where there are any; 0 if none do, and none if the text has
    /// no sums.
    fn adders(&self, _workgroup_size: u32) -> Option<u32> {
        None
    }

    /// The most numbers that one accumulator adds in a row.
    fn sequential_adds(&self, _: Body, _: &Self::Uniforms, _workgroup_size: u64) -> u64 {
        0
    }
}

impl Entry {
    const fn of<K: Describe>() -> Self {
        Self {
            file: K::FILE,
            constants: K::SAMPLES,
            uniforms: K::Uniforms::KIND,
        }
    }

    pub fn name(&self) -> &'static str {
        let name = self.file.path.rsplit_once('/').map_or("", |(_, name)| name);
        name.trim_end_matches(".wgsl")
    }

    /// Whether its data are bound by windows.
    fn has_window(&self) -> bool {
        self.has_uniform("window")
    }

    fn has_uniform(&self, name: &str) -> bool {
        self.uniforms
            .fields("")
            .iter()
            .any(|(field, _)| *field == name)
    }

    /// The uniform with the length of a statistic, or of a parameter or its gradient.
    fn length(&self, tensor: Tensor) -> &'static str {
        let own = if tensor.is_statistic() {
            "statistics"
        } else {
            "parameters"
        };
        let mut lengths = [own, "channels"].into_iter();
        lengths
            .find(|name| self.has_uniform(name))
            .unwrap_or_default()
    }
}

/// Steps of a tree of sums over this many invocations.
fn tree(invocations: impl Into<u64>) -> u64 {
    u64::from(invocations.into().max(1).ilog2())
}

/// Iterations of a sum over `invocations` of a workgroup: a tree of them, or of a subgroup's and one for each subgroup,
/// of which there are as many as a subgroup has invocations at most.
fn sum_of(invocations: impl Into<u64>, workgroup_size: u64) -> u64 {
    tree(invocations) + workgroup_size.isqrt()
}

/// Iterations of the loops over one vector's elements: one for each vec4, and if a vec4's elements are done one by one,
/// one for each element too.
fn of_a_vector(vector_vec4s: u32, by_element: bool) -> u64 {
    1 + u64::from(vector_vec4s) * (1 + 4 * u64::from(by_element))
}

/// Iterations of the loops over vectors, in blocks of one or of `BLOCK_VECTORS`, whichever makes more. Each block has
/// `more` iterations on top.
fn in_blocks(vectors: u64, vector_vec4s: u32, more: u64) -> u64 {
    let of_a_vector = of_a_vector(vector_vec4s, false);
    let of_ones = vectors * (1 + of_a_vector + more);
    let block = u64::from(BLOCK_VECTORS);
    let of_blocks = vectors.div_ceil(block) * (1 + block * of_a_vector + more);
    of_ones.max(of_blocks)
}

/// Vectors of a plane in a block of a forward pass's statistics. Fewer cost merges; with more, more are clamped and
/// masked at the ends of planes.
const BLOCK_VECTORS: u32 = 4;
