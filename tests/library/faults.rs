//! What goes wrong around calls, at each place where it can: devices that are destroyed, ranks that vanish, and calls
//! without end.

use crate::common::data::{Problem, Values, assert_close};
use crate::common::errors::says;
use crate::common::polls::poll_times;
use crate::common::storage::Memory;
use crate::common::{Subject, open as open_with, takes_every_one};
use pollster::block_on;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wgpu_norm::stream::Stream;
use wgpu_norm::synchronized::{AllGather, run_into};
use wgpu_norm::{
    Backward, DType, DTypes, DataFormat, DeviceOptions, Error, Forward, GpuContext, Norm, Operation,
};

/// Operations of several plans.
fn problems() -> Vec<Problem> {
    let (planes, channels) = (Norm::batch(DataFormat::Ncx), Norm::batch(DataFormat::Nxc));
    let sixteen = DTypes::from(DType::Bf16).with_statistics(DType::Bf16);
    let operations = [
        Operation::new(planes, Backward::default(), &[3, 5, 70], DType::F32),
        Operation::new(channels, Forward::default(), &[50, 6], sixteen),
        Operation::new(Norm::layer(-1), Backward::default(), &[9, 33], DType::F32),
        Operation::new(
            Norm::axes(&[1], &[1]),
            Backward::default(),
            &[2, 9, 12],
            DType::F16,
        ),
    ];
    let problems = operations
        .iter()
        .map(|operation| Problem::random(operation, 3));
    problems.collect()
}

fn adapters(instance: &wgpu::Instance) -> Vec<wgpu::Adapter> {
    let adapters = block_on(instance.enumerate_adapters(wgpu::Backends::all())).into_iter();
    let fit = adapters.filter(|adapter| wgpu_norm::unfit(adapter).is_none());
    fit.collect()
}

fn instance() -> wgpu::Instance {
    wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle())
}

fn open(adapter: &wgpu::Adapter) -> Subject {
    let info = adapter.get_info();
    Subject {
        name: format!("{} ({})", info.name, info.backend),
        gpu: block_on(GpuContext::from_adapter(adapter, DeviceOptions::default())).unwrap(),
        checked: false,
        takes_all_types: true,
    }
}

/// Polls a call so many times, destroys the device, and waits for the call's end. None if there were fewer polls.
fn destroy_after<E>(
    polls: u64,
    gpu: &GpuContext,
    call: impl Future<Output = Result<(), E>>,
) -> Option<Result<(), E>> {
    let mut call = pin!(call);
    if let Some(end) = poll_times(call.as_mut(), polls) {
        assert!(end.is_ok());
        return None;
    }
    gpu.device().destroy();
    Some(block_on(call))
}

/// What ends a call of ranks.
#[derive(Debug, PartialEq)]
enum Failure {
    Gone,
    Call(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}

/// A rank whose only peer does the same as itself, and fails at an exchange or sends too little there.
#[derive(Clone, Copy)]
struct Alone {
    exchanges: u64,
    fails_at: Option<u64>,
    sends_half_at: Option<u64>,
}

const ALONE: Alone = Alone {
    exchanges: 0,
    fails_at: None,
    sends_half_at: None,
};

impl AllGather for Alone {
    type Error = Failure;

    fn rank(&self) -> usize {
        0
    }

    fn ranks(&self) -> usize {
        2
    }

