//! A small convolutional network learns handwritten digits with Burn, once with Burn's normalization layers and once
//! with wgpu-norm's, from the same initial weights and with the same images in the same order.
//!
//! ```sh
//! cargo run --release --example digits                       # 100 steps each
//! cargo run --release --example digits -- --steps 20 out.svg # fewer steps, and the path of the picture
//! ```
//!
//! Prints the time of a step with each, and the largest difference between their losses; writes both loss curves as a
//! picture.
//! `net.rs` is the network, `train.rs` the training.

mod plot;
mod train;

use burn::module::Module;
use burn::store::ModuleRecord;
use burn_wgpu_norm::counts;
use std::error::Error;
use std::path::PathBuf;
use train::{burns, ours, weights};

fn main() -> Result<(), Box<dyn Error>> {
    let (steps, picture) = arguments()?;
    let device = burn_wgpu_norm::init()?.autodiff();
    println!(
        "{:?}: layers run by {:?}",
        device,
        burn_wgpu_norm::way(&device)
    );
    let weights = weights(&device).into_bytes()?;
    let record = || ModuleRecord::from_bytes(weights.clone());
    let net = burns::Net::new(&device).load_record(record()?);
    let (burns, burns_time) = train::train(net, &device, steps);
    let net = ours::Net::new(&device).load_record(record()?);
    let (ours, ours_time) = train::train(net, &device, steps);

    let per_step = |time: std::time::Duration| {
        time.as_secs_f64() * 1e3 / steps.saturating_sub(2).max(1) as f64
    };
    println!("Burn's norms:     {:8.2} ms a step", per_step(burns_time));
    println!("wgpu-norm's:      {:8.2} ms a step", per_step(ours_time));
    let pairs = burns.iter().zip(&ours);
    let largest = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    println!("largest difference of losses: {largest:.1e}");
    println!("{:?}", counts());
    std::fs::write(
        &picture,
        plot::svg(&[("Burn's norms", &burns), ("wgpu-norm's", &ours)]),
    )?;
    println!("loss curves: {}", picture.display());
    Ok(())
}

fn arguments() -> Result<(usize, PathBuf), Box<dyn Error>> {
    let mut steps = 100;
    let mut picture = PathBuf::from("digits.svg");
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--steps" => {
                steps = arguments
                    .next()
                    .ok_or("--steps: expected a number")?
                    .parse()?
            }
            _ => picture = argument.into(),
        }
    }
    Ok((steps, picture))
}
