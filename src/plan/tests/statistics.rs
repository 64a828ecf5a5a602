//! Compares the statistics that the two reductions of forward passes leave with a calculation in f64.

use super::{Random, is_set};
use crate::algorithm::Algorithm;
use crate::context::{DeviceOptions, GpuContext};
use crate::element::DType;
use crate::kernels::{Access, Constant, Kernel, Value, Variant};
use crate::operation::{Channels, Forward, Norm, Operation};
use crate::options::DataFormat;
use crate::plan::Dispatch;
use crate::plan::axes::Grid;
use crate::profile::Profile;
use crate::tensor::Tensor;
use crate::tuning::Tuning;

/// Partial statistics, as the kernels write them.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    count: f64,
    mean: f64,
    m2: f64,
}

impl Record {
    fn merge(self, other: Self) -> Self {
        let count = self.count + other.count;
        if count == 0.0 {
            return self;
        }
        let step = other.mean - self.mean;
        Self {
            count,
            mean: self.mean + step * other.count / count,
            m2: self.m2 + other.m2 + step * step * self.count * other.count / count,
        }
    }
}

fn uniform(dispatch: &Dispatch, name: &str) -> usize {
    let fields = dispatch.kernel.entry().uniforms.fields("");
    let place = fields.iter().position(|(field, _)| *field == name);
    match dispatch.uniforms.values()[place.unwrap()] {
        Value::Word(word) => word as usize,
        Value::Real(_) => panic!("{name} is no word"),
    }
}

fn variant(dispatch: &Dispatch) -> Variant {
    let tensors: Vec<_> = dispatch.bindings.iter().map(|b| b.tensor).collect();
    assert_eq!(tensors, [Tensor::Src, Tensor::Workspace]);
    let types = (DType::F32, DType::F32).into();
    let bound: Vec<_> = dispatch.bindings.iter().collect();
    dispatch.variant(types, Access::Vec4, &bound).normalized()
}

/// The workspace after all reductions of a plan.
fn partials(gpu: &GpuContext, dispatches: &[&Dispatch], src: &[f32]) -> Vec<[f32; 4]> {
    let device = gpu.device();
    let buffer = |size: u64, usage, contents: &[u8]| {
        let buffer = device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size,
            usage: usage | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        gpu.queue().write_buffer(&buffer, 0, contents);
        buffer
    };
    let bytes: &[u8] = bytemuck::cast_slice(src);
    let src = buffer(bytes.len() as u64 + 256, wgpu::BufferUsages::STORAGE, bytes);
    let workspace = buffer(4 << 20, wgpu::BufferUsages::STORAGE, &[]);
    let mut encoder = device.create_command_encoder(&Default::default());
    for dispatch in dispatches {
        let pipeline = gpu.pipeline(&variant(dispatch)).unwrap();
        let uniforms = dispatch.uniforms.bytes(DType::F32);
        let uniforms = buffer(
            uniforms.len() as u64,
            wgpu::BufferUsages::UNIFORM,
            &uniforms,
        );
        let of_src = dispatch.bindings.iter().find(|b| b.tensor == Tensor::Src);
        let window = &of_src.unwrap().bytes;
        let entry = |binding, resource| wgpu::BindGroupEntry { binding, resource };
        let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.layout,
            entries: &[
                entry(
                    0,
                    wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                        buffer: &src,
                        offset: window.start,
                        size: (window.end - window.start).try_into().ok(),
                    }),
                ),
                entry(1, workspace.as_entire_binding()),
                entry(2, uniforms.as_entire_binding()),
            ],
        });
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&pipeline.pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(dispatch.workgroups[0], dispatch.workgroups[1], 1);
    }
    let staging = device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: workspace.size(),
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    encoder.copy_buffer_to_buffer(&workspace, 0, &staging, 0, workspace.size());
    gpu.queue().submit([encoder.finish()]);
    staging.map_async(wgpu::MapMode::Read, .., |result| result.unwrap());
    device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
    let mapped = staging.get_mapped_range(..).unwrap();
    bytemuck::cast_slice::<u8, [f32; 4]>(&mapped).to_vec()
}

/// Mean and M2 of every channel, from the records that the reductions of a plan leave.
fn statistics(gpu: &GpuContext, dispatches: &[&Dispatch], grid: &Grid, src: &[f32]) -> Vec<Record> {
    let mut channels = vec![Record::default(); grid.channels as usize];
    let first = uniform(dispatches[0], "partials");
    let by_channel = dispatches[0]
        .constants
        .contains(&("by_channel", Constant::Flag(true)));
    for (index, record) in partials(gpu, dispatches, src)[first..].iter().enumerate() {
        let channel = match dispatches[0].kernel {
            Kernel::ColumnsWalk if !by_channel => {
                let column = index % uniform(dispatches[0], "columns");
                column / grid.inner as usize % channels.len()
            }
            _ => index % channels.len(),
        };
        let [count, shift, delta, m2] = record.map(f64::from);
        channels[channel] = channels[channel].merge(Record {
            count,
            mean: shift + delta,
            m2,
        });
    }
    channels
}

