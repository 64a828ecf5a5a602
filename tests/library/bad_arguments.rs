//! Every bad argument is a typed error that names it, what was expected and what was given, and leaves the
//! context working.

use crate::common::buffers::{Buffers, Room, plan};
use crate::common::data::{Case, options_in};
use crate::common::errors::{case, says, still_works};
use crate::common::{Noop, Subject};
use half::{bf16, f16};
use wgpu_norm::{
    BatchNormOptions, DType, DataFormat, Element, Error, GpuBatchNorm, GpuLayerNorm,
    LayerNormOptions, ParamOf, Profile,
};

#[test]
fn lengths() {
    let noop = Noop::default();
    let change = |tensor: &str, by: isize| {
        let mut case = case();
        let values = match tensor {
            "src" => &mut case.src,
            "diff_dst" => &mut case.diff_dst,
            "mean" => &mut case.mean,
            "variance" => &mut case.variance,
            _ => case.gamma.as_mut().unwrap(),
        };
        let got = values.len().checked_add_signed(by).unwrap();
        values.resize(got, 1.0);
        (case, got)
    };
    for (tensor, expected) in [
        ("src", 30),
        ("diff_dst", 30),
        ("mean", 3),
        ("variance", 3),
        ("gamma", 3),
    ] {
        for by in [-1, 1, -(expected as isize)] {
            let (case, got) = change(tensor, by);
            let error = case.run(&noop.subject).unwrap_err();
            let want = Error::Length {
                tensor,
                expected,
                got,
            };
            assert_eq!(error, want);
            let (expected, got) = (expected.to_string(), got.to_string());
            says(&error, &[tensor, &expected, &got]);
            still_works(&noop.subject);
        }
    }
}

#[test]
fn ranks() {
    let noop = Noop::default();
    for rank in [0, 1, 9] {
        let mut case = case();
        case.shape = vec![1; rank];
        let error = case.run(&noop.subject).unwrap_err();
        let want = Error::Rank {
            tensor: "src",
            min: 2,
            max: 8,
            got: rank,
        };
        assert_eq!(error, want);
        says(&error, &["src", "2", "8", &rank.to_string()]);
        still_works(&noop.subject);
    }
}

#[test]
fn epsilons() {
    let noop = Noop::default();
    let gpu = &noop.subject.gpu;
    for epsilon in [0.0, -0.0, -1e-5, f64::NAN, f64::INFINITY, -f64::INFINITY] {
        let error = GpuBatchNorm::new(gpu, BatchNormOptions::new(epsilon)).unwrap_err();
        let Error::Epsilon { got, .. } = error else {
            panic!("{error:?}");
        };
        assert_eq!(got.to_bits(), epsilon.to_bits());
        says(&error, &["epsilon", "above 0", &format!("{epsilon:e}")]);
    }
    // In the type that it is used in: as f32 0, subnormal (which an adapter may take for 0) and infinity.
    for (epsilon, used) in [
        (1e-60, 0.0),
        (1e-40, f64::from(1e-40_f32)),
        (1e60, f64::INFINITY),
    ] {
        let layer = GpuBatchNorm::new(gpu, BatchNormOptions::new(epsilon)).unwrap();
        let want = Error::Epsilon {
            got: epsilon,
            used,
            dtype: DType::F32,
        };
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let error = layer
                .plan_backward(&[2, 3], (dtype, dtype), false)
                .unwrap_err();
            assert_eq!(error, want);
        }
        let mut case = case();
        case.options.epsilon = epsilon;
        let error = case.run(&noop.subject).unwrap_err();
        assert_eq!(error, want);
        says(&error, &["epsilon", &format!("{epsilon:e}"), "f32"]);
        still_works(&noop.subject);
    }
    // f64 data can use them.
    let noop = Noop::new(wgpu::Limits::default(), wgpu::Features::SHADER_F64);
    for epsilon in [1e-60, 1e60] {
        let layer = GpuBatchNorm::new(&noop.subject.gpu, BatchNormOptions::new(epsilon)).unwrap();
        let _ = layer
            .plan_backward(&[2, 3], (DType::F64, DType::F64), true)
            .unwrap();
    }
}

