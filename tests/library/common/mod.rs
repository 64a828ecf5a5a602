//! Shared code of the tests: every adapter of the machine, the vectors, seeded data.

pub mod buffers;
pub mod data;
pub mod errors;
pub mod polls;
pub mod ranks;
pub mod storage;
pub mod validation;
pub mod vectors;

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use wgpu_norm::{DType, DeviceOptions, Element, GpuContext, Profile, Tuning};

/// A context to test on, with its name in messages.
pub struct Subject {
    pub name: String,
    pub gpu: GpuContext,
    /// Whether shaders are compiled with wgpu's checks.
    pub checked: bool,
    /// Whether it runs all element types even in the quick run; the others run only f32 there.
    pub takes_all_types: bool,
}

impl Subject {
    /// The same device under another profile.
    pub fn with_profile(&self, what: &str, change: impl FnOnce(&mut Profile)) -> Self {
        let mut profile = self.gpu.profile().clone();
        change(&mut profile);
        Self {
            name: format!("{} / {what}", self.name),
            gpu: self.gpu.with_profile(profile),
            checked: self.checked,
            takes_all_types: self.takes_all_types,
        }
    }

    pub fn is_on_the_adapter_of(&self, other: &Self) -> bool {
        let [own, its] = [self, other].map(|subject| subject.gpu.adapter_info());
        (own.backend, &own.name, &own.driver) == (its.backend, &its.name, &its.driver)
    }

    /// The same device with other sizes.
    pub fn with_tuning(&self, what: &str, tuning: Tuning) -> Self {
        self.with_profile(what, |profile| profile.tuning = tuning)
    }

    /// Whether an element type is tested here; prints a message if the adapter lacks it.
    pub fn takes<T: Element>(&self) -> bool {
        let supported = self.gpu.supports(T::DTYPE);
        if !supported {
            println!("skipped on {}: no {}", self.name, T::DTYPE);
        }
        supported && (takes_all() || self.takes_all_types || T::DTYPE == DType::F32)
    }

    /// A buffer of the device, with these bytes at its start.
    pub fn buffer(&self, size: u64, bytes: &[u8]) -> wgpu::Buffer {
        let usage = wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_DST
            | wgpu::BufferUsages::COPY_SRC;
        let buffer = self.gpu.device().create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size,
            usage,
            mapped_at_creation: false,
        });
        self.write(&buffer, 0, bytes);
        buffer
    }

    /// Writes any number of bytes, with zeros up to the next word.
    pub fn write(&self, buffer: &wgpu::Buffer, offset: u64, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        self.gpu.queue().write_buffer(buffer, offset, &bytes);
    }

    /// The contents of a buffer of the device.
    pub fn read(&self, buffer: &wgpu::Buffer) -> Vec<u8> {
        let device = self.gpu.device();
        let staging = device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: buffer.size(),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, buffer.size());
        self.gpu.queue().submit([encoder.finish()]);
        staging.map_async(wgpu::MapMode::Read, .., |result| result.unwrap());
        device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
        staging.get_mapped_range(..).unwrap().to_vec()
    }
}

/// The subject on lavapipe, or else the first one, that is (or is not) checked.
pub fn one(checked: bool) -> &'static Subject {
    let of_kind = || every_subject().iter().filter(|s| s.checked == checked);
    of_kind()
        .find(|subject| subject.takes_all_types)
        .or_else(|| of_kind().next())
        .expect("one adapter at least is there twice")
}

/// Defines tests of a function over data and parameter types, one for each pair. They run side by side, since the
/// kernels of each are compiled anew.
macro_rules! every_pair {
    ($test:ident) => {
        every_pair!($test:
            f32 f32 f32, f16_f32 f16 f32, f16 f16 f16, bf16_f32 bf16 f32, bf16 bf16 bf16, f64 f64 f64
        );
    };
    ($test:ident: $($name:ident $data:ident $params:ident),*) => {
        mod $test {
            #[allow(unused_imports, reason = "some lists lack one")]
            use half::{bf16, f16};
            $(
                #[test]
                fn $name() {
                    super::$test::<$data, $params>();
                }
            )*
        }
    };
}
pub(crate) use every_pair;

/// Whether `WGPU_NORM_TEST_ALL` asks for all cases instead of the quick run's selection.
pub fn takes_all() -> bool {
    is_set("WGPU_NORM_TEST_ALL") || takes_every_one()
}

