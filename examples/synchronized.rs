//! Batch norm synchronized over two devices, forward and backward: each holds a part of the batch, they exchange
//! statistics and sums, and the results are those of the whole batch.
//!
//! ```sh
//! cargo run --example synchronized
//! ```
//!
//! Both contexts run on one adapter here. Across machines, steps 3 and 5 are an all-gather of the buffer `sums`;
//! nothing else changes.

mod common;

use common::{Layer, compare};
use std::error::Error;
use std::ops::Range;
use std::process::ExitCode;
use wgpu_norm::synchronized::SumsLayout;
use wgpu_norm::{Bound, DType, DataFormat, Forward, GpuContext, Norm, Operation, Tensor};

fn main() -> ExitCode {
    common::main(synchronized())
}

async fn synchronized() -> Result<(), Box<dyn Error>> {
    // 1. A whole batch of 12 samples. The devices get 7 and 5 of them.
    let mut whole = Layer::made_up(&[12, 10, 9, 9], 1);
    let forward = operation(&whole.shape);
    let shards = [
        Shard::new(&whole, 0..7).await?,
        Shard::new(&whole, 7..12).await?,
    ];

    // 2. The first half of the forward pass on each device: the statistics of its own samples.
    // 3. Merged, these are the statistics of the whole batch. Each part contains its number of elements, so no device
    //    needs to know the size of the others' shares.
    // 4. The second half: every device normalizes its samples.
    synchronize(&shards, |shard| &shard.forward)?;

    // 5. Likewise for the gradient: the sums of each device's samples are merged into those of the batch, and every
    //    device computes its samples' diff_src and the whole batch's parameter gradients.
    synchronize(&shards, |shard| &shard.backward)?;

    // 6. Joined, these are the results of the whole batch.
    let joined = |tensor| -> Result<Vec<f32>, Box<dyn Error>> {
        let parts = shards.iter().map(|shard| shard.read(tensor));
        Ok(parts.collect::<Result<Vec<_>, _>>()?.concat())
    };
    let want = whole.reference(&forward)?;
    compare(Tensor::Dst, &joined(Tensor::Dst)?, &want)?;
    for shard in &shards {
        println!("on each device:");
        compare(Tensor::Mean, &shard.read(Tensor::Mean)?, &want)?;
        compare(Tensor::Variance, &shard.read(Tensor::Variance)?, &want)?;
    }
    whole.mean = shards[0].read(Tensor::Mean)?;
    whole.variance = shards[0].read(Tensor::Variance)?;
    let want = whole.reference(&forward.gradient()?)?;
    compare(Tensor::DiffSrc, &joined(Tensor::DiffSrc)?, &want)?;
    for shard in &shards {
        println!("on each device:");
        compare(Tensor::DiffGamma, &shard.read(Tensor::DiffGamma)?, &want)?;
        compare(Tensor::DiffBeta, &shard.read(Tensor::DiffBeta)?, &want)?;
    }
    println!("two devices, the results of the whole batch: all within the tolerance");
    Ok(())
}

/// Runs both halves of a pass on all devices, and merges the sums in between.
fn synchronize(shards: &[Shard], pass: impl Fn(&Shard) -> &Pass) -> Result<(), Box<dyn Error>> {
    let mut parts = Vec::new();
    for shard in shards {
        shard.submit(|encoder| pass(shard).bound.record_reduce(encoder))?;
        parts.push(shard.read_buffer(&pass(shard).sums)?);
    }
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    for shard in shards {
        let merged = pass(shard).layout.merge(&parts)?;
        let queue = shard.gpu.queue();
        queue.write_buffer(&pass(shard).sums, 0, &merged);
        shard.submit(|encoder| pass(shard).bound.record_apply(encoder))?;
    }
    Ok(())
}

fn operation(shape: &[usize]) -> Operation {
    let norm = Norm::batch(DataFormat::Ncx);
    Operation::new(norm, Forward::default(), shape, DType::F32)
}

