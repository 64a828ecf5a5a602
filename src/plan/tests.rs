//! What holds for every plan, over random shapes, types, tunings and limits.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod counted;
mod dump;
mod statistics;

use super::*;
use crate::geometry::{Grid, MAX_ELEMENTS, broadcast_layout, group_norm_layout};
use crate::kernels::{Body, Value};
use crate::options::{RunningUpdate, RunningVariance};
use crate::{Activation, DataFormat, ParamGrads, Shards, Statistics, Tuning};
use std::collections::HashMap;

/// A small generator of random numbers, the same on every machine.
pub(crate) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// From 1 to `most`, small numbers as often as large ones.
    pub fn size(&mut self, most: u64) -> u64 {
        let bits = self.below(u64::from(most.ilog2()) + 1);
        (1 + self.below(2 << bits)).min(most)
    }

    pub fn grid(&mut self) -> Grid {
        self.grid_of(MAX_ELEMENTS)
    }

    pub fn grid_of(&mut self, most: u64) -> Grid {
        let mut left = most;
        let mut sizes = [1; 3];
        let first = self.below(3) as usize;
        for turn in 0..3 {
            let size = self.size(left);
            left /= size;
            sizes[(first + turn) % 3] = size as u32;
        }
        Grid {
            outer: sizes[0],
            channels: sizes[1],
            inner: sizes[2],
        }
    }

    pub fn profile(&mut self) -> Profile {
        let preset = self.of(&[Tuning::SOFTWARE, Tuning::GPU]);
        let tuning = match self.below(3) {
            0 => preset,
            _ => preset.changed(|bounds| self.below(bounds)),
        };
        Profile {
            max_binding: self.of(&[1 << 27, 1 << 31, u64::from(u32::MAX)]),
            max_buffer: u64::MAX,
            alignment: self.of(&[32, 64, 256, 512, 1 << 16]),
            max_invocations: self.of(&[256, 512, 1024]),
            max_storage_buffers: self.of(&[4, 5, 6, 8, 8, 8, 64]),
            max_workgroup_storage: self.of(&[16352, 32768, 65536]),
            subgroup_size: self.of(&[0, 4, 8, 32, 64]),
            f64: true,
            long_words: self.below(2) == 0,
            tuning: tuning.within_bounds(),
            ..Profile::usual()
        }
    }

    pub fn types(&mut self) -> DTypes {
        use DType::{Bf16, F16, F32, F64};
        let types = self.of(&[(F32, F32), (F16, F32), (F16, F16), (Bf16, F32), (F64, F64)]);
        let types = DTypes::from(types);
        match self.below(4) {
            0 => types.with_statistics(types.params),
            _ => types,
        }
    }

    pub fn batch_norm(&mut self) -> BatchNormProblem {
        BatchNormProblem {
            layout: self.grid().into(),
            types: self.types(),
            has_gamma: self.below(2) == 0,
            epsilon: 1e-5,
            statistics: self.of(&[Statistics::Batch, Statistics::Constant]),
            param_grads: self.of(&[ParamGrads::Both, ParamGrads::Frozen, ParamGrads::Neither]),
            activated: self.activated(),
        }
    }

    pub fn small_batch_norm(&mut self) -> BatchNormProblem {
        let mut grid = self.grid_of(1 << 20);
        if self.below(3) == 0 {
            grid.inner = 1;
            grid.channels = grid.channels.next_multiple_of(4);
        }
        BatchNormProblem {
            layout: grid.into(),
            types: DType::F32.into(),
            ..self.batch_norm()
        }
    }

    pub fn small_layer_norm(&mut self) -> LayerNormProblem {
        let grid = self.grid_of(1 << 20);
        let data = self.of(&[DType::F32, DType::F32, DType::F16]);
        LayerNormProblem {
            rows: grid.outer * grid.channels,
            columns: grid.inner,
            types: data.into(),
            ..self.layer_norm()
        }
    }

    /// A shape and its parameters' shape.
    pub fn general_shape(&mut self) -> (Vec<usize>, Vec<usize>) {
        let rank = 3 + self.below(6) as usize;
        let mut left = 1 << 25; // general axes are bound at once
        let shape: Vec<usize> = (0..rank)
            .map(|_| {
                let size = self.size(left);
                left /= size;
                size as usize
            })
            .collect();
        let params = shape.iter().map(|&size| self.of(&[1, size])).collect();
        (shape, params)
    }

    pub fn general(&mut self) -> BatchNormProblem {
        let (shape, params) = self.general_shape();
        BatchNormProblem {
            layout: broadcast_layout(&shape, &params).unwrap(),
            ..self.batch_norm()
        }
    }

    pub fn activated(&mut self) -> Activated {
        let activation = self.of(&Activation::ALL);
        Activated {
            activation,
            has_beta: self.flag(),
            masked: activation == Activation::Relu && self.flag(),
        }
    }

    pub fn after(&mut self) -> After {
        let activation = self.of(&Activation::ALL);
        After {
            activation,
            residual: activation != Activation::Silu && self.flag(),
        }
    }

    pub fn layer_norm(&mut self) -> LayerNormProblem {
        let grid = self.grid();
        LayerNormProblem {
            body: self.of(&[Body::Gradient, Body::RmsGradient]),
            rows: word(u64::from(grid.outer) * u64::from(grid.channels)),
            columns: grid.inner,
            types: self.types(),
            use_affine: self.below(4) > 0,
            epsilon: 1e-5,
            param_grads: self.of(&[ParamGrads::Both, ParamGrads::Both, ParamGrads::Frozen]),
        }
    }

    pub fn flag(&mut self) -> bool {
        self.below(2) == 0
    }

    pub fn shards(&mut self) -> Shards {
        let count = self.of(&[1, 1, 2, 3, 8, 64]);
        Shards {
            count,
            index: self.below(u64::from(count)) as u32,
        }
    }

    /// Forward, of a gradient's tensors.
    pub fn forward(&mut self, of: &BatchNormProblem) -> BatchNormForward {
        let update = RunningUpdate {
            weight: 0.1,
            variance: self.of(&[RunningVariance::Biased, RunningVariance::Unbiased]),
        };
        BatchNormForward {
            layout: of.layout,
            types: of.types,
            has_gamma: self.flag(),
            has_beta: self.flag(),
            epsilon: 1e-5,
            running: self.flag().then_some(update),
            shards: self.shards(),
            after: self.after(),
        }
    }

    pub fn inference(&mut self, of: &BatchNormProblem) -> BatchNormInference {
        BatchNormInference {
            layout: of.layout,
            types: of.types,
            has_gamma: self.flag(),
            has_beta: self.flag(),
            epsilon: 1e-5,
            after: self.after(),
        }
    }

    /// Group norm of a shape, by any pass.
    pub fn group_norm(&mut self, grid: Grid, format: DataFormat) -> GroupNormProblem {
        let [n, c, x] = [grid.outer, grid.channels, grid.inner].map(|size| size as usize);
        let shape = match format {
            DataFormat::Ncx => [n, c, x],
            DataFormat::Nxc => [n, x, c],
        };
        let wanted = self.of(&[1, 2, 3, 8, 32, 1 << 32]).min(c);
        let groups = (1..=wanted).rev().take(1000).find(|groups| c % groups == 0);
        let Activated {
            activation, masked, ..
        } = self.activated();
        let after = self.after();
        let backward = GroupNormPass::Backward {
            param_grads: self.of(&[ParamGrads::Both, ParamGrads::Frozen, ParamGrads::Neither]),
            activation,
            masked,
        };
        let pass = self.of(&[
            backward,
            GroupNormPass::Forward(after),
            GroupNormPass::Inference(after),
        ]);
        GroupNormProblem {
            groups: group_norm_layout(&shape, format, groups.unwrap_or(1)).unwrap(),
            types: self.types(),
            has_gamma: self.flag(),
            has_beta: self.flag(),
            epsilon: 1e-5,
            pass,
        }
    }

    pub fn rows_forward(&mut self, of: &LayerNormProblem) -> RowsForward {
        let body = self.of(&[Body::Forward, Body::RmsForward]);
        RowsForward {
            body,
            rows: of.rows,
            columns: of.columns,
            types: of.types,
            has_gamma: self.flag(),
            has_beta: body == Body::Forward && self.flag(),
            residual: self.flag(),
            keep_statistics: self.flag(),
            epsilon: 1e-5,
        }
    }
}

