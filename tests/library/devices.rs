//! Devices that are lost, out of memory or missing, callbacks that panic, and futures that are dropped: there is always
//! an answer, and nothing is left behind.

use crate::common::buffers::{Buffers, Room};
use crate::common::data::{Problem, batch_norm_gradient};
use crate::common::errors::{problem, says, still_works};
use crate::common::{Noop, OwnDevices, Subject, in_child, log, one, subjects, takes_all};
use pollster::block_on;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use wgpu_norm::{
    Backward, BackwardArgs, BatchNormOptions, BufferRange, ContextOptions, DType, DTypes,
    DataFormat, DeviceOptions, Error, GpuBatchNorm, GpuContext, Norm, Operation, SavedRef, Tensor,
};

/// The gradient of batch norm of f32 with the channels along axis 1.
fn ncx(shape: &[usize]) -> Problem {
    Problem::random(&batch_norm_gradient::<f32, f32>(shape, DataFormat::Ncx), 1)
}

fn layer(gpu: &GpuContext) -> GpuBatchNorm {
    let options = BatchNormOptions::new(DataFormat::Ncx);
    GpuBatchNorm::new(gpu, options).unwrap()
}

/// The arguments of the layer's gradient for a problem.
struct Call {
    shape: Vec<usize>,
    tensors: [Vec<f32>; 5],
}

impl Call {
    fn new(problem: &Problem) -> Self {
        let tensors = [
            Tensor::Src,
            Tensor::DiffDst,
            Tensor::Mean,
            Tensor::Variance,
            Tensor::Gamma,
        ];
        Self {
            shape: problem.operation.shape.clone(),
            tensors: tensors.map(|tensor| problem.elements(tensor)),
        }
    }

    fn args(&self) -> BackwardArgs<'_, f32> {
        let [src, diff_dst, mean, variance, gamma] = &self.tensors;
        let args = BackwardArgs::new(
            &self.shape,
            src,
            diff_dst,
            SavedRef::moments(mean, variance),
        );
        args.gamma(gamma)
    }
}

fn adapters() -> Vec<wgpu::Adapter> {
    log();
    let backends = wgpu::Backends::from_env().unwrap_or(wgpu::Backends::all());
    block_on(wgpu_norm::adapters(backends))
}

fn subject(name: &str, gpu: GpuContext) -> Subject {
    Subject {
        name: name.to_owned(),
        gpu,
        checked: false,
        takes_all_types: true,
    }
}

#[track_caller]
fn assert_lost(error: &Error, what: &str) {
    assert!(
        matches!(error, Error::DeviceLost { .. }),
        "{what} {error:?}"
    );
}

fn assert_send<F: Future + Send>(future: F) -> F {
    future
}

#[test]
fn futures_are_send_and_can_be_dropped() {
    let problem = problem();
    let call = Call::new(&problem);
    for subject in subjects() {
        let layer = layer(&subject.gpu);
        // Dropped unpolled, and dropped when everything is submitted.
        drop(assert_send(layer.backward(call.args())));
        let mut started = Box::pin(assert_send(layer.backward(call.args())));
        let _ = started
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        drop(started);
        problem.check(subject, "after dropped futures");
    }
    drop(assert_send(GpuContext::new()));
    drop(assert_send(GpuContext::with_options(
        ContextOptions::default(),
    )));
}

/// The closure's result, or a failure after a long time.
fn promptly<T: Send + 'static>(what: &str, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(run()));
    receiver
        .recv_timeout(Duration::from_secs(60))
        .unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// A device may be opened with a coarser alignment than its adapter needs.
#[test]
fn coarse_alignment() {
    for adapter in adapters() {
        let limits = wgpu::Limits {
            min_storage_buffer_offset_alignment: 1 << 17,
            ..adapter.limits()
        };
        let (device, queue) = block_on(adapter.request_device(&wgpu::DeviceDescriptor {
            required_limits: limits,
            ..Default::default()
        }))
        .unwrap();
        let gpu = GpuContext::from_device(device, queue, DeviceOptions::default());
        let subject = subject(&adapter.get_info().name, gpu);
        problem().check(&subject, "an alignment of 128 KiB");
    }
}

/// A context on a device of the test's own, with no callbacks.
fn callers_device(adapter: &wgpu::Adapter) -> GpuContext {
    let descriptor = wgpu::DeviceDescriptor {
        required_limits: adapter.limits(),
        ..Default::default()
    };
    let (device, queue) = block_on(adapter.request_device(&descriptor)).unwrap();
    GpuContext::from_device(device, queue, DeviceOptions::default())
}

