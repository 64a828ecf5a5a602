//! Activations and residuals behind batch, group and instance norm: what users compose of the parts must come out, forward and
//! back; other libraries' names for it; errors. Every kernel whatever the shape: verify.rs.

use crate::common::errors::says;
use crate::common::{one, random_cases, subjects};
use pollster::block_on;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use wgpu_norm::operators::{directml, onednn};
use wgpu_norm::reference::{Forward, scaled_error, through_activation};
use wgpu_norm::{
    Activation, BackwardOperands, BatchNormBackwardArgs, BatchNormForwardArgs,
    BatchNormForwardOperands, BatchNormInferenceArgs, BatchNormOptions, DType, DataFormat, Error,
    GpuBatchNorm, GpuGroupNorm, GpuInstanceNorm, GroupNormBackwardArgs, GroupNormForwardArgs,
    GroupNormForwardOperands, GroupNormInferenceArgs, GroupNormOptions, InstanceNormOptions,
    Tensor, reference,
};
use wgpu_norm_verify::{Case, Outcome, Random};

const SHAPE: [usize; 3] = [5, 6, 13];
const N: usize = 5 * 6 * 13;

fn with_relu() -> BatchNormOptions {
    BatchNormOptions {
        data_format: DataFormat::Ncx,
        activation: Activation::Relu,
        ..BatchNormOptions::new(1e-5)
    }
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| value.into()).collect()
}

#[track_caller]
fn close(got: &[f32], want: &[f64], scale: &[f64]) {
    let error = scaled_error(got, want, scale);
    assert!(error <= 1.0, "off by {error} tolerances");
}

/// Random tensors: src, residual, diff_dst, gamma, beta.
struct Tensors {
    src: Vec<f32>,
    residual: Vec<f32>,
    diff_dst: Vec<f32>,
    gamma: Vec<f32>,
    beta: Vec<f32>,
}

impl Tensors {
    fn random(seed: u64) -> Self {
        let mut random = Random::new(seed);
        Self {
            src: random.vec(N, 2.0, 1.0),
            residual: random.vec(N, 1.0, 0.0),
            diff_dst: random.vec(N, 1.0, 0.1),
            gamma: random.vec(6, 1.0, 0.5),
            beta: random.vec(6, 0.5, 0.0),
        }
    }

    /// Batch norm's output in float64, before anything follows.
    fn layer(&self) -> Forward {
        reference::BatchNormForward {
            shape: &SHAPE,
            channel_axes: &[false, true, false],
            src: &wide(&self.src),
            gamma: Some(&wide(&self.gamma)),
            beta: Some(&wide(&self.beta)),
            epsilon: 1e-5,
        }
        .train()
        .unwrap()
    }

    /// Batch norm's gradients in float64 of the gradient of its output.
    fn gradients(&self, of_output: &[f64], statistics: &Forward) -> reference::Gradients {
        reference::BatchNorm {
            shape: &SHAPE,
            channel_axes: &[false, true, false],
            src: &wide(&self.src),
            diff_dst: of_output,
            mean: &statistics.mean,
            variance: &statistics.variance,
            gamma: Some(&wide(&self.gamma)),
            epsilon: 1e-5,
            statistics: wgpu_norm::Through::Batch,
            param_grads: wgpu_norm::ParamGrads::Both,
        }
        .backward()
        .unwrap()
    }
}

