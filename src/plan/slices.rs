//! Plans an operation: at once, or some rows or samples at a time, where a binding has no room for all of them, or for
//! their records in the workspace.
//!
//! A slice of them is planned as a tensor of its own, whose operands are bound from the slice's first row or sample on.
//! All slices use the same workspace, one after another. Sums of parameters that all slices share have a region before
//! it, where each slice's sums are added in order. So the bits of these sums depend on the number of slices, which
//! follows from the shape and the profile.

use super::Plan;
use super::assemble::assemble;
use super::derived::Derived;
use super::dispatch::{Dispatch, Phases, Requirement};
use super::limits::{MAX_SEQUENTIAL, Unfit, check_dispatches};
use super::planner::Planner;
use super::problem::Problem;
use super::sizes::{div_ceil, word};
use super::stages::finish::Route;
use super::tensors::Tensors;
use super::windows::alignment;
use super::workspace::Workspace;
use crate::algorithm::Algorithm;
use crate::profile::Profile;
use crate::tensor::Tensor;

/// The number of rows or samples, and of those that are planned at a time.
#[derive(Clone, Copy, Debug)]
struct Slices {
    lines: u64,
    at_once: u64,
    /// Whether each row or sample has parameters of its own.
    own_parameters: bool,
}

impl Slices {
    /// Whether there are several.
    fn several(&self) -> bool {
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

    /// A number of lines of which slices of a multiple begin at aligned positions of all tensors.
    fn unit(&self, profile: &Profile, tensors: &Tensors) -> u64 {
        let bits = 8 * alignment(profile);
        let is_aligned = |lines: &u64| {
            let mut each = tensors
                .all()
                .map(|tensor| self.bits_of_a_line(tensors, tensor));
            each.all(|of_a_line| (of_a_line * lines).is_multiple_of(bits))
        };
        let mut powers = (0..=bits.ilog2()).map(|power| 1 << power);
        powers.find(is_aligned).unwrap_or(bits)
    }
}

/// The plan of an operation, in as few slices as fit.
pub(crate) fn plan(profile: &Profile, problem: &Problem) -> Result<Plan, Unfit> {
    let tensors = problem.tensors();
    let planner = Planner::new(profile, problem, &tensors);
    let lines = problem.separate_lines();
    let own_parameters = problem.axes.have_own_parameters();
    let slices = Slices {
        lines,
        at_once: samples_at_once(&planner).min(lines),
        own_parameters,
    };
    if lines <= 1 {
        return plan_slices(planner, slices);
    }
    // Windows of the whole tensor cannot be short where slices would change sums.
    let for_windows = own_parameters || problem.groups.layout.general.is_some();
    let is_cured = |unfit: &Unfit| match unfit {
        Unfit::Room(_) => true,
        Unfit::Window { .. } => for_windows,
        Unfit::Other(_) => false,
    };
    let unit = slices.unit(profile, &tensors);
    let mut at_once = slices.at_once.next_multiple_of(unit).min(lines);
    loop {
        let slices = Slices { at_once, ..slices };
        // Two slices show whether all fit.
        let some = lines.min(2 * at_once);
        let mut planned = plan_slices(
            planner,
            Slices {
                lines: some,
                ..slices
            },
        );
        if planned.is_ok() && some < lines {
            planned = plan_slices(planner, slices);
        }
        match planned {
            Err(unfit) if at_once > unit && is_cured(&unfit) => {
                at_once = at_once.div_ceil(2).next_multiple_of(unit);
            }
            planned => return planned,
        }
    }
}

/// Samples with parameters of their own whose rows are planned at once: as many as leave few partial sums.
fn samples_at_once(planner: &Planner<'_>) -> u64 {
    let (axes, tensors) = (&planner.problem.axes, planner.tensors);
    let columns = axes.count();
    let Some(rows) = axes.rows_of_a_sample() else {
        return u64::MAX;
    };
    let of_a_split = match columns.is_multiple_of(4) {
        _ if !tensors.param_grads() => 0,
        true if planner.body.pairs() => columns / 2,
        true => columns,
        false => 4 * columns,
    };
    let samples = (axes.parameters() / columns.max(1)).max(1);
    let of_a_sample =
        of_a_split * div_ceil(rows, MAX_SEQUENTIAL) + planner.copied_params() / samples;
    (planner.few_records() / of_a_sample.max(1)).max(1)
}

fn plan_slices(planner: Planner<'_>, slices: Slices) -> Result<Plan, Unfit> {
    let Planner {
        profile,
        problem,
        tensors,
        ..
    } = planner;
    let mut workspace = Workspace::new(planner.data.accumulator());
    let mut running = None;
    if slices.several() && tensors.param_grads() && !slices.own_parameters {
        let parameters = word(problem.axes.parameters());
        running = Some(planner.running_sums(parameters, slices.count(), &mut workspace)?);
    }
    let mut algorithm = Algorithm::General;
    let mut has_halves = false;
    let mut dispatches = Vec::new();
    let before = workspace;
    for slice in 0..slices.count() {
        let first = slice * slices.at_once;
        let mut own = before;
        let mut assembled = if slices.several() {
            let problem = problem.of_lines(slices.at_once.min(slices.lines - first));
            let tensors = problem.tensors();
            let planner = Planner {
                is_slice: true,
                ..Planner::new(profile, &problem, &tensors)
            };
            assemble(planner, &mut running, &mut own)?
        } else {
            assemble(planner, &mut running, &mut own)?
        };
        workspace.grow_to(&own);
        (algorithm, has_halves) = (assembled.algorithm, assembled.has_halves);
        let skipped = |tensor| {
            let own = tensors.all().find(|one| one.tensor == tensor);
            own.map_or(0, |own| first * slices.bits_of_a_line(tensors, own) / 8)
        };
        let of_slice = assembled.dispatches.iter_mut();
        of_slice.for_each(|(_, dispatch)| dispatch.shift(skipped));
        if slices.several() {
            dispatches.append(&mut assembled.dispatches);
        } else {
            dispatches = assembled.dispatches;
        }
        // Every slice has a dispatch.
        let left = slices.count() - slice - 1;
        check_dispatches(dispatches.len() as u64 + left)?;
    }
    if let Some(running) = &running {
        let derived = Derived::of_results(problem, tensors);
        let finish = planner.finish(&planner.total(running), &derived, Route::Whole)?;
        dispatches.extend(finish.into_iter().map(|dispatch| (Phases::WHOLE, dispatch)));
    }
    let is_bound = |one: &&Requirement| has_halves || one.tensor != Tensor::Sums;
    let bound = tensors.all().filter(is_bound).copied().collect();
    complete(planner, algorithm, bound, &workspace, dispatches)
}

/// The plan, checked.
fn complete(
    planner: Planner<'_>,
    algorithm: Algorithm,
    tensors: Vec<Requirement>,
    workspace: &Workspace,
    mut dispatches: Vec<(Phases, Dispatch)>,
) -> Result<Plan, Unfit> {
    let profile = planner.profile;
    let (mut halves_workspace_bytes, mut workspace_bytes) = (0, 0);
    for (phases, dispatch) in &mut dispatches {
        let bindings = dispatch.bindings.iter_mut();
        for binding in bindings.filter(|bound| bound.tensor == Tensor::Workspace) {
            halves_workspace_bytes = workspace.bytes();
            binding.bytes = 0..halves_workspace_bytes;
            if phases.meets(Phases::WHOLE) {
                workspace_bytes = halves_workspace_bytes;
            }
        }
    }
    let plan = Plan {
        body: planner.body,
        algorithm,
        types: planner.problem.types,
        tensors,
        halves_workspace_bytes,
        workspace_bytes,
        word_bits: profile.word_bits(),
        f16_encoder: profile.f16_encoder,
        dispatches,
    };
    check_dispatches(plan.dispatches.len() as u64)?;
    plan.check_bindings(profile.max_binding)
        .map_err(Unfit::Room)?;
    plan.check_limits(profile.max_storage_buffers)?;
    Ok(plan)
}
