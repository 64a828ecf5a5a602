//! Batch norm synchronized over two devices, forward and backward: each holds a part of the batch, statistics and sums
//! pass between them, and the results are those of the whole batch.
//!
//! ```sh
//! cargo run --example synchronized
//! ```
//!
//! Both contexts run on one adapter here. Across machines, step 3 is an all-gather over the buffers `statistics` and
//! step 6 an all-reduce over the buffers `sums`; nothing else changes.

mod common;

use common::{Layer, compare};
use std::error::Error;
use std::process::ExitCode;
use wgpu_norm::{
    BatchNormBackwardBuffers, BatchNormForwardBuffers, BatchNormForwardOperands, BatchNormOptions,
    Bound, BufferRange, ChannelStatistics, DType, DataFormat, GpuBatchNorm, GpuContext, Shards,
};

fn main() -> ExitCode {
    common::main(synchronized())
}

async fn synchronized() -> Result<(), Box<dyn Error>> {
    // 1. A whole batch of 12 samples. The devices get 7 and 5 of it.
    let mut whole = Layer::made_up(&[12, 10, 9, 9], 1);
    let channels = whole.gamma.len();
    let options = BatchNormOptions {
        data_format: DataFormat::Ncx,
        ..BatchNormOptions::new(1e-5)
    };
    let shards = [
        Shard::new(&whole, 0..7, 0, options).await?,
        Shard::new(&whole, 7..12, 1, options).await?,
    ];

    // 2. The first half of the forward pass on each device: the statistics of its own samples.
    for shard in &shards {
        shard.submit(|encoder| shard.forward.record_statistics(encoder))?;
    }

    // 3. `statistics` has a place for each part of the batch. Every device has written its own; the others' are copied
    //    there. A part says how many elements it has, so no device needs to know how large the others' shares are.
    let mut all = Vec::new();
    for (part, shard) in shards.iter().enumerate() {
        let statistics: Vec<ChannelStatistics<f32>> = shard.read(&shard.statistics)?;
        let own = &statistics[part * channels..(part + 1) * channels];
        println!(
            "{} samples on {}: {} elements a channel, the first one's mean is {}",
            shard.samples,
            shard.gpu.adapter_info().name,
            own[0].count,
            own[0].mean()
        );
        all.extend_from_slice(own);
    }
    for shard in &shards {
        shard.write(&shard.statistics, &all);
    }

    // 4. The second half: every device merges all parts in order, so that mean and variance are the same to the bit on
    //    all, and normalizes its samples.
    for shard in &shards {
        shard.submit(|encoder| shard.forward.record_normalize(encoder))?;
    }

    // 5. The first half of the gradient: the sums of each device's own samples.
    for shard in &shards {
        shard.submit(|encoder| shard.backward.record_reduce(encoder))?;
    }

    // 6. `sums` holds the sum of diff_dst for each channel, the sum of diff_dst times the normalized src, and last the
    //    number of elements in a channel. Added up, it is given to both.
    let sums: Vec<f32> = shards[0].read(&shards[0].sums)?;
    let others: Vec<f32> = shards[1].read(&shards[1].sums)?;
    let total: Vec<f32> = sums.iter().zip(&others).map(|(a, b)| a + b).collect();
    for shard in &shards {
        shard.write(&shard.sums, &total);
    }

    // 7. The second half: every device finds its samples' diff_src and the whole batch's parameter gradients.
    for shard in &shards {
        shard.submit(|encoder| shard.backward.record_apply(encoder))?;
    }

    // 8. Joined, these are the results of the whole batch.
    let joined = |of: fn(&Shard) -> &wgpu::Buffer| -> Result<Vec<f32>, Box<dyn Error>> {
        let parts = shards.iter().map(|shard| {
            let mut part = shard.read(of(shard))?;
            part.truncate(shard.elements); // without what pads it
            Ok(part)
        });
        Ok(parts.collect::<Result<Vec<_>, Box<dyn Error>>>()?.concat())
    };
    let want = whole.forward_reference(&options)?;
    compare(
        "dst",
        &joined(|shard| &shard.dst)?,
        &want.dst,
        &want.dst_scale,
    )?;
    for shard in &shards {
        // One number a channel, without what pads them.
        let read = |buffer: &wgpu::Buffer| -> Result<Vec<f32>, Box<dyn Error>> {
            let mut values = shard.read(buffer)?;
            values.truncate(channels);
            Ok(values)
        };
        println!("the device with {} samples", shard.samples);
        whole.mean = read(&shard.mean)?;
        whole.variance = read(&shard.variance)?;
        compare("mean", &whole.mean, &want.mean, &want.mean_scale)?;
        compare(
            "variance",
            &whole.variance,
            &want.variance,
            &want.variance_scale,
        )?;
        let want = whole.reference(&options)?;
        compare(
            "diff_gamma",
            &read(&shard.diff_gamma)?,
            &want.diff_gamma,
            &want.diff_gamma_scale,
        )?;
        compare(
            "diff_beta",
            &read(&shard.diff_beta)?,
            &want.diff_beta,
            &want.diff_beta_scale,
        )?;
    }
    let want = whole.reference(&options)?;
    compare(
        "diff_src",
        &joined(|shard| &shard.diff_src)?,
        &want.diff_src,
        &want.diff_src_scale,
    )?;
    println!("two devices, the results of the whole batch: all within the tolerance");
    Ok(())
}