    async fn all_gather(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Failure> {
        let exchange = Some(self.exchanges);
        self.exchanges += 1;
        if exchange == self.fails_at {
            return Err(Failure::Gone);
        }
        let peer = if exchange == self.sends_half_at {
            &bytes[..bytes.len() / 2]
        } else {
            bytes
        };
        Ok([bytes, peer].concat())
    }
}

/// Ways to make a call, by the name of each.
const WAYS: [&str; 3] = ["arrays", "a stream", "two ranks"];

/// A call on a device that is destroyed after so many polls: its results, or the error.
fn destroyed(
    way: &str,
    problem: &Problem,
    gpu: &GpuContext,
    polls: u64,
) -> Option<Result<Vec<Values>, Error>> {
    let operation = &problem.operation;
    if way == "a stream" {
        let Err(Error::Budget { expected, .. }) = Stream::new(gpu, operation, 0) else {
            panic!("{operation}: a stream without memory");
        };
        let stream = Stream::new(gpu, operation, expected).unwrap();
        let mut memory = Memory::new(problem);
        let end = destroy_after(polls, gpu, stream.run(&mut memory))?;
        return Some(end.map(|()| memory.results(problem)));
    }
    let mut is_destroyed = true;
    let results = problem.run_by(|inputs, outputs| {
        let end = if way == "arrays" {
            destroy_after(polls, gpu, operation.run_into(gpu, inputs, outputs))
        } else {
            let call = run_into(operation, gpu, ALONE, inputs, outputs);
            destroy_after(polls, gpu, call).map(|end| {
                end.map_err(|failure| match failure {
                    Failure::Call(error) => error,
                    Failure::Gone => panic!("nobody is gone"),
                })
            })
        };
        is_destroyed = end.is_some();
        end.unwrap_or(Ok(()))
    });
    is_destroyed.then_some(results)
}

/// A device that is destroyed before each poll of each kind of call: the call is right or says that it is lost.
#[test]
fn a_device_destroyed_at_every_await() {
    for adapter in adapters(&instance()) {
        for problem in problems() {
            for way in WAYS {
                let mut awaits = 0;
                for polls in 0.. {
                    let subject = open(&adapter);
                    let what = format!(
                        "{way}, {}, destroyed after {polls} polls on {}",
                        problem.operation, subject.name
                    );
                    match destroyed(way, &problem, &subject.gpu, polls) {
                        None => break,
                        Some(Err(Error::DeviceLost { .. })) => awaits += 1,
                        Some(Err(error)) => panic!("{what}: {error:?}"),
                        Some(Ok(_)) if polls == 0 => panic!("{what}: right without a device"),
                        Some(Ok(results)) if way != "two ranks" => {
                            assert_close(&results, &problem.reference(), &what);
                        }
                        Some(Ok(_)) => {}
                    }
                }
                assert!(awaits > 0, "{way}");
            }
        }
    }
}

/// An exchange that fails, or a peer that sends too little, at each exchange of a call: the call says so, and the next
/// call is right.
#[test]
fn peers_that_vanish() {
    for adapter in adapters(&instance()) {
        let subject = open(&adapter);
        for problem in problems() {
            let call = |ranks: Alone| {
                let mut end = Ok(());
                let results = problem.run_by(|inputs, outputs| {
                    let call = run_into(&problem.operation, &subject.gpu, ranks, inputs, outputs);
                    end = block_on(call);
                    Ok(())
                });
                end.map(|()| results.unwrap())
            };
            let first = call(ALONE).unwrap();
            let mut failures = 0;
            for exchange in (0..).map(Some) {
                let fails = Alone {
                    fails_at: exchange,
                    ..ALONE
                };
                let sends_half = Alone {
                    sends_half_at: exchange,
                    ..ALONE
                };
                let ends = [fails, sends_half].map(call);
                if ends == [Ok(first.clone()), Ok(first.clone())] {
                    break;
                }
                let [gone, short] = ends;
                assert_eq!(gone, Err(Failure::Gone));
                let Err(Failure::Call(short)) = short else {
                    panic!("{}: right with too few bytes", problem.operation);
                };
                says(&short, &["all_gather: expected"]);
                assert_eq!(
                    call(ALONE).as_ref(),
                    Ok(&first),
                    "after exchange {exchange:?}"
                );
                failures += 1;
            }
            assert!(failures > 1, "{}: {failures} exchanges", problem.operation);
        }
    }
}

/// Devices opened with few of each limit, or none: each call is right, or is refused for a limit.
#[test]
fn the_smallest_limits() {
    let (complaints, features) = (Arc::default(), wgpu::Features::empty());
    let mut right = 0;
    for adapter in adapters(&instance()) {
        for (invocations, bytes_shared, bytes_bound, workgroups, buffers) in [
            (128, 16 << 10, 1 << 20, 65535, 8),
            (64, 4 << 10, 1 << 14, 255, 4),
            (4, 1 << 10, 1 << 12, 16, 4),
            (4, 256, 1 << 10, 1, 4),
            (1, 0, 256, 1, 0),
            (0, 0, 0, 0, 0),
        ] {
            let limits = wgpu::Limits {
                max_compute_invocations_per_workgroup: invocations,
                max_compute_workgroup_size_x: invocations,
                max_compute_workgroup_storage_size: bytes_shared,
                max_storage_buffer_binding_size: bytes_bound,
                max_buffer_size: 1 << 20,
                max_compute_workgroups_per_dimension: workgroups,
                max_storage_buffers_per_shader_stage: buffers,
                ..wgpu::Limits::downlevel_defaults()
            };
            let subject = open_with(&adapter, &limits, features, &complaints);
            for problem in problems() {
                let what = format!("{} of {limits:?} on {}", problem.operation, subject.name);
                match problem.run(&subject) {
                    Ok(results) => {
                        assert_close(&results, &problem.reference(), &what);
                        right += 1;
                    }
                    Err(Error::Limit { .. }) => {}
                    Err(error) => panic!("{what}: {error:?}"),
                }
            }
        }
    }
    assert!(right > 8, "{right} were right");
    assert_eq!(
        complaints.load(Ordering::Relaxed),
        0,
        "errors that nothing captured"
    );
}

/// Objects of wgpu that are alive, by their kinds.
fn live(instance: &wgpu::Instance) -> Vec<(&'static str, usize)> {
    let hub = instance.generate_report().unwrap().hub;
    let kinds = [
        ("buffers", hub.buffers),
        ("bind groups", hub.bind_groups),
        ("bind group layouts", hub.bind_group_layouts),
        ("pipelines", hub.compute_pipelines),
        ("pipeline layouts", hub.pipeline_layouts),
        ("shader modules", hub.shader_modules),
        ("command encoders", hub.command_encoders),
        ("command buffers", hub.command_buffers),
    ];
    let counted = kinds.map(|(kind, report)| (kind, report.num_allocated));
    counted.to_vec()
}

/// Many calls: wgpu has no more objects after them than after the first ones, and the process hardly more memory.
#[test]
fn ten_thousand_calls() {
    let instance = instance();
    let calls = if takes_every_one() { 10_000 } else { 1_000 };
    for adapter in adapters(&instance) {
        let subject = open(&adapter);
        let problems = problems();
        let call_all = || {
            for problem in &problems {
                problem.run(&subject).unwrap();
            }
        };
        call_all();
        let (objects, bytes) = (live(&instance), resident());
        for _ in 0..calls / problems.len() {
            call_all();
        }
        assert_eq!(live(&instance), objects, "{}", subject.name);
        let grown = resident().saturating_sub(bytes);
        println!("{}: {grown} bytes more after {calls} calls", subject.name);
        assert!(grown < 64 << 20, "{}: {grown} bytes", subject.name);
    }
}

/// Bytes of this process in memory; 0 where the system does not say.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = pages.split(' ').nth(1);
    pages
        .and_then(|pages| pages.parse::<u64>().ok())
        .unwrap_or(0)
        * 4096
}
