//! Layer norm: every vector, errors, plans. For every kernel with any shape, see verify.rs.

use crate::common::buffers::{Buffers, Room, submit};
use crate::common::data::{Problem, assert_close, close, near, to_f64};
use crate::common::vectors::{Vector, of_operator};
use crate::common::{one, subjects};
use half::{bf16, f16};
use pollster::block_on;
use wgpu_norm::{
    Backward, BackwardArgs, DType, Element, Error, ForwardArgs, GpuLayerNorm, Grads,
    LayerNormOptions, Norm, Operation, ParamOf, SavedRef, Tensor, Tuning,
};
use wgpu_norm_verify::reference::Computed;

fn gradient(shape: &[usize], begin_norm_axis: i64) -> Operation {
    let norm = Norm::layer(begin_norm_axis);
    Operation::new(norm, Backward::default(), shape, DType::F32)
}

/// Asserts that the gradients of a layer with gamma and beta, or with neither, are those of the reference.
#[track_caller]
fn check<T: Element>(got: Grads<T, f32>, want: &[Computed], is_affine: bool, what: &str) {
    close(&got.diff_src, want, Tensor::DiffSrc, what);
    assert_eq!(got.diff_gamma.is_some(), is_affine, "{what}");
    assert_eq!(got.diff_beta.is_some(), is_affine, "{what}");
    if let (Some(diff_gamma), Some(diff_beta)) = (&got.diff_gamma, &got.diff_beta) {
        close(diff_gamma, want, Tensor::DiffGamma, what);
        close(diff_beta, want, Tensor::DiffBeta, what);
    }
}

#[test]
fn vectors() {
    for vector in of_operator("layer_norm_backward") {
        assert_eq!(vector.dtype("mean"), DType::F32, "{}", vector.name);
        match vector.dtype("src") {
            DType::F32 => check_vector::<f32>(&vector),
            DType::F16 => check_vector::<f16>(&vector),
            DType::Bf16 => check_vector::<bf16>(&vector),
            other => panic!("{}: {other:?}", vector.name),
        }
    }
}

fn check_vector<T: Element<Sum = f32>>(vector: &Vector)
where
    f32: ParamOf<T>,
{
    let is_affine = vector.metadata["use_affine"] == "true";
    let begin_norm_axis = vector.metadata["begin_norm_axis"].parse().unwrap();
    let shape = vector.shape("src");
    let [src, diff_dst] = ["src", "diff_dst"].map(|name| vector.tensor::<T>(name));
    let [mean, variance] = ["mean", "variance"].map(|name| vector.tensor::<f32>(name));
    let optional = |name: &str| (is_affine && vector.has(name)).then(|| vector.tensor(name));
    let (gamma, beta): (Option<Vec<f32>>, Option<Vec<f32>>) = (optional("gamma"), optional("beta"));

    let mut operation = gradient(&shape, begin_norm_axis).with_epsilon(vector.epsilon());
    operation.types.data = T::DTYPE;
    let operation = operation.with_params(gamma.is_some(), beta.is_some());
    let mut problem = Problem::random(&operation, 0);
    problem.set(Tensor::Src, &to_f64(&src));
    problem.set(Tensor::DiffDst, &to_f64(&diff_dst));
    problem.set(Tensor::Mean, &to_f64(&mean));
    problem.set(Tensor::Variance, &to_f64(&variance));
    if let Some(gamma) = &gamma {
        problem.set(Tensor::Gamma, &to_f64(gamma));
    }
    let mut want = problem.reference();
    for computed in &mut want {
        // In float64.
        computed.values = vector.tensor(&format!("expected.{}", computed.tensor.name()));
    }
    let options = LayerNormOptions::new(begin_norm_axis);
    let options = options.epsilon(vector.epsilon());
    for subject in subjects() {
        let what = format!("{} on {}", vector.name, subject.name);
        let layer = GpuLayerNorm::new(&subject.gpu, options.clone()).unwrap();
        let args = BackwardArgs::new(&shape, &src, &diff_dst, SavedRef::moments(&mean, &variance));
        let got = block_on(layer.backward(args.gamma(gamma.as_deref()).beta(beta.as_deref())));
        let got = got.unwrap_or_else(|error| panic!("{what}: {error}"));
        check(got, &want, is_affine, &what);
    }
}

