//! Makes a list of dispatches from shapes, element types and an adapter's profile. Pure: nothing here touches a GPU.

mod axes;
mod backward;
mod channels_first;
mod channels_first_fused;
mod channels_last;
mod channels_last_fused;
mod choose;
mod columns;
mod columns_cut;
mod columns_fused;
mod combine_groups;
mod finish;
mod fit;
mod flat;
mod forward;
mod groups;
mod halves;
mod inference;
mod pack;
mod passes;
mod problem;
mod rounds;
mod rows;
mod rows_fused;
mod rows_split;
mod slices;
mod tensors;
#[cfg(test)]
pub(crate) mod tests;
mod walk;
mod windows;
mod workspace;

pub(crate) use fit::fit;
pub(crate) use passes::plan;
pub(crate) use problem::Problem;

use crate::geometry;
use crate::kernels::{
    Access, Body, Constant, Describe, Epilogue, GeneralSizes, GroupSizes, Kernel, MASK_UNIT,
    SUBGROUP_SIZE, SUBGROUPS, Uniforms, Variant,
};
use crate::profile::MAX_BINDING;
use crate::{Algorithm, DType, DTypes, Error, F16Encoder, Profile, Tensor};
use axes::{Grid, Groups, Layout};
use std::ops::Range;

/// The recordings of a plan in which a dispatch takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Phases(u8);

impl Phases {
    /// The whole operator at once.
    pub const WHOLE: Self = Self(1);
    /// Up to the sums.
    pub const REDUCE: Self = Self(2);
    /// From the sums on.
    pub const APPLY: Self = Self(4);

    /// The phases of both.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These phases without the other's, if any are left.
    pub const fn without(self, other: Self) -> Option<Self> {
        match self.0 & !other.0 {
            0 => None,
            rest => Some(Self(rest)),
        }
    }

    /// Whether both have a phase in common.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// The range of a tensor that a dispatch binds, in bytes from the tensor's start.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Binding {
    pub tensor: Tensor,
    pub bytes: Range<u64>,
    /// The bytes that it writes, if it leaves all others alone; else the ends of `bytes` may be written by other
    /// dispatches, too.
    pub owned: Option<Range<u64>>,
}

impl Binding {
    /// All of a tensor.
    pub fn whole(tensor: &Requirement) -> Self {
        let elements = match tensor.tensor {
            Tensor::Mask => tensor.elements,
            _ => tensor.elements.next_multiple_of(4),
        };
        Self::elements(tensor, &(0..elements))
    }

    /// Some elements of a tensor.
    pub fn elements(tensor: &Requirement, elements: &Range<u64>) -> Self {
        let size = tensor.dtype.size();
        Self {
            tensor: tensor.tensor,
            bytes: elements.start * size..elements.end * size,
            owned: None,
        }
    }

    /// The same binding, some bytes further on.
    pub fn shift(&mut self, by: u64) {
        for bytes in [Some(&mut self.bytes), self.owned.as_mut()]
            .into_iter()
            .flatten()
        {
            *bytes = bytes.start + by..bytes.end + by;
        }
    }

    /// The bytes that it binds of a buffer that has room for `room` of the tensor's bytes.
    pub fn within(&self, room: u64) -> Range<u64> {
        self.bytes.start..self.bytes.end.min(room / 4 * 4)
    }

    /// The workspace, whose size is known when the plan is complete.
    pub fn workspace() -> Self {
        Self {
            tensor: Tensor::Workspace,
            bytes: 0..0,
            owned: None,
        }
    }
}

/// One dispatch of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dispatch {
    pub kernel: Kernel,
    pub body: Body,
    pub epilogue: Epilogue,
    pub workgroup_size: u32,
    /// Constants of the kernel's text.
    pub constants: Vec<(&'static str, Constant)>,
    pub bindings: Vec<Binding>,
    pub uniforms: Uniforms,
    /// Workgroups along x and y, together at least one for each tile.
    pub workgroups: [u32; 2],
    /// The most loop iterations that an invocation makes.
    pub iterations: u64,
    /// The most numbers that one accumulator adds in a row.
    pub sequential_adds: u64,
}

impl Dispatch {
    /// The kernel's variant for some of its bindings, each bound to a buffer of its own with room for whole vec4s.
    pub fn variant(&self, types: DTypes, access: Access, bound: &[&Binding]) -> Variant {
        Variant {
            kernel: self.kernel,
            body: self.body,
            epilogue: self.epilogue,
            data: types.data,
            params: types.params,
            statistics: types.statistics,
            bound: bound.iter().map(|binding| binding.tensor).collect(),
            in_place: false,
            pooled: false,
            access,
            f16_encoder: F16Encoder::Integers,
            exact: Vec::new(),
            workgroup_size: self.workgroup_size,
            constants: self.constants.clone(),
        }
    }
}

