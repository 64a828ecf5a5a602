//! Burn's own ways: a module's backward pass through autodiff, and the operator behind batch norm's.

use crate::Result;
use crate::case::{Case, EPSILON, Op, Tensors};
use crate::gpu::Gpu;
use crate::measure::{Contender, Gradients, Peer};
use burn::module::Param;
use burn::nn::{BatchNorm, BatchNormConfig, LayerNorm, LayerNormConfig};
use burn::tensor::{Device, Gradients as Tape, Tensor, TensorData};
use burn_backend::ops::{FloatTensorOps, ModuleOps};
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, BackendTypes};
use burn_wgpu::Wgpu;
use std::time::{Duration, Instant};

/// Burn with and without fusion are two peers: one build has one of them.
pub const PEER: &str = match cfg!(feature = "fusion") {
    true => "Burn (fusion)",
    false => "Burn",
};

pub const VARIANT: &str = match cfg!(feature = "fusion") {
    true => "with fusion and autotune",
    false => "without fusion and autotune",
};

/// A normalization module, and inputs of its training step.
struct Module<const D: usize> {
    device: Device,
    layer: Layer,
    src: Vec<Tensor<D>>,
    diff_dst: TensorData,
    next: usize,
}

enum Layer {
    Batch(BatchNorm),
    Layer(LayerNorm),
}

/// The module's contender for the rank of the case.
pub fn module(gpu: &Gpu, case: &Case, tensors: &Tensors) -> Result<Box<dyn Contender>> {
    match case.shape.0.len() {
        2 => Ok(Box::new(Module::<2>::new(gpu, case, tensors))),
        3 => Ok(Box::new(Module::<3>::new(gpu, case, tensors))),
        4 => Ok(Box::new(Module::<4>::new(gpu, case, tensors))),
        5 => Ok(Box::new(Module::<5>::new(gpu, case, tensors))),
        rank => Err(format!("rank {rank} is not supported").into()),
    }
}

impl<const D: usize> Module<D> {
    fn new(gpu: &Gpu, case: &Case, tensors: &Tensors) -> Self {
        let device = gpu.burn_device().autodiff();
        let data = |values: &[f32]| TensorData::new(values.to_vec(), case.shape.0.clone());
        let [_, channels, _] = case.grid();
        let gamma = TensorData::new(tensors.gamma.clone(), [channels]);
        let gamma = Param::from_tensor(Tensor::<1>::from_data(gamma, &device));
        let layer = match case.op {
            Op::BatchNorm => {
                let mut layer = BatchNormConfig::new(channels)
                    .with_epsilon(EPSILON)
                    .init(&device);
                layer.gamma = gamma;
                Layer::Batch(layer)
            }
            Op::LayerNorm => {
                let mut layer = LayerNormConfig::new(channels)
                    .with_epsilon(EPSILON)
                    .init(&device);
                layer.gamma = gamma;
                Layer::Layer(layer)
            }
        };
        let src = |_| Tensor::<D>::from_data(data(&tensors.src), &device).require_grad();
        Self {
            src: (0..case.sets()).map(src).collect(),
            diff_dst: data(&tensors.diff_dst),
            layer,
            device,
            next: 0,
        }
    }

    fn forward(&self, src: &Tensor<D>) -> Tensor<D> {
        match &self.layer {
            Layer::Batch(layer) => layer.forward(src.clone()),
            Layer::Layer(layer) => layer.forward(src.clone()),
        }
    }

    /// diff_src, diff_gamma and diff_beta.
    fn collect(&self, src: &Tensor<D>, tape: &Tape) -> Option<(Tensor<D>, Tensor<1>, Tensor<1>)> {
        let (gamma, beta) = match &self.layer {
            Layer::Batch(layer) => (&layer.gamma, Some(&layer.beta)),
            Layer::Layer(layer) => (&layer.gamma, layer.beta.as_ref()),
        };
        Some((
            src.grad(tape)?,
            gamma.val().grad(tape)?,
            beta?.val().grad(tape)?,
        ))
    }
}

const NO_GRADIENT: &str = "Burn's tape lacks a gradient";

impl<const D: usize> Contender for Module<D> {
    fn peer(&self) -> Peer {
        Peer::Burn
    }

