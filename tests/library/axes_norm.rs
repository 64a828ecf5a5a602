//! Norm over any axes: numbers worked out by hand, identities with the other norms, errors. For every shape, see
//! verify.rs.

use crate::common::data::{Problem, assert_close, near};
use crate::common::errors::says;
use crate::common::{one, subjects};
use pollster::block_on;
use wgpu_norm::synchronized::Ranks;
use wgpu_norm::{
    Activation, Algorithm, AxesNormOptions, Backward, BackwardArgs, DType, DataFormat, Error,
    Forward, ForwardArgs, GpuAxesNorm, GpuGroupNorm, GroupNormOptions, InferenceArgs, Norm,
    Operation, Pass, SavedRef, Tensor, bytemuck,
};

/// Two samples of two rows of two elements; each sample has its own gamma and beta. With epsilon 1, a row of ±√3 around
/// its mean has r = 1/2.
#[test]
fn parameters_of_each_sample_by_hand() {
    let d = 3_f32.sqrt();
    let half = d / 2.0; // |x̂|
    let (shape, src) = (
        [2, 2, 2],
        [1.0 - d, 1.0 + d, 4.0 + d, 4.0 - d, -d, d, 5.0, 5.0],
    );
    let (mean, variance) = ([1.0, 4.0, 0.0, 5.0], [3.0, 3.0, 3.0, 0.0]);
    let (gamma, beta) = ([2.0, 0.0, 1.0, 4.0], [0.0, 7.0, 1.0, 0.0]);
    let dst = [-d, 7.0, d, 7.0, 1.0 - half, 4.0 * half, 1.0, 0.0];
    let diff_dst = [1.0, 5.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0];
    let options = AxesNormOptions::new(&[-1], &[0, 2]).epsilon(1.0);
    for subject in subjects() {
        let layer = GpuAxesNorm::new(&subject.gpu, options.clone()).unwrap();
        let args = ForwardArgs::new(&shape, &src).gamma(&gamma).beta(&beta);
        let output = block_on(layer.forward(args)).unwrap();
        near(&output.saved.mean, &mean);
        near(&output.saved.variance, &variance);
        near(&output.dst, &dst);
        let args = InferenceArgs::new(&shape, &src, &output.saved);
        let args = args.gamma(&gamma).beta(&beta);
        near(&block_on(layer.infer(args)).unwrap(), &dst);

        let args = BackwardArgs::new(&shape, &src, &diff_dst, SavedRef::moments(&mean, &variance));
        let grads = block_on(layer.backward(args.gamma(&gamma).beta(&beta))).unwrap();
        // First row: gamma · d = (2, 0), so a = 1 and b = -half; r · ((2 - 1) - half²) and r · ((0 - 1) + half²).
        // Last row: x̂ is 0 and r is 1: (1, 4) minus its mean.
        let diff_src = [0.125, -0.125, 0.0, 0.0, 0.0, 0.0, -1.5, 1.5];
        near(&grads.diff_src, &diff_src);
        near(&grads.diff_beta.unwrap(), &[1.0, 5.0, 1.0, 1.0]);
        near(&grads.diff_gamma.unwrap(), &[-half, 5.0 * half, 0.0, 0.0]);
    }
}

