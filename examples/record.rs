//! Your own device, your own encoder: the gradients of two layers recorded into one submission, all
//! tensors in one pooled buffer, nothing read back before the end.
//!
//! ```sh
//! cargo run --example record
//! ```
//!
//! The second layer's diff_src is the first layer's diff_dst, as in a network's backward pass, and the
//! first layer's diff_src is written over it.

mod common;

use common::{Layer, compare};
use std::error::Error;
use std::process::ExitCode;
use wgpu_norm::{
    BatchNormBackwardBuffers, BatchNormBackwardPlan, BatchNormOptions, BufferRange, DType,
    DataFormat, DeviceOptions, GpuBatchNorm, GpuContext,
};

fn main() -> ExitCode {
    common::main(record())
}

async fn record() -> Result<(), Box<dyn Error>> {
    // 1. A device made by the application. The kernels need no feature and no more than four storage
    //    buffers a stage, but they are faster with these features, with eight such buffers and with large
    //    workgroups: ask for what the adapter has.
    let instance =
        wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle().with_env());
    let adapter = instance
        .request_adapter(&wgpu::RequestAdapterOptions::default())
        .await?;
    let (device, queue) = adapter
        .request_device(&wgpu::DeviceDescriptor {
            required_features: adapter.features() & GpuContext::USEFUL_FEATURES,
            required_limits: adapter.limits(),
            ..Default::default()
        })
        .await?;
    println!("running on {}", adapter.get_info().name);

    // 2. A context that uses the device; the device's callbacks stay the application's.
    let gpu = GpuContext::from_device(device.clone(), queue.clone(), DeviceOptions::default());
    let options = BatchNormOptions {
        data_format: DataFormat::Ncx,
        ..BatchNormOptions::new(1e-5)
    };
    let batch_norm = GpuBatchNorm::new(&gpu, options)?;

    // 3. Stage one, `plan_backward`: once per shape, no GPU object is made. Both layers have this shape.
    let mut first = Layer::made_up(&[4, 24, 17, 17], 1);
    let second = Layer::made_up(&[4, 24, 17, 17], 2);
    let plan = batch_norm.plan_backward(&first.shape, (DType::F32, DType::F32), true)?;
    println!(
        "a layer takes {} dispatches and {} bytes of workspace",
        plan.dispatches(),
        plan.workspace_size()
    );

    // 4. One buffer for everything. Ranges begin at multiples of the device's alignment; the layers run
    //    one after the other, so they share the workspace.
    let mut pool = Pool::new(&device);
    let gradient = pool.reserve(plan.sizes().diff_dst); // of the second layer's output
    let between = pool.reserve(plan.sizes().diff_src); // of what lies between the layers
    let workspace = pool.reserve(plan.workspace_size());
    let places = [pool.layer(&plan), pool.layer(&plan)];
    let buffer = device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("pool"),
        size: pool.end,
        usage: wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_DST
            | wgpu::BufferUsages::COPY_SRC,
        mapped_at_creation: false,
    });

    // 5. The inputs. Uploading is the application's business, as is everything about its queue.
    let upload = |range: Range, values: &[f32]| {
        queue.write_buffer(&buffer, range.offset, bytemuck::cast_slice(values));
    };
    upload(gradient, &second.diff_dst);
    for (layer, place) in [&first, &second].into_iter().zip(&places) {
        upload(place.src, &layer.src);
        upload(place.mean, &layer.mean);
        upload(place.variance, &layer.variance);
        upload(place.gamma, &layer.gamma);
    }

    // 6. Stage two, `bind`: once per set of buffers. Sizes, alignment, usages and overlaps are checked
    //    here, pipelines compiled and bind groups made; after this, recording cannot fail.
    let bind = |plan: &BatchNormBackwardPlan, place: &Places, diff_dst: Range, diff_src: Range| {
        plan.bind(
            &gpu,
            &BatchNormBackwardBuffers {
                src: place.src.of(&buffer),
                diff_dst: diff_dst.of(&buffer),
                mean: place.mean.of(&buffer),
                variance: place.variance.of(&buffer),
                gamma: Some(place.gamma.of(&buffer)),
                diff_src: diff_src.of(&buffer),
                diff_gamma: Some(place.diff_gamma.of(&buffer)),
                diff_beta: Some(place.diff_beta.of(&buffer)),
                sums: None,
                workspace: Some(workspace.of(&buffer)),
            },
        )
    };
    let bound_second = bind(&plan, &places[1], gradient, between)?;
    let bound_first = bind(&plan, &places[0], between, between)?; // in place

    // 7. Stage three, `record`: every step of a training, into an encoder that may hold other work
    //    too, also in between: it only writes commands, and wgpu orders passes by the buffers they share.
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    bound_second.record(&mut encoder);
    bound_first.record(&mut encoder);
    let staging = device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("staging"),
        size: pool.end,
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    encoder.copy_buffer_to_buffer(&buffer, 0, &staging, 0, pool.end);
    queue.submit([encoder.finish()]);

    // 8. Read back, once, at the end.
    staging.map_async(wgpu::MapMode::Read, .., |result| {
        if let Err(error) = result {
            log::error!("mapping: {error}");
        }
    });
    device.poll(wgpu::PollType::wait_indefinitely())?;
    let bytes = staging.get_mapped_range(..)?;
    let read = |range: Range| -> Vec<f32> {
        let bytes = &bytes[range.offset as usize..(range.offset + range.size) as usize];
        bytemuck::pod_collect_to_vec(bytes)
    };

    // 9. Check the second layer; then the first, whose diff_dst is what the reference found for the
    //    second.
    let want = second.reference(&options)?;
    let (diff_gamma, diff_beta) = (read(places[1].diff_gamma), read(places[1].diff_beta));
    compare(
        "layer 2: diff_gamma",
        &diff_gamma,
        &want.diff_gamma,
        &want.diff_gamma_scale,
    )?;
    compare(
        "layer 2: diff_beta",
        &diff_beta,
        &want.diff_beta,
        &want.diff_beta_scale,
    )?;
    first.diff_dst = want.diff_src.iter().map(|&x| x as f32).collect();
    let want = first.reference(&options)?;
    let (diff_gamma, diff_beta) = (read(places[0].diff_gamma), read(places[0].diff_beta));
    compare(
        "layer 1: diff_src",
        &read(between),
        &want.diff_src,
        &want.diff_src_scale,
    )?;
    compare(
        "layer 1: diff_gamma",
        &diff_gamma,
        &want.diff_gamma,
        &want.diff_gamma_scale,
    )?;
    compare(
        "layer 1: diff_beta",
        &diff_beta,
        &want.diff_beta,
        &want.diff_beta_scale,
    )?;
    println!("two layers, one submission, one buffer: all within the tolerance");
    Ok(())
}