/// What a plan may take of the workspace: see the README.
fn allowed_workspace(plan: &Plan, groups: u64) -> u64 {
    let src = plan.requirement(Tensor::Src).unwrap();
    let a_group = if plan.types.data == DType::F64 {
        96
    } else {
        48
    };
    src.bytes() + a_group * groups + (4 << 20)
}

pub(crate) fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

fn cases() -> u64 {
    match ["WGPU_NORM_TEST_EVERY", "WGPU_NORM_TEST_ALL"].map(is_set) {
        [true, _] => 100_000,
        [_, true] => 5_000,
        _ => 500,
    }
}

/// Where the finishing kernel leaves the sums of groups.
fn groups_of(dispatch: &Dispatch) -> u32 {
    let fields = dispatch.kernel.entry().uniforms.fields("");
    let place = fields.iter().position(|(name, _)| *name == "groups");
    match dispatch.uniforms.values()[place.unwrap()] {
        Value::Word(word) => word,
        Value::Real(_) => panic!("{dispatch:?}"),
    }
}

/// No invocation's loops are cut short by a driver, and none adds too many numbers in a row, whatever the tuning.
fn check_loops(
    plan: Result<Plan, Error>,
    what: &dyn std::fmt::Debug,
    profile: &Profile,
) -> Option<Plan> {
    match plan {
        Ok(plan) => {
            // Sums of rounds in a row, by where they are added up.
            let mut rounds = HashMap::new();
            for (_, dispatch) in &plan.dispatches {
                if dispatch.kernel == Kernel::Finish {
                    let added: &mut u64 = rounds.entry(groups_of(dispatch)).or_default();
                    let adds = ("added", Constant::Flag(true));
                    *added = match dispatch.constants.contains(&adds) {
                        true => *added + 1,
                        false => 1,
                    };
                    assert!(
                        *added <= MAX_SERIAL,
                        "{added} rounds: {what:?}\n{profile:?}"
                    );
                }
                assert!(
                    dispatch.bindings.len() <= profile.max_storage_buffers as usize,
                    "{dispatch:?}\n{what:?}\n{profile:?}"
                );
                let known = dispatch
                    .kernel
                    .entry()
                    .tensors(dispatch.body, dispatch.ending);
                for Binding { tensor, bytes } in &dispatch.bindings {
                    assert!(known.contains(tensor), "{dispatch:?}\n{what:?}");
                    assert!(
                        bytes.start.is_multiple_of(profile.alignment),
                        "{dispatch:?}\n{what:?}\n{profile:?}"
                    );
                }
                assert!(dispatch.body.fits(dispatch.kernel), "{dispatch:?}");
                let [x, y] = dispatch.workgroups;
                assert!(
                    x.max(y) <= profile.max_workgroups,
                    "{dispatch:?}\n{what:?}\n{profile:?}"
                );
                // Of any type's kernels, so that workgroups are alike whatever the type.
                let shared = dispatch.body.shared_reals() * DType::F64.size();
                let workgroup_size = u64::from(dispatch.workgroup_size);
                assert!(
                    workgroup_size * shared <= u64::from(profile.max_workgroup_storage)
                        && dispatch.workgroup_size <= profile.max_invocations,
                    "{dispatch:?}\n{what:?}\n{profile:?}"
                );
                let adds = dispatch.serial_adds;
                assert!(
                    adds <= MAX_SERIAL,
                    "{adds} in a row by {dispatch:?}\n{what:?}\n{profile:?}"
                );
                let iterations = dispatch.iterations;
                assert!(
                    iterations <= MOST_ITERATIONS,
                    "{iterations} of {dispatch:?}\n{what:?}\n{profile:?}"
                );
            }
            Some(plan)
        }
        Err(Error::Limit { what: reason, .. }) if reason.contains("loops") => {
            panic!("{reason}: {what:?}\n{profile:?}")
        }
        Err(_) => None,
    }
}

