//! The same bits from several threads, in windows and whole. And tensors beyond an adapter's limits.

use crate::common::data::{Case, FORMATS, all_choices, assert_close, bits, in_format, options_in};
use crate::common::{Subject, every_pair, one, subjects};
use half::bf16;
use pollster::block_on;
use std::sync::atomic::{AtomicUsize, Ordering};
use wgpu_norm::{
    Algorithm, BatchNormBackwardPlan, BatchNormOptions, DTypes, DataFormat, Element, Error,
    GpuBatchNorm, ParamGrads, ParamOf, Statistics, Tuning,
};

const SHAPES: &[&[usize]] = &[
    &[5, 33, 27],
    &[2, 64, 19, 19],
    &[64, 3, 100],
    &[3, 2, 5001],
    &[3001, 5],
    &[1, 1, 60_001],
    &[70, 132], // small, with the channels last
];

#[test]
fn several_threads_on_one_context() {
    for subject in subjects() {
        // A new context, so that threads also compile at once.
        let subject = subject.with_profile("threads", |_| {});
        let cases: Vec<_> = (0..4)
            .map(|i| {
                let data_format = FORMATS[i % 2];
                let shape = in_format(SHAPES[i], data_format);
                let case = Case::<f32, f32>::random(&shape, options_in(data_format), i as u64);
                let want = case.reference();
                (case, want)
            })
            .collect();
        let results: Vec<Vec<_>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..6)
                .map(|thread| {
                    let (cases, subject) = (&cases, &subject);
                    scope.spawn(move || {
                        let run = |i: usize| {
                            let index = (i + thread) % cases.len();
                            (index, cases[index].0.run(subject).unwrap())
                        };
                        (0..8).map(run).collect()
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let mut first: Vec<Option<[Vec<u8>; 3]>> = vec![None; cases.len()];
        for (index, grads) in results.into_iter().flatten() {
            let (case, want) = &cases[index];
            assert_close(&grads, want, case.options.param_grads, &subject.name);
            let got = bits(&grads);
            let first = first[index].get_or_insert_with(|| got.clone());
            assert!(*first == got, "case {index} on {}", subject.name);
        }
        assert!(first.iter().all(Option::is_some));
    }
}

/// Sizes with which small tensors are cut into many windows.
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
    busy_workgroups: 64,
    tile: 1024,
    walk_pages: 3,
    small_tensor: 8192,
    fused_block: 1024,
    fused_blocks: 1,
    fused_adds: 256,
};

fn small_units(profile: &mut wgpu_norm::Profile) {
    profile.tuning = SMALL_UNITS;
    profile.window_unit = 4096;
}

/// Bytes that a binding may have, where a problem's smallest is taken: the workspace is never cut.
const WINDOWS: [u64; 4] = [40 << 10, 128 << 10, 512 << 10, 8 << 20];

struct Windows {
    whole: Subject,
    cut: Vec<Subject>,
    /// Cases that were cut into windows.
    cases: AtomicUsize,
}

impl Windows {
    fn check_all<T: Element, P: ParamOf<T>>(&self) {
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
        for (seed, shape) in shapes.iter().enumerate() {
            for data_format in FORMATS {
                for (statistics, param_grads) in [
                    (Through::Batch, ParamGrads::Both),
                    (Through::Constant, ParamGrads::Frozen),
                ] {
                    let options = BatchNormOptions {
                        statistics,
                        param_grads,
                        ..options_in(data_format)
                    };
                    let shape = in_format(shape, data_format);
                    let case = Case::<T, P>::random(&shape, options, seed as u64);
                    self.check(&case);
                }
            }
        }
    }

    fn check<T: Element, P: ParamOf<T>>(&self, case: &Case<T, P>) {
        let plan = |subject: &Subject| {
            let layer = GpuBatchNorm::new(&subject.gpu, case.options)?;
            layer.plan_backward(
                &case.shape,
                DTypes::from((T::DTYPE, P::DTYPE)).with_statistics(P::DTYPE),
                true,
            )
        };
        let whole = plan(&self.whole).unwrap();
        // Where a binding has no room for as many partial sums, there are fewer.
        let alike = |plan: &BatchNormBackwardPlan| {
            plan.algorithm() == whole.algorithm() && plan.workspace_size() == whole.workspace_size()
        };
        let cut = self.cut.iter().find_map(|subject| match plan(subject) {
            Ok(plan) => alike(&plan).then_some((subject, plan)),
            Err(Error::Limit { .. }) => None,
            Err(error) => panic!("{error}"),
        });
        let (subject, cut) = cut.expect("the largest window is enough");
        let what = format!(
            "{:?} {:?} {}/{} on {}",
            case.shape,
            case.options,
            T::DTYPE,
            P::DTYPE,
            subject.name
        );
        let bytes = case.src.len() as u64 * T::DTYPE.size();
        if bytes > subject.gpu.profile().max_binding {
            self.cases.fetch_add(1, Ordering::Relaxed);
            // Where a row is cut anyway, windows take no dispatches of their own.
            assert!(cut.dispatches() >= whole.dispatches(), "{what}");
        }
        let in_one = case.run(&self.whole).unwrap();
        let in_windows = case.run(subject).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(bits(&in_one) == bits(&in_windows), "{what}");
        if self.whole.checked && cut.dispatches() > whole.dispatches() {
            let want = case.reference();
            assert_close(&in_windows, &want, case.options.param_grads, &what);
        }
    }
}

fn windows_give_the_bits_of_the_whole<T: Element, P: ParamOf<T>>() {
    // Checks change no bits, as another test shows: one adapter with them is enough.
    let unchecked = subjects().iter().filter(|subject| !subject.checked);
    let subjects = unchecked.chain([one(true)]);
    for subject in subjects.filter(|subject| subject.takes::<T>()) {
        let whole = subject.with_profile("whole", small_units);
        let cut = WINDOWS.map(|window| {
            subject.with_profile(&format!("in windows of {window} bytes"), |profile| {
                small_units(profile);
                profile.max_binding = window;
                // Folded, so that there are workgroups without a tile beside a window.
                profile.max_workgroups = 255;
            })
        });
        let test = Windows {
            whole,
            cut: cut.into(),
            cases: AtomicUsize::new(0),
        };
        test.check_all::<T, P>();
        let cut = test.cases.into_inner();
        println!("{cut} cases in windows on {}", subject.name);
        assert!(cut > 25, "only {cut} cases are larger than a window");
    }
}

every_pair!(windows_give_the_bits_of_the_whole: f32 f32 f32, bf16_f32 bf16 f32);

#[test]
fn what_cannot_be_cut_is_an_error() {
    let subject = one(false).with_profile("in windows", |profile| profile.max_binding = 4096);
    let layer = GpuBatchNorm::new(&subject.gpu, options_in(DataFormat::Ncx)).unwrap();
    let plan = |shape: &[usize]| layer.plan_backward(shape, (f32::DTYPE, f32::DTYPE), true);
    // Axes that do not fold.
    let (shape, params) = ([6, 20, 6, 5], [6, 1, 6, 1]);
    let error = layer.plan_backward_broadcast(&shape, &params, (f32::DTYPE, f32::DTYPE), true);
    let error = error.unwrap_err();
    let Error::Limit {
        what,
        limit,
        needed,
        available,
    } = &error
    else {
        panic!("{error:?}");
    };
    assert_eq!(*limit, "max_storage_buffer_binding_size");
    assert!(what.contains("src"), "{what}");
    assert_eq!(*available, 4096);
    assert!(*needed > 4096);
    // The workspace and the parameters are bound whole.
    let error = plan(&[1, 4096]).unwrap_err();
    assert!(matches!(error, Error::Limit { .. }), "{error:?}");
    let _ = plan(&[4, 4, 10]).unwrap();
}

/// With the usual sizes, which are cut for larger ones.
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
            for data_format in FORMATS {
                let shape = in_format(shape, data_format);
                let case = Case::<f32, f32>::random(&shape, options_in(data_format), 8);
                case.check(&small, &format!("{shape:?} {data_format}"));
            }
        }
    }
}

