//! Tensors in pieces: the same bits as in one piece, within the budget, and refusals.

use crate::common::buffers::{Buffers, Room, submit};
use crate::common::data::Problem;
use crate::common::storage::Memory;
use crate::common::{Subject, subjects, takes_all, takes_every_one};
use pollster::block_on;
use wgpu_norm::stream::Stream;
use wgpu_norm::{
    Activation, Algorithm, Backward, Channels, DType, DTypes, DataFormat, Epilogue, Error, Format,
    Forward, Norm, Operation, Pass, Residual, RunningUpdate, RunningVariance, Through,
};

/// Asserts that any executor may move the future to another thread.
fn sendable<F: Future + Send>(future: F) -> F {
    future
}

/// The smallest budget.
fn smallest(subject: &Subject, operation: &Operation) -> u64 {
    match Stream::new(&subject.gpu, operation, 0) {
        Err(Error::Budget { expected, .. }) => expected,
        Err(error) => panic!("{operation:?} on {}: {error}", subject.name),
        Ok(_) => panic!("a stream without memory"),
    }
}

/// Compares the results of the smallest stream with those in one piece: the bits are the same, except for sums that
/// cutting reorders.
fn check(subject: &Subject, algorithm: Option<Algorithm>, pieces: usize, operation: &Operation) {
    let what = format!("{operation:?} {algorithm:?} on {}", subject.name);
    let types = operation.types;
    if !subject.gpu.supports(types.data) {
        println!("skipped {what}: no {}", types.data);
        return;
    }
    let subject = subject.with_profile("short windows", |profile| {
        profile.window_unit = 256;
        profile.algorithm = algorithm;
    });
    let problem = Problem::random(operation, 7);
    let plan = operation.plan(subject.gpu.profile());
    let plan = plan.unwrap_or_else(|error| panic!("{what}: {error}"));
    let buffers = Buffers::new(&subject, &problem, &plan, Room::Padded);
    submit(
        &subject,
        &plan.bind(&subject.gpu, &buffers.ranges()).unwrap(),
    );
    let budget = smallest(&subject, operation);
    let stream = Stream::new(&subject.gpu, operation, budget);
    let stream = stream.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(stream.memory() <= budget);
    let taken = stream.pieces();
    assert!(taken >= pieces, "{what}: {taken} pieces");
    let mut memory = Memory::new(&problem);
    block_on(sendable(stream.run(&mut memory))).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(memory.most <= 1 << 20);
    let reordered = [Algorithm::RowsReadTwice, Algorithm::ColumnsReadTwice].map(Some);
    // Samples that are taken some at a time have sums of their own.
    let in_samples = matches!(operation.norm, Norm::Axes { .. });
    let reordered = in_samples || reordered.contains(&algorithm);
    for want in buffers.results(&subject, &problem) {
        let tensor = want.used.tensor;
        let (got, rest) = memory.tensors[&tensor].split_at(want.bytes.len());
        assert!(rest.iter().all(|byte| *byte == 0), "{what}: {tensor:?}");
        if reordered {
            let Format::Elements(dtype) = want.used.format else {
                panic!("{what}: {tensor:?}");
            };
            let tolerance = match dtype {
                DType::F32 => 1e-5,
                DType::F16 => 1e-3,
                DType::Bf16 => 8e-3,
                _ => 1e-13,
            };
            let want = want.numbers();
            let largest = want
                .iter()
                .fold(1.0_f64, |most, value| most.max(value.abs()));
            for (got, want) in dtype.values(got).zip(want) {
                let error = (got - want).abs();
                assert!(
                    error <= tolerance * largest,
                    "{what}: {tensor:?}, {got} for {want}"
                );
            }
            continue;
        }
        let first = got
            .iter()
            .zip(&want.bytes)
            .position(|(got, want)| got != want);
        assert_eq!(first, None, "{what}: the byte of {tensor:?} that differs");
    }
}

fn all_types() -> Vec<DTypes> {
    let types = [
        (DType::F32, DType::F32),
        (DType::F16, DType::F32),
        (DType::Bf16, DType::Bf16),
        (DType::F64, DType::F64),
    ];
    let taken = if takes_all() { types.len() } else { 2 };
    types[..taken].iter().map(|&types| types.into()).collect()
}

fn batch(pass: impl Into<Pass>, format: DataFormat, shape: &[usize], types: DTypes) -> Operation {
    Operation::new(Norm::batch(format), pass, shape, types).with_epsilon(1e-3)
}

