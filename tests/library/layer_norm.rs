//! Layer norm: every vector, errors, what is planned. Every kernel whatever the shape: verify.rs.

use crate::common::data::{Random, to_f64};
use crate::common::vectors::{Vector, of_operator};
use crate::common::{one, subjects};
use half::{bf16, f16};
use pollster::block_on;
use wgpu_norm::reference::{Gradients, LayerNorm, scaled_error};
use wgpu_norm::{
    DType, Element, Error, GpuContext, GpuLayerNorm, Grads, LayerNormBackwardArgs,
    LayerNormBackwardBuffers, LayerNormOptions, ParamGrads, ParamOf, Tuning,
};

/// Whether the layer is affine, and what is computed of its parameters' gradients.
type Choice = (bool, ParamGrads);

struct Case<T, P> {
    shape: Vec<usize>,
    options: LayerNormOptions,
    src: Vec<T>,
    diff_dst: Vec<T>,
    mean: Vec<P>,
    variance: Vec<P>,
    gamma: Option<Vec<P>>,
    beta: Option<Vec<P>>,
}

impl<T: Element, P: ParamOf<T>> Case<T, P> {
    fn axis(&self) -> usize {
        let axis = self.options.begin_norm_axis;
        let rank = self.shape.len() as i64;
        (if axis < 0 { axis + rank } else { axis }) as usize
    }

    fn random(shape: &[usize], begin_norm_axis: i64, choice: Choice, seed: u64) -> Self {
        let (use_affine, param_grads) = choice;
        let mut random = Random::new(seed);
        let mut case = Self {
            shape: shape.to_vec(),
            options: LayerNormOptions {
                begin_norm_axis,
                use_affine,
                param_grads,
                ..Default::default()
            },
            src: random.vec(shape.iter().product(), 2.0, 0.5),
            diff_dst: random.vec(shape.iter().product(), 1.0, 0.1),
            mean: vec![],
            variance: vec![],
            gamma: None,
            beta: None,
        };
        let columns: usize = shape[case.axis()..].iter().product();
        for row in case.src.chunks(columns.max(1)) {
            let mean = row.iter().map(|x| x.to_f64()).sum::<f64>() / columns as f64;
            let squares: f64 = row.iter().map(|x| (x.to_f64() - mean).powi(2)).sum();
            case.mean.push(P::from_f64(mean));
            case.variance.push(P::from_f64(squares / columns as f64));
        }
        if use_affine {
            case.gamma = Some(random.vec(columns, 1.0, 0.25));
            case.beta = Some(random.vec(columns, 1.0, 0.0));
        }
        case
    }

    fn args(&self) -> LayerNormBackwardArgs<'_, T, P, P> {
        LayerNormBackwardArgs {
            shape: &self.shape,
            src: &self.src,
            diff_dst: &self.diff_dst,
            mean: &self.mean,
            variance: &self.variance,
            gamma: self.gamma.as_deref(),
            beta: self.beta.as_deref(),
        }
    }

    fn run(&self, gpu: &GpuContext) -> Result<Grads<T, P>, Error> {
        let layer = GpuLayerNorm::new(gpu, self.options)?;
        block_on(layer.backward_with_statistics(self.args()))
    }

    fn reference(&self) -> Gradients {
        LayerNorm {
            shape: &self.shape,
            begin_norm_axis: self.axis(),
            src: &to_f64(&self.src),
            diff_dst: &to_f64(&self.diff_dst),
            mean: &to_f64(&self.mean),
            variance: &to_f64(&self.variance),
            gamma: self.gamma.as_ref().map(|gamma| to_f64(gamma)).as_deref(),
            epsilon: self.options.epsilon,
            param_grads: self.options.param_grads,
        }
        .backward()
        .unwrap()
    }

    fn check(&self, gpu: &GpuContext, what: &str, want: &Gradients) {
        let got = self
            .run(gpu)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let error = scaled_error(&got.diff_src, &want.diff_src, &want.diff_src_scale);
        assert!(
            error <= 1.0,
            "{what}: diff_src is off by {error} tolerances"
        );
        let wanted = self.options.use_affine && self.options.param_grads == ParamGrads::Both;
        assert_eq!(got.diff_gamma.is_some(), wanted, "{what}");
        assert_eq!(got.diff_beta.is_some(), wanted, "{what}");
        if let (Some(diff_gamma), Some(diff_beta)) = (&got.diff_gamma, &got.diff_beta) {
            let error = scaled_error(diff_gamma, &want.diff_gamma, &want.diff_gamma_scale);
            assert!(
                error <= 1.0,
                "{what}: diff_gamma is off by {error} tolerances"
            );
            let error = scaled_error(diff_beta, &want.diff_beta, &want.diff_beta_scale);
            assert!(
                error <= 1.0,
                "{what}: diff_beta is off by {error} tolerances"
            );
        }
    }
}

