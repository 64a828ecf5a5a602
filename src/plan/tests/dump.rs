//! Writes what plans dispatch to a file. Compared before and after a change, it shows that the change leaves plans
//! alone.

use super::{Random, is_set};
use crate::algorithm::Algorithm;
use crate::element::{DType, DTypes};
use crate::kernels::Variant;
use crate::kernels::tests::spirv;
use crate::operation::{Backward, Channels, Epilogue, Forward, Norm, Operation, Pass, Residual};
use crate::options::{Activation, DataFormat, RunningUpdate, RunningVariance, Through};
use crate::plan::Dispatch;
use crate::profile::Profile;
use crate::tuning::Tuning;
use std::collections::HashMap;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};

impl Random {
    /// An operation on tensors of any size.
    pub fn operation(&mut self) -> Operation {
        let grid = match self.below(3) {
            0 => self.grid_of(1 << 16),
            _ => self.grid(),
        };
        let [n, c, x] = [grid.outer, grid.channels, grid.inner].map(|size| size as usize);
        let format = self.of(&[DataFormat::Ncx, DataFormat::Nxc]);
        let of_channels = match format {
            DataFormat::Ncx => vec![n, c, x],
            DataFormat::Nxc => vec![n, x, c],
        };
        let begin_norm_axis = -1;
        let (norm, shape) = match self.below(12) {
            8.. => {
                let Operation { norm, shape, .. } = self.axes_norm(grid);
                (norm, shape)
            }
            0..3 => (Norm::Batch(Channels::Axis(format)), of_channels),
            3 => {
                let (shape, params) = self.general_shape();
                (Norm::Batch(Channels::Broadcast(params)), shape)
            }
            4 => {
                let wanted = self.of(&[1, 2, 3, 8, 32]).min(c);
                let groups = (1..=wanted).rev().find(|groups| c % groups == 0);
                let groups = groups.unwrap_or(1);
                (Norm::Group { groups, format }, of_channels)
            }
            5 => (Norm::Instance { format }, of_channels),
            6 => (Norm::Layer { begin_norm_axis }, vec![n * c, x]),
            _ => (Norm::Rms { begin_norm_axis }, vec![n * c, x]),
        };
        self.pass_of(norm, &shape)
    }

    /// Any pass of a layer.
    pub fn pass_of(&mut self, norm: Norm, shape: &[usize]) -> Operation {
        let is_batch = matches!(norm, Norm::Batch(_));
        let rows = norm.is_over_rows();
        let pass: Pass = match self.below(if rows { 2 } else { 3 }) {
            0 => {
                let mut backward = Backward::default().with_param_grads(self.flag());
                if is_batch && self.flag() {
                    backward.through = Through::Constant;
                }
                backward.into()
            }
            1 => {
                let mut forward = Forward::default();
                if is_batch && self.flag() {
                    forward.running = Some(RunningUpdate {
                        weight: 0.1,
                        variance: self.of(&[RunningVariance::Biased, RunningVariance::Unbiased]),
                    });
                }
                if is_batch {
                    forward.shards = self.shards();
                }
                forward.keep_statistics = !rows || self.flag();
                forward.into()
            }
            _ => Pass::Inference,
        };
        let gate = norm.has_gate() && self.flag();
        let (_, activation) = match (gate, self.flag()) {
            (false, true) => self.of(Activation::NAMES),
            _ => ("", Activation::None),
        };
        let smooth = !matches!(activation, Activation::None | Activation::Relu);
        let residual = match (rows, smooth, self.flag()) {
            (_, true, _) | (_, _, false) => Residual::None,
            (true, ..) => Residual::Before,
            (false, ..) => Residual::After,
        };
        let residual = match (&pass, activation) {
            (Pass::Backward(_), Activation::None) => Residual::None,
            _ => residual,
        };
        let gamma = self.below(4) > 0;
        let beta = match norm {
            Norm::Rms { .. } => false,
            Norm::Layer { .. } => gamma && self.flag(),
            _ => self.flag(),
        };
        let types = self.types();
        let types = match types.data {
            DType::F64 if smooth => DTypes::from(DType::F32),
            _ => types,
        };
        Operation::new(norm, pass, shape, types)
            .with_params(gamma, beta)
            .with_zero_centered_gamma(self.below(4) == 0)
            .with_gate(gate)
            .with_epilogue(Epilogue::new(residual, activation))
    }
}

