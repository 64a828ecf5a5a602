//! DirectML's operators.

use super::*;
use crate::common::data::assert_close;
use crate::common::vectors::of_operator;
use wgpu_norm::operators::directml::*;
use wgpu_norm::{Activation, Epilogue, Residual};
use wgpu_norm_verify::Random;

const INPUT: (&str, Tensor) = ("InputTensor", Tensor::Src);
const SCALE: (&str, Tensor) = ("ScaleTensor", Tensor::Gamma);
const BIAS: (&str, Tensor) = ("BiasTensor", Tensor::Beta);
const MEAN: (&str, Tensor) = ("MeanTensor", Tensor::Mean);
const VARIANCE: (&str, Tensor) = ("VarianceTensor", Tensor::Variance);
const OUTPUT: (&str, Tensor) = ("OutputTensor", Tensor::Dst);

#[test]
fn batch_norm_is_as_the_reference() {
    // Channels, one mean for all, and axes that cannot be merged.
    for sizes in [[1, 3, 1, 1], [1, 1, 1, 1], [2, 1, 5, 1]] {
        for types in of_params() {
            let norm = Norm::Batch(Channels::Broadcast(sizes.to_vec()));
            let by_hand = |pass: Pass| by_hand(norm.clone(), pass, &[2, 3, 5, 4], types);
            check_broadcast(
                &BatchNormalizationTraining::new(EPSILON),
                &by_hand(Forward::default().into()),
                Some(&sizes),
                &[INPUT, SCALE, BIAS],
                &[
                    OUTPUT,
                    ("OutputMeanTensor", Tensor::Mean),
                    ("OutputVarianceTensor", Tensor::Variance),
                ],
            );
            check_broadcast(
                &BatchNormalization::new(EPSILON),
                &by_hand(Pass::Inference),
                Some(&sizes),
                &[INPUT, MEAN, VARIANCE, SCALE, BIAS],
                &[OUTPUT],
            );
            let inputs = [
                INPUT,
                ("InputGradientTensor", Tensor::DiffDst),
                MEAN,
                VARIANCE,
                SCALE,
            ];
            let outputs = [
                ("OutputGradientTensor", Tensor::DiffSrc),
                ("OutputScaleGradientTensor", Tensor::DiffGamma),
                ("OutputBiasGradientTensor", Tensor::DiffBeta),
            ];
            let backward = |through| {
                by_hand(Backward::default().with_through(through).into()).with_params(true, false)
            };
            let op = BatchNormalizationTrainingGrad::new(EPSILON);
            check_broadcast(
                &op,
                &backward(Through::Batch),
                Some(&sizes),
                &inputs,
                &outputs,
            );
            let op = BatchNormalizationGrad::new(EPSILON);
            check_broadcast(
                &op,
                &backward(Through::Constant),
                Some(&sizes),
                &inputs,
                &outputs,
            );
        }
    }
}

#[test]
fn vectors() {
    let mut tested = 0;
    for vector in of_operator("batch_norm_backward") {
        if vector.metadata["data_format"] != "broadcast" {
            continue;
        }
        tested += 1;
        let (problem, want) = vector.problem();
        let given = Given::from(problem);
        let problem = &given.problem;
        let (Pass::Backward(backward), Norm::Batch(Channels::Broadcast(sizes))) =
            (problem.operation.pass, &problem.operation.norm)
        else {
            panic!("{}", vector.name);
        };
        let names = [
            INPUT,
            ("InputGradientTensor", Tensor::DiffDst),
            MEAN,
            VARIANCE,
            SCALE,
        ];
        let inputs = given.named(Some(sizes), &names);
        let epsilon = vector.epsilon() as f32;
        for subject in taking(problem.operation.types.data) {
            let gpu = &subject.gpu;
            let got = match backward.through {
                Through::Constant => {
                    block_on(BatchNormalizationGrad::new(epsilon).run(gpu, &inputs))
                }
                Through::Batch => {
                    block_on(BatchNormalizationTrainingGrad::new(epsilon).run(gpu, &inputs))
                }
            };
            let names = [
                ("OutputGradientTensor", Tensor::DiffSrc),
                ("OutputScaleGradientTensor", Tensor::DiffGamma),
                ("OutputBiasGradientTensor", Tensor::DiffBeta),
            ];
            let got = values(problem, &got.unwrap(), &names);
            assert_close(&got, &want, &format!("{} on {}", vector.name, subject.name));
        }
    }
    assert!(tested >= 5, "only {tested} vectors");
}

