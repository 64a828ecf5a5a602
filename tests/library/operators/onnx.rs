//! ONNX's operators.

use super::directml::written_out;
use super::*;
use crate::common::data::assert_close;
use wgpu_norm::operators::onnx::*;
use wgpu_norm_verify::Random;

const X: (&str, Tensor) = ("X", Tensor::Src);
const Y: (&str, Tensor) = ("Y", Tensor::Dst);
const BIAS: (&str, Tensor) = ("B", Tensor::Beta);
const MEAN: (&str, Tensor) = ("Mean", Tensor::Mean);
const INV_STD_DEV: (&str, Tensor) = ("InvStdDev", Tensor::Variance);

fn scale(name: &str) -> (&str, Tensor) {
    (name, Tensor::Gamma)
}

#[test]
fn defaults_are_the_documents() {
    let op = BatchNormalization::default();
    assert_eq!((op.epsilon, op.momentum), (1e-5, 0.9));
    assert!(!op.training_mode);
    let op = LayerNormalization::default();
    assert_eq!((op.axis, op.epsilon), (-1, 1e-5));
    let op = RmsNormalization::default();
    assert_eq!((op.axis, op.epsilon), (-1, 1e-5));
    assert_eq!(MeanVarianceNormalization::default().axes, [0, 2, 3]);
}

#[test]
fn batch_norm_is_as_the_reference() {
    for types in of_params().chain(of_sums()) {
        let by_hand = |pass: Pass| by_hand(Norm::batch(DataFormat::Ncx), pass, &[3, 5, 7], types);
        let op = BatchNormalization {
            epsilon: EPSILON,
            momentum: 0.75,
            training_mode: true,
        };
        let [mean, variance] = ["input_mean", "input_var"];
        check(
            &op,
            &by_hand(training(0.25, RunningVariance::Biased).into()),
            &[
                X,
                scale("scale"),
                BIAS,
                (mean, Tensor::RunningMean),
                (variance, Tensor::RunningVariance),
            ],
            &[
                Y,
                ("running_mean", Tensor::RunningMean),
                ("running_var", Tensor::RunningVariance),
            ],
        );
        let op = BatchNormalization {
            training_mode: false,
            ..op
        };
        let inputs = [
            X,
            scale("scale"),
            BIAS,
            (mean, Tensor::Mean),
            (variance, Tensor::Variance),
        ];
        check(&op, &by_hand(Pass::Inference), &inputs, &[Y]);
    }
}

#[test]
fn norms_of_one_type_are_as_the_reference() {
    for dtype in [DType::F32, DType::F16, DType::Bf16, DType::F64] {
        let by_hand =
            |norm, shape: &[usize]| by_hand(norm, Forward::default(), shape, dtype.into());
        let op = LayerNormalization {
            axis: -2,
            epsilon: EPSILON,
        };
        let (inputs, outputs) = ([X, scale("Scale"), BIAS], [Y, MEAN, INV_STD_DEV]);
        let layer = by_hand(Norm::layer(-2), &[4, 3, 10]);
        check(&op, &layer, &inputs, &outputs);
        check(&op, &layer.with_params(true, false), &inputs[..2], &outputs);
        let op = GroupNormalization {
            epsilon: EPSILON,
            ..GroupNormalization::new(3)
        };
        let bias = ("bias", Tensor::Beta);
        let group = by_hand(Norm::group(3, DataFormat::Ncx), &[2, 6, 5]);
        check(&op, &group, &[X, scale("scale"), bias], &[Y]);
        let op = InstanceNormalization { epsilon: EPSILON };
        let instance = by_hand(Norm::instance(DataFormat::Ncx), &[2, 6, 5]);
        let inputs = [("input", Tensor::Src), scale("scale"), BIAS];
        check(&op, &instance, &inputs, &[("output", Tensor::Dst)]);
        let op = MeanVarianceNormalization {
            epsilon: EPSILON,
            axes: vec![0, -1],
        };
        let axes = by_hand(Norm::axes(&[0, -1], &[]), &[2, 6, 5]);
        check(&op, &axes.with_params(false, false), &[X], &[Y]);
    }
    for types in of_sums() {
        let op = RmsNormalization {
            axis: 1,
            epsilon: EPSILON,
        };
        let pass = Forward::default().without_statistics();
        let rms = by_hand(Norm::rms(1), pass, &[4, 3, 10], types);
        check(&op, &rms, &[X, scale("scale")], &[Y]);
    }
}

