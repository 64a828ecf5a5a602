//! The least training loop: a batch norm learns the gamma and beta that another layer has.
//!
//! ```sh
//! cargo run --example train
//! ```

use std::error::Error;
use wgpu_norm::{
    BackwardArgs, BatchNormOptions, DataFormat, ForwardArgs, GpuBatchNorm, GpuContext,
};

const SHAPE: [usize; 2] = [64, 4]; // samples and channels

fn main() -> Result<(), Box<dyn Error>> {
    pollster::block_on(train())
}

async fn train() -> Result<(), Box<dyn Error>> {
    let gpu = GpuContext::new().await?;
    let layer = GpuBatchNorm::new(&gpu, BatchNormOptions::new(DataFormat::Ncx))?;
    let src: Vec<f32> = (0..256).map(|i| (i as f32 * 0.37).sin()).collect();

    // The output to learn, that of other parameters.
    let (gamma, beta) = ([0.5, 2.0, -1.0, 3.0], [1.0, 0.0, -2.0, 0.5]);
    let args = ForwardArgs::new(&SHAPE, &src).gamma(&gamma).beta(&beta);
    let target = layer.forward(args).await?.dst;

    let (mut gamma, mut beta) = (vec![1.0; 4], vec![0.0; 4]);
    let mut losses = Vec::new();
    for step in 0..30 {
        let args = ForwardArgs::new(&SHAPE, &src).gamma(&gamma).beta(&beta);
        let output = layer.forward(args).await?;

        // The mean squared error over the samples, summed over the channels, and its gradient.
        let errors = output.dst.iter().zip(&target).map(|(y, t)| y - t);
        let errors: Vec<f32> = errors.collect();
        let loss = errors.iter().map(|e| e * e).sum::<f32>() / 64.0;
        let diff_dst: Vec<f32> = errors.iter().map(|e| 2.0 * e / 64.0).collect();

        let args = BackwardArgs::new(&SHAPE, &src, &diff_dst, &output.saved);
        let grads = layer.backward(args.gamma(&gamma).beta(&beta)).await?;
        for (params, diff) in [(&mut gamma, grads.diff_gamma), (&mut beta, grads.diff_beta)] {
            let diff = diff.unwrap_or_default();
            for (param, diff) in params.iter_mut().zip(diff) {
                *param -= 0.2 * diff;
            }
        }
        if step % 5 == 0 {
            println!("step {step:2}: loss {loss:.6}");
        }
        losses.push(loss);
    }
    println!("gamma {gamma:.3?}, beta {beta:.3?}");
    match losses.last() < losses.first() {
        true => Ok(()),
        false => Err("the loss did not go down".into()),
    }
}