/// Means up to a million standard deviations, constant channels, planes that do not begin at vectors, windows.
#[test]
fn statistics_are_exact_whatever_the_mean() {
    let mut adapters = pollster::block_on(crate::context::adapters(wgpu::Backends::all()));
    adapters.sort_by_key(|adapter| !adapter.get_info().name.contains("llvmpipe"));
    let adapter = adapters.first().expect("an adapter");
    let open = GpuContext::from_adapter(adapter, DeviceOptions::default());
    let gpu = pollster::block_on(open).expect("a device");
    let mut random = Random(5);
    let first = [
        (3, 5, 1003),
        (40, 6, 37),
        (7, 3, 64),
        (2, 4, 4099),
        (9, 5, 2),
    ];
    let last = [
        (300, 7, 1),
        (129, 64, 1),
        (1000, 3, 1),
        (50, 12, 3),
        (6, 5, 33),
    ];
    let first = first.map(|shape| (Algorithm::ChannelsFirst, shape));
    let last = last.map(|shape| (Algorithm::ChannelsLast, shape));
    let all = is_set("WGPU_NORM_TEST_ALL") || is_set("WGPU_NORM_TEST_EVERY");
    let shapes = first.into_iter().chain(last).enumerate();
    for (turn, (algorithm, (outer, channels, inner))) in shapes {
        let settings = [
            (Tuning::SOFTWARE, 1 << 23, 1 << 27),
            (Tuning::GPU, 1 << 23, 1 << 27),
            (
                Tuning {
                    tile: 512,
                    ..Tuning::SOFTWARE
                },
                256,
                16 << 10,
            ),
        ];
        for (index, (tuning, window_unit, max_binding)) in settings.into_iter().enumerate() {
            // Settings take turns, since a kernel takes longer to compile than to run.
            if !all && index != turn % 3 {
                continue;
            }
            let grid = Grid {
                outer,
                channels,
                inner,
            };
            let profile = Profile {
                max_binding,
                window_unit,
                tuning,
                algorithm: Some(algorithm),
                ..Profile::usual()
            };
            let norm = Norm::Batch(Channels::Axis(DataFormat::Ncx));
            let shape = [outer, channels, inner].map(|size| size as usize);
            let operation = Operation::new(norm, Forward::default(), &shape, DType::F32)
                .with_params(false, false);
            let Ok(plan) = operation.planned(&profile) else {
                continue; // its workspace does not fit a binding
            };
            let is_reduction = |dispatch: &&Dispatch| {
                let reduced = ("reduced", Constant::Flag(true));
                dispatch.kernel == Kernel::ChannelsFirstReduce
                    || dispatch.constants.contains(&reduced)
            };
            let whole: Vec<_> = plan.whole().filter(is_reduction).collect();
            for mean in [0.0, 1e4, 1e6, f64::INFINITY] {
                let mut value = |channel: u32| match mean.is_finite() {
                    true => (mean + f64::from(channel) + random.below(4096) as f64 / 1182.0) as f32,
                    false => 3.3, // constant
                };
                let places = (0..grid.elements() as u32).map(|i| i / inner % channels);
                let src: Vec<f32> = places.clone().map(&mut value).collect();
                let got = statistics(&gpu, &whole, &grid, &src);
                for (channel, got) in (0..channels).zip(got) {
                    let own = places
                        .clone()
                        .zip(&src)
                        .filter(|(place, _)| *place == channel);
                    let own: Vec<f64> = own.map(|(_, &x)| f64::from(x)).collect();
                    let count = own.len() as f64;
                    let own_mean = own.iter().sum::<f64>() / count;
                    let m2: f64 = own.iter().map(|x| (x - own_mean).powi(2)).sum();
                    let what =
                        format!("{algorithm} {grid:?}, mean {mean}, channel {channel}: {got:?}");
                    assert_eq!(got.count, count, "{what}");
                    assert!((got.m2 - m2).abs() <= 1e-5 * m2, "{what}, not {m2}");
                    let sigma = (m2 / count).sqrt();
                    let ulp = own_mean.abs() * f64::from(f32::EPSILON);
                    assert!(
                        (got.mean - own_mean).abs() <= 1e-6 * sigma + ulp,
                        "{what}, not {own_mean}"
                    );
                }
            }
        }
    }
}