/// A part of the pool.
#[derive(Clone, Copy)]
struct Range {
    offset: u64,
    size: u64,
}

impl Range {
    fn of(self, buffer: &wgpu::Buffer) -> BufferRange<'_> {
        BufferRange {
            buffer,
            offset: self.offset,
            size: Some(self.size),
        }
    }
}

/// Where a layer's own tensors are.
struct Places {
    src: Range,
    mean: Range,
    variance: Range,
    gamma: Range,
    diff_gamma: Range,
    diff_beta: Range,
}

/// The plainest allocator there is.
struct Pool {
    alignment: u64,
    end: u64,
}

impl Pool {
    fn new(device: &wgpu::Device) -> Self {
        let alignment = device.limits().min_storage_buffer_offset_alignment;
        Self {
            alignment: u64::from(alignment).max(32),
            end: 0,
        }
    }

    fn reserve(&mut self, size: u64) -> Range {
        let offset = self.end;
        self.end = (offset + size).next_multiple_of(self.alignment);
        Range { offset, size }
    }

    fn layer(&mut self, plan: &BatchNormBackwardPlan) -> Places {
        // Where elements are no multiple of four, `padded_sizes` are better.
        let sizes = plan.sizes();
        Places {
            src: self.reserve(sizes.src),
            mean: self.reserve(sizes.mean),
            variance: self.reserve(sizes.variance),
            gamma: self.reserve(sizes.mean), // one for each channel, like these
            diff_gamma: self.reserve(sizes.mean),
            diff_beta: self.reserve(sizes.mean),
        }
    }
}