impl Planner<'_> {
    /// A dispatch of a kernel with this body.
    pub fn dispatch<K: Describe>(
        &self,
        kernel: K,
        workgroup_size: u32,
        bindings: Vec<Binding>,
        uniforms: &K::Uniforms,
        workgroups: [u32; 2],
    ) -> Dispatch {
        let mut constants = kernel.constants();
        let adders = kernel.adders(workgroup_size);
        if adders > 0 {
            // Each invocation can add up the subgroups' sums.
            let subgroup = self.subgroup(workgroup_size);
            let few = u64::from(adders) <= subgroup * subgroup;
            let subgroup = if few { subgroup } else { 0 };
            constants.push((SUBGROUPS, Constant::Flag(subgroup > 0)));
            constants.push((SUBGROUP_SIZE, Constant::Size(word(subgroup.max(1)))));
        }
        if bindings.iter().any(|bound| bound.tensor == Tensor::Mask) {
            let unit = word(windows::mask_unit(self.profile));
            constants.push((MASK_UNIT, Constant::Size(unit)));
        }
        Dispatch {
            kernel: K::KERNEL,
            body: self.body,
            epilogue: self.epilogue,
            workgroup_size,
            constants,
            bindings,
            uniforms: Uniforms::new(uniforms),
            workgroups,
            iterations: kernel.iterations(self.body, uniforms, workgroup_size.into()),
            sequential_adds: kernel.sequential_adds(self.body, uniforms, workgroup_size.into()),
        }
    }
}

/// A plan's requirement for a tensor that the caller binds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Requirement {
    pub tensor: Tensor,
    pub dtype: DType,
    pub elements: u64,
}

impl Requirement {
    /// The size in bytes, in whole words of storage.
    pub fn bytes(&self) -> u64 {
        (self.elements * self.dtype.size()).next_multiple_of(4)
    }

    /// The size in bytes, with the last vec4 made whole.
    pub fn padded_bytes(&self) -> u64 {
        self.elements.next_multiple_of(4) * self.dtype.size()
    }
}

/// A plan: what to bind and what to dispatch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// The body that reads and writes all of the caller's tensors.
    pub body: Body,
    /// The algorithm of the whole operator.
    pub algorithm: Algorithm,
    pub types: DTypes,
    pub tensors: Vec<Requirement>,
    /// The workspace of the whole operator and its halves.
    pub halves_workspace_bytes: u64,
    /// That of the whole alone, whose kernels may need none where those of the halves do.
    pub workspace_bytes: u64,
    /// Bits in the words by which kernels read and write.
    pub word_bits: u32,
    pub f16_encoder: F16Encoder,
    pub dispatches: Vec<(Phases, Dispatch)>,
}

impl Plan {
    pub fn requirement(&self, tensor: Tensor) -> Option<&Requirement> {
        self.tensors.iter().find(|r| r.tensor == tensor)
    }

    /// How kernels read and write the tensors.
    pub fn access(&self) -> Access {
        match self.word_bits {
            64 => Access::LongWords,
            _ => Access::Vec4,
        }
    }

    /// Whether a tensor is written.
    pub fn writes(&self, tensor: Tensor) -> bool {
        tensor.is_scratch() || self.body.writes(tensor)
    }

    /// Names of the kernels that the whole operator runs, in order.
    pub fn kernel_names(&self) -> Vec<&'static str> {
        self.whole().map(|d| d.kernel.entry().name).collect()
    }

    /// An error if a kernel binds more bytes of a tensor at once than this.
    pub fn check_bindings(&self, max_binding: u64) -> Result<(), Error> {
        let bindings = self.dispatches.iter().flat_map(|(_, d)| &d.bindings);
        for Binding { tensor, bytes, .. } in bindings {
            Error::check_limit(
                format_args!("a binding of {}", tensor.name()),
                MAX_BINDING,
                bytes.end.saturating_sub(bytes.start),
                max_binding,
            )?;
        }
        Ok(())
    }

    /// An error if a kernel binds more buffers than the device allows.
    fn check_buffers(&self, max_storage_buffers: u32) -> Result<(), Error> {
        let all = self.dispatches.iter();
        let most = all
            .map(|(_, dispatch)| dispatch.bindings.len() as u64)
            .max();
        Error::check_limit(
            "a dispatch of this layer",
            "max_storage_buffers_per_shader_stage",
            most.unwrap_or(0),
            u64::from(max_storage_buffers),
        )
    }

    /// An error if an invocation makes more loop iterations than a driver may allow.
    fn check_iterations(&self) -> Result<(), Error> {
        let all = self.dispatches.iter();
        let most = all.map(|(_, dispatch)| dispatch.iterations).max();
        Error::check_limit(
            "an invocation's loops",
            "number of iterations",
            most.unwrap_or(0),
            MOST_ITERATIONS,
        )
    }

    /// The dispatches of the whole operator.
    pub fn whole(&self) -> impl Iterator<Item = &Dispatch> {
        let whole = self.dispatches.iter();
        let whole = whole.filter(|(phases, _)| phases.meets(Phases::WHOLE));
        whole.map(|(_, dispatch)| dispatch)
    }
}

