//! Activations and residuals after batch, group and instance norm: the result must be what users get by composing the
//! parts, forward and backward; other libraries' names for it; errors. For every kernel with any shape, see verify.rs.

use crate::common::data::{Random, close, computed, to_f64};
use crate::common::errors::says;
use crate::common::{Subject, one, random_cases, subjects};
use half::{bf16, f16};
use pollster::block_on;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use wgpu_norm::{
    Activation, Backward, BackwardArgs, BatchNormOptions, DType, DataFormat, Epilogue, Error,
    Forward, ForwardArgs, GpuBatchNorm, GpuGroupNorm, GpuInstanceNorm, GroupNormOptions,
    InferenceArgs, InstanceNormOptions, Norm, Operation, Pass, Residual, SavedRef, Tensor, Through,
};
use wgpu_norm_verify::reference::{Computed, compute, scaled_error};
use wgpu_norm_verify::{Case, Outcome};

const SHAPE: [usize; 3] = [5, 6, 13];
const N: usize = 5 * 6 * 13;

fn with_relu() -> BatchNormOptions {
    BatchNormOptions::new(DataFormat::Ncx).activation(Activation::Relu)
}

/// Batch norm as an operation.
fn batch_norm(pass: impl Into<Pass>, epilogue: Epilogue) -> Operation {
    let norm = Norm::batch(DataFormat::Ncx);
    Operation::new(norm, pass, &SHAPE, DType::F32).with_epilogue(epilogue)
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

    fn forward(&self) -> ForwardArgs<'_, f32> {
        ForwardArgs::new(&SHAPE, &self.src)
            .gamma(&self.gamma)
            .beta(&self.beta)
    }

    fn compute(&self, operation: &Operation, others: &[(Tensor, &[f64])]) -> Vec<Computed> {
        let [src, gamma, beta] = [&self.src, &self.gamma, &self.beta].map(|values| to_f64(values));
        let mut inputs = vec![
            (Tensor::Src, &*src),
            (Tensor::Gamma, &gamma),
            (Tensor::Beta, &beta),
        ];
        inputs.extend(others);
        compute(operation, &inputs).unwrap()
    }

    /// Batch norm's output in float64, without residual and activation, and the statistics.
    fn layer(&self) -> Vec<Computed> {
        self.compute(&batch_norm(Forward::default(), Epilogue::default()), &[])
    }

    /// Batch norm's gradients in float64, from the gradient of its output.
    fn gradients(&self, of_output: &[f64], layer: &[Computed]) -> Vec<Computed> {
        let operation = batch_norm(Backward::default(), Epilogue::default());
        let statistic = |tensor| (tensor, &*computed(layer, tensor).values);
        let statistics = [Tensor::Mean, Tensor::Variance].map(statistic);
        let diff_dst = (Tensor::DiffDst, of_output);
        self.compute(&operation, &[diff_dst, statistics[0], statistics[1]])
    }
}

fn after_relu(values: &[f64]) -> Vec<f64> {
    values.iter().map(|value| value.max(0.0)).collect()
}

/// A training step of a block with a residual: the forward pass, its mask, and the gradients from that mask are those
/// of the parts, one after another.
#[test]
fn a_masked_layer_is_its_parts() {
    for seed in 0..4 {
        let tensors = Tensors::random(seed);
        let layer = tensors.layer();
        let dst = computed(&layer, Tensor::Dst);
        let plus = |values: &[f64], added: &dyn Fn(f64) -> f64| -> Vec<f64> {
            let pairs = values.iter().zip(to_f64(&tensors.residual));
            pairs.map(|(value, r)| value + added(r)).collect()
        };
        let sum = plus(&dst.values, &|r| r);
        let scale = plus(&dst.scale, &f64::abs);
        for subject in subjects() {
            let op = GpuBatchNorm::new(&subject.gpu, with_relu()).unwrap();
            let args = tensors.forward().residual_after(&tensors.residual);
            let output = block_on(op.forward(args)).unwrap();
            let error = scaled_error(&output.dst, &after_relu(&sum), &scale);
            assert!(error <= 1.0, "dst is off by {error} tolerances");
            let mask = output.saved.mask.as_deref().unwrap();
            assert_eq!(mask.len(), N.div_ceil(32));
            assert_eq!(mask[N / 32] >> (N % 32), 0, "behind the last element");
            let passes = |i: usize| mask[i / 32] >> (i % 32) & 1 == 1;
            for (i, y) in sum.iter().enumerate() {
                assert!(passes(i) == (*y > 0.0) || y.abs() < 1e-5, "{i}: {y}");
            }

            let diff_dst = tensors.diff_dst.iter().enumerate();
            let passed = diff_dst.map(|(i, &diff)| if passes(i) { diff } else { 0.0 });
            let passed: Vec<f32> = passed.collect();
            let apart = tensors.gradients(&to_f64(&passed), &layer);
            let args = BackwardArgs::new(&SHAPE, &tensors.src, &tensors.diff_dst, &output.saved);
            let args = args.gamma(&tensors.gamma).beta(&tensors.beta);
            let grads = block_on(op.backward(args)).unwrap();
            assert_eq!(grads.diff_residual.unwrap(), passed);
            let what = &subject.name;
            close(&grads.diff_src, &apart, Tensor::DiffSrc, what);
            close(&grads.diff_beta.unwrap(), &apart, Tensor::DiffBeta, what);
        }
    }
}

