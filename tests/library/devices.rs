//! Devices that are lost, have no memory left or are not there, callbacks that panic, futures that are dropped:
//! an answer in any case, and nothing left behind.

use crate::common::buffers::{Buffers, Room, plan};
use crate::common::data::{Case, options_in};
use crate::common::errors::{case, says, still_works};
use crate::common::{Noop, OwnDevices, Subject, one, subjects, takes_all};
use pollster::block_on;
use std::future::Future;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use wgpu_norm::{
    BatchNormBackwardArgs, BatchNormBackwardBuffers, BatchNormOptions, ContextOptions, DType,
    DTypes, DataFormat, DeviceOptions, Error, GpuBatchNorm, GpuContext, ParamGrads, Profile,
};

fn assert_send<F: Future + Send>(future: F) -> F {
    future
}

#[test]
fn futures_are_send_and_can_be_dropped() {
    let case = case();
    for subject in subjects() {
        let layer = GpuBatchNorm::new(&subject.gpu, case.options).unwrap();
        // Dropped unpolled, and dropped when everything is submitted.
        drop(assert_send(layer.backward(case.args())));
        let mut started = Box::pin(assert_send(layer.backward(case.args())));
        let _ = started
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        drop(started);
        case.check(subject, "after dropped futures");
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
    let backends = wgpu::Backends::from_env().unwrap_or(wgpu::Backends::all());
    for adapter in block_on(wgpu_norm::adapters(backends)) {
        let limits = wgpu::Limits {
            min_storage_buffer_offset_alignment: 1 << 17,
            ..adapter.limits()
        };
        let (device, queue) = block_on(adapter.request_device(&wgpu::DeviceDescriptor {
            required_limits: limits,
            ..Default::default()
        }))
        .unwrap();
        let options = DeviceOptions {
            profile: Some(Profile::new(&device)),
            ..DeviceOptions::default()
        };
        let subject = Subject {
            name: adapter.get_info().name,
            gpu: GpuContext::from_device(device, queue, options),
            checked: false,
            takes_all_types: true,
        };
        case().check(&subject, "an alignment of 128 KiB");
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
    let backends = wgpu::Backends::from_env().unwrap_or(wgpu::Backends::all());
    for adapter in block_on(wgpu_norm::adapters(backends)) {
        for ours in [true, false] {
            let open = || -> GpuContext {
                if ours {
                    let context = GpuContext::from_adapter(&adapter, DeviceOptions::default());
                    return block_on(context).unwrap();
                }
                callers_device(&adapter)
            };
            let what = format!("{} ours: {ours}", adapter.get_info().name);
            // Before the first use; after one; and on buffers that were bound before.
            for used in [false, true] {
                let subject = Subject {
                    name: what.clone(),
                    gpu: open(),
                    checked: false,
                    takes_all_types: true,
                };
                let error = promptly(&what, move || {
                    let case = case();
                    if used {
                        case.check(&subject, "before");
                    }
                    subject.gpu.device().destroy();
                    let first = case.run(&subject).unwrap_err();
                    let second = case.run(&subject).unwrap_err();
                    assert!(matches!(second, Error::DeviceLost { .. }), "{second:?}");
                    first
                });
                assert!(
                    matches!(error, Error::DeviceLost { .. }),
                    "{what} {error:?}"
                );
                says(&error, &["lost"]);
            }
            // While a future waits: its result, or the loss, but an answer.
            let gpu = open();
            promptly(&what, move || {
                let case =
                    Case::<f32, f32>::random(&[16, 64, 40, 40], options_in(DataFormat::Ncx), 1);
                let layer = GpuBatchNorm::new(&gpu, case.options).unwrap();
                let mut future = Box::pin(layer.backward(case.args()));
                let mut context = Context::from_waker(Waker::noop());
                let early = future.as_mut().poll(&mut context).is_ready();
                gpu.device().destroy();
                if !early {
                    match block_on(future) {
                        Ok(_) | Err(Error::DeviceLost { .. }) => {}
                        Err(error) => panic!("{error:?}"),
                    }
                }
            });
            // Binding on a lost device.
            let subject = Subject {
                name: what.clone(),
                gpu: open(),
                checked: false,
                takes_all_types: true,
            };
            let case = case();
            let buffers = Buffers::new(&subject, &case, Room::Exact);
            let plan = plan(&subject, &case);
            subject.gpu.device().destroy();
            let error = plan.bind(&subject.gpu, &buffers.ranges()).map(|_| ());
            let error = error.unwrap_err();
            assert!(
                matches!(error, Error::DeviceLost { .. }),
                "{what} {error:?}"
            );
        }
    }
}

/// A caller's device that its own callback destroys while a call submits: after that, nothing is there to be
/// mapped.
#[test]
fn a_device_destroyed_by_a_callback() {
    let backends = wgpu::Backends::from_env().unwrap_or(wgpu::Backends::all());
    for adapter in block_on(wgpu_norm::adapters(backends)) {
        let gpu = callers_device(&adapter);
        let device = gpu.device().clone();
        // wgpu calls it when something is submitted next.
        gpu.queue().on_submitted_work_done(move || {
            device.destroy();
            // wgpu destroys the device's buffers in a poll.
            let _ = device.poll(wgpu::PollType::wait_indefinitely());
        });
        let what = adapter.get_info().name;
        let error = promptly(&what, move || {
            let case = case();
            let layer = GpuBatchNorm::new(&gpu, case.options).unwrap();
            block_on(layer.backward(case.args())).unwrap_err()
        });
        assert!(
            matches!(error, Error::DeviceLost { .. }),
            "{what} {error:?}"
        );
    }
}

/// A caller's device that is destroyed while many threads are in calls, each at another place.
#[test]
fn a_device_destroyed_under_many_calls() {
    let backends = wgpu::Backends::from_env().unwrap_or(wgpu::Backends::all());
    for adapter in block_on(wgpu_norm::adapters(backends)) {
        for round in 0..12 {
            let gpu = callers_device(&adapter);
            let what = format!("{} round {round}", adapter.get_info().name);
            let errors = promptly(&what, move || {
                let case =
                    Case::<f32, f32>::random(&[8, 16, 32, 32], options_in(DataFormat::Ncx), 1);
                let layer = GpuBatchNorm::new(&gpu, case.options).unwrap();
                block_on(layer.backward(case.args())).unwrap();
                std::thread::scope(|scope| {
                    let until_lost = || {
                        loop {
                            if let Err(error) = block_on(layer.backward(case.args())) {
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
                assert!(
                    matches!(error, Error::DeviceLost { .. }),
                    "{what} {error:?}"
                );
            }
        }
    }
}

/// A callback of the caller's may run, and panic, on the thread that polls for this crate: calls in flight get
/// an answer, and later ones work.
#[test]
fn callbacks_that_panic() {
    let devices = OwnDevices::new();
    for subject in &devices.subjects {
        for kind in ["work done", "map"] {
            let what = format!("{kind} on {}", subject.name);
            let gpu = subject.gpu.clone();
            promptly(&what.clone(), move || {
                let case =
                    Case::<f32, f32>::random(&[8, 64, 40, 40], options_in(DataFormat::Ncx), 1);
                let layer = GpuBatchNorm::new(&gpu, case.options).unwrap();
                let hit = Arc::new(AtomicBool::new(false));
                // Which thread runs the callback is a matter of time, and of what else the machine does.
                let start = Instant::now();
                while start.elapsed() < Duration::from_secs(45) {
                    let mut futures: Vec<_> = (0..2)
                        .map(|_| Box::pin(layer.backward(case.args())))
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
            case().check(subject, &format!("after {what}"));
        }
    }
}

#[test]
fn no_adapter() {
    let options = ContextOptions {
        adapter_name: Some("Abacus 3000".to_owned()),
        ..ContextOptions::default()
    };
    let error = block_on(GpuContext::with_options(options))
        .map(|_| ())
        .unwrap_err();
    let Error::NoAdapter { requested, message } = &error else {
        panic!("{error:?}");
    };
    assert!(requested.contains("Abacus 3000"), "{requested}");
    // What there is instead.
    let name = one(false).gpu.adapter_info().name;
    assert!(message.contains(&name), "{message}");
    says(&error, &["Abacus 3000"]);
    // No driver of the kind at all.
    let options = ContextOptions {
        backends: Some(wgpu::Backends::empty()),
        ..ContextOptions::default()
    };
    let error = block_on(GpuContext::with_options(options))
        .map(|_| ())
        .unwrap_err();
    assert!(matches!(error, Error::NoAdapter { .. }), "{error:?}");
}

/// Runs a test of this file that is ignored otherwise, in a process of its own.
fn in_child(test: &str, shell: &str, environment: &[(&str, &str)]) {
    let program = std::env::current_exe().unwrap();
    let output = Command::new("sh")
        .args([
            "-c",
            &format!("{shell} exec \"$0\" --ignored --exact devices::{test}"),
        ])
        .arg(program)
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[cfg(target_os = "linux")]
#[test]
fn out_of_memory() {
    // 1 GiB of address space.
    in_child(
        "out_of_memory_in_a_small_process",
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
    // The plan's own workspace: some 48 bytes a channel.
    let channels = 30_000_000;
    let options = BatchNormOptions {
        param_grads: ParamGrads::Frozen,
        ..options_in(DataFormat::Nxc)
    };
    let layer = GpuBatchNorm::new(&subject.gpu, options).unwrap();
    let plan = layer
        .plan_backward(
            &[1, channels],
            DTypes::from(DType::Bf16).with_statistics(DType::Bf16),
            false,
        )
        .unwrap();
    let input = subject.buffer(2 * channels as u64, &[]);
    let output = subject.buffer(2 * channels as u64, &[]);
    let ranges = BatchNormBackwardBuffers {
        src: (&input).into(),
        diff_dst: (&input).into(),
        mean: (&input).into(),
        variance: (&input).into(),
        gamma: None,
        diff_src: (&output).into(),
        diff_gamma: None,
        diff_beta: None,
        sums: None,
        workspace: None,
        beta: None,
        mask: None,
        diff_residual: None,
    };
    let error = plan.bind(&subject.gpu, &ranges).map(|_| ()).unwrap_err();
    let want = Error::OutOfMemory {
        what: "workspace",
        bytes: plan.workspace_size(),
    };
    assert_eq!(error, want);
    says(
        &error,
        &["workspace", "memory", &plan.workspace_size().to_string()],
    );
    still_works(subject);
}

/// An error is the device's loss, or leaves the context as it was. Mesa 25.0 maps memory that it does not have:
/// there the process ends in wgpu's upload, whoever calls it, so only drivers that own up to it are asked.
#[cfg(target_os = "linux")]
#[test]
fn out_of_memory_on_a_driver() {
    let info = one(false).gpu.adapter_info();
    if !info.driver_info.starts_with("Mesa 22") {
        println!("not tested: {} may crash without memory", info.driver_info);
        return;
    }
    let name = info.name;
    // 3 to 5 GiB of address space: how far a call gets differs.
    let kib = [4 << 20, 3 << 20, 5 << 20];
    let taken = if takes_all() { 3 } else { 1 };
    for kib in &kib[..taken] {
        in_child(
            "out_of_memory_in_a_call",
            &format!("ulimit -v {kib} &&"),
            &[("WGPU_ADAPTER_NAME", &name), ("WGPU_BACKEND", "vulkan")],
        );
    }
}

#[test]
#[ignore = "run by out_of_memory_on_a_driver, in a process with little memory"]
fn out_of_memory_in_a_call() {
    let gpu = block_on(GpuContext::new()).unwrap();
    let layer = GpuBatchNorm::new(&gpu, options_in(DataFormat::Ncx)).unwrap();
    let data = vec![0.0_f32; 256 << 20];
    let call = |mebibytes: usize| {
        let elements = mebibytes << 18;
        let args = BatchNormBackwardArgs {
            shape: &[1, 4, elements / 4],
            src: &data[..elements],
            diff_dst: &data[..elements],
            mean: &[0.0_f32; 4],
            variance: &[1.0; 4],
            gamma: None::<&[f32]>,
            beta: None,
            mask: None,
        };
        block_on(layer.backward(args)).map(|_| ())
    };
    call(16).unwrap();
    let mut errors = 0;
    for mebibytes in [256, 384, 512, 640, 768, 896, 1024] {
        match call(mebibytes) {
            Ok(()) => {}
            Err(Error::OutOfMemory { .. }) => {
                errors += 1;
                // Nothing of the call that failed is left.
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
        "the_environment_names_no_adapter",
        "",
        &[("WGPU_ADAPTER_NAME", "Abacus 3000")],
    );
    in_child(
        "the_environment_names_an_adapter",
        "",
        &[
            ("WGPU_ADAPTER_NAME", &name.to_uppercase()),
            ("WGPU_BACKEND", ""),
        ],
    );
    in_child(
        "the_environment_names_no_backend",
        "",
        &[("WGPU_BACKEND", "glide")],
    );
}

#[test]
#[ignore = "run by environment_chooses_the_adapter"]
fn the_environment_names_no_backend() {
    let error = block_on(GpuContext::new()).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Argument { .. }), "{error:?}");
    says(&error, &["WGPU_BACKEND", "vulkan", "glide"]);
}

#[test]
#[ignore = "run by environment_chooses_the_adapter"]
fn the_environment_names_no_adapter() {
    let error = block_on(GpuContext::new()).map(|_| ()).unwrap_err();
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
    in_child("threads_of_dropped_contexts", "", &[]);
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
    let backends = wgpu::Backends::from_env().unwrap_or(wgpu::Backends::all());
    for adapter in block_on(wgpu_norm::adapters(backends)) {
        let gpu = block_on(GpuContext::from_adapter(&adapter, DeviceOptions::default())).unwrap();
        let subject = Subject {
            name: adapter.get_info().name,
            gpu,
            checked: false,
            takes_all_types: true,
        };
        case().check(&subject, "in a process of its own");
        assert_eq!(polling(), 1);
        drop(subject);
        assert_eq!(polling(), 0);
    }
}