#[test]
fn variances() {
    let noop = Noop::default();
    let epsilon = 1e-5;
    // The last is 0 in f32, where kernels add, though not in f64.
    for bad in [
        -1.0,
        -2e-5,
        f32::NEG_INFINITY,
        f32::INFINITY,
        -(epsilon as f32),
    ] {
        let mut case = case();
        case.variance[1] = bad;
        case.variance[2] = -7.0;
        let error = case.run(&noop.subject).unwrap_err();
        let want = Error::Variance {
            argument: "variance",
            group: "channel",
            channel: 1,
            variance: f64::from(bad),
            epsilon,
        };
        assert_eq!(error, want);
        says(&error, &["variance", "channel 1", "above 0", "0.00001"]);
        still_works(&noop.subject);
    }
    fn halves<T: Element, P: ParamOf<T>>(noop: &Noop) {
        let mut case = Case::<T, P>::random(&[2, 3, 5], options_in(DataFormat::Ncx), 1);
        for bad in [-0.5, f64::INFINITY] {
            case.variance[2] = P::from_f64(bad);
            let error = case.run(&noop.subject).unwrap_err();
            assert!(
                matches!(error, Error::Variance { channel: 2, .. }),
                "{error:?}"
            );
        }
    }
    halves::<f16, f16>(&noop);
    halves::<bf16, bf16>(&noop);
    // Not an error: zero, small negative noise within epsilon, and what the data may be.
    for good in [0.0, -0.0, -1e-6, f32::NAN, f32::MAX] {
        let mut case = case();
        case.variance[1] = good;
        case.run(&noop.subject).unwrap();
    }
}

#[test]
fn element_types() {
    let noop = Noop::default();
    let mut case = Case::<f64, f64>::random(&[2, 3, 5], options_in(DataFormat::Ncx), 1);
    let error = case.run(&noop.subject).unwrap_err();
    let adapter = noop.subject.gpu.profile().adapter.clone();
    let want = Error::UnsupportedDType {
        dtype: DType::F64,
        needs: "SHADER_F64",
        adapter,
    };
    assert_eq!(error, want);
    says(
        &error,
        &["f64", "SHADER_F64", &noop.subject.gpu.profile().adapter],
    );
    still_works(&noop.subject);
    let with_f64 = Noop::new(wgpu::Limits::default(), wgpu::Features::SHADER_F64);
    case.run(&with_f64.subject).unwrap();
    case.gamma = None;
    case.run(&with_f64.subject).unwrap();

    let layer = GpuBatchNorm::new(&with_f64.subject.gpu, BatchNormOptions::new(1e-5)).unwrap();
    for data in DType::ALL {
        for params in DType::ALL {
            let narrow = matches!(data, DType::F16 | DType::Bf16);
            let allowed = data == params || (narrow && params == DType::F32);
            match layer.plan_backward(&[2, 3], (data, params), true) {
                Ok(_) => assert!(allowed, "{data}/{params}"),
                Err(error) => {
                    assert!(!allowed, "{data}/{params}");
                    assert_eq!(error, Error::ParamDType { data, params });
                    let (data, params) = (data.to_string(), params.to_string());
                    says(&error, &["mean, variance and gamma", &data, &params]);
                }
            }
        }
    }
}

#[test]
fn sizes_that_overflow() {
    let noop = Noop::default();
    let layer = GpuBatchNorm::new(&noop.subject.gpu, BatchNormOptions::new(1e-5)).unwrap();
    for shape in [
        vec![usize::MAX, 2],
        vec![1 << 32, 1 << 32],
        vec![1 << 16, 1 << 16],
        vec![usize::MAX; 8],
        vec![0, usize::MAX, usize::MAX],
        vec![1 << 31, 0, 1 << 31],
    ] {
        let error = layer
            .plan_backward(&shape, (DType::F32, DType::F32), true)
            .unwrap_err();
        let Error::SizeOverflow {
            what, shape: got, ..
        } = &error
        else {
            panic!("{error:?}");
        };
        assert_eq!(*what, "src");
        assert_eq!(*got, shape);
        says(&error, &["src", &format!("{shape:?}")]);
        let mut case = case();
        case.shape = shape;
        assert_eq!(case.run(&noop.subject).unwrap_err(), error);
        still_works(&noop.subject);
    }
}