/// No epilogue, and a residual before the layer.
fn epilogues() -> [Epilogue; 2] {
    [
        Epilogue::default(),
        Epilogue::new(Residual::After, Activation::Relu),
    ]
}

#[test]
fn batch_norm_gradient() {
    let shapes: [(&[usize], DataFormat, Algorithm, usize); 5] = [
        (&[9, 5, 31, 7], DataFormat::Ncx, Algorithm::ChannelsFirst, 8),
        (&[3, 2, 5003], DataFormat::Ncx, Algorithm::ChannelsFirst, 20),
        (&[400, 12], DataFormat::Nxc, Algorithm::ChannelsLast, 8),
        (&[7, 301, 13], DataFormat::Nxc, Algorithm::ChannelsLast, 8),
        (&[5, 8, 64], DataFormat::Ncx, Algorithm::ChannelsFirst, 4),
    ];
    for subject in subjects() {
        for types in all_types() {
            for (shape, format, algorithm, pieces) in shapes {
                for epilogue in epilogues() {
                    let gradient = batch(Backward::default(), format, shape, types);
                    // A mask is cut at multiples of 2048 elements.
                    let is_masked = epilogue != Epilogue::default();
                    let pieces = if is_masked { 2 } else { pieces };
                    let gradient = gradient.with_params(true, false).with_epilogue(epilogue);
                    check(subject, Some(algorithm), pieces, &gradient);
                }
            }
        }
    }
}

#[test]
fn batch_norm_forward() {
    let shapes: [(&[usize], DataFormat, Algorithm); 2] = [
        (&[9, 5, 31, 7], DataFormat::Ncx, Algorithm::ChannelsFirst),
        (&[7, 301, 13], DataFormat::Nxc, Algorithm::ChannelsLast),
    ];
    let update = RunningUpdate::new(0.25, RunningVariance::Unbiased);
    let forward = Forward::default().with_running(update);
    for subject in subjects() {
        for types in all_types() {
            for (shape, format, algorithm) in shapes {
                for epilogue in epilogues() {
                    let forward = batch(forward, format, shape, types).with_epilogue(epilogue);
                    check(subject, Some(algorithm), 4, &forward);
                    let epilogue = Epilogue::new(Residual::None, epilogue.activation);
                    let inference = batch(Pass::Inference, format, shape, types);
                    let inference = inference.with_epilogue(epilogue);
                    check(subject, Some(algorithm), 4, &inference);
                }
            }
        }
    }
}

const LAYER: Norm = Norm::layer(-1);
const BEFORE: Epilogue = Epilogue::new(Residual::Before, Activation::None);

#[test]
fn rows() {
    let (rms, shape) = (Norm::rms(-1), &[301, 66]);
    let (forward, backward) = (Forward::default(), Backward::default());
    for subject in subjects() {
        for types in all_types() {
            for operation in [
                Operation::new(LAYER, backward, shape, types),
                Operation::new(LAYER, forward, shape, types).with_epilogue(BEFORE),
                Operation::new(rms.clone(), backward, shape, types),
                Operation::new(rms.clone(), forward, shape, types),
            ] {
                check(subject, Some(Algorithm::RowsInRegisters), 4, &operation);
            }
        }
    }
}

#[test]
fn rows_that_are_read_twice() {
    for subject in subjects() {
        for shape in [&[301, 66][..], &[40, 2003], &[12, 5000]] {
            let algorithm = Some(Algorithm::RowsReadTwice);
            let backward = Operation::new(LAYER, Backward::default(), shape, DType::F32);
            check(subject, algorithm, 2, &backward);
            let forward = Operation::new(LAYER, Forward::default(), shape, DType::F32);
            check(subject, algorithm, 2, &forward.with_epilogue(BEFORE));
        }
    }
}