#[test]
fn loops_are_short_whatever_the_shape_and_the_tuning() {
    let mut random = Random(1);
    let (mut batch_norms, mut layer_norms) = (0, 0);
    let (mut forwards, mut inferences, mut rows_forwards) = (0, 0, 0);
    let mut group_norms = 0;
    for _ in 0..cases() {
        let mut profile = random.profile();
        if random.below(2) == 0 {
            profile.algorithm = Some(random.of(&Algorithm::ALL));
        }
        if random.below(4) == 0 {
            profile.max_binding = random.of(&[1 << 22, 1 << 24]);
        }
        let problem = match random.below(4) {
            0 => random.general(),
            _ => random.batch_norm(),
        };
        let plan = check_loops(batch_norm(&profile, &problem), &problem, &profile);
        batch_norms += u64::from(plan.is_some());
        let (training, inference) = (random.forward(&problem), random.inference(&problem));
        let plan = check_loops(batch_norm_forward(&profile, &training), &training, &profile);
        forwards += u64::from(plan.is_some());
        let plan = batch_norm_inference(&profile, &inference);
        inferences += u64::from(check_loops(plan, &inference, &profile).is_some());
        let problem = random.layer_norm();
        let plan = check_loops(layer_norm(&profile, &problem), &problem, &profile);
        layer_norms += u64::from(plan.is_some());
        let problem = random.rows_forward(&problem);
        let plan = check_loops(rows_forward(&profile, &problem), &problem, &profile);
        rows_forwards += u64::from(plan.is_some());
        let grid = random.grid();
        let format = random.of(&[DataFormat::Ncx, DataFormat::Nxc]);
        let problem = random.group_norm(grid, format);
        let plan = check_loops(group_norm(&profile, &problem), &problem, &profile);
        group_norms += u64::from(plan.is_some());
    }
    for planned in [
        batch_norms,
        forwards,
        inferences,
        layer_norms,
        rows_forwards,
        group_norms,
    ] {
        assert!(planned > cases() / 8, "{planned}");
    }
}

