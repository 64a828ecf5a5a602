//! Layer norm over the channels of images, (N, C, H, W), as in ConvNeXt. PyTorch's `layer_norm` takes the last axes, so
//! its users permute to (N, H, W, C) and back. `GpuAxesNorm` takes the images as they are, with the same results.
//!
//! ```sh
//! cargo run --example channels
//! ```
//!
//! ```python
//! y = F.layer_norm(x.permute(0, 2, 3, 1), (C,), weight, bias).permute(0, 3, 1, 2)
//! ```

mod common;

use common::{Layer, compare};
use std::error::Error;
use std::process::ExitCode;
use wgpu_norm::{
    AxesNormOptions, BackwardArgs, DType, Forward, ForwardArgs, GpuAxesNorm, GpuContext,
    GpuLayerNorm, LayerNormOptions, Norm, Operation, Tensor,
};

fn main() -> ExitCode {
    common::main(channels())
}

async fn channels() -> Result<(), Box<dyn Error>> {
    let gpu = GpuContext::new().await?;
    println!("running on {}", gpu.adapter_info().name);
    let mut layer = Layer::made_up(&[4, 96, 14, 14], 1); // 4 images of 96 channels
    let (gamma, beta) = (Some(&*layer.gamma), Some(&*layer.beta));

    // PyTorch's way: layer norm over the last axis, between transpositions of src and dst and of their gradients.
    let shape = [4, 14, 14, 96];
    let layer_norm = GpuLayerNorm::new(&gpu, LayerNormOptions::new(-1))?;
    let [src, diff_dst] = [&layer.src, &layer.diff_dst].map(|x| transposed(x, 96, 14 * 14));
    let args = ForwardArgs::new(&shape, &src).gamma(gamma).beta(beta);
    let rows = layer_norm.forward(args).await?;
    let args = BackwardArgs::new(&shape, &src, &diff_dst, &rows.saved)
        .gamma(gamma)
        .beta(beta);
    let row_grads = layer_norm.backward(args).await?;
    let [dst, diff_src] = [&rows.dst, &row_grads.diff_src].map(|x| transposed(x, 14 * 14, 96));

    // Without transposing: statistics over axis 1, gamma and beta along axis 1.
    let axes_norm = GpuAxesNorm::new(&gpu, AxesNormOptions::new(&[1], &[1]))?;
    let args = ForwardArgs::new(&layer.shape, &layer.src)
        .gamma(gamma)
        .beta(beta);
    let output = axes_norm.forward(args).await?;
    let args = BackwardArgs::new(&layer.shape, &layer.src, &layer.diff_dst, &output.saved);
    let grads = axes_norm.backward(args.gamma(gamma).beta(beta)).await?;

    // Both are checked against the reference in float64.
    let norm = Norm::axes(&[1], &[1]);
    let forward = Operation::new(norm, Forward::default(), &layer.shape, DType::F32);
    (layer.mean, layer.variance) = (output.saved.mean, output.saved.variance);
    let mut want = layer.reference(&forward)?;
    want.extend(layer.reference(&forward.gradient()?)?);
    for (way, dst, diff_src, grads) in [
        ("PyTorch's way", &dst, &diff_src, &row_grads),
        ("without transposing", &output.dst, &grads.diff_src, &grads),
    ] {
        println!("{way}:");
        let of = |diff: &Option<Vec<f32>>| diff.clone().unwrap_or_default();
        compare(Tensor::Dst, dst, &want)?;
        compare(Tensor::DiffSrc, diff_src, &want)?;
        compare(Tensor::DiffGamma, &of(&grads.diff_gamma), &want)?;
        compare(Tensor::DiffBeta, &of(&grads.diff_beta), &want)?;
    }
    println!("the same results: the first way took four transpositions, the second none");
    Ok(())
}

/// Transposes each image, a matrix of so many rows and columns.
fn transposed(images: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let size = rows * columns;
    let source = |i: usize| i / size * size + i % rows * columns + i % size / rows;
    (0..images.len()).map(|i| images[source(i)]).collect()
}