/// A training step of a block with a residual: the forward pass, its mask, and the gradients by it are those of the parts,
/// one after another.
#[test]
fn a_masked_layer_is_its_parts() {
    for seed in 0..4 {
        let tensors = Tensors::random(seed);
        let layer = tensors.layer();
        let sum = layer
            .clone()
            .followed_by(Activation::None, Some(&wide(&tensors.residual)))
            .unwrap();
        let want = sum.clone().followed_by(Activation::Relu, None).unwrap();
        for subject in subjects() {
            let op = GpuBatchNorm::new(&subject.gpu, with_relu()).unwrap();
            let output = op.forward(BatchNormForwardArgs {
                shape: &SHAPE,
                src: &tensors.src,
                gamma: Some(&tensors.gamma),
                beta: Some(&tensors.beta),
                residual: Some(&tensors.residual),
                running: None,
            });
            let output = block_on(output).unwrap();
            close(&output.dst, &want.dst, &want.dst_scale);
            let mask = output.mask.unwrap();
            assert_eq!(mask.len(), N.div_ceil(32));
            assert_eq!(mask[N / 32] >> (N % 32), 0, "behind the last element");
            for (i, y) in sum.dst.iter().enumerate() {
                let passed = mask[i / 32] >> (i % 32) & 1 == 1;
                assert!(passed == (*y > 0.0) || y.abs() < 1e-5, "{i}: {y}");
            }

            let passed: Vec<f32> = tensors
                .diff_dst
                .iter()
                .enumerate()
                .map(|(i, &diff)| {
                    if mask[i / 32] >> (i % 32) & 1 == 1 {
                        diff
                    } else {
                        0.0
                    }
                })
                .collect();
            let apart = tensors.gradients(&wide(&passed), &layer);
            let grads = op.backward(BatchNormBackwardArgs {
                shape: &SHAPE,
                src: &tensors.src,
                diff_dst: &tensors.diff_dst,
                mean: &output.mean,
                variance: &output.variance,
                gamma: Some(&tensors.gamma),
                beta: None,
                mask: Some(&mask),
            });
            let grads = block_on(grads).unwrap();
            assert_eq!(grads.diff_residual.unwrap(), passed);
            close(&grads.diff_src, &apart.diff_src, &apart.diff_src_scale);
            let diff_beta = grads.diff_beta.unwrap();
            close(&diff_beta, &apart.diff_beta, &apart.diff_beta_scale);
        }
    }
}

/// Without a residual, what passed is found again: whatever the forward pass computed, the gradient agrees with it.
#[test]
fn what_passed_is_found_again() {
    for subject in subjects() {
        let mut tensors = Tensors::random(7);
        let op = GpuBatchNorm::new(&subject.gpu, with_relu()).unwrap();
        let output = op.forward(BatchNormForwardArgs {
            shape: &SHAPE,
            src: &tensors.src,
            gamma: Some(&tensors.gamma),
            beta: Some(&tensors.beta),
            residual: None,
            running: None,
        });
        let output = block_on(output).unwrap();
        assert_eq!(output.mask, None);
        // Rounding decides of what is near 0.
        let layer = tensors.layer();
        for (diff, y) in tensors.diff_dst.iter_mut().zip(&layer.dst) {
            if y.abs() < 1e-5 {
                *diff = 0.0;
            }
        }
        let diff_dst = wide(&tensors.diff_dst);
        let passed = through_activation(Activation::Relu, &layer.dst, &diff_dst).unwrap();
        let apart = tensors.gradients(&passed, &layer);
        let grads = op.backward(BatchNormBackwardArgs {
            shape: &SHAPE,
            src: &tensors.src,
            diff_dst: &tensors.diff_dst,
            mean: &output.mean,
            variance: &output.variance,
            gamma: Some(&tensors.gamma),
            beta: Some(&tensors.beta),
            mask: None,
        });
        let grads = block_on(grads).unwrap();
        close(&grads.diff_src, &apart.diff_src, &apart.diff_src_scale);
        let diff_gamma = grads.diff_gamma.unwrap();
        close(&diff_gamma, &apart.diff_gamma, &apart.diff_gamma_scale);
        assert_eq!(grads.diff_residual, None);
    }
}

