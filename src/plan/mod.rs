//! From shapes, element types and an adapter's profile to a list of dispatches. Pure: nothing here
//! touches a GPU.

mod axes;
mod backward;
mod channels_first;
mod channels_first_fused;
mod channels_last;
mod channels_last_fused;
mod choose;
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
mod windows;
mod workspace;

pub(crate) use fit::fit;
pub(crate) use passes::plan;
pub(crate) use problem::Problem;

use crate::geometry;
use crate::kernels::{
    Access, AxisSizes, Body, Constant, Describe, Epilogue, GroupSizes, Kernel, MASK_UNIT, Uniforms,
    Variant,
};
use crate::profile::MAX_BINDING;
use crate::{Algorithm, DType, DTypes, Error, Profile, Tensor};
use axes::{Grid, Groups, Layout};
use std::ops::Range;

/// In which recordings of a plan a dispatch takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Phases(u8);

impl Phases {
    /// The whole operator at once.
    pub const WHOLE: Self = Self(1);
    /// Up to the sums.
    pub const REDUCE: Self = Self(2);
    /// From the sums on.
    pub const APPLY: Self = Self(4);

    /// These and those.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These but for those, if any are left.
    pub const fn without(self, other: Self) -> Option<Self> {
        match self.0 & !other.0 {
            0 => None,
            rest => Some(Self(rest)),
        }
    }

    /// Whether one of these is among those.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// A part of a tensor that a dispatch binds, in bytes from the tensor's start.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Binding {
    pub tensor: Tensor,
    pub bytes: Range<u64>,
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
        }
    }

    /// The bytes of it in a buffer that has room for so many of the tensor's.
    pub fn within(&self, room: u64) -> Range<u64> {
        self.bytes.start..self.bytes.end.min(room / 4 * 4)
    }

    /// The workspace, whose size is known when the plan is complete.
    pub fn workspace() -> Self {
        Self {
            tensor: Tensor::Workspace,
            bytes: 0..0,
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
    /// Along x and y: together at least one for each tile.
    pub workgroups: [u32; 2],
    /// Loop iterations that an invocation makes, at most.
    pub iterations: u64,
    /// The most numbers that one accumulator adds in a row.
    pub sequential_adds: u64,
    /// Invocations that have to be of one subgroup; 0 if it needs none.
    pub in_a_subgroup: u64,
}

impl Dispatch {
    /// The kernel's variant that binds these of its bindings, each to a buffer of its own with room for whole vec4s.
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
            in_a_subgroup: kernel.in_a_subgroup().into(),
        }
    }
}

/// What a plan needs of a tensor that the caller binds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Requirement {
    pub tensor: Tensor,
    pub dtype: DType,
    pub elements: u64,
}

impl Requirement {
    /// Size in bytes, of storage words that hold an element.
    pub fn bytes(&self) -> u64 {
        (self.elements * self.dtype.size()).next_multiple_of(4)
    }

    /// Size in bytes with the last group of four elements made whole.
    pub fn padded_bytes(&self) -> u64 {
        self.elements.next_multiple_of(4) * self.dtype.size()
    }
}

