//! Batch norm synchronized over two devices: each holds a part of the batch, the sums are added in
//! between, and the gradients are those of the whole batch.
//!
//! ```sh
//! cargo run --example synchronized
//! ```
//!
//! Both contexts run on one adapter here. Across machines, the addition in step 4 is an all-reduce over
//! the buffers `sums`; nothing else changes.

mod common;

use common::{Layer, compare};
use std::error::Error;
use std::process::ExitCode;
use wgpu_norm::{
    BatchNormBackwardBuffers, BatchNormOptions, Bound, BufferRange, DType, DataFormat,
    GpuBatchNorm, GpuContext,
};

fn main() -> ExitCode {
    common::main(synchronized())
}

async fn synchronized() -> Result<(), Box<dyn Error>> {
    // 1. A whole batch of 12 samples. mean and variance are those of the whole batch: a synchronized
    //    forward pass (`record_statistics`, `record_normalize`) has merged them already. The devices get 7
    //    and 5 samples of it.
    let whole = Layer::made_up(&[12, 10, 9, 9], 1);
    let channels = whole.mean.len();
    let options = BatchNormOptions {
        data_format: DataFormat::Ncx,
        ..BatchNormOptions::new(1e-5)
    };
    let shards = [
        Shard::new(&whole, 0..7, options).await?,
        Shard::new(&whole, 7..12, options).await?,
    ];

    // 2. The first half on each device: the sums of its own samples.
    for shard in &shards {
        shard.submit(|encoder| shard.bound.record_reduce(encoder))?;
    }

    // 3. `sums` holds the sum of diff_dst for each channel, the sum of diff_dst times the normalized
    //    src, and last the number of elements in a channel. The number is data like the sums, so no
    //    device needs to know how large the others' shares are.
    let sums = [
        shards[0].read(&shards[0].sums, 2 * channels + 1)?,
        shards[1].read(&shards[1].sums, 2 * channels + 1)?,
    ];
    for (shard, sums) in shards.iter().zip(&sums) {
        println!(
            "{} samples on {}: {} elements a channel",
            shard.samples,
            shard.gpu.adapter_info().name,
            sums.last().copied().unwrap_or_default()
        );
    }

    // 4. Added up, and given to both.
    let total: Vec<f32> = sums[0].iter().zip(&sums[1]).map(|(a, b)| a + b).collect();
    println!(
        "together: {} elements a channel",
        total.last().copied().unwrap_or_default()
    );
    for shard in &shards {
        let bytes = bytemuck::cast_slice(&total);
        shard.gpu.queue().write_buffer(&shard.sums, 0, bytes);
    }

    // 5. The second half: every device finds its samples' diff_src and the whole batch's parameter
    //    gradients.
    for shard in &shards {
        shard.submit(|encoder| shard.bound.record_apply(encoder))?;
    }

    // 6. Joined, it is the gradient of the whole batch.
    let want = whole.reference(&options)?;
    let mut diff_src = Vec::new();
    for shard in &shards {
        diff_src.extend(shard.read(&shard.diff_src, shard.elements)?);
    }
    compare("diff_src", &diff_src, &want.diff_src, &want.diff_src_scale)?;
    for (number, shard) in (1..).zip(&shards) {
        let diff_gamma = shard.read(&shard.diff_gamma, channels)?;
        let diff_beta = shard.read(&shard.diff_beta, channels)?;
        let name = |what| format!("diff_{what}, device {number}");
        compare(
            &name("gamma"),
            &diff_gamma,
            &want.diff_gamma,
            &want.diff_gamma_scale,
        )?;
        compare(
            &name("beta"),
            &diff_beta,
            &want.diff_beta,
            &want.diff_beta_scale,
        )?;
    }
    println!("two devices, the gradients of the whole batch: all within the tolerance");
    Ok(())
}

/// One device's share of the batch.
struct Shard {
    gpu: GpuContext,
    samples: usize,
    elements: usize,
    bound: Bound,
    sums: wgpu::Buffer,
    diff_src: wgpu::Buffer,
    diff_gamma: wgpu::Buffer,
    diff_beta: wgpu::Buffer,
}

impl Shard {
    async fn new(
        whole: &Layer,
        samples: std::ops::Range<usize>,
        options: BatchNormOptions,
    ) -> Result<Self, Box<dyn Error>> {
        let gpu = GpuContext::new().await?;
        let sample = whole.src.len() / whole.shape[0];
        let elements = samples.start * sample..samples.end * sample;
        let mut shape = whole.shape.clone();
        shape[0] = samples.len();
        let batch_norm = GpuBatchNorm::new(&gpu, options)?;
        let plan = batch_norm.plan_backward(&shape, (DType::F32, DType::F32), true)?;

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
        // Padded to four elements, since kernels load so many at a time.
        let sizes = plan.padded_sizes();
        let filled = |label, size, values: &[f32]| {
            let buffer = buffer(label, size);
            gpu.queue()
                .write_buffer(&buffer, 0, bytemuck::cast_slice(values));
            buffer
        };
        let src = filled("src", sizes.src, &whole.src[elements.clone()]);
        let diff_dst = filled("diff_dst", sizes.diff_dst, &whole.diff_dst[elements]);
        let mean = filled("mean", sizes.mean, &whole.mean);
        let variance = filled("variance", sizes.variance, &whole.variance);
        let gamma = filled("gamma", sizes.mean, &whole.gamma); // as many as means
        let diff_src = buffer("diff_src", sizes.diff_src);
        let diff_gamma = buffer("diff_gamma", sizes.mean);
        let diff_beta = buffer("diff_beta", sizes.mean);
        let sums = buffer("sums", sizes.sums);
        let bound = plan.bind(
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
                workspace: None, // the bound plan makes its own
            },
        )?;
        Ok(Self {
            gpu,
            samples: samples.len(),
            elements: sample * samples.len(),
            bound,
            sums,
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

    /// The first elements of a buffer, without what pads them.
    fn read(&self, buffer: &wgpu::Buffer, elements: usize) -> Result<Vec<f32>, Box<dyn Error>> {
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
        let mut values: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
        values.truncate(elements);
        Ok(values)
    }
}
