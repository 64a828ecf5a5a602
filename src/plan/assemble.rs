//! Makes a plan's dispatches: stages, one after another, along a walk.

use super::candidates::{WHOLE, Way};
use super::derived::Derived;
use super::dispatch::{Binding, Dispatch, Phases, Requirement};
use super::limits::{Unfit, check_dispatches};
use super::planner::Planner;
use super::problem::Family;
use super::rounds::RunningSums;
use super::sizes::word;
use super::stages::Stage;
use super::stages::combine_groups::sums_of_all_samples;
use super::stages::finish::{Partials, Route};
use super::tensors::Tensors;
use super::walks::{Known, Reduced, Walk};
use super::workspace::{Region, Workspace};
use crate::algorithm::Algorithm;
use crate::kernels::{Constant, GroupSizes, ROWS_AT_ONCE};
use crate::tensor::Tensor;
use std::ops::Range;

/// The dispatches of an operation, or of a slice of it.
pub(super) struct Assembled {
    pub algorithm: Algorithm,
    /// Whether there are halves.
    pub has_halves: bool,
    pub dispatches: Vec<(Phases, Dispatch)>,
}

/// Assembles an operation or a slice. If there are `running` sums, those of parameters are added to them.
pub(super) fn assemble(
    planner: Planner<'_>,
    running: &mut Option<RunningSums>,
    workspace: &mut Workspace,
) -> Result<Assembled, Unfit> {
    let way = Way::of(planner)?;
    let mut has_halves = planner.problem.has_halves();
    let mut assembly = Assembly {
        planner,
        phases: if has_halves {
            Phases::ALL
        } else {
            Phases::WHOLE
        },
        running,
        workspace,
        dispatches: Vec::with_capacity(8),
    };
    if has_halves && way.stages == WHOLE {
        assembly.phases = Phases::REDUCE.with(Phases::APPLY);
        let halves = Way::of_halves(planner, way.algorithm).and_then(|way| assembly.run(&way));
        // One dispatch needs no workspace: where the halves do not fit, there are none.
        if halves.is_err() || assembly.workspace.bytes() > planner.profile.max_binding {
            *assembly.workspace = Workspace::new(planner.data.accumulator());
            assembly.dispatches.clear();
            has_halves = false;
        }
        assembly.phases = Phases::WHOLE;
    }
    assembly.run(&way)?;
    Ok(Assembled {
        algorithm: way.algorithm,
        has_halves,
        dispatches: assembly.dispatches,
    })
}

/// A plan in the making.
struct Assembly<'a, 'w> {
    planner: Planner<'a>,
    /// The recordings that are planned.
    phases: Phases,
    /// The sums to which those of parameters are added, where there are several slices.
    running: &'w mut Option<RunningSums>,
    workspace: &'w mut Workspace,
    dispatches: Vec<(Phases, Dispatch)>,
}

impl Assembly<'_, '_> {
    /// Adds dispatches that take part in some recordings.
    fn add(&mut self, phases: Phases, dispatches: Vec<Dispatch>) {
        if let Some(phases) = phases.and(self.phases) {
            let dispatches = dispatches.into_iter();
            self.dispatches
                .extend(dispatches.map(|dispatch| (phases, dispatch)));
        }
    }

