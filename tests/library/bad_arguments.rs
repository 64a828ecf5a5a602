//! Every bad argument is a typed error that names it, says what was expected and what was given, and leaves the context
//! working.

use crate::common::buffers::{Buffers, Room};
use crate::common::data::{Problem, batch_norm_gradient};
use crate::common::errors::{problem, says, still_works};
use crate::common::{Noop, Subject, one};
use half::f16;
use pollster::block_on;
use wgpu_norm::{
    Activation, AxesNormOptions, Backward, BackwardArgs, BatchNormOptions, DType, DTypes,
    DataFormat, Error, ForwardArgs, GpuAxesNorm, GpuBatchNorm, GpuLayerNorm, LayerNormOptions,
    Norm, Operation, Profile, SavedRef, Tensor,
};

fn ncx(dtype: DType, shape: &[usize]) -> Operation {
    let norm = Norm::batch(DataFormat::Ncx);
    let types = DTypes::from(dtype).with_statistics(dtype);
    Operation::new(norm, Backward::default(), shape, types)
}

fn layer_norm(shape: &[usize]) -> Operation {
    let norm = Norm::layer(-1);
    Operation::new(norm, Backward::default(), shape, DType::F32)
}

/// Runs a problem of f32 on a subject, also through the layer; if they fail, both report the same, and the context
/// still works.
fn run(subject: &Subject, problem: &Problem) -> Result<(), Error> {
    let operation = &problem.operation;
    let inputs = problem.inputs.iter();
    let inputs: Vec<_> = inputs.map(|v| (v.used.tensor, &*v.bytes)).collect();
    let result = block_on(operation.run_into(&subject.gpu, &inputs, &mut []));

    let options = BatchNormOptions::new(DataFormat::Ncx).epsilon(operation.epsilon);
    let layer = GpuBatchNorm::new(&subject.gpu, options).unwrap();
    let of = |tensor| problem.elements::<f32>(tensor);
    let [src, diff_dst, gamma] = [Tensor::Src, Tensor::DiffDst, Tensor::Gamma].map(of);
    let [mean, variance] = [Tensor::Mean, Tensor::Variance].map(of);
    let args = BackwardArgs::new(
        &operation.shape,
        &src,
        &diff_dst,
        SavedRef::moments(&mean, &variance),
    );
    let typed = block_on(layer.backward(args.gamma(&gamma)));
    assert_eq!(typed.map(|_| ()), result);
    still_works(subject);
    result
}

/// [`Error::Limit`].
fn limit(what: &str, limit: &'static str, needed: u64, available: u64) -> Error {
    Error::check_limit(what, limit, needed, available).unwrap_err()
}

#[test]
fn lengths() {
    let noop = Noop::default();
    for (tensor, expected) in [
        (Tensor::Src, 30),
        (Tensor::DiffDst, 30),
        (Tensor::Mean, 3),
        (Tensor::Variance, 3),
        (Tensor::Gamma, 3),
    ] {
        for got in [expected - 1, expected + 1, 0] {
            let mut problem = problem();
            problem.set(tensor, &vec![1.0; got]);
            let error = run(&noop.subject, &problem).unwrap_err();
            assert!(matches!(error, Error::Length { .. }), "{error:?}");
            let name = tensor.name();
            let expected = format!("{name}: expected {expected} elements");
            says(&error, &[&expected, &format!(", got {got}")]);
        }
    }
}

#[test]
fn ranks() {
    let noop = Noop::default();
    for rank in [0, 1, 9] {
        let mut problem = problem();
        problem.operation.shape = vec![1; rank];
        let error = run(&noop.subject, &problem).unwrap_err();
        assert!(matches!(error, Error::Rank { .. }), "{error:?}");
        let want = format!("src: expected a rank from 2 to 8, got rank {rank}");
        assert_eq!(error.to_string(), want);
    }
}