#[test]
fn vectors() {
    for vector in of_operator("layer_norm_backward") {
        match (vector.dtype("src"), vector.dtype("mean")) {
            (DType::F32, DType::F32) => check_vector::<f32, f32>(&vector),
            (DType::F16, DType::F32) => check_vector::<f16, f32>(&vector),
            (DType::Bf16, DType::F32) => check_vector::<bf16, f32>(&vector),
            other => panic!("{}: {other:?}", vector.name),
        }
    }
}

fn check_vector<T: Element, P: ParamOf<T>>(vector: &Vector) {
    let use_affine = vector.metadata["use_affine"] == "true";
    let optional = |name: &str| (use_affine && vector.has(name)).then(|| vector.tensor(name));
    let case = Case::<T, P> {
        shape: vector.shape("src"),
        options: LayerNormOptions {
            begin_norm_axis: vector.metadata["begin_norm_axis"].parse().unwrap(),
            use_affine,
            epsilon: vector.epsilon(),
            param_grads: ParamGrads::Both,
        },
        src: vector.tensor("src"),
        diff_dst: vector.tensor("diff_dst"),
        mean: vector.tensor("mean"),
        variance: vector.tensor("variance"),
        gamma: optional("gamma"),
        beta: optional("beta"),
    };
    let mut want = case.reference();
    want.diff_src = vector.tensor("expected.diff_src");
    if use_affine {
        want.diff_gamma = vector.tensor("expected.diff_gamma");
        want.diff_beta = vector.tensor("expected.diff_beta");
    }
    for subject in subjects() {
        case.check(
            &subject.gpu,
            &format!("{} on {}", vector.name, subject.name),
            &want,
        );
    }
}

#[test]
fn empty_tensors() {
    for subject in subjects() {
        let case = Case::<f32, f32>::random(&[0, 5], -1, (true, ParamGrads::Both), 0);
        let got = case.run(&subject.gpu).unwrap();
        assert_eq!(got.diff_src, vec![0.0; 0]);
        assert_eq!(got.diff_gamma, Some(vec![0.0; 5]));
        assert_eq!(got.diff_beta, Some(vec![0.0; 5]));
        let case = Case::<f32, f32> {
            mean: vec![0.0; 5],
            variance: vec![1.0; 5],
            ..Case::random(&[5, 0], -1, (true, ParamGrads::Both), 0)
        };
        let got = case.run(&subject.gpu).unwrap();
        assert_eq!(got.diff_src, vec![0.0; 0]);
        assert_eq!(got.diff_gamma, Some(vec![]));
    }
}