    /// Adds all dispatches of a way.
    fn run(&mut self, way: &Way<'_>) -> Result<(), Unfit> {
        let (problem, walk) = (self.planner.problem, &*way.walk);
        if problem.axes.elements() == 0 {
            return self.finish_nothing();
        }
        let has = |stage| way.stages.contains(&stage);
        let given = if has(Stage::Pack) {
            self.given(walk)
        } else {
            vec![]
        };
        let mut params = None;
        if let Some(others) = walk.bound_besides_params() {
            let (loaded, copies) = self.planner.load_params(others, self.workspace)?;
            self.add(Phases::WHOLE, copies);
            params = Some(loaded);
        }
        let whole = 0..self.planner.problem.axes.statistics();
        let parts = match walk.parts() {
            [] => std::slice::from_ref(&whole),
            parts => parts,
        };
        let longest = parts.first().map_or(0, |part| part.end - part.start);
        let needs_none = !given.is_empty() && problem.is_inference();
        let records = match problem.family {
            _ if has(Stage::Whole) || needs_none => 0,
            Family::Groups if has(Stage::Combine) => {
                let is_given = !self.planner.body.statistics().is_empty();
                u64::from(is_given) * u64::from(problem.groups.channels_of_all())
            }
            _ => longest,
        };
        let has_means = has(Stage::Finish) && problem.has_means() && walk.has_means();
        let known = Known {
            stats: self.reserve(records)?,
            given,
            means: has_means.then(|| self.reserve(longest)).transpose()?,
            kept: self.reserve(walk.kept_records())?,
            params: params.unwrap_or_default(),
            few_sums: None,
            of_statistics: false,
            part: 0..0,
        };
        let before = *self.workspace;
        let mut end = before;
        let mut parameters = None;
        // Parts use the same records, one after another.
        for part in parts {
            *self.workspace = before;
            let mut known = Known {
                part: part.clone(),
                ..known.clone()
            };
            let mut reduced = Reduced::default();
            for stage in way.stages {
                self.stage(*stage, walk, &mut known, &mut reduced)?;
            }
            parameters = reduced.parameters;
            end.grow_to(self.workspace);
            check_dispatches(self.dispatches.len() as u64)?;
        }
        *self.workspace = end;
        parameters.map_or(Ok(()), |sums| self.finish_parameters(sums))
    }

    /// The statistics, and of channels the parameters, that kernels read without records: none where an adapter binds
    /// too few buffers, or where parts of the statistics are done one after another.
    fn given(&self, walk: &dyn Walk) -> Vec<Binding> {
        let tensors = self.planner.tensors;
        let (params, others) = match walk.bound_besides_params() {
            Some(_) => (&[][..], tensors.params.len()),
            None => (&tensors.params[..], 0),
        };
        let given = || tensors.statistics.iter().chain(params);
        let fits = self.binds_given(walk, others + given().count());
        let held = given().all(|one| one.padded_bytes() <= self.planner.profile.max_binding);
        if fits && held && walk.parts().len() <= 1 && !tensors.statistics.is_empty() {
            given().map(Binding::whole).collect()
        } else {
            vec![]
        }
    }

    /// Whether a walk's kernels can bind so many statistics and parameters.
    fn binds_given(&self, walk: &dyn Walk, given: usize) -> bool {
        let bound = walk.bound_besides_given();
        bound.is_some_and(|bound| self.planner.profile.binds(bound + given))
    }

    fn reserve(&mut self, records: u64) -> Result<Region, Unfit> {
        match records {
            0 => Ok(Region { first: 0 }),
            records => self.workspace.reserve(records),
        }
    }

    /// Adds a stage of a part.
    fn stage(
        &mut self,
        stage: Stage,
        walk: &dyn Walk,
        known: &mut Known,
        reduced: &mut Reduced,
    ) -> Result<(), Unfit> {
        let (planner, problem) = (self.planner, self.planner.problem);
        let in_one_pass = walk.writes_in_one_pass();
        match stage {
            Stage::Pack => return self.pack(walk, known),
            Stage::Reduce if !problem.has_sums(planner.tensors) => {}
            Stage::Reduce | Stage::Whole => {
                *reduced = walk.reduce(known, self.workspace)?;
                let dispatches = std::mem::take(&mut reduced.dispatches);
                // After a reduction there are records.
                known.given.clear();
                if in_one_pass {
                    let both = dispatches.iter().map(|one| writing(planner.tensors, one));
                    self.add(Phases::WHOLE, both.collect());
                    self.add(Phases::REDUCE, dispatches);
                } else {
                    self.add(Phases::WHOLE.with(Phases::REDUCE), dispatches);
                }
            }
            Stage::Finish => {
                let none = || Partials::none(word(known.part.end - known.part.start), known.stats);
                let has_none = problem.has_halves();
                let partials = reduced.statistics.take();
                if let Some(partials) = partials.or_else(|| has_none.then(none)) {
                    if walk.adds_up(&partials) {
                        known.few_sums = Some((partials.region, partials.count));
                    }
                    return self.finish_statistics(partials, known);
                }
            }
            Stage::Combine => {
                if let Some(partials) = reduced.statistics.take() {
                    return self.combine(partials, known);
                }
            }
            Stage::Apply => {
                if known.few_sums.is_some() {
                    self.add(Phases::WHOLE, walk.apply(known)?);
                    known.few_sums = None;
                    if self.phases.meets(Phases::APPLY) {
                        self.add(Phases::APPLY, walk.apply(known)?);
                    }
                    return Ok(());
                }
                let whole = if in_one_pass {
                    Phases::APPLY
                } else {
                    Phases::WHOLE.with(Phases::APPLY)
                };
                self.add(whole, walk.apply(known)?);
            }
        }
        Ok(())
    }

