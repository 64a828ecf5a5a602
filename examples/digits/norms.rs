//! The two norms as layers of a network: parameters, forward, backward.

use crate::data::SIDE;
use crate::plain::descend;
use wgpu_norm::{
    BackwardArgs, BatchNormOptions, DataFormat, Error, ForwardArgs, GpuBatchNorm, GpuContext,
    GpuLayerNorm, Grads, InferenceArgs, LayerNormOptions, Output, Parameters, Running,
    RunningUpdate, RunningVariance,
};

pub const EPSILON: f64 = 1e-5;

/// PyTorch's defaults: a tenth of the batch's statistics, and the unbiased variance.
pub const UPDATE: RunningUpdate = RunningUpdate::new(0.1, RunningVariance::Unbiased);

/// Batch norm of images, (N, C, H, W).
pub struct BatchNorm {
    norm: GpuBatchNorm,
    pub parameters: Parameters<f32>,
    velocity: [Vec<f32>; 2],
}

/// The data of batch norm's forward pass that the backward pass and the check need.
pub struct BatchNormPass {
    pub shape: [usize; 4],
    pub src: Vec<f32>,
    pub output: Output<f32, f32>,
    pub running_before: Option<Running<f32>>,
}

impl BatchNorm {
    pub fn new(gpu: &GpuContext, channels: usize) -> Result<Self, Error> {
        let options = BatchNormOptions::new(DataFormat::Ncx).epsilon(EPSILON);
        Ok(Self {
            norm: GpuBatchNorm::new(gpu, options)?,
            parameters: Parameters::new(channels).with_running(UPDATE),
            velocity: [(); 2].map(|()| vec![0.0; channels]),
        })
    }

    /// Normalizes by the batch's own statistics, and updates the running ones.
    pub async fn forward(&mut self, src: Vec<f32>) -> Result<BatchNormPass, Error> {
        let shape = self.shape(&src);
        let running_before = self.parameters.running.clone();
        let args = ForwardArgs::new(&shape, &src).parameters(&mut self.parameters);
        let output = self.norm.forward(args).await?;
        Ok(BatchNormPass {
            shape,
            src,
            output,
            running_before,
        })
    }

    /// The gradients, from the statistics that `forward` returned.
    pub async fn backward(
        &self,
        pass: &BatchNormPass,
        diff_dst: &[f32],
    ) -> Result<Grads<f32, f32>, Error> {
        let args = BackwardArgs::new(&pass.shape, &pass.src, diff_dst, &pass.output.saved);
        self.norm.backward(args.parameters(&self.parameters)).await
    }

    /// Normalizes by the running statistics.
    pub async fn infer(&self, src: &[f32]) -> Result<Vec<f32>, Error> {
        let shape = self.shape(src);
        let args = InferenceArgs::by_parameters(&shape, src, &self.parameters);
        self.norm.infer(args).await
    }

    pub fn learn(&mut self, grads: &Grads<f32, f32>) {
        learn(&mut self.parameters, &mut self.velocity, grads);
    }

    pub fn shape(&self, src: &[f32]) -> [usize; 4] {
        let channels = self.velocity[0].len();
        [src.len() / (channels * SIDE * SIDE), channels, SIDE, SIDE]
    }
}

/// Layer norm of a matrix's rows, after a residual is added.
pub struct LayerNorm {
    norm: GpuLayerNorm,
    pub parameters: Parameters<f32>,
    velocity: [Vec<f32>; 2],
}

/// The data of layer norm's forward pass that the backward pass and the check need.
pub struct LayerNormPass {
    pub shape: [usize; 2],
    pub src: Vec<f32>,
    pub residual: Vec<f32>,
    pub output: Output<f32, f32>,
}

impl LayerNorm {
    pub fn new(gpu: &GpuContext, columns: usize) -> Result<Self, Error> {
        let options = LayerNormOptions::new(-1).epsilon(EPSILON); // along the last axis
        Ok(Self {
            norm: GpuLayerNorm::new(gpu, options)?,
            parameters: Parameters::new(columns),
            velocity: [(); 2].map(|()| vec![0.0; columns]),
        })
    }

    /// Normalizes the rows of src + residual, and keeps their statistics for the gradient.
    pub async fn forward(&self, src: Vec<f32>, residual: Vec<f32>) -> Result<LayerNormPass, Error> {
        let shape = self.shape(&src);
        let args = self.args(&shape, &src, &residual);
        let output = self.norm.forward(args).await?;
        Ok(LayerNormPass {
            shape,
            src,
            residual,
            output,
        })
    }

    /// The gradients. The sum was normalized, so it takes the place of src, and diff_src is the gradient of both
    /// summands.
    pub async fn backward(
        &self,
        pass: &LayerNormPass,
        diff_dst: &[f32],
    ) -> Result<Grads<f32, f32>, Error> {
        let (src, statistics) = (pass.normalized(), &pass.output.saved);
        let args = BackwardArgs::new(&pass.shape, src, diff_dst, statistics);
        self.norm.backward(args.parameters(&self.parameters)).await
    }

    /// Like `forward`, but keeps nothing: layer norm has no running statistics.
    pub async fn infer(&self, src: &[f32], residual: &[f32]) -> Result<Vec<f32>, Error> {
        let shape = self.shape(src);
        let args = self.args(&shape, src, residual).without_statistics();
        Ok(self.norm.forward(args).await?.dst)
    }

    fn args<'a>(
        &'a self,
        shape: &'a [usize],
        src: &'a [f32],
        residual: &'a [f32],
    ) -> ForwardArgs<'a, f32> {
        ForwardArgs::new(shape, src)
            .gamma(self.parameters.gamma.as_deref())
            .beta(self.parameters.beta.as_deref())
            .residual_before(residual)
    }

    pub fn learn(&mut self, grads: &Grads<f32, f32>) {
        learn(&mut self.parameters, &mut self.velocity, grads);
    }

    fn shape(&self, src: &[f32]) -> [usize; 2] {
        let columns = self.velocity[0].len();
        [src.len() / columns, columns]
    }
}

impl LayerNormPass {
    /// src + residual, as the layer returned it.
    pub fn normalized(&self) -> &[f32] {
        self.output.sum.as_deref().unwrap_or(&self.src)
    }
}

/// Both parameter gradients are present, as they are by default.
fn learn(parameters: &mut Parameters<f32>, velocity: &mut [Vec<f32>; 2], grads: &Grads<f32, f32>) {
    let (gamma, beta) = (&mut parameters.gamma, &mut parameters.beta);
    let pairs = [(gamma, &grads.diff_gamma), (beta, &grads.diff_beta)];
    for ((values, diff), velocity) in pairs.into_iter().zip(velocity) {
        if let (Some(values), Some(diff)) = (values, diff) {
            descend(values, velocity, diff);
        }
    }
}
