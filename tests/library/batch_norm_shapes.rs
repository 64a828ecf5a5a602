//! Batch norm's gradient compared with the reference: the shapes that take one dispatch, and random small shapes and
//! tunings. For every kernel with any shape, see verify.rs.

use crate::common::data::{Problem, Random, batch_norm_gradient};
use crate::common::{Subject, random_cases, subjects};
use half::{bf16, f16};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use wgpu_norm::{DataFormat, Element, ParamOf, Profile, Tensor, Tuning};

/// The kernels of a gradient of f32.
fn kernels(subject: &Subject, shape: &[usize], format: DataFormat) -> Vec<&'static str> {
    let operation = batch_norm_gradient::<f32, f32>(shape, format);
    operation.plan(subject.gpu.profile()).unwrap().kernels()
}

#[test]
fn small_tensors_with_the_channels_last_take_one_dispatch() {
    let kernels = |subject: &Subject, shape: &[usize]| kernels(subject, shape, DataFormat::Nxc);
    for subject in subjects() {
        for (what, tuning) in [("gpu", Tuning::GPU), ("software", Tuning::SOFTWARE)] {
            let set = |change: fn(&mut Profile)| {
                subject.with_profile(what, |profile| {
                    profile.tuning = tuning;
                    change(profile);
                })
            };
            let usual = set(|_| {});
            // wgpu's GL backend offers fewer bindings than the kernel has.
            let fits = usual.gpu.profile().max_storage_buffers >= 8;
            for shape in [&[64, 128][..], &[128, 128], &[4, 4, 4, 64], &[16, 1024]] {
                assert_eq!(
                    kernels(&usual, shape) == ["columns_walk"],
                    fits,
                    "{shape:?}"
                );
            }
            // Rows that are not whole vec4s, too many rows, too large.
            for shape in [&[64, 126][..], &[16_384, 4], &[64, 128, 128]] {
                assert_ne!(kernels(&usual, shape), ["columns_walk"], "{shape:?}");
            }
            let few_buffers = set(|profile| profile.max_storage_buffers = 4);
            assert_eq!(kernels(&few_buffers, &[64, 128]).len(), 4);
            let unwanted = set(|profile| profile.tuning.fused_block = 0);
            // On a GPU the reduction reads statistics and parameters itself if it can bind them.
            let packs = what != "gpu" || usual.gpu.profile().max_storage_buffers < 6;
            assert_eq!(kernels(&unwanted, &[64, 128]).len(), 3 + usize::from(packs));
            // On a GPU a dispatch costs as much as many more elements.
            let of_gpu = kernels(&usual, &[128, 2048]) == ["columns_walk"];
            assert_eq!(of_gpu, fits && what == "gpu");
        }
        // With any tuning, sums stay within the tolerance if all roundings have one sign.
        let greedy = subject.with_profile("greedy", |profile| {
            profile.tuning = Tuning {
                fused_block: u32::MAX,
                ..Tuning::SOFTWARE
            };
        });
        for shape in [&[8192, 4][..], &[32_768, 4]] {
            let operation = batch_norm_gradient::<f32, f32>(shape, DataFormat::Nxc);
            let mut problem = Problem::random(&operation, 6);
            problem.set(Tensor::DiffDst, &vec![0.1; shape.iter().product()]);
            problem.check(&greedy, "many equal rows");
        }
    }
}

#[test]
fn channels_that_a_cache_holds_take_one_dispatch() {
    let kernels = |subject: &Subject, shape: &[usize]| kernels(subject, shape, DataFormat::Ncx);
    for subject in subjects() {
        let set = |change: fn(&mut Tuning)| {
            subject.with_profile("gpu", |profile| {
                profile.long_words = false;
                profile.tuning = Tuning::GPU;
                change(&mut profile.tuning);
            })
        };
        let usual = set(|_| {});
        // wgpu's GL backend offers fewer bindings than the kernel has.
        let fits = usual.gpu.profile().max_storage_buffers >= 8;
        let bytes = |shape: &[usize]| 4 * shape.iter().product::<usize>() as u64;
        let binds = |shape: &[usize]| bytes(shape) <= usual.gpu.profile().max_binding;
        // Blocks of four channels, then single channels, then small channels in few blocks.
        for shape in [
            [50, 2048, 7, 7],
            [8, 512, 7, 7],
            [1, 544, 15, 15],
            [50, 1024, 14, 14],
            [64, 1024, 14, 14],
            [2, 64, 14, 14],
            [8, 64, 7, 7],
            [1, 64, 57, 57],
            [50, 256, 14, 14],
        ] {
            assert_eq!(
                kernels(&usual, &shape) == ["channels_first_fused"],
                fits && binds(&shape),
                "{shape:?} on {}",
                subject.name
            );
        }
        // Workgroups of half the size would have twice as much to walk as keeps a GPU busy.
        let wide = usual.gpu.profile().max_invocations >= Tuning::GPU.fused_workgroup;
        assert_eq!(
            kernels(&usual, &[64, 512, 7, 7]) == ["channels_first_fused"],
            fits && wide,
            "{}",
            subject.name
        );
        // Channels that are too long, too few blocks, runs that cannot be processed one by one, and a binding too small
        // for a tensor that cannot be cut.
        for shape in [[50, 512, 28, 28], [50, 64, 14, 14], [50, 1024, 13, 15]] {
            assert_ne!(
                kernels(&usual, &shape),
                ["channels_first_fused"],
                "{shape:?}"
            );
        }
        let small_bindings = subject.with_profile("gpu, small bindings", |profile| {
            profile.long_words = false;
            profile.tuning = Tuning::GPU;
            profile.max_binding = 32 << 20;
        });
        let cut = kernels(&small_bindings, &[50, 1024, 14, 14]);
        assert!(cut.len() > 4, "{cut:?}");
        let few_blocks = set(|tuning| tuning.fused_blocks = 1);
        for shape in [
            [50, 12, 7, 7],
            [50, 9, 14, 14],
            [96, 9, 8, 8],
            [3, 9, 52, 52],
            [1, 44, 15, 15],
        ] {
            assert_eq!(
                kernels(&few_blocks, &shape) == ["channels_first_fused"],
                fits,
                "{shape:?}"
            );
            let operation = batch_norm_gradient::<f32, f32>(&shape, DataFormat::Ncx);
            Problem::random(&operation, 9).check(&few_blocks, &format!("{shape:?}"));
        }
    }
}