/// Without a residual, the gradient recomputes what passed the activation, and agrees with whatever the forward pass
/// computed.
#[test]
fn what_passed_is_recomputed() {
    for subject in subjects() {
        let mut tensors = Tensors::random(7);
        let op = GpuBatchNorm::new(&subject.gpu, with_relu()).unwrap();
        let output = block_on(op.forward(tensors.forward())).unwrap();
        assert_eq!(output.saved.mask, None);
        let layer = tensors.layer();
        let dst = &computed(&layer, Tensor::Dst).values;
        let mut passed = to_f64(&tensors.diff_dst);
        for (i, y) in dst.iter().enumerate() {
            // Rounding decides whether values near 0 pass.
            if y.abs() < 1e-5 {
                tensors.diff_dst[i] = 0.0;
            }
            if *y < 1e-5 {
                passed[i] = 0.0;
            }
        }
        let apart = tensors.gradients(&passed, &layer);
        let statistics = &output.saved;
        let args = BackwardArgs::new(&SHAPE, &tensors.src, &tensors.diff_dst, statistics);
        let args = args.gamma(&tensors.gamma).beta(&tensors.beta);
        let grads = block_on(op.backward(args)).unwrap();
        let what = &subject.name;
        close(&grads.diff_src, &apart, Tensor::DiffSrc, what);
        close(&grads.diff_gamma.unwrap(), &apart, Tensor::DiffGamma, what);
        assert_eq!(grads.diff_residual, None);
    }
}

/// One group of four, in which x̂ = −1, −1, 1, 1 apart from epsilon; relu and silu of these are known.
#[test]
fn group_and_instance_norm_by_hand() {
    let src = [1.0_f32, 1.0, 3.0, 3.0];
    let statistics = SavedRef::moments(&[2.0], &[1.0]);
    for subject in subjects() {
        for (activation, low, high) in [
            (Activation::Relu, 0.0_f32, 1.0_f32),
            (Activation::Silu, -0.268_941_4, 0.731_058_6),
        ] {
            let is = |got: &[f32]| {
                let want = [low, low, high, high];
                let near = got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-5);
                assert!(near, "{activation}: {got:?}, not {want:?}");
            };
            let options = GroupNormOptions::new(1, DataFormat::Ncx).epsilon(1e-12);
            let layer = GpuGroupNorm::new(&subject.gpu, options.activation(activation)).unwrap();
            let args = ForwardArgs::new(&[1, 2, 2], &src);
            is(&block_on(layer.forward(args)).unwrap().dst);
            let args = InferenceArgs::new(&[1, 2, 2], &src, statistics);
            is(&block_on(layer.infer(args)).unwrap());
            let options = InstanceNormOptions::new(DataFormat::Ncx).epsilon(1e-12);
            let layer = GpuInstanceNorm::new(&subject.gpu, options.activation(activation)).unwrap();
            let args = ForwardArgs::new(&[1, 1, 4], &src);
            is(&block_on(layer.forward(args)).unwrap().dst);
            // diff_beta is the sum of diff_dst times the slopes; silu's slopes at −1 and 1 are 0.0723295 and 0.9276705.
            let args = BackwardArgs::new(&[1, 1, 4], &src, &[8.0, 4.0, 2.0, 1.0], statistics)
                .without_beta();
            let grads = block_on(layer.backward(args)).unwrap();
            let [at_low, at_high] = match activation {
                Activation::Silu => [0.072_329_5, 0.927_670_5],
                _ => [0.0, 1.0],
            };
            let sum = 12.0 * at_low + 3.0 * at_high;
            assert!((grads.diff_beta.unwrap()[0] - sum).abs() < 1e-4);
        }
    }
}