/// Statistics of other data, so that the two gradients differ; computed by hand.
#[test]
fn the_two_gradients_differ_in_what_flows_through_the_statistics() {
    let inputs = Inputs::new()
        .with("InputTensor", &[2, 2], &[1.0_f32, 2.0, 3.0, 6.0])
        .with("InputGradientTensor", &[2, 2], &[4.0_f32, 1.0, 0.0, 1.0])
        .with("MeanTensor", &[1, 2], &[2.0_f32, 4.0])
        .with("VarianceTensor", &[1, 2], &[0.75_f32, 3.75])
        .with("ScaleTensor", &[1, 2], &[3.0_f32, 2.0]);
    for subject in subjects() {
        let constant = block_on(BatchNormalizationGrad::new(0.25).run(&subject.gpu, &inputs));
        let batch = block_on(BatchNormalizationTrainingGrad::new(0.25).run(&subject.gpu, &inputs));
        let (constant, batch) = (constant.unwrap(), batch.unwrap());
        near(&constant, "OutputGradientTensor", &[12.0, 1.0, 0.0, 1.0]);
        near(&batch, "OutputGradientTensor", &[0.0; 4]);
        for outputs in [constant, batch] {
            near(&outputs, "OutputScaleGradientTensor", &[-4.0, 0.0]);
            near(&outputs, "OutputBiasGradientTensor", &[4.0, 2.0]);
        }
    }
}

/// A tensor expanded to all sizes of the input, the long way.
pub fn written_out(shape: &[usize], tensor: &[f64], input: [usize; 3]) -> Vec<f64> {
    let own = [&vec![1; 3 - shape.len()], shape].concat();
    let [a, b, c] = input;
    let mut all = Vec::new();
    for at in (0..a).flat_map(|i| (0..b).flat_map(move |j| (0..c).map(move |k| [i, j, k]))) {
        let at: Vec<usize> = own
            .iter()
            .zip(at)
            .map(|(&size, at)| if size == 1 { 0 } else { at })
            .collect();
        all.push(tensor[(at[0] * own[1] + at[1]) * own[2] + at[2]]);
    }
    all
}

#[test]
fn parameters_broadcast_each_on_its_own() {
    const SHAPE: [usize; 3] = [2, 3, 5];
    let all: [[[usize; 3]; 4]; 5] = [
        [[1, 3, 1]; 4],
        [[1, 3, 1], [1, 3, 1], [1, 1, 1], [1, 1, 1]],
        [[2, 1, 1], [1, 1, 5], [1, 3, 1], [1, 1, 1]],
        [[2, 3, 5], [1, 1, 1], [2, 1, 5], [1, 3, 5]],
        [[1, 1, 1]; 4],
    ];
    let names = ["MeanTensor", "VarianceTensor", "ScaleTensor", "BiasTensor"];
    let tensors = [Tensor::Mean, Tensor::Variance, Tensor::Gamma, Tensor::Beta];
    for dtype in [DType::F32, DType::F16] {
        let types = DTypes::from(dtype).with_statistics(dtype);
        let norm = Norm::Batch(Channels::Broadcast(SHAPE.to_vec()));
        let mut problem = Problem::random(&by_hand(norm, Pass::Inference, &SHAPE, types), 5);
        for sizes in &all {
            let mut random = Random::new(4);
            let own = [(1.0, 3.0), (0.25, 1.0), (1.0, 0.5), (1.0, 0.0)];
            let own = [0, 1, 2, 3].map(|i| {
                let numbers: Vec<f64> = random.vec(sizes[i].iter().product(), own[i].0, own[i].1);
                dtype.encode(numbers)
            });
            let mut inputs = Inputs::new();
            for i in 0..4 {
                let numbers: Vec<f64> = dtype.values(&own[i]).collect();
                problem.set(tensors[i], &written_out(&sizes[i], &numbers, SHAPE));
                inputs = inputs.with_bytes(names[i], &sizes[i], dtype, &own[i]);
            }
            let src = find(&problem.inputs, Tensor::Src);
            let inputs = inputs.with_bytes("InputTensor", &SHAPE, dtype, &src.bytes);
            for subject in taking(dtype) {
                let got = block_on(BatchNormalization::new(EPSILON).run(&subject.gpu, &inputs));
                let got = values(&problem, &got.unwrap(), &[OUTPUT]);
                assert_close(
                    &got,
                    &problem.reference(),
                    &format!("{sizes:?} on {}", subject.name),
                );
            }
        }
    }
}