/// The layer above with a gate: gate · gamma and gate · beta are that layer's parameters.
#[test]
fn a_gate_by_hand() {
    let d = 3_f32.sqrt();
    let half = d / 2.0; // |x̂|
    let (shape, src) = (
        [2, 2, 2],
        [1.0 - d, 1.0 + d, 4.0 + d, 4.0 - d, -d, d, 5.0, 5.0],
    );
    let (mean, variance) = ([1.0, 4.0, 0.0, 5.0], [3.0, 3.0, 3.0, 0.0]);
    let (gamma, beta) = ([1.0, 0.0, 1.0, 1.0], [0.0, 7.0, 1.0, 0.0]);
    let gate = [2.0, 1.0, 1.0, 4.0];
    let residual = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    let gated = [-d, 7.0, d, 7.0, 1.0 - half, 4.0 * half, 1.0, 0.0];
    let dst: Vec<f32> = gated.iter().zip(residual).map(|(a, b)| a + b).collect();
    let diff_dst = [1.0, 5.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0];
    let options = AxesNormOptions::new(&[-1], &[0, 2]).epsilon(1.0);
    for subject in subjects() {
        let layer = GpuAxesNorm::new(&subject.gpu, options.clone()).unwrap();
        let args = ForwardArgs::new(&shape, &src).gamma(&gamma).beta(&beta);
        let args = args.gate(&gate).residual_after(&residual);
        near(&block_on(layer.forward(args)).unwrap().dst, &dst);
        let args = InferenceArgs::new(&shape, &src, SavedRef::moments(&mean, &variance));
        let args = args.gamma(&gamma).beta(&beta).gate(&gate);
        near(&block_on(layer.infer(args)).unwrap(), &gated);

        let args = BackwardArgs::new(&shape, &src, &diff_dst, SavedRef::moments(&mean, &variance));
        let args = args.gamma(&gamma).beta(&beta).gate(&gate);
        let grads = block_on(layer.backward(args)).unwrap();
        let diff_src = [0.125, -0.125, 0.0, 0.0, 0.0, 0.0, -1.5, 1.5];
        near(&grads.diff_src, &diff_src);
        near(&grads.diff_beta.unwrap(), &[2.0, 5.0, 1.0, 4.0]);
        near(&grads.diff_gamma.unwrap(), &[-d, 5.0 * half, 0.0, 0.0]);
        near(&grads.diff_gate.unwrap(), &[-half, 35.0, 1.0, 0.0]);
    }
}

/// gate · gamma is beyond f32, or almost 0, and gate · (x̂ · gamma + beta) is not: where x̂ is 0 it is gate · beta.
/// Likewise gamma · gate · diff_dst.
#[test]
fn gate_times_gamma_beyond_the_type() {
    let norms = [
        (&[1, 8, 12][..], &[2][..], &[0, 2][..]), // rows
        (&[2, 6, 16], &[1], &[0, 1]),             // columns
        (&[2, 8, 16], &[2], &[0, 1]),             // channels that are rows
        (&[4, 6, 8], &[0], &[0, 2]),              // mixed
        (&[3, 4, 4, 7], &[1, 3], &[2]),
        (&[2, 3, 5], &[1, 2], &[1]),
    ];
    for (shape, axes, param_axes) in norms {
        for centered in [true, false] {
            let norm = Norm::axes(axes, param_axes).centered(centered);
            // gamma, gate and diff_dst.
            for factors in [
                [1e30, 1e30, 1e-37],
                [1e22, 1e22, 1e-30],
                [1e30, 1e8, 1e-20],
                [1e-30, 1e32, 1.0],
                [1e-22, 1e-22, 1e35],
                [2.0, 0.0, 1.0],
                [0.0, 2.0, 1.0],
            ] {
                check_factors(&norm, shape, factors);
            }
        }
    }
}

