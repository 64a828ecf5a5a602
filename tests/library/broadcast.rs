//! Parameters of src's rank: any set of reduced axes, as DirectML's operators have them.

use crate::common::data::{Random, all_choices, assert_close, sizes, to_f64};
use crate::common::vectors::{Vector, of_operator};
use crate::common::{Subject, every_pair, random_cases, subjects, taken};
use half::{bf16, f16};
use pollster::block_on;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use wgpu_norm::reference::{BatchNorm, Gradients};
use wgpu_norm::{
    BatchNormBackwardArgs, BatchNormOptions, DType, Element, Error, GpuBatchNorm, Grads, ParamOf,
    Statistics,
};

struct Case<T, P> {
    shape: Vec<usize>,
    param_shape: Vec<usize>,
    options: BatchNormOptions,
    src: Vec<T>,
    diff_dst: Vec<T>,
    mean: Vec<P>,
    variance: Vec<P>,
    gamma: Option<Vec<P>>,
}

impl<T: Element, P: ParamOf<T>> Case<T, P> {
    /// Random tensors; mean and variance are plausible, not those of src.
    fn random(shape: &[usize], kept: &[bool], options: BatchNormOptions, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let param_shape: Vec<usize> = shape
            .iter()
            .zip(kept)
            .map(|(&d, &kept)| if kept { d } else { 1 })
            .collect();
        let (n, channels) = (shape.iter().product(), param_shape.iter().product());
        Self {
            shape: shape.to_vec(),
            param_shape,
            options,
            src: random.vec(n, 2.0, 0.5),
            diff_dst: random.vec(n, 1.0, 0.1),
            mean: random.vec(channels, 0.25, 0.5),
            variance: random.vec(channels, 0.5, 1.25),
            gamma: (!seed.is_multiple_of(3)).then(|| random.vec(channels, 1.0, 0.25)),
        }
    }

    fn run(&self, subject: &Subject) -> Result<Grads<T, P>, Error> {
        let layer = GpuBatchNorm::new(&subject.gpu, self.options)?;
        let args = BatchNormBackwardArgs {
            shape: &self.shape,
            src: &self.src,
            diff_dst: &self.diff_dst,
            mean: &self.mean,
            variance: &self.variance,
            gamma: self.gamma.as_deref(),
            beta: None,
            mask: None,
        };
        block_on(layer.backward_broadcast_with_statistics(&self.param_shape, args))
    }

    fn reference(&self) -> Gradients {
        let varies = |(&d, &p): (&usize, &usize)| d == p;
        let channel_axes: Vec<bool> = self
            .shape
            .iter()
            .zip(&self.param_shape)
            .map(varies)
            .collect();
        BatchNorm {
            shape: &self.shape,
            channel_axes: &channel_axes,
            src: &to_f64(&self.src),
            diff_dst: &to_f64(&self.diff_dst),
            mean: &to_f64(&self.mean),
            variance: &to_f64(&self.variance),
            gamma: self.gamma.as_deref().map(to_f64).as_deref(),
            epsilon: self.options.epsilon,
            statistics: self.options.statistics,
            param_grads: self.options.param_grads,
        }
        .backward()
        .unwrap()
    }

    fn check(&self, subject: &Subject, want: &Gradients) {
        let what = format!(
            "{:?} over {:?}, {}/{}, {:?} on {}",
            self.shape,
            self.param_shape,
            T::DTYPE,
            P::DTYPE,
            self.options,
            subject.name
        );
        let got = self
            .run(subject)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_close(&got, want, self.options.param_grads, &what);
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
        match (vector.dtype("src"), vector.dtype("mean")) {
            (DType::F32, DType::F32) => check_vector::<f32, f32>(&vector),
            (DType::F16, DType::F16) => check_vector::<f16, f16>(&vector),
            (DType::Bf16, DType::Bf16) => check_vector::<bf16, bf16>(&vector),
            other => panic!("{}: {other:?}", vector.name),
        }
    }
    assert!(tested >= 5, "only {tested} vectors");
}

fn check_vector<T: Element, P: ParamOf<T>>(vector: &Vector) {
    let case = Case::<T, P> {
        shape: vector.shape("src"),
        param_shape: vector.shape("mean"),
        options: BatchNormOptions {
            statistics: match vector.metadata["statistics"].as_str() {
                "batch" => Through::Batch,
                "constant" => Through::Constant,
                other => panic!("{other}"),
            },
            ..BatchNormOptions::new(vector.epsilon())
        },
        src: vector.tensor("src"),
        diff_dst: vector.tensor("diff_dst"),
        mean: vector.tensor("mean"),
        variance: vector.tensor("variance"),
        gamma: vector.has("gamma").then(|| vector.tensor("gamma")),
    };
    let want = Gradients {
        diff_src: vector.tensor("expected.diff_src"),
        diff_gamma: vector.tensor("expected.diff_gamma"),
        diff_beta: vector.tensor("expected.diff_beta"),
        ..case.reference()
    };
    for subject in subjects() {
        case.check(subject, &want);
    }
}