/// A plan: what to bind and what to dispatch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// The body that reads and writes all of the caller's tensors.
    pub body: Body,
    /// What computes the whole operator.
    pub algorithm: Algorithm,
    pub types: DTypes,
    pub tensors: Vec<Requirement>,
    pub workspace_bytes: u64,
    /// Bits of the words that kernels read and write by.
    pub word_bits: u32,
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

    /// Names of the kernels that these run, in order.
    pub fn kernel_names(&self) -> Vec<&'static str> {
        self.whole().map(|d| d.kernel.entry().name).collect()
    }

    /// An error if a kernel binds more at once than this.
    pub fn check_bindings(&self, max_binding: u64) -> Result<(), Error> {
        let bindings = self.dispatches.iter().flat_map(|(_, d)| &d.bindings);
        for Binding { tensor, bytes } in bindings {
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

/// Loop iterations of an invocation that every dispatch stays within. Mesa's software drivers end an invocation's loops
/// after 65,535, all its loops together, without an error: what is left is not added, or not written.
const MOST_ITERATIONS: u64 = 49_152;

/// Dispatches of a plan, at most: more would take seconds to plan and to bind, and do little each.
const MOST_DISPATCHES: u64 = 1 << 15;

/// An error if these are more dispatches than a plan may have.
fn check_dispatches(dispatches: u64) -> Result<(), Error> {
    Error::check_limit(
        "a plan (of larger windows it takes fewer: max_window, max_storage_buffer_binding_size)",
        "number of dispatches",
        dispatches,
        MOST_DISPATCHES,
    )
}

/// About the most numbers that one accumulator adds in a row. Where all are alike, their roundings are too,
/// and the error is a quarter of this in unit roundoffs: three quarters of what
/// `SUM_ULPS` of wgpu-norm-verify allows, which leaves the rest to a kernel's other steps.
const MAX_SEQUENTIAL: u64 = 192;

/// What the planning functions share.
#[derive(Clone, Copy)]
pub(crate) struct Planner<'a> {
    pub profile: &'a Profile,
    pub body: Body,
    pub epilogue: Epilogue,
    pub data: DType,
}

impl Planner<'_> {
    /// Why so many buffers cannot be bound at once, if they cannot.
    fn more_bindings_than_allowed(&self, needed: usize) -> Option<String> {
        let allowed = self.profile.max_storage_buffers;
        (needed > allowed as usize)
            .then(|| format!("it binds {needed} storage buffers, the device allows {allowed}"))
    }

    /// Vec4s that a load of data moves: two, where so many elements, the tensor's or a row's, are made of pairs of
    /// them and the element type's words make such a load.
    fn vector_vec4s(&self, elements: u64) -> u32 {
        let vec4_bytes = 4 * self.data.size();
        let word_bytes = u64::from(self.profile.word_bits()) / 8;
        // A vector has four words.
        match elements.is_multiple_of(8) && 4 * word_bytes >= 2 * vec4_bytes {
            true => 2,
            false => 1,
        }
    }

    /// Of a small tensor most of the time is that of its dispatches.
    fn is_small(&self, grid: &Grid) -> bool {
        grid.elements() <= u64::from(self.profile.tuning.small_tensor)
    }

    /// Elements that a window holds of any type, so that windows of all types are cut alike.
    fn held_unit(&self) -> u64 {
        // Around a window: down to an aligned offset, up to a pair of vec4s, a chunk of a plane rounded up.
        let around = self.profile.alignment.max(256) + 72 * DType::F64.size();
        let held = self.profile.max_binding.saturating_sub(around) / DType::F64.size();
        held.max(1)
    }

    /// Elements between two neighbouring places where a tensor of so many may be cut, at most; so many that a plan has
    /// no more than some hundred windows for their sake.
    fn window_unit(&self, elements: u64) -> u64 {
        u64::from(self.profile.window_unit)
            .max(elements / 256)
            .min(self.held_unit())
    }

    /// Records that partial sums may take: one of each channel or row, as many bytes as src, and 4 MiB.
    fn allowed_records(&self, src: &Requirement, groups: u64) -> u64 {
        // Regions are rounded up, and subtotals need room, too.
        const SPARE: u64 = (4 << 20) - (1 << 17);
        groups + (src.bytes() + SPARE) / (4 * self.data.accumulator().size())
    }

    /// The same as far as a binding holds them beside two others of each channel or row.
    fn partial_records(&self, src: &Requirement, groups: u64) -> u64 {
        let allowed = self.allowed_records(src, groups);
        allowed.min(self.held_records(2 * groups)).max(1)
    }

    /// Records of partial sums that a binding holds beside so many others, and beside the sums of groups of them.
    fn held_records(&self, others: u64) -> u64 {
        let held = self.profile.max_binding / (4 * self.data.accumulator().size());
        (held - held / 512).saturating_sub(others)
    }

    /// Pieces of a tensor, so many elements apart, that a workgroup takes one after another at most. Pieces that need
    /// no limit are 0 apart.
    fn most_apart(&self, apart: u64) -> u64 {
        const PAGE: u64 = 4096;
        match apart * self.data.size() < PAGE {
            true => u64::MAX,
            false => u64::from(self.profile.tuning.prefetched_pages).max(1),
        }
    }

    /// A workgroup for each tile, folded into two dimensions where one does not hold so many: a loop
    /// over tiles in the kernel would keep a software driver from holding anything in registers beside
    /// a barrier (measured: the reduction took 1.7 times as long).
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
        self.profile.workgroup(size, self.body.shared_reals())
    }

    fn cheap_barriers(&self) -> bool {
        self.profile.tuning.cheap_barriers == 1
    }

    /// Whether a workgroup adds up its invocations' sums of columns, behind barriers, before it writes them; else each
    /// writes its own, one for as many elements as it walks rows.
    fn adds_up_walks(&self, walked: u64) -> bool {
        // Such sums are less than a tenth of the bytes moved, and on a driver for the CPU barriers cost more (measured
        // with 32 columns: 1.2 to 1.6 times the time).
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

/// Vectors that hold at most so many vec4s.
fn most_vectors(vec4s: u32, vector_vec4s: u64) -> u64 {
    (u64::from(vec4s) / vector_vec4s.max(1)).max(1)
}

/// Invocations that share so many elements, with so many vec4s for each at least: a power of two.
fn threads(workgroup_size: u32, elements: u64, vec4s: u32) -> u32 {
    word(div_ceil(elements, 4 * u64::from(vec4s.max(1))))
        .max(1)
        .checked_next_power_of_two()
        .unwrap_or(u32::MAX)
        .min(workgroup_size)
}

/// What kernels are told of groups.
fn group_sizes(groups: &Groups) -> GroupSizes {
    GroupSizes {
        group_channels: groups.group_channels,
        statistics: groups.count,
        parameters: groups.channels,
    }
}

/// The uniforms that describe general axes.
pub(crate) fn axis_sizes(layout: &Layout) -> AxisSizes {
    let (sizes, kept_axes) = match &layout.general {
        None => ([1; geometry::MAX_RANK], 0),
        Some(general) => (general.sizes, general.kept),
    };
    let [axis0, axis1, axis2, axis3, axis4, axis5, axis6, axis7] = sizes;
    AxisSizes {
        axis0,
        axis1,
        axis2,
        axis3,
        axis4,
        axis5,
        axis6,
        axis7,
        kept_axes,
    }
}

/// How a grid's planes lie in vectors of so many vec4s.
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
}
