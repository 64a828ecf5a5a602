//! The same bits from several threads, in windows and as a whole; and tensors beyond an adapter's limits.

use crate::common::data::{
    FORMATS, Problem, Values, all_choices, assert_close, batch_norm_gradient, in_format,
};
use crate::common::{Subject, every_pair, one, subjects};
use half::bf16;
use pollster::block_on;
use std::sync::atomic::{AtomicUsize, Ordering};
use wgpu_norm::{
    Algorithm, Backward, BackwardArgs, BatchNormOptions, Channels, DataFormat, Element, Error,
    GpuBatchNorm, Norm, Operation, Plan, Profile, SavedRef, Tensor, Through, Tuning,
};

/// A gradient of f32 with the usual choices, with the channels along axis 1.
fn ncx(shape: &[usize], seed: u64) -> Problem {
    problem(shape, DataFormat::Ncx, seed)
}

fn problem(shape: &[usize], format: DataFormat, seed: u64) -> Problem {
    Problem::random(&batch_norm_gradient::<f32, f32>(shape, format), seed)
}

#[test]
fn several_threads_on_one_context() {
    let shapes: [&[usize]; 4] = [&[5, 33, 27], &[2, 64, 19, 19], &[64, 3, 100], &[3, 2, 5001]];
    for subject in subjects() {
        // A new context, so that threads also compile at once.
        let subject = subject.with_profile("threads", |_| {});
        let problems: Vec<_> = (0..4)
            .map(|i| {
                let format = FORMATS[i % 2];
                let problem = problem(&in_format(shapes[i], format), format, i as u64);
                let want = problem.reference();
                (problem, want)
            })
            .collect();
        let results: Vec<Vec<_>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..6)
                .map(|thread| {
                    let (problems, subject) = (&problems, &subject);
                    scope.spawn(move || {
                        let run = |i: usize| {
                            let index = (i + thread) % problems.len();
                            (index, problems[index].0.run(subject).unwrap())
                        };
                        (0..8).map(run).collect()
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let mut first: Vec<Option<Vec<Values>>> = vec![None; problems.len()];
        for (index, got) in results.into_iter().flatten() {
            assert_close(&got, &problems[index].1, &subject.name);
            let first = first[index].get_or_insert_with(|| got.clone());
            assert!(*first == got, "problem {index} on {}", subject.name);
        }
        assert!(first.iter().all(Option::is_some));
    }
}

/// Sizes that cut small tensors into many windows.
const SMALL_UNITS: Tuning = Tuning {
    workgroup: 16,
    fused_workgroup: 16,
    cheap_barriers: 0,
    channels_last_threads: 4,
    channels_last_vec4s: 2,
    channels_first_vec4s: 1,
    least_row_vec4s: 1,
    row_vec4s: 2,
    row_walk: 1,
    loads_at_once: 3,
    busy_workgroups: 64,
    tile: 1024,
    prefetched_pages: 3,
    small_tensor: 8192,
    fused_block: 1024,
    fused_blocks: 1,
    fused_adds: 256,
};

fn small_units(profile: &mut Profile) {
    profile.tuning = SMALL_UNITS;
    profile.window_unit = 4096;
}

/// Binding sizes in bytes, of which each problem uses its smallest possible: the workspace is never cut.
const WINDOWS: [u64; 4] = [40 << 10, 128 << 10, 512 << 10, 8 << 20];

struct Windows {
    whole: Subject,
    cut: Vec<Subject>,
    /// Problems that were cut into windows.
    problems: AtomicUsize,
}

impl Windows {
    fn check_all<T: Element, P: Element>(&self) {
        let shapes: &[&[usize]] = &[
            &[6, 33, 27 * 27], // blocks of outer indices, odd planes
            &[2, 5, 30_003],   // chunks of a plane
            &[2, 6, 10_012],   // and planes that begin in the middle of eight elements
            &[60, 62, 44],     // the same of short planes
            &[500, 7, 40],     // many outer indices a block
            &[300, 51, 9],     // short planes: columns of several elements a channel
            &[50_011, 3],      // rows made of many outer indices, the last one partial
            &[60_001, 4],      // rows of whole vec4s
            &[1, 701, 200],    // one outer index
            &[1, 301, 520],    // channels in turns
            &[1, 704, 81],     // odd planes, eight of which fill vectors
            &[700, 61, 2],     // rows of odd width, several outer indices a row
            &[2000, 64],       // whole rows
            &[7, 100, 331],    // channels · inner larger than a window, as runs
            &[3, 500, 31],     // and as columns, where the apply alone can be cut
            &[1, 1, 150_001],  // one channel
            &[1, 5001, 7],     // fewer outer indices than fill whole vectors
            &[3, 3001, 5],
        ];
        let frozen = Backward::default()
            .with_through(Through::Constant)
            .with_param_grads(false);
        for (seed, shape) in shapes.iter().enumerate() {
            for format in FORMATS {
                for pass in [Backward::default(), frozen] {
                    let shape = in_format(shape, format);
                    let mut operation = batch_norm_gradient::<T, P>(&shape, format);
                    operation.pass = pass.into();
                    self.check(&Problem::random(&operation, seed as u64));
                }
            }
        }
    }

    fn check(&self, problem: &Problem) {
        let operation = &problem.operation;
        let plan = |subject: &Subject| operation.plan(subject.gpu.profile());
        let whole = plan(&self.whole).unwrap();
        // If a binding cannot hold as many partial sums, there are fewer.
        let alike = |plan: &Plan| {
            plan.algorithm() == whole.algorithm()
                && plan.workspace_bytes() == whole.workspace_bytes()
        };
        let cut = self.cut.iter().find_map(|subject| match plan(subject) {
            Ok(plan) => alike(&plan).then_some((subject, plan)),
            Err(Error::Limit { .. }) => None,
            Err(error) => panic!("{error}"),
        });
        let (subject, cut) = cut.expect("the largest window is enough");
        let (cut, whole) = (cut.kernels().len(), whole.kernels().len());
        let what = format!("{operation:?} on {}", subject.name);
        if problem.inputs[0].bytes.len() as u64 > subject.gpu.profile().max_binding {
            self.problems.fetch_add(1, Ordering::Relaxed);
            // If a row is cut anyway, windows need no additional dispatches.
            assert!(cut >= whole, "{what}");
        }
        let in_one = problem.run(&self.whole).unwrap();
        let in_windows = problem.run(subject);
        let in_windows = in_windows.unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(in_one == in_windows, "{what}");
        if self.whole.checked && cut > whole {
            assert_close(&in_windows, &problem.reference(), &what);
        }
    }
}

fn windows_give_the_bits_of_the_whole<T: Element, P: Element>() {
    // Checks do not change bits, as another test shows, so one adapter with them is enough.
    let unchecked = subjects().iter().filter(|subject| !subject.checked);
    let subjects = unchecked.chain([one(true)]);
    for subject in subjects.filter(|subject| subject.takes::<T>()) {
        let whole = subject.with_profile("whole", small_units);
        let cut = WINDOWS.map(|window| {
            subject.with_profile(&format!("in windows of {window} bytes"), |profile| {
                small_units(profile);
                profile.max_binding = window;
                // Folded, so that windows also have workgroups without a tile.
                profile.max_workgroups = 255;
            })
        });
        let test = Windows {
            whole,
            cut: cut.into(),
            problems: AtomicUsize::new(0),
        };
        test.check_all::<T, P>();
        let cut = test.problems.into_inner();
        println!("{cut} problems in windows on {}", subject.name);
        assert!(cut > 25, "only {cut} problems are larger than a window");
    }
}

every_pair!(windows_give_the_bits_of_the_whole: f32 f32 f32, bf16_f32 bf16 f32);

#[test]
fn what_cannot_be_cut_is_an_error() {
    let subject = one(false).with_profile("in windows", |profile| profile.max_binding = 4096);
    let plan = |operation: &Operation| operation.plan(subject.gpu.profile());
    // Axes that cannot be merged.
    let mut operation = ncx(&[6, 20, 6, 5], 1).operation;
    operation.norm = Norm::Batch(Channels::Broadcast(vec![6, 1, 6, 1]));
    let error = plan(&operation).unwrap_err();
    let Error::Limit {
        what,
        limit: "max_storage_buffer_binding_size",
        needed,
        available: 4096,
        ..
    } = &error
    else {
        panic!("{error:?}");
    };
    assert!(what.contains("src"), "{what}");
    assert!(*needed > 4096);
    // The workspace and the parameters are bound as a whole.
    let error = plan(&ncx(&[1, 4096], 1).operation).unwrap_err();
    assert!(matches!(error, Error::Limit { .. }), "{error:?}");
    let _ = plan(&ncx(&[4, 4, 10], 1).operation).unwrap();
}

/// With the usual sizes, for which larger tensors are cut.
#[test]
fn small_bindings_are_enough() {
    for subject in subjects() {
        let small = subject.with_profile("256 KiB a binding", |profile| {
            profile.max_binding = 256 << 10;
        });
        for shape in [
            &[4, 5, 70_001][..],
            &[8, 64, 28, 28],
            &[3000, 40],
            &[1, 1, 70_000],
        ] {
            for format in FORMATS {
                let shape = in_format(shape, format);
                problem(&shape, format, 8).check(&small, &format!("{shape:?} {format}"));
            }
        }
    }
}

/// More tiles than a dispatch has workgroups, with either kernel.
#[test]
fn more_tiles_than_workgroups() {
    for subject in subjects() {
        let tuning = Tuning {
            workgroup: 4,
            channels_last_threads: 1,
            ..Tuning::SOFTWARE
        };
        for algorithm in [Algorithm::ChannelsFirst, Algorithm::ChannelsLast] {
            for (shape, max_workgroups) in [
                (&[70_000, 1][..], 65_535),
                (&[1, 70_000], 65_535),
                (&[70_000, 4], 65_535),
                (&[40, 30, 40], 60),
            ] {
                let what = format!("{algorithm} {max_workgroups}");
                let few = subject.with_profile(&what, |profile| {
                    profile.tuning = Tuning {
                        tile: 64,
                        busy_workgroups: 1 << 20,
                        ..tuning
                    };
                    profile.algorithm = Some(algorithm);
                    profile.max_workgroups = profile.max_workgroups.min(max_workgroups);
                });
                ncx(shape, 3).check(&few, &format!("{shape:?}"));
            }
        }
        // The fused channels-last kernel, whose surplus workgroups do not return at once.
        let folded = subject.with_profile("7 workgroups", |profile| {
            profile.max_workgroups = 7;
            profile.tuning = tuning;
        });
        ncx(&[9, 132], 5).check(&folded, "fused channels last");

        // The order of additions does not depend on how the workgroups are folded.
        let operation = batch_norm_gradient::<bf16, f32>(&[40, 30, 40], DataFormat::Ncx);
        let problem = Problem::random(&operation, 4);
        let few = subject.with_profile("40 workgroups", |profile| profile.max_workgroups = 40);
        let usual = problem.run(subject).unwrap();
        assert!(usual == problem.run(&few).unwrap(), "{}", few.name);
    }
}

/// 205 MB per tensor: beyond the 128 MiB that lavapipe and WebGPU's defaults can bind.
#[test]
fn a_tensor_beyond_the_binding_limit() {
    let subject = one(false);
    let shape = [64, 64, 112, 112];
    let bytes = shape.iter().product::<usize>() as u64 * 4;
    let dispatches = |shape: &[usize]| {
        let operation = batch_norm_gradient::<f32, f32>(shape, DataFormat::Ncx);
        operation
            .plan(subject.gpu.profile())
            .unwrap()
            .kernels()
            .len()
    };
    if subject.gpu.profile().max_binding < bytes {
        assert!(dispatches(&shape) > dispatches(&[1, 64, 112, 112]));
    } else {
        println!("{}: binds {bytes} bytes at once", subject.name);
    }
    ncx(&shape, 5).check(subject, "64 × 64 × 112 × 112");
}

/// Millions of equal terms, as in the gradient of a mean: all roundings have one sign.
#[test]
fn long_channels_of_equal_terms() {
    let subject = one(false);
    for (format, shape) in [
        (DataFormat::Ncx, [1, 1, 12_000_017]),
        (DataFormat::Nxc, [1, 4_000_037, 3]),
    ] {
        let mut problem = problem(&shape, format, 6);
        problem.set(Tensor::DiffDst, &vec![0.1; shape.iter().product()]);
        problem.check(subject, &format!("{shape:?} {format} of equal diff_dst"));
    }
}

/// All choices in windows once more, compared with the reference: the halves of the plan differ.
#[test]
fn every_choice_in_windows() {
    let cut = one(true).with_profile("in windows", |profile| {
        small_units(profile);
        profile.max_binding = WINDOWS[1];
    });
    for format in FORMATS {
        let shape = in_format(&[9, 60, 49], format);
        for operation in all_choices(&batch_norm_gradient::<f32, f32>(&shape, format)) {
            Problem::random(&operation, 7).check(&cut, &format!("{operation:?}"));
        }
    }
}

#[test]
fn futures_of_one_context_can_interleave() {
    let problem = ncx(&[5, 33, 27], 8);
    let options = BatchNormOptions::new(DataFormat::Ncx);
    let layer = GpuBatchNorm::new(&one(false).gpu, options).unwrap();
    let [src, diff_dst, mean, variance, gamma] = [
        Tensor::Src,
        Tensor::DiffDst,
        Tensor::Mean,
        Tensor::Variance,
        Tensor::Gamma,
    ]
    .map(|tensor| problem.elements::<f32>(tensor));
    let args = BackwardArgs::new(
        &[5, 33, 27],
        &src,
        &diff_dst,
        SavedRef::moments(&mean, &variance),
    );
    let args = args.gamma(&gamma);
    let first = layer.backward(args);
    let second = layer.backward(args);
    // The second is finished before the first is polled at all.
    let second = block_on(second).unwrap();
    let first = block_on(first).unwrap();
    // Debug output distinguishes different bits, except NaN.
    assert!(format!("{first:?}") == format!("{second:?}"));
}