/// What is bound begins at aligned places, a mask, too, whatever the alignment.
#[test]
fn windows_begin_at_aligned_places() {
    let mut random = Random(4);
    let mut of_masks = 0;
    for _ in 0..cases() / 10 {
        let profile = Profile {
            max_binding: random.of(&[1 << 18, 1 << 19]),
            window_unit: 256,
            ..random.profile()
        };
        let (grid, format) = (random.grid_of(1 << 21), DataFormat::Ncx);
        let gradient = BatchNormProblem {
            layout: grid.into(),
            activated: Activated {
                activation: Activation::Relu,
                has_beta: false,
                masked: true,
            },
            ..random.batch_norm()
        };
        let after = After {
            activation: Activation::Relu,
            residual: true,
        };
        let forward = BatchNormForward {
            after,
            ..random.forward(&gradient)
        };
        let of_groups = random.group_norm(grid, format);
        let plans = [
            check_loops(batch_norm(&profile, &gradient), &gradient, &profile),
            check_loops(batch_norm_forward(&profile, &forward), &forward, &profile),
            check_loops(group_norm(&profile, &of_groups), &of_groups, &profile),
        ];
        let dispatches = plans.iter().flatten().flat_map(Plan::whole);
        let bound = dispatches.flat_map(|dispatch| &dispatch.bindings);
        let mut cut = bound.filter(|b| b.tensor == Tensor::Mask && b.bytes.start > 0);
        of_masks += u64::from(cut.next().is_some());
    }
    assert!(of_masks > cases() / 100, "{of_masks}");
}

/// A plan, whose workspace is as small as the README says.
fn check_workspace(
    plan: Result<Plan, Error>,
    groups: u64,
    what: &dyn std::fmt::Debug,
    profile: &Profile,
) {
    let plan = plan.unwrap_or_else(|error| panic!("{error}: {what:?}\n{profile:?}"));
    let allowed = allowed_workspace(&plan, groups);
    assert!(
        plan.workspace_bytes <= allowed,
        "{} of {allowed} bytes by {}: {what:?}\n{profile:?}",
        plan.workspace_bytes,
        plan.algorithm
    );
}