fn check_factors(norm: &Norm, shape: &[usize], [gamma, gate, diff_dst]: [f32; 3]) {
    let subject = one(false);
    let forward = Operation::new(norm.clone(), Forward::default(), shape, DType::F32);
    let forward = forward.with_gate(true);
    let mut inference = forward.clone();
    inference.pass = Pass::Inference;
    let backward = forward.gradient().unwrap();
    for operation in [forward, inference, backward] {
        let near = match operation.pass {
            Pass::Inference => 1e-6, // x̂ is not quite 0
            _ => 0.0,
        };
        let mut problem = Problem::random(&operation, 1);
        for input in &mut problem.inputs {
            let value = |at| match input.used.tensor {
                Tensor::Src if norm.is_centered() => 1.0 + near,
                Tensor::Src => near,
                Tensor::Mean | Tensor::MeanSquare | Tensor::Variance => 1.0,
                Tensor::Gamma => gamma,
                Tensor::Gate => gate,
                Tensor::Beta if gate == 0.0 => 1.0,
                Tensor::Beta => 1e3 / gate,
                _ => diff_dst * (at % 5) as f32,
            };
            let values: Vec<f32> = (0..input.bytes.len() / 4).map(value).collect();
            input.bytes.copy_from_slice(bytemuck::cast_slice(&values));
        }
        let reference = problem.reference();
        for algorithm in Algorithm::ALL {
            for max_storage_buffers in [4, 8] {
                let subject = subject.with_profile("factors", |profile| {
                    profile.algorithm = Some(algorithm);
                    profile.max_storage_buffers = max_storage_buffers;
                });
                if operation.plan(subject.gpu.profile()).is_ok() {
                    let results = problem.run(&subject).unwrap();
                    let what = format!("{operation:?} {gamma} {gate} {algorithm}");
                    assert_close(&results, &reference, &what);
                }
            }
        }
    }
}

/// Channels of two pixels, uncentered: with epsilon 1, elements of 3 and √15 have r = 1/√13.
#[test]
fn a_mean_of_squares_by_hand() {
    let root = 15_f32.sqrt();
    let r = 1.0 / 13_f32.sqrt();
    let (shape, src) = ([1, 2, 2], [3.0, 0.0, root, 0.0]);
    let (gamma, beta) = ([1.0, 2.0], [0.5, 0.0]);
    let options = AxesNormOptions::new(&[1], &[1])
        .centered(false)
        .epsilon(1.0);
    for subject in subjects() {
        let layer = GpuAxesNorm::new(&subject.gpu, options.clone()).unwrap();
        let args = ForwardArgs::new(&shape, &src).gamma(&gamma).beta(&beta);
        let output = block_on(layer.forward(args)).unwrap();
        near(&output.saved.mean_square, &[12.0, 0.0]);
        assert!(output.saved.mean.is_empty());
        near(&output.dst, &[0.5 + 3.0 * r, 0.5, 2.0 * root * r, 0.0]);
        let args = InferenceArgs::new(&shape, &src, SavedRef::mean_square(&[12.0, 0.0]));
        let args = args.gamma(&gamma).beta(&beta);
        near(&block_on(layer.infer(args)).unwrap(), &output.dst);

        let diff_dst = [1.0, 1.0, 0.0, 3.0];
        let args = BackwardArgs::new(&shape, &src, &diff_dst, &output.saved);
        let grads = block_on(layer.backward(args.gamma(&gamma).beta(&beta))).unwrap();
        // b = mean(gamma · d · x̂) = 3r / 2; the second pixel's x̂ is 0 and its r is 1.
        let b = 1.5 * r;
        let diff_src = [r * (1.0 - 3.0 * r * b), 1.0, -r * root * r * b, 6.0];
        near(&grads.diff_src, &diff_src);
        near(&grads.diff_gamma.unwrap(), &[3.0 * r, 0.0]);
        near(&grads.diff_beta.unwrap(), &[2.0, 3.0]);
    }
}

