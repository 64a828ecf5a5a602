//! Batch norm with ReLU, computed by wgpu-norm on this page's buffers.

use super::kernel::{Command, Kernels};
use super::param::{Param, upload, zeros};
use wgpu_norm::wgpu::Buffer;
use wgpu_norm::{
    Activation, DType, DataFormat, Epilogue, Error, Forward, Norm, Operation, Pass, Residual,
    RunningUpdate, RunningVariance, Tensor,
};

/// PyTorch's defaults: a tenth of the batch's statistics, and the unbiased variance.
const UPDATE: RunningUpdate = RunningUpdate::new(0.1, RunningVariance::Unbiased);

/// Batch norm of square images, (N, C, H, W).
#[derive(Debug)]
pub struct BatchNorm {
    channels: usize,
    side: usize,
    pub gamma: Param,
    pub beta: Param,
    /// The last batch's statistics, which the forward pass leaves for the gradient.
    mean: Buffer,
    variance: Buffer,
    running_mean: Buffer,
    running_variance: Buffer,
}

impl BatchNorm {
    /// A layer with gamma 1 and beta 0.
    pub fn new(kernels: &Kernels, channels: usize, side: usize) -> Result<Self, Error> {
        let gpu = &kernels.gpu;
        Ok(Self {
            channels,
            side,
            gamma: Param::new(gpu, "gamma", &vec![1.0; channels])?,
            beta: Param::new(gpu, "beta", &vec![0.0; channels])?,
            mean: zeros(gpu, "mean", channels)?,
            variance: zeros(gpu, "variance", channels)?,
            running_mean: zeros(gpu, "running mean", channels)?,
            running_variance: upload(gpu, "running variance", &vec![1.0; channels])?,
        })
    }

    /// Normalizes by the batch's own statistics, and updates the running ones.
    pub fn forward(&self, kernels: &Kernels, src: &Buffer, dst: &Buffer) -> Result<Command, Error> {
        let buffers = [
            (Tensor::Src, src),
            (Tensor::Gamma, &self.gamma.value),
            (Tensor::Beta, &self.beta.value),
            (Tensor::RunningMean, &self.running_mean),
            (Tensor::RunningVariance, &self.running_variance),
            (Tensor::Dst, dst),
            (Tensor::Mean, &self.mean),
            (Tensor::Variance, &self.variance),
        ];
        bind(kernels, &self.training(src), &buffers)
    }

    /// The gradients of src, gamma and beta, through the batch's statistics.
    pub fn gradient(
        &self,
        kernels: &Kernels,
        src: &Buffer,
        diff_dst: &Buffer,
        diff_src: &Buffer,
    ) -> Result<Command, Error> {
        let buffers = [
            (Tensor::Src, src),
            (Tensor::DiffDst, diff_dst),
            (Tensor::Mean, &self.mean),
            (Tensor::Variance, &self.variance),
            (Tensor::Gamma, &self.gamma.value),
            (Tensor::Beta, &self.beta.value),
            (Tensor::DiffSrc, diff_src),
            (Tensor::DiffGamma, &self.gamma.gradient),
            (Tensor::DiffBeta, &self.beta.gradient),
        ];
        let gradient = self.training(src).gradient()?;
        bind(kernels, &gradient, &buffers)
    }

    /// Normalizes by the running statistics.
    pub fn inference(
        &self,
        kernels: &Kernels,
        src: &Buffer,
        dst: &Buffer,
    ) -> Result<Command, Error> {
        let buffers = [
            (Tensor::Src, src),
            (Tensor::Mean, &self.running_mean),
            (Tensor::Variance, &self.running_variance),
            (Tensor::Gamma, &self.gamma.value),
            (Tensor::Beta, &self.beta.value),
            (Tensor::Dst, dst),
        ];
        bind(kernels, &self.operation(Pass::Inference, src), &buffers)
    }

    fn training(&self, src: &Buffer) -> Operation {
        self.operation(Forward::default().with_running(UPDATE), src)
    }

    fn operation(&self, pass: impl Into<Pass>, src: &Buffer) -> Operation {
        let image = self.channels * self.side * self.side;
        let images = src.size() as usize / (4 * image);
        let shape = [images, self.channels, self.side, self.side];
        let norm = Norm::batch(DataFormat::Ncx);
        let relu = Epilogue::new(Residual::None, Activation::Relu);
        Operation::new(norm, pass, &shape, DType::F32).with_epilogue(relu)
    }
}

fn bind(
    kernels: &Kernels,
    operation: &Operation,
    buffers: &[(Tensor, &Buffer)],
) -> Result<Command, Error> {
    let buffers = buffers.iter();
    let ranges: Vec<_> = buffers
        .map(|&(tensor, buffer)| (tensor, buffer.into()))
        .collect();
    let plan = operation.plan(kernels.gpu.profile())?;
    Ok(Command::Norm(plan.bind(&kernels.gpu, &ranges)?))
}