/// Where eight storage buffers bind, nothing whose parameters fit a binding is refused, and the workspace is as small as
/// the README says.
#[test]
fn what_windows_hold_is_planned_with_little_workspace() {
    let mut random = Random(2);
    for _ in 0..cases() {
        let profile = Profile {
            max_storage_buffers: 8,
            ..random.profile()
        };
        let fits = |elements: u64, dtype: DType| elements * dtype.size() <= profile.max_binding;
        let problem = random.batch_norm();
        let grid = &problem.layout.grid;
        let channels = u64::from(grid.channels);
        // What the README leaves out.
        let record = 4 * problem.types.data.accumulator().size();
        let records_fit = 5 * channels * record + (1 << 22) <= profile.max_binding;
        let (training, inference) = (random.forward(&problem), random.inference(&problem));
        if records_fit {
            check_workspace(batch_norm(&profile, &problem), channels, &problem, &profile);
            let plan = batch_norm_inference(&profile, &inference);
            check_workspace(plan, channels, &inference, &profile);
        }
        // The records of all parts of the batch, too.
        let sums = channels * record * u64::from(training.shards.count);
        if records_fit && sums <= profile.max_binding {
            let plan = batch_norm_forward(&profile, &training);
            check_workspace(plan, channels, &training, &profile);
        }
        let problem = random.layer_norm();
        let record = 4 * problem.types.data.accumulator().size();
        let (rows, columns) = (u64::from(problem.rows), u64::from(problem.columns));
        // Rows that registers do not hold leave three records each.
        let presets = [Tuning::SOFTWARE, Tuning::GPU];
        let held = columns <= 1024 && presets.contains(&profile.tuning);
        let records_fit = 5 * rows * record + (1 << 22) <= profile.max_binding;
        let sums_fit = 13 * columns * problem.types.data.accumulator().size() / 2 + (1 << 22)
            <= profile.max_binding;
        let params_fit =
            fits(rows, problem.types.statistics) && fits(columns, problem.types.params);
        if params_fit && (held || records_fit) && sums_fit {
            check_workspace(layer_norm(&profile, &problem), rows, &problem, &profile);
        }
        let forward = random.rows_forward(&problem);
        // Statistics that are kept are records first.
        let held = held && !forward.keep_statistics;
        if params_fit && (held || records_fit) {
            let plan = rows_forward(&profile, &forward);
            check_workspace(plan, rows, &forward, &profile);
        }
        let grid = random.grid();
        let problem = random.group_norm(grid, DataFormat::Ncx);
        let cells = u64::from(problem.groups.cells);
        let record = 4 * problem.types.data.accumulator().size();
        // A workgroup adds up the sums of a group.
        let records_fit = 5 * cells * record + (1 << 22) <= profile.max_binding;
        if records_fit && problem.groups.group_channels <= 1 << 14 {
            let plan = group_norm(&profile, &problem);
            check_workspace(plan, cells, &problem, &profile);
        }
    }
}

#[test]
fn loads_are_as_wide_as_words_and_tensor_allow() {
    let software = Profile {
        long_words: true,
        f64: true,
        tuning: Tuning::SOFTWARE,
        ..Profile::usual()
    };
    let without_long_words = Profile {
        long_words: false,
        ..software.clone()
    };
    let vec4s = |profile: &Profile, data, elements| {
        let planner = Planner {
            profile,
            body: Body::Gradient,
            data,
            ending: crate::kernels::Ending::default(),
        };
        planner.vector_vec4s(elements)
    };
    use DType::{Bf16, F16, F32, F64};
    for (profile, wide) in [
        (&software, &[F32, F16, Bf16][..]),
        (&without_long_words, &[F16, Bf16]),
        (&Profile::usual(), &[F16, Bf16]),
    ] {
        for data in [F32, F64, F16, Bf16] {
            let expected = if wide.contains(&data) { 2 } else { 1 };
            assert_eq!(vec4s(profile, data, 24), expected, "{data} {profile:?}");
            assert_eq!(vec4s(profile, data, 20), 1, "{data} {profile:?}");
        }
    }
}

