//! The gradient of one batch-norm layer from tensors in host memory, checked against the float64
//! reference.
//!
//! ```sh
//! cargo run --example backward
//! ```
//!
//! `WGPU_BACKEND` and `WGPU_ADAPTER_NAME` choose another adapter than the best one.

mod common;

use common::{Layer, compare};
use std::error::Error;
use std::process::ExitCode;
use wgpu_norm::{BatchNormBackwardArgs, BatchNormOptions, DataFormat, GpuBatchNorm, GpuContext};

fn main() -> ExitCode {
    common::main(backward())
}

async fn backward() -> Result<(), Box<dyn Error>> {
    // 1. A GPU: the best adapter of this machine, and the pipelines compiled for it so far. Make one
    //    and keep it; clones share everything.
    let gpu = GpuContext::new().await?;
    println!("running on {}", gpu.adapter_info().name);

    // 2. The operator with its attributes. epsilon has no default in the operator's document, and the
    //    channel axis is the last one unless NCX is asked for.
    let options = BatchNormOptions {
        data_format: DataFormat::Ncx,
        ..BatchNormOptions::new(1e-5)
    };
    let batch_norm = GpuBatchNorm::new(&gpu, options)?;

    // 3. The tensors: 8 samples of 16 channels of 14 x 14 pixels. mean and variance are those that the
    //    forward pass computed from src, the variance biased (divided by the number of elements).
    let layer = Layer::made_up(&[8, 16, 14, 14], 1);

    // 4. Upload, run, read back. The future blocks no executor; any will do.
    let grads = batch_norm
        .backward(BatchNormBackwardArgs {
            shape: &layer.shape,
            src: &layer.src,
            diff_dst: &layer.diff_dst,
            mean: &layer.mean,
            variance: &layer.variance,
            gamma: Some(&layer.gamma),
            beta: None,
            mask: None,
        })
        .await?;

    // 5. The parameter gradients are there because `ParamGrads::Both` is the default.
    let (Some(diff_gamma), Some(diff_beta)) = (grads.diff_gamma, grads.diff_beta) else {
        return Err("the parameter gradients are missing".into());
    };

    // 6. The same in float64. Errors are measured against the size of the terms that were added, for
    //    a gradient near 0 is the difference of large ones; up to 1 is right.
    let want = layer.reference(&options)?;
    compare(
        "diff_src",
        &grads.diff_src,
        &want.diff_src,
        &want.diff_src_scale,
    )?;
    compare(
        "diff_gamma",
        &diff_gamma,
        &want.diff_gamma,
        &want.diff_gamma_scale,
    )?;
    compare(
        "diff_beta",
        &diff_beta,
        &want.diff_beta,
        &want.diff_beta_scale,
    )?;
    println!("all within the tolerance");
    Ok(())
}