#[test]
fn empty_tensors() {
    let run = |shape: &[usize; 2], statistics: [&[f32]; 2], params: &[f32]| {
        let grads = subjects().iter().map(|subject| {
            let layer = GpuLayerNorm::new(&subject.gpu, LayerNormOptions::new(-1)).unwrap();
            let args = BackwardArgs::<f32>::new(
                shape,
                &[],
                &[],
                SavedRef::moments(statistics[0], statistics[1]),
            );
            block_on(layer.backward(args.gamma(params).beta(params))).unwrap()
        });
        grads.collect::<Vec<_>>()
    };
    for got in run(&[0, 5], [&[], &[]], &[1.0; 5]) {
        assert_eq!(got.diff_src, vec![0.0; 0]);
        assert_eq!(got.diff_gamma, Some(vec![0.0; 5]));
        assert_eq!(got.diff_beta, Some(vec![0.0; 5]));
    }
    for got in run(&[5, 0], [&[0.0; 5], &[1.0; 5]], &[]) {
        assert_eq!(got.diff_src, vec![0.0; 0]);
        assert_eq!(got.diff_gamma, Some(vec![]));
    }
}

/// Without gamma, which is then 1, beta is added and has its gradient. Rows of 1 ± 1.
#[test]
fn beta_alone_by_hand() {
    let (shape, src, diff_dst) = ([2, 2], [0.0, 2.0, 2.0, 0.0], [1.0, 2.0, 3.0, 5.0]);
    let (mean, variance, beta) = ([1.0; 2], [1.0; 2], [10.0, 20.0]);
    for subject in subjects() {
        let options = LayerNormOptions::new(-1).epsilon(1e-12);
        let layer = GpuLayerNorm::new(&subject.gpu, options).unwrap();
        let args = ForwardArgs::new(&shape, &src).beta(&beta);
        let output = block_on(layer.forward(args)).unwrap();
        near(&output.dst, &[9.0, 21.0, 11.0, 19.0]);
        let args = BackwardArgs::new(&shape, &src, &diff_dst, SavedRef::moments(&mean, &variance));
        let grads = block_on(layer.backward(args.beta(&beta))).unwrap();
        near(&grads.diff_src, &[0.0; 4]);
        near(&grads.diff_gamma.unwrap(), &[2.0, -3.0]);
        near(&grads.diff_beta.unwrap(), &[4.0, 7.0]);
        let grads = block_on(layer.backward(args)).unwrap();
        assert_eq!((grads.diff_gamma, grads.diff_beta), (None, None));
    }
}

