//! Kernels for GPUs, written to files for the compilers of some of them.

use super::planned::{native, planned};
use super::{Parsed, Translation, translate};
use crate::element::DType;
use crate::f16_encoder::F16Encoder;
use crate::kernels::tests::variants::Target;
use crate::kernels::{Kernel, Variant};
use crate::tensor::Tensor;
use crate::tuning::Tuning;
use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// Writes, for `tools/mesa/run.sh` and as SPIR-V, the kernels that the profile for GPUs plans for each kind of shape,
/// where subgroups vary in size and where all have 32 or 64 invocations.
#[test]
#[ignore = "writes files for tools/mesa; scripts/test.sh --release"]
fn writes_the_kernels_of_gpus_for_mesa() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/mesa");
    fs::create_dir_all(&folder).expect("target is writable");
    let mut list = String::new();
    let mut written = HashSet::new();
    for subgroup_size in [0, 32, 64] {
        let profile = native(Tuning::GPU, subgroup_size);
        for data in [DType::F32, DType::F16, DType::Bf16] {
            let variants = planned(&profile, data).into_iter();
            // Other encoders are seen once; a variant without f16 stays the same.
            let encoders = if subgroup_size == 0 {
                &F16Encoder::ALL[..]
            } else {
                &[F16Encoder::Integers]
            };
            let variants = variants.flat_map(|(what, variant)| {
                encoders.iter().map(move |&f16_encoder| {
                    let variant = Variant {
                        f16_encoder,
                        ..variant.clone()
                    };
                    let variant = variant.normalized();
                    (
                        format!("{what}, f16 by {}", variant.f16_encoder.name()),
                        variant,
                    )
                })
            });
            for (what, variant) in variants {
                if !written.insert(variant.clone()) {
                    continue;
                }
                let parsed = Parsed::new(&variant);
                let spirv = translate(&variant, &parsed.unwrap(), Target::SpirV);
                let Ok(Translation::Words(words)) = spirv else {
                    panic!("{} has no SPIR-V", variant.label());
                };
                let file = format!("{}.spv", written.len());
                fs::write(folder.join(&file), bytemuck::cast_slice(&words)).unwrap();
                let bound = |tensors: &[Tensor]| -> Vec<_> {
                    let bound = tensors.iter().filter_map(|&tensor| variant.binding(tensor));
                    bound.collect()
                };
                let inputs = bound(variant.body.inputs());
                let wide = inputs.iter().any(|&tensor| variant.is_wide(tensor));
                list += &format!(
                    "{file}\t{}\t{}\t{}\t{}\t{}\t{}\t{what}, subgroups of {subgroup_size}\n",
                    variant.kernel.entry().name(),
                    variant.workgroup_size,
                    variant.bound.len(),
                    if wide { 8 } else { 4 },
                    inputs.len(),
                    bound(variant.body.outputs()).len(),
                );
            }
        }
    }
    let kernels: HashSet<_> = written.iter().map(|variant| variant.kernel).collect();
    assert_eq!(kernels.len(), Kernel::ALL.len());
    fs::write(folder.join("kernels.tsv"), list).unwrap();
}