    fn pack(&mut self, walk: &dyn Walk, known: &Known) -> Result<(), Unfit> {
        let (problem, tensors) = (self.planner.problem, self.planner.tensors);
        if self.planner.body.statistics().is_empty() {
            return Ok(());
        }
        let of_part = tensors.of_statistics(&known.part);
        let params: &[_] = if walk.bound_besides_params().is_some() {
            &[]
        } else {
            &tensors.params
        };
        let (channels, sizes) = if problem.family == Family::Groups {
            (problem.groups.channels_of_all(), problem.groups.sizes())
        } else {
            let channels = word(known.part.end - known.part.start);
            (channels, GroupSizes::none(channels))
        };
        let read = [&of_part.statistics, params];
        // A half is recorded without the other's records.
        let phases = match (known.given.is_empty(), problem.has_sums(tensors)) {
            (true, _) => Phases::ALL,
            (false, true) => Phases::APPLY,
            (false, false) => return Ok(()),
        };
        let pack = self
            .planner
            .pack_statistics(channels, sizes, read, known.stats)?;
        self.add(phases, bound_from(&known.part, tensors, pack));
        Ok(())
    }

    /// Adds up the sums of what shares statistics, and derives what follows from them: for the whole and for the two
    /// halves.
    fn finish_statistics(&mut self, partials: Partials, known: &Known) -> Result<(), Unfit> {
        let planner = self.planner;
        let (dispatches, partials) = planner.add_subtotals(partials, self.workspace)?;
        self.add(Phases::WHOLE.with(Phases::REDUCE), dispatches);
        let is_gradient = planner.body.is_gradient();
        let derived = Derived {
            means: if is_gradient {
                known.means
            } else {
                Some(known.stats)
            },
            ..Derived::of_statistics(planner.problem, &planner.tensors.of_statistics(&known.part))
        };
        // The elementwise pass of the whole may add them up itself.
        let phases = if known.few_sums.is_some() {
            Phases::REDUCE.with(Phases::APPLY)
        } else {
            Phases::ALL
        };
        self.finish_halves(phases, &partials, &derived, &known.part)
    }

    fn finish_halves(
        &mut self,
        wanted: Phases,
        partials: &Partials,
        derived: &Derived,
        part: &Range<u64>,
    ) -> Result<(), Unfit> {
        let planner = self.planner;
        // A gradient may want neither results nor means: then only the sums of the first half.
        let is_wanted =
            derived.means.is_some() || derived.operands.iter().any(|line| !line.is_empty());
        for (phases, route) in [
            (Phases::WHOLE, Route::Whole),
            (Phases::REDUCE, Route::ToSums),
            (Phases::APPLY, Route::FromSums),
        ] {
            if wanted
                .and(self.phases)
                .is_some_and(|wanted| wanted.meets(phases))
                && (is_wanted || route == Route::ToSums)
            {
                let finish = planner.finish(partials, derived, route)?;
                self.add(phases, bound_from(part, planner.tensors, finish));
            }
        }
        Ok(())
    }

    /// Adds up the sums of parameters, or of other results, and writes what follows, or adds the sums to those of other
    /// slices.
    fn finish_parameters(&mut self, partials: Partials) -> Result<(), Unfit> {
        let (planner, tensors) = (self.planner, self.planner.tensors);
        if !tensors.results.iter().any(|result| result.elements > 0) {
            return Ok(());
        }
        if let Some(running) = self.running {
            let sums = planner.add_up(running, partials, self.workspace)?;
            self.add(Phases::WHOLE, sums);
            return Ok(());
        }
        let (sums, partials) = planner.add_subtotals(partials, self.workspace)?;
        self.add(Phases::WHOLE, sums);
        let derived = Derived::of_results(planner.problem, tensors);
        let finish = planner.finish(&partials, &derived, Route::Whole)?;
        self.add(Phases::WHOLE, finish);
        Ok(())
    }