/// One group of four: x̂ = −1, −1, 1, 1 but for epsilon, of which relu and silu are known.
#[test]
fn group_and_instance_norm_by_hand() {
    let src = [1.0_f32, 1.0, 3.0, 3.0];
    for subject in subjects() {
        for (activation, low, high) in [
            (Activation::Relu, 0.0_f32, 1.0_f32),
            (Activation::Silu, -0.268_941_4, 0.731_058_6),
        ] {
            let options = GroupNormOptions {
                epsilon: 1e-12,
                activation,
                ..GroupNormOptions::new(1)
            };
            let layer = GpuGroupNorm::new(&subject.gpu, options).unwrap();
            let args = GroupNormForwardArgs::<f32, f32> {
                shape: &[1, 2, 2],
                src: &src,
                gamma: None,
                beta: None,
                residual: None,
            };
            let output = block_on(layer.forward(args)).unwrap();
            let is = |got: &[f32], want: [f32; 4]| {
                let near = got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-5);
                assert!(near, "{activation}: {got:?}, not {want:?}");
            };
            is(&output.dst, [low, low, high, high]);
            let dst = block_on(layer.infer(GroupNormInferenceArgs {
                shape: &[1, 2, 2],
                src: &src,
                mean: &[2.0],
                variance: &[1.0],
                gamma: None::<&[f32]>,
                beta: None,
                residual: None,
            }))
            .unwrap();
            is(&dst, [low, low, high, high]);
            let of_channels = InstanceNormOptions {
                epsilon: 1e-12,
                activation,
                ..InstanceNormOptions::default()
            };
            let layer = GpuInstanceNorm::new(&subject.gpu, of_channels).unwrap();
            let output = block_on(layer.forward(GroupNormForwardArgs {
                shape: &[1, 1, 4],
                ..args
            }))
            .unwrap();
            is(&output.dst, [low, low, high, high]);
            // diff_beta is the sum of what passes: silu's slopes at −1 and 1 are 0.0723295 and 0.9276705.
            let grads = block_on(layer.backward(GroupNormBackwardArgs {
                shape: &[1, 1, 4],
                src: &src,
                diff_dst: &[8.0, 4.0, 2.0, 1.0],
                mean: &[2.0],
                variance: &[1.0],
                gamma: None::<&[f32]>,
                beta: None,
                mask: None,
            }))
            .unwrap();
            let [at_low, at_high] = match activation {
                Activation::Silu => [0.072_329_5, 0.927_670_5],
                _ => [0.0, 1.0],
            };
            let sum = 12.0 * at_low + 3.0 * at_high;
            assert!((grads.diff_beta.unwrap()[0] - sum).abs() < 1e-4);
        }
    }
}

/// NaN passes, as PyTorch has it, forward and back.
#[test]
fn not_a_number_passes() {
    for subject in subjects() {
        let op = GpuBatchNorm::new(&subject.gpu, with_relu()).unwrap();
        let dst = op.infer(BatchNormInferenceArgs {
            shape: &[1, 1, 4],
            src: &[f32::NAN, -1.0, 2.0, f32::INFINITY],
            mean: &[0.0],
            variance: &[1.0],
            gamma: None::<&[f32]>,
            beta: None,
            residual: Some(&[0.0, 0.0, f32::NAN, f32::NEG_INFINITY]),
        });
        let dst = block_on(dst).unwrap();
        assert!(dst[0].is_nan() && dst[1] == 0.0 && dst[2].is_nan() && dst[3].is_nan());
        let options = BatchNormOptions {
            statistics: wgpu_norm::Through::Constant,
            ..with_relu()
        };
        let op = GpuBatchNorm::new(&subject.gpu, options).unwrap();
        let grads = op.backward(BatchNormBackwardArgs {
            shape: &[1, 1, 4],
            src: &[f32::NAN, -1.0, 2.0, -0.0],
            diff_dst: &[4.0; 4],
            mean: &[0.0],
            variance: &[1.0],
            gamma: None::<&[f32]>,
            beta: None,
            mask: None,
        });
        let diff_src = block_on(grads).unwrap().diff_src;
        let passed: Vec<bool> = diff_src.iter().map(|diff| *diff > 3.0).collect();
        assert_eq!(passed, [true, false, true, false], "{diff_src:?}");
    }
}

