//! Kernels as plans ask for them, of a set of shapes that takes every kernel: for the compilers of GPUs, which are too
//! slow for every variant there is.

use crate::geometry::{Grid, group_norm_layout};
use crate::kernels::{Access, Body, Variant};
use crate::options::{RunningUpdate, RunningVariance};
use crate::plan::{
    self, Activated, After, BatchNormForward, BatchNormInference, BatchNormProblem, GroupNormPass,
    GroupNormProblem, LayerNormProblem, Phases, Plan, RowsForward,
};
use crate::{
    Activation, DType, DTypes, DataFormat, ParamGrads, Profile, Shards, Statistics, Tuning,
};

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

/// What a profile makes of each shape, and of what problem.
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
    let grid = |outer, channels, inner| Grid {
        outer,
        channels,
        inner,
    };
    let grids = [
        ("50x256x56x56", grid(50, 256, 56 * 56)),
        ("50x1024x14x14", grid(50, 1024, 14 * 14)),
        ("50x256x14x14", grid(50, 256, 14 * 14)),
        ("4x256x14x14", grid(4, 256, 14 * 14)),
        ("50x2048x7x7", grid(50, 2048, 7 * 7)),
        ("96x96x35x35", grid(96, 96, 35 * 35)),
        ("50x256x56x56 NXC", grid(50 * 56 * 56, 256, 1)),
        ("50x64x112x112 NXC", grid(50 * 112 * 112, 64, 1)),
        ("64x128", grid(64, 128, 1)),
    ];
    let types = DTypes::from((data, DType::F32));
    let relu = |residual| After {
        activation: Activation::Relu,
        residual,
    };
    let relu_of = |masked| Activated {
        activation: Activation::Relu,
        has_beta: true,
        masked,
    };
    let batch_norm = |(name, grid): (&str, Grid)| {
        let layout = grid.into();
        let gradient = |statistics, activated| {
            let problem = BatchNormProblem {
                layout,
                types,
                has_gamma: true,
                epsilon: 1e-5,
                statistics,
                param_grads: ParamGrads::Both,
                activated,
            };
            plan::batch_norm(profile, &problem)
        };
        let forward = |after| BatchNormForward {
            layout,
            types,
            has_gamma: true,
            has_beta: true,
            epsilon: 1e-5,
            running: Some(RunningUpdate {
                weight: 0.1,
                variance: RunningVariance::Unbiased,
            }),
            shards: Shards::default(),
            after,
        };
        let inference = BatchNormInference {
            layout,
            types,
            has_gamma: true,
            has_beta: true,
            epsilon: 1e-5,
            after: relu(true),
        };
        [
            (
                "batch norm",
                gradient(Statistics::Batch, Activated::default()),
            ),
            (
                "batch norm by constants",
                gradient(Statistics::Constant, Activated::default()),
            ),
            (
                "batch norm and relu",
                gradient(Statistics::Batch, relu_of(false)),
            ),
            (
                "batch norm, residual and relu",
                gradient(Statistics::Batch, relu_of(true)),
            ),
            (
                "batch norm forward",
                plan::batch_norm_forward(profile, &forward(After::default())),
            ),
            (
                "batch norm forward and relu",
                plan::batch_norm_forward(profile, &forward(relu(false))),
            ),
            (
                "batch norm forward, residual and relu",
                plan::batch_norm_forward(profile, &forward(relu(true))),
            ),
            (
                "batch norm inference",
                plan::batch_norm_inference(profile, &inference),
            ),
        ]
        .map(|(operator, plan)| (format!("{operator} {name}"), plan.unwrap()))
    };
    let shapes = [
        (65536, 64),
        (8192, 509),
        (4096, 768),
        (8192, 1024),
        (4096, 769),
        (2048, 4096),
        (4096, 8192),
        (2048, 50257),
    ];
    let by_rows = |(rows, columns), profile: &Profile| {
        let gradient = |body| {
            let problem = LayerNormProblem {
                body,
                rows,
                columns,
                types,
                use_affine: true,
                epsilon: 1e-5,
                param_grads: ParamGrads::Both,
            };
            plan::layer_norm(profile, &problem)
        };
        let forward = |body, residual| {
            let problem = RowsForward {
                body,
                rows,
                columns,
                types,
                has_gamma: true,
                has_beta: body == Body::Forward,
                residual,
                keep_statistics: true,
                epsilon: 1e-5,
            };
            plan::rows_forward(profile, &problem)
        };
        let buffers = profile.max_storage_buffers;
        [
            ("layer norm", gradient(Body::Gradient)),
            ("layer norm forward", forward(Body::Forward, false)),
            ("layer norm forward of a sum", forward(Body::Forward, true)),
            ("RMS norm forward", forward(Body::RmsForward, false)),
            ("RMS norm forward of a sum", forward(Body::RmsForward, true)),
        ]
        .map(|(operator, plan)| {
            let what = format!("{operator} {rows}x{columns}, {buffers} buffers");
            (what, plan.unwrap())
        })
    };
    let few_bindings = Profile {
        max_storage_buffers: 4,
        ..profile.clone()
    };
    let over_rows = shapes.into_iter().flat_map(|shape| by_rows(shape, profile));
    let with_few_bindings = by_rows((4096, 769), &few_bindings);
    let batch_norms = grids.into_iter().flat_map(batch_norm);
    let group_norm = |(shape, format): (&[usize], DataFormat)| {
        let groups = group_norm_layout(shape, format, 32).unwrap();
        let silu = After {
            activation: Activation::Silu,
            residual: false,
        };
        let backward = GroupNormPass::Backward {
            param_grads: ParamGrads::Both,
            activation: Activation::None,
            masked: false,
        };
        let backward_silu = GroupNormPass::Backward {
            param_grads: ParamGrads::Both,
            activation: Activation::Silu,
            masked: false,
        };
        [
            ("group norm", backward),
            ("group norm and silu", backward_silu),
            ("group norm forward and silu", GroupNormPass::Forward(silu)),
            (
                "group norm forward",
                GroupNormPass::Forward(After::default()),
            ),
            (
                "group norm inference",
                GroupNormPass::Inference(After::default()),
            ),
        ]
        .map(|(operator, pass)| {
            let problem = GroupNormProblem {
                groups,
                types,
                has_gamma: true,
                has_beta: true,
                epsilon: 1e-5,
                pass,
            };
            let what = format!("{operator} {shape:?} {format}");
            (what, plan::group_norm(profile, &problem).unwrap())
        })
    };
    let group_norms = [
        (&[8, 256, 64, 64][..], DataFormat::Ncx),
        (&[32, 64, 56, 56], DataFormat::Ncx),
        (&[32, 64, 35, 35], DataFormat::Ncx),
        (&[8, 64, 64, 256], DataFormat::Nxc),
    ];
    batch_norms
        .chain(over_rows)
        .chain(with_few_bindings)
        .chain(group_norms.into_iter().flat_map(group_norm))
        .collect()
}
