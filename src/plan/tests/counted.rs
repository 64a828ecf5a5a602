//! Compares the loop iterations that kernels count with those that plans state.

use super::{Random, check_loops, is_set};
use crate::algorithm::Algorithm;
use crate::context::{DeviceOptions, GpuContext};
use crate::element::DType;
use crate::kernels::{Access, Body, Constant, Kernel, SUBGROUPS, Variant};
use crate::operation::Operation;
use crate::options::DataFormat;
use crate::plan::{Dispatch, Plan};
use crate::profile::Profile;
use std::collections::{BTreeMap, HashMap};

/// A kernel's text in which every loop counts, and which leaves the largest count of all invocations in a buffer.
fn counting(variant: &Variant) -> String {
    let name = variant.kernel.entry().name();
    let head = format!(
        "@compute @workgroup_size(workgroup_size)\nfn {name}(\n    @builtin(workgroup_id) workgroup: vec3<u32>,\n    \
         @builtin(local_invocation_index) local: u32,\n) {{"
    );
    let text = variant.wgsl();
    assert!(text.contains(&head), "{name} begins in another way");
    let text = text.replace(&head, "fn counted(workgroup: vec3<u32>, local: u32) {");
    let lines = text.lines().map(|line| {
        let code = line.split("//").next().unwrap_or_default().trim();
        assert!(
            !code.starts_with("loop") && !code.starts_with("while"),
            "{line}"
        );
        match code.starts_with("for (") {
            true => {
                assert!(code.ends_with('{'), "{line}");
                format!("{line} iterations_made++;\n")
            }
            false => format!("{line}\n"),
        }
    });
    lines.collect::<String>()
        + &format!(
            "var<private> iterations_made: u32;
@group(1) @binding(0) var<storage, read_write> most_iterations: atomic<u32>;
@compute @workgroup_size(workgroup_size)
fn {name}(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {{
    counted(workgroup, local);
    atomicMax(&most_iterations, iterations_made);
}}
"
        )
}

struct Counter {
    gpu: GpuContext,
    pipelines: HashMap<Variant, (wgpu::ComputePipeline, [wgpu::BindGroupLayout; 2])>,
}

impl Counter {
    fn buffer(&self, size: u64, contents: &[u8]) -> wgpu::Buffer {
        let buffer = self.gpu.device().create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: size.next_multiple_of(256),
            usage: wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::UNIFORM
                | wgpu::BufferUsages::COPY_SRC
                | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        self.gpu.queue().write_buffer(&buffer, 0, contents);
        buffer
    }

    fn layout(&self, buffers: &[wgpu::BufferBindingType]) -> wgpu::BindGroupLayout {
        let entries: Vec<_> = (0..)
            .zip(buffers)
            .map(|(binding, &ty)| wgpu::BindGroupLayoutEntry {
                binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty,
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            })
            .collect();
        let device = self.gpu.device();
        device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: None,
            entries: &entries,
        })
    }

    fn compile(&mut self, variant: &Variant) {
        if self.pipelines.contains_key(variant) {
            return;
        }
        let storage = |read_only| wgpu::BufferBindingType::Storage { read_only };
        let bound = variant
            .bound
            .iter()
            .map(|&tensor| storage(!variant.writes(tensor)));
        let bound: Vec<_> = bound.chain([wgpu::BufferBindingType::Uniform]).collect();
        let layouts = [self.layout(&bound), self.layout(&[storage(false)])];
        let device = self.gpu.device();
        let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&layouts[0]), Some(&layouts[1])],
            immediate_size: 0,
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: Some(&layout),
            module: &device.create_shader_module(wgpu::ShaderModuleDescriptor {
                label: None,
                source: wgpu::ShaderSource::Wgsl(counting(variant).into()),
            }),
            entry_point: Some(variant.kernel.entry().name()),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: &[],
                zero_initialize_workgroup_memory: true,
            },
            cache: None,
        });
        self.pipelines.insert(variant.clone(), (pipeline, layouts));
    }

    /// The largest count of each dispatch of the whole and of the halves, with tensors of zeros.
    fn count(&mut self, plan: &Plan) -> Vec<(Dispatch, u64)> {
        let all = plan.dispatches.iter();
        let dispatches: Vec<Dispatch> = all.map(|(_, dispatch)| dispatch.clone()).collect();
        let mut buffers = HashMap::new();
        for tensor in &plan.tensors {
            buffers.insert(tensor.tensor, self.buffer(tensor.padded_bytes() + 256, &[]));
        }
        let workspace = self.buffer(plan.halves_workspace_bytes.max(16), &[]);
        let mut encoder = self
            .gpu
            .device()
            .create_command_encoder(&Default::default());
        let counts = self.buffer(256 * dispatches.len() as u64, &[]);
        for (index, dispatch) in (0..).zip(&dispatches) {
            let bound: Vec<_> = dispatch.bindings.iter().collect();
            let variant = dispatch
                .variant(plan.types, Access::Vec4, &bound)
                .normalized();
            self.compile(&variant);
            let uniforms = dispatch.uniforms.bytes(plan.types.data.accumulator());
            let uniforms = self.buffer(uniforms.len() as u64, &uniforms);
            let mut entries = Vec::new();
            for (slot, binding) in (0..).zip(&dispatch.bindings) {
                entries.push(wgpu::BindGroupEntry {
                    binding: slot,
                    resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                        buffer: buffers.get(&binding.tensor).unwrap_or(&workspace),
                        offset: binding.bytes.start,
                        size: (binding.bytes.end - binding.bytes.start).try_into().ok(),
                    }),
                });
            }
            entries.push(wgpu::BindGroupEntry {
                binding: entries.len() as u32,
                resource: uniforms.as_entire_binding(),
            });
            let (pipeline, layouts) = &self.pipelines[&variant];
            let device = self.gpu.device();
            let group = |layout, entries: &[_]| {
                device.create_bind_group(&wgpu::BindGroupDescriptor {
                    label: None,
                    layout,
                    entries,
                })
            };
            let own = group(&layouts[0], &entries);
            let count = wgpu::BindGroupEntry {
                binding: 0,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: &counts,
                    offset: 256 * index,
                    size: 4.try_into().ok(),
                }),
            };
            let count = group(&layouts[1], &[count]);
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, &own, &[]);
            pass.set_bind_group(1, &count, &[]);
            pass.dispatch_workgroups(dispatch.workgroups[0], dispatch.workgroups[1], 1);
        }
        let device = self.gpu.device();
        let staging = device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: counts.size(),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        encoder.copy_buffer_to_buffer(&counts, 0, &staging, 0, counts.size());
        self.gpu.queue().submit([encoder.finish()]);
        staging.map_async(wgpu::MapMode::Read, .., |result| result.unwrap());
        device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
        let mapped = staging.get_mapped_range(..).unwrap();
        let counts = mapped.chunks(256).map(|chunk| {
            let word: [u8; 4] = chunk[..4].try_into().unwrap();
            u64::from(u32::from_ne_bytes(word))
        });
        dispatches.into_iter().zip(counts).collect()
    }
}

