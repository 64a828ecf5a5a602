//! Parameters of src's rank: any set of reduced axes, as in DirectML's operators.

use crate::common::data::{Problem, Random, all_choices, assert_close, sizes, types};
use crate::common::{Subject, every_pair, random_cases, subjects, taken};
use half::{bf16, f16};
use pollster::block_on;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use wgpu_norm::{
    Backward, BackwardArgs, BatchNormOptions, Channels, Element, Error, GpuBatchNorm, Norm,
    Operation, ParamOf, SavedRef, Tensor,
};

/// Checks a gradient with parameters along the kept axes, for one of the choices. Mean and variance are plausible, but
/// not those of src.
fn check<T: Element, P: ParamOf<T>>(
    contexts: &[Subject],
    shape: &[usize],
    kept: &[bool],
    choice: usize,
    seed: u64,
) {
    let params = shape
        .iter()
        .zip(kept)
        .map(|(&d, &kept)| if kept { d } else { 1 });
    let norm = Norm::Batch(Channels::Broadcast(params.collect()));
    let operation = Operation::new(norm, Backward::default(), shape, types::<T, P>())
        .with_epsilon(1e-3)
        .with_params(!seed.is_multiple_of(3), false);
    let choices = all_choices(&operation);
    let mut problem = Problem::random(&choices[choice % choices.len()], seed);
    let mut random = Random::new(seed);
    for (statistic, scale, offset) in [(Tensor::Mean, 0.25, 0.5), (Tensor::Variance, 0.5, 1.25)] {
        let len = problem.elements::<P>(statistic).len();
        problem.set(statistic, &random.vec(len, scale, offset));
    }
    let want = problem.reference();
    for subject in taken::<T, P>(contexts) {
        let what = format!("{:?} on {}", problem.operation, subject.name);
        let got = problem.run(subject);
        let got = got.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_close(&got, &want, &what);
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

fn every_order_of_axes<T: Element, P: ParamOf<T>>() {
    let contexts = contexts();
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
        check::<T, P>(&contexts, shape, kept, index, index as u64);
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
        match dtype {
            0 => check::<f32, f32>(&contexts, &shape, &kept, choice, seed),
            1 => check::<f16, f16>(&contexts, &shape, &kept, choice, seed),
            2 => check::<bf16, f32>(&contexts, &shape, &kept, choice, seed),
            _ => check::<f64, f64>(&contexts, &shape, &kept, choice, seed),
        }
        Ok(())
    });
    tested.unwrap();
}

#[test]
fn an_axis_that_does_not_broadcast_is_named() {
    let gpu = &subjects()[0].gpu;
    let run = |params: &[usize]| {
        let layer =
            GpuBatchNorm::new(gpu, BatchNormOptions::broadcast(params).epsilon(1e-3)).unwrap();
        let (tensor, statistic) = ([1.0_f32; 24], [1.0; 6]);
        let args = BackwardArgs::new(
            &[4, 6],
            &tensor,
            &tensor,
            SavedRef::moments(&statistic, &statistic),
        );
        block_on(layer.backward(args))
    };
    assert!(run(&[1, 6]).is_ok());
    assert_eq!(
        run(&[1, 5]).unwrap_err().to_string(),
        "parameters: expected size 1 or 6 along axis 1, got 5"
    );
    assert!(matches!(run(&[6]), Err(Error::Rank { got: 1, .. })));
}