/// One device's share of the batch.
struct Shard {
    gpu: GpuContext,
    samples: usize,
    elements: usize,
    forward: Bound,
    backward: Bound,
    statistics: wgpu::Buffer,
    sums: wgpu::Buffer,
    mean: wgpu::Buffer,
    variance: wgpu::Buffer,
    dst: wgpu::Buffer,
    diff_src: wgpu::Buffer,
    diff_gamma: wgpu::Buffer,
    diff_beta: wgpu::Buffer,
}

impl Shard {
    async fn new(
        whole: &Layer,
        samples: std::ops::Range<usize>,
        index: u32,
        options: BatchNormOptions,
    ) -> Result<Self, Box<dyn Error>> {
        let gpu = GpuContext::new().await?;
        let sample = whole.src.len() / whole.shape[0];
        let elements = samples.start * sample..samples.end * sample;
        let mut shape = whole.shape.clone();
        shape[0] = samples.len();
        let batch_norm = GpuBatchNorm::new(&gpu, options)?;
        let operands = BatchNormForwardOperands {
            gamma: true,
            beta: true,
            shards: Shards { count: 2, index },
            ..Default::default()
        };
        let forward = batch_norm.plan_forward(&shape, DType::F32, operands)?;
        let backward = batch_norm.plan_backward(&shape, DType::F32, true)?;

        let buffer = |label, size| {
            gpu.device().create_buffer(&wgpu::BufferDescriptor {
                label: Some(label),
                size,
                usage: wgpu::BufferUsages::STORAGE
                    | wgpu::BufferUsages::COPY_DST
                    | wgpu::BufferUsages::COPY_SRC,
                mapped_at_creation: false,
            })
        };
        let filled = |label, size, values: &[f32]| {
            let buffer = buffer(label, size);
            gpu.queue()
                .write_buffer(&buffer, 0, bytemuck::cast_slice(values));
            buffer
        };
        // Padded to four elements, since kernels load so many at a time.
        let sizes = backward.padded_sizes();
        let of_channels = sizes.mean;
        let src = filled("src", sizes.src, &whole.src[elements.clone()]);
        let diff_dst = filled("diff_dst", sizes.diff_dst, &whole.diff_dst[elements]);
        let gamma = filled("gamma", of_channels, &whole.gamma);
        let beta = filled("beta", of_channels, &whole.beta);
        let [mean, variance] = ["mean", "variance"].map(|label| buffer(label, of_channels));
        let [dst, diff_src] = ["dst", "diff_src"].map(|label| buffer(label, sizes.src));
        let [diff_gamma, diff_beta] =
            ["diff_gamma", "diff_beta"].map(|label| buffer(label, of_channels));
        let statistics = buffer("statistics", forward.sizes().sums);
        let sums = buffer("sums", backward.sizes().sums);
        let forward = forward.bind(
            &gpu,
            &BatchNormForwardBuffers {
                src: BufferRange::from(&src),
                gamma: Some(BufferRange::from(&gamma)),
                beta: Some(BufferRange::from(&beta)),
                running_mean: None,
                running_variance: None,
                dst: BufferRange::from(&dst),
                mean: BufferRange::from(&mean),
                variance: BufferRange::from(&variance),
                sums: Some(BufferRange::from(&statistics)),
                workspace: None, // the bound plan makes its own,
                residual: None,
                mask: None,
            },
        )?;
        let backward = backward.bind(
            &gpu,
            &BatchNormBackwardBuffers {
                src: BufferRange::from(&src),
                diff_dst: BufferRange::from(&diff_dst),
                mean: BufferRange::from(&mean),
                variance: BufferRange::from(&variance),
                gamma: Some(BufferRange::from(&gamma)),
                diff_src: BufferRange::from(&diff_src),
                diff_gamma: Some(BufferRange::from(&diff_gamma)),
                diff_beta: Some(BufferRange::from(&diff_beta)),
                sums: Some(BufferRange::from(&sums)),
                workspace: None,
                beta: None,
                mask: None,
                diff_residual: None,
            },
        )?;
        Ok(Self {
            gpu,
            samples: samples.len(),
            elements: sample * samples.len(),
            forward,
            backward,
            statistics,
            sums,
            mean,
            variance,
            dst,
            diff_src,
            diff_gamma,
            diff_beta,
        })
    }

    fn submit(
        &self,
        record: impl FnOnce(&mut wgpu::CommandEncoder) -> Result<(), wgpu_norm::Error>,
    ) -> Result<(), wgpu_norm::Error> {
        let descriptor = wgpu::CommandEncoderDescriptor::default();
        let mut encoder = self.gpu.device().create_command_encoder(&descriptor);
        record(&mut encoder)?;
        self.gpu.queue().submit([encoder.finish()]);
        Ok(())
    }

    fn write<T: bytemuck::Pod>(&self, buffer: &wgpu::Buffer, values: &[T]) {
        let bytes = bytemuck::cast_slice(values);
        self.gpu.queue().write_buffer(buffer, 0, bytes);
    }

    fn read<T: bytemuck::Pod>(&self, buffer: &wgpu::Buffer) -> Result<Vec<T>, Box<dyn Error>> {
        let staging = self.gpu.device().create_buffer(&wgpu::BufferDescriptor {
            label: Some("staging"),
            size: buffer.size(),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        self.submit(|encoder| {
            encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, buffer.size());
            Ok(())
        })?;
        staging.map_async(wgpu::MapMode::Read, .., |result| {
            if let Err(error) = result {
                log::error!("mapping: {error}");
            }
        });
        self.gpu
            .device()
            .poll(wgpu::PollType::wait_indefinitely())?;
        let bytes = staging.get_mapped_range(..)?;
        Ok(bytemuck::pod_collect_to_vec(&bytes))
    }
}