/// Scale and B of these shapes, with statistics from `axis` on, as the reference has them with a parameter for each
/// element.
fn broadcast(dtype: DType, axis: i64, scale_shape: &[usize], b_shape: &[usize]) {
    const SHAPE: [usize; 3] = [2, 3, 5];
    let mut random = Random::new(16);
    let mut tensor = |shape: &[usize]| {
        let numbers: Vec<f64> = random.vec(shape.iter().product(), 1.0, 0.5);
        dtype.encode(numbers)
    };
    let (scale, b) = (tensor(scale_shape), tensor(b_shape));
    let norm = |centered| Norm::axes(&(axis..0).collect::<Vec<_>>(), &[0, 1, 2]).centered(centered);
    let problem = |centered| {
        let operation = by_hand(norm(centered), Forward::default(), &SHAPE, dtype.into());
        let mut problem = Problem::random(&operation.with_params(true, centered), 17);
        let numbers: Vec<f64> = dtype.values(&scale).collect();
        problem.set(Tensor::Gamma, &written_out(scale_shape, &numbers, SHAPE));
        if centered {
            let numbers: Vec<f64> = dtype.values(&b).collect();
            problem.set(Tensor::Beta, &written_out(b_shape, &numbers, SHAPE));
        }
        problem
    };
    let (layer, rms) = (problem(true), problem(false));
    let epsilon = EPSILON;
    let x = |problem: &Problem| find(&problem.inputs, Tensor::Src).bytes.clone();
    let [layer_x, rms_x] = [&layer, &rms].map(x);
    let layer_inputs = Inputs::new()
        .with_bytes("X", &SHAPE, dtype, &layer_x)
        .with_bytes("Scale", scale_shape, dtype, &scale)
        .with_bytes("B", b_shape, dtype, &b);
    let rms_inputs = Inputs::new()
        .with_bytes("X", &SHAPE, dtype, &rms_x)
        .with_bytes("scale", scale_shape, dtype, &scale);
    for subject in taking(dtype) {
        let what = format!(
            "axis {axis} {scale_shape:?} {b_shape:?} {dtype} on {}",
            subject.name
        );
        let got = block_on(LayerNormalization { axis, epsilon }.run(&subject.gpu, &layer_inputs))
            .unwrap();
        close(&got, "Y", Tensor::Dst, &layer, &what);
        close(&got, "Mean", Tensor::Mean, &layer, &what);
        let got =
            block_on(RmsNormalization { axis, epsilon }.run(&subject.gpu, &rms_inputs)).unwrap();
        close(&got, "Y", Tensor::Dst, &rms, &what);
    }
}

/// Asserts that an output is within the tolerance of the reference; its shape may be another one.
fn close(got: &Outputs, name: &str, tensor: Tensor, problem: &Problem, what: &str) {
    let tensors = problem.operation.tensors().unwrap();
    let used = tensors
        .into_iter()
        .find(|used| used.tensor == tensor)
        .unwrap();
    let bytes = got.output(name).unwrap().bytes().to_vec();
    let want: Vec<_> = problem
        .reference()
        .into_iter()
        .filter(|want| want.tensor == tensor)
        .collect();
    assert_close(&[Values { used, bytes }], &want, what);
}

#[test]
fn scale_and_b_broadcast_each_on_its_own() {
    let pairs: [[&[usize]; 2]; 8] = [
        [&[5], &[1, 5]],          // layer norm's own
        [&[2, 1, 5], &[2, 1, 5]], // each sample's
        [&[], &[]],
        [&[3, 1], &[1, 3, 1]],
        [&[1, 1, 1], &[5]],
        [&[5], &[3, 1]],
        [&[2, 1, 1], &[1, 3, 5]],
        [&[2, 3, 5], &[1]],
    ];
    for [scale, b] in pairs {
        broadcast(DType::F32, -1, scale, b);
        broadcast(DType::F32, -2, scale, b);
    }
    broadcast(DType::F16, -1, &[2, 1, 5], &[2, 1, 1]);
}