/// Whether what dispatches bind of a tensor, one after another, is all of it.
fn covers(plan: &Plan, tensor: Tensor) -> bool {
    let bound = plan.whole().flat_map(|dispatch| &dispatch.bindings);
    let bound = bound.filter(|binding| binding.tensor == tensor);
    let end = bound.fold(0, |end, binding| match binding.bytes.start <= end {
        true => end.max(binding.bytes.end),
        false => 0,
    });
    plan.requirement(tensor)
        .is_none_or(|r| end >= r.elements * r.dtype.size())
}

/// Tensors of some MB whose rows or samples are so many that the workspace of all of them does not fit a binding.
#[test]
fn many_rows_and_samples_are_planned_in_slices() {
    let check = |plan: Result<Plan, Error>, what: &dyn std::fmt::Debug, profile: &Profile| {
        if let Err(error) = &plan {
            panic!("{error}: {what:?}");
        }
        let plan = check_loops(plan, what, profile).unwrap();
        assert!(plan.workspace_bytes <= profile.max_binding);
        for tensor in &plan.tensors {
            let by_line = tensor.tensor.is_data() || tensor.tensor.is_statistic();
            assert!(
                !by_line || covers(&plan, tensor.tensor),
                "{tensor:?} {what:?}"
            );
        }
        plan.whole()
            .filter(|dispatch| dispatch.kernel == Kernel::Finish)
            .count()
    };
    use DType::{F16, F32};
    for tuning in [Tuning::SOFTWARE, Tuning::GPU] {
        let profile = Profile {
            tuning,
            ..Profile::usual()
        };
        for (rows, columns, data) in [
            (3_400_000, 1, F16),
            (4_300_000, 3, F16),
            (9_000_003, 5, F16),
            (40_000_003, 1, F32),
        ] {
            for (body, forward) in [
                (Body::Gradient, Body::Forward),
                (Body::RmsGradient, Body::RmsForward),
            ] {
                let gradient = LayerNormProblem {
                    body,
                    rows,
                    columns,
                    types: data.into(),
                    use_affine: true,
                    epsilon: 1e-5,
                    param_grads: ParamGrads::Both,
                };
                check(layer_norm(&profile, &gradient), &gradient, &profile);
                let forward = RowsForward {
                    body: forward,
                    rows,
                    columns,
                    types: data.into(),
                    has_gamma: true,
                    has_beta: false,
                    residual: true,
                    keep_statistics: true,
                    epsilon: 1e-5,
                };
                check(rows_forward(&profile, &forward), &forward, &profile);
            }
        }
        let both = GroupNormPass::Backward {
            param_grads: ParamGrads::Both,
            activation: Activation::Relu,
            masked: true,
        };
        let after = After {
            activation: Activation::Relu,
            residual: true,
        };
        for pass in [
            both,
            GroupNormPass::Forward(after),
            GroupNormPass::Inference(after),
        ] {
            for (shape, format, groups) in [
                (&[65536, 64][..], DataFormat::Ncx, 32),
                (&[65536, 64], DataFormat::Ncx, 64),
                (&[70001, 130, 3], DataFormat::Ncx, 65),
                (&[70001, 3, 130], DataFormat::Nxc, 10),
                // Rows of channels that do not fit vec4s, in one piece too large to bind.
                (&[3000, 2001, 6], DataFormat::Nxc, 2),
            ] {
                let problem = GroupNormProblem {
                    groups: group_norm_layout(shape, format, groups).unwrap(),
                    types: F32.into(),
                    has_gamma: true,
                    has_beta: true,
                    epsilon: 1e-5,
                    pass,
                };
                check(group_norm(&profile, &problem), &problem, &profile);
            }
        }
        // So many slices that their sums are added up in blocks.
        let narrow = Profile {
            max_binding: 1 << 16,
            algorithm: Some(Algorithm::RowsReadTwice),
            ..profile
        };
        let problem = LayerNormProblem {
            body: Body::Gradient,
            rows: 300_000,
            columns: 7,
            types: F16.into(),
            use_affine: true,
            epsilon: 1e-5,
            param_grads: ParamGrads::Both,
        };
        let finishes = check(layer_norm(&narrow, &problem), &problem, &narrow);
        assert!(finishes > 192, "{finishes}");
    }
}

