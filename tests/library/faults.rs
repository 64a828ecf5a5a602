//! What goes wrong around calls, at each place where it can: devices that are destroyed, ranks that vanish, and calls
//! without end.

use crate::common::data::{Problem, Values, assert_close};
use crate::common::errors::says;
use crate::common::polls::{one_more_poll, poll_times};
use crate::common::storage::Memory;
use crate::common::{Subject, in_child, log, open as open_with, takes_every_one};
use pollster::block_on;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use wgpu_norm::stream::{Storage, Stream};
use wgpu_norm::synchronized::{AllGather, run_into};
use wgpu_norm::{
    Backward, DType, DTypes, DataFormat, DeviceOptions, Error, Forward, GpuContext, Norm,
    Operation, Tensor,
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
    log();
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
        one_more_poll().await;
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

/// Ways to make a call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Arrays,
    Stream,
    Ranks,
}

/// The problems of each way: streams and ranks have many awaits.
fn ways() -> Vec<(Way, Problem)> {
    let taken = |way| match way {
        Way::Arrays => usize::MAX,
        _ if takes_every_one() => usize::MAX,
        _ => 1,
    };
    let ways = [Way::Arrays, Way::Stream, Way::Ranks].into_iter();
    let problems = |way| {
        problems()
            .into_iter()
            .take(taken(way))
            .map(move |p| (way, p))
    };
    ways.flat_map(problems).collect()
}

/// Makes a call, which `drive` polls: the results, or nothing if it does not end.
fn call(
    way: Way,
    problem: &Problem,
    gpu: &GpuContext,
    drive: impl FnOnce(Pin<&mut dyn Future<Output = Result<(), Error>>>) -> Option<Result<(), Error>>,
) -> Option<Result<Vec<Values>, Error>> {
    let operation = &problem.operation;
    if way == Way::Stream {
        let mut memory = Memory::new(problem);
        let stream = smallest_stream(gpu, operation);
        let end = drive(pin!(stream.run(&mut memory)))?;
        return Some(end.map(|()| memory.results(problem)));
    }
    let mut has_ended = true;
    let results = problem.run_by(|inputs, outputs| {
        let end = match way {
            Way::Ranks => drive(pin!(async {
                let call = run_into(operation, gpu, ALONE, inputs, outputs).await;
                call.map_err(|failure| match failure {
                    Failure::Call(error) => error,
                    Failure::Gone => panic!("nobody is gone"),
                })
            })),
            _ => drive(pin!(operation.run_into(gpu, inputs, outputs))),
        };
        has_ended = end.is_some();
        end.unwrap_or(Ok(()))
    });
    has_ended.then_some(results)
}

/// A stream in the smallest budget.
fn smallest_stream(gpu: &GpuContext, operation: &Operation) -> Stream {
    match Stream::new(gpu, operation, 0) {
        Err(Error::Budget { expected, .. }) => Stream::new(gpu, operation, expected).unwrap(),
        other => panic!("{operation}: {other:?}"),
    }
}

fn undisturbed(way: Way, problem: &Problem, gpu: &GpuContext) -> Vec<Values> {
    let results = call(way, problem, gpu, |call| Some(block_on(call)));
    let results = results.unwrap().unwrap();
    if way != Way::Ranks {
        assert_close(&results, &problem.reference(), "undisturbed");
    }
    results
}

/// A device that is destroyed after each number of polls, while a call waits or when it could go on: the call is right
/// or says that the device is lost.
#[test]
fn a_device_destroyed_at_every_await() {
    for adapter in adapters(&instance()) {
        for (way, problem) in ways() {
            let want = undisturbed(way, &problem, &open(&adapter).gpu);
            for waits in [false, true] {
                let mut losses = 0;
                for polls in 0.. {
                    let subject = open(&adapter);
                    let what = format!("{way:?}, {}, {polls} polls", problem.operation);
                    let mut is_destroyed = false;
                    let result = call(way, &problem, &subject.gpu, |mut call| {
                        poll_times(call.as_mut(), polls, waits).or_else(|| {
                            is_destroyed = true;
                            let device = subject.gpu.device().clone();
                            thread::spawn(move || device.destroy()).join().unwrap();
                            Some(block_on(call))
                        })
                    });
                    match result.unwrap() {
                        Ok(results) => assert_eq!(results, want, "{what}"),
                        Err(Error::DeviceLost { .. }) => losses += 1,
                        Err(error) => panic!("{what}: {error:?}"),
                    }
                    if !is_destroyed {
                        break;
                    }
                }
                assert!(losses > 0, "{way:?}");
            }
        }
    }
}

