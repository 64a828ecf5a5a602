//! The kernels that GPUs are given, written for the compiler of one.

use super::{Parsed, Translation, translate};
use crate::geometry::Grid;
use crate::kernels::source::Target;
use crate::kernels::{Access, Kernel, Variant};
use crate::plan::{self, BatchNormProblem, LayerNormProblem, Phases, Plan};
use crate::{DType, ParamGrads, Profile, Statistics};
use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// For `tools/radv/run.sh`: as SPIR-V, the kernels that the profile for GPUs gives to each kind of shape, where
/// subgroups vary in size and where all are of 32 or of 64.
#[test]
fn writes_the_kernels_of_gpus_for_radv() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/radv");
    fs::create_dir_all(&folder).expect("target is writable");
    let mut list = String::new();
    let mut written = HashSet::new();
    for subgroup_size in [0, 32, 64] {
        let profile = Profile {
            max_invocations: 1024,
            max_workgroup_storage: 32768,
            subgroup_size,
            ..Profile::usual()
        };
        for data in [DType::F32, DType::F16, DType::Bf16] {
            for (what, plan) in plans_for_gpus(&profile, data) {
                let whole = plan.dispatches.iter();
                for (_, dispatch) in whole.filter(|(phases, _)| phases.meets(Phases::WHOLE)) {
                    let variant = Variant {
                        kernel: dispatch.kernel,
                        data,
                        params: DType::F32,
                        bound: dispatch.bindings.iter().map(|b| b.tensor).collect(),
                        in_place: false,
                        pooled: false,
                        access: Access::Quads,
                        exact: vec![],
                        workgroup_size: dispatch.workgroup_size,
                        sizes: dispatch.sizes.clone(),
                        enabled: dispatch.enabled.clone(),
                    }
                    .normalized();
                    if !written.insert(variant.clone()) {
                        continue;
                    }
                    let parsed = Parsed::new(&variant).and_then(|p| p.with_constants(&variant));
                    let spirv = translate(&variant, &parsed.unwrap(), Target::SpirV);
                    let Ok(Translation::Words(words)) = spirv else {
                        panic!("{} has no SPIR-V", variant.label());
                    };
                    let file = format!("{}.spv", written.len());
                    fs::write(folder.join(&file), bytemuck::cast_slice(&words)).unwrap();
                    list += &format!(
                        "{file}\t{}\t{}\t{}\t{data} {what}, subgroups of {subgroup_size}\n",
                        variant.kernel.entry().name,
                        variant.workgroup_size,
                        variant.bound.len(),
                    );
                }
            }
        }
    }
    let kernels: HashSet<_> = written.iter().map(|variant| variant.kernel).collect();
    assert_eq!(kernels.len(), Kernel::ALL.len());
    fs::write(folder.join("kernels.tsv"), list).unwrap();
}

/// What the profile makes of shapes that take every kernel.
fn plans_for_gpus(profile: &Profile, data: DType) -> Vec<(String, Plan)> {
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
        (4096, 768),
        (8192, 1024),
        (4096, 769),
        (2048, 4096),
        (4096, 8192),
        (2048, 50257),
    ];
    let layer_norms = shapes.into_iter().map(|(rows, columns)| {
        let problem = LayerNormProblem {
            rows,
            columns,
            data,
            params: DType::F32,
            use_affine: true,
            epsilon: 1e-5,
            param_grads: ParamGrads::Both,
        };
        let what = format!("layer norm {rows}x{columns}");
        (what, plan::layer_norm(profile, &problem).unwrap())
    });
    batch_norms.chain(layer_norms).collect()
}