/// Windows of a few KB would take a minute to plan.
#[test]
fn too_many_dispatches_are_refused() {
    let mut random = Random(5);
    let grid = |outer, channels, inner| Grid {
        outer,
        channels,
        inner,
    };
    for (grid, max_window) in [
        (grid(64, 1024, 32768), 8192),
        (grid(1 << 20, 2048, 1), 16384),
        (grid(1, 4, 1 << 29), 65536),
    ] {
        let problem = BatchNormProblem {
            layout: grid.into(),
            types: DType::F32.into(),
            ..random.batch_norm()
        };
        let profile = Profile {
            max_window,
            ..Profile::usual()
        };
        let error = batch_norm(&profile, &problem).unwrap_err();
        let is_dispatches = matches!(
            error,
            Error::Limit {
                limit: "number of dispatches",
                needed: 32769..,
                available: 32768,
                ..
            }
        );
        assert!(is_dispatches, "{error}");
        assert!(error.to_string().contains("max_window"), "{error}");
    }
}

/// Layers that people have, and the longest rows there can be, on an adapter that binds 128 MiB.
#[test]
fn plausible_layers_are_planned() {
    let layer = |rows, columns, data, params| {
        let problem = LayerNormProblem {
            body: Body::Gradient,
            rows,
            columns,
            types: (data, params).into(),
            use_affine: true,
            epsilon: 1e-5,
            param_grads: ParamGrads::Both,
        };
        for tuning in [Tuning::SOFTWARE, Tuning::GPU] {
            let profile = Profile {
                tuning,
                ..Profile::usual()
            };
            let plan = layer_norm(&profile, &problem);
            let plan = plan.unwrap_or_else(|error| panic!("{rows}x{columns} {data}: {error}"));
            assert!(plan.workspace_bytes <= allowed_workspace(&plan, u64::from(rows)));
        }
    };
    use DType::{Bf16, F16, F32, F64};
    for (data, params) in [(F32, F32), (F16, F16), (F16, F32), (Bf16, F32), (F64, F64)] {
        layer(16, 3 * 577 * 577, data, params);
        layer(1, 1_000_001, data, params);
        layer(256, 1_000_001, data, params);
        if data != F64 {
            layer(1, 1 << 24, data, params);
        }
    }
}

/// Group norm of samples without spatial axes has as many cells as elements: two records of each, forward one.
#[test]
fn channels_of_one_element_take_few_records() {
    let gradient = GroupNormPass::Backward {
        param_grads: ParamGrads::Both,
        activation: Activation::None,
        masked: false,
    };
    let forward = GroupNormPass::Forward(After::default());
    for tuning in [Tuning::SOFTWARE, Tuning::GPU] {
        let profile = Profile {
            tuning,
            ..Profile::usual()
        };
        for (pass, records) in [(gradient, 2), (forward, 1)] {
            let problem = GroupNormProblem {
                groups: group_norm_layout(&[4096, 1024], DataFormat::Ncx, 32).unwrap(),
                types: DType::F32.into(),
                has_gamma: true,
                has_beta: true,
                epsilon: 1e-5,
                pass,
            };
            let plan = group_norm(&profile, &problem).unwrap();
            let least = records * 16 * 4096 * 1024;
            assert!(plan.workspace_bytes <= least + 256, "{}", plan.algorithm);
            assert_eq!(plan.algorithm, Algorithm::ChannelsLast);
        }
    }
}

/// A fused kernel needs no workspace, however many channels there are; the halves have no room for theirs.
#[test]
fn millions_of_channels_are_fused_without_halves() {
    let problem = BatchNormProblem {
        layout: Grid {
            outer: 1,
            channels: 5_000_001,
            inner: 25,
        }
        .into(),
        types: DType::F32.into(),
        has_gamma: true,
        epsilon: 1e-5,
        statistics: Statistics::Batch,
        param_grads: ParamGrads::Both,
        activated: Activated::default(),
    };
    let plan = batch_norm(&Profile::usual(), &problem).unwrap();
    assert_eq!(plan.algorithm, Algorithm::FusedChannelsFirst);
    assert_eq!(plan.workspace_bytes, 0);
    assert_eq!(plan.requirement(Tensor::Sums), None);
}