#[test]
fn lost_devices() {
    for adapter in adapters() {
        for ours in [true, false] {
            let what = format!("{} ours: {ours}", adapter.get_info().name);
            let open = || {
                let gpu = match ours {
                    true => {
                        let options = DeviceOptions::default();
                        block_on(GpuContext::from_adapter(&adapter, options)).unwrap()
                    }
                    false => callers_device(&adapter),
                };
                subject(&what, gpu)
            };
            // Before the first use, after one use, and on buffers that were bound before.
            for used in [false, true] {
                let subject = open();
                let errors = promptly(&what, move || {
                    let problem = problem();
                    if used {
                        problem.check(&subject, "before");
                    }
                    subject.gpu.device().destroy();
                    [0, 1].map(|_| problem.run(&subject).unwrap_err())
                });
                for error in errors {
                    assert_lost(&error, &what);
                    says(&error, &["lost"]);
                }
            }
            // While a future waits: it yields its result or the loss.
            let gpu = open().gpu;
            let end = promptly(&what, move || {
                let call = Call::new(&ncx(&[16, 64, 40, 40]));
                let layer = layer(&gpu);
                let mut future = Box::pin(layer.backward(call.args()));
                let mut context = Context::from_waker(Waker::noop());
                let early = future.as_mut().poll(&mut context).is_ready();
                gpu.device().destroy();
                match early {
                    true => None,
                    false => block_on(future).err(),
                }
            });
            if let Some(error) = end {
                assert_lost(&error, &what);
            }
            // Binding on a lost device.
            let subject = open();
            let problem = problem();
            let plan = problem.operation.plan(subject.gpu.profile()).unwrap();
            let buffers = Buffers::new(&subject, &problem, &plan, Room::Exact);
            subject.gpu.device().destroy();
            let error = plan.bind(&subject.gpu, &buffers.ranges()).map(|_| ());
            assert_lost(&error.unwrap_err(), &what);
        }
    }
}

/// A caller's device that its own callback destroys while a call submits: afterwards nothing can be mapped.
#[test]
fn a_device_destroyed_by_a_callback() {
    for adapter in adapters() {
        let gpu = callers_device(&adapter);
        let device = gpu.device().clone();
        // wgpu calls it when something is submitted next.
        gpu.queue().on_submitted_work_done(move || {
            device.destroy();
            // wgpu destroys the device's buffers during a poll.
            let _ = device.poll(wgpu::PollType::wait_indefinitely());
        });
        let what = adapter.get_info().name;
        let error = promptly(&what, move || {
            let call = Call::new(&problem());
            block_on(layer(&gpu).backward(call.args())).unwrap_err()
        });
        assert_lost(&error, &what);
    }
}

/// A caller's device that is destroyed while many threads are in calls, each in another place.
#[test]
fn a_device_destroyed_under_many_calls() {
    for adapter in adapters() {
        for round in 0..12 {
            let gpu = callers_device(&adapter);
            let what = format!("{} round {round}", adapter.get_info().name);
            let errors = promptly(&what, move || {
                let call = Call::new(&ncx(&[8, 16, 32, 32]));
                let layer = layer(&gpu);
                block_on(layer.backward(call.args())).unwrap();
                std::thread::scope(|scope| {
                    let until_lost = || {
                        loop {
                            if let Err(error) = block_on(layer.backward(call.args())) {
                                return error;
                            }
                        }
                    };
                    let threads: Vec<_> = (0..14).map(|_| scope.spawn(until_lost)).collect();
                    std::thread::sleep(Duration::from_millis(20 + 7 * round));
                    gpu.device().destroy();
                    let ends = threads.into_iter().map(|thread| thread.join().unwrap());
                    ends.collect::<Vec<_>>()
                })
            });
            for error in errors {
                assert_lost(&error, &what);
            }
        }
    }
}