/// Layers that people have, and shapes at boundaries: of vec4s, words, registers, workgroups and fused kernels.
fn shapes() -> Vec<(Norm, Vec<usize>)> {
    let mut all = Vec::new();
    for format in [DataFormat::Ncx, DataFormat::Nxc] {
        for (n, c, x) in [
            (50, 256, 3136),
            (50, 1024, 196),
            (4, 256, 196),
            (50, 2048, 49),
            (96, 96, 1225),
            (64, 128, 1),
            (2, 3, 5),
            (1, 1, 1),
            (0, 3, 4),
            (3, 0, 4),
            (1, 64, 4096),
            (8, 64, 65536),
            (33, 31, 29),
            (16, 7, 4),
            (1024, 16, 8),
        ] {
            let shape = match format {
                DataFormat::Ncx => vec![n, c, x],
                DataFormat::Nxc => vec![n, x, c],
            };
            all.push((Norm::Batch(Channels::Axis(format)), shape.clone()));
            all.push((Norm::Instance { format }, shape.clone()));
            for groups in [1, 2, 32] {
                if c % groups == 0 {
                    all.push((Norm::Group { groups, format }, shape.clone()));
                }
            }
        }
    }
    for (rows, columns) in [
        (65536, 64),
        (8192, 509),
        (4096, 768),
        (4096, 769),
        (2048, 4096),
        (4096, 8192),
        (2048, 50257),
        (1, 1),
        (7, 1),
        (600_000, 5),
        (3_400_000, 1),
        (5, 0),
        (0, 5),
        (33, 1023),
        (33, 1024),
        (33, 1025),
        (1, 1 << 22),
    ] {
        let begin_norm_axis = -1;
        all.push((Norm::Layer { begin_norm_axis }, vec![rows, columns]));
        all.push((Norm::Rms { begin_norm_axis }, vec![rows, columns]));
    }
    // Over columns, by rows whose samples have parameters of their own, over mixed axes, and by channels.
    for (axes, param_axes, shape) in [
        (&[1][..], &[1][..], &[64, 96, 56, 56][..]),
        (&[1], &[1], &[64, 768, 7, 7]),
        (&[1], &[1], &[2, 1151, 9]),
        (&[1], &[], &[8, 320, 64]),
        (&[1], &[0, 1, 2], &[4, 64, 33]),
        (&[2], &[0, 2], &[16, 1024, 1152]),
        (&[2], &[0, 2], &[16, 77, 1151]),
        (&[2], &[0, 2], &[4, 16, 50257]),
        (&[2], &[1, 2], &[64, 9, 768]),
        (&[0, 2], &[1], &[32, 64, 196]),
        (&[0, 2], &[0, 1], &[8, 30, 49]),
        (&[1, 3], &[2], &[4, 8, 16, 32]),
        (&[0], &[0], &[1000, 77]),
        (&[2, 3], &[0, 1], &[16, 64, 14, 14]),
        (&[0, 1, 2], &[0, 1, 2], &[8, 16, 24]),
        (&[1], &[1], &[0, 5, 7]),
    ] {
        for centered in [true, false] {
            let norm = Norm::axes(axes, param_axes).centered(centered);
            all.push((norm, shape.to_vec()));
        }
    }
    all
}

