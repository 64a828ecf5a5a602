//! Plans' dispatches, launched as another framework would: pipelines with layouts that wgpu derives from the text, and
//! all tensors in one buffer, each with its exact size or with padding after it.

use crate::common::data::{FORMATS, Problem, Values, batch_norm_gradient, in_format};
use crate::common::{Subject, subjects};
use std::collections::HashMap;
use wgpu_norm::export::{Dispatch, Kernel};
use wgpu_norm::{
    Backward, DType, DataFormat, Error, Forward, Norm, Operation, Plan, Profile, Tensor,
};

const SHAPES: &[&[usize]] = &[
    &[3, 5, 7],
    &[2, 8, 64],
    &[61, 3],
    &[2, 3, 35],
    &[4, 16, 400],
];

/// A launcher that knows nothing of this crate but `export`.
struct Launcher<'a> {
    subject: &'a Subject,
    pool: wgpu::Buffer,
    /// The offset of each tensor, and the number of bytes that may be bound from there.
    places: HashMap<Tensor, (u64, u64)>,
    pipelines: HashMap<Kernel, wgpu::ComputePipeline>,
}

impl<'a> Launcher<'a> {
    fn new(subject: &'a Subject, plan: &Plan, padded: bool) -> Self {
        let mut places = HashMap::new();
        let mut end = 0;
        for used in plan.buffers() {
            let room = match padded {
                true => used.padded_bytes,
                false => used.bytes,
            };
            places.insert(used.tensor, (end, room));
            end = (end + room).next_multiple_of(256);
        }
        Self {
            subject,
            pool: subject.buffer(end.max(256), &[]),
            places,
            pipelines: HashMap::new(),
        }
    }

    fn write(&self, tensor: Tensor, bytes: &[u8]) {
        let (offset, _) = self.places[&tensor];
        self.subject.write(&self.pool, offset, bytes);
    }

    fn results(&self, problem: &Problem) -> Vec<Values> {
        let pool = self.subject.read(&self.pool);
        let mut results = problem.results();
        for result in &mut results {
            let (offset, _) = self.places[&result.used.tensor];
            let len = result.bytes.len();
            let bytes = &pool[offset as usize..][..len];
            result.bytes.copy_from_slice(bytes);
        }
        results
    }

    fn room(&self, tensor: Tensor) -> Option<u64> {
        self.places.get(&tensor).map(|(_, room)| *room)
    }

    fn launch(&mut self, dispatches: &[Dispatch]) {
        let device = self.subject.gpu.device();
        for dispatch in dispatches {
            let kernel = &dispatch.kernel;
            let pipeline = self.pipelines.entry(kernel.clone()).or_insert_with(|| {
                let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
                    label: None,
                    source: wgpu::ShaderSource::Wgsl(kernel.wgsl().into()),
                });
                device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                    label: None,
                    layout: None,
                    module: &module,
                    entry_point: Some(kernel.entry_point()),
                    compilation_options: Default::default(),
                    cache: None,
                })
            });
            let uniforms = device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: dispatch.uniforms.len() as u64,
                usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            });
            self.subject.write(&uniforms, 0, &dispatch.uniforms);
            let mut entries = Vec::new();
            for (slot, binding) in (0..).zip(&dispatch.bindings) {
                let (start, room) = self.places[&binding.tensor];
                assert!(binding.offset + binding.size <= room.next_multiple_of(4));
                entries.push(wgpu::BindGroupEntry {
                    binding: slot,
                    resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                        buffer: &self.pool,
                        offset: start + binding.offset,
                        size: wgpu::BufferSize::new(binding.size),
                    }),
                });
            }
            entries.push(wgpu::BindGroupEntry {
                binding: entries.len() as u32,
                resource: uniforms.as_entire_binding(),
            });
            let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &pipeline.get_bind_group_layout(0),
                entries: &entries,
            });
            let mut encoder = device.create_command_encoder(&Default::default());
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, &group, &[]);
            let [width, height] = dispatch.workgroups;
            pass.dispatch_workgroups(width, height, 1);
            drop(pass);
            self.subject.gpu.queue().submit([encoder.finish()]);
        }
    }
}