/// A caller's callback may run, and panic, on the thread that polls for this crate: calls in flight get an answer, and
/// later calls work.
#[test]
fn callbacks_that_panic() {
    let devices = OwnDevices::new();
    for subject in &devices.subjects {
        for kind in ["work done", "map"] {
            let what = format!("{kind} on {}", subject.name);
            let gpu = subject.gpu.clone();
            promptly(&what.clone(), move || {
                let call = Call::new(&ncx(&[8, 64, 40, 40]));
                let layer = layer(&gpu);
                let hit = Arc::new(AtomicBool::new(false));
                // Which thread runs the callback depends on timing and on the machine's other load.
                let start = Instant::now();
                while start.elapsed() < Duration::from_secs(45) {
                    let mut futures: Vec<_> = (0..2)
                        .map(|_| Box::pin(layer.backward(call.args())))
                        .collect();
                    let mut context = Context::from_waker(Waker::noop());
                    let mut early = Vec::new();
                    for future in &mut futures {
                        early.push(future.as_mut().poll(&mut context));
                    }
                    let flag = hit.clone();
                    let callback = move || {
                        if std::thread::current().name() == Some("wgpu-norm poll") {
                            flag.store(true, Ordering::Relaxed);
                            panic!("as the test wants");
                        }
                    };
                    let staging = gpu.device().create_buffer(&wgpu::BufferDescriptor {
                        label: None,
                        size: 4,
                        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                        mapped_at_creation: false,
                    });
                    match kind {
                        "map" => staging.map_async(wgpu::MapMode::Read, .., move |_| callback()),
                        _ => gpu.queue().on_submitted_work_done(callback),
                    }
                    for (future, early) in futures.into_iter().zip(early) {
                        let result = match early {
                            Poll::Ready(result) => result,
                            Poll::Pending => block_on(future),
                        };
                        match result {
                            Ok(_) => {}
                            Err(error @ Error::Gpu { .. }) => says(&error, &["panicked"]),
                            Err(error) => panic!("{error:?}"),
                        }
                    }
                    if hit.load(Ordering::Relaxed) {
                        return;
                    }
                }
                panic!("the callback never ran on the polling thread");
            });
            problem().check(subject, &format!("after {what}"));
        }
    }
}

fn refused(context: impl Future<Output = Result<GpuContext, Error>>) -> Error {
    block_on(context).map(|_| ()).unwrap_err()
}

