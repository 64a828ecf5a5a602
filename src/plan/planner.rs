//! What all of a plan's steps ask of a profile and an operation.

use super::axes::Grid;
use super::dispatch::{Binding, Dispatch};
use super::limits::Unfit;
use super::problem::Problem;
use super::sizes::word;
use super::tensors::Tensors;
use super::windows::{Share, Window, mask_unit, windows};
use crate::element::DType;
use crate::kernels::{
    Body, Computes, Constant, Describe, MASK_UNIT, SUBGROUP_SIZE, SUBGROUPS, TileRange, Uniforms,
};
use crate::options::Activation;
use crate::profile::Profile;
use crate::tensor::Tensor;
use std::ops::Range;

/// Neighbouring invocations whose sums of a row are added up before they are written, where no subgroup can do that and
/// barriers are cheap.
const THREADS_PER_PARTIAL: u64 = 16;

/// Bytes of 4 MiB of workspace that are left for partial sums: regions are rounded up, and subtotals need room, too.
const PARTIALS_SPARE: u64 = (4 << 20) - (1 << 17);

/// An operation to plan, by a profile.
#[derive(Clone, Copy)]
pub(crate) struct Planner<'a> {
    pub profile: &'a Profile,
    pub problem: &'a Problem,
    pub tensors: &'a Tensors,
    /// The problem's body, or one that does the same where registers hold what is read.
    pub body: Body,
    pub data: DType,
    /// Whether other slices are planned, too.
    pub is_slice: bool,
}

impl<'a> Planner<'a> {
    pub fn new(profile: &'a Profile, problem: &'a Problem, tensors: &'a Tensors) -> Self {
        Self {
            profile,
            problem,
            tensors,
            body: problem.body,
            data: problem.types.data,
            is_slice: false,
        }
    }

    /// The same with the body that computes statistics of what registers hold.
    pub fn in_registers(mut self) -> Self {
        self.body.of_rows |= self.body.computes == Computes::Forward;
        self
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
        // Room for three more.
        let mut constants = Vec::with_capacity(K::SAMPLES.len() + 3);
        kernel.constants(&mut constants);
        if let Some(adders) = kernel.adders(workgroup_size) {
            // Each invocation can add up the subgroups' sums.
            let subgroup = self.subgroup(workgroup_size);
            let few = adders > 0 && u64::from(adders) <= subgroup * subgroup;
            let subgroup = if few { subgroup } else { 0 };
            constants.push((SUBGROUPS, Constant::Flag(subgroup > 0)));
            constants.push((SUBGROUP_SIZE, Constant::Size(word(subgroup.max(1)))));
        }
        if bindings.iter().any(|bound| bound.tensor == Tensor::Mask) {
            let unit = word(mask_unit(self.profile));
            constants.push((MASK_UNIT, Constant::Size(unit)));
        }
        Dispatch {
            kernel: K::KERNEL,
            body: self.body,
            epilogue: self.problem.epilogue,
            workgroup_size,
            constants,
            bindings,
            uniforms: Uniforms::new(uniforms),
            workgroups,
            iterations: kernel.iterations(self.body, uniforms, workgroup_size.into()),
            sequential_adds: kernel.sequential_adds(self.body, uniforms, workgroup_size.into()),
        }
    }

    /// A dispatch of a kernel for each share of src, with what `describe` says that it binds, and its uniforms.
    pub fn over<K: Describe + Copy, S: Share>(
        &self,
        shares: &[S],
        (kernel, workgroup_size): (K, u32),
        describe: impl Fn(&S, TileRange) -> (Vec<Binding>, K::Uniforms),
    ) -> Result<Vec<Dispatch>, Unfit> {
        let dispatch = |share: &S| {
            let window = share.window();
            let tiles = window.tiles.end - window.tiles.start;
            let workgroups = self.profile.workgroups(tiles)?;
            let range = window.tile_range(&self.tensors.src, workgroups);
            let (bindings, uniforms) = describe(share, range);
            Ok(self.dispatch(kernel, workgroup_size, bindings, &uniforms, workgroups))
        };
        shares.iter().map(dispatch).collect()
    }

    /// Windows over src.
    pub fn windows(
        &self,
        units: Range<u64>,
        unit_tiles: u64,
        start: impl Fn(u64) -> u64,
    ) -> Result<Vec<Window>, Unfit> {
        windows(self.profile, &self.tensors.src, units, unit_tiles, start)
    }

