//! Kernels, written to files for the two compilers of DirectX 12.

use super::planned::{native, planned};
use super::{Parsed, hlsl};
use crate::element::DType;
use crate::kernels::{Access, Kernel, Variant};
use crate::tuning::Tuning;
use naga::back;
use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// A compiler of kernels on Windows: FXC, which is part of it, or DXC, where its library lies beside the program.
struct Compiler {
    name: &'static str,
    model: back::hlsl::ShaderModel,
    /// Sizes that subgroups may have, 0 where they vary. FXC knows no subgroups.
    subgroups: &'static [u32],
    accesses: &'static [Access],
}

const COMPILERS: [Compiler; 2] = [
    Compiler {
        name: "fxc",
        model: back::hlsl::ShaderModel::V5_1,
        subgroups: &[0],
        accesses: &[Access::Vec4],
    },
    Compiler {
        name: "dxc",
        model: back::hlsl::ShaderModel::V6_0,
        subgroups: &[0, 32],
        accesses: &[Access::Vec4, Access::LongWords],
    },
];

/// Writes, for `tools/directx/run.sh` and as HLSL, the kernels that the profiles for GPUs and for software plan for
/// each kind of shape, with shader checks and without.
#[test]
#[ignore = "writes files for tools/directx; scripts/test.sh --release"]
fn writes_planned_kernels_for_directx() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/hlsl");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("target is writable");
    let mut list = String::new();
    let mut files = 0;
    for compiler in COMPILERS {
        let mut written = HashSet::new();
        for (what, variant) in variants(&compiler) {
            if !written.insert(variant.clone()) {
                continue;
            }
            let parsed = Parsed::new(&variant);
            let parsed = parsed.unwrap();
            for checked in [false, true] {
                let options = back::hlsl::Options {
                    shader_model: compiler.model,
                    zero_initialize_workgroup_memory: false,
                    restrict_indexing: checked,
                    force_loop_bounding: checked,
                    ..Default::default()
                };
                let (text, entry_point) = hlsl(&variant, &parsed, &options).unwrap();
                files += 1;
                let file = format!("{files}.hlsl");
                fs::write(folder.join(&file), text).unwrap();
                let checks = if checked { "checked" } else { "unchecked" };
                list += &format!(
                    "{file}\t{}\t{entry_point}\tcs_{}\t{} {what}, {checks}\n",
                    compiler.name,
                    compiler.model.to_str(),
                    variant.label(),
                );
            }
        }
        let kernels: HashSet<_> = written.iter().map(|variant| variant.kernel).collect();
        assert_eq!(kernels.len(), Kernel::ALL.len());
        let with_subgroups = compiler.subgroups.iter().any(|&size| size > 0);
        assert_eq!(written.iter().any(|v| v.is("subgroups")), with_subgroups);
    }
    fs::write(folder.join("kernels.tsv"), list).unwrap();
}

/// The variants that a compiler may be given: with tensors that end with a vec4, and inside one.
fn variants(compiler: &Compiler) -> Vec<(String, Variant)> {
    let mut variants = Vec::new();
    for tuning in [Tuning::GPU, Tuning::SOFTWARE] {
        for &subgroup_size in compiler.subgroups {
            let profile = native(tuning, subgroup_size);
            for data in [DType::F32, DType::F16, DType::Bf16] {
                for (what, variant) in planned(&profile, data) {
                    for &access in compiler.accesses {
                        let data = variant.bound.iter().filter(|tensor| tensor.is_data());
                        for exact in [vec![], data.copied().collect()] {
                            let variant = Variant {
                                access,
                                exact,
                                ..variant.clone()
                            };
                            variants.push((what.clone(), variant.normalized()));
                        }
                    }
                }
            }
        }
    }
    variants
}