#[test]
fn no_adapter() {
    let options = ContextOptions::default().adapter_name("Abacus 3000");
    let error = refused(GpuContext::with_options(options));
    let Error::NoAdapter {
        requested, message, ..
    } = &error
    else {
        panic!("{error:?}");
    };
    assert!(requested.contains("Abacus 3000"), "{requested}");
    // The adapter that there is instead.
    let name = one(false).gpu.adapter_info().name;
    assert!(message.contains(&name), "{message}");
    says(&error, &["Abacus 3000"]);
    // No driver of the kind at all.
    let options = ContextOptions::default().backends(wgpu::Backends::empty());
    let error = refused(GpuContext::with_options(options));
    assert!(matches!(error, Error::NoAdapter { .. }), "{error:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn out_of_memory() {
    // 1 GiB of address space.
    in_child(
        "devices::out_of_memory_in_a_small_process",
        "ulimit -v 1048576 &&",
        &[],
    );
}

#[test]
#[ignore = "run by out_of_memory, in a process with little memory"]
fn out_of_memory_in_a_small_process() {
    let limits = wgpu::Limits {
        max_buffer_size: (1 << 32) - 4,
        max_storage_buffer_binding_size: (1 << 32) - 4,
        ..wgpu::Limits::default()
    };
    let noop = Noop::new(limits, wgpu::Features::empty());
    let subject = &noop.subject;
    // The plan's own workspace: about 48 bytes per channel.
    let channels = 30_000_000;
    let types = DTypes::from(DType::Bf16).with_statistics(DType::Bf16);
    let frozen = Backward::default().with_param_grads(false);
    let norm = Norm::batch(DataFormat::Nxc);
    let operation = Operation::new(norm, frozen, &[1, channels], types);
    let plan = operation.with_params(false, false);
    let plan = plan.plan(subject.gpu.profile()).unwrap();
    let [input, output] = [(); 2].map(|()| subject.buffer(2 * channels as u64, &[]));
    let input = BufferRange::from(&input);
    let ranges = [
        (Tensor::Src, input),
        (Tensor::DiffDst, input),
        (Tensor::Mean, input),
        (Tensor::Variance, input),
        (Tensor::DiffSrc, (&output).into()),
    ];
    let error = plan.bind(&subject.gpu, &ranges).map(|_| ()).unwrap_err();
    let needed = plan.workspace_bytes();
    assert_eq!(error, Error::out_of_memory("workspace", needed));
    says(&error, &["workspace", "memory", &needed.to_string()]);
    still_works(subject);
}

/// An error means that the device is lost, or leaves the context as it was. Mesa 25.0 maps memory that it does not
/// have: with it the process ends in wgpu's upload, whoever calls it. So only drivers that report this are tested.
#[cfg(target_os = "linux")]
#[test]
fn out_of_memory_on_a_driver() {
    let info = one(false).gpu.adapter_info();
    if !info.driver_info.starts_with("Mesa 22") {
        println!("not tested: {} may crash without memory", info.driver_info);
        return;
    }
    let name = info.name;
    // 3 to 5 GiB of address space: calls get to different points.
    let kib = [4 << 20, 3 << 20, 5 << 20];
    let taken = if takes_all() { 3 } else { 1 };
    for kib in &kib[..taken] {
        in_child(
            "devices::out_of_memory_in_a_call",
            &format!("ulimit -v {kib} &&"),
            &[("WGPU_ADAPTER_NAME", &name), ("WGPU_BACKEND", "vulkan")],
        );
    }
}

#[test]
#[ignore = "run by out_of_memory_on_a_driver, in a process with little memory"]
fn out_of_memory_in_a_call() {
    let gpu = block_on(GpuContext::new()).unwrap();
    let layer = layer(&gpu);
    let data = vec![0.0_f32; 256 << 20];
    let call = |mebibytes: usize| {
        let elements = mebibytes << 18;
        let (shape, data) = ([1, 4, elements / 4], &data[..elements]);
        let args = BackwardArgs::new(&shape, data, data, SavedRef::moments(&[0.0; 4], &[1.0; 4]));
        block_on(layer.backward(args)).map(|_| ())
    };
    call(16).unwrap();
    let mut errors = 0;
    for mebibytes in [256, 384, 512, 640, 768, 896, 1024] {
        match call(mebibytes) {
            Ok(()) => {}
            Err(Error::OutOfMemory { .. }) => {
                errors += 1;
                // Nothing of the failed call is left.
                assert_eq!(call(16), Ok(()), "after {mebibytes} MiB");
            }
            Err(error) => {
                assert!(matches!(error, Error::DeviceLost { .. }), "{error:?}");
                assert!(matches!(call(1), Err(Error::DeviceLost { .. })));
                return;
            }
        }
    }
    assert!(errors > 0, "memory was enough");
}

#[cfg(unix)]
#[test]
fn environment_chooses_the_adapter() {
    let name = one(false).gpu.adapter_info().name;
    in_child(
        "devices::the_environment_names_no_adapter",
        "",
        &[("WGPU_ADAPTER_NAME", "Abacus 3000")],
    );
    in_child(
        "devices::the_environment_names_an_adapter",
        "",
        &[
            ("WGPU_ADAPTER_NAME", &name.to_uppercase()),
            ("WGPU_BACKEND", ""),
        ],
    );
    in_child(
        "devices::the_environment_names_no_backend",
        "",
        &[("WGPU_BACKEND", "glide")],
    );
}

#[test]
#[ignore = "run by environment_chooses_the_adapter"]
fn the_environment_names_no_backend() {
    let error = refused(GpuContext::new());
    assert!(matches!(error, Error::Argument { .. }), "{error:?}");
    says(&error, &["WGPU_BACKEND", "vulkan", "glide"]);
}

#[test]
#[ignore = "run by environment_chooses_the_adapter"]
fn the_environment_names_no_adapter() {
    let error = refused(GpuContext::new());
    assert!(matches!(error, Error::NoAdapter { .. }), "{error:?}");
    says(&error, &["Abacus 3000", "WGPU_ADAPTER_NAME"]);
}

#[test]
#[ignore = "run by environment_chooses_the_adapter"]
fn the_environment_names_an_adapter() {
    let gpu = block_on(GpuContext::new()).unwrap();
    let wanted = std::env::var("WGPU_ADAPTER_NAME").unwrap();
    assert_eq!(gpu.adapter_info().name.to_uppercase(), wanted);
}

#[cfg(target_os = "linux")]
#[test]
fn no_thread_outlives_its_context() {
    in_child("devices::threads_of_dropped_contexts", "", &[]);
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "run by no_thread_outlives_its_context, in a process without other contexts"]
fn threads_of_dropped_contexts() {
    let polling = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
        // A thread may end between the two reads.
        let names = names.filter_map(Result::ok);
        names
            .filter(|name| name.starts_with("wgpu-norm poll"))
            .count()
    };
    for adapter in adapters() {
        let gpu = block_on(GpuContext::from_adapter(&adapter, DeviceOptions::default())).unwrap();
        let subject = subject(&adapter.get_info().name, gpu);
        problem().check(&subject, "in a process of its own");
        assert_eq!(polling(), 1);
        drop(subject);
        assert_eq!(polling(), 0);
    }
}