/// momentum is the old statistics' weight, and the variance is the biased one: by hand. (N) has one channel.
#[test]
fn momentum_weighs_what_was_there() {
    for shape in [&[2, 1][..], &[2], &[1, 1, 2]] {
        let inputs = Inputs::new()
            .with("X", shape, &[1.0_f32, 3.0])
            .with("scale", &[1], &[2.0_f32])
            .with("B", &[1], &[5.0_f32])
            .with("input_mean", &[1], &[10.0_f32])
            .with("input_var", &[1], &[5.0_f32]);
        for (momentum, mean, variance) in [(0.75, 8.0, 4.0), (0.0, 2.0, 1.0), (1.0, 10.0, 5.0)] {
            let op = BatchNormalization {
                momentum,
                training_mode: true,
                epsilon: 1e-6,
            };
            for subject in subjects() {
                let outputs = block_on(op.run(&subject.gpu, &inputs)).unwrap();
                near(&outputs, "running_mean", &[mean]);
                near(&outputs, "running_var", &[variance]);
                near(&outputs, "Y", &[3.0, 7.0]);
                assert_eq!(outputs.output("Y").unwrap().shape, shape);
            }
        }
    }
}

/// Inputs that are described: X, scale or Scale, and B.
fn described<'a>(
    shape: &'a [usize],
    scale: (&'a str, &'a [usize]),
    b: Option<&'a [usize]>,
) -> Inputs<'a> {
    let inputs =
        Inputs::new()
            .described("X", shape, DType::F32)
            .described(scale.0, scale.1, DType::F32);
    match b {
        Some(b) => inputs.described("B", b, DType::F32),
        None => inputs,
    }
}

/// Parameters along exactly the normalized axes make layer or RMS norm, others axes norm.
#[test]
fn shapes_choose_the_norm() {
    let of_rows: [[&[usize]; 2]; 5] = [
        [&[2, 3, 4], &[4]],
        [&[2, 3, 4], &[1, 1, 4]],
        [&[1, 3, 4], &[1, 1, 4]],
        [&[2, 3, 1], &[]],
        [&[2, 3, 0], &[0]],
    ];
    let of_axes: [(&[usize], &[usize], &[i64]); 5] = [
        (&[2, 3, 4], &[], &[]),
        (&[2, 3, 4], &[2, 1, 4], &[0, 2]),
        (&[2, 3, 4], &[3, 4], &[1, 2]),
        (&[1, 3, 4], &[1, 3, 1], &[1]),
        (&[0, 3, 4], &[0, 1, 4], &[0, 2]),
    ];
    let made = |norm, pass: Forward, shape, beta| {
        let operation = Operation::new(norm, pass, shape, DType::F32).with_params(true, beta);
        operation.with_epsilon(1e-5_f32.into())
    };
    let (layer, rms) = (LayerNormalization::default(), RmsNormalization::default());
    let all = Forward::default();
    for [shape, own] in of_rows {
        let got = layer
            .operation(&described(shape, ("Scale", own), Some(own)))
            .unwrap();
        assert_eq!(got, made(Norm::layer(-1), all, shape, true));
        let got = rms
            .operation(&described(shape, ("scale", own), None))
            .unwrap();
        assert_eq!(
            got,
            made(Norm::rms(-1), all.without_statistics(), shape, false)
        );
    }
    for (shape, own, param_axes) in of_axes {
        let norm = Norm::axes(&[2], param_axes);
        let got = layer
            .operation(&described(shape, ("Scale", own), None))
            .unwrap();
        assert_eq!(got, made(norm.clone(), all, shape, false));
        let got = rms
            .operation(&described(shape, ("scale", own), None))
            .unwrap();
        assert_eq!(got, made(norm.centered(false), all, shape, false));
    }
}