/// Group norm is a norm over axes of src with an axis more, to the bit.
#[test]
fn group_norm_by_axes() {
    let src: Vec<f32> = (0..2 * 6 * 35).map(|i| (i * i % 97) as f32).collect();
    let diff_dst: Vec<f32> = src.iter().rev().copied().collect();
    let gamma = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let beta = [0.5; 6];
    for subject in subjects() {
        let options = GroupNormOptions::new(2, DataFormat::Ncx).activation(Activation::Relu);
        let by_groups = GpuGroupNorm::new(&subject.gpu, options).unwrap();
        let options = AxesNormOptions::new(&[2, 3], &[1, 2]).activation(Activation::Relu);
        let by_axes = GpuAxesNorm::new(&subject.gpu, options).unwrap();
        let forward = |shape| ForwardArgs::new(shape, &src).gamma(&gamma).beta(&beta);
        let want = block_on(by_groups.forward(forward(&[2, 6, 35]))).unwrap();
        let got = block_on(by_axes.forward(forward(&[2, 2, 3, 35]))).unwrap();
        assert_eq!(got, want);
        let backward = |shape| {
            let args = BackwardArgs::new(shape, &src, &diff_dst, &want.saved);
            args.gamma(&gamma).beta(&beta)
        };
        let want = block_on(by_groups.backward(backward(&[2, 6, 35]))).unwrap();
        let got = block_on(by_axes.backward(backward(&[2, 2, 3, 35]))).unwrap();
        assert_eq!(got, want);
    }
}

#[test]
fn what_makes_no_sense_is_an_error() {
    let operation = |axes: &[i64], param_axes: &[i64]| {
        let norm = Norm::axes(axes, param_axes);
        Operation::new(norm, Forward::default(), &[2, 3, 4], DType::F32)
    };
    for (axes, param_axes, message) in [
        (
            &[][..],
            &[][..],
            "axes: expected at least one axis, over which the statistics are taken, got none",
        ),
        (&[3], &[], "axes: expected axes from -3 to 2, got 3"),
        (&[1, -2], &[], "axes: expected each axis once, got -2"),
        (
            &[0],
            &[-4],
            "param_axes: expected axes from -3 to 2, got -4",
        ),
        (&[0], &[1, 1], "param_axes: expected each axis once, got 1"),
    ] {
        let error = operation(axes, param_axes).tensors().unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let before = operation(&[0], &[0]);
    let residual = wgpu_norm::Epilogue::new(wgpu_norm::Residual::Before, Activation::None);
    let error = before.with_epilogue(residual).tensors().unwrap_err();
    says(&error, &["residual", "only after"]);

    let gated = operation(&[0], &[0]).with_gate(true);
    assert!(gated.tensors().is_ok());
    let relu = wgpu_norm::Epilogue::new(wgpu_norm::Residual::None, Activation::Relu);
    let layer_norm = Norm::layer(1);
    let of_layer = Operation::new(layer_norm, Forward::default(), &[2, 3], DType::F32);
    for (operation, words) in [
        (of_layer.with_gate(true), "only axes norm has a gate"),
        (gated.clone().with_epilogue(relu), "before an activation"),
    ] {
        let error = operation.tensors().unwrap_err();
        says(&error, &["gate", words]);
    }

    let gpu = &one(false).gpu;
    let layer = GpuAxesNorm::new(gpu, AxesNormOptions::new(&[1], &[0])).unwrap();
    let args = ForwardArgs::new(&[2, 2], &[0.0_f32; 4]).gamma(&[1.0; 3]);
    let error = block_on(layer.forward(args)).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Length {
                tensor: "gamma",
                expected: 2,
                got: 3,
                ..
            }
        ),
        "{error}"
    );
}

/// Parameters of each sample belong to the process that has the sample.
#[test]
fn processes_split_the_parameters_of_samples() {
    let ranks = |param_axes: &[i64], tensor| {
        let norm = Norm::axes(&[2], param_axes);
        let operation = Operation::new(norm, Backward::default(), &[2, 3, 4], DType::F32);
        let mut used = operation.tensors().unwrap().into_iter();
        used.find(|used| used.tensor == tensor).unwrap().ranks
    };
    assert_eq!(ranks(&[0, 2], Tensor::Gamma), Ranks::Split);
    assert_eq!(ranks(&[0, 2], Tensor::DiffGamma), Ranks::Split);
    assert_eq!(ranks(&[2], Tensor::Gamma), Ranks::Same);
    assert_eq!(ranks(&[2], Tensor::DiffGamma), Ranks::Added);
    assert_eq!(ranks(&[2], Tensor::Mean), Ranks::Split);
}