/// A pass, and the buffer for the sums between its halves.
struct Pass {
    bound: Bound,
    layout: SumsLayout,
    sums: wgpu::Buffer,
}

/// One device's share of the batch.
struct Shard {
    gpu: GpuContext,
    forward: Pass,
    backward: Pass,
    /// Each tensor's buffer and number of elements.
    buffers: Vec<(Tensor, wgpu::Buffer, usize)>,
}

impl Shard {
    async fn new(whole: &Layer, samples: Range<usize>) -> Result<Self, Box<dyn Error>> {
        let gpu = GpuContext::new().await?;
        let sample = whole.src.len() / whole.shape[0];
        let elements = samples.start * sample..samples.end * sample;
        let mut shape = whole.shape.clone();
        shape[0] = samples.len();
        let forward = operation(&shape);
        let backward = forward.gradient()?;
        let [forward_plan, backward_plan] =
            [&forward, &backward].map(|operation| operation.plan(gpu.profile()));
        let (forward_plan, backward_plan) = (forward_plan?, backward_plan?);

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
        // One buffer for each tensor of both passes, padded to a multiple of four elements, since kernels load four at
        // a time.
        let mut buffers: Vec<(Tensor, wgpu::Buffer, usize)> = Vec::new();
        for (operation, plan) in [(&forward, &forward_plan), (&backward, &backward_plan)] {
            for used in operation.tensors()? {
                let (tensor, uses) = (used.tensor, plan.buffers());
                let size = uses.iter().find(|used| used.tensor == tensor);
                if let Some(size) =
                    size.filter(|_| buffers.iter().all(|(name, ..)| *name != tensor))
                {
                    let buffer = buffer(tensor.name(), size.padded_bytes);
                    buffers.push((tensor, buffer, used.elements() as usize));
                }
            }
        }
        for (tensor, values) in [
            (Tensor::Src, &whole.src[elements.clone()]),
            (Tensor::DiffDst, &whole.diff_dst[elements]),
            (Tensor::Gamma, &whole.gamma),
            (Tensor::Beta, &whole.beta),
        ] {
            if let Some((_, buffer, _)) = buffers.iter().find(|(name, ..)| *name == tensor) {
                let bytes = bytemuck::cast_slice(values);
                gpu.queue().write_buffer(buffer, 0, bytes);
            }
        }

        let bind = |plan: &wgpu_norm::Plan| -> Result<Pass, Box<dyn Error>> {
            let layout = plan.sums().ok_or("too many channels for halves")?;
            let sums = buffer("sums", layout.bytes());
            let is_used = |tensor| plan.buffers().iter().any(|used| used.tensor == tensor);
            let own = buffers.iter().filter(|(tensor, ..)| is_used(*tensor));
            let own = own.map(|(tensor, buffer, _)| (*tensor, buffer.into()));
            let ranges: Vec<_> = own.chain([(Tensor::Sums, (&sums).into())]).collect();
            let bound = plan.bind(&gpu, &ranges)?; // makes its own workspace
            Ok(Pass {
                bound,
                layout,
                sums,
            })
        };
        let (forward, backward) = (bind(&forward_plan)?, bind(&backward_plan)?);
        Ok(Self {
            gpu,
            forward,
            backward,
            buffers,
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

    /// A tensor's elements, without padding.
    fn read(&self, tensor: Tensor) -> Result<Vec<f32>, Box<dyn Error>> {
        let mut buffers = self.buffers.iter();
        let found = buffers.find(|(name, ..)| *name == tensor);
        let (_, buffer, elements) = found.ok_or("no such tensor")?;
        let mut values = bytemuck::pod_collect_to_vec(&self.read_buffer(buffer)?);
        values.truncate(*elements);
        Ok(values)
    }

    fn read_buffer(&self, buffer: &wgpu::Buffer) -> Result<Vec<u8>, Box<dyn Error>> {
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
        Ok(bytes.to_vec())
    }
}
