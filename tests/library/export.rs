//! Plans' dispatches, launched as another framework would: pipelines with layouts that wgpu derives from the text, all
//! tensors in one buffer, each with just its own size or with padding behind.

use crate::common::data::{Case, FORMATS, bits, in_format, options_in};
use crate::common::{Subject, subjects};
use std::collections::HashMap;
use wgpu_norm::Tensor;
use wgpu_norm::export::{Dispatch, Kernel, Plan};
use wgpu_norm::{BatchNormOptions, DType, DTypes, Error, Grads, LayerNormOptions, Profile};

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
    /// Where each tensor begins, and the bytes that may be bound from there.
    places: HashMap<Tensor, (u64, u64)>,
    pipelines: HashMap<Kernel, wgpu::ComputePipeline>,
}

impl<'a> Launcher<'a> {
    fn new(subject: &'a Subject, plan: &Plan, padded: bool) -> Self {
        let mut places = HashMap::new();
        let mut end = 0;
        for tensor in plan.tensors() {
            let room = if padded {
                tensor.padded_bytes
            } else {
                tensor.bytes
            };
            places.insert(tensor.tensor, (end, room));
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

    fn read<T: wgpu_norm::bytemuck::Pod>(&self, tensor: Tensor, elements: usize) -> Vec<T> {
        let (offset, _) = self.places[&tensor];
        let bytes = self.subject.read(&self.pool);
        let bytes = &bytes[offset as usize..][..elements * size_of::<T>()];
        wgpu_norm::bytemuck::pod_collect_to_vec(bytes)
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
                let options = options_in(format);
                let case = Case::<f32, f32>::random(&shape, options, seed as u64);
                let args = case.args();
                let types = (DType::F32, DType::F32);
                let profile = subject.gpu.profile();
                let plan = options.plan_backward(profile, &shape, types, args.gamma.is_some());
                let plan = Plan::from(plan.unwrap());
                for padded in [true, false] {
                    let mut launcher = Launcher::new(subject, &plan, padded);
                    let slices = [
                        (Tensor::Src, Some(args.src)),
                        (Tensor::DiffDst, Some(args.diff_dst)),
                        (Tensor::Mean, Some(args.mean)),
                        (Tensor::Variance, Some(args.variance)),
                        (Tensor::Gamma, args.gamma),
                    ];
                    for (tensor, values) in slices {
                        if let Some(values) = values {
                            launcher.write(tensor, wgpu_norm::bytemuck::cast_slice(values));
                        }
                    }
                    let dispatches = plan.dispatches(|tensor| launcher.room(tensor)).unwrap();
                    launcher.launch(&dispatches);
                    let channels = args.mean.len();
                    let got = Grads {
                        diff_src: launcher.read::<f32>(Tensor::DiffSrc, args.src.len()),
                        diff_gamma: Some(launcher.read::<f32>(Tensor::DiffGamma, channels)),
                        diff_beta: Some(launcher.read::<f32>(Tensor::DiffBeta, channels)),
                        diff_residual: None,
                    };
                    let want = case.run(subject).unwrap();
                    assert_eq!(
                        bits(&got),
                        bits(&want),
                        "{} {shape:?} {padded}",
                        subject.name
                    );
                }
            }
        }
    }
}

#[test]
fn tensors_without_room_are_named() {
    let options = BatchNormOptions::new(1e-5);
    let profile = Profile::webgpu("none");
    let plan = options.plan_backward(&profile, &[3, 4], (DType::F32, DType::F32), false);
    let plan = Plan::from(plan.unwrap());
    let missing = plan.dispatches(|tensor| (tensor != Tensor::Mean).then_some(1 << 20));
    assert!(matches!(
        missing,
        Err(Error::BufferPresence {
            tensor: "mean",
            expected: true
        })
    ));
    let small = plan.dispatches(|tensor| Some(if tensor == Tensor::Src { 44 } else { 1 << 20 }));
    assert!(matches!(
        small,
        Err(Error::BufferSize {
            tensor: "src",
            expected: 48,
            got: 44
        })
    ));
}

#[test]
fn a_tensor_that_is_given_twice_is_named() {
    let subject = &subjects()[0];
    let options = BatchNormOptions::new(1e-5);
    let profile = subject.gpu.profile();
    let plan = options.plan_backward(profile, &[3, 4], (DType::F32, DType::F32), false);
    let plan = Plan::from(plan.unwrap());
    let tensors = plan.tensors();
    let buffers: Vec<_> = tensors
        .iter()
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

/// A profile of somebody's own may say anything: a plan within the bounds that kernels rely on, or an error.
#[test]
fn a_profile_out_of_bounds() {
    let options = LayerNormOptions::default();
    let types = DTypes::from(DType::F32);
    let mut profile = Profile::webgpu("odd");
    profile.alignment = 3;
    profile.max_workgroups = u32::MAX;
    profile.max_binding = u64::MAX;
    profile.tuning.workgroup = 7;
    profile.subgroup_size = 5;
    let plan = options.plan_backward(&profile, &[64, 300], types).unwrap();
    for dispatch in Plan::from(plan).dispatches(|_| Some(1 << 20)).unwrap() {
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
        let refused = options.plan_backward(&profile, &[64, 300], types);
        assert!(matches!(refused, Err(Error::Limit { .. })));
    }
}
