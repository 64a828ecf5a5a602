//! Group norm, its gradient and its forward passes, as sequences of dispatches. The channels of all samples are channels
//! of their own to the reduction and to the elementwise pass; between them the sums of a group are put together.
//!
//! # Windows
//!
//! A tensor beyond the binding limit is cut like batch norm's of the same layout:
//! * channels first: between planes, or inside of one, whatever sample or group they are of; fused, between blocks of whole
//!   groups, each of which must fit a binding;
//! * channels last: between rows, if the elements of a sample are whole vec4s; else, with several samples of several
//!   elements a channel, the tensor must fit a binding.
//!
//! What is not cut: the workspace, with records of the channels of all samples, and the parameters; and the sums of a
//! group's channels, which one workgroup of `combine_groups` adds up. Beyond these the plan is an error.

use super::backward::Activated;
use super::choose::Channels;
use super::combine_groups::Cells;
use super::compose::walks_planes;
use super::finish::{Derived, Partials, Route};
use super::flat::Samples;
use super::forward::After;
use super::rounds::RunningSums;
use super::tensors::{self, Applied, Tensors, mask, of};
use super::workspace::{Part, Workspace};
use super::{Dispatch, Phases, Plan, Planner, Requirement, word};
use crate::geometry::Groups;
use crate::kernels::{Body, Ending, Scalars};
use crate::{Activation, Algorithm, DTypes, Error, ParamGrads, Profile, Tensor};

/// A group norm, folded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupNormProblem {
    pub groups: Groups,
    pub types: DTypes,
    pub has_gamma: bool,
    pub has_beta: bool,
    pub epsilon: f64,
    pub pass: GroupNormPass,
}

/// What is computed of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GroupNormPass {
    Backward {
        param_grads: ParamGrads,
        activation: Activation,
        masked: bool,
    },
    Forward(After),
    /// Forward by given statistics.
    Inference(After),
}

impl GroupNormProblem {
    fn body(&self) -> Body {
        match self.pass {
            GroupNormPass::Backward { .. } => Body::GroupGradient,
            GroupNormPass::Forward(_) => Body::GroupForward,
            GroupNormPass::Inference(_) => Body::GroupInference,
        }
    }

    fn tensors(&self) -> Tensors {
        let body = self.body();
        let of_data = of(self.types.data, self.groups.layout.grid.elements());
        let of_params = of(self.types.params, self.groups.channels.into());
        let of_statistics = of(self.types.statistics, self.groups.count.into());
        let ending = self.ending();
        let both = [Tensor::DiffGamma, Tensor::DiffBeta];
        let (outputs, gamma_counts) = match self.pass {
            GroupNormPass::Backward { param_grads, .. } => {
                let outputs = match param_grads {
                    ParamGrads::Both => both.map(&of_params).into(),
                    ParamGrads::Neither | ParamGrads::Frozen => vec![],
                };
                (
                    outputs,
                    param_grads != ParamGrads::Neither || ending.gamma_ignored,
                )
            }
            GroupNormPass::Forward(_) => {
                let outputs = [Tensor::Mean, Tensor::Variance].map(of_statistics).into();
                (outputs, true)
            }
            GroupNormPass::Inference(_) => (vec![], true),
        };
        let masked = body.is_gradient() && ending.is_masked();
        let has_beta = self.has_beta && (!body.is_gradient() || ending.is_found_again());
        let tensors = Tensors {
            src: of_data(Tensor::Src),
            second: body.is_gradient().then(|| of_data(Tensor::DiffDst)),
            residual_after: None,
            mask: masked.then(|| mask(self.groups.layout.grid.elements())),
            statistics: tensors::Statistics {
                tensors: body.statistics(),
                dtype: self.types.statistics,
                groups: self.groups.count.into(),
            },
            gamma: self.has_gamma.then(|| of_params(Tensor::Gamma)),
            gamma_counts,
            beta: has_beta.then(|| of_params(Tensor::Beta)),
            running: vec![],
            result: of_data(body.result()),
            diff_residual: masked.then(|| of_data(Tensor::DiffResidual)),
            sum: None,
            outputs,
            sums: None,
        };
        match self.pass {
            GroupNormPass::Backward { .. } => tensors,
            GroupNormPass::Forward(after) => after.joined_to(tensors, true),
            GroupNormPass::Inference(after) => after.joined_to(tensors, false),
        }
    }