    /// Vec4s that a load of data moves: two, where the elements of the tensor or of a row come in pairs of vec4s and
    /// such a load consists of the element type's words.
    pub fn vector_vec4s(&self, elements: u64) -> u32 {
        let vec4_bytes = 4 * self.data.size();
        let word_bytes = u64::from(self.profile.word_bits()) / 8;
        // A vector has four words.
        let in_pairs = elements.is_multiple_of(8) && 4 * word_bytes >= 2 * vec4_bytes;
        if in_pairs { 2 } else { 1 }
    }

    /// The same for vectors that may hold elements of two neighbouring planes.
    pub fn vector_of_planes(&self, grid: &Grid) -> u32 {
        match grid.inner {
            0..8 => 1,
            _ => self.vector_vec4s(grid.elements()),
        }
    }

    /// Whether two rows of so many columns may share a word of elements.
    pub fn shares_words(&self, columns: u64) -> bool {
        !(columns * self.data.size()).is_multiple_of(4)
    }

    /// Records that partial sums may take: one for each channel or row, as many bytes as src, and 4 MiB.
    pub fn allowed_records(&self, groups: u64) -> u64 {
        groups + (self.tensors.src.bytes() + PARTIALS_SPARE) / (4 * self.data.accumulator().size())
    }

    /// Records that partial sums may take where few do: a sixteenth of the bytes of src, and 4 MiB.
    pub fn few_records(&self) -> u64 {
        let bytes = self.tensors.src.bytes() / 16 + PARTIALS_SPARE;
        bytes / (4 * self.data.accumulator().size())
    }

    /// As many as `allowed_records`, but no more than a binding holds besides two others for each channel or row.
    pub fn partial_records(&self, groups: u64) -> u64 {
        let allowed = self.allowed_records(groups);
        allowed.min(self.held_records(2 * groups)).max(1)
    }

    /// Records of partial sums that a binding holds besides `others` records and subtotals.
    pub fn held_records(&self, others: u64) -> u64 {
        let held = self.profile.max_binding / (4 * self.data.accumulator().size());
        (held - held / 512).saturating_sub(others)
    }

    /// The most pieces of a tensor, `apart` elements apart, that a workgroup does one after another. Pieces that need
    /// no limit are 0 apart.
    pub fn most_apart(&self, apart: u64) -> u64 {
        const PAGE: u64 = 4096;
        if apart * self.data.size() < PAGE {
            u64::MAX
        } else {
            u64::from(self.profile.tuning.prefetched_pages).max(1)
        }
    }

    /// Invocations of a workgroup that are side by side in rows of columns, a power of two, if rows are that long.
    pub fn threads_per_row(&self, workgroup_size: u32) -> u32 {
        let threads = self.profile.tuning.channels_last_threads;
        1 << threads.clamp(1, workgroup_size).ilog2()
    }

    /// A workgroup size of the tuning, within the adapter's limits.
    pub fn workgroup(&self, size: u32) -> u32 {
        let bytes = self.body.shared_reals() * self.data.accumulator().size();
        self.profile.workgroup(size, bytes)
    }

    /// Invocations in each subgroup, if workgroups of this size consist of whole subgroups, which can add up their
    /// invocations' numbers; else 0.
    pub fn subgroup(&self, workgroup_size: u32) -> u64 {
        let size = self.profile.subgroup_size;
        let whole = size > 1 && workgroup_size.is_multiple_of(size) && self.data != DType::F64;
        if whole { u64::from(size) } else { 0 }
    }

    /// Neighbouring invocations whose sums of a row are added up before they are written: those of a subgroup, or else
    /// a few where barriers are cheap.
    pub fn threads_per_partial(&self, workgroup_size: u32) -> u64 {
        match self.subgroup(workgroup_size) {
            0 if self.profile.cheap_barriers() => THREADS_PER_PARTIAL,
            0 => 1,
            subgroup => subgroup,
        }
    }

    /// Rows that an invocation of a reduction loads before it uses the first, of so many loads; half as many where an
    /// activation takes registers. A power of two.
    pub fn rows_at_once(&self, loads: u32, column_vectors: u64) -> u64 {
        let gradient = self.body.is_gradient();
        let computes = gradient && self.problem.epilogue.computed(self.body) != Activation::None;
        let for_a_row = column_vectors << u64::from(gradient);
        let rows = (u64::from(loads) / for_a_row) >> u64::from(computes);
        1 << rows.max(1).ilog2()
    }
}
