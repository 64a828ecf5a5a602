//! Your own device, your own encoder: a layer's forward pass and its gradient recorded into one submission, all
//! tensors in one pooled buffer. The batch's statistics go from one to the other on the device; nothing is
//! read back before the end.
//!
//! ```sh
//! cargo run --example record
//! ```

mod common;

use common::{Layer, compare};
use std::error::Error;
use std::process::ExitCode;
use wgpu_norm::{
    BatchNormBackwardBuffers, BatchNormForwardBuffers, BatchNormForwardOperands, BatchNormOptions,
    BufferRange, DType, DataFormat, DeviceOptions, GpuBatchNorm, GpuContext, RunningUpdate,
    RunningVariance, reference,
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

    // 3. Stage one, plan: once per shape, no GPU object is made.
    let mut layer = Layer::made_up(&[4, 24, 17, 17], 1);
    let update = RunningUpdate {
        weight: 0.1, // PyTorch's momentum
        variance: RunningVariance::Unbiased,
    };
    let operands = BatchNormForwardOperands {
        gamma: true,
        beta: true,
        running: Some(update),
        ..Default::default()
    };
    let forward = batch_norm.plan_forward(&layer.shape, DType::F32, operands)?;
    let backward = batch_norm.plan_backward(&layer.shape, DType::F32, true)?;
    println!(
        "{} dispatches forward, {} backward",
        forward.dispatches(),
        backward.dispatches()
    );

    // 4. One buffer for everything. Ranges begin at multiples of the device's alignment. The passes run one after the
    //    other, so they share the workspace. Where elements are no multiple of four, `padded_sizes` are better.
    let mut pool = Pool::new(&device);
    let sizes = backward.sizes();
    let [src, dst] = [0; 2].map(|_| pool.reserve(sizes.src));
    // One number a channel each.
    let [gamma, beta, running_mean, running_variance] = [0; 4].map(|_| pool.reserve(sizes.mean));
    let [mean, variance, diff_gamma, diff_beta] = [0; 4].map(|_| pool.reserve(sizes.mean));
    let diff_dst = pool.reserve(sizes.diff_dst);
    let diff_src = diff_dst; // in place
    let workspace = pool.reserve(forward.workspace_size().max(backward.workspace_size()));
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
    let channels = layer.gamma.len();
    upload(src, &layer.src);
    upload(gamma, &layer.gamma);
    upload(beta, &layer.beta);
    upload(running_mean, &vec![0.0; channels]);
    upload(running_variance, &vec![1.0; channels]);
    upload(diff_dst, &layer.diff_dst);

    // 6. Stage two, bind: once per set of buffers. Sizes, alignment, usages and overlaps are checked
    //    here, pipelines compiled and bind groups made; after this, recording cannot fail.
    let forward = forward.bind(
        &gpu,
        &BatchNormForwardBuffers {
            src: src.of(&buffer),
            gamma: Some(gamma.of(&buffer)),
            beta: Some(beta.of(&buffer)),
            running_mean: Some(running_mean.of(&buffer)),
            running_variance: Some(running_variance.of(&buffer)),
            dst: dst.of(&buffer),
            mean: mean.of(&buffer),
            variance: variance.of(&buffer),
            sums: None,
            workspace: Some(workspace.of(&buffer)),
            residual: None,
            mask: None,
        },
    )?;
    let backward = backward.bind(
        &gpu,
        &BatchNormBackwardBuffers {
            src: src.of(&buffer),
            diff_dst: diff_dst.of(&buffer),
            mean: mean.of(&buffer),
            variance: variance.of(&buffer),
            gamma: Some(gamma.of(&buffer)),
            diff_src: diff_src.of(&buffer),
            diff_gamma: Some(diff_gamma.of(&buffer)),
            diff_beta: Some(diff_beta.of(&buffer)),
            sums: None,
            workspace: Some(workspace.of(&buffer)),
            beta: None,
            mask: None,
            diff_residual: None,
        },
    )?;

    // 7. Stage three, record: every step of a training, into an encoder that may hold other work too, also in
    //    between, as the rest of the network: it only writes commands, and wgpu orders passes by the buffers they share.
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    forward.record(&mut encoder);
    backward.record(&mut encoder);
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

    // 9. Check the forward pass; then the gradient, whose statistics are those that the forward pass left.
    let want = layer.forward_reference(&options)?;
    layer.mean = read(mean);
    layer.variance = read(variance);
    compare("dst", &read(dst), &want.dst, &want.dst_scale)?;
    compare("mean", &layer.mean, &want.mean, &want.mean_scale)?;
    compare(
        "variance",
        &layer.variance,
        &want.variance,
        &want.variance_scale,
    )?;
    let count = (layer.src.len() / channels) as u64;
    for (what, range, old, batch, scale) in [
        (
            "running_mean",
            running_mean,
            0.0,
            &want.mean,
            &want.mean_scale,
        ),
        (
            "running_variance",
            running_variance,
            1.0,
            &want.variance,
            &want.variance_scale,
        ),
    ] {
        let unbiased = what == "running_variance";
        let after =
            |batch| reference::running(&vec![old; channels], batch, update.weight, count, unbiased);
        compare(what, &read(range), &after(batch)?, &after(scale)?)?;
    }
    let want = layer.reference(&options)?;
    compare(
        "diff_src",
        &read(diff_src),
        &want.diff_src,
        &want.diff_src_scale,
    )?;
    compare(
        "diff_gamma",
        &read(diff_gamma),
        &want.diff_gamma,
        &want.diff_gamma_scale,
    )?;
    compare(
        "diff_beta",
        &read(diff_beta),
        &want.diff_beta,
        &want.diff_beta_scale,
    )?;
    println!("a layer forward and backward, one submission, one buffer: all within the tolerance");
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
}