    fn ending(&self) -> Ending {
        match self.pass {
            GroupNormPass::Backward {
                param_grads,
                activation,
                masked,
            } => Activated {
                activation,
                has_beta: self.has_beta,
                masked,
            }
            .ending(self.has_gamma, param_grads),
            GroupNormPass::Forward(after) | GroupNormPass::Inference(after) => after.ending(),
        }
    }

    /// Storage buffers that the fused kernel binds: for what is written of channels and groups the workspace.
    fn fused_bindings(&self, tensors: &Tensors) -> usize {
        let outputs = tensors.outputs.len();
        tensors.bound_at_once().len() - outputs + usize::from(outputs > 0)
    }

    fn scalars(&self) -> Scalars {
        Scalars {
            epsilon: self.epsilon,
            ..Derived::of(self.groups.group_elements()).scalars
        }
    }

    /// What is written of each channel or group.
    fn derived(&self, tensors: &Tensors) -> Derived {
        Derived {
            operands: vec![tensors.outputs.clone()],
            scalars: self.scalars(),
            ..Derived::of(self.groups.group_elements())
        }
    }

    /// The sums of channels of all samples as parts of what is written: the gradients of a channel's parameters have one
    /// of each sample, the statistics of a group one of each of its channels.
    fn parts(&self, sums: Part) -> Partials {
        let groups = &self.groups;
        let (channels, group_channels) = (u64::from(groups.channels), groups.group_channels);
        match self.pass {
            GroupNormPass::Backward { .. } => {
                Partials::plain(sums, groups.channels, groups.samples.into(), channels)
            }
            GroupNormPass::Forward(_) | GroupNormPass::Inference(_) => Partials {
                channel_stride: group_channels.into(),
                ..Partials::plain(sums, groups.count, group_channels.into(), 1)
            },
        }
    }
}

/// The dispatches of group norm: fused, where a workgroup holds whole groups; else a reduction of each channel, what
/// follows from the sums of its group, and an elementwise pass.
pub(crate) fn group_norm(profile: &Profile, problem: &GroupNormProblem) -> Result<Plan, Error> {
    let planner = Planner {
        profile,
        body: problem.body(),
        ending: problem.ending(),
        data: problem.types.data,
    };
    let tensors = problem.tensors();
    let groups = &problem.groups;
    planner.in_slices(groups.samples.into(), &tensors, |slices| {
        let mut workspace = Workspace::new(problem.types.data.accumulator());
        let mut sums = match tensors.param_grads() {
            true => planner.sums_of_slices(slices, groups.channels, &mut workspace)?,
            false => None,
        };
        let mut algorithm = Algorithm::General;
        let mut dispatches =
            planner.each_slice(slices, &tensors, &mut workspace, |samples, workspace| {
                let groups = match slices.several() {
                    true => groups.of_samples(word(samples))?,
                    false => *groups,
                };
                let problem = GroupNormProblem { groups, ..*problem };
                let (by, dispatches) = planner.group_norm_of(&problem, &mut sums, workspace)?;
                algorithm = by;
                Ok(dispatches)
            })?;
        if let Some(sums) = &mut sums {
            let total = planner.total(sums);
            dispatches.extend(planner.finish(&total, &problem.derived(&tensors), Route::Whole)?);
        }
        let whole = |dispatch| (Phases::WHOLE, dispatch);
        let dispatches = dispatches.into_iter().map(whole).collect();
        planner.complete(algorithm, problem.types, &tensors, &workspace, dispatches)
    })
}

/// How elements find their cells, where the channels of a sample alternate.
fn samples(groups: &Groups) -> Option<Samples> {
    let grid = &groups.layout.grid;
    groups.layout.general.map(|_| Samples {
        channels: groups.channels,
        elements: u64::from(groups.channels) * grid.count(),
    })
}