/// The most loop iterations that an invocation of any dispatch makes. Mesa's software drivers end an invocation's loops
/// after 65,535 iterations, counting all its loops together, without an error: the rest is not added, or not written.
const MOST_ITERATIONS: u64 = 49_152;

/// The most dispatches that a plan has: more would take seconds to plan and to bind, and each would do little.
const MOST_DISPATCHES: u64 = 1 << 15;

/// An error if a plan would have more dispatches than it may.
fn check_dispatches(dispatches: u64) -> Result<(), Error> {
    Error::check_limit(
        "a plan (larger windows need fewer: max_window, max_storage_buffer_binding_size)",
        "number of dispatches",
        dispatches,
        MOST_DISPATCHES,
    )
}

/// Bytes of 4 MiB of workspace that are left for partial sums: regions are rounded up, and subtotals need room, too.
const PARTIALS_SPARE: u64 = (4 << 20) - (1 << 17);

/// About the most numbers that one accumulator adds in a row. Where all are alike, their rounding errors are too, and
/// the error is a quarter of this in unit roundoffs: three quarters of the error that `SUM_ULPS` of wgpu-norm-verify
/// allows, which leaves the rest to a kernel's other steps.
const MAX_SEQUENTIAL: u64 = 192;

/// The inputs that all planning functions share.
#[derive(Clone, Copy)]
pub(crate) struct Planner<'a> {
    pub profile: &'a Profile,
    pub body: Body,
    pub epilogue: Epilogue,
    pub data: DType,
}

impl Planner<'_> {
    /// Why `needed` buffers cannot be bound at once, if they cannot.
    fn more_bindings_than_allowed(&self, needed: usize) -> Option<String> {
        let allowed = self.profile.max_storage_buffers;
        (needed > allowed as usize)
            .then(|| format!("it binds {needed} storage buffers, the device allows {allowed}"))
    }

    /// Vec4s that a load of data moves: two, where the elements of the tensor or of a row come in pairs of vec4s and
    /// such a load consists of the element type's words.
    fn vector_vec4s(&self, elements: u64) -> u32 {
        let vec4_bytes = 4 * self.data.size();
        let word_bytes = u64::from(self.profile.word_bits()) / 8;
        // A vector has four words.
        match elements.is_multiple_of(8) && 4 * word_bytes >= 2 * vec4_bytes {
            true => 2,
            false => 1,
        }
    }

    /// Whether a tensor is so small that its dispatches take most of the time.
    fn is_small(&self, grid: &Grid) -> bool {
        grid.elements() <= u64::from(self.profile.tuning.small_tensor)
    }

    /// Elements of any type that a window holds, so that tensors of all types are cut alike.
    fn held_unit(&self) -> u64 {
        // A window grows: down to an aligned offset, up to a pair of vec4s, by a chunk of a plane rounded up.
        let around = self.profile.alignment.max(256) + 72 * DType::F64.size();
        let held = self.profile.max_binding.saturating_sub(around) / DType::F64.size();
        held.max(1)
    }

    /// The most elements between two neighbouring positions where a tensor of `elements` elements may be cut. They are
    /// enough that a plan has no more than some hundred windows because of them.
    fn window_unit(&self, elements: u64) -> u64 {
        u64::from(self.profile.window_unit)
            .max(elements / 256)
            .min(self.held_unit())
    }

    /// Records that partial sums may take: one for each channel or row, as many bytes as src, and 4 MiB.
    fn allowed_records(&self, src: &Requirement, groups: u64) -> u64 {
        groups + (src.bytes() + PARTIALS_SPARE) / (4 * self.data.accumulator().size())
    }

    /// Records that partial sums may take where few do: a sixteenth of the bytes of src, and 4 MiB.
    fn few_records(&self, src: &Requirement) -> u64 {
        let bytes = src.bytes() / 16 + PARTIALS_SPARE;
        bytes / (4 * self.data.accumulator().size())
    }

    /// As many as `allowed_records`, but no more than a binding holds besides two others for each channel or row.
    fn partial_records(&self, src: &Requirement, groups: u64) -> u64 {
        let allowed = self.allowed_records(src, groups);
        allowed.min(self.held_records(2 * groups)).max(1)
    }

    /// Records of partial sums that a binding holds besides `others` records and subtotals.
    fn held_records(&self, others: u64) -> u64 {
        let held = self.profile.max_binding / (4 * self.data.accumulator().size());
        (held - held / 512).saturating_sub(others)
    }

    /// The most pieces of a tensor, `apart` elements apart, that a workgroup does one after another. Pieces that need
    /// no limit are 0 apart.
    fn most_apart(&self, apart: u64) -> u64 {
        const PAGE: u64 = 4096;
        match apart * self.data.size() < PAGE {
            true => u64::MAX,
            false => u64::from(self.profile.tuning.prefetched_pages).max(1),
        }
    }

    /// A workgroup for each tile, folded into two dimensions where one does not hold them all: a loop over tiles in the
    /// kernel would keep a software driver from holding anything in registers around a barrier (measured: the reduction
    /// took 1.7 times as long).
    pub fn workgroups(&self, tiles: u64) -> Result<[u32; 2], Error> {
        let most = u64::from(self.profile.max_workgroups.max(1));
        let tiles = tiles.max(1);
        let height = div_ceil(tiles, most);
        Error::check_limit(
            "a dispatch",
            "max_compute_workgroups_per_dimension",
            height,
            most,
        )?;
        Ok([word(div_ceil(tiles, height)), word(height)])
    }

    /// A workgroup size of the tuning, within the adapter's limits.
    fn workgroup(&self, size: u32) -> u32 {
        let bytes = self.body.shared_reals() * self.data.accumulator().size();
        self.profile.workgroup(size, bytes)
    }

    fn cheap_barriers(&self) -> bool {
        self.profile.tuning.cheap_barriers == 1
    }

    /// Whether a workgroup adds up its invocations' sums of columns, with barriers, before it writes them. Otherwise
    /// each invocation writes its own, one for as many elements as it walks rows.
    fn adds_up_walks(&self, walked: u64) -> bool {
        // After a long walk, such sums are less than a tenth of the bytes moved, and on a driver for the CPU barriers
        // cost more (measured with 32 columns: 1.2 to 1.6 times the time).
        const LONG_WALK: u64 = 8;
        self.cheap_barriers() || walked < LONG_WALK
    }
}

