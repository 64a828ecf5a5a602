//! The library's list of cases, on every adapter found.

use crate::common::{every_subject, one, subjects, takes_all, takes_every_one};
use pollster::block_on;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use wgpu_norm::{Algorithm, DType, Error};
use wgpu_norm_verify::{Case, Outcome, cases};

/// Runs the full list if `WGPU_NORM_TEST_EVERY` is set. Otherwise one adapter runs the default list, and the others
/// some of its f32 cases; with `WGPU_NORM_TEST_ALL` the others run a third of that list, and each adapter a part of the
/// full one. Shader checks are cases in the list, so each adapter runs it once.
#[test]
fn every_case() {
    let of_default = cases(false).len();
    let cases = cases(takes_all());
    let subjects = every_subject().iter().enumerate();
    for (index, subject) in subjects.filter(|(_, subject)| !subject.checked) {
        let mut algorithms = BTreeSet::new();
        let mut unsupported = Vec::new();
        let mut faults = Vec::new();
        let whole = takes_every_one() || subject.takes_all_types;
        let is_taken = |at: usize, case: &Case| match at < of_default {
            true if whole => true,
            true if takes_all() => (at + index).is_multiple_of(3),
            true => at.is_multiple_of(9) && case.operation().types.data == DType::F32,
            // Each adapter runs others.
            false => {
                takes_every_one() || (at + 8 * index).is_multiple_of(if whole { 24 } else { 72 })
            }
        };
        let listed = cases.iter().enumerate();
        let taken = listed.filter(|(at, case)| is_taken(*at, case));
        let taken: Vec<_> = taken.map(|(_, case)| case).collect();
        // Side by side, each thread on its own devices.
        let next = AtomicUsize::new(0);
        let outcomes = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            // wgpu's GL backend panics if threads wait for each other for long.
            let threads = match subject.gpu.adapter_info().backend {
                wgpu_norm::wgpu::Backend::Gl => 1,
                _ => std::thread::available_parallelism().map_or(1, usize::from),
            };
            for _ in 0..threads {
                scope.spawn(|| {
                    let subject = &every_subject()[index];
                    for turn in 1.. {
                        let Some(case) = taken.get(next.fetch_add(1, Ordering::Relaxed)) else {
                            break;
                        };
                        // Each pipeline takes a megabyte or two.
                        if turn % 64 == 0 {
                            subject.gpu.forget_pipelines();
                        }
                        let outcome = block_on(case.run(&subject.gpu));
                        outcomes.lock().unwrap().push((case, outcome));
                    }
                });
            }
        });
        for (case, outcome) in outcomes.into_inner().unwrap() {
            match outcome {
                Ok(Outcome::Ran {
                    algorithm, fault, ..
                }) => {
                    algorithms.insert(algorithm);
                    faults.extend(fault.map(|fault| format!("{case}: {fault}")));
                }
                Ok(Outcome::Unsupported { reason }) => {
                    unsupported.push(format!("{case}: {reason}"));
                }
                Ok(other) => faults.push(format!("{case}: {other:?}")),
                Err(error) => faults.push(format!("{case}: {error}")),
            }
        }
        let name = &subject.name;
        assert!(faults.is_empty(), "on {name}:\n{}", faults.join("\n"));
        println!("{} cases not supported on {name}", unsupported.len());
        // If an adapter has everything that kernels need, no case is left out.
        let profile = subject.gpu.profile();
        let binds_all = profile.max_storage_buffers >= 8;
        if binds_all && profile.f64 && profile.f16 {
            assert!(
                unsupported.is_empty(),
                "on {name}:\n{}",
                unsupported.join("\n")
            );
        }
        if binds_all && whole {
            assert_eq!(algorithms.len(), Algorithm::ALL.len(), "{algorithms:?}");
        }
    }
}

/// Shapes on which an invocation that did all the work would exceed the loop iterations that Mesa's software drivers
/// allow: all of them on one adapter, and the one that was found first on each. The quick run runs that one on one
/// adapter.
#[test]
fn long_loops() {
    let listed = cases(true);
    let long = listed.iter().filter(|case| {
        let id = case.to_string();
        id.split('/').any(|part| part == "alike")
    });
    let long: Vec<_> = long.collect();
    assert!(long.len() >= 10, "{}", long.len());
    let first = "batch_norm_backward/1x512x512x512x1/nxc/f16-f32/alike";
    let on_all_adapters = subjects().iter().filter(|subject| !subject.checked);
    for subject in on_all_adapters.filter(|s| takes_all() || s.takes_all_types) {
        let all = takes_all() && subject.name == one(false).name;
        let own = long.iter().filter(|case| all || case.to_string() == first);
        let mut ran = 0;
        for case in own {
            let outcome = block_on(case.run(&subject.gpu));
            let right = matches!(outcome, Ok(Outcome::Ran { fault: None, .. }));
            assert!(right, "{case} on {}: {outcome:?}", subject.name);
            ran += 1;
        }
        assert!(ran > 0, "on {}", subject.name);
    }
}