#[test]
fn random_shapes_and_tunings() {
    let power = |from: u32, to: u32| (from..=to).prop_map(|exponent| 1u32 << exponent);
    let tunings = (
        (power(2, 8), power(2, 8), power(0, 6)),
        (power(0, 14), power(6, 14)),
        power(8, 20),
        prop_oneof![Just(0), Just(100), Just(800), Just(u32::MAX)],
    )
        .prop_map(|(sizes, splits, window_unit, fused_block)| {
            let tuning = Tuning {
                workgroup: sizes.0,
                fused_workgroup: sizes.1,
                cheap_barriers: sizes.0.ilog2() % 2,
                channels_last_threads: sizes.2,
                channels_last_vec4s: 1 + sizes.1.ilog2() % 7,
                channels_first_vec4s: 1 + sizes.1 % 5,
                least_row_vec4s: 1 + sizes.1 % 5,
                row_vec4s: 8,
                row_walk: 1 + sizes.1 % 5,
                loads_at_once: 1 + sizes.1.ilog2() % 8,
                busy_workgroups: splits.0,
                tile: splits.1,
                prefetched_pages: 1 + sizes.1 % 5,
                small_tensor: 8 * splits.1,
                fused_block,
                fused_blocks: 0,
                fused_adds: 256,
            };
            let long_words = sizes.0.ilog2() / 2 % 2 == 0;
            (tuning, window_unit, long_words)
        });
    let vec4s = (1..9usize).prop_map(|vec4s| 4 * vec4s);
    let dims = prop_oneof![3 => 1..9usize, 1 => 9..70usize, 1 => vec4s];
    let shapes = prop::collection::vec(dims, 2..6).prop_filter("too large to be quick", |shape| {
        shape.iter().product::<usize>() <= 20_000
    });
    let inputs = (shapes, tunings, any::<bool>(), any::<u64>(), 0..4u8);
    let mut runner = TestRunner::new(Config {
        cases: random_cases(96),
        rng_seed: RngSeed::Fixed(20),
        failure_persistence: None,
        ..Config::default()
    });
    let unchecked: Vec<_> = subjects().iter().filter(|s| !s.checked).collect();
    let result = runner.run(
        &inputs,
        |(shape, (tuning, window_unit, long_words), ncx, seed, pair)| {
            let format = match ncx {
                true => DataFormat::Ncx,
                false => DataFormat::Nxc,
            };
            let subject = unchecked[seed as usize % unchecked.len()];
            let subject = subject.with_profile(&format!("{tuning:?}"), |profile| {
                profile.tuning = tuning;
                profile.window_unit = window_unit;
                profile.long_words &= long_words;
            });
            fn check<T: Element, P: ParamOf<T>>(
                shape: &[usize],
                format: DataFormat,
                seed: u64,
                subject: &Subject,
            ) {
                if subject.takes::<T>() {
                    let operation = batch_norm_gradient::<T, P>(shape, format);
                    let problem = Problem::random(&operation, Random::new(seed).bits());
                    problem.check(subject, &format!("{operation:?}"));
                }
            }
            match pair {
                0 => check::<f32, f32>(&shape, format, seed, &subject),
                1 => check::<f16, f16>(&shape, format, seed, &subject),
                2 => check::<bf16, f32>(&shape, format, seed, &subject),
                _ => check::<f64, f64>(&shape, format, seed, &subject),
            }
            Ok(())
        },
    );
    result.unwrap();
}