fn profiles() -> Vec<Profile> {
    let gpu = Profile {
        f64: true,
        max_buffer: u64::MAX,
        ..Profile::usual()
    };
    let software = Profile {
        long_words: true,
        subgroup_size: 8,
        tuning: Tuning::SOFTWARE,
        max_invocations: 1024,
        max_workgroup_storage: 32768,
        ..gpu.clone()
    };
    let large = Profile {
        max_binding: 1 << 31,
        subgroup_size: 32,
        max_invocations: 1024,
        max_workgroup_storage: 49152,
        max_storage_buffers: 64,
        alignment: 32,
        ..gpu.clone()
    };
    let small = Profile {
        max_storage_buffers: 4,
        max_binding: 1 << 18,
        window_unit: 256,
        ..gpu.clone()
    };
    vec![gpu, software, large, small]
}

struct Dump {
    text: String,
    /// The hashes of kernels' SPIR-V, by the hashes of their variants.
    kernels: HashMap<u64, u64>,
}

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

impl Dump {
    fn add(&mut self, operation: &Operation, profile: &Profile) {
        let algorithm = profile.algorithm;
        writeln!(
            self.text,
            "{operation:?} {algorithm:?} {:x}",
            hash(&format!("{profile:?}"))
        )
        .unwrap();
        let plan = match operation.plan(profile) {
            Ok(plan) => plan,
            Err(error) => {
                writeln!(self.text, "  {error}").unwrap();
                return;
            }
        };
        let plan = plan.inner();
        writeln!(
            self.text,
            "  {} {} {} {:?}",
            plan.algorithm, plan.halves_workspace_bytes, plan.word_bits, plan.tensors
        )
        .unwrap();
        for (phases, dispatch) in &plan.dispatches {
            let Dispatch {
                workgroup_size,
                constants,
                bindings,
                uniforms,
                workgroups,
                iterations,
                sequential_adds,
                ..
            } = dispatch;
            let all: Vec<_> = bindings.iter().collect();
            let variant = dispatch.variant(plan.types, plan.access(), &all);
            let kernel = self.kernel(variant.normalized());
            let uniforms = hash(&uniforms.bytes(plan.types.data.accumulator()));
            let bindings: Vec<_> = bindings
                .iter()
                .map(|b| (b.tensor, &b.bytes, &b.owned))
                .collect();
            writeln!(
                self.text,
                "  {phases:?} {:?} {kernel:x} {workgroup_size} {constants:?} {bindings:?} {uniforms:x} {workgroups:?} \
                 {iterations} {sequential_adds}",
                dispatch.kernel
            )
            .unwrap();
        }
    }

    fn kernel(&mut self, variant: Variant) -> u64 {
        let known = hash(&variant);
        let hashed = self.kernels.entry(known);
        *hashed.or_insert_with(|| hash(&spirv(&variant)))
    }
}

/// Two builds should write the same file here, except for what was changed on purpose.
#[test]
fn plans_are_dumped() {
    if !is_set("WGPU_NORM_DUMP") {
        return;
    }
    let path = std::env::var("WGPU_NORM_DUMP").unwrap();
    let mut dump = Dump {
        text: String::new(),
        kernels: HashMap::new(),
    };
    let mut random = Random(2026);
    let profiles = profiles();
    for (norm, shape) in shapes() {
        for profile in &profiles {
            for _ in 0..3 {
                dump.add(&random.pass_of(norm.clone(), &shape), profile);
            }
            let algorithm = Some(random.of(&Algorithm::ALL));
            let forced = Profile {
                algorithm,
                ..profile.clone()
            };
            dump.add(&random.pass_of(norm.clone(), &shape), &forced);
        }
    }
    for _ in 0..4000 {
        let mut profile = random.profile();
        if random.below(4) == 0 {
            profile.algorithm = Some(random.of(&Algorithm::ALL));
        }
        if random.below(4) == 0 {
            profile.max_binding = random.of(&[1 << 22, 1 << 24]);
        }
        dump.add(&random.operation(), &profile);
    }
    std::fs::write(path, dump.text).unwrap();
}
