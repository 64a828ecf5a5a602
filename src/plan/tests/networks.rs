//! A search for what is refused though it fits: layers of real networks, planned by the limits of a browser, a phone,
//! a desktop GPU and a driver for the CPU.

use super::is_set;
use crate::plan::Plan;
use crate::{
    Activation, Backward, DType, DTypes, DataFormat, Epilogue, Forward, Norm, Operation, Pass,
    Profile, Residual, Tuning,
};

const MIB: u64 = 1 << 20;

/// A norm, and a shape that a network has.
type Layer = (Norm, Vec<usize>);

fn axes_norm(axes: &[i64], param_axes: &[i64]) -> Norm {
    Norm::Axes {
        axes: axes.to_vec(),
        param_axes: param_axes.to_vec(),
        centered: true,
    }
}

fn layers() -> Vec<Layer> {
    let mut layers: Vec<Layer> = Vec::new();
    let images = [
        [50, 64, 112, 112],
        [50, 2048, 7, 7],
        [96, 80, 73, 73],
        [20, 6, 256, 256],
        [2, 3, 1024, 1024],
        [1, 64, 1080, 1920],
        [4096, 256, 1, 1],
        [131_072, 64, 1, 1],
    ];
    for [n, c, h, w] in images {
        layers.push((Norm::batch(DataFormat::Ncx), vec![n, c, h, w]));
        layers.push((Norm::batch(DataFormat::Nxc), vec![n, h, w, c]));
    }
    let images = [
        [2, 320, 64, 64],
        [1, 128, 1024, 1024],
        [8, 256, 64, 64],
        [16, 1280, 16, 16],
        [1, 96, 17 * 256, 256],
        [4, 512, 1, 32000],
        [1, 512, 75, 75],
    ];
    for [n, c, h, w] in images {
        for groups in [1, 32] {
            let of = |format| Norm::Group { groups, format };
            layers.push((of(DataFormat::Ncx), vec![n, c, h, w]));
            layers.push((of(DataFormat::Nxc), vec![n, h, w, c]));
        }
        let of = |format| Norm::Instance { format };
        layers.push((of(DataFormat::Ncx), vec![n, c, h, w]));
        layers.push((of(DataFormat::Nxc), vec![n, h, w, c]));
    }
    for shape in [
        vec![8192, 4096],
        vec![512, 50257],
        vec![64, 197, 768],
        vec![64, 256, 1151],
        vec![8, 3 * 577 * 577],
        vec![65536, 64],
        vec![4, 2_000_003],
    ] {
        let begin_axis = -1;
        layers.push((Norm::Layer { begin_axis }, shape.clone()));
        layers.push((Norm::Rms { begin_axis }, shape));
    }
    // Adaptive layer norm, each sample with parameters of its own.
    for shape in [
        [64, 256, 1150],
        [64, 256, 1151],
        [64, 256, 1152],
        [8, 4096, 1536],
        [2, 4608, 3072],
        [2, 4608, 3073],
        [2, 3, 65537],
        [2, 64, 1 << 20],
        [3, 1, 70001],
        [4096, 1, 769],
        [2, 1 << 16, 33],
        [1000, 77, 3],
    ] {
        layers.push((axes_norm(&[2], &[0, 2]), shape.to_vec()));
    }
    // Layer norm over channels of images.
    for [n, c, h, w] in [
        [1, 3, 512, 512],
        [8, 3, 512, 512],
        [1, 32, 1080, 1920],
        [1, 48, 720, 1280],
        [1, 192, 512, 512],
        [1, 192, 1080, 1920],
        [1, 180, 1021, 1021],
        [1, 96, 2160, 3840],
        [64, 96, 56, 56],
        [64, 768, 7, 7],
        [50, 384, 35, 35],
        [16, 1, 1001, 1001],
        [1, 3, 4320, 7681],
        [1, 65537, 3, 3],
    ] {
        for param_axes in [&[1][..], &[0, 1]] {
            layers.push((axes_norm(&[1], param_axes), vec![n, c, h, w]));
        }
    }
    // Weight standardization; conditional norms of channels; one long group.
    layers.push((axes_norm(&[1, 2, 3], &[0]), vec![512, 512, 3, 3]));
    layers.push((axes_norm(&[2, 3], &[0, 1]), vec![64, 512, 28, 28]));
    layers.push((axes_norm(&[2, 3], &[0, 1]), vec![64, 513, 29, 29]));
    layers.push((axes_norm(&[1, 2, 3], &[1]), vec![8, 65537, 3, 3]));
    layers.push((axes_norm(&[1], &[1]), vec![4, 100_001]));
    layers
}