/// More tiles than a dispatch has workgroups, by either kernel.
#[test]
fn more_tiles_than_workgroups() {
    for subject in subjects() {
        for algorithm in [Algorithm::ChannelsFirst, Algorithm::ChannelsLast] {
            let tuning = Tuning {
                workgroup: 4,
                channels_last_threads: 1,
                tile: 64,
                busy_workgroups: 1 << 20,
                ..Tuning::SOFTWARE
            };
            for (shape, max_workgroups) in [
                (&[70_000, 1][..], 65_535),
                (&[1, 70_000], 65_535),
                (&[70_000, 4], 65_535),
                (&[40, 30, 40], 60),
            ] {
                let what = format!("{algorithm} {max_workgroups}");
                let few = subject.with_profile(&what, |profile| {
                    profile.tuning = tuning;
                    profile.algorithm = Some(algorithm);
                    profile.max_workgroups = profile.max_workgroups.min(max_workgroups);
                });
                let case = Case::<f32, f32>::random(shape, options_in(DataFormat::Ncx), 3);
                case.check(&few, &format!("{shape:?}"));
            }
        }
        // The fused channels-last kernel, whose surplus workgroups do not return at once.
        let folded = subject.with_profile("7 workgroups", |profile| {
            profile.max_workgroups = 7;
            profile.tuning = Tuning {
                workgroup: 4,
                channels_last_threads: 1,
                ..Tuning::SOFTWARE
            };
        });
        let case = Case::<f32, f32>::random(&[9, 132], options_in(DataFormat::Ncx), 5);
        case.check(&folded, "fused columns");

        // However the workgroups are folded, the order of the additions stays.
        let case = Case::<bf16, f32>::random(&[40, 30, 40], options_in(DataFormat::Ncx), 4);
        let few = subject.with_profile("40 workgroups", |profile| profile.max_workgroups = 40);
        let usual = bits(&case.run(subject).unwrap());
        assert!(usual == bits(&case.run(&few).unwrap()), "{}", few.name);
    }
}