/// Norms over columns are cut into ranges of columns, in rows of any width; samples with parameters of their own, or
/// that begin inside words, are taken some at a time.
#[test]
fn norms_over_any_axes() {
    let norm = |axes: &[i64], param_axes: &[i64]| Norm::axes(axes, param_axes);
    let columns = Some(Algorithm::ColumnsReadTwice);
    let cases: [(Norm, &[usize], Option<Algorithm>, usize); 6] = [
        (norm(&[1], &[1]), &[1, 6, 6001], columns, 8),
        (norm(&[1], &[0, 1]), &[2, 5, 4000], columns, 8),
        (norm(&[1], &[1]), &[3, 12, 301], columns, 4),
        (norm(&[2], &[0, 2]), &[200, 3, 33], None, 2),
        (
            norm(&[2], &[0, 2]),
            &[3, 50, 200],
            Some(Algorithm::RowsReadTwice),
            2,
        ),
        (norm(&[1], &[2]), &[300, 6, 21], None, 2),
    ];
    let passes: [Pass; 3] = [
        Backward::default().into(),
        Forward::default().into(),
        Pass::Inference,
    ];
    let types_tested = if takes_every_one() { 4 } else { 2 };
    for subject in subjects() {
        for types in all_types().into_iter().take(types_tested) {
            for (norm, shape, algorithm, pieces) in &cases {
                for pass in passes {
                    let operation = Operation::new(norm.clone(), pass, shape, types);
                    check(
                        subject,
                        *algorithm,
                        *pieces,
                        &operation.with_params(true, true),
                    );
                }
            }
        }
    }
}

#[test]
fn constant_statistics() {
    let constant = Backward::default().with_through(Through::Constant);
    for subject in subjects() {
        for (format, algorithm) in [
            (DataFormat::Ncx, Algorithm::ChannelsFirst),
            (DataFormat::Nxc, Algorithm::ChannelsLast),
        ] {
            let operation = batch(constant, format, &[9, 12, 40], DType::F32.into());
            check(subject, Some(algorithm), 4, &operation);
        }
    }
}

/// The size that an error asks for is enough, and so is any larger one.
#[test]
fn budgets_that_are_large_enough_are_taken() {
    let subject = &subjects()[0];
    for shape in [[300, 1000, 1000], [70, 4001, 1007], [500, 64, 128 * 128]] {
        let backward = Backward::default();
        let operation = batch(backward, DataFormat::Ncx, &shape, DType::F32.into());
        let [_, masked] = epilogues();
        let operation = operation.with_epilogue(masked);
        let expected = smallest(subject, &operation);
        for more in (0..64).map(|step| step * 7_654_321) {
            let stream = Stream::new(&subject.gpu, &operation, expected + more);
            assert!(stream.unwrap().memory() <= expected + more);
        }
    }
}

#[test]
fn groups() {
    let cases: [(&[usize], DataFormat, Algorithm); 2] = [
        (&[5, 6, 300], DataFormat::Ncx, Algorithm::ChannelsFirst),
        (&[5, 300, 6], DataFormat::Nxc, Algorithm::General),
    ];
    for subject in subjects() {
        for types in all_types() {
            for (shape, format, algorithm) in cases {
                let norm = Norm::group(2, format);
                let passes: [Pass; 2] = [Backward::default().into(), Forward::default().into()];
                for pass in passes {
                    let operation = Operation::new(norm.clone(), pass, shape, types);
                    check(subject, Some(algorithm), 4, &operation);
                }
            }
        }
    }
}

#[test]
fn small_and_empty_tensors() {
    for subject in subjects() {
        for shape in [&[1, 1][..], &[3, 5], &[0, 4], &[2, 0]] {
            let backward = Backward::default();
            let operation = batch(backward, DataFormat::Nxc, shape, DType::F32.into());
            check(subject, None, 0, &operation);
        }
    }
}

#[test]
fn budgets_that_are_too_small_are_refused() {
    let (backward, types) = (Backward::default(), DTypes::from(DType::F32));
    let whole = batch(backward, DataFormat::Ncx, &[64, 64, 128, 128], types);
    // Parameters that vary along any axes: the tensor cannot be cut.
    let norm = Norm::Batch(Channels::Broadcast(vec![64, 1, 128, 1]));
    let uncut = Operation::new(norm, backward, &[64, 64, 128, 64], types);
    for subject in subjects() {
        let error = Stream::new(&subject.gpu, &whole, 1 << 20).unwrap_err();
        let Error::Budget { expected, got, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(got, 1 << 20);
        assert!((4 << 20..64 << 20).contains(&expected), "{expected}");
        let stream = Stream::new(&subject.gpu, &whole, expected).unwrap();
        assert!(stream.memory() <= expected && stream.pieces() > 4);
        // 256 MiB of each tensor; src and diff_dst are read twice.
        assert!((5 << 28..(5 << 28) + (5 << 20)).contains(&stream.traffic()));
        let error = Stream::new(&subject.gpu, &uncut, 64 << 20).unwrap_err();
        assert!(
            matches!(error, Error::Budget { expected, .. } if expected > 256 << 20),
            "{error}"
        );
    }
}