#[test]
fn mean_variance_normalization_is_an_axes_norm() {
    for types in of_sums() {
        let norm = Norm::axes(&[0, 2], &[1]);
        for (scale, bias) in [(true, true), (false, true), (false, false)] {
            let param_axes: &[i64] = if scale || bias { &[1] } else { &[] };
            let norm = if param_axes.is_empty() {
                Norm::axes(&[0, 2], &[])
            } else {
                norm.clone()
            };
            let by_hand =
                by_hand(norm, Forward::default(), &[3, 4, 5], types).with_params(scale, bias);
            let inputs = [(true, INPUT), (scale, SCALE), (bias, BIAS)];
            let inputs: Vec<_> = inputs
                .into_iter()
                .filter(|(is, _)| *is)
                .map(|(_, name)| name)
                .collect();
            if !(scale || bias) && types.params != types.data {
                continue; // Without parameters these have the data's type.
            }
            let op = MeanVarianceNormalization1::new(vec![0, 2], EPSILON);
            check_broadcast(&op, &by_hand, Some(&[1, 4, 1]), &inputs, &[OUTPUT]);
            let op = MeanVarianceNormalization2::new(vec![0, 2], EPSILON);
            check_broadcast(&op, &by_hand, Some(&[1, 4, 1]), &inputs, &[OUTPUT]);
        }
    }
}

#[test]
fn mean_variance_normalization_by_hand() {
    let x = [0.0_f32, 4.0, 2.0, 2.0];
    let op = MeanVarianceNormalization1 {
        fused_activation: Some(FusedActivation::Relu),
        ..MeanVarianceNormalization1::new(vec![2], 1e-12)
    };
    let inputs = Inputs::new()
        .with("InputTensor", &[1, 2, 2], &x)
        .with("ScaleTensor", &[1, 2, 1], &[-1.0_f32, 2.0])
        .with("BiasTensor", &[1, 1, 2], &[0.5_f32, -1.0]);
    for subject in subjects() {
        let outputs = block_on(op.run(&subject.gpu, &inputs)).unwrap();
        near(&outputs, "OutputTensor", &[1.5, 0.0, 0.5, 0.0]);
    }
    let all = [("InputTensor", &[3, 2][..], &[1.0; 6][..])];
    let operation = |op: MeanVarianceNormalization1, inputs: Inputs<'_>| op.operation(&inputs);
    let plain = MeanVarianceNormalization1 {
        normalize_variance: false,
        ..MeanVarianceNormalization1::new(vec![1], 1e-5)
    };
    let given = replaced(&all, all[0]);
    fails(
        operation(plain, given.clone()),
        "NormalizeVariance: expected true, got false",
    );
    let op = MeanVarianceNormalization1::new(vec![1], 1e-5);
    let wrong = replaced(&all, ("ScaleTensor", &[2, 2], &[1.0; 4]));
    let message = "ScaleTensor: expected size 1 or 3 along axis 0, got 2";
    fails(operation(op, wrong), message);
    let op = MeanVarianceNormalization1::new(vec![usize::MAX], 1e-5);
    says(
        &operation(op, given).unwrap_err(),
        &["axes", "from -2 to 1"],
    );
}