    /// The results of no elements.
    fn finish_nothing(&mut self) -> Result<(), Unfit> {
        let (problem, tensors) = (self.planner.problem, self.planner.tensors);
        let region = self.workspace.reserve(0)?;
        if problem.has_halves() {
            let none = Partials::none(word(problem.axes.parameters()), region);
            if none.channels == 0 {
                return Ok(());
            }
            let derived = Derived::of_statistics(problem, tensors);
            return self.finish_halves(Phases::ALL, &none, &derived, &(0..0));
        }
        let results = tensors.results.iter().map(|result| result.elements);
        self.finish_parameters(Partials::none(word(results.max().unwrap_or(0)), region))
    }

    /// Combines the sums of a group's channels: from their partial sums, together with the results, or in the place of
    /// the sums.
    fn combine(&mut self, partials: Partials, known: &mut Known) -> Result<(), Unfit> {
        let (planner, problem) = (self.planner, self.planner.problem);
        let before = *self.workspace;
        let channels = u64::from(problem.groups.channels_of_all());
        let combined = self.reserve(channels)?;
        let has_room = channels <= planner.few_records()
            && self.workspace.bytes() <= planner.profile.max_binding;
        let fits = self.running.is_none() && has_room;
        let results = Derived::of_results(problem, planner.tensors).all_operands();
        let at_once = planner.combine_groups(known.stats, &partials, combined, &results)?;
        let combined = if let Some(combine) = at_once.filter(|_| fits) {
            self.add(Phases::WHOLE, vec![combine]);
            combined
        } else {
            *self.workspace = before;
            let (dispatches, sums) = planner.sums_of_channels(partials, self.workspace)?;
            self.add(Phases::WHOLE, dispatches);
            // Before the sums are overwritten.
            self.finish_parameters(sums_of_all_samples(problem, sums))?;
            let sums_of_channels = Partials::plain(sums, problem.groups.channels_of_all(), 1, 0);
            let combine = planner.combine_groups(known.stats, &sums_of_channels, sums, &[])?;
            let combine = combine.ok_or_else(|| planner.too_many_channels())?;
            self.add(Phases::WHOLE, vec![combine]);
            sums
        };
        if planner.body.statistics().is_empty() {
            known.stats = combined;
        } else {
            known.means = Some(combined);
        }
        Ok(())
    }
}

/// A reduction that also writes the results, where it reads diff_dst.
fn writing(tensors: &Tensors, reduction: &Dispatch) -> Dispatch {
    let mut dispatch = reduction.clone();
    let bindings = &mut dispatch.bindings;
    let read = bindings
        .iter()
        .find(|bound| bound.tensor == Tensor::DiffDst);
    if let Some(bytes) = read.map(|read| read.bytes.clone()) {
        let write = |output: &Requirement| Binding::new(output.tensor, bytes.clone());
        bindings.extend(tensors.outputs.iter().map(write));
    }
    // Results need registers, so only one row is loaded at a time.
    for (name, value) in &mut dispatch.constants {
        if *name == ROWS_AT_ONCE {
            *value = Constant::Size(1);
        }
    }
    dispatch
}

/// Dispatches over a part of the statistics, whose tensors are bound from its start on.
fn bound_from(
    part: &Range<u64>,
    tensors: &Tensors,
    mut dispatches: Vec<Dispatch>,
) -> Vec<Dispatch> {
    if part.start == 0 {
        return dispatches;
    }
    let skipped = |tensor: Tensor| {
        let mut statistics = tensors.all().filter(|one| one.tensor.is_statistic());
        let bound = statistics.find(|one| one.tensor == tensor);
        bound.map_or(0, |statistic| part.start * statistic.dtype.size())
    };
    dispatches.iter_mut().for_each(|one| one.shift(skipped));
    dispatches
}
