//! Kernels as plans ask for them, for a set of shapes that needs every kernel. They are for the compilers of GPUs,
//! which are too slow for every variant there is.

use crate::element::{DType, DTypes};
use crate::kernels::{Access, Variant};
use crate::operation::{Backward, Channels, Epilogue, Forward, Norm, Operation, Pass, Residual};
use crate::options::{Activation, DataFormat, RunningUpdate, RunningVariance, Through};
use crate::plan::{Phases, Plan};
use crate::profile::Profile;
use crate::tuning::Tuning;

/// An adapter with a native GPU's limits; `subgroup_size` is 0 where subgroups vary in size.
pub fn native(tuning: Tuning, subgroup_size: u32) -> Profile {
    Profile {
        max_invocations: 1024,
        max_workgroup_storage: 32768,
        subgroup_size,
        tuning,
        ..Profile::usual()
    }
}

/// The variants that a profile plans for each shape, each with the name of its problem.
pub fn planned(profile: &Profile, data: DType) -> Vec<(String, Variant)> {
    let mut planned = Vec::new();
    for (what, plan) in plans(profile, data) {
        let whole = plan.dispatches.iter();
        for (_, dispatch) in whole.filter(|(phases, _)| phases.meets(Phases::WHOLE)) {
            let bound: Vec<_> = dispatch.bindings.iter().collect();
            let variant = dispatch.variant(plan.types, Access::Vec4, &bound);
            planned.push((format!("{data} {what}"), variant.normalized()));
        }
    }
    planned
}

fn plans(profile: &Profile, data: DType) -> Vec<(String, Plan)> {
    let types = DTypes::from((data, DType::F32));
    let plan =
        |norm: &Norm, pass: Pass, shape: &[usize], (residual, activation), profile: &Profile| {
            Operation::new(norm.clone(), pass, shape, types)
                .with_epilogue(Epilogue::new(residual, activation))
                .planned(profile)
                .unwrap()
        };
    let shapes = [
        ([50, 256, 56 * 56], DataFormat::Ncx),
        ([50, 1024, 14 * 14], DataFormat::Ncx),
        ([50, 256, 14 * 14], DataFormat::Ncx),
        ([4, 256, 14 * 14], DataFormat::Ncx),
        ([50, 2048, 7 * 7], DataFormat::Ncx),
        ([96, 96, 35 * 35], DataFormat::Ncx),
        ([50, 56 * 56, 256], DataFormat::Nxc),
        ([50, 112 * 112, 64], DataFormat::Nxc),
        ([64, 128, 1], DataFormat::Ncx),
    ];
    let none = (Residual::None, Activation::None);
    let relu = (Residual::None, Activation::Relu);
    let residual_and_relu = (Residual::After, Activation::Relu);
    let silu = (Residual::None, Activation::Silu);
    let backward = Pass::from(Backward::default());
    let batch_norm = |(shape, format): ([usize; 3], DataFormat)| {
        let norm = Norm::Batch(Channels::Axis(format));
        let by_constants = Backward::default().with_through(Through::Constant);
        let forward = Pass::from(Forward::default().with_running(RunningUpdate {
            weight: 0.1,
            variance: RunningVariance::Unbiased,
        }));
        [
            ("batch norm", backward, none),
            ("batch norm by constants", by_constants.into(), none),
            ("batch norm and relu", backward, relu),
            ("batch norm, residual and relu", backward, residual_and_relu),
            ("batch norm forward", forward, none),
            ("batch norm forward and relu", forward, relu),
            (
                "batch norm forward, residual and relu",
                forward,
                residual_and_relu,
            ),
            ("batch norm inference", Pass::Inference, residual_and_relu),
        ]
        .map(|(operator, pass, epilogue)| {
            let plan = plan(&norm, pass, &shape, epilogue, profile);
            (format!("{operator} {shape:?} {format}"), plan)
        })
    };
    let layer_norm = Norm::Layer {
        begin_norm_axis: -1,
    };
    let rms_norm = Norm::Rms {
        begin_norm_axis: -1,
    };
    let by_rows = |(rows, columns), profile: &Profile| {
        let forward = Pass::from(Forward::default());
        let sum = (Residual::Before, Activation::None);
        let buffers = profile.max_storage_buffers;
        [
            ("layer norm", &layer_norm, backward, none),
            ("layer norm forward", &layer_norm, forward, none),
            ("layer norm forward of a sum", &layer_norm, forward, sum),
            ("RMS norm forward", &rms_norm, forward, none),
            ("RMS norm forward of a sum", &rms_norm, forward, sum),
        ]
        .map(|(operator, norm, pass, epilogue)| {
            let what = format!("{operator} {rows}x{columns}, {buffers} buffers");
            (what, plan(norm, pass, &[rows, columns], epilogue, profile))
        })
    };
    let rows = [
        (65536, 64),
        (8192, 509),
        (4096, 768),
        (8192, 1024),
        (4096, 769),
        (2048, 4096),
        (4096, 8192),
        (2048, 50257),
    ];
    let few_bindings = Profile {
        max_storage_buffers: 4,
        ..profile.clone()
    };
    let over_rows = rows.into_iter().flat_map(|shape| by_rows(shape, profile));
    let with_few_bindings = by_rows((4096, 769), &few_bindings);
    let batch_norms = shapes.into_iter().flat_map(batch_norm);
    let group_norm = |(shape, format): (&[usize], DataFormat)| {
        let norm = Norm::Group { groups: 32, format };
        let forward = Pass::from(Forward::default());
        [
            ("group norm", backward, none),
            ("group norm and silu", backward, silu),
            ("group norm forward and silu", forward, silu),
            ("group norm forward", forward, none),
            ("group norm inference", Pass::Inference, none),
        ]
        .map(|(operator, pass, epilogue)| {
            let what = format!("{operator} {shape:?} {format}");
            (what, plan(&norm, pass, shape, epilogue, profile))
        })
    };
    let group_norms = [
        (&[8, 256, 64, 64][..], DataFormat::Ncx),
        (&[32, 64, 56, 56], DataFormat::Ncx),
        (&[32, 64, 35, 35], DataFormat::Ncx),
        (&[8, 64, 64, 256], DataFormat::Nxc),
    ];
    // Layer norm over channels, and adaptive layer norm with a gate.
    let axes_norm = |(shape, axis, param_axes, gate): (&[usize], i64, &[i64], bool)| {
        let norm = Norm::Axes {
            axes: vec![axis],
            param_axes: param_axes.to_vec(),
            centered: true,
        };
        [backward, Forward::default().into()].map(|pass| {
            let operation = Operation::new(norm.clone(), pass, shape, types).with_gate(gate);
            let what = format!("{} {shape:?} over {axis}", operation.name());
            (what, operation.planned(profile).unwrap())
        })
    };
    let axes_norms = [
        (&[64, 96, 3136][..], 1, &[1][..], false),
        (&[64, 384, 196], 1, &[1], false),
        (&[16, 2048, 1024], 1, &[0, 1], false),
        (&[32, 256, 1024], 2, &[0, 2], true),
        (&[32, 256, 8192], 2, &[0, 2], true),
    ];
    batch_norms
        .chain(over_rows)
        .chain(with_few_bindings)
        .chain(group_norms.into_iter().flat_map(group_norm))
        .chain(axes_norms.into_iter().flat_map(axes_norm))
        .collect()
}