/// No listed case forces an algorithm that its operation cannot take.
#[test]
fn every_listed_case_has_a_plan() {
    let gpu = &one(false).gpu;
    let mut refused = Vec::new();
    for case in cases(true) {
        let mut profile = case.profile(gpu);
        (profile.f16, profile.f64) = (true, true);
        if let Err(error) = case.operation().plan(&profile) {
            refused.push(format!("{case}: {error}"));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// The default list, as the quick run uses it, covers every operator's algorithms and types.
#[test]
fn the_list_has_every_algorithm_and_type() {
    use Algorithm::*;
    let of_channels = [
        General,
        ChannelsLast,
        ChannelsFirst,
        FusedChannelsFirst,
        FusedChannelsLast,
    ];
    let (of_inference, of_rows) = (&of_channels[..3], &[RowsInRegisters, RowsReadTwice][..]);
    let cases = cases(false);
    for (operator, algorithms) in [
        ("batch_norm_backward", &of_channels[..]),
        ("batch_norm_forward", &of_channels),
        ("batch_norm_inference", of_inference),
        ("layer_norm_backward", of_rows),
        ("layer_norm_forward", of_rows),
        ("rms_norm_backward", of_rows),
        ("rms_norm_forward", of_rows),
    ] {
        let own = || {
            cases
                .iter()
                .filter(|case| case.operation().name() == operator)
        };
        for algorithm in algorithms {
            let forced = own().any(|case| case.algorithm() == Some(*algorithm));
            assert!(forced, "{operator} {algorithm}");
        }
        for data in DType::ALL {
            assert!(
                own().any(|case| case.operation().types.data == data),
                "{operator} {data}"
            );
        }
    }
    for data in DType::ALL {
        for params in DType::ALL {
            for statistics in DType::ALL {
                let types = (data, params, statistics);
                let any = |case: &Case| {
                    let own = case.operation().types;
                    (own.data, own.params, own.statistics) == types
                };
                let listed = cases.iter().any(any);
                let wider = statistics == DType::F32 && data.accepts_params(statistics);
                let legal = data.accepts_params(params) && (statistics == params || wider);
                assert_eq!(listed, legal, "{types:?}");
            }
        }
    }
}

#[test]
fn an_id_that_makes_no_sense_is_refused() {
    for (id, word) in [
        ("", "operator"),
        ("batch_norm_backward", "shape"),
        ("batch_norm/2x3/nxc/f32", "operator"),
        ("batch_norm_backward/2x-3/nxc/f32", "shape"),
        ("batch_norm_backward/2x3/nxc/f32/fast", "fast"),
        ("batch_norm_backward/2x3/nxc/f32-f16", "f32-f16"),
        ("batch_norm_forward/2x3/nxc/f16-f32-f16", "f16-f32-f16"),
        ("batch_norm_forward/2x3/nxc/f16-f16-f64", "f16-f16-f64"),
        (
            "batch_norm_forward/2x3/nxc/f16-f16-f16-f16",
            "f16-f16-f16-f16",
        ),
        ("batch_norm_forward/2x3/nxc/running=x", "running=x"),
        ("layer_norm_backward/2x3/residual", "residual"),
        ("batch_norm_inference/2x3/nxc/running", "running"),
        ("rms_norm_forward/2x3/no_beta", "no_beta"),
        ("batch_norm_backward/2x3/nxc/f32/tile=0", "tile=0"),
        ("batch_norm_backward/2x3/nxc/f32/windows=x", "windows=x"),
        ("layer_norm_backward/2x3/axis_2", "axis_2"),
        (
            "batch_norm_backward/99999999x99999999999/nxc/f32",
            "elements",
        ),
        ("batch_norm_backward/100000x100000/nxc/f32", "elements"),
        ("layer_norm_forward/0x99999999x99999999/axis_1", "elements"),
    ] {
        let error = id.parse::<Case>().unwrap_err();
        assert!(matches!(
            error,
            Error::Argument {
                argument: "case",
                ..
            }
        ));
        assert!(error.to_string().contains(word), "{id}: {error}");
    }
}

/// An ID names unusual options, each in one way only.
#[test]
fn an_id_is_written_as_it_is_read() {
    for (id, written) in [
        (
            "batch_norm_forward/2x3/running=0.25/f16-f16-f16/nxc",
            "batch_norm_forward/2x3/nxc/running/f16",
        ),
        (
            "batch_norm_forward/2x3/f16-f16-f32/running_unbiased=0.1/ncx",
            "batch_norm_forward/2x3/ncx/running_unbiased=0.1/f16-f16-f32",
        ),
        (
            "layer_norm_forward/2x3/no_beta/residual/no_gamma/axis_0",
            "layer_norm_forward/2x3/axis_0/no_gamma/no_beta/residual/f32",
        ),
    ] {
        assert_eq!(id.parse::<Case>().unwrap().to_string(), written);
    }
}

/// A case's error for an impossible plan, and for shapes that no operator accepts.
#[test]
fn what_cannot_run_is_not_passed() {
    let gpu = &one(false).gpu;
    let run = |id: &str| block_on(id.parse::<Case>().unwrap().run(gpu));
    let outcome = run("batch_norm_backward/2x3/nxc/f32/rows_in_registers").unwrap();
    let Outcome::Unsupported { reason } = outcome else {
        panic!("{outcome:?}");
    };
    assert!(reason.contains("rows_in_registers"), "{reason}");
    for id in [
        "batch_norm_backward/5/nxc/f32",
        "batch_norm_backward/2x3/params_2x2/f32",
        "layer_norm_backward/2x3/f32/halves",
        "batch_norm_backward/2x3/params_2x1/f32/two_shards",
        "batch_norm_forward/2x3/nxc/f32/in_place",
        "batch_norm_forward/2x3/params_2x1/f32/two_shards",
        "batch_norm_forward/2x3/nxc/running=2/f32",
        "batch_norm_forward/1x3/nxc/running_unbiased/f32",
        "batch_norm_inference/2x3/nxc/f32/halves",
        "layer_norm_forward/2x3/f32/halves",
    ] {
        assert!(run(id).is_err(), "{id}");
    }
}