/// NaN passes, as in PyTorch, forward and backward.
#[test]
fn not_a_number_passes() {
    let statistics = SavedRef::moments(&[0.0], &[1.0]);
    for subject in subjects() {
        let op = GpuBatchNorm::new(&subject.gpu, with_relu()).unwrap();
        let src = [f32::NAN, -1.0, 2.0, f32::INFINITY];
        let args = InferenceArgs::new(&[1, 1, 4], &src, statistics);
        let args = args.residual_after(&[0.0, 0.0, f32::NAN, f32::NEG_INFINITY]);
        let dst = block_on(op.infer(args)).unwrap();
        assert!(dst[0].is_nan() && dst[1] == 0.0 && dst[2].is_nan() && dst[3].is_nan());
        let op = GpuBatchNorm::new(&subject.gpu, with_relu().through(Through::Constant)).unwrap();
        let src = [f32::NAN, -1.0, 2.0, -0.0];
        let args = BackwardArgs::new(&[1, 1, 4], &src, &[4.0; 4], statistics).without_beta();
        let diff_src = block_on(op.backward(args)).unwrap().diff_src;
        let passed: Vec<bool> = diff_src.iter().map(|diff| *diff > 3.0).collect();
        assert_eq!(passed, [true, false, true, false], "{diff_src:?}");
    }
}

/// At −∞ an activation and its slope have their limit, 0; at ∞ the slope is 1. Far below 0, too, nothing is left of a
/// large diff_dst.
#[test]
fn infinity_has_the_limit() {
    let statistics = SavedRef::moments(&[0.0], &[1.0]);
    let src = [
        f32::NEG_INFINITY,
        -1e30,
        -300.0,
        f32::INFINITY,
        1e30,
        f32::NAN,
    ];
    let shape = [1, 1, 6];
    for (_, activation) in &Activation::NAMES[1..] {
        let options = BatchNormOptions::new(DataFormat::Ncx).activation(*activation);
        for subject in subjects() {
            let what = format!("{activation} on {}", subject.name);
            let op = GpuBatchNorm::new(&subject.gpu, options.clone()).unwrap();
            let dst = block_on(op.infer(InferenceArgs::new(&shape, &src, statistics))).unwrap();
            assert_eq!(dst[..4], [0.0, 0.0, 0.0, f32::INFINITY], "{what}");
            assert!(dst[4] > 0.99e30 && dst[5].is_nan(), "{what}: {dst:?}");
            let constant = options.clone().through(Through::Constant);
            let op = GpuBatchNorm::new(&subject.gpu, constant).unwrap();
            let args = BackwardArgs::new(&shape, &src, &[1e34; 6], statistics).without_beta();
            let grads = block_on(op.backward(args)).unwrap();
            assert_eq!(grads.diff_src[..3], [0.0; 3], "{what}");
            for passed in &grads.diff_src[3..5] {
                assert!((passed / 1e34 - 1.0).abs() < 1e-5, "{what}: {passed}");
            }
        }
        // The reference agrees, with a tolerance of ordinary size.
        let norm = Norm::batch(DataFormat::Ncx);
        let epilogue = Epilogue::new(Residual::None, *activation);
        let of = |pass: Pass| {
            let operation = Operation::new(norm.clone(), pass, &shape, DType::F32);
            let operation = operation.with_params(false, false).with_epilogue(epilogue);
            let inputs: [(Tensor, &[f64]); 4] = [
                (Tensor::Src, &to_f64(&src)),
                (Tensor::DiffDst, &[1.0; 6]),
                (Tensor::Mean, &[0.0]),
                (Tensor::Variance, &[1.0]),
            ];
            compute(&operation, &inputs).unwrap().remove(0)
        };
        let dst = of(Pass::Inference);
        assert_eq!((dst.values[0], dst.scale[0]), (0.0, 0.0), "{activation}");
        let diff_src = of(Backward::default().with_through(Through::Constant).into());
        for (at, want) in [(0, 0.0), (3, 1.0)] {
            let r = 1.0 / (1.0 + 1e-5_f64).sqrt();
            assert_eq!(diff_src.values[at], r * want, "{activation}");
            assert!(diff_src.scale[at] <= 1.0, "{activation}");
        }
    }
}