#[test]
fn epsilons() {
    let noop = Noop::default();
    let gpu = &noop.subject.gpu;
    let planned = |dtype, epsilon| {
        let operation = ncx(dtype, &[2, 3]).with_epsilon(epsilon);
        operation.plan(gpu.profile()).map(|_| ())
    };
    for epsilon in [0.0, -0.0, -1e-5, f64::NAN, f64::INFINITY, -f64::INFINITY] {
        let error = GpuBatchNorm::new(gpu, BatchNormOptions::new(DataFormat::Nxc).epsilon(epsilon))
            .unwrap_err();
        for error in [error, planned(DType::F32, epsilon).unwrap_err()] {
            let Error::Epsilon { got, .. } = error else {
                panic!("{error:?}");
            };
            assert_eq!(got.to_bits(), epsilon.to_bits());
            says(&error, &["epsilon", "above 0", &format!("{epsilon:?}")]);
        }
    }
    // In the type that is used: as f32 they are 0, subnormal (which an adapter may treat as 0) and infinity.
    for (epsilon, as_used) in [
        (1e-60, 0.0),
        (1e-40, f64::from(1e-40_f32)),
        (1e60, f64::INFINITY),
    ] {
        let mut problem = problem();
        problem.operation.epsilon = epsilon;
        let error = run(&noop.subject, &problem).unwrap_err();
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            assert_eq!(planned(dtype, epsilon).unwrap_err(), error);
        }
        assert!(
            matches!(error, Error::Epsilon { used, .. } if used == as_used),
            "{error:?}"
        );
        let used = format!("got {epsilon:?}, which is {as_used:?} as f32");
        says(&error, &["epsilon", &used]);
    }
    // f64 data can use them.
    let noop = Noop::new(wgpu::Limits::default(), wgpu::Features::SHADER_F64);
    for epsilon in [1e-60, 1e60] {
        let operation = ncx(DType::F64, &[2, 3]).with_epsilon(epsilon);
        let _ = operation.plan(noop.subject.gpu.profile()).unwrap();
        GpuBatchNorm::new(
            &noop.subject.gpu,
            BatchNormOptions::new(DataFormat::Nxc).epsilon(epsilon),
        )
        .unwrap();
    }
}