/// Everything that the list of cases can say, at random.
#[test]
fn random_problems_end_as_the_reference() {
    let shape = (1..5_usize, 1..9_usize, 1..150_usize);
    let choices = (0..6_usize, 0..4_usize, 0..5_usize, any::<[bool; 6]>());
    let config = Config {
        cases: random_cases(40),
        rng_seed: RngSeed::Fixed(3),
        failure_persistence: None,
        ..Config::default()
    };
    let cases = (shape, choices);
    TestRunner::new(config)
        .run(&cases, |((n, c, x), (operator, ending, types, flags))| {
            let [last, no_gamma, no_beta, exact, repeats, frozen] = flags;
            let operator = [
                "batch_norm_forward",
                "batch_norm_backward",
                "batch_norm_inference",
                "group_norm_forward",
                "group_norm_backward",
                "instance_norm_backward",
            ][operator];
            let ending = ["relu", "silu", "relu/residual", "residual"][ending];
            let backward = operator.ends_with("backward");
            // A residual alone is nothing to the gradient.
            let ending = if backward && ending == "residual" {
                "relu"
            } else {
                ending
            };
            let groups = (1..=c).rev().filter(|groups| c % groups == 0);
            let groups = match operator.starts_with("group") {
                true => format!("/groups_{}", groups.take(2).last().unwrap_or(1)),
                false => String::new(),
            };
            let types = ["f32", "f16", "bf16-f32", "f16-f16-f32", "f32"][types];
            let shape = if last { [n, x, c] } else { [n, c, x] };
            let optional = |on: bool, token: &'static str| if on { token } else { "" };
            let id = format!(
                "{operator}/{}x{}x{}/{}{groups}/{ending}/{types}{}{}{}{}{}",
                shape[0],
                shape[1],
                shape[2],
                if last { "nxc" } else { "ncx" },
                optional(no_gamma, "/no_gamma"),
                optional(no_beta, "/no_beta"),
                optional(exact, "/exact"),
                optional(repeats, "/repeats"),
                optional(backward && frozen, "/frozen"),
            );
            let case: Case = id.parse().unwrap();
            for subject in subjects().iter().filter(|subject| !subject.checked) {
                if !subject.gpu.supports(case.operation().types.data) {
                    continue;
                }
                match block_on(case.run(&subject.gpu)).unwrap() {
                    Outcome::Ran { fault, .. } => {
                        prop_assert!(fault.is_none(), "{id} on {}: {fault:?}", subject.name);
                    }
                    other => prop_assert!(false, "{id} on {}: {other:?}", subject.name),
                }
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn what_does_not_fit_is_refused() {
    let gpu = &one(false).gpu;
    let tensors = Tensors::random(1);
    let op = GpuBatchNorm::new(gpu, with_relu()).unwrap();
    let plain = BatchNormOptions {
        activation: Activation::None,
        ..with_relu()
    };
    let plain = GpuBatchNorm::new(gpu, plain).unwrap();
    let mask = vec![0; N.div_ceil(32)];
    let args = BatchNormBackwardArgs {
        shape: &SHAPE,
        src: &tensors.src,
        diff_dst: &tensors.diff_dst,
        mean: &[0.0; 6],
        variance: &[1.0; 6],
        gamma: Some(&tensors.gamma),
        beta: None,
        mask: Some(&mask),
    };
    assert!(block_on(op.backward(args)).is_ok());
    let with = |mask: &[u32], beta| {
        let args = BatchNormBackwardArgs {
            mask: Some(mask),
            beta,
            ..args
        };
        block_on(op.backward(args)).unwrap_err()
    };
    says(&with(&mask[1..], None), &["mask", "13", "12"]);
    let both = with(&mask, Some(&tensors.beta));
    says(&both, &["beta", "mask, which says what passed"]);
    let error = block_on(plain.backward(args)).unwrap_err();
    says(&error, &["mask", "none without an activation"]);
    let beta = BatchNormBackwardArgs {
        beta: Some(&tensors.beta),
        mask: None,
        ..args
    };
    let error = block_on(plain.backward(beta)).unwrap_err();
    says(&error, &["beta", "none without an activation"]);
    let short = BatchNormBackwardArgs {
        beta: Some(&tensors.beta[1..]),
        mask: None,
        ..args
    };
    let error = block_on(op.backward(short)).unwrap_err();
    says(&error, &["beta", "6", "5"]);
    let forward = BatchNormForwardArgs::<f32, f32> {
        shape: &SHAPE,
        src: &tensors.src,
        gamma: None,
        beta: None,
        residual: Some(&tensors.residual[3..]),
        running: None,
    };
    let error = block_on(op.forward(forward)).unwrap_err();
    says(&error, &["residual", "390", "387"]);

    let silu = GroupNormOptions {
        activation: Activation::Silu,
        ..GroupNormOptions::new(3)
    };
    let silu = GpuGroupNorm::new(gpu, silu).unwrap();
    let is_refused = |error: Error, words: &str| says(&error, &["activation", words, "silu"]);
    let plan = |types, residual| {
        let operands = GroupNormForwardOperands {
            residual,
            ..Default::default()
        };
        silu.plan_forward(&SHAPE, types, operands).unwrap_err()
    };
    is_refused(plan(DType::F32, true), "with a residual or a mask");
    is_refused(plan(DType::F64, false), "for f64 data");
    let operands = BackwardOperands {
        mask: true,
        ..Default::default()
    };
    let error = silu.plan_backward(&SHAPE, DType::F32, operands);
    is_refused(error.unwrap_err(), "with a residual or a mask");
}

/// A device with four storage buffers takes a ReLU; for a mask it has too few, and says so.
#[test]
fn masks_need_more_buffers() {
    let few = one(false).with_profile("four buffers", |profile| profile.max_storage_buffers = 4);
    let op = GpuBatchNorm::new(&few.gpu, with_relu()).unwrap();
    assert!(op.plan_backward(&SHAPE, DType::F32, true).is_ok());
    let with_beta = BackwardOperands {
        gamma: true,
        beta: true,
        mask: false,
    };
    assert!(op.plan_backward(&SHAPE, DType::F32, with_beta).is_ok());
    let masked = BackwardOperands {
        mask: true,
        ..Default::default()
    };
    let error = op.plan_backward(&SHAPE, DType::F32, masked).unwrap_err();
    says(&error, &["max_storage_buffers_per_shader_stage", "6", "4"]);
    let operands = BatchNormForwardOperands {
        residual: true,
        ..Default::default()
    };
    let error = op.plan_forward(&SHAPE, DType::F32, operands).unwrap_err();
    says(&error, &["max_storage_buffers_per_shader_stage", "5", "4"]);
}

/// oneDNN's primitive and DirectML's operator under their own names.
#[test]
fn operators_are_the_layer() {
    let gpu = &one(false).gpu;
    let tensors = Tensors::random(2);
    let layer = GpuBatchNorm::new(gpu, with_relu()).unwrap();
    let want = layer.forward(BatchNormForwardArgs {
        shape: &SHAPE,
        src: &tensors.src,
        gamma: Some(&tensors.gamma),
        beta: Some(&tensors.beta),
        residual: Some(&tensors.residual),
        running: None,
    });
    let want = block_on(want).unwrap();
    let mask = want.mask.clone().unwrap();

    let op = onednn::BatchNormalization {
        fuse_norm: onednn::FuseNorm::AddRelu,
        ..onednn::BatchNormalization::new(1e-5)
    };
    let inputs = onednn::BatchNormalizationInputs {
        shape: &SHAPE,
        src: &tensors.src,
        src_1: Some(&tensors.residual),
        mean: None,
        variance: None,
        scale: Some(&tensors.gamma[..]),
        shift: Some(&tensors.beta),
    };
    let got = block_on(op.forward(gpu, inputs)).unwrap();
    assert_eq!((&got.dst, &got.workspace), (&want.dst, &want.mask));
    let operation = op.operation::<f32, f32>(&SHAPE, true, true).unwrap();
    let buffers = operation.plan(gpu.profile()).unwrap().buffers();
    let used = buffers.iter().find(|used| used.tensor == Tensor::Mask);
    assert_eq!(used.unwrap().bytes, 4 * mask.len() as u64);
    let without = onednn::BatchNormalizationInputs {
        src_1: None,
        ..inputs
    };
    let error = block_on(op.forward(gpu, without)).unwrap_err();
    says(&error, &["src_1", "fuse_norm_add_relu is true", "none"]);
    let global = onednn::BatchNormalization {
        use_global_stats: true,
        ..op
    };
    let error = block_on(global.forward(gpu, inputs)).unwrap_err();
    says(&error, &["mean", "use_global_stats is true"]);
    let given = onednn::BatchNormalizationInputs {
        mean: Some(&want.mean[..]),
        variance: Some(&want.variance),
        ..inputs
    };
    let by_given = block_on(global.forward(gpu, given)).unwrap();
    let pairs = by_given.dst.iter().zip(&want.dst);
    assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-5));
    assert_eq!(by_given.workspace, None);

    let op = onednn::BatchNormalizationBackward {
        fuse_norm: onednn::FuseNorm::AddRelu,
        ..onednn::BatchNormalizationBackward::new(1e-5)
    };
    let inputs = onednn::BatchNormalizationBackwardInputs {
        shape: &SHAPE,
        src: &tensors.src,
        mean: &want.mean[..],
        variance: &want.variance,
        diff_dst: &tensors.diff_dst,
        scale: Some(&tensors.gamma),
        shift: None,
        workspace: Some(&mask),
    };
    let got = block_on(op.backward(gpu, inputs)).unwrap();
    let grads = layer.backward(BatchNormBackwardArgs {
        shape: &SHAPE,
        src: &tensors.src,
        diff_dst: &tensors.diff_dst,
        mean: &want.mean,
        variance: &want.variance,
        gamma: Some(&tensors.gamma),
        beta: None,
        mask: Some(&mask),
    });
    let grads = block_on(grads).unwrap();
    assert_eq!(got.diff_src, grads.diff_src);
    assert_eq!(got.diff_src_1, grads.diff_residual);
    assert_eq!(got.diff_scale, grads.diff_gamma);
    let relu = onednn::BatchNormalizationBackward {
        fuse_norm: onednn::FuseNorm::Relu,
        ..op
    };
    let error = block_on(relu.backward(gpu, inputs)).unwrap_err();
    says(&error, &["workspace", "fuse_norm_add_relu is false"]);

    let op = directml::BatchNormalizationTraining {
        fused_activation: Some(directml::FusedActivation::Relu),
        ..directml::BatchNormalizationTraining::new(1e-5)
    };
    let inputs = directml::TrainingInputs {
        input_dimensions: &SHAPE,
        scale_dimensions: &[1, 6, 1],
        input_tensor: &tensors.src,
        scale_tensor: &tensors.gamma,
        bias_tensor: &tensors.beta,
        fused_add_tensor: Some(&tensors.residual),
    };
    let got = block_on(op.forward(gpu, inputs)).unwrap();
    assert_eq!(got.output_tensor, want.dst);
    let by_channel = |tensor| directml::Parameter {
        dimensions: &[1, 6, 1],
        tensor,
    };
    let op = directml::BatchNormalization {
        fused_activation: Some(directml::FusedActivation::Relu),
        ..directml::BatchNormalization::new(1e-5)
    };
    let inputs = directml::BatchNormalizationInputs {
        input_dimensions: &SHAPE,
        input_tensor: &tensors.src,
        mean_tensor: by_channel(&want.mean[..]),
        variance_tensor: by_channel(&want.variance),
        scale_tensor: by_channel(&tensors.gamma),
        bias_tensor: by_channel(&tensors.beta),
    };
    let got = block_on(op.forward(gpu, inputs)).unwrap();
    let layer = tensors.layer();
    let relu = layer.followed_by(Activation::Relu, None).unwrap();
    close(&got, &relu.dst, &relu.dst_scale);
}

/// SiLU and its gradient fall off like exp(y): they are right to the last bits of that as long as they are normal numbers.
#[test]
fn silu_keeps_its_tail() {
    let src: Vec<f32> = (0..4000).map(|i| -94.0 + 0.025 * i as f32).collect();
    let shape = [src.len(), 1];
    let diff_dst = vec![1.0; src.len()];
    // Beside epsilon a deviation of 1, so that y is src.
    let (mean, variance): (&[f32], &[f32]) = (&[0.0], &[0.5]);
    let options = BatchNormOptions {
        statistics: wgpu_norm::Through::Constant,
        activation: Activation::Silu,
        ..BatchNormOptions::new(0.5)
    };
    let compare = |what: &str, got: &[f32], want: &dyn Fn(f64) -> f64| {
        for (&y, &got) in src.iter().zip(got) {
            let want = want(y.into());
            if want.abs() >= f32::MIN_POSITIVE.into() {
                // exp is off by as many units as its argument has.
                let allowed =
                    want.abs() * f64::from(2.0 * y.abs() + 16.0) * f64::from(f32::EPSILON);
                // Near its own zero the gradient is a difference of terms as large as 1.
                let of_terms = f64::from(y.abs() < 4.0) * 16.0 * f64::from(f32::EPSILON);
                let error = (f64::from(got) - want).abs();
                assert!(
                    error <= allowed + of_terms,
                    "{what} of {y}: {got}, not {want}"
                );
            }
        }
    };
    for subject in subjects() {
        let op = GpuBatchNorm::new(&subject.gpu, options).unwrap();
        let output = op.infer(BatchNormInferenceArgs {
            shape: &shape,
            src: &src,
            mean,
            variance,
            gamma: None::<&[f32]>,
            beta: None,
            residual: None,
        });
        compare("silu", &block_on(output).unwrap(), &|y| {
            y / (1.0 + (-y).exp())
        });
        let grads = op.backward(BatchNormBackwardArgs {
            shape: &shape,
            src: &src,
            diff_dst: &diff_dst,
            mean,
            variance,
            gamma: None::<&[f32]>,
            beta: None,
            mask: None,
        });
        let grads = block_on(grads).unwrap();
        compare("its gradient", &grads.diff_src, &|y| {
            let s = 1.0 / (1.0 + (-y).exp());
            s * (1.0 + y / (1.0 + y.exp()))
        });
    }
}