/// Everything that the list of cases can express, at random.
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
            // A residual alone does not affect the gradient.
            let ending = match ending {
                "residual" if backward => "relu",
                other => other,
            };
            let groups = (1..=c).rev().filter(|groups| c % groups == 0);
            let groups = match operator.starts_with("group") {
                true => format!("/groups_{}", groups.take(2).last().unwrap_or(1)),
                false => String::new(),
            };
            let types = ["f32", "f16", "bf16-f32", "f16-f16-f32", "f32"][types];
            let shape = match last {
                true => format!("{n}x{x}x{c}/nxc"),
                false => format!("{n}x{c}x{x}/ncx"),
            };
            let mut id = format!("{operator}/{shape}{groups}/{ending}/{types}");
            for (there, token) in [
                (no_gamma, "/no_gamma"),
                (no_beta, "/no_beta"),
                (exact, "/exact"),
                (repeats, "/repeats"),
                (backward && frozen, "/frozen"),
            ] {
                id += if there { token } else { "" };
            }
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
    let plain = GpuBatchNorm::new(gpu, with_relu().activation(Activation::None)).unwrap();
    let mask = &vec![5_u32; N.div_ceil(32)][..];
    let args = |beta, mask| {
        let statistics = SavedRef::moments(&[0.0; 6], &[1.0; 6]);
        let args = BackwardArgs::new(&SHAPE, &tensors.src, &tensors.diff_dst, statistics);
        args.gamma(&*tensors.gamma).beta(beta).mask(mask)
    };
    let run = |op: &GpuBatchNorm, beta, mask| block_on(op.backward(args(beta, mask)));
    let masked = run(&op, None, Some(mask)).unwrap();
    let error = run(&op, None, Some(&mask[1..])).unwrap_err();
    says(&error, &["mask", "13", "12"]);
    let error = run(&plain, None, Some(mask)).unwrap_err();
    says(&error, &["mask", "none without an activation"]);
    // beta may be given even if nothing depends on it, but must have the right length.
    let (beta, short) = (Some(&*tensors.beta), Some(&tensors.beta[1..]));
    assert_eq!(run(&op, beta, Some(mask)).unwrap(), masked);
    let without = run(&plain, None, None).unwrap();
    assert_eq!(run(&plain, beta, None).unwrap(), without);
    for (op, mask) in [(&op, None), (&op, Some(mask)), (&plain, None)] {
        says(&run(op, short, mask).unwrap_err(), &["beta", "6", "5"]);
    }
    let args = ForwardArgs::new(&SHAPE, &tensors.src).residual_after(&tensors.residual[3..]);
    let error = block_on(op.forward(args)).unwrap_err();
    says(&error, &["residual", "390", "387"]);

    let silu = |pass: Pass, dtype, residual| -> Error {
        let norm = Norm::group(3, DataFormat::Ncx);
        let operation = Operation::new(norm, pass, &SHAPE, dtype);
        let operation = operation.with_epilogue(Epilogue::new(residual, Activation::Silu));
        operation.plan(gpu.profile()).unwrap_err()
    };
    for pass in [Pass::from(Forward::default()), Backward::default().into()] {
        let error = silu(pass, DType::F32, Residual::After);
        says(&error, &["activation", "with a residual or a mask", "silu"]);
        let error = silu(pass, DType::F64, Residual::None);
        says(&error, &["activation", "for f64 data", "silu"]);
    }
}

/// A device with four storage buffers supports a ReLU; it has too few for a mask, and says so.
#[test]
fn masks_need_more_buffers() {
    let few = one(false).with_profile("four buffers", |profile| profile.max_storage_buffers = 4);
    let plan = |pass: Pass, residual, (gamma, beta)| {
        let operation = batch_norm(pass, Epilogue::new(residual, Activation::Relu));
        let operation = operation.with_params(gamma, beta);
        operation.plan(few.gpu.profile()).map(drop)
    };
    let backward = Backward::default().into();
    assert_eq!(plan(backward, Residual::None, (true, false)), Ok(()));
    assert_eq!(plan(backward, Residual::None, (true, true)), Ok(()));
    let is_refused = |pass, needed| {
        let error = plan(pass, Residual::After, (false, false)).unwrap_err();
        let words = ["max_storage_buffers_per_shader_stage", needed, "4"];
        says(&error, &words);
    };
    is_refused(backward, "6");
    is_refused(Forward::default().into(), "5");
}

/// An activation of src and its gradient, by a batch norm that does not change src.
fn curve(subject: &Subject, activation: Activation, src: &[f32]) -> [Vec<f32>; 2] {
    let shape = [src.len(), 1];
    // With epsilon, a deviation of 1, so that y is src.
    let statistics = SavedRef::moments(&[0.0], &[0.5]);
    let options = BatchNormOptions::new(DataFormat::Nxc)
        .epsilon(0.5)
        .through(Through::Constant)
        .activation(activation);
    let op = GpuBatchNorm::new(&subject.gpu, options).unwrap();
    let args = InferenceArgs::new(&shape, src, statistics);
    let dst = block_on(op.infer(args)).unwrap();
    let diff_dst = vec![1.0; src.len()];
    let args = BackwardArgs::new(&shape, src, &diff_dst, statistics).without_beta();
    let grads = block_on(op.backward(args)).unwrap();
    [dst, grads.diff_src]
}