#[test]
fn limits_of_the_adapter() {
    let noop = Noop::default();
    let small = noop.subject.with_profile("small", |profile| {
        profile.max_buffer = 4096;
    });
    let large = Case::<f32, f32>::random(&[2, 3, 500], options_in(DataFormat::Ncx), 1);
    let error = large.run(&small).unwrap_err();
    let want = Error::Limit {
        what: "src".to_owned(),
        limit: "max_buffer_size",
        needed: 12_000,
        available: 4096,
    };
    assert_eq!(error, want);
    says(&error, &["src", "max_buffer_size", "12000", "4096"]);
    let tiny = Case::<f32, f32>::random(&[1, 1], options_in(DataFormat::Ncx), 1);
    tiny.run(&small).unwrap();
    // A device that does not allow four storage buffers cannot run the kernels.
    let limits = wgpu::Limits {
        max_storage_buffers_per_shader_stage: 3,
        ..wgpu::Limits::default()
    };
    let three = Noop::new(limits, wgpu::Features::empty());
    let error = case().run(&three.subject).unwrap_err();
    let want = Error::Limit {
        what: "a plan".to_owned(),
        limit: "max_storage_buffers_per_shader_stage",
        needed: 4,
        available: 3,
    };
    assert_eq!(error, want);
    let layer = GpuBatchNorm::new(&three.subject.gpu, case().options).unwrap();
    let error = layer.plan_backward(&[2, 3, 5], (DType::F32, DType::F32), true);
    assert_eq!(error.unwrap_err(), want);
    let layer = GpuLayerNorm::new(&three.subject.gpu, LayerNormOptions::default()).unwrap();
    let error = layer
        .plan_backward(&[2, 3], (DType::F32, DType::F32))
        .unwrap_err();
    assert_eq!(error, want);
    says(
        &error,
        &["plan", "max_storage_buffers_per_shader_stage", "3"],
    );
    // Nor can one with smaller workgroups than any kernel has: it is the device's fault, not the plan's.
    let alone = wgpu::Limits {
        max_compute_invocations_per_workgroup: 1,
        max_compute_workgroup_size_x: 1,
        ..wgpu::Limits::default()
    };
    let unshared = wgpu::Limits {
        max_compute_workgroup_storage_size: 0,
        ..wgpu::Limits::default()
    };
    for (limits, limit, needed, available) in [
        (alone, "max_compute_invocations_per_workgroup", 4, 1),
        (unshared, "max_compute_workgroup_storage_size", 256, 0),
    ] {
        let noop = Noop::new(limits, wgpu::Features::empty());
        let want = Error::Limit {
            what: "a plan".to_owned(),
            limit,
            needed,
            available,
        };
        assert_eq!(case().run(&noop.subject).unwrap_err(), want);
    }
}

#[test]
fn a_plan_of_another_context() {
    // Made for wide workgroups, bound where they are not allowed.
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
    let case = Case::<f32, f32>::random(&[2, 3, 500], options_in(DataFormat::Ncx), 1);
    let buffers = Buffers::new(&narrow.subject, &case, Room::Exact);
    let error = plan(&wide, &case).bind(&narrow.subject.gpu, &buffers.ranges());
    let error = error.map(|_| ()).unwrap_err();
    let want = Error::Limit {
        what: "a plan of another context".to_owned(),
        limit: "max_compute_invocations_per_workgroup",
        needed: 1024,
        available: 256,
    };
    assert_eq!(error, want);
    still_works(&narrow.subject);
    // Made for larger bindings, and for more workgroup memory.
    let limited = |what, change: fn(&mut Profile)| {
        let limited = narrow.subject.with_profile(what, change);
        let error = plan(&narrow.subject, &case).bind(&limited.gpu, &buffers.ranges());
        still_works(&limited);
        error.map(|_| ()).unwrap_err()
    };
    let want = Error::Limit {
        what: "a binding of src".to_owned(),
        limit: "max_storage_buffer_binding_size",
        needed: 12_000,
        available: 8192,
    };
    assert_eq!(limited("bindings", |p| p.max_binding = 8192), want);
    says(&want, &["src", "max_storage_buffer_binding_size", "8192"]);
    let error = limited("workgroups", |p| p.max_workgroup_storage = 256);
    let Error::Limit {
        limit: "max_compute_workgroup_storage_size",
        needed,
        available: 256,
        ..
    } = error
    else {
        panic!("{error:?}");
    };
    assert!(needed > 256);
    // Of channels so many that a binding does not hold their means: known when planning. Of rows there may be as many.
    let short = narrow.subject.with_profile("short bindings", |profile| {
        profile.max_binding = 4096;
        profile.window_unit = 256;
    });
    let types = (DType::F32, DType::F32);
    let rows = GpuLayerNorm::new(&short.gpu, LayerNormOptions::default()).unwrap();
    assert!(rows.plan_backward(&[2000, 4], types).is_ok());
    let layer = GpuBatchNorm::new(&short.gpu, BatchNormOptions::new(1e-5)).unwrap();
    let error = layer.plan_backward(&[4, 2000], types, true).unwrap_err();
    says(
        &error,
        &[
            "a binding of mean",
            "max_storage_buffer_binding_size",
            "8000",
            "4096",
        ],
    );
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
    case.run(&boasting).unwrap();
}
