//! Tests of what holds for every plan, over random shapes, types, tunings and limits.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod counted;
mod counts;
mod dump;
mod networks;
mod statistics;

use super::axes::Grid;
use super::limits::{MAX_SEQUENTIAL, MOST_ITERATIONS};
use super::planner::Planner;
use super::{Binding, Dispatch, Plan, Problem};
use crate::algorithm::Algorithm;
use crate::element::{DType, DTypes};
use crate::error::Error;
use crate::f16_encoder::F16Encoder;
use crate::geometry::MAX_ELEMENTS;
use crate::kernels::{Constant, Kernel, Value};
use crate::operation::{Backward, Channels, Epilogue, Forward, Norm, Operation, Pass, Residual};
use crate::options::{Activation, DataFormat, RunningUpdate, RunningVariance, Shards, Through};
use crate::profile::Profile;
use crate::tensor::Tensor;
use crate::tuning::Tuning;
use std::collections::HashMap;

/// Asks the planner of an operation.
pub(crate) fn with_planner<T>(
    profile: &Profile,
    operation: &Operation,
    ask: impl FnOnce(Planner<'_>) -> T,
) -> T {
    let problem = Problem::new(operation);
    ask(Planner::new(profile, &problem, &problem.tensors()))
}

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
            f16_encoder: self.of(&F16Encoder::ALL),
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

    pub fn batch_norm(&mut self) -> Operation {
        let grid = self.grid();
        self.batch_norm_of(grid)
    }

    /// A gradient of batch norm.
    pub fn batch_norm_of(&mut self, grid: Grid) -> Operation {
        let shape = [grid.outer, grid.channels, grid.inner].map(|size| size as usize);
        let types = self.types();
        let gamma = self.flag();
        let through = self.of(&[Through::Batch, Through::Constant]);
        let pass = self.backward().with_through(through);
        let (epilogue, beta) = (self.activated(types), self.flag());
        let norm = Norm::Batch(Channels::Axis(DataFormat::Ncx));
        Operation::new(norm, pass, &shape, types)
            .with_params(gamma, beta)
            .with_epilogue(epilogue)
    }

    pub fn small_batch_norm(&mut self) -> Operation {
        let mut grid = self.grid_of(1 << 20);
        if self.below(3) == 0 {
            grid.inner = 1;
            grid.channels = grid.channels.next_multiple_of(4);
        }
        Operation {
            types: DType::F32.into(),
            ..self.batch_norm_of(grid)
        }
    }

    pub fn small_layer_norm(&mut self) -> Operation {
        let grid = self.grid_of(1 << 20);
        let data = self.of(&[DType::F32, DType::F32, DType::F16]);
        Operation {
            types: data.into(),
            ..self.layer_norm_of(grid)
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

    pub fn general(&mut self) -> Operation {
        let (shape, params) = self.general_shape();
        Operation {
            norm: Norm::Batch(Channels::Broadcast(params)),
            shape,
            ..self.batch_norm()
        }
    }

    fn backward(&mut self) -> Backward {
        let param_grads = self.flag();
        Backward::default().with_param_grads(param_grads)
    }

    /// An activation that the types allow: WGSL has no exponential of f64.
    fn activation(&mut self, types: DTypes) -> Activation {
        match (types.data, self.of(Activation::NAMES)) {
            (_, (_, activation @ (Activation::None | Activation::Relu))) => activation,
            (DType::F64, _) => Activation::Relu,
            (_, (_, activation)) => activation,
        }
    }

    /// An epilogue of a layer whose gradient is taken.
    fn activated(&mut self, types: DTypes) -> Epilogue {
        // Each draws, whatever the other is: with one more activation the cases after it stay the same.
        let (activation, flag) = (self.activation(types), self.flag());
        let is_masked = activation == Activation::Relu && flag;
        Epilogue::new(after(is_masked), activation)
    }

    /// An epilogue of a forward pass.
    fn epilogue(&mut self, types: DTypes) -> Epilogue {
        let (activation, flag) = (self.activation(types), self.flag());
        let is_residual = flag && matches!(activation, Activation::None | Activation::Relu);
        Epilogue::new(after(is_residual), activation)
    }

    pub fn layer_norm(&mut self) -> Operation {
        let grid = self.grid();
        self.layer_norm_of(grid)
    }

    /// A gradient of layer or RMS norm.
    pub fn layer_norm_of(&mut self, grid: Grid) -> Operation {
        let rows = grid.outer as usize * grid.channels as usize;
        let norm = self.norm_of_rows();
        let grads = [true, true, false];
        let pass = Backward::default().with_param_grads(self.of(&grads));
        let types = self.types();
        let activation = self.activation(types);
        let gamma = self.below(4) > 0;
        let beta = gamma && norm.has_beta() && self.flag();
        Operation::new(norm, pass, &[rows, grid.inner as usize], types)
            .with_params(gamma, beta)
            .with_epilogue(Epilogue::new(Residual::None, activation))
    }

    fn norm_of_rows(&mut self) -> Norm {
        match self.flag() {
            true => Norm::Layer {
                begin_norm_axis: -1,
            },
            false => Norm::Rms {
                begin_norm_axis: -1,
            },
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

    /// A forward pass over a gradient's tensors.
    pub fn forward(&mut self, of: &Operation) -> Operation {
        let variance = self.of(&[RunningVariance::Biased, RunningVariance::Unbiased]);
        let (gamma, beta) = (self.flag(), self.flag());
        let is_running = self.flag();
        let shards = self.shards();
        let reduced = of.axes().into_iter().filter(|axis| axis.reduced);
        let running = RunningUpdate {
            weight: 0.1,
            // One element has no unbiased variance.
            variance: match reduced.map(|axis| axis.size).product() {
                1usize => RunningVariance::Biased,
                _ => variance,
            },
        };
        let mut pass = Forward::default().with_shards(shards);
        pass.running = is_running.then_some(running);
        Operation {
            pass: pass.into(),
            ..of.clone()
        }
        .with_params(gamma, beta)
        .with_epilogue(self.epilogue(of.types))
    }

    pub fn inference(&mut self, of: &Operation) -> Operation {
        Operation {
            pass: Pass::Inference,
            ..of.clone()
        }
        .with_params(self.flag(), self.flag())
        .with_epilogue(self.epilogue(of.types))
    }

    /// Group norm of a shape, with any pass.
    pub fn group_norm(&mut self, grid: Grid, format: DataFormat) -> Operation {
        let [n, c, x] = [grid.outer, grid.channels, grid.inner].map(|size| size as usize);
        let shape = match format {
            DataFormat::Ncx => [n, c, x],
            DataFormat::Nxc => [n, x, c],
        };
        let wanted = self.of(&[1, 2, 3, 8, 32, 1 << 32]).min(c);
        let groups = (1..=wanted).rev().take(1000).find(|groups| c % groups == 0);
        let groups = groups.unwrap_or(1);
        let types = self.types();
        let (pass, epilogue) = match self.below(3) {
            0 => (self.backward().into(), self.activated(types)),
            1 => (Forward::default().into(), self.epilogue(types)),
            _ => (Pass::Inference, self.epilogue(types)),
        };
        Operation::new(Norm::Group { groups, format }, pass, &shape, types)
            .with_params(self.flag(), self.flag())
            .with_epilogue(epilogue)
    }

    /// Axes norm of a shape and two more axes, with any pass.
    pub fn axes_norm(&mut self, grid: Grid) -> Operation {
        let [n, c, x] = [grid.outer, grid.channels, grid.inner].map(|size| size as usize);
        let shape = [n, self.of(&[1, 2, 3]), c, self.of(&[1, 2, 4]), x];
        let mut axes: Vec<i64> = (0..5).filter(|_| self.flag()).collect();
        let mut param_axes = (0..5).filter(|_| self.flag()).collect();
        // Rows and columns are rare among random axes.
        match self.below(4) {
            0 => {
                axes = vec![2];
                param_axes = if self.flag() { vec![2] } else { vec![0, 1, 2] };
            }
            1 | 2 if !axes.is_empty() => {}
            _ => {
                axes = vec![2, 3, 4];
                param_axes = match self.flag() {
                    true => axes.clone(),
                    false => vec![0, 2, 3, 4],
                };
            }
        }
        let norm = Norm::Axes {
            axes,
            param_axes,
            centered: self.flag(),
        };
        let types = self.types();
        let gate = self.below(3) == 0;
        let backward = self.backward();
        let (pass, epilogue) = match self.below(3) {
            0 => (Pass::from(backward), self.activated(types)),
            1 => (Forward::default().into(), self.epilogue(types)),
            _ => (Pass::Inference, self.epilogue(types)),
        };
        // No activation follows a gate.
        let residual = match pass {
            Pass::Backward(_) => Residual::None,
            _ => epilogue.residual,
        };
        let epilogue = match gate {
            true => Epilogue::new(residual, Activation::None),
            false => epilogue,
        };
        Operation::new(norm, pass, &shape, types)
            .with_params(self.flag(), self.flag())
            .with_zero_centered_gamma(self.flag())
            .with_gate(gate)
            .with_epilogue(epilogue)
    }

    /// A forward pass over a gradient's rows.
    pub fn rows_forward(&mut self, of: &Operation) -> Operation {
        let norm = self.norm_of_rows();
        let gamma = self.flag();
        let beta = gamma && norm.has_beta() && self.flag();
        let residual = match self.flag() {
            true => Residual::Before,
            false => Residual::None,
        };
        let pass = Forward {
            keep_statistics: self.flag(),
            ..Forward::default()
        };
        Operation::new(norm, pass, &of.shape, of.types)
            .with_params(gamma, beta)
            .with_epilogue(Epilogue::new(residual, self.activation(of.types)))
    }
}

const fn after(is_residual: bool) -> Residual {
    match is_residual {
        true => Residual::After,
        false => Residual::None,
    }
}

/// The workspace that the README allows a plan.
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
        [_, true] => 2_000,
        _ => 500,
    }
}

/// The position at which the finishing kernel leaves subtotals.
fn subtotals_of(dispatch: &Dispatch) -> u32 {
    let fields = dispatch.kernel.entry().uniforms.fields("");
    let place = fields.iter().position(|(name, _)| *name == "subtotals");
    match dispatch.uniforms.values()[place.unwrap()] {
        Value::Word(word) => word,
        Value::Real(_) => panic!("{dispatch:?}"),
    }
}

/// Checks that a driver cuts no invocation's loops short, and that none adds too many numbers in a row, whatever the
/// tuning.
fn check_loops(what: &Operation, profile: &Profile) -> Option<Plan> {
    match what.planned(profile) {
        Ok(plan) => {
            let mut slots = what.bound().into_iter();
            let has_elements = what.shape.iter().all(|&size| size > 0);
            let unread = slots.find(|slot| {
                let mut bound = plan.dispatches.iter().flat_map(|(_, one)| &one.bindings);
                slot.tensor.is_param() && !bound.any(|bound| bound.tensor == slot.tensor)
            });
            let unread = unread.filter(|_| has_elements).map(|slot| slot.tensor);
            assert_eq!(unread, None, "{what:?}\n{profile:?}");
            // Rounds that are added up in a row, by the position of their subtotals.
            let mut rounds = HashMap::new();
            for (_, dispatch) in &plan.dispatches {
                if dispatch.kernel == Kernel::Finish {
                    let added: &mut u64 = rounds.entry(subtotals_of(dispatch)).or_default();
                    let adds = ("added", Constant::Flag(true));
                    *added = match dispatch.constants.contains(&adds) {
                        true => *added + 1,
                        false => 1,
                    };
                    assert!(
                        *added <= MAX_SEQUENTIAL,
                        "{added} rounds: {what:?}\n{profile:?}"
                    );
                }
                assert!(
                    dispatch.bindings.len() <= profile.max_storage_buffers as usize,
                    "{dispatch:?}\n{what:?}\n{profile:?}"
                );
                for Binding { tensor, bytes, .. } in &dispatch.bindings {
                    let mut known = dispatch.body.tensors();
                    assert!(
                        known.any(|known| known == *tensor),
                        "{dispatch:?}\n{what:?}"
                    );
                    assert!(
                        bytes.start.is_multiple_of(profile.alignment),
                        "{dispatch:?}\n{what:?}\n{profile:?}"
                    );
                }
                assert!(dispatch.body.fits(dispatch.kernel), "{dispatch:?}");
                if dispatch.kernel == Kernel::Finish {
                    let is = |name| dispatch.constants.contains(&(name, Constant::Flag(true)));
                    let derives = ["derive", "to_sums", "to_subtotals"].into_iter().any(is);
                    let mut bound = dispatch.bindings.iter();
                    let writes = bound.any(|binding| dispatch.body.writes(binding.tensor));
                    assert!(derives || writes, "{dispatch:?}\n{what:?}\n{profile:?}");
                }
                let [x, y] = dispatch.workgroups;
                assert!(
                    x.max(y) <= profile.max_workgroups,
                    "{dispatch:?}\n{what:?}\n{profile:?}"
                );
                let shared = dispatch.body.shared_reals() * plan.types.data.accumulator().size();
                let workgroup_size = u64::from(dispatch.workgroup_size);
                assert!(
                    workgroup_size * shared <= u64::from(profile.max_workgroup_storage)
                        && dispatch.workgroup_size <= profile.max_invocations,
                    "{dispatch:?}\n{what:?}\n{profile:?}"
                );
                let adds = dispatch.sequential_adds;
                assert!(
                    adds <= MAX_SEQUENTIAL,
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
        // No kernel is planned that could not run: another way has shorter loops, or binds fewer buffers.
        Err(Error::Limit {
            what: own, limit, ..
        }) => {
            assert!(!own.contains("loops"), "{what:?}\n{profile:?}");
            if limit.contains("storage_buffers") {
                let tensors = Problem::new(what).tensors();
                let elements = tensors.inputs.len() + tensors.outputs.len();
                let bound = 1 + elements + usize::from(tensors.mask.is_some());
                let is_bound = bound <= profile.max_storage_buffers as usize;
                assert!(!is_bound, "{own}: {what:?}\n{profile:?}");
            }
            None
        }
        Err(_) => None,
    }
}

/// A reduction that writes the gradients of gamma and beta, and reads both, binds seven buffers.
#[test]
fn any_number_of_buffers_from_four_on_is_enough() {
    let shapes = [[9, 67], [33, 28], [64, 4096], [5, 3]];
    for ((shape, activation), buffers) in shapes
        .iter()
        .flat_map(|shape| Activation::NAMES.iter().map(move |named| (shape, named.1)))
        .flat_map(|layer| (4..=12).map(move |buffers| (layer, buffers)))
    {
        let operation = Operation::new(Norm::layer(-1), Backward::default(), shape, DType::F32)
            .with_params(true, true)
            .with_epilogue(Epilogue::new(Residual::None, activation));
        for tuning in [Tuning::GPU, Tuning::SOFTWARE] {
            let profile = Profile {
                max_storage_buffers: buffers,
                tuning,
                ..Profile::usual()
            };
            let plan = operation.planned(&profile);
            assert!(plan.is_ok(), "{buffers}: {:?} of {operation:?}", plan.err());
        }
    }
}

#[test]
fn loops_are_short_whatever_the_shape_and_the_tuning() {
    let mut random = Random(1);
    let (mut batch_norms, mut layer_norms) = (0, 0);
    let (mut forwards, mut inferences, mut rows_forwards) = (0, 0, 0);
    let (mut group_norms, mut axes_norms) = (0, 0);
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
        batch_norms += u64::from(check_loops(&problem, &profile).is_some());
        let (training, inference) = (random.forward(&problem), random.inference(&problem));
        forwards += u64::from(check_loops(&training, &profile).is_some());
        inferences += u64::from(check_loops(&inference, &profile).is_some());
        let problem = random.layer_norm();
        layer_norms += u64::from(check_loops(&problem, &profile).is_some());
        let problem = random.rows_forward(&problem);
        rows_forwards += u64::from(check_loops(&problem, &profile).is_some());
        let grid = random.grid();
        let format = random.of(&[DataFormat::Ncx, DataFormat::Nxc]);
        let problem = random.group_norm(grid, format);
        group_norms += u64::from(check_loops(&problem, &profile).is_some());
        let problem = random.axes_norm(grid);
        axes_norms += u64::from(check_loops(&problem, &profile).is_some());
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
    // Channels of these tensors, each with a record, often do not fit a binding.
    assert!(axes_norms > cases() / 16, "{axes_norms}");
}

/// Bindings begin at aligned positions, a mask's, too, whatever the alignment.
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
        let masked = Epilogue::new(Residual::After, Activation::Relu);
        let gradient = random.batch_norm_of(grid).with_epilogue(masked);
        let forward = random.forward(&gradient).with_epilogue(masked);
        let of_groups = random.group_norm(grid, format);
        let plans = [gradient, forward, of_groups].map(|what| check_loops(&what, &profile));
        let dispatches = plans.iter().flatten().flat_map(Plan::whole);
        let bound = dispatches.flat_map(|dispatch| &dispatch.bindings);
        let mut cut = bound.filter(|b| b.tensor == Tensor::Mask && b.bytes.start > 0);
        of_masks += u64::from(cut.next().is_some());
    }
    assert!(of_masks > cases() / 100, "{of_masks}");
}

/// Checks that a plan's workspace is as small as the README says.
fn check_workspace(what: &Operation, groups: u64, profile: &Profile) {
    let plan = what.planned(profile);
    let plan = plan.unwrap_or_else(|error| panic!("{error}: {what:?}\n{profile:?}"));
    let allowed = allowed_workspace(&plan, groups);
    assert!(
        plan.halves_workspace_bytes <= allowed,
        "{} of {allowed} bytes by {}: {what:?}\n{profile:?}",
        plan.halves_workspace_bytes,
        plan.algorithm
    );
}

/// Where eight storage buffers can be bound, nothing whose parameters fit a binding is refused, and the workspace is as
/// small as the README says.
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
        let channels = problem.shape[1] as u64;
        // The README makes no promise where records do not fit.
        let record = 4 * problem.types.data.accumulator().size();
        let records_fit = 5 * channels * record + (1 << 22) <= profile.max_binding;
        let (training, inference) = (random.forward(&problem), random.inference(&problem));
        if records_fit {
            check_workspace(&problem, channels, &profile);
            check_workspace(&inference, channels, &profile);
        }
        // The records of all shards, too.
        let Pass::Forward(forward) = training.pass else {
            panic!("{training:?}");
        };
        let sums = channels * record * u64::from(forward.shards.count);
        if records_fit && sums <= profile.max_binding {
            check_workspace(&training, channels, &profile);
        }
        let problem = random.layer_norm();
        let record = 4 * problem.types.data.accumulator().size();
        let [rows, columns] = [problem.shape[0] as u64, problem.shape[1] as u64];
        // Rows that registers do not hold leave three records each.
        let presets = [Tuning::SOFTWARE, Tuning::GPU];
        let held = columns <= 1024 && presets.contains(&profile.tuning);
        let records_fit = 5 * rows * record + (1 << 22) <= profile.max_binding;
        let sums_fit = 13 * columns * problem.types.data.accumulator().size() / 2 + (1 << 22)
            <= profile.max_binding;
        let params_fit =
            fits(rows, problem.types.statistics) && fits(columns, problem.types.params);
        if params_fit && (held || records_fit) && sums_fit {
            check_workspace(&problem, rows, &profile);
        }
        let forward = random.rows_forward(&problem);
        // Statistics that are kept are written to records first.
        let keeps = matches!(forward.pass, Pass::Forward(pass) if pass.keep_statistics);
        let held = held && !keeps;
        if params_fit && (held || records_fit) {
            check_workspace(&forward, rows, &profile);
        }
        let grid = random.grid();
        let problem = random.group_norm(grid, DataFormat::Ncx);
        let channels = (problem.shape[0] * problem.shape[1]) as u64;
        let group_channels = problem.shape[1] / problem.norm.groups(&problem.shape);
        let record = 4 * problem.types.data.accumulator().size();
        // A workgroup adds up the sums of a group.
        let records_fit = 5 * channels * record + (1 << 22) <= profile.max_binding;
        if records_fit && group_channels <= 1 << 14 {
            check_workspace(&problem, channels, &profile);
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
        let norm = Norm::batch(DataFormat::Ncx);
        let operation = Operation::new(norm, Backward::default(), &[2, 4, 8], data);
        with_planner(profile, &operation, |planner| {
            planner.vector_vec4s(elements)
        })
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

/// Whether dispatches, one after another, bind all of a tensor.
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

/// Tensors of some MB with so many rows or samples that the workspace for all of them does not fit a binding.
#[test]
fn many_rows_and_samples_are_planned_in_slices() {
    let check = |what: &Operation, profile: &Profile| {
        let plan = check_loops(what, profile).unwrap_or_else(|| panic!("{what:?}"));
        assert!(plan.halves_workspace_bytes <= profile.max_binding);
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
            let begin_norm_axis = -1;
            for norm in [
                Norm::Layer { begin_norm_axis },
                Norm::Rms { begin_norm_axis },
            ] {
                let shape = [rows, columns];
                let gradient = Operation::new(norm.clone(), Backward::default(), &shape, data);
                check(&gradient, &profile);
                let forward = Operation::new(norm, Forward::default(), &shape, data)
                    .with_params(true, false)
                    .with_epilogue(Epilogue::new(Residual::Before, Activation::None));
                check(&forward, &profile);
            }
        }
        let masked = Epilogue::new(Residual::After, Activation::Relu);
        for pass in [
            Backward::default().into(),
            Forward::default().into(),
            Pass::Inference,
        ] {
            for (shape, format, groups) in [
                (&[65536, 64][..], DataFormat::Ncx, 32),
                (&[65536, 64], DataFormat::Ncx, 64),
                (&[70001, 130, 3], DataFormat::Ncx, 65),
                (&[70001, 3, 130], DataFormat::Nxc, 10),
                // Rows of channels that are not whole vec4s, too large to bind in one piece.
                (&[3000, 2001, 6], DataFormat::Nxc, 2),
            ] {
                let norm = Norm::Group { groups, format };
                let operation = Operation::new(norm, pass, shape, F32).with_epilogue(masked);
                check(&operation, &profile);
            }
        }
        // There are so many slices that their sums are added up in blocks.
        let narrow = Profile {
            max_binding: 1 << 16,
            algorithm: Some(Algorithm::RowsReadTwice),
            ..profile
        };
        let norm = Norm::Layer {
            begin_norm_axis: -1,
        };
        let problem = Operation::new(norm, Backward::default(), &[300_000, 7], F16);
        let finishes = check(&problem, &narrow);
        assert!(finishes > 192, "{finishes}");
    }
}

/// Windows of a few KB would take a minute to plan.
#[test]
fn too_many_dispatches_are_refused() {
    let mut random = Random(5);
    for (shape, max_window) in [
        ([64, 1024, 32768], 8192),
        ([1 << 20, 2048, 1], 16384),
        ([1, 4, 1 << 29], 65536),
    ] {
        let problem = Operation {
            shape: shape.into(),
            types: DType::F32.into(),
            ..random.batch_norm()
        };
        let profile = Profile {
            max_window,
            ..Profile::usual()
        };
        let error = problem.planned(&profile).unwrap_err();
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

/// Slices, and segments of rows in slices, whose dispatches would fill the memory before they are counted.
#[test]
fn too_many_slices_are_refused() {
    let axes = Norm::Axes {
        axes: vec![1, 3],
        param_axes: vec![1, 2, 3],
        centered: false,
    };
    let rows = Norm::Layer {
        begin_norm_axis: -1,
    };
    for (norm, pass, shape) in [
        (
            axes,
            Pass::from(Backward::default()),
            &[1 << 19, 3, 6, 4][..],
        ),
        (rows, Pass::from(Forward::default()), &[1 << 26, 32]),
        (
            Norm::axes(&[-2], &[-2]),
            Pass::from(Forward::default()),
            &[255, 253, 8192],
        ),
    ] {
        let operation = Operation::new(norm, pass, shape, DType::F32);
        let profile = Profile {
            max_binding: 1 << 16,
            alignment: 1 << 16,
            window_unit: 4096,
            ..Profile::usual()
        };
        let error = operation.planned(&profile).unwrap_err().to_string();
        assert!(error.contains("number of dispatches"), "{error}");
    }
}

/// Layers that people have, and the longest rows there can be, on an adapter that binds 128 MiB.
#[test]
fn plausible_layers_are_planned() {
    let layer = |rows, columns, data, params| {
        let norm = Norm::Layer {
            begin_norm_axis: -1,
        };
        let shape = [rows, columns];
        let problem = Operation::new(norm, Backward::default(), &shape, (data, params));
        for tuning in [Tuning::SOFTWARE, Tuning::GPU] {
            let profile = Profile {
                tuning,
                f64: true,
                ..Profile::usual()
            };
            let plan = problem.planned(&profile);
            let plan = plan.unwrap_or_else(|error| panic!("{rows}x{columns} {data}: {error}"));
            assert!(plan.halves_workspace_bytes <= allowed_workspace(&plan, rows as u64));
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

/// Group norm of samples without spatial axes has as many channels as elements: a gradient needs two
/// records for each, a forward pass one.
#[test]
fn channels_of_one_element_take_few_records() {
    let (gradient, forward) = (Backward::default().into(), Forward::default().into());
    for tuning in [Tuning::SOFTWARE, Tuning::GPU] {
        let profile = Profile {
            tuning,
            ..Profile::usual()
        };
        for (pass, records) in [(gradient, 2), (forward, 1)] {
            let pass: Pass = pass;
            let norm = Norm::Group {
                groups: 32,
                format: DataFormat::Ncx,
            };
            let problem = Operation::new(norm, pass, &[4096, 1024], DType::F32);
            let plan = problem.planned(&profile).unwrap();
            let least = records * 16 * 4096 * 1024;
            assert!(
                plan.halves_workspace_bytes <= least + 256,
                "{}",
                plan.algorithm
            );
            assert_eq!(plan.algorithm, Algorithm::ChannelsLast);
        }
    }
}

/// A fused kernel needs no workspace, however many channels there are; the halves have no room for theirs.
#[test]
fn millions_of_channels_are_fused_without_halves() {
    let norm = Norm::Batch(Channels::Axis(DataFormat::Ncx));
    let shape = [1, 5_000_001, 25];
    let problem = Operation::new(norm, Backward::default(), &shape, DType::F32);
    let plan = problem.planned(&Profile::usual()).unwrap();
    assert_eq!(plan.algorithm, Algorithm::FusedChannelsFirst);
    assert_eq!(plan.halves_workspace_bytes, 0);
    assert_eq!(plan.requirement(Tensor::Sums), None);
}

/// If tensors leave room in a binding, their workspace fits one.
#[test]
fn a_workspace_fits_where_its_tensor_does() {
    for (shape, params, data) in [
        // Fewer outer indices than fill whole vectors.
        (&[1, 300_001, 7][..], &[1, 300_001, 1][..], DType::F32),
        (&[1, 100_001, 31], &[1, 100_001, 1], DType::F32),
        (&[1, 1_000_000, 8], &[1, 1_000_000, 1], DType::F32),
        // Axes that do not fold: planes of single elements, and rows of a million.
        (&[1024, 60, 1025], &[1024, 1, 1025], DType::F16),
        (&[2, 14, 1 << 20], &[2, 1, 1 << 20], DType::F16),
    ] {
        for tuning in [Tuning::GPU, Tuning::SOFTWARE] {
            let profile = Profile {
                tuning,
                ..Profile::usual()
            };
            let norm = Norm::Batch(Channels::Broadcast(params.to_vec()));
            let operation = Operation::new(norm, Backward::default(), shape, data);
            let plan = operation.planned(&profile);
            assert!(plan.is_ok(), "{shape:?}: {:?}", plan.err());
        }
    }
}