/// 205 MB a tensor: beyond the 128 MiB that lavapipe and WebGPU's defaults bind.
#[test]
fn a_tensor_beyond_the_binding_limit() {
    let subject = one(false);
    let shape = [64, 64, 112, 112];
    let bytes = shape.iter().product::<usize>() as u64 * 4;
    let options = options_in(DataFormat::Ncx);
    let layer = GpuBatchNorm::new(&subject.gpu, options).unwrap();
    let dispatches = |shape: &[usize]| {
        let plan = layer
            .plan_backward(shape, (f32::DTYPE, f32::DTYPE), true)
            .unwrap();
        plan.dispatches()
    };
    if subject.gpu.profile().max_binding < bytes {
        assert!(dispatches(&shape) > dispatches(&[1, 64, 112, 112]));
    } else {
        println!("{}: binds {bytes} bytes at once", subject.name);
    }
    let case = Case::<f32, f32>::random(&shape, options, 5);
    case.check(subject, "64 × 64 × 112 × 112");
}

/// Millions of equal terms, as the gradient of a mean has: roundings that all have one sign.
#[test]
fn long_channels_of_equal_terms() {
    let subject = one(false);
    for (data_format, shape) in [
        (DataFormat::Ncx, [1, 1, 12_000_017]),
        (DataFormat::Nxc, [1, 4_000_037, 3]),
    ] {
        let mut case = Case::<f32, f32>::random(&shape, options_in(data_format), 6);
        case.diff_dst.fill(0.1);
        case.check(
            subject,
            &format!("{shape:?} {data_format} of equal diff_dst"),
        );
    }
}

/// All choices in windows once more, by the reference: the halves of the plan differ.
#[test]
fn every_choice_in_windows() {
    for data_format in FORMATS {
        for (statistics, param_grads) in all_choices() {
            let options = BatchNormOptions {
                statistics,
                param_grads,
                ..options_in(data_format)
            };
            let shape = in_format(&[9, 60, 49], data_format);
            let case = Case::<f32, f32>::random(&shape, options, 7);
            let cut = one(true).with_profile("in windows", |profile| {
                small_units(profile);
                profile.max_binding = WINDOWS[1];
            });
            case.check(&cut, &format!("{options:?}"));
        }
    }
}

#[test]
fn futures_of_one_context_can_interleave() {
    let subject = one(false);
    let case = Case::<f32, f32>::random(&[5, 33, 27], options_in(DataFormat::Ncx), 8);
    let layer = GpuBatchNorm::new(&subject.gpu, case.options).unwrap();
    let first = layer.backward(case.args());
    let second = layer.backward(case.args());
    // The second is finished before the first is polled at all.
    let second = block_on(second).unwrap();
    let first = block_on(first).unwrap();
    assert!(bits(&first) == bits(&second));
}
