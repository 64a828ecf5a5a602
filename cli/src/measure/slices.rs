//! Calls with a case's tensors in host memory.

use super::operators::{
    Op, batch_norm_options, group_norm_options, layer_norm_options, rms_norm_options,
};
use super::sets::Case;
use wgpu_norm::{
    BatchNormBackwardArgs, BatchNormForwardArgs, BatchNormInferenceArgs, Element, Error,
    GpuBatchNorm, GpuContext, GpuGroupNorm, GpuLayerNorm, GpuRmsNorm, GroupNormBackwardArgs,
    GroupNormForwardArgs, LayerNormBackwardArgs, LayerNormForwardArgs, RmsNormBackwardArgs,
    RmsNormForwardArgs,
};

/// A case's tensors; parameters have the type of sums.
pub struct Slices<T: Element> {
    pub src: Vec<T>,
    /// Empty for a forward pass.
    pub diff_dst: Vec<T>,
    pub mean: Vec<T::Sum>,
    pub variance: Vec<T::Sum>,
    pub gamma: Vec<T::Sum>,
    pub beta: Vec<T::Sum>,
}

impl<T: Element> Slices<T> {
    /// One call.
    pub fn call(&self, gpu: &GpuContext, case: &Case) -> Result<(), Error> {
        let shape: &[usize] = &case.dims();
        let (src, diff_dst) = (&self.src, &self.diff_dst);
        let (mean, variance) = (&self.mean, &self.variance);
        let (gamma, beta) = (Some(&*self.gamma), Some(&*self.beta));
        let batch_norm = || GpuBatchNorm::new(gpu, batch_norm_options(case));
        let layer_norm = || GpuLayerNorm::new(gpu, layer_norm_options(case));
        let rms_norm = || GpuRmsNorm::new(gpu, rms_norm_options(case));
        let group_norm = || GpuGroupNorm::new(gpu, group_norm_options(case));
        match case.op {
            Op::BatchNorm => pollster::block_on(batch_norm()?.backward(BatchNormBackwardArgs {
                shape,
                src,
                diff_dst,
                mean,
                variance,
                gamma,
                beta: beta.filter(|_| case.reads_beta()),
                mask: None,
            }))
            .map(drop),
            Op::BatchNormForward => {
                pollster::block_on(batch_norm()?.forward(BatchNormForwardArgs {
                    shape,
                    src,
                    gamma,
                    beta,
                    running: None,
                    residual: None,
                }))
                .map(drop)
            }
            Op::BatchNormInference => {
                pollster::block_on(batch_norm()?.infer(BatchNormInferenceArgs {
                    shape,
                    src,
                    mean,
                    variance,
                    gamma,
                    beta,
                    residual: None,
                }))
                .map(drop)
            }
            Op::LayerNorm => pollster::block_on(layer_norm()?.backward(LayerNormBackwardArgs {
                shape,
                src,
                diff_dst,
                mean,
                variance,
                gamma,
                beta,
            }))
            .map(drop),
            Op::LayerNormForward => {
                pollster::block_on(layer_norm()?.forward(LayerNormForwardArgs {
                    shape,
                    src,
                    residual: None,
                    gamma,
                    beta,
                    keep_statistics: true,
                }))
                .map(drop)
            }
            Op::RmsNorm => pollster::block_on(rms_norm()?.backward(RmsNormBackwardArgs {
                shape,
                src,
                diff_dst,
                mean_square: variance,
                gamma,
            }))
            .map(drop),
            Op::RmsNormForward => pollster::block_on(rms_norm()?.forward(RmsNormForwardArgs {
                shape,
                src,
                residual: None,
                gamma,
                keep_statistics: true,
            }))
            .map(drop),
            Op::GroupNorm | Op::InstanceNorm => {
                pollster::block_on(group_norm()?.backward(GroupNormBackwardArgs {
                    shape,
                    src,
                    diff_dst,
                    mean,
                    variance,
                    gamma,
                    beta: beta.filter(|_| case.reads_beta()),
                    mask: None,
                }))
                .map(drop)
            }
            Op::GroupNormForward | Op::InstanceNormForward => {
                pollster::block_on(group_norm()?.forward(GroupNormForwardArgs {
                    shape,
                    src,
                    gamma,
                    beta,
                    residual: None,
                }))
                .map(drop)
            }
        }
    }
}