#[test]
fn bad_arguments_are_typed_errors() {
    let subject = &subjects()[0];
    let shape = [4, 6];
    let problem = Problem::random(&gradient(&shape, -1), 0);
    let [src, diff_dst, gamma] =
        [Tensor::Src, Tensor::DiffDst, Tensor::Gamma].map(|tensor| problem.elements::<f32>(tensor));
    let [mean, variance] = [Tensor::Mean, Tensor::Variance].map(|tensor| problem.elements(tensor));
    let beta = [0.5_f32; 6];
    let run = |axis, mean: &[f32], variance: &[f32], gamma, beta| {
        let options = LayerNormOptions::new(axis);
        let layer = GpuLayerNorm::new(&subject.gpu, options).unwrap();
        let args = BackwardArgs::new(&shape, &src, &diff_dst, SavedRef::moments(mean, variance));
        block_on(layer.backward(args.gamma(gamma).beta(beta)))
    };
    let (with_gamma, with_beta) = (Some(&*gamma), Some(&beta[..]));
    let fails = |axis, mean: &[f32], variance: &[f32], gamma, beta| -> Error {
        run(axis, mean, variance, gamma, beta).unwrap_err()
    };

    let is_length = |error: Error, message: &str| {
        assert!(matches!(error, Error::Length { .. }), "{error}");
        assert_eq!(error.to_string(), message);
    };
    for gamma in [with_gamma, None] {
        let error = fails(-1, &mean, &variance, gamma, Some(&beta[1..]));
        is_length(
            error,
            "beta: expected 6 elements (shape [6] for data of [4, 6]), got 5",
        );
    }
    let error = fails(-1, &mean[1..], &variance, with_gamma, with_beta);
    is_length(
        error,
        "mean: expected 4 elements (shape [4] for data of [4, 6]), got 3",
    );
    let error = fails(2, &mean, &variance, with_gamma, with_beta);
    assert!(matches!(
        error,
        Error::Argument {
            argument: "begin_norm_axis",
            ..
        }
    ));
    for bad in [-1.0, f32::INFINITY] {
        let mut wrong = variance.clone();
        wrong[2] = bad;
        let error = fails(-1, &mean, &wrong, with_gamma, with_beta);
        assert!(matches!(
            error,
            Error::Variance {
                group: "row",
                channel: 2,
                ..
            }
        ));
    }
    let options = LayerNormOptions::new(-1).epsilon(0.0);
    let error = GpuLayerNorm::new(&subject.gpu, options).unwrap_err();
    assert!(matches!(error, Error::Epsilon { .. }));

    // No gradient depends on beta.
    for beta in [None, with_beta] {
        let got = run(-1, &mean, &variance, with_gamma, beta).unwrap();
        check(got, &problem.reference(), true, "after the errors");
    }
}

/// For any number of rows, the partial sums of columns are few compared with the elements, and few rows still give
/// enough workgroups.
#[test]
fn wide_workgroups_write_few_sums_of_columns() {
    let subject = one(false);
    for subgroup_size in [0, 8] {
        let subject = subject.with_profile("gpu", |profile| {
            profile.tuning = Tuning::GPU;
            profile.subgroup_size = profile.subgroup_size.min(subgroup_size);
        });
        for (rows, columns, fewest, most) in [
            (1 << 20, 64, 1 << 9, 1 << 10),
            (65_536, 768, 1 << 9, 1 << 10),
            (32_768, 1024, 1 << 9, 1 << 10),
            (2048, 4096, 1 << 7, 1 << 8),
            (512, 4096, 1 << 7, 1 << 7),
        ] {
            let plan = gradient(&[rows, columns], -1).plan(subject.gpu.profile());
            // Each workgroup has two sums of 4 bytes for each column.
            let parts = plan.unwrap().workspace_bytes() / (8 * columns as u64);
            assert!(
                (fewest..=most).contains(&parts),
                "{rows}x{columns}: {parts}"
            );
        }
    }
}

/// A plan for a profile with subgroups adds up without them where a context has none.
#[test]
fn a_plan_for_other_subgroups_runs_without_them() {
    let with_subgroups = subjects()
        .iter()
        .filter(|subject| subject.gpu.profile().subgroup_size > 0);
    // Rows that fit in registers, and longer ones.
    for (subject, columns) in with_subgroups.flat_map(|subject| [(subject, 768), (subject, 4096)]) {
        let other = subject.with_profile("without subgroups", |profile| profile.subgroup_size = 0);
        let problem = Problem::random(&gradient(&[64, columns], -1), 0);
        let plan = problem.operation.plan(subject.gpu.profile()).unwrap();
        let buffers = Buffers::new(&other, &problem, &plan, Room::Exact);
        submit(&other, &plan.bind(&other.gpu, &buffers.ranges()).unwrap());
        assert_close(
            &buffers.results(&other, &problem),
            &problem.reference(),
            &format!("{columns} on {}", subject.name),
        );
    }
}
