//! Plans rows or samples some at a time, where a binding has no room for all of them, or for their records in the
//! workspace.
//!
//! A slice of them is planned as a tensor of its own, whose operands are bound from the slice's first row or sample on.
//! All slices use the same workspace, one after another. Sums of parameters that all slices share have a region before
//! it, where each slice's sums are added in order. So the bits of these sums depend on the number of slices, which follows from the
//! shape and the profile.

use super::rounds::{ROUNDS, RunningSums};
use super::tensors::Tensors;
use super::windows::alignment;
use super::workspace::Workspace;
use super::{Dispatch, Phases, Plan, Planner, Requirement, check_dispatches, div_ceil};
use crate::profile::{MAX_BINDING, MAX_WINDOW};
use crate::{Error, Tensor};

/// The number of rows or samples, and of those that are planned at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slices {
    pub lines: u64,
    pub at_once: u64,
    /// Whether each row or sample has parameters of its own.
    pub own_parameters: bool,
    /// Whether they also make windows shorter: those of the whole tensor cannot be short, or would not change sums.
    pub for_windows: bool,
}

impl Slices {
    /// Whether there are several.
    pub fn several(&self) -> bool {
        self.at_once < self.lines
    }

    fn count(&self) -> u64 {
        div_ceil(self.lines, self.at_once).max(1)
    }

    /// Bits that a row or a sample takes of a tensor; 0 for a tensor that all of them share.
    fn bits_of_a_line(&self, tensors: &Tensors, tensor: &Requirement) -> u64 {
        let of_a_line = |elements: u64| elements / self.lines.max(1);
        match tensor.tensor {
            Tensor::Mask => of_a_line(tensors.src.elements),
            shared if shared.is_param() && !self.own_parameters => 0,
            Tensor::Sums | Tensor::Workspace => 0,
            _ => of_a_line(tensor.elements) * 8 * tensor.dtype.size(),
        }
    }
}

impl Planner<'_> {
    /// A plan for all rows or samples: in the given slices, or where those do not fit a binding, in as few as do.
    pub fn in_slices(
        &self,
        slices: Slices,
        tensors: &Tensors,
        plan: impl Fn(Slices) -> Result<Plan, Error>,
    ) -> Result<Plan, Error> {
        let lines = slices.lines;
        if lines <= 1 {
            return plan(slices);
        }
        // Slices of a multiple of this many lines begin at aligned positions of all tensors.
        let bits = 8 * alignment(self.profile);
        let all = tensors.all();
        let is_aligned = |lines_of_a_slice: &u64| {
            let mut each = all
                .iter()
                .map(|tensor| slices.bits_of_a_line(tensors, tensor));
            each.all(|of_a_line| (of_a_line * lines_of_a_slice).is_multiple_of(bits))
        };
        let mut powers = (0..=bits.ilog2()).map(|power| 1 << power);
        let unit = powers.find(is_aligned).unwrap_or(bits);
        let mut at_once = slices.at_once.next_multiple_of(unit).min(lines);
        loop {
            let slices = Slices { at_once, ..slices };
            // Two slices show whether all fit.
            let some = lines.min(2 * at_once);
            let mut planned = plan(Slices {
                lines: some,
                ..slices
            });
            if planned.is_ok() && some < lines {
                planned = plan(slices);
            }
            let is_cured = |limit| {
                [MAX_BINDING, ROUNDS].contains(&limit)
                    || (limit == MAX_WINDOW && slices.for_windows)
            };
            match planned {
                Err(Error::Limit { limit, .. }) if at_once > unit && is_cured(limit) => {
                    at_once = at_once.div_ceil(2).next_multiple_of(unit);
                }
                planned => return planned,
            }
        }
    }

    /// The dispatches of all slices. `plan` returns those of a slice with a number of rows or samples.
    pub fn each_slice(
        &self,
        slices: Slices,
        tensors: &Tensors,
        workspace: &mut Workspace,
        mut plan: impl FnMut(u64, &mut Workspace) -> Result<Vec<(Phases, Dispatch)>, Error>,
    ) -> Result<Vec<(Phases, Dispatch)>, Error> {
        let all = tensors.all();
        let before = workspace.clone();
        let mut dispatches = Vec::new();
        for slice in 0..slices.count() {
            let first = slice * slices.at_once;
            let mut own = before.clone();
            let mut of_slice = plan(slices.at_once.min(slices.lines - first), &mut own)?;
            workspace.grow_to(&own);
            for binding in of_slice.iter_mut().flat_map(|(_, d)| &mut d.bindings) {
                let tensor = all.iter().find(|r| r.tensor == binding.tensor);
                let bits = tensor.map_or(0, |r| slices.bits_of_a_line(tensors, r));
                let skipped = first * bits / 8;
                binding.shift(skipped);
            }
            dispatches.extend(of_slice);
            // Every slice has a dispatch.
            let left = slices.count() - slice - 1;
            check_dispatches(dispatches.len() as u64 + left)?;
        }
        Ok(dispatches)
    }

    /// A region to which the slices' sums of `channels` channels are added, if there are several slices.
    pub fn sums_of_slices(
        &self,
        slices: Slices,
        channels: u32,
        workspace: &mut Workspace,
    ) -> Result<Option<RunningSums>, Error> {
        match slices.several() {
            true => Ok(Some(self.running_sums(
                channels,
                slices.count(),
                workspace,
            )?)),
            false => Ok(None),
        }
    }
}