impl Planner<'_> {
    /// All of a group norm but the last sums of the parameters' gradients, if there is a place where these are added up.
    fn group_norm_of(
        &self,
        problem: &GroupNormProblem,
        sums: &mut Option<RunningSums>,
        workspace: &mut Workspace,
    ) -> Result<(Algorithm, Vec<Dispatch>), Error> {
        let tensors = &problem.tensors();
        let given = matches!(problem.pass, GroupNormPass::Inference(_));
        let after = match problem.pass {
            GroupNormPass::Forward(after) => after,
            GroupNormPass::Backward { .. } | GroupNormPass::Inference(_) => After::default(),
        };
        let algorithm = self.choose_group_norm(&Channels {
            layout: problem.groups.layout,
            src: tensors.src,
            group_channels: problem.groups.group_channels,
            not_fusible: match given {
                true => Some("statistics are given"),
                false => after.not_fusible(),
            },
            fused_bindings: problem.fused_bindings(tensors),
        })?;
        let dispatches = if tensors.src.elements == 0 {
            let none = Partials {
                parts: 0,
                ..problem.parts(workspace.reserve(0)?)
            };
            self.finish_groups(none, tensors, problem, sums, workspace)?
        } else if given {
            self.infer_groups(problem, algorithm, tensors, workspace)?
        } else if algorithm == Algorithm::FusedChannelsFirst {
            self.fused_groups(problem, tensors, sums, workspace)?
        } else {
            self.split_groups(problem, algorithm, tensors, sums, workspace)?
        };
        Ok((algorithm, dispatches))
    }

    fn infer_groups(
        &self,
        problem: &GroupNormProblem,
        algorithm: Algorithm,
        tensors: &Tensors,
        workspace: &mut Workspace,
    ) -> Result<Vec<Dispatch>, Error> {
        let groups = &problem.groups;
        let stats = workspace.reserve(groups.cells.into())?;
        let mut dispatches = self.pack_groups(groups, tensors, problem.epsilon, stats)?;
        let applied = Applied {
            src: true,
            stats,
            means: None,
        };
        let planes = walks_planes(algorithm, &groups.layout);
        dispatches.extend(self.apply(planes, &groups.layout, tensors, applied)?);
        Ok(dispatches)
    }

    fn fused_groups(
        &self,
        problem: &GroupNormProblem,
        tensors: &Tensors,
        running: &mut Option<RunningSums>,
        workspace: &mut Workspace,
    ) -> Result<Vec<Dispatch>, Error> {
        let groups = &problem.groups;
        let sums = match tensors.outputs.is_empty() {
            true => None,
            false => Some(workspace.reserve(groups.cells.into())?),
        };
        let mut dispatches =
            self.channels_first_fused_groups(groups, tensors, problem.scalars(), sums)?;
        if let Some(sums) = sums {
            let parts = problem.parts(sums);
            dispatches.extend(self.finish_groups(parts, tensors, problem, running, workspace)?);
        }
        Ok(dispatches)
    }

    fn split_groups(
        &self,
        problem: &GroupNormProblem,
        algorithm: Algorithm,
        tensors: &Tensors,
        running: &mut Option<RunningSums>,
        workspace: &mut Workspace,
    ) -> Result<Vec<Dispatch>, Error> {
        let groups = &problem.groups;
        let layout = &groups.layout;
        let planes = walks_planes(algorithm, layout);
        let given = !self.body.statistics().is_empty();
        // Where nothing is known before the sums, no kernel needs a record of it: any place will do.
        let stats = workspace.reserve(if given { groups.cells.into() } else { 0 })?;
        let mut dispatches = match given {
            true => self.pack_groups(groups, tensors, problem.epsilon, stats)?,
            false => vec![],
        };
        let (reduce, partials) = match planes {
            true => self.channels_first_reduce(layout, tensors, false, stats, workspace)?,
            false => self.channels_last_reduce(layout, tensors, stats, workspace)?,
        };
        dispatches.extend(reduce);
        let (added, sums) = self.sums_of_cells(partials, workspace)?;
        dispatches.extend(added);
        // Before the sums' place is taken.
        let parts = problem.parts(sums);
        dispatches.extend(self.finish_groups(parts, tensors, problem, running, workspace)?);
        let cells = Cells { stats, sums };
        dispatches.push(self.combine_groups(groups, tensors, cells, problem.scalars())?);
        let applied = Applied {
            src: true,
            stats: if given { stats } else { sums },
            means: given.then_some(sums),
        };
        dispatches.extend(self.apply_in_training(
            planes,
            layout,
            samples(groups),
            tensors,
            applied,
        )?);
        Ok(dispatches)
    }

    /// What is written of each channel or group, if anything is, or what is added up for it.
    fn finish_groups(
        &self,
        parts: Partials,
        tensors: &Tensors,
        problem: &GroupNormProblem,
        running: &mut Option<RunningSums>,
        workspace: &mut Workspace,
    ) -> Result<Vec<Dispatch>, Error> {
        let written = |output: &Requirement| output.elements > 0;
        if !tensors.outputs.iter().any(written) {
            return Ok(vec![]);
        }
        if let Some(running) = running {
            return self.add_up(running, parts, workspace);
        }
        let (mut dispatches, parts) = self.group(parts, workspace)?;
        dispatches.extend(self.finish(&parts, &problem.derived(tensors), Route::Whole)?);
        Ok(dispatches)
    }
}
