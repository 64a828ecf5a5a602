//! Batch-norm gradients on the best adapter: recorded on device buffers (record, submit, wait), and
//! from host slices (upload, run, read back).
//!
//! ```sh
//! cargo bench --bench backward            # measure
//! cargo test --bench backward             # run each once
//! ```
//!
//! Throughput counts 5 n elements: src and diff_dst are read twice, diff_src is written once. On a shape
//! whose tensors stay in a cache it can exceed the memory's bandwidth; on the smallest ones it is
//! latency that is measured.
#![allow(missing_docs, reason = "criterion's macros make public functions")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::error::Error;
use std::hint::black_box;
use wgpu_norm::{
    Backward, BackwardArgs, BatchNormOptions, Bound, DType, DataFormat, Element, GpuBatchNorm,
    GpuContext, Norm, Operation, ParamOf, SavedRef, Tensor,
};

use DataFormat::{Ncx, Nxc};

/// Four small shapes of real networks and one that fills an adapter.
const SHAPES: [(&str, &[usize], DataFormat); 5] = [
    ("small 64x128", &[64, 128], Nxc),
    ("small 8x512x7x7", &[8, 512, 7, 7], Ncx),
    ("small 8x7x7x512", &[8, 7, 7, 512], Nxc),
    ("small 128x2048", &[128, 2048], Nxc),
    ("medium 32x256x14x14", &[32, 256, 14, 14], Ncx),
];

/// A layer's tensors in host memory. What they hold does not change the time.
struct Tensors<T: Element, P> {
    shape: &'static [usize],
    src: Vec<T>,
    diff_dst: Vec<T>,
    mean: Vec<T::Sum>,
    variance: Vec<T::Sum>,
    gamma: Vec<P>,
}

impl<T: Element, P: ParamOf<T>> Tensors<T, P> {
    fn new(shape: &'static [usize], format: DataFormat) -> Self {
        let elements: usize = shape.iter().product();
        let channels = match format {
            Ncx => shape[1],
            Nxc => shape[shape.len() - 1],
        };
        let wave = |i: usize, period: usize| T::from_f64((i % period) as f64 / period as f64);
        Self {
            shape,
            src: (0..elements).map(|i| wave(i, 97)).collect(),
            diff_dst: (0..elements).map(|i| wave(i, 89)).collect(),
            mean: vec![T::Sum::from_f64(0.5); channels],
            variance: vec![T::Sum::from_f64(0.25); channels],
            gamma: vec![P::from_f64(1.5); channels],
        }
    }

    fn args(&self) -> BackwardArgs<'_, T, P> {
        let statistics = SavedRef::moments(&self.mean, &self.variance);
        BackwardArgs::new(self.shape, &self.src, &self.diff_dst, statistics).gamma(&self.gamma)
    }

    /// On the device, ready to be recorded. The buffers live as long as the bind groups.
    fn bind(&self, gpu: &GpuContext, format: DataFormat) -> Result<Bound, wgpu_norm::Error> {
        let (norm, types) = (Norm::batch(format), (T::DTYPE, P::DTYPE));
        let operation = Operation::new(norm, Backward::default(), self.shape, types);
        let plan = operation.plan(gpu.profile())?;
        let mut buffers = Vec::new();
        for used in plan.buffers() {
            let bytes: &[u8] = match used.tensor {
                Tensor::Workspace => continue,
                Tensor::Src => bytemuck::cast_slice(&self.src),
                Tensor::DiffDst => bytemuck::cast_slice(&self.diff_dst),
                Tensor::Mean => bytemuck::cast_slice(&self.mean),
                Tensor::Variance => bytemuck::cast_slice(&self.variance),
                Tensor::Gamma => bytemuck::cast_slice(&self.gamma),
                _ => &[],
            };
            let buffer = gpu.device().create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: used.padded_bytes,
                usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            });
            gpu.queue().write_buffer(&buffer, 0, bytes);
            buffers.push((used.tensor, buffer));
        }
        let ranges = buffers
            .iter()
            .map(|(tensor, buffer)| (*tensor, buffer.into()));
        plan.bind(gpu, &ranges.collect::<Vec<_>>())
    }
}

/// Commands recorded, submitted and done.
fn step(gpu: &GpuContext, bound: Option<&Bound>) {
    let descriptor = wgpu::CommandEncoderDescriptor::default();
    let mut encoder = gpu.device().create_command_encoder(&descriptor);
    if let Some(bound) = bound {
        bound.record(&mut encoder);
    }
    gpu.queue().submit([encoder.finish()]);
    if let Err(error) = gpu.device().poll(wgpu::PollType::wait_indefinitely()) {
        eprintln!("polling the device: {error}");
    }
}

fn measure<T: Element, P: ParamOf<T>>(
    criterion: &mut Criterion,
    gpu: &GpuContext,
) -> Result<(), Box<dyn Error>> {
    for (name, shape, data_format) in SHAPES {
        let options = BatchNormOptions::new(data_format);
        let layer = GpuBatchNorm::new(gpu, options)?;
        let tensors = Tensors::<T, P>::new(shape, data_format);
        let bound = tensors.bind(gpu, data_format)?;
        // Whatever can fail has failed by now, or does here.
        pollster::block_on(layer.backward(tensors.args()))?;

        let mut group = criterion.benchmark_group(format!("{name} {data_format}"));
        let bytes = 5 * tensors.src.len() as u64 * T::DTYPE.size();
        group.throughput(Throughput::Bytes(bytes));
        group.bench_function(BenchmarkId::new("recorded", T::DTYPE), |bencher| {
            bencher.iter(|| step(gpu, Some(&bound)));
        });
        group.bench_function(BenchmarkId::new("host", T::DTYPE), |bencher| {
            bencher.iter(|| black_box(pollster::block_on(layer.backward(tensors.args()))));
        });
        group.finish();
    }
    Ok(())
}

fn all(criterion: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let gpu = pollster::block_on(GpuContext::new())?;
    println!("on {}", gpu.adapter_info().name);
    // What a submission costs that does nothing.
    criterion.bench_function("empty submission", |bencher| {
        bencher.iter(|| step(&gpu, None));
    });
    measure::<f32, f32>(criterion, &gpu)?;
    measure::<half::f16, f32>(criterion, &gpu)?;
    measure::<half::bf16, f32>(criterion, &gpu)?;
    if gpu.supports(DType::F64) {
        measure::<f64, f64>(criterion, &gpu)?;
    }
    Ok(())
}

fn backward(criterion: &mut Criterion) {
    if let Err(error) = all(criterion) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

criterion_group!(benches, backward);
criterion_main!(benches);