#[test]
fn variances() {
    let noop = Noop::default();
    let is_of = |error: &Error, channel: usize, variance: f64| {
        assert!(matches!(error, Error::Variance { .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            format!(
                "variance: expected variance + epsilon above 0 and finite, got {variance:?} + 1e-5 \
                 in channel {channel}"
            )
        );
    };
    // The last one is 0 in f32, in which kernels add, though not in f64.
    for bad in [-1.0, -2e-5, f32::NEG_INFINITY, f32::INFINITY, -1e-5] {
        let mut problem = problem();
        problem.set(Tensor::Variance, &[1.0, bad.into(), -7.0]);
        is_of(&run(&noop.subject, &problem).unwrap_err(), 1, bad.into());
    }
    for dtype in [DType::F16, DType::Bf16] {
        for bad in [-0.5, f64::INFINITY] {
            let mut problem = Problem::random(&ncx(dtype, &[2, 3, 5]), 1);
            problem.set(Tensor::Variance, &[1.0, 1.0, bad]);
            is_of(&problem.run(&noop.subject).unwrap_err(), 2, bad);
        }
    }
    // Not an error: zero, small negative noise within epsilon, and values that data may have.
    for good in [0.0, -0.0, -1e-6, f32::NAN, f32::MAX] {
        let mut problem = problem();
        problem.set(Tensor::Variance, &[1.0, good.into(), 1.0]);
        run(&noop.subject, &problem).unwrap();
    }
}

#[test]
fn element_types() {
    let noop = Noop::default();
    let profile = noop.subject.gpu.profile();
    let f64s = ncx(DType::F64, &[2, 3, 5]);
    let problem = Problem::random(&f64s, 1);
    let error = problem.run(&noop.subject).unwrap_err();
    assert_eq!(f64s.plan(profile).unwrap_err(), error);
    assert!(
        matches!(
            error,
            Error::UnsupportedDType {
                dtype: DType::F64,
                ..
            }
        ),
        "{error:?}"
    );
    let want = "f64 tensors: expected a device with SHADER_F64, got";
    let want = format!("{want} {} without it", profile.adapter);
    assert_eq!(error.to_string(), want);
    still_works(&noop.subject);
    let with_f64 = Noop::new(wgpu::Limits::default(), wgpu::Features::SHADER_F64);
    problem.run(&with_f64.subject).unwrap();
    let problem = Problem::random(&f64s.with_params(false, false), 1);
    problem.run(&with_f64.subject).unwrap();

    for data in DType::ALL {
        for params in DType::ALL {
            let narrow = matches!(data, DType::F16 | DType::Bf16);
            let allowed = data == params || (narrow && params == DType::F32);
            let types = DTypes::from((data, params));
            for types in [types, types.with_statistics(params)] {
                let mut operation = ncx(data, &[2, 3]);
                operation.types = types;
                let Err(error) = operation.plan(with_f64.subject.gpu.profile()) else {
                    assert!(allowed, "{data}/{params}");
                    continue;
                };
                assert!(!allowed, "{data}/{params}");
                assert!(matches!(error, Error::ParamDType { .. }), "{error:?}");
                let beside = format!("for src of {data}, got {params}");
                says(&error, &["gamma and beta: ", &beside]);
            }
        }
    }
}

#[test]
fn sizes_that_overflow() {
    let noop = Noop::default();
    for shape in [
        vec![usize::MAX, 2],
        vec![1 << 32, 1 << 32],
        vec![1 << 16, 1 << 16],
        vec![usize::MAX; 8],
        vec![0, usize::MAX, usize::MAX],
        vec![1 << 31, 0, 1 << 31],
    ] {
        let mut problem = problem();
        problem.operation.shape = shape.clone();
        let error = run(&noop.subject, &problem).unwrap_err();
        let planned = problem.operation.plan(noop.subject.gpu.profile());
        assert_eq!(planned.unwrap_err(), error);
        assert!(matches!(error, Error::SizeOverflow { .. }), "{error:?}");
        let product = format!("got the product of {shape:?}");
        says(&error, &["src: ", &product]);
    }
}

#[test]
fn limits_of_the_adapter() {
    let noop = Noop::default();
    let small = noop.subject.with_profile("small", |profile| {
        profile.max_buffer = 4096;
    });
    let large = Problem::random(&ncx(DType::F32, &[2, 3, 500]), 1);
    let error = run(&small, &large).unwrap_err();
    assert_eq!(error, limit("src", "max_buffer_size", 12_000, 4096));
    says(&error, &["src", "max_buffer_size", "12000", "4096"]);
    let tiny = Problem::random(&ncx(DType::F32, &[1, 1]), 1);
    tiny.run(&small).unwrap();
    // A device that does not allow four storage buffers cannot run the kernels, nor can one whose workgroups are
    // smaller than any kernel's. The error blames the device, not the plan.
    let three = wgpu::Limits {
        max_storage_buffers_per_shader_stage: 3,
        ..wgpu::Limits::default()
    };
    let alone = wgpu::Limits {
        max_compute_invocations_per_workgroup: 1,
        max_compute_workgroup_size_x: 1,
        ..wgpu::Limits::default()
    };
    let unshared = wgpu::Limits {
        max_compute_workgroup_storage_size: 0,
        ..wgpu::Limits::default()
    };
    for (limits, name, needed, available) in [
        (three, "max_storage_buffers_per_shader_stage", 4, 3),
        (alone, "max_compute_invocations_per_workgroup", 4, 1),
        (unshared, "max_compute_workgroup_storage_size", 320, 0),
    ] {
        let noop = Noop::new(limits, wgpu::Features::empty());
        let want = limit("a plan", name, needed, available);
        assert_eq!(problem().run(&noop.subject).unwrap_err(), want);
        for operation in [problem().operation, layer_norm(&[2, 3])] {
            let error = operation.plan(noop.subject.gpu.profile()).unwrap_err();
            assert_eq!(error, want);
        }
        says(&want, &["plan", name, &available.to_string()]);
    }
}

#[test]
fn a_plan_of_another_context() {
    // Planned for wide workgroups, bound on a device that does not allow them.
    let wide = Noop::new(
        wgpu::Limits {
            max_compute_invocations_per_workgroup: 1024,
            max_compute_workgroup_size_x: 1024,
            max_compute_workgroup_storage_size: 1 << 16,
            ..wgpu::Limits::default()
        },
        wgpu::Features::empty(),
    );
    let wide = wide.subject.with_profile("wide", |profile| {
        profile.tuning.workgroup = 1024;
    });
    let narrow = Noop::default();
    let problem = Problem::random(&ncx(DType::F32, &[2, 3, 500]), 1);
    let planned = |subject: &Subject| problem.operation.plan(subject.gpu.profile()).unwrap();
    let plan = planned(&narrow.subject);
    let buffers = Buffers::new(&narrow.subject, &problem, &plan, Room::Exact);
    let error = planned(&wide).bind(&narrow.subject.gpu, &buffers.ranges());
    let what = "a plan made with a profile other than gpu.profile()";
    let want = limit(what, "max_compute_invocations_per_workgroup", 1024, 256);
    assert_eq!(error.map(|_| ()).unwrap_err(), want);
    still_works(&narrow.subject);
    // Planned for larger bindings, and for more workgroup memory.
    let limited = |what, change: fn(&mut Profile)| {
        let limited = narrow.subject.with_profile(what, change);
        let error = plan.bind(&limited.gpu, &buffers.ranges());
        still_works(&limited);
        error.map(|_| ()).unwrap_err()
    };
    let name = "max_storage_buffer_binding_size";
    let want = limit("a binding of src", name, 12_000, 8192);
    assert_eq!(limited("bindings", |p| p.max_binding = 8192), want);
    says(&want, &["src", name, "8192"]);
    let error = limited("workgroups", |p| p.max_workgroup_storage = 320);
    let Error::Limit {
        limit: "max_compute_workgroup_storage_size",
        needed,
        available: 320,
        ..
    } = error
    else {
        panic!("{error:?}");
    };
    assert!(needed > 320);
    // With this many channels a binding cannot hold their means, which planning reports. As many rows are allowed.
    let short = narrow.subject.with_profile("short bindings", |profile| {
        profile.max_binding = 4096;
        profile.window_unit = 256;
    });
    assert!(layer_norm(&[2000, 4]).plan(short.gpu.profile()).is_ok());
    let many = batch_norm_gradient::<f32, f32>(&[4, 2000], DataFormat::Nxc);
    let error = many.plan(short.gpu.profile()).unwrap_err();
    says(&error, &["a binding of mean", name, "8000", "4096"]);
    // A profile cannot promise more than the device has.
    let boasting = narrow.subject.with_profile("boasting", |profile| {
        profile.tuning.workgroup = 1024;
        profile.max_invocations = 1024;
        profile.max_workgroups = u32::MAX;
        profile.max_binding = u64::MAX;
        profile.max_buffer = u64::MAX;
        profile.alignment = 1;
        profile.max_storage_buffers = u32::MAX;
        profile.f64 = true;
        profile.long_words = true;
    });
    let limits = |subject: &Subject| {
        let mut profile = subject.gpu.profile().clone();
        profile.tuning = wgpu_norm::Tuning::GPU;
        profile
    };
    assert_eq!(limits(&boasting), limits(&narrow.subject));
    problem.run(&boasting).unwrap();
}

/// A gradient takes the parameters of its forward pass, and says which one is wrong; nobody has to give beta if the
/// gradient does not depend on it.
#[test]
fn other_parameters_than_the_forward_pass_had() {
    let gpu = &one(false).gpu;
    let (shape, src) = ([2, 2, 1], [1.0_f32, 2.0, 3.0, 5.0]);
    let (gamma, beta) = ([1.5_f32, 2.0], [0.5_f32, -0.5]);
    let options = AxesNormOptions::new(&[1], &[1]);
    let plain = GpuAxesNorm::new(gpu, options.clone()).unwrap();
    let relu = GpuAxesNorm::new(gpu, options.activation(Activation::Relu)).unwrap();
    for (layer, name) in [(&plain, "none"), (&relu, "relu")] {
        let args = ForwardArgs::new(&shape, &src).beta(&beta).gamma(&gamma);
        let saved = block_on(layer.forward(args)).unwrap().saved;
        let args = BackwardArgs::new(&shape, &src, &src, &saved);
        assert!(block_on(layer.backward(args.beta(&beta).gamma(&gamma))).is_ok());
        for (args, wrong) in [
            (
                args.gamma(&gamma),
                "beta: expected the forward pass's, got none",
            ),
            (
                args.beta(&beta),
                "gamma: expected the forward pass's, got none",
            ),
            (
                args.gamma(&gamma).beta(&beta).gate(&gamma),
                "gate: expected none, as the forward pass had none, got one",
            ),
        ] {
            let error = block_on(layer.backward(args)).unwrap_err();
            assert_eq!(error.to_string(), wrong, "{name}");
        }
        // From elsewhere it is not known.
        let elsewhere = SavedRef::moments(&saved.mean, &saved.variance);
        let args = BackwardArgs::new(&shape, &src, &src, elsewhere).gamma(&gamma);
        let result = block_on(layer.backward(args));
        assert_eq!(result.is_ok(), name == "none");
        if let Err(error) = result {
            says(&error, &["beta", "without_beta"]);
        }
        assert!(block_on(layer.backward(args.without_beta())).is_ok());
    }
}

#[test]
fn arguments_that_cannot_be_combined() {
    let gpu = &one(false).gpu;
    let (shape, src) = ([2, 2], [f16::ONE; 4]);
    let batch = GpuBatchNorm::new(gpu, BatchNormOptions::new(DataFormat::Ncx)).unwrap();
    let rows = GpuLayerNorm::new(gpu, LayerNormOptions::new(-1)).unwrap();
    let args = || ForwardArgs::new(&shape, &src);
    let mixed = args().gamma(&[1.0_f32; 2]).beta(&[f16::ONE; 2]);
    let error = block_on(batch.forward(mixed)).unwrap_err();
    says(&error, &["beta", "f32 elements, as gamma has", "f16"]);
    let args_of_gradient =
        BackwardArgs::new(&shape, &src, &src, SavedRef::moments(&[0.0; 2], &[1.0; 2]));
    let mixed = args_of_gradient.gamma(&[f16::ONE; 2]).beta(None::<&[f32]>);
    let error = block_on(batch.backward(mixed)).unwrap_err();
    says(
        &error,
        &[
            "parameters",
            "f32 elements, the type of their gradients",
            "f16",
        ],
    );
    let error = block_on(batch.forward(args().residual_before(&src))).unwrap_err();
    says(&error, &["residual", "none before this layer"]);
    let error = block_on(rows.forward(args().residual_after(&src))).unwrap_err();
    says(&error, &["residual", "none after this layer"]);
    let both = args().residual_before(&src).residual_after(&src);
    let error = block_on(rows.forward(both)).unwrap_err();
    says(
        &error,
        &["residual", "one before the layer or one after it", "both"],
    );
}

/// The message names the axis, and the layout that fits.
#[test]
fn lengths_of_another_layout() {
    let gpu = &one(false).gpu;
    let (shape, src) = ([16, 4, 8, 8], vec![0.0_f32; 16 * 4 * 64]);
    for (format, elements, message) in [
        (
            DataFormat::Nxc,
            4,
            "gamma: expected 8 elements (axis 3 of [16, 4, 8, 8] in Nxc), got 4, the size of axis 1: Ncx is PyTorch's \
             layout",
        ),
        (
            DataFormat::Ncx,
            8,
            "gamma: expected 4 elements (axis 1 of [16, 4, 8, 8] in Ncx), got 8, the size of axis 3: Nxc has the channels \
             last",
        ),
        (
            DataFormat::Ncx,
            5,
            "gamma: expected 4 elements (axis 1 of [16, 4, 8, 8] in Ncx), got 5",
        ),
    ] {
        let layer = GpuBatchNorm::new(gpu, BatchNormOptions::new(format)).unwrap();
        let gamma = vec![1.0_f32; elements];
        let args = ForwardArgs::new(&shape, &src).gamma(&gamma);
        let error = block_on(layer.forward(args)).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn statistics_of_another_norm() {
    let gpu = &one(false).gpu;
    let (shape, src) = ([2, 2], [1.0_f32, 2.0, 3.0, 5.0]);
    let rows = GpuLayerNorm::new(gpu, LayerNormOptions::new(-1)).unwrap();
    let mean_square = SavedRef::mean_square(&[1.0; 2]);
    let error = block_on(rows.backward(BackwardArgs::new(&shape, &src, &src, mean_square)));
    says(
        &error.unwrap_err(),
        &["mean", "this norm's statistics", "mean_square alone"],
    );
    let args = ForwardArgs::new(&shape, &src).without_statistics();
    let saved = block_on(rows.forward(args)).unwrap().saved;
    let error = block_on(rows.backward(BackwardArgs::new(&shape, &src, &src, &saved)));
    says(&error.unwrap_err(), &["mean", "none: they were left out"]);
}