#[test]
fn bad_arguments_are_typed_errors() {
    let subject = &subjects()[0];
    let case = || Case::<f32, f32>::random(&[4, 6], -1, (true, ParamGrads::Both), 0);
    let fails = |case: Case<f32, f32>| case.run(&subject.gpu).unwrap_err();
    let mut missing = case();
    missing.gamma = None;
    let error = fails(missing);
    assert!(
        matches!(
            error,
            Error::Argument {
                argument: "gamma",
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(
        error.to_string(),
        "gamma: expected a tensor with use_affine true, got none"
    );
    // No gradient depends on beta.
    let mut without = case();
    without.beta = None;
    without.check(&subject.gpu, "without beta", &without.reference());
    let mut unwanted = case();
    unwanted.options.use_affine = false;
    let error = fails(unwanted);
    assert!(
        matches!(
            error,
            Error::Argument {
                argument: "gamma",
                ..
            }
        ),
        "{error}"
    );
    let mut short = case();
    short.mean.pop();
    assert_eq!(
        fails(short),
        Error::Length {
            tensor: "mean",
            expected: 4,
            got: 3
        }
    );
    let mut axis = case();
    axis.options.begin_norm_axis = 2;
    assert!(matches!(
        fails(axis),
        Error::Argument {
            argument: "begin_norm_axis",
            ..
        }
    ));
    for bad in [-1.0, f32::INFINITY] {
        let mut wrong = case();
        wrong.variance[2] = bad;
        assert!(matches!(
            fails(wrong),
            Error::Variance {
                group: "row",
                channel: 2,
                ..
            }
        ));
    }
    let mut epsilon = case();
    epsilon.options.epsilon = 0.0;
    assert!(matches!(fails(epsilon), Error::Epsilon { .. }));
    case().check(&subject.gpu, "after the errors", &case().reference());
}

/// However many rows there are, sums of columns are few beside the elements, and where rows are few there are
/// workgroups enough.
#[test]
fn wide_workgroups_write_few_sums_of_columns() {
    let subject = one(false);
    for subgroup_size in [0, 8] {
        let gpu = subject.with_profile("gpu", |profile| {
            profile.tuning = Tuning::GPU;
            profile.subgroup_size = profile.subgroup_size.min(subgroup_size);
        });
        let layer = GpuLayerNorm::new(&gpu.gpu, LayerNormOptions::default()).unwrap();
        for (rows, columns, fewest, most) in [
            (1 << 20, 64, 1 << 9, 1 << 10),
            (65_536, 768, 1 << 9, 1 << 10),
            (32_768, 1024, 1 << 9, 1 << 10),
            (2048, 4096, 1 << 7, 1 << 8),
            (512, 4096, 1 << 7, 1 << 7),
        ] {
            let plan = layer.plan_backward(&[rows, columns], (DType::F32, DType::F32));
            // Two sums of 4 bytes of each column from each workgroup.
            let parts = plan.unwrap().workspace_size() / (8 * columns as u64);
            assert!(
                (fewest..=most).contains(&parts),
                "{rows}x{columns}: {parts}"
            );
        }
    }
}

/// A row's invocations are of one subgroup only where subgroups are as large as in the plan.
#[test]
fn a_plan_for_other_subgroups_is_refused() {
    let with_subgroups = subjects()
        .iter()
        .filter(|subject| subject.gpu.profile().subgroup_size == 8);
    // Rows that registers hold, and longer ones.
    for (subject, columns) in with_subgroups.flat_map(|subject| [(subject, 768), (subject, 4096)]) {
        let other = subject.with_profile("without subgroups", |profile| profile.subgroup_size = 0);
        let layer = GpuLayerNorm::new(&subject.gpu, LayerNormOptions::default()).unwrap();
        let plan = layer
            .plan_backward(&[64, columns], (DType::F32, DType::F32))
            .unwrap();
        let buffer = |elements: u64| {
            let descriptor = wgpu::BufferDescriptor {
                label: None,
                size: 4 * elements,
                usage: wgpu::BufferUsages::STORAGE,
                mapped_at_creation: false,
            };
            subject.gpu.device().create_buffer(&descriptor)
        };
        let data = [(); 3].map(|()| buffer(64 * columns as u64));
        let rows = [(); 2].map(|()| buffer(64));
        let params = [(); 3].map(|()| buffer(columns as u64));
        let buffers = LayerNormBackwardBuffers {
            src: (&data[0]).into(),
            diff_dst: (&data[1]).into(),
            mean: (&rows[0]).into(),
            variance: (&rows[1]).into(),
            gamma: Some((&params[0]).into()),
            diff_src: (&data[2]).into(),
            diff_gamma: Some((&params[1]).into()),
            diff_beta: Some((&params[2]).into()),
            workspace: None,
        };
        let _ = plan.bind(&subject.gpu, &buffers).unwrap();
        let error = plan.bind(&other.gpu, &buffers).map(|_| ()).unwrap_err();
        let want = Error::Limit {
            what: "a plan of another context".to_owned(),
            limit: "subgroup_size",
            needed: 8,
            available: 0,
        };
        assert_eq!(error, want, "{columns} on {}", subject.name);
    }
}
