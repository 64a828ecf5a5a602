//! Burn's own ways: a module, its gradient through autodiff, and the operators behind batch norm's.

use crate::Result;
use crate::case::{Case, EPSILON};
use crate::gpu::Gpu;
use crate::measure::{Contender, clock};
use crate::peer::Peer;
use crate::tensors::Tensors;
use burn::module::{Param, RunningState};
use burn::nn::{
    BatchNorm, BatchNormConfig, GroupNorm, GroupNormConfig, InstanceNorm, InstanceNormConfig,
    LayerNorm, LayerNormConfig, RmsNorm, RmsNormConfig,
};
use burn::tensor::{Device, Gradients as Tape, Tensor, TensorData};
use burn_backend::ops::{FloatTensorOps, ModuleOps};
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, BackendTypes};
use burn_wgpu::Wgpu;
use std::time::Duration;
use wgpu_norm::{self as ours, Pass};

pub const VARIANT: &str = match cfg!(feature = "fusion") {
    true => "with fusion and autotune",
    false => "without fusion and autotune",
};

/// A normalization module, and its inputs.
struct Module<const D: usize> {
    device: Device,
    norm: Norm,
    src: Vec<Tensor<D>>,
    /// Added to src, where there is one.
    residual: Vec<Tensor<D>>,
    /// Of a gradient.
    diff_dst: Option<TensorData>,
}

enum Norm {
    Batch(BatchNorm),
    Layer(LayerNorm),
    Rms(RmsNorm),
    Group(GroupNorm),
    Instance(InstanceNorm),
}

/// The module's contender for the rank of the case.
pub fn module(gpu: &Gpu, case: &Case, tensors: &Tensors) -> Result<Box<dyn Contender>> {
    match case.operation.shape.len() {
        2 => Ok(Box::new(Module::<2>::new(gpu, case, tensors)?)),
        3 => Ok(Box::new(Module::<3>::new(gpu, case, tensors)?)),
        4 => Ok(Box::new(Module::<4>::new(gpu, case, tensors)?)),
        5 => Ok(Box::new(Module::<5>::new(gpu, case, tensors)?)),
        rank => Err(format!("rank {rank} is not supported").into()),
    }
}

impl Norm {
    fn new(case: &Case, tensors: &Tensors, device: &Device) -> Result<Self> {
        let channels = tensors.gamma.len();
        let tensor = |values: &[f32]| {
            let data = TensorData::new(values.to_vec(), [values.len()]);
            Tensor::<1>::from_data(data, device)
        };
        let gamma = Param::from_tensor(tensor(&tensors.gamma));
        let beta = Param::from_tensor(tensor(&tensors.beta));
        Ok(match case.operation.norm {
            ours::Norm::Batch(_) => {
                let config = BatchNormConfig::new(channels).with_epsilon(EPSILON);
                Self::Batch(BatchNorm {
                    gamma,
                    beta,
                    running_mean: RunningState::new(tensor(&tensors.mean)),
                    running_var: RunningState::new(tensor(&tensors.variance)),
                    ..config.init(device)
                })
            }
            ours::Norm::Layer { .. } => {
                let config = LayerNormConfig::new(channels).with_epsilon(EPSILON);
                let mut layer = config.init(device);
                (layer.gamma, layer.beta) = (gamma, Some(beta));
                Self::Layer(layer)
            }
            ours::Norm::Rms { .. } => {
                let config = RmsNormConfig::new(channels).with_epsilon(EPSILON);
                Self::Rms(RmsNorm {
                    gamma,
                    ..config.init(device)
                })
            }
            ours::Norm::Group { groups, .. } => {
                let config = GroupNormConfig::new(groups, channels);
                let mut layer = config.with_epsilon(EPSILON).init(device);
                (layer.gamma, layer.beta) = (Some(gamma), Some(beta));
                Self::Group(layer)
            }
            ours::Norm::Instance { .. } => {
                let config = InstanceNormConfig::new(channels).with_epsilon(EPSILON);
                let mut layer = config.init(device);
                (layer.gamma, layer.beta) = (Some(gamma), Some(beta));
                Self::Instance(layer)
            }
            _ => return Err("Burn has no such layer".into()),
        })
    }

    fn forward<const D: usize>(&self, src: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Batch(layer) => layer.forward(src),
            Self::Layer(layer) => layer.forward(src),
            Self::Rms(layer) => layer.forward(src),
            Self::Group(layer) => layer.forward(src),
            Self::Instance(layer) => layer.forward(src),
        }
    }

    /// gamma and beta.
    fn params(&self) -> Vec<&Param<Tensor<1>>> {
        match self {
            Self::Batch(layer) => vec![&layer.gamma, &layer.beta],
            Self::Layer(layer) => [&layer.gamma].into_iter().chain(&layer.beta).collect(),
            Self::Rms(layer) => vec![&layer.gamma],
            Self::Group(layer) => layer.gamma.iter().chain(&layer.beta).collect(),
            Self::Instance(layer) => layer.gamma.iter().chain(&layer.beta).collect(),
        }
    }
}

impl<const D: usize> Module<D> {
    fn new(gpu: &Gpu, case: &Case, tensors: &Tensors) -> Result<Self> {
        // Batch norm takes the batch's statistics where there is autodiff, else running ones.
        let trains = match (&case.operation.norm, &case.operation.pass) {
            (ours::Norm::Batch(_), pass) => *pass != Pass::Inference,
            _ => case.is_gradient(),
        };
        let device = match trains {
            true => gpu.burn_device().autodiff(),
            false => gpu.burn_device(),
        };
        let data = |values: &[f32]| TensorData::new(values.to_vec(), case.operation.shape.clone());
        let src = |_| Tensor::from_data(data(&tensors.src), &device).set_require_grad(trains);
        let residual = |_| Tensor::from_data(data(&tensors.residual), &device);
        let residuals = if case.has_residual() { case.sets() } else { 0 };
        Ok(Self {
            norm: Norm::new(case, tensors, &device)?,
            src: (0..case.sets()).map(src).collect(),
            residual: (0..residuals).map(residual).collect(),
            diff_dst: case.is_gradient().then(|| data(&tensors.diff_dst)),
            device,
        })
    }