fn profiles() -> Vec<(&'static str, Profile)> {
    let browser = Profile {
        f64: true,
        ..Profile::webgpu("browser")
    };
    let phone = Profile {
        max_storage_buffers: 4,
        alignment: 64,
        max_buffer: 1 << 30,
        subgroup_size: 16,
        ..browser.clone()
    };
    let desktop = Profile {
        max_binding: (1 << 31) - 4,
        max_buffer: 1 << 40,
        alignment: 32,
        max_invocations: 1024,
        max_storage_buffers: 64,
        max_workgroup_storage: 49152,
        subgroup_size: 32,
        ..browser.clone()
    };
    let software = Profile {
        max_buffer: 1 << 31,
        max_invocations: 1024,
        max_storage_buffers: 64,
        max_workgroup_storage: 32768,
        subgroup_size: 8,
        long_words: true,
        tuning: Tuning::SOFTWARE,
        ..browser.clone()
    };
    vec![
        ("browser", browser),
        ("phone", phone),
        ("desktop", desktop),
        ("software", software),
    ]
}

#[test]
fn search() {
    use DType::{Bf16, F16, F32, F64};
    let mut refused = 0;
    for (norm, shape) in layers() {
        for (name, profile) in profiles() {
            let types = [(F32, F32), (F16, F16), (Bf16, F32), (F64, F64)].map(DTypes::from);
            for types in types {
                let passes: [(&str, Pass, Residual); 4] = [
                    ("forward", Forward::default().into(), Residual::None),
                    ("residual", Forward::default().into(), Residual::After),
                    ("inference", Pass::Inference, Residual::None),
                    ("backward", Backward::default().into(), Residual::None),
                ];
                for (pass_name, pass, residual) in passes {
                    if norm.is_over_rows() && residual != Residual::None {
                        continue;
                    }
                    let gates = if norm.has_gate() {
                        &[false, true][..]
                    } else {
                        &[false]
                    };
                    for &gate in gates {
                        let operation = Operation::new(norm.clone(), pass, &shape, types)
                            .with_params(true, norm.has_beta())
                            .with_gate(gate)
                            .with_epilogue(Epilogue::new(residual, Activation::None));
                        let src: u64 =
                            shape.iter().map(|&s| s as u64).product::<u64>() * types.data.size();
                        if norm.is_over_rows() && pass == Pass::Inference {
                            continue;
                        }
                        if src > profile.max_buffer {
                            continue;
                        }
                        let what = format!(
                            "{name} {pass_name}{} {} {norm:?} {shape:?}",
                            if gate { " gate" } else { "" },
                            types.data
                        );
                        match operation.planned(&profile) {
                            Err(error) => {
                                refused += 1;
                                println!("REFUSED {what}: {error}");
                            }
                            Ok(plan) => {
                                let channels: u64 = 0;
                                let row_records = if matches!(norm, Norm::Axes { .. }) {
                                    0
                                } else {
                                    src
                                };
                                let allowed = src / 16 + 4 * MIB + channels + row_records;
                                if plan.workspace_bytes > allowed {
                                    println!(
                                        "LARGE {:.2} of src {} MiB, {:.1} of allowed by {}: {what}",
                                        plan.workspace_bytes as f64 / src as f64,
                                        src / MIB,
                                        plan.workspace_bytes as f64 / allowed as f64,
                                        plan.algorithm
                                    );
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    println!("{refused} refused");
    let _ = (is_set("X"), Plan::kernel_names);
}
