//! Layer norm: every vector, the correctness set, all element types, every kernel that serves it.

use crate::common::buffers::{Room, recorded_layer_norm};
use crate::common::data::{Random, to_f64};
use crate::common::vectors::{Vector, of_operator};
use crate::common::{Subject, every_pair, one, subjects, taken, takes, takes_all, takes_every_one};
use half::{bf16, f16};
use pollster::block_on;
use wgpu_norm::reference::{Gradients, LayerNorm, scaled_error};
use wgpu_norm::{
    Algorithm, DType, DTypes, Element, Error, GpuContext, GpuLayerNorm, Grads,
    LayerNormBackwardArgs, LayerNormBackwardBuffers, LayerNormOptions, ParamGrads, ParamOf, Tuning,
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

/// Every subject, with each tuning that brings other kernels into play.
fn tuned() -> Vec<Subject> {
    subjects().iter().flat_map(tunings).collect()
}

fn tunings(subject: &Subject) -> Vec<Subject> {
    let with = |what, tuning: Tuning| subject.with_profile(what, |profile| profile.tuning = tuning);
    let split = |what, tuning: Tuning| {
        subject.with_profile(what, |profile| {
            profile.tuning = tuning;
            profile.algorithm = Some(Algorithm::RowsReadTwice);
        })
    };
    let splits = Tuning {
        busy_workgroups: 512,
        tile: 64,
        ..Tuning::SOFTWARE
    };
    // Rows of 193 to 768 elements are held by the wider workgroups.
    let narrow = Tuning {
        workgroup: 16,
        fused_workgroup: 64,
        cheap_barriers: 1,
        channels_first_vec4s: 2,
        least_row_vec4s: 2,
        row_vec4s: 3,
        ..splits
    };
    let own = with("own tuning", subject.gpu.profile().tuning);
    let few_threads =
        subject.with_profile("few threads", |profile| profile.tuning.least_row_vec4s = 2);
    let without_subgroups = subject.with_profile("without subgroups", |profile| {
        profile.subgroup_size = 0;
        profile.tuning.least_row_vec4s = 2;
    });
    if subject.checked {
        return vec![own];
    }
    // Sums of rows behind barriers, where there are subgroups too.
    let split_narrow = subject.with_profile("split, narrow", |profile| {
        profile.tuning = narrow;
        profile.algorithm = Some(Algorithm::RowsReadTwice);
        profile.subgroup_size = 0;
    });
    vec![
        own,
        few_threads,
        without_subgroups,
        split("split", splits),
        split_narrow,
        split("split, wide", Tuning::GPU),
        with("narrow", narrow),
        with("wide", Tuning::GPU),
    ]
}

const CHOICES: [Choice; 4] = [
    (true, ParamGrads::Both),
    (false, ParamGrads::Both),
    (true, ParamGrads::Frozen),
    (true, ParamGrads::Neither),
];

/// Which choices a pair of element types takes with one of many combinations of shape and way to force kernels:
/// all gradients, and one of the others in turns; a half type one of the two with parameters of f32, the other with
/// its own.
fn takes_choice<T: Element, P: Element>(choice: usize, combination: usize) -> bool {
    // Not in step with a list of shapes in which every other one is alike.
    let turn = combination + combination / 2 + usize::from(P::DTYPE == DType::F32);
    let half = T::DTYPE.size() == 2;
    match choice {
        _ if takes_every_one() => true,
        0 => !half || turn.is_multiple_of(2),
        other => (!half || !turn.is_multiple_of(2)) && other == 1 + turn / 2 % 3,
    }
}

fn check_shapes<T: Element, P: ParamOf<T>>(shapes: &[(&[usize], i64)]) {
    let all = tuned();
    let contexts = taken::<T, P>(&all);
    // Counted alike for all types, whichever of them a type takes.
    let way_of = |subject: &Subject| all.iter().position(|other| std::ptr::eq(other, subject));
    for (index, &(shape, axis)) in shapes.iter().enumerate() {
        if !takes_all() && !takes::<T, P>(index) {
            continue;
        }
        for (choice, chosen) in CHOICES.into_iter().enumerate() {
            let takes = |subject: &&&Subject| {
                takes_choice::<T, P>(choice, index + way_of(subject).unwrap())
            };
            let takers: Vec<_> = contexts.iter().filter(takes).collect();
            if takers.is_empty() {
                continue;
            }
            let case = Case::<T, P>::random(shape, axis, chosen, index as u64);
            let want = case.reference();
            for subject in takers {
                let what = format!(
                    "{shape:?} from axis {axis}, {}/{}, {chosen:?} on {}",
                    T::DTYPE,
                    P::DTYPE,
                    subject.name
                );
                case.check(&subject.gpu, &what, &want);
            }
        }
    }
}

const SHAPES: &[(&[usize], i64)] = &[
    (&[15, 3], -1),
    (&[30, 300], 1),
    (&[257, 768], -1),
    (&[6, 2, 8, 33], -2),
    (&[6, 2, 8, 33], 0),
    (&[7], 0),
    (&[5, 1], -1),
    (&[1, 9], -1),
    (&[2, 3, 5], 1),
    (&[1000, 2], -1),
    (&[3, 20001], -1),
    // Few vec4s a row, for fewer invocations than a workgroup has.
    (&[90, 20], -1),
    (&[33, 28], -1),
    (&[70, 12], -1),
    (&[7, 4], -1),
    (&[35, 66], -1),
    // Rows that begin anywhere in a vec4 and share words, or none.
    (&[21, 129], -1),
    (&[23, 250], -1),
    (&[9, 517], -1),
];

fn correctness_set<T: Element, P: ParamOf<T>>() {
    check_shapes::<T, P>(SHAPES);
}

every_pair!(correctness_set);

/// Rows that share vec4s with their neighbours, stored over what these still read, in buffers that end with their
/// tensors and in longer ones.
fn in_place_rows<T: Element, P: ParamOf<T>>() {
    let subjects = subjects();
    let shapes = [
        [5, 7],
        [6, 6],
        [21, 129],
        [23, 250],
        [9, 517],
        [3, 5],
        [1, 9],
        [70, 3],
        [70, 2],
        [9, 1],
        [8, 12],
    ];
    for (seed, shape) in shapes.iter().enumerate() {
        let case = Case::<T, P>::random(shape, -1, (true, ParamGrads::Both), seed as u64);
        for subject in taken::<T, P>(subjects) {
            let layer = GpuLayerNorm::new(&subject.gpu, case.options).unwrap();
            let plan = layer
                .plan_backward(
                    shape,
                    DTypes::from((T::DTYPE, P::DTYPE)).with_statistics(P::DTYPE),
                )
                .unwrap();
            let want = case.run(&subject.gpu).unwrap();
            for room in [Room::Exact, Room::Padded] {
                let got = recorded_layer_norm(subject, &plan, &case.args(), room);
                assert!(got == want, "{shape:?}, {room:?} on {}", subject.name);
            }
        }
    }
}

every_pair!(in_place_rows);

#[test]
fn large_tensors() {
    check_shapes::<f32, f32>(&[
        (&[256, 768], -1),
        (&[128, 1, 1024], -1),
        (&[6, 2, 128, 1024], -1),
        (&[2, 100_000], -1),
        (&[200_000, 3], -1),
    ]);
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

/// With the usual sizes, which are cut for larger ones.
#[test]
fn small_bindings_are_enough() {
    let cases = [
        Case::<f32, f32>::random(&[60, 5000], -1, (true, ParamGrads::Both), 1),
        Case::random(&[300, 1001], -1, (true, ParamGrads::Both), 2),
        Case::random(&[1100, 256], -1, (true, ParamGrads::Both), 3),
        Case::random(&[3, 300_001], -1, (false, ParamGrads::Both), 4),
    ];
    for case in &cases {
        let reference = case.reference();
        for subject in subjects() {
            let small = subject.with_profile("1 MiB a binding", |profile| {
                profile.max_binding = 1 << 20;
            });
            let what = format!("{:?} on {}", case.shape, subject.name);
            case.check(&small.gpu, &what, &reference);
        }
    }
}

/// The gradient with bindings that hold the whole tensor and with ones of so many bytes, cut every so many elements.
fn windows_change_nothing<T: Element, P: ParamOf<T>>(
    case: &Case<T, P>,
    (window_unit, max_binding): (u32, u64),
) {
    let with_binding = |subject: &Subject, max_binding| {
        subject.with_profile("in windows", |profile| {
            profile.tuning = Tuning {
                tile: 1024,
                busy_workgroups: 64,
                fused_block: 0,
                ..Tuning::SOFTWARE
            };
            profile.max_binding = max_binding;
            profile.window_unit = window_unit;
        })
    };
    let reference = case.reference();
    for subject in subjects() {
        let what = format!("{:?} {} on {}", case.shape, T::DTYPE, subject.name);
        if !subject.takes::<T>() {
            continue;
        }
        let (whole, cut) = (
            with_binding(subject, 1 << 26),
            with_binding(subject, max_binding),
        );
        case.check(&whole.gpu, &what, &reference);
        let (whole, cut) = (case.run(&whole.gpu).unwrap(), case.run(&cut.gpu).unwrap());
        assert!(whole == cut, "{what}");
    }
}

/// Rows that registers do not hold and rows that they do, aligned and not; windows begin in the middle of rows where a
/// window holds no more than one.
#[test]
fn results_do_not_depend_on_windows() {
    // Partial sums by column must fit the small binding too, so not every shape can be affine.
    let (rows, parts_of_rows) = ((1 << 18, 5 << 19), (1 << 14, 1 << 18));
    for (shape, use_affine, windows) in [
        ([60, 20_000], true, rows),
        ([60, 20_001], false, rows),
        ([9000, 68], true, rows),
        ([9000, 67], true, rows),
        ([3, 100_000], false, parts_of_rows),
        ([5, 60_001], false, parts_of_rows),
    ] {
        let choice = (use_affine, ParamGrads::Both);
        let case = Case::<f32, f32>::random(&shape, -1, choice, 4);
        windows_change_nothing(&case, windows);
    }
    // Rows that share words, also where a window ends between the two of them: behind row 523.
    for (shape, use_affine, windows) in [
        ([9001, 67], true, (1 << 14, 1 << 20)),
        ([3001, 201], true, (1 << 14, 1 << 20)),
        ([1201, 1001], false, (1 << 11, 1 << 20)),
    ] {
        let choice = (use_affine, ParamGrads::Both);
        let case = Case::<bf16, f32>::random(&shape, -1, choice, 5);
        windows_change_nothing(&case, windows);
    }
}

#[test]
fn results_repeat_to_the_bit() {
    fn repeats<T: Element>(shapes: &[[usize; 2]])
    where
        f32: ParamOf<T>,
    {
        for subject in subjects().iter().filter(|s| s.takes::<T>()) {
            for shape in shapes {
                let case = Case::<T, f32>::random(shape, -1, (true, ParamGrads::Both), 3);
                let first = case.run(&subject.gpu).unwrap();
                let again = case.run(&subject.gpu).unwrap();
                assert!(first == again, "{shape:?} {} on {}", T::DTYPE, subject.name);
            }
        }
    }
    repeats::<f32>(&[[3000, 33], [500, 130], [3, 20_001], [40_000, 1]]);
    repeats::<bf16>(&[[3000, 33], [40_001, 1]]);
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
            (1 << 20, 64, 1 << 10, 1 << 11),
            (65_536, 768, 1 << 10, 1 << 11),
            (32_768, 1024, 1 << 10, 1 << 11),
            (2048, 4096, 1 << 8, 1 << 8),
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
