//! The training: a batch norm learns to scale and shift its input. The tensors stay on the device; a step reads only
//! the errors, for the loss, and the gradients of gamma and beta.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::error::Error;
use std::rc::Rc;
use wgpu_norm::{
    Activation, DType, DataFormat, Epilogue, Forward, GpuContext, Norm, Operation, Plan, Residual,
    Tensor, wgpu,
};

pub const STEPS: usize = 400;
const RATE: f32 = 0.006; // slow enough to watch
const SAMPLES: usize = 256; // of four channels

/// The target output: the input times SCALE plus SHIFT.
const SCALE: [f32; 4] = [0.5, 2.0, -1.0, 4.0];
const SHIFT: [f32; 4] = [1.0, 1.5, -2.0, 0.5];

pub type Outcome = Result<(), Box<dyn Error>>;

/// What the window shows.
#[derive(Default)]
pub struct Progress {
    pub losses: Vec<f32>,
    /// Gamma and beta.
    pub params: [[f32; 4]; 2],
}

/// Trains. While the device computes, this future is pending: it never blocks the thread that polls it.
pub async fn train(gpu: GpuContext, progress: Rc<RefCell<Progress>>) -> Outcome {
    // Plan: once for a shape. The residual is minus the target output, so the layer's output is the error. That is also
    // the gradient of half the squared error, so no other kernel is needed.
    let norm = Norm::batch(DataFormat::Nxc);
    let forward = Operation::new(norm, Forward::default(), &[SAMPLES, 4], DType::F32)
        .with_epilogue(Epilogue::new(Residual::After, Activation::None));
    let backward = forward.gradient()?.plan(gpu.profile())?;
    let forward = forward.plan(gpu.profile())?;

    // A buffer for each tensor. Both plans use most of them; each plan makes its own workspace.
    let mut buffers = BTreeMap::new();
    for used in forward.buffers().iter().chain(&backward.buffers()) {
        let zeros = vec![0; used.padded_bytes as usize];
        buffers.insert(used.tensor, gpu.upload(used.tensor.name(), &zeros)?);
    }
    buffers.remove(&Tensor::Workspace);

    // Bind: once for these buffers.
    let bind = |plan: &Plan| {
        let uses = plan.buffers().into_iter();
        let given = uses.filter_map(|used| Some((used.tensor, buffers.get(&used.tensor)?.into())));
        plan.bind(&gpu, &given.collect::<Vec<_>>())
    };
    let (forward, backward) = (bind(&forward)?, bind(&backward)?);

    let write = |tensor, values: &[f32]| {
        let bytes = bytemuck::cast_slice(values);
        gpu.queue().write_buffer(&buffers[&tensor], 0, bytes);
    };
    let src: Vec<f32> = (0..SAMPLES * 4).map(|i| (i as f32 * 0.37).sin()).collect();
    let elements = src.iter().enumerate();
    let residual = elements.map(|(i, x)| -(SCALE[i % 4] * x + SHIFT[i % 4]));
    write(Tensor::Src, &src);
    write(Tensor::Residual, &residual.collect::<Vec<_>>());

    // Record: in every step.
    let (dst, diff_dst) = (&buffers[&Tensor::Dst], &buffers[&Tensor::DiffDst]);
    let results = [Tensor::Dst, Tensor::DiffGamma, Tensor::DiffBeta];
    let results = results.map(|tensor| buffers[&tensor].clone());
    let mut params = [[1.0; 4], [0.0; 4]];
    for _ in 0..STEPS {
        write(Tensor::Gamma, &params[0]);
        write(Tensor::Beta, &params[1]);
        let step = |encoder: &mut wgpu::CommandEncoder| {
            forward.record(encoder);
            encoder.copy_buffer_to_buffer(dst, 0, diff_dst, 0, dst.size());
            backward.record(encoder);
        };
        let read = gpu.submit_and_read(step, &results).await?;
        let read = read.iter().map(|bytes| bytemuck::pod_collect_to_vec(bytes));
        let read: Vec<Vec<f32>> = read.collect();

        let diffs = read[1].iter().chain(&read[2]);
        for (param, diff) in params.as_flattened_mut().iter_mut().zip(diffs) {
            *param -= RATE * 2.0 / SAMPLES as f32 * diff;
        }
        let squares: f32 = read[0].iter().map(|error| error * error).sum();
        let mut progress = progress.borrow_mut();
        progress.losses.push(squares / SAMPLES as f32);
        progress.params = params;
    }
    Ok(())
}