    fn forward(&self, set: usize) -> Tensor<D> {
        let src = self.src[set].clone();
        self.norm.forward(match self.residual.get(set) {
            Some(residual) => src + residual.clone(),
            None => src,
        })
    }

    /// diff_src, and the gradients of gamma and beta.
    fn collect(&self, set: usize, tape: &Tape) -> Result<(Tensor<D>, Vec<Tensor<1>>)> {
        let diff_src = self.src[set].grad(tape);
        let params = self.norm.params().into_iter();
        let params: Option<_> = params.map(|param| param.val().grad(tape)).collect();
        let gradients = diff_src.zip(params);
        gradients.ok_or_else(|| "Burn's tape lacks a gradient".into())
    }
}

impl<const D: usize> Contender for Module<D> {
    fn peer(&self) -> Peer {
        Peer::Burn
    }

    fn name(&self) -> &'static str {
        "module"
    }

    fn results(&self) -> Result<Vec<Vec<f32>>> {
        let dst = self.forward(0);
        let Some(diff_dst) = self.diff_dst.clone() else {
            return Ok(vec![read(dst)?]);
        };
        // The loss whose gradient with respect to the output is diff_dst.
        let diff_dst = Tensor::from_data(diff_dst, &self.device);
        let tape = (dst * diff_dst).sum().backward();
        let (diff_src, params) = self.collect(0, &tape)?;
        let params = params.into_iter().map(read);
        [read(diff_src)].into_iter().chain(params).collect()
    }

    fn time(&self, set: usize) -> Result<Duration> {
        let wait = || sync(&self.device);
        if self.diff_dst.is_none() {
            return clock(|| Ok(self.forward(set)), wait);
        }
        let dst = self.forward(set);
        wait()?;
        // Begins with ones as diff_dst, which Burn has to write; a loss in front would cost it more.
        let enqueue = || {
            let tape = dst.backward();
            Ok((self.collect(set, &tape)?, tape))
        };
        clock(enqueue, wait)
    }
}

/// What Burn's module calls for batch norm in training and its gradient, called directly.
pub struct Operator {
    device: <Wgpu as BackendTypes>::Device,
    run: fn(&Self, usize) -> Vec<FloatTensor<Wgpu>>,
    src: Vec<FloatTensor<Wgpu>>,
    /// Of a gradient.
    diff_dst: Vec<FloatTensor<Wgpu>>,
    mean: FloatTensor<Wgpu>,
    variance: FloatTensor<Wgpu>,
    gamma: FloatTensor<Wgpu>,
    beta: FloatTensor<Wgpu>,
}

impl Operator {
    /// Where Burn has one.
    pub fn new(gpu: &Gpu, case: &Case, tensors: &Tensors) -> Option<Self> {
        let run = match (&case.operation.norm, &case.operation.pass) {
            (ours::Norm::Batch(_), Pass::Backward(_)) => Self::backward,
            (ours::Norm::Batch(_), Pass::Forward(_)) => Self::forward,
            _ => return None,
        };
        let device = <Wgpu as BackendTypes>::Device::Wgpu(gpu.burn.clone());
        let upload = |values: &[f32], shape: &[usize]| {
            Wgpu::float_from_data(TensorData::new(values.to_vec(), shape.to_vec()), &device)
        };
        let whole = |values: &[f32]| match values {
            [] => Vec::new(),
            _ => (0..case.sets())
                .map(|_| upload(values, &case.operation.shape))
                .collect(),
        };
        let channels = |values: &[f32]| upload(values, &[values.len()]);
        Some(Self {
            run,
            src: whole(&tensors.src),
            diff_dst: whole(&tensors.diff_dst),
            mean: channels(&tensors.mean),
            variance: channels(&tensors.variance),
            gamma: channels(&tensors.gamma),
            beta: channels(&tensors.beta),
            device,
        })
    }

    fn backward(&self, set: usize) -> Vec<FloatTensor<Wgpu>> {
        let gradients = Wgpu::batch_norm_train_backward(
            self.src[set].clone(),
            self.gamma.clone(),
            self.mean.clone(),
            self.variance.clone(),
            EPSILON,
            self.diff_dst[set].clone(),
        );
        vec![gradients.x_grad, gradients.gamma_grad, gradients.beta_grad]
    }

    fn forward(&self, set: usize) -> Vec<FloatTensor<Wgpu>> {
        let (src, gamma, beta) = (self.src[set].clone(), self.gamma.clone(), self.beta.clone());
        let results = Wgpu::batch_norm_train(src, gamma, beta, EPSILON);
        vec![results.output, results.mean, results.variance]
    }
}

impl Contender for Operator {
    fn peer(&self) -> Peer {
        Peer::Burn
    }

    fn name(&self) -> &'static str {
        "operator"
    }

    fn results(&self) -> Result<Vec<Vec<f32>>> {
        let read =
            |tensor| values(pollster::block_on(Wgpu::float_into_data(tensor)).map_err(failed)?);
        (self.run)(self, 0).into_iter().map(read).collect()
    }

    fn time(&self, set: usize) -> Result<Duration> {
        let wait = || Wgpu::sync(&self.device).map_err(failed);
        clock(|| Ok((self.run)(self, set)), wait)
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