    fn name(&self) -> &'static str {
        "module"
    }

    fn gradients(&mut self) -> Result<Gradients> {
        let src = &self.src[0];
        // The loss whose gradient with respect to the output is diff_dst.
        let diff_dst = Tensor::<D>::from_data(self.diff_dst.clone(), &self.device);
        let tape = (self.forward(src) * diff_dst).sum().backward();
        let (diff_src, diff_gamma, diff_beta) = self.collect(src, &tape).ok_or(NO_GRADIENT)?;
        Ok(Gradients {
            diff_src: read(diff_src)?,
            diff_gamma: read(diff_gamma)?,
            diff_beta: read(diff_beta)?,
        })
    }

    fn time(&mut self) -> Result<Duration> {
        let src = &self.src[self.next];
        let output = self.forward(src);
        sync(&self.device)?;
        let start = Instant::now();
        // Begins with ones as diff_dst, which Burn has to write; a loss in front would cost it more.
        let tape = output.backward();
        let gradients = self.collect(src, &tape).ok_or(NO_GRADIENT)?;
        sync(&self.device)?;
        let time = start.elapsed();
        drop(gradients);
        self.next = (self.next + 1) % self.src.len();
        Ok(time)
    }
}

/// The closed form that Burn's autodiff calls for batch norm, called directly.
pub struct Operator {
    device: <Wgpu as BackendTypes>::Device,
    sets: Vec<(FloatTensor<Wgpu>, FloatTensor<Wgpu>)>,
    gamma: FloatTensor<Wgpu>,
    mean: FloatTensor<Wgpu>,
    variance: FloatTensor<Wgpu>,
    next: usize,
}

impl Operator {
    pub fn new(gpu: &Gpu, case: &Case, tensors: &Tensors) -> Self {
        let device = <Wgpu as BackendTypes>::Device::Wgpu(gpu.burn.clone());
        let upload = |values: &[f32], shape: &[usize]| {
            Wgpu::float_from_data(TensorData::new(values.to_vec(), shape.to_vec()), &device)
        };
        let shape = &case.shape.0;
        let set = |_| {
            (
                upload(&tensors.src, shape),
                upload(&tensors.diff_dst, shape),
            )
        };
        let channels = [tensors.gamma.len()];
        Self {
            sets: (0..case.sets()).map(set).collect(),
            gamma: upload(&tensors.gamma, &channels),
            mean: upload(&tensors.mean, &channels),
            variance: upload(&tensors.variance, &channels),
            device,
            next: 0,
        }
    }

    fn backward(&self, set: usize) -> burn_backend::ops::BatchNormTrainBackward<Wgpu> {
        let (src, diff_dst) = self.sets[set].clone();
        Wgpu::batch_norm_train_backward(
            src,
            self.gamma.clone(),
            self.mean.clone(),
            self.variance.clone(),
            EPSILON,
            diff_dst,
        )
    }
}

impl Contender for Operator {
    fn peer(&self) -> Peer {
        Peer::Burn
    }

    fn name(&self) -> &'static str {
        "operator"
    }

    fn gradients(&mut self) -> Result<Gradients> {
        let gradients = self.backward(0);
        let read = |tensor| -> Result<Vec<f32>> {
            values(pollster::block_on(Wgpu::float_into_data(tensor)).map_err(failed)?)
        };
        Ok(Gradients {
            diff_src: read(gradients.x_grad)?,
            diff_gamma: read(gradients.gamma_grad)?,
            diff_beta: read(gradients.beta_grad)?,
        })
    }

    fn time(&mut self) -> Result<Duration> {
        let set = self.next;
        self.next = (set + 1) % self.sets.len();
        let start = Instant::now();
        let gradients = self.backward(set);
        Wgpu::sync(&self.device).map_err(failed)?;
        let time = start.elapsed();
        drop(gradients);
        Ok(time)
    }
}

/// Waits for everything that Burn has enqueued.
pub fn sync(device: &Device) -> Result<()> {
    device.sync().map_err(failed)
}

pub fn read<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>> {
    values(tensor.try_into_data().map_err(failed)?)
}

fn values(data: TensorData) -> Result<Vec<f32>> {
    data.try_to_vec()
        .map_err(|error| format!("Burn's result is not f32: {error:?}").into())
}

fn failed(error: impl std::fmt::Debug) -> crate::Error {
    format!("Burn failed: {error:?}").into()
}