#[test]
fn an_activation_is_the_operations() {
    for (add, residual) in [(true, Residual::After), (false, Residual::None)] {
        let op = BatchNormalizationTraining {
            fused_activation: Some(FusedActivation::Relu),
            ..BatchNormalizationTraining::new(EPSILON)
        };
        let mut inputs = Inputs::new()
            .described("InputTensor", &[2, 3], DType::F32)
            .described("ScaleTensor", &[1, 3], DType::F32)
            .described("BiasTensor", &[1, 3], DType::F32);
        if add {
            inputs = inputs.described("FusedAddTensor", &[2, 3], DType::F32);
        }
        let epilogue = op.operation(&inputs).unwrap().epilogue;
        assert_eq!(epilogue, Epilogue::new(residual, Activation::Relu));
    }
}

#[test]
fn a_parameter_of_wrong_sizes_is_named() {
    let gpu = &subjects()[0].gpu;
    let own = &[1, 3][..];
    let all = [
        ("InputTensor", &[2, 3][..], &[1.0; 6][..]),
        ("MeanTensor", own, &[1.0; 3]),
        ("VarianceTensor", own, &[1.0; 3]),
        ("ScaleTensor", own, &[1.0; 3]),
        ("BiasTensor", own, &[1.0; 3]),
    ];
    let op = BatchNormalization::new(1e-5);
    let run = |other| block_on(op.run(gpu, &replaced(&all, other)));
    assert!(run(all[0]).is_ok());
    let wrong = ("VarianceTensor", &[1, 2][..], &[1.0; 2][..]);
    fails(
        run(wrong),
        "VarianceTensor: expected size 1 or 3 along axis 1, got 2",
    );
    let wrong = ("ScaleTensor", &[1, 1, 3][..], &[1.0; 3][..]);
    fails(
        run(wrong),
        "ScaleTensor: expected a rank from 0 to 2, got rank 3",
    );
    let wrong = ("BiasTensor", &[2, 1][..], &[1.0; 3][..]);
    fails(run(wrong), "BiasTensor: expected 2 elements, got 3");
    let wrong = ("MeanTensor", &[2, 1][..], &[][..]);
    fails(run(wrong), "MeanTensor: expected 2 elements, got 0");
    // On device buffers all four have one shape.
    let other = replaced(&all, ("BiasTensor", &[2, 1], &[1.0; 2]));
    let message = "MeanTensor: expected the sizes [2, 3] (only in host memory may parameters have different ones), \
        got [1, 3]";
    fails(op.operation(&other), message);
    let none = Inputs::new().described("InputTensor", &[2, 3], DType::F32);
    fails(
        op.operation(&none),
        "MeanTensor: expected a tensor, got none",
    );
    // In training, the scale says over which axes statistics are taken.
    let op = BatchNormalizationTraining::new(1e-5);
    let all = [all[0], all[3], ("BiasTensor", &[2, 1], &[1.0; 2])];
    let error = block_on(op.run(gpu, &replaced(&all, all[0])));
    fails(error, "BiasTensor: expected size 1 along axis 0, got 2");
    // An axis of size 0 is not divided by.
    let op = BatchNormalization::new(1e-5);
    let inputs = Inputs::new()
        .with::<f32>("InputTensor", &[0, 3], &[])
        .with::<f32>("MeanTensor", &[0, 1], &[])
        .with("VarianceTensor", own, &[1.0_f32; 3])
        .with("ScaleTensor", own, &[1.0_f32; 3])
        .with("BiasTensor", own, &[1.0_f32; 3]);
    let outputs = block_on(op.run(gpu, &inputs)).unwrap();
    assert!(outputs.get::<f32>("OutputTensor").unwrap().is_empty());
}