/// Whether `WGPU_NORM_TEST_EVERY` asks for every combination of element types, shapes, options and forced kernels.
/// Without it, f32 runs all combinations and the other types some: how a kernel divides a tensor does not depend on how
/// it reads an element.
pub fn takes_every_one() -> bool {
    is_set("WGPU_NORM_TEST_EVERY")
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

/// Whether a type runs all combinations, not only some.
fn takes_all_of<T: Element>() -> bool {
    takes_every_one() || (takes_all() && T::DTYPE == DType::F32)
}

/// The number of random cases for a property: all of them, or a part.
pub fn random_cases(all: u32) -> u32 {
    match (takes_every_one(), takes_all()) {
        (true, _) => all,
        (_, true) => all / 2,
        _ => all / 8,
    }
}

/// A number for each pair of element types, so that pairs run different combinations.
fn number<T: Element, P: Element>() -> usize {
    T::DTYPE as usize + 2 * P::DTYPE as usize
}

/// Whether a pair of element types runs this one of many combinations of shapes and options: all, or a third that
/// depends on the pair; in the quick run a sixth.
pub fn takes<T: Element, P: Element>(combination: usize) -> bool {
    let share = if takes_all() { 3 } else { 6 };
    takes_all_of::<T>() || (combination + number::<T, P>()).is_multiple_of(share)
}

/// The contexts that a pair of element types runs on. There are several for each adapter, one for each way to force
/// kernels. The result has all of them, or each way on one of the adapters that have all kernels, and a third of the
/// ways on the others, if any.
pub fn taken<T: Element, P: Element>(contexts: &[Subject]) -> Vec<&Subject> {
    let adapters = contexts.chunk_by(Subject::is_on_the_adapter_of);
    let adapters = adapters.filter(|adapter| adapter.iter().all(Subject::takes::<T>));
    let (able, others): (Vec<_>, Vec<_>) = adapters.partition(|adapter| {
        let bindings = |context: &Subject| context.gpu.profile().max_storage_buffers;
        adapter.iter().any(|context| bindings(context) >= 8)
    });
    let of_others = if able.is_empty() { 1 } else { 3 };
    let mut taken = Vec::new();
    for (share, adapters) in [(able.len(), able), (of_others, others)] {
        for (index, adapter) in adapters.into_iter().enumerate() {
            let turn = |way: usize| (index + way + number::<T, P>()).is_multiple_of(share);
            let own = adapter.iter().enumerate();
            let own = own.filter(|(way, _)| takes_all_of::<T>() || turn(*way));
            taken.extend(own.map(|(_, context)| context));
        }
    }
    taken
}

/// The subjects of most tests: in the quick run one adapter, lavapipe or else the first, without shader checks;
/// otherwise every adapter without them, and the main one, or with `WGPU_NORM_TEST_EVERY` each, with them too.
pub fn subjects() -> &'static [Subject] {
    let all = every_subject();
    if takes_all() {
        return all;
    }
    let is_main = |subject: &Subject| subject.takes_all_types && !subject.checked;
    let main = all.iter().position(is_main).unwrap_or(0);
    &all[main..=main]
}

/// Every adapter found without shader checks, and some with them (see [`subjects`]). Fails if none is found, or if one
/// in `WGPU_NORM_REQUIRE_ADAPTERS` is missing.
///
/// Tests that run side by side have their own devices: a software driver compiles a device's kernels one after another,
/// and wgpu's GL backend panics if a thread waits for another for long. Later tests reuse the devices.
pub fn every_subject() -> &'static [Subject] {
    static FREE: Mutex<Vec<&'static [Subject]>> = Mutex::new(Vec::new());
    struct Lent(&'static [Subject]);
    impl Drop for Lent {
        fn drop(&mut self) {
            FREE.lock().unwrap().push(self.0);
        }
    }
    thread_local! {
        static LENT: Lent = {
            let free = FREE.lock().unwrap().pop();
            Lent(free.unwrap_or_else(|| open_all().leak()))
        };
    }
    LENT.with(|lent| lent.0)
}