/// No invocation makes more iterations than its plan says, and none of the kernels far fewer in every case.
#[test]
fn kernels_make_no_more_iterations_than_plans_say() {
    // Mesa's driver, if it is there, since the limit is its own.
    let mut adapters = pollster::block_on(crate::context::adapters(wgpu::Backends::all()));
    adapters.sort_by_key(|adapter| !adapter.get_info().name.contains("llvmpipe"));
    let adapter = adapters.first().expect("an adapter");
    let open = GpuContext::from_adapter(adapter, DeviceOptions::default());
    let gpu = pollster::block_on(open).expect("a device");
    println!("counting on {:?}", gpu.adapter_info());
    let own = gpu.profile().clone();
    let mut counter = Counter {
        gpu,
        pipelines: HashMap::new(),
    };
    const CLOSE: f64 = 0.25;
    let loops = |kernel| kernel != Kernel::PackParams;
    let mut random = Random(11);
    // The largest share of its bound that each kernel reached with a body.
    let mut closest: BTreeMap<(Kernel, Body, bool), f64> = BTreeMap::new();
    // A text with subgroups is another one than without.
    let forms = |kernel, body: Body| match kernel {
        _ if own.subgroup_size == 0 => 1,
        Kernel::PackStatistics
        | Kernel::PackParams
        | Kernel::ChannelsFirstApply
        | Kernel::FlatApply => 1,
        Kernel::ColumnsWalk => 1, // their sums are of a subgroup
        // Their other form is seldom planned.
        Kernel::InRegisters if body == Body::UNCENTERED_GRADIENT => 1,
        _ if body.of_groups && !body.centered => 1,
        _ => 2,
    };
    let known = |body: Body| {
        let kernels = Kernel::ALL.into_iter().filter(|&kernel| body.fits(kernel));
        kernels.map(|kernel| forms(kernel, body)).sum::<usize>()
    };
    let known: usize = Body::ALL.map(known).iter().sum();
    let all = is_set("WGPU_NORM_TEST_EVERY");
    let fewest = if all { 40 } else { 0 };
    // Compiling kernels takes most of the time, and each tuning has others.
    let few = [(); 3].map(|()| random.profile().tuning);
    for case in 0..800 {
        // Stops when each was seen, and close to its bound.
        let all_close = closest
            .iter()
            .all(|((kernel, ..), &share)| !loops(*kernel) || share > CLOSE);
        if case >= fewest && closest.len() == known && all_close {
            break;
        }
        let profile = Profile {
            tuning: match all {
                true => random.profile().tuning,
                false => random.of(&few),
            },
            algorithm: (case % 2 == 0).then(|| random.of(&Algorithm::ALL)),
            max_storage_buffers: random.of(&[4, 8]),
            long_words: false,
            f64: false,
            ..own.clone()
        };
        let (of_batch, of_layer) = (random.small_batch_norm(), random.small_layer_norm());
        let forward = random.forward(&of_batch);
        let inference = random.inference(&of_batch);
        let rows = random.rows_forward(&of_layer);
        let grid = random.grid_of(1 << 20);
        let format = random.of(&[DataFormat::Ncx, DataFormat::Nxc]);
        let of_groups = random.group_norm(grid, format);
        let small = random.grid_of(1 << 10);
        let of_axes = [grid, small, small].map(|grid| random.axes_norm(grid));
        let others = [of_groups]
            .into_iter()
            .chain(of_axes)
            .map(|what| Operation {
                types: DType::F32.into(),
                ..what
            });
        let what = [of_batch, forward, inference, of_layer, rows];
        let what: Vec<_> = what.into_iter().chain(others).collect();
        let form_of = |dispatch: &Dispatch| {
            (
                dispatch.kernel,
                dispatch.body,
                dispatch
                    .constants
                    .contains(&(SUBGROUPS, Constant::Flag(true)))
                    && forms(dispatch.kernel, dispatch.body) > 1,
            )
        };
        for what in &what {
            let Some(plan) = &check_loops(what, &profile) else {
                continue;
            };
            let is_known = |(_, dispatch): &(_, Dispatch)| {
                let share = closest.get(&form_of(dispatch));
                share.is_some_and(|&share| share > CLOSE || !loops(dispatch.kernel))
            };
            if !all && plan.dispatches.iter().all(is_known) {
                continue;
            }
            for (dispatch, made) in counter.count(plan) {
                let bound = dispatch.iterations;
                assert!(
                    made <= bound,
                    "{made} iterations, not {bound}: {dispatch:?}\n{what:?}\n{profile:?}"
                );
                let share = made as f64 / bound.max(1) as f64;
                let closest = closest.entry(form_of(&dispatch)).or_default();
                *closest = closest.max(share);
            }
        }
    }
    println!("{closest:#?}, {} kernels", counter.pipelines.len());
    let seen = |kernel, body| {
        closest
            .keys()
            .filter(|own| (own.0, own.1) == (kernel, body))
            .count()
    };
    let fitting = Body::ALL.into_iter().flat_map(|body| {
        let kernels = Kernel::ALL.into_iter().filter(move |&k| body.fits(k));
        kernels.map(move |kernel| (kernel, body))
    });
    let missing: Vec<_> = fitting
        .filter(|&(k, body)| seen(k, body) < forms(k, body))
        .collect();
    assert!(
        missing.is_empty(),
        "not run with and without subgroups: {missing:?}; whatever `Random` draws anew changes the cases: take another seed"
    );
    assert_eq!(closest.len(), known);
    for ((kernel, body, _), share) in closest {
        assert!(
            !loops(kernel) || share > CLOSE,
            "{kernel:?} of {body:?}: at most {share} of its bound"
        );
    }
}
