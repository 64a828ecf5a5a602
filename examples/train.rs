//! The least training loop: a batch norm learns the gamma and beta that another layer has. What it has learned is saved
//! to a file with PyTorch's names, and loaded again.
//!
//! ```sh
//! cargo run --example train
//! ```

use safetensors::SafeTensors;
use std::error::Error;
use wgpu_norm::{
    BackwardArgs, BatchNormOptions, DataFormat, ForwardArgs, GpuBatchNorm, GpuContext,
    InferenceArgs, Parameters, RunningUpdate, RunningVariance,
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

    let update = RunningUpdate::new(0.1, RunningVariance::Unbiased);
    let mut parameters: Parameters<f32> = Parameters::new(4).with_running(update);
    let mut losses = Vec::new();
    for step in 0..30 {
        let args = ForwardArgs::new(&SHAPE, &src).parameters(&mut parameters);
        let output = layer.forward(args).await?;

        // The mean squared error over the samples, summed over the channels, and its gradient.
        let errors = output.dst.iter().zip(&target).map(|(y, t)| y - t);
        let errors: Vec<f32> = errors.collect();
        let loss = errors.iter().map(|e| e * e).sum::<f32>() / 64.0;
        let diff_dst: Vec<f32> = errors.iter().map(|e| 2.0 * e / 64.0).collect();

        let args = BackwardArgs::new(&SHAPE, &src, &diff_dst, &output.saved);
        let grads = layer.backward(args.parameters(&parameters)).await?;
        let (gamma, beta) = (&mut parameters.gamma, &mut parameters.beta);
        for (params, diff) in [(gamma, grads.diff_gamma), (beta, grads.diff_beta)] {
            let pairs = params.iter_mut().flatten().zip(diff.into_iter().flatten());
            pairs.for_each(|(param, diff)| *param -= 0.2 * diff);
        }
        if step % 5 == 0 {
            println!("step {step:2}: loss {loss:.6}");
        }
        losses.push(loss);
    }
    println!(
        "gamma {:.3?}, beta {:.3?}",
        parameters.gamma, parameters.beta
    );

    // The tensors of all layers of a network go into one file.
    let file = std::env::temp_dir().join("wgpu-norm-train.safetensors");
    std::fs::write(
        &file,
        safetensors::serialize(parameters.tensors("bn1")?, None)?,
    )?;
    let bytes = std::fs::read(&file)?;
    let loaded = Parameters::load(&SafeTensors::deserialize(&bytes)?, "bn1")?;
    println!("saved and loaded: {}", file.display());
    assert_eq!(loaded, parameters);

    // By the running statistics, so that an output depends on its own sample alone.
    let args = InferenceArgs::by_parameters(&SHAPE, &src, &loaded);
    println!("the first sample: {:.3?}", &layer.infer(args).await?[..4]);
    match losses.last() < losses.first() {
        true => Ok(()),
        false => Err("the loss did not go down".into()),
    }
}
