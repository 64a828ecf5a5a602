//! The steps that all passes have in common: slices, results, and the finished plan.

use super::axes::Layout;
use super::channels_first::Planes;
use super::channels_last::ChannelsLast;
use super::finish::{Partials, Route};
use super::problem::Problem;
use super::rounds::RunningSums;
use super::slices::Slices;
use super::tensors::{Applied, Tensors};
use super::walk::Walk;
use super::workspace::Workspace;
use super::{Dispatch, Phases, Plan, Planner, Requirement, word};
use crate::{Algorithm, Error, Profile, Tensor};

/// A pass's dispatches for a slice.
pub(super) struct Slice {
    pub algorithm: Algorithm,
    pub dispatches: Vec<(Phases, Dispatch)>,
    /// Whether there are halves.
    pub has_halves: bool,
}

impl Slice {
    /// A slice without halves.
    pub fn whole(algorithm: Algorithm, dispatches: Vec<Dispatch>) -> Self {
        Self {
            algorithm,
            dispatches: in_phases(Phases::WHOLE, dispatches).collect(),
            has_halves: false,
        }
    }
}

/// Gives all dispatches the same phases.
pub(super) fn in_phases(
    phases: Phases,
    dispatches: Vec<Dispatch>,
) -> impl Iterator<Item = (Phases, Dispatch)> {
    dispatches
        .into_iter()
        .map(move |dispatch| (phases, dispatch))
}

/// The dispatches of an operation.
pub(crate) fn plan(profile: &Profile, problem: &Problem) -> Result<Plan, Error> {
    let planner = Planner {
        profile,
        body: problem.body,
        epilogue: problem.epilogue,
        data: problem.types.data,
    };
    let tensors = problem.tensors();
    let lines = problem.separate_lines();
    let slices = Slices {
        lines,
        at_once: planner.samples_at_once(problem, &tensors).min(lines),
        own_parameters: problem.axes.have_own_parameters(),
        for_windows: problem.axes.have_own_parameters()
            || problem.axes.groups().layout.general.is_some(),
    };
    planner.in_slices(slices, &tensors, |slices| {
        let mut workspace = Workspace::new(problem.types.data.accumulator());
        let mut running = None;
        if tensors.param_grads() && !slices.own_parameters {
            let parameters = word(problem.axes.parameters());
            running = planner.sums_of_slices(slices, parameters, &mut workspace)?;
        }
        let mut algorithm = Algorithm::General;
        let mut has_halves = false;
        let mut dispatches =
            planner.each_slice(slices, &tensors, &mut workspace, |lines, workspace| {
                let of_slice = slices.several().then(|| {
                    let problem = problem.of_lines(lines);
                    let tensors = problem.tensors();
                    (problem, tensors)
                });
                let (problem, tensors) = match &of_slice {
                    Some((problem, tensors)) => (problem, tensors),
                    None => (problem, &tensors),
                };
                let slice = match problem.body.is_gradient() {
                    true => planner.backward(problem, tensors, &mut running, workspace),
                    false if problem.is_inference() => {
                        planner.inference(problem, tensors, workspace)
                    }
                    false => planner.forward(problem, tensors, &mut running, workspace),
                }?;
                algorithm = slice.algorithm;
                has_halves = slice.has_halves;
                Ok(slice.dispatches)
            })?;
        if let Some(running) = &running {
            let derived = problem.derived(&tensors);
            let finish = planner.finish(&planner.total(running), &derived, Route::Whole)?;
            dispatches.extend(in_phases(Phases::WHOLE, finish));
        }
        let mut all = tensors.all();
        all.retain(|tensor| has_halves || tensor.tensor != Tensor::Sums);
        planner.complete(algorithm, problem, all, &workspace, dispatches)
    })
}

impl<'a> Planner<'a> {
    /// The walk over a layout, in planes or in rows of columns. The reduction of `one_pass` may write diff_src, too.
    pub fn walk_over(
        &self,
        planes: bool,
        layout: &'a Layout,
        src: &'a Requirement,
        one_pass: bool,
    ) -> Box<dyn Walk + 'a> {
        let planner = *self;
        if planes {
            return Box::new(Planes {
                planner,
                layout,
                src,
                one_pass,
            });
        }
        Box::new(ChannelsLast {
            planner,
            layout,
            src,
        })
    }
}

impl Planner<'_> {
    /// The dispatches that write the results of each channel, group or column, if there are any, or that add their sums
    /// to `running`.
    pub(super) fn finish_written(
        &self,
        partials: Partials,
        tensors: &Tensors,
        problem: &Problem,
        running: &mut Option<RunningSums>,
        workspace: &mut Workspace,
    ) -> Result<Vec<Dispatch>, Error> {
        let written = |output: &Requirement| output.elements > 0;
        if !tensors.results.iter().any(written) {
            return Ok(vec![]);
        }
        if let Some(running) = running {
            return self.add_up(running, partials, workspace);
        }
        let (mut dispatches, partials) = self.add_subtotals(partials, workspace)?;
        dispatches.extend(self.finish(&partials, &problem.derived(tensors), Route::Whole)?);
        Ok(dispatches)
    }

    /// The elementwise pass over channels. One that writes a mask goes in the tensor's order.
    pub(super) fn apply(
        &self,
        walk: &dyn Walk,
        layout: &Layout,
        tensors: &Tensors,
        applied: Applied,
    ) -> Result<Vec<Dispatch>, Error> {
        if tensors.mask.is_some() && !self.body.is_gradient() {
            self.flat_apply(layout, tensors, applied)
        } else {
            walk.apply(tensors, applied)
        }
    }

    /// The plan, checked.
    fn complete(
        &self,
        algorithm: Algorithm,
        problem: &Problem,
        tensors: Vec<Requirement>,
        workspace: &Workspace,
        mut dispatches: Vec<(Phases, Dispatch)>,
    ) -> Result<Plan, Error> {
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
            body: self.body,
            algorithm,
            types: problem.types,
            tensors,
            halves_workspace_bytes,
            workspace_bytes,
            word_bits: self.profile.word_bits(),
            f16_encoder: self.profile.f16_encoder,
            dispatches,
        };
        super::check_dispatches(plan.dispatches.len() as u64)?;
        plan.check_bindings(self.profile.max_binding)?;
        plan.check_buffers(self.profile.max_storage_buffers)?;
        plan.check_iterations()?;
        Ok(plan)
    }
}