/// ⌈a / b⌉, for b above 0.
pub(crate) fn div_ceil(a: u64, b: u64) -> u64 {
    a.div_ceil(b.max(1))
}

/// A number that the element limit keeps within 32 bits.
pub(crate) fn word(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// The most vectors that hold no more than `vec4s` vec4s.
fn most_vectors(vec4s: u32, vector_vec4s: u64) -> u64 {
    (u64::from(vec4s) / vector_vec4s.max(1)).max(1)
}

/// Invocations that share `elements` elements, with at least `vec4s` vec4s for each: a power of two.
fn threads(workgroup_size: u32, elements: u64, vec4s: u32) -> u32 {
    word(div_ceil(elements, 4 * u64::from(vec4s.max(1))))
        .max(1)
        .checked_next_power_of_two()
        .unwrap_or(u32::MAX)
        .min(workgroup_size)
}

/// The uniforms that describe groups.
fn group_sizes(groups: &Groups) -> GroupSizes {
    let mixed = groups.mixed.unwrap_or_default();
    GroupSizes {
        group_channels: groups.group_channels,
        statistics: groups.count,
        parameters: groups.channels,
        axes: mixed.sizes.into(),
        statistics_axes: mixed.statistics,
        parameter_axes: mixed.parameters,
    }
}

/// The uniforms that describe general axes.
pub(crate) fn axis_sizes(layout: &Layout) -> GeneralSizes {
    let general = layout.general.as_ref();
    GeneralSizes {
        axes: general
            .map_or([1; geometry::MAX_RANK], |general| general.sizes)
            .into(),
        kept_axes: general.map_or(0, |general| general.kept),
    }
}

/// How a grid's planes lie in vectors.
pub(crate) struct PlaneAlignment {
    /// Every plane begins at a vector, or at a vec4.
    pub vector_aligned: bool,
    pub vec4_aligned: bool,
    /// Planes are shorter than a vec4.
    pub narrow: bool,
    /// The tensor ends with a vector.
    pub whole: bool,
}

impl PlaneAlignment {
    pub fn of(grid: &Grid, vector_vec4s: u32) -> Self {
        let vector = 4 * vector_vec4s;
        Self {
            vector_aligned: grid.inner.is_multiple_of(vector),
            vec4_aligned: grid.inner.is_multiple_of(4),
            narrow: grid.inner < 4,
            whole: grid.elements().is_multiple_of(u64::from(vector)),
        }
    }

    /// The most vectors in which some neighbouring elements of a plane lie.
    pub fn vectors_of(&self, elements: u64, vector_vec4s: u32) -> u64 {
        let vector = 4 * u64::from(vector_vec4s);
        let before = if self.vector_aligned { 0 } else { vector - 1 };
        div_ceil(before + elements, vector)
    }
}