#[test]
fn another_launcher_gets_the_same_bits() {
    for subject in subjects() {
        for (seed, shape) in SHAPES.iter().enumerate() {
            for format in FORMATS {
                let shape = in_format(shape, format);
                let operation = batch_norm_gradient::<f32, f32>(&shape, format);
                let problem = Problem::random(&operation, seed as u64);
                let want = problem.run(subject).unwrap();
                let plan = operation.plan(subject.gpu.profile()).unwrap();
                for padded in [true, false] {
                    let mut launcher = Launcher::new(subject, &plan, padded);
                    for input in &problem.inputs {
                        launcher.write(input.used.tensor, &input.bytes);
                    }
                    let dispatches = plan.dispatches(|tensor| launcher.room(tensor)).unwrap();
                    launcher.launch(&dispatches);
                    let got = launcher.results(&problem);
                    assert_eq!(got, want, "{} {shape:?} {padded}", subject.name);
                }
            }
        }
    }
}

/// The most dispatches that a plan has, and the text of each one's kernel, of which there is one.
#[test]
fn a_plan_of_the_most_dispatches() {
    let norm = Norm::layer(-1);
    let forward = Forward::default().without_statistics();
    let operation = Operation::new(norm, forward, &[1 << 20, 256], DType::F32);
    let mut profile = Profile::webgpu("a GPU");
    profile.max_binding = 1 << 15;
    let plan = operation.plan(&profile).unwrap();
    let buffers = plan.buffers();
    let room = |tensor| Some(buffers.iter().find(|used| used.tensor == tensor)?.bytes);
    let dispatches = plan.dispatches(room).unwrap();
    assert_eq!(dispatches.len(), 1 << 15);
    let text = dispatches[0].kernel.wgsl();
    assert!(
        dispatches
            .iter()
            .all(|dispatch| dispatch.kernel.wgsl() == text)
    );
    let kernel = &plan.dispatches(room).unwrap()[0].kernel;
    assert!(dispatches.iter().all(|one| one.kernel == *kernel));
}

/// A gradient of 3 × 4 elements without gamma.
fn small(profile: &Profile) -> Plan {
    let operation = batch_norm_gradient::<f32, f32>(&[3, 4], DataFormat::Nxc);
    operation.with_params(false, false).plan(profile).unwrap()
}

#[test]
fn tensors_without_room_are_named() {
    let plan = small(&Profile::webgpu("none"));
    let missing = plan.dispatches(|tensor| (tensor != Tensor::Mean).then_some(1 << 20));
    assert!(matches!(
        missing,
        Err(Error::BufferPresence {
            tensor: "mean",
            expected: true,
            ..
        })
    ));
    let small = plan.dispatches(|tensor| Some(if tensor == Tensor::Src { 44 } else { 1 << 20 }));
    assert!(matches!(
        small,
        Err(Error::BufferSize {
            tensor: "src",
            expected: 48,
            got: 44,
            ..
        })
    ));
}

#[test]
fn a_tensor_that_is_given_twice_is_named() {
    let subject = &subjects()[0];
    let plan = small(subject.gpu.profile());
    let uses = plan.buffers().into_iter();
    let buffers: Vec<_> = uses
        .map(|used| (used.tensor, subject.buffer(used.padded_bytes, &[])))
        .collect();
    let mut given: Vec<_> = buffers
        .iter()
        .map(|(tensor, buffer)| (*tensor, buffer.into()))
        .collect();
    drop(plan.bind(&subject.gpu, &given).unwrap());
    let other = subject.buffer(64, &[]);
    given.push((Tensor::Mean, (&other).into()));
    let error = plan.bind(&subject.gpu, &given).unwrap_err();
    assert_eq!(error.to_string(), "mean: expected one buffer, got two");
}

/// A user's own profile may contain anything: the result is a plan within the bounds that kernels rely on, or an error.
#[test]
fn a_profile_out_of_bounds() {
    let norm = Norm::layer(-1);
    let operation = Operation::new(norm, Backward::default(), &[64, 300], DType::F32);
    let mut profile = Profile::webgpu("odd");
    profile.alignment = 3;
    profile.max_workgroups = u32::MAX;
    profile.max_binding = u64::MAX;
    profile.tuning.workgroup = 7;
    profile.subgroup_size = 5;
    let plan = operation.plan(&profile).unwrap();
    for dispatch in plan.dispatches(|_| Some(1 << 20)).unwrap() {
        let [width, height] = dispatch.workgroups;
        assert!(width >= 1 && height >= 1 && width.max(height) <= 65535);
        assert!(dispatch.kernel.workgroup_size().is_power_of_two());
    }
    for change in [
        |profile: &mut Profile| profile.max_workgroups = 0,
        |profile: &mut Profile| profile.max_invocations = 1,
        |profile: &mut Profile| profile.max_storage_buffers = 2,
    ] {
        let mut profile = profile.clone();
        change(&mut profile);
        let refused = operation.plan(&profile);
        assert!(matches!(refused, Err(Error::Limit { .. })));
    }
}