/// Every subject, with its own sizes and with others.
fn contexts() -> Vec<Subject> {
    let tuned = |subject: &Subject| {
        let own = ("own sizes", subject.gpu.profile().tuning);
        let forced = match subject.checked {
            true => vec![],
            false => sizes().to_vec(),
        };
        let all = [own].into_iter().chain(forced);
        all.map(|(what, tuning)| subject.with_tuning(what, tuning))
            .collect::<Vec<_>>()
    };
    subjects().iter().flat_map(tuned).collect()
}

/// Those of them that the types take: of each adapter one with checks and the others without.
fn forced<T: Element, P: Element>(contexts: &[Subject]) -> Vec<&Subject> {
    taken::<T, P>(contexts)
}

fn every_order_of_axes<T: Element, P: ParamOf<T>>() {
    let contexts = contexts();
    let contexts = forced::<T, P>(&contexts);
    let shapes: &[(&[usize], &[bool])] = &[
        (&[6, 5, 8], &[true, false, true]),
        (&[6, 5, 7], &[true, false, true]),
        (&[3, 4, 5, 37], &[true, false, true, false]),
        (&[3, 4, 5, 20], &[true, false, true, false]),
        (&[3, 4, 5, 6], &[false, true, false, true]),
        (&[3, 4, 5, 9], &[false, true, false, true]),
        (
            &[2, 3, 1, 2, 3, 2, 3, 2],
            &[true, false, true, true, false, true, false, true],
        ),
        (
            &[2, 2, 2, 2, 2, 2, 2, 2],
            &[true, false, true, false, true, false, true, false],
        ),
        (
            &[2, 2, 2, 2, 2, 2, 2, 4],
            &[false, true, false, true, false, true, false, true],
        ),
        (&[9], &[true]),
        (&[9], &[false]),
        (&[4, 70, 300], &[true, false, true]),
        (&[4, 5, 70, 130], &[true, false, true, false]),
        (&[0, 3, 2], &[true, false, true]),
        (&[2, 3, 0], &[true, false, true]),
    ];
    for (index, (shape, kept)) in shapes.iter().enumerate() {
        let choices = all_choices();
        let (statistics, param_grads) = choices[index % choices.len()];
        let options = BatchNormOptions {
            statistics,
            param_grads,
            ..BatchNormOptions::new(1e-3)
        };
        let case = Case::<T, P>::random(shape, kept, options, index as u64);
        let want = case.reference();
        for subject in &contexts {
            case.check(subject, &want);
        }
    }
}

every_pair!(every_order_of_axes: f32 f32 f32, f16_f32 f16 f32);

#[test]
fn random_shapes_and_axes() {
    let contexts = contexts();
    let axis = (prop_oneof![3 => 1..5usize, 1 => 5..40usize], any::<bool>());
    let axes = prop::collection::vec(axis, 1..=8).prop_filter("too large to be quick", |axes| {
        axes.iter().map(|(size, _)| size).product::<usize>() <= 20_000
    });
    let mut runner = TestRunner::new(Config {
        cases: random_cases(64),
        rng_seed: RngSeed::Fixed(21),
        failure_persistence: None,
        ..Config::default()
    });
    let inputs = (axes, any::<u64>(), 0..6usize, 0..4u8);
    let tested = runner.run(&inputs, |(axes, seed, choice, dtype)| {
        let (shape, kept): (Vec<usize>, Vec<bool>) = axes.into_iter().unzip();
        let (statistics, param_grads) = all_choices()[choice];
        let options = BatchNormOptions {
            statistics,
            param_grads,
            ..BatchNormOptions::new(1e-3)
        };
        match dtype {
            0 => check_random::<f32, f32>(&contexts, &shape, &kept, options, seed),
            1 => check_random::<f16, f16>(&contexts, &shape, &kept, options, seed),
            2 => check_random::<bf16, f32>(&contexts, &shape, &kept, options, seed),
            _ => check_random::<f64, f64>(&contexts, &shape, &kept, options, seed),
        }
        Ok(())
    });
    tested.unwrap();
}

fn check_random<T: Element, P: ParamOf<T>>(
    contexts: &[Subject],
    shape: &[usize],
    kept: &[bool],
    options: BatchNormOptions,
    seed: u64,
) {
    let case = Case::<T, P>::random(shape, kept, options, seed);
    let want = case.reference();
    for subject in forced::<T, P>(contexts) {
        case.check(subject, &want);
    }
}

#[test]
fn an_axis_that_does_not_broadcast_is_named() {
    let subject = &subjects()[0];
    let options = BatchNormOptions::new(1e-3);
    let mut case = Case::<f32, f32>::random(&[4, 6], &[false, true], options, 1);
    case.param_shape = vec![1, 5];
    let error = case.run(subject).unwrap_err();
    assert_eq!(
        error.to_string(),
        "mean, variance and gamma: expected size 1 or 6 along axis 1, got 5"
    );
    case.param_shape = vec![6];
    assert!(matches!(case.run(subject), Err(Error::Rank { got: 1, .. })));
}
