//! Your own device, your own encoder: a layer's forward pass and its gradient are recorded into one submission, with
//! all tensors in one pooled buffer. The gradient takes the batch's statistics on the device; nothing is read back
//! before the end.
//!
//! ```sh
//! cargo run --example record
//! ```

mod common;

use common::{Layer, compare};
use std::error::Error;
use std::process::ExitCode;
use wgpu_norm::{
    BufferRange, DType, DataFormat, DeviceOptions, Forward, GpuContext, Norm, Operation, Plan,
    RunningUpdate, RunningVariance, Tensor,
};

fn main() -> ExitCode {
    common::main(record())
}

async fn record() -> Result<(), Box<dyn Error>> {
    // 1. A device created by the application. The kernels need no feature and only four storage buffers per stage, but
    //    they are faster with these features, eight such buffers and large workgroups: request what the adapter has.
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

    // 3. Stage one, plan: once per shape, without any GPU object. The gradient belongs to the forward pass.
    let mut layer = Layer::made_up(&[4, 24, 17, 17], 1);
    let update = RunningUpdate::new(0.1, RunningVariance::Unbiased); // PyTorch's momentum
    let forward = Operation::new(
        Norm::batch(DataFormat::Ncx),
        Forward::default().with_running(update),
        &layer.shape,
        DType::F32,
    );
    let backward = forward.gradient()?;
    let plans = [&forward, &backward].map(|operation| operation.plan(gpu.profile()));
    let [forward_plan, backward_plan] = plans;
    let (forward_plan, backward_plan) = (forward_plan?, backward_plan?);
    println!(
        "{} dispatches forward, {} backward",
        forward_plan.kernels().len(),
        backward_plan.kernels().len()
    );

    // 4. One buffer for everything. Ranges begin at multiples of the device's alignment. The passes run one after the
    //    other, so they share the tensors of both, including the workspace.
    let mut pool = Pool::new(&device);
    pool.reserve(&forward_plan);
    pool.reserve(&backward_plan);
    let buffer = device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("pool"),
        size: pool.end,
        usage: wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_DST
            | wgpu::BufferUsages::COPY_SRC,
        mapped_at_creation: false,
    });

    // 5. The inputs. Uploading is up to the application, like everything about its queue.
    let channels = layer.gamma.len();
    for (tensor, values) in [
        (Tensor::Src, &layer.src),
        (Tensor::Gamma, &layer.gamma),
        (Tensor::Beta, &layer.beta),
        (Tensor::RunningMean, &vec![0.0; channels]),
        (Tensor::RunningVariance, &vec![1.0; channels]),
        (Tensor::DiffDst, &layer.diff_dst),
    ] {
        let place = pool.place(tensor)?;
        queue.write_buffer(&buffer, place.offset, bytemuck::cast_slice(values));
    }

    // 6. Stage two, bind: once per set of buffers. Sizes, alignment, usages and overlaps are checked here, pipelines
    //    compiled and bind groups created; after this, recording cannot fail.
    let bound_forward = forward_plan.bind(&gpu, &pool.ranges(&forward_plan, &buffer)?)?;
    let bound_backward = backward_plan.bind(&gpu, &pool.ranges(&backward_plan, &buffer)?)?;

    // 7. Stage three, record: in every training step, into an encoder that may hold other work, too, even in between,
    //    such as the rest of the network. It only writes commands; wgpu orders passes by the buffers that they share.
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    bound_forward.record(&mut encoder);
    bound_backward.record(&mut encoder);
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
    let read = |tensor| -> Result<Vec<f32>, Box<dyn Error>> {
        let place = pool.place(tensor)?;
        let bytes = &bytes[place.offset as usize..(place.offset + place.size) as usize];
        Ok(bytemuck::pod_collect_to_vec(bytes))
    };

    // 9. Check the forward pass; then the gradient, which uses the statistics that the forward pass left.
    let want = layer.reference(&forward)?;
    for computed in &want {
        compare(computed.tensor, &read(computed.tensor)?, &want)?;
    }
    (layer.mean, layer.variance) = (read(Tensor::Mean)?, read(Tensor::Variance)?);
    let want = layer.reference(&backward)?;
    for computed in &want {
        compare(computed.tensor, &read(computed.tensor)?, &want)?;
    }
    println!("a layer forward and backward, one submission, one buffer: all within the tolerance");
    Ok(())
}

/// A part of the pool.
#[derive(Clone, Copy)]
struct Place {
    tensor: Tensor,
    offset: u64,
    size: u64,
}

/// The simplest possible allocator: a place for each tensor.
struct Pool {
    alignment: u64,
    end: u64,
    places: Vec<Place>,
}

impl Pool {
    fn new(device: &wgpu::Device) -> Self {
        let alignment = device.limits().min_storage_buffer_offset_alignment;
        Self {
            alignment: u64::from(alignment).max(32),
            end: 0,
            places: vec![],
        }
    }

    /// Makes places for the tensors that a plan binds, unless there are large enough ones.
    fn reserve(&mut self, plan: &Plan) {
        for used in plan.buffers() {
            let (tensor, size) = (stored(used.tensor), used.padded_bytes);
            let mut places = self.places.iter();
            if places.any(|place| place.tensor == tensor && place.size >= size) {
                continue;
            }
            self.places.retain(|place| place.tensor != tensor);
            let offset = self.end;
            self.places.push(Place {
                tensor,
                offset,
                size,
            });
            self.end = (offset + size).next_multiple_of(self.alignment);
        }
    }

    fn place(&self, tensor: Tensor) -> Result<Place, Box<dyn Error>> {
        let mut places = self.places.iter().copied();
        let found = places.find(|place| place.tensor == stored(tensor));
        found.ok_or_else(|| format!("no place for {}", tensor.name()).into())
    }

    fn ranges<'a>(
        &self,
        plan: &Plan,
        buffer: &'a wgpu::Buffer,
    ) -> Result<Vec<(Tensor, BufferRange<'a>)>, Box<dyn Error>> {
        let uses = plan.buffers().into_iter();
        let ranges = uses.map(|used| {
            let Place { offset, size, .. } = self.place(used.tensor)?;
            let range = BufferRange {
                buffer,
                offset,
                size: Some(size),
            };
            Ok((used.tensor, range))
        });
        ranges.collect()
    }
}

/// diff_src is stored in the place of diff_dst.
fn stored(tensor: Tensor) -> Tensor {
    match tensor {
        Tensor::DiffSrc => Tensor::DiffDst,
        other => other,
    }
}