/// A future that is dropped after each number of polls: the next call is right.
#[test]
fn a_future_dropped_at_every_await() {
    for adapter in adapters(&instance()) {
        let subject = open(&adapter);
        for (way, problem) in ways() {
            let want = undisturbed(way, &problem, &subject.gpu);
            for waits in [false, true] {
                let dropped = (0..).take_while(|&polls| {
                    let end = call(way, &problem, &subject.gpu, |call| {
                        poll_times(call, polls, waits)
                    });
                    let again = undisturbed(way, &problem, &subject.gpu);
                    assert_eq!(again, want, "{way:?} after {polls} polls");
                    end.is_none()
                });
                assert!(dropped.count() > 0, "{way:?}");
            }
        }
    }
}

/// Tensors of which a read or a write fails.
struct Failing {
    memory: Memory,
    left: u64,
}

impl Failing {
    fn go_on(&mut self) -> Result<(), Failure> {
        self.left = self.left.checked_sub(1).ok_or(Failure::Gone)?;
        Ok(())
    }
}

impl Storage for Failing {
    type Error = Failure;

    async fn read(&mut self, tensor: Tensor, offset: u64, to: &mut [u8]) -> Result<(), Failure> {
        self.go_on()?;
        Ok(self.memory.read(tensor, offset, to).await?)
    }

    async fn write(&mut self, tensor: Tensor, offset: u64, from: &[u8]) -> Result<(), Failure> {
        self.go_on()?;
        Ok(self.memory.write(tensor, offset, from).await?)
    }
}

/// Storage that fails at each of its calls: the stream ends with its error, and the next one is right.
#[test]
fn storage_that_fails() {
    for adapter in adapters(&instance()) {
        let gpu = open(&adapter).gpu;
        for problem in problems() {
            let stream = smallest_stream(&gpu, &problem.operation);
            for left in 0.. {
                let memory = Memory::new(&problem);
                let mut storage = Failing { memory, left };
                let end = block_on(stream.run(&mut storage));
                let is_done = end.is_ok();
                assert!(
                    is_done || end == Err(Failure::Gone),
                    "{end:?} after {left} calls"
                );
                undisturbed(Way::Stream, &problem, &gpu);
                if is_done {
                    assert!(left > 3, "{left} calls");
                    break;
                }
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
                    Ok(results) => assert_close(&results, &problem.reference(), &what),
                    Err(Error::Limit { .. }) if invocations < 128 => {}
                    Err(error) => panic!("{what}: {error:?}"),
                }
            }
        }
    }
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
#[cfg(target_os = "linux")]
#[test]
fn ten_thousand_calls() {
    in_child("faults::many_calls_of_a_process", "", &[]);
}

#[test]
#[ignore = "run by ten_thousand_calls, in a process without other tests"]
fn many_calls_of_a_process() {
    let instance = instance();
    let rounds = if takes_every_one() { 500 } else { 50 };
    for adapter in adapters(&instance) {
        let subject = open(&adapter);
        let ways = ways();
        let call_all = |rounds: usize| {
            for _ in 0..rounds {
                for (way, problem) in &ways {
                    let done = call(*way, problem, &subject.gpu, |call| Some(block_on(call)));
                    done.unwrap().unwrap();
                }
            }
        };
        // Drivers' pools grow at first.
        call_all(rounds);
        let (objects, bytes) = (live(&instance), resident());
        call_all(4 * rounds);
        assert_eq!(live(&instance), objects, "{}", subject.name);
        let grown = resident().saturating_sub(bytes);
        let calls = 4 * rounds * ways.len();
        println!("{}: {grown} bytes more after {calls} calls", subject.name);
        assert!(
            grown < (1 << 20) + 1024 * calls as u64,
            "{}: {grown} bytes",
            subject.name
        );
    }
}

/// Bytes of this process in memory.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
    4096 * pages
}