/// SiLU and its gradient fall off like exp(y). They are correct to the last bits of that while they are normal numbers.
#[test]
fn silu_keeps_its_tail() {
    let src: Vec<f32> = (0..4000).map(|i| -94.0 + 0.025 * i as f32).collect();
    let compare = |what: &str, got: &[f32], want: &dyn Fn(f64) -> f64| {
        for (&y, &got) in src.iter().zip(got) {
            let want = want(y.into());
            if want.abs() >= f32::MIN_POSITIVE.into() {
                // exp is off by as many units as its argument.
                let allowed =
                    want.abs() * f64::from(2.0 * y.abs() + 16.0) * f64::from(f32::EPSILON);
                // Near its own zero, the gradient is a difference of terms as large as 1.
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
        let [dst, diff_src] = curve(subject, Activation::Silu, &src);
        compare("silu", &dst, &|y| y / (1.0 + (-y).exp()));
        compare("its gradient", &diff_src, &|y| {
            let s = 1.0 / (1.0 + (-y).exp());
            s * (1.0 + y / (1.0 + y.exp()))
        });
    }
}

/// The complementary error function, by its continued fraction; for small arguments, by the series of the error
/// function.
fn erfc(x: f64) -> f64 {
    if x < 0.0 {
        return 2.0 - erfc(-x);
    }
    let scale = (-x * x).exp() / std::f64::consts::PI.sqrt();
    if x < 2.5 {
        let (mut term, mut sum) = (x, x);
        for n in 1..80 {
            term *= 2.0 * x * x / (2.0 * f64::from(n) + 1.0);
            sum += term;
        }
        return 1.0 - 2.0 * scale * sum;
    }
    let fraction = (1..120)
        .rev()
        .fold(x, |below, n| x + f64::from(n) / 2.0 / below);
    scale / fraction
}

/// GELU and its gradient, for every f16 and bf16, and f32 in between: within 2.4e-7 of max(|y|, 1); where they fall
/// off, within a relative error of 1e-4 while they are normal numbers.
#[test]
fn gelu_is_right_everywhere() {
    let finite = |bits: u16| {
        [
            f16::from_bits(bits).to_f32(),
            bf16::from_bits(bits).to_f32(),
        ]
    };
    let of_16_bits = (0..=u16::MAX).flat_map(finite).filter(|y| y.abs() < 1e18);
    let dense = (0..60_000).map(|i| -15.0 + 0.0005 * i as f32);
    let src: Vec<f32> = of_16_bits.chain(dense).collect();
    let gaussian = |y: f64| (-0.5 * y * y).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let normal = |y: f64| 0.5 * erfc(-y / std::f64::consts::SQRT_2);
    let inner = |y: f64| (2.0 / std::f64::consts::PI).sqrt() * (y + 0.044715 * y * y * y);
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let steep = |y: f64| (2.0 / std::f64::consts::PI).sqrt() * (1.0 + 0.134145 * y * y);
    let tangent = |y: f64| y * sigmoid(2.0 * inner(y));
    let of_tangent = |y: f64| {
        let (s, rest) = (sigmoid(2.0 * inner(y)), sigmoid(-2.0 * inner(y)));
        let through = if s * rest == 0.0 {
            0.0
        } else {
            y * s * rest * 2.0 * steep(y)
        };
        s + through
    };
    let compare = |what: &str, got: &[f32], want: &dyn Fn(f64) -> f64| {
        for (&y, &got) in src.iter().zip(got) {
            let want = want(y.into());
            let error = (f64::from(got) - want).abs();
            let near = 2.4e-7 * f64::from(y.abs().max(1.0));
            assert!(error <= near, "{what} of {y}: {got}, not {want}");
            // Near its zero at −0.75, the gradient is a difference.
            if y < -2.0 && want.abs() >= f32::MIN_POSITIVE.into() {
                assert!(
                    error <= 1e-4 * want.abs(),
                    "{what} of {y}: {got}, not {want}"
                );
            }
        }
    };
    for subject in subjects() {
        let [dst, diff_src] = curve(subject, Activation::Gelu, &src);
        compare("gelu", &dst, &|y| y * normal(y));
        compare("its gradient", &diff_src, &|y| normal(y) + y * gaussian(y));
        let [dst, diff_src] = curve(subject, Activation::GeluTanh, &src);
        compare("gelu by tanh", &dst, &tangent);
        compare("its gradient", &diff_src, &of_tangent);
    }
}
