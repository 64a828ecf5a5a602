//! A batch-norm layer, forward and backward, on tensors in host memory, checked against the float64 reference.
//!
//! ```sh
//! cargo run --example backward
//! ```
//!
//! `WGPU_BACKEND` and `WGPU_ADAPTER_NAME` choose an adapter other than the best one.

mod common;

use common::{Layer, compare};
use std::error::Error;
use std::process::ExitCode;
use wgpu_norm::{
    BackwardArgs, BatchNormOptions, DType, DataFormat, Forward, ForwardArgs, GpuBatchNorm,
    GpuContext, Norm, Operation, Tensor,
};

fn main() -> ExitCode {
    common::main(backward())
}

async fn backward() -> Result<(), Box<dyn Error>> {
    // 1. A GPU: the best adapter of this machine, with the pipelines compiled for it so far. Create one and keep it;
    //    clones share everything.
    let gpu = GpuContext::new().await?;
    println!("running on {}", gpu.adapter_info().name);

    // 2. The layer with its options: channels are axis 1.
    let options = BatchNormOptions::new(DataFormat::Ncx);
    let batch_norm = GpuBatchNorm::new(&gpu, options)?;

    // 3. The tensors: 8 samples of 16 channels of 14 x 14 pixels.
    let mut layer = Layer::made_up(&[8, 16, 14, 14], 1);
    let (shape, gamma, beta) = (&layer.shape, Some(&*layer.gamma), Some(&*layer.beta));

    // 4. Upload, run, read back. The futures block no executor; any executor will do.
    let args = ForwardArgs::new(shape, &layer.src).gamma(gamma).beta(beta);
    let output = batch_norm.forward(args).await?;

    // 5. The gradient uses the statistics that the forward pass computed.
    let args = BackwardArgs::new(shape, &layer.src, &layer.diff_dst, &output.saved);
    let grads = batch_norm.backward(args.gamma(gamma).beta(beta)).await?;

    // 6. The parameter gradients are present because `true` is the default.
    let (Some(diff_gamma), Some(diff_beta)) = (grads.diff_gamma, grads.diff_beta) else {
        return Err("the parameter gradients are missing".into());
    };

    // 7. The reference in float64.
    let norm = Norm::batch(DataFormat::Ncx);
    let forward = Operation::new(norm, Forward::default(), shape, DType::F32);
    let backward = forward.gradient()?;
    let want = layer.reference(&forward)?;
    (layer.mean, layer.variance) = (output.saved.mean, output.saved.variance);
    compare(Tensor::Dst, &output.dst, &want)?;
    compare(Tensor::Mean, &layer.mean, &want)?;
    compare(Tensor::Variance, &layer.variance, &want)?;
    let want = layer.reference(&backward)?;
    compare(Tensor::DiffSrc, &grads.diff_src, &want)?;
    compare(Tensor::DiffGamma, &diff_gamma, &want)?;
    compare(Tensor::DiffBeta, &diff_beta, &want)?;
    println!("all within the tolerance");
    Ok(())
}