/// Runs an otherwise ignored test in a process of its own.
pub fn in_child(test: &str, shell: &str, environment: &[(&str, &str)]) {
    let program = std::env::current_exe().unwrap();
    let script = format!("{shell} exec \"$0\" --ignored --exact {test} --nocapture");
    let mut command = Command::new("sh");
    let command = command.args(["-c", &script]).arg(program);
    let output = command.envs(environment.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Logs as RUST_LOG says, or listens to Vulkan's validation layers.
pub fn log() {
    if !validation::listen() {
        let _ = env_logger::builder().is_test(true).try_init();
    }
}

/// Opens all adapters, and names them in the log.
fn open_all() -> Vec<Subject> {
    log();
    let mut subjects = Vec::new();
    let backends = wgpu::Backends::from_env().unwrap_or(wgpu::Backends::all());
    let adapters = pollster::block_on(wgpu_norm::adapters(backends));
    for (adapter, takes_all_types) in with_the_main_one(&adapters) {
        let info = adapter.get_info();
        for shader_checks in [false, true] {
            // Checks change a text in the same places on every adapter.
            if shader_checks && !takes_all_types && !takes_every_one() {
                continue;
            }
            let options = DeviceOptions::default().shader_checks(shader_checks);
            let gpu = pollster::block_on(GpuContext::from_adapter(adapter, options));
            let gpu = match gpu {
                Ok(gpu) => gpu,
                Err(error) => {
                    println!("adapter {} not tested: {error}", info.name);
                    continue;
                }
            };
            let checks = ["unchecked", "checked"][usize::from(shader_checks)];
            let name = format!(
                "{} / {} / {} {} / {checks}",
                info.backend, info.name, info.driver, info.driver_info
            );
            println!("testing on {name}");
            subjects.push(Subject {
                name,
                gpu,
                checked: shader_checks,
                takes_all_types,
            });
        }
    }
    for required in required() {
        let found = subjects
            .iter()
            .any(|subject| is(&required, &subject.gpu.adapter_info()));
        assert!(found, "adapter '{required}' is required but was not found");
    }
    assert!(
        !subjects.is_empty(),
        "no adapter: install a Vulkan driver, for example with scripts/install-drivers.sh"
    );
    subjects
}

/// Adapters, each with whether it is the one that runs all element types in the quick run: lavapipe, or else the first.
fn with_the_main_one(adapters: &[wgpu::Adapter]) -> impl Iterator<Item = (&wgpu::Adapter, bool)> {
    let lavapipe = |adapter: &wgpu::Adapter| is("lavapipe", &adapter.get_info());
    let main = adapters.iter().position(lavapipe).unwrap_or(0);
    let adapters = adapters.iter().enumerate();
    adapters.map(move |(index, adapter)| (adapter, index == main))
}

/// The names of required software adapters, from the environment.
fn required() -> Vec<String> {
    let names = std::env::var("WGPU_NORM_REQUIRE_ADAPTERS").unwrap_or_default();
    names
        .split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

fn is(required: &str, info: &wgpu::AdapterInfo) -> bool {
    let name = info.name.to_lowercase();
    match required {
        // Mesa calls both llvmpipe; the backend distinguishes them.
        "lavapipe" => name.contains("llvmpipe") && info.backend == wgpu::Backend::Vulkan,
        "llvmpipe" => name.contains("llvmpipe") && info.backend == wgpu::Backend::Gl,
        other => name.contains(other),
    }
}

/// A device of wgpu's `noop` backend: everything is validated, nothing is computed.
pub struct Noop {
    pub subject: Subject,
    adapter: wgpu::Adapter,
    limits: wgpu::Limits,
    features: wgpu::Features,
    complaints: Arc<AtomicUsize>,
}

impl Noop {
    pub fn new(limits: wgpu::Limits, features: wgpu::Features) -> Self {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = wgpu::Backends::NOOP;
        descriptor.backend_options.noop = wgpu::NoopBackendOptions {
            limits: Some(limits.clone()),
            features: Some(features),
            ..wgpu::NoopBackendOptions::enabled()
        };
        let instance = wgpu::Instance::new(descriptor);
        let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::NOOP));
        let adapter = adapters.into_iter().next().expect("the noop adapter");
        let complaints = Arc::default();
        let subject = open(&adapter, &limits, features, &complaints);
        Self {
            subject,
            adapter,
            limits,
            features,
            complaints,
        }
    }

    /// Another device of the same instance.
    pub fn sibling(&self) -> Subject {
        open(&self.adapter, &self.limits, self.features, &self.complaints)
    }
}

impl Default for Noop {
    fn default() -> Self {
        Self::new(wgpu::Limits::default(), wgpu::Features::empty())
    }
}

impl Drop for Noop {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let complaints = self.complaints.load(Ordering::Relaxed);
            assert_eq!(complaints, 0, "errors that nothing captured");
        }
    }
}

/// A device for one test, which counts uncaptured errors.
pub fn open(
    adapter: &wgpu::Adapter,
    limits: &wgpu::Limits,
    features: wgpu::Features,
    complaints: &Arc<AtomicUsize>,
) -> Subject {
    let request = adapter.request_device(&wgpu::DeviceDescriptor {
        required_features: features,
        required_limits: limits.clone(),
        ..Default::default()
    });
    let (device, queue) = pollster::block_on(request).expect("a device");
    let complaints = complaints.clone();
    device.on_uncaptured_error(Arc::new(move |error| {
        eprintln!("uncaptured: {error}");
        complaints.fetch_add(1, Ordering::Relaxed);
    }));
    Subject {
        name: adapter.get_info().name,
        gpu: GpuContext::from_device(device, queue, DeviceOptions::default()),
        checked: false,
        takes_all_types: true,
    }
}

/// Two devices for one test on every adapter, one with limits that every adapter has, and one with all that the adapter
/// allows; fails when dropped if there were uncaptured errors.
pub struct OwnDevices {
    pub subjects: Vec<Subject>,
    complaints: Arc<AtomicUsize>,
}

impl OwnDevices {
    pub fn new() -> Self {
        log();
        let complaints = Arc::default();
        let backends = wgpu::Backends::from_env().unwrap_or(wgpu::Backends::all());
        let adapters = pollster::block_on(wgpu_norm::adapters(backends));
        let subjects = with_the_main_one(&adapters)
            .filter(|(_, is_main)| takes_all() || *is_main)
            .flat_map(|(adapter, takes_all_types)| {
                let features = adapter.features() & GpuContext::USEFUL_FEATURES;
                [wgpu::Limits::downlevel_defaults(), adapter.limits()].map(|limits| Subject {
                    takes_all_types,
                    ..open(adapter, &limits, features, &complaints)
                })
            })
            .collect();
        Self {
            subjects,
            complaints,
        }
    }
}

impl Drop for OwnDevices {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let complaints = self.complaints.load(Ordering::Relaxed);
            assert_eq!(complaints, 0, "errors that nothing captured");
        }
    }
}
