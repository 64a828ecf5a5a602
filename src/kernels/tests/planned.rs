//! Kernels as plans ask for them, of a set of shapes that takes every kernel: for the compilers of GPUs, which are too
//! slow for every variant there is.

use crate::geometry::Grid;
use crate::kernels::{Access, Body, Constant, Tensor, Variant};
use crate::plan::{self, BatchNormProblem, LayerNormProblem, Phases, Plan};
use crate::{DType, ParamGrads, Profile, Statistics, Tuning};

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
            let variant = Variant {
                body: plan.body,
                kernel: dispatch.kernel,
                data,
                params: DType::F32,
                bound: dispatch.bindings.iter().map(|b| b.tensor).collect(),
                in_place: false,
                pooled: false,
                access: Access::Vec4,
                exact: vec![],
                workgroup_size: dispatch.workgroup_size,
                constants: dispatch.constants.clone(),
            };
            if Body::Statistics.fits(variant.kernel) {
                planned.push((
                    format!("{data} {what}, statistics"),
                    of_statistics(&variant),
                ));
            }
            planned.push((format!("{data} {what}"), variant.normalized()));
        }
    }
    planned
}

/// The same walk with the body of the statistics, whose records have no room for two channels.
pub fn of_statistics(variant: &Variant) -> Variant {
    let constants = variant.constants.iter().map(|&(name, value)| match name {
        "paired" => (name, Constant::Flag(false)),
        _ => (name, value),
    });
    Variant {
        body: Body::Statistics,
        bound: vec![Tensor::Src, Tensor::Workspace],
        constants: constants.collect(),
        ..variant.clone()
    }
    .normalized()
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
    let batch_norms = grids.into_iter().flat_map(|(name, grid)| {
        [Statistics::Batch, Statistics::Constant].map(|statistics| {
            let problem = BatchNormProblem {
                layout: grid.into(),
                data,
                params: DType::F32,
                has_gamma: true,
                epsilon: 1e-5,
                statistics,
                param_grads: ParamGrads::Both,
            };
            let what = format!("batch norm {name}, {statistics:?}");
            (what, plan::batch_norm(profile, &problem).unwrap())
        })
    });
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
    let layer_norm = |(rows, columns), profile: &Profile| {
        let problem = LayerNormProblem {
            body: crate::kernels::Body::Gradient,
            rows,
            columns,
            data,
            params: DType::F32,
            use_affine: true,
            epsilon: 1e-5,
            param_grads: ParamGrads::Both,
        };
        let buffers = profile.max_storage_buffers;
        let what = format!("layer norm {rows}x{columns}, {buffers} buffers");
        (what, plan::layer_norm(profile, &problem).unwrap())
    };
    let few_bindings = Profile {
        max_storage_buffers: 4,
        ..profile.clone()
    };
    let layer_norms = shapes.map(|shape| layer_norm(shape, profile));
    let with_few_bindings = [layer_norm((4096, 769), &few_bindings)];
    batch_norms
        .chain(layer_norms)
        .chain(with_few_bindings)
        .collect()
}