#[test]
fn a_scale_or_b_that_does_not_broadcast_is_named() {
    let (layer, rms) = (LayerNormalization::default(), RmsNormalization::default());
    for (shape, own, message) in [
        (
            &[2, 3, 4][..],
            &[3][..],
            "expected size 1 or 4 along axis 2, got 3",
        ),
        (
            &[2, 3, 4],
            &[3, 1, 4],
            "expected size 1 or 2 along axis 0, got 3",
        ),
        (
            &[3, 4],
            &[1, 3, 4],
            "expected a rank from 0 to 2, got rank 3",
        ),
    ] {
        let error = layer.operation(&described(shape, ("Scale", own), None));
        fails(error, &format!("Scale: {message}"));
        let error = rms.operation(&described(shape, ("scale", own), None));
        fails(error, &format!("scale: {message}"));
    }
    for (shape, own, rank) in [(&[][..], &[4][..], 0), (&[1; 9], &[], 9)] {
        let error = layer.operation(&described(shape, ("Scale", own), None));
        fails(
            error,
            &format!("X: expected a rank from 1 to 8, got rank {rank}"),
        );
    }
    let with_b = |b| layer.operation(&described(&[2, 3], ("Scale", &[3]), Some(b)));
    assert!(with_b(&[1, 3]).is_ok());
    fails(with_b(&[2]), "B: expected size 1 or 3 along axis 1, got 2");
    fails(
        with_b(&[1; 3]),
        "B: expected a rank from 0 to 2, got rank 3",
    );
    let same = "(only in host memory may parameters have different ones)";
    fails(
        with_b(&[2, 1]),
        &format!("Scale: expected the sizes [2, 3] {same}, got [3]"),
    );

    let gpu = &subjects()[0].gpu;
    let all = [
        ("X", &[2, 3][..], &[1.0; 6][..]),
        ("Scale", &[2, 1], &[1.0; 2]),
        ("B", &[3], &[1.0; 2]),
    ];
    let run = |inputs: Inputs<'_>| block_on(layer.run(gpu, &inputs));
    fails(run(without(&all, "")), "B: expected 3 elements, got 2");
    let long = replaced(&all[..2], ("Scale", &[2, 1], &[1.0; 3]));
    fails(run(long), "Scale: expected 2 elements, got 3");
    let empty = Inputs::new()
        .with::<f32>("X", &[0, 3], &[])
        .with::<f32>("Scale", &[0, 1], &[])
        .with("B", &[3], &[1.0_f32; 3]);
    assert!(run(empty).unwrap().get::<f32>("Y").unwrap().is_empty());
    for axis in [-3, 2] {
        for own in [&[3][..], &[2, 1]] {
            let op = RmsNormalization {
                axis,
                ..rms.clone()
            };
            let error = op.operation(&described(&[2, 3], ("scale", own), None));
            fails(
                error,
                &format!("begin_norm_axis: expected an axis from -2 to 1, got {axis}"),
            );
        }
    }
}

#[test]
fn bad_arguments_are_named() {
    let gpu = &subjects()[0].gpu;
    let all = [
        ("X", &[2, 2][..], &[1.0; 4][..]),
        ("scale", &[2], &[1.0; 2]),
        ("B", &[2], &[1.0; 2]),
        ("input_mean", &[3], &[1.0; 3]),
        ("input_var", &[2], &[1.0; 2]),
    ];
    for training_mode in [true, false] {
        let op = BatchNormalization {
            training_mode,
            ..BatchNormalization::default()
        };
        let error = block_on(op.run(gpu, &without(&all, ""))).unwrap_err();
        says(&error, &["input_mean: expected 2 elements", "got 3"]);
        let missing = block_on(op.run(gpu, &without(&all, "input_var")));
        fails(missing, "input_var: expected a tensor, got none");
    }
    let op = BatchNormalization {
        momentum: 1.1,
        training_mode: true,
        ..BatchNormalization::default()
    };
    let error = op.operation(&without(&all, ""));
    fails(error, "momentum: expected a number from 0 to 1, got 1.1");
    // 32-bit statistics go with all types, 16-bit ones only with parameters of the same type.
    let inputs = Inputs::new()
        .described("X", &[2, 2], DType::F16)
        .described("scale", &[2], DType::F32)
        .described("B", &[2], DType::F32)
        .described("input_mean", &[2], DType::F16)
        .described("input_var", &[2], DType::F16);
    let error = BatchNormalization::default().operation(&inputs);
    fails(
        error,
        "input_mean: expected f32 beside parameters of f32, got f16",
    );
    let inputs =
        Inputs::new()
            .described("X", &[2, 2], DType::F32)
            .described("scale", &[2], DType::F16);
    let error = RmsNormalization::default().operation(&inputs);
    fails(
        error,
        "scale: expected f32 elements beside data of f32, got f16",
    );
}
