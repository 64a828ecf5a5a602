//! Whole networks have the same losses with Burn's norms and with wgpu-norm's, in each way.

#[path = "../benches/networks/blocks.rs"]
#[allow(dead_code, reason = "only the bench needs names")]
mod blocks;
mod common;
#[path = "../benches/networks/norms.rs"]
#[allow(dead_code, reason = "only the bench leaves norms out")]
mod norms;
#[path = "../benches/networks/train.rs"]
mod train;

use blocks::{Block, ConvNeXt, Dit, ResNet, Transformer, UNet};
use burn::tensor::FloatDType;
use burn_wgpu_norm::{Counts, Way, counts};
use common::{device, has, in_way, ways};
use norms::Norms;
use train::Training;

const STEPS: usize = 50;

/// The loss of each step, and the passes that were counted.
fn train<B: Block>(
    shape: [usize; 4],
    dtype: FloatDType,
    norms: Norms,
    way: Way,
) -> (Vec<f32>, Counts) {
    in_way(way, || {
        let before = counts();
        let mut training = Training::<B>::new(shape, dtype, norms, &device().autodiff());
        let losses = (0..STEPS).map(|_| training.step().into_scalar()).collect();
        device().sync().unwrap();
        let after = counts();
        let ran = Counts {
            kernels: after.kernels - before.kernels,
            submission: after.submission - before.submission,
            burn: after.burn - before.burn,
        };
        (losses, ran)
    })
}

/// Both kinds of norms and both ways, with each element type.
fn agree<B: Block>(shape: [usize; 4]) {
    let fused = if B::FUSED { Norms::Fused } else { Norms::Ours };
    for (dtype, tolerance, norms) in [
        (FloatDType::F32, 1e-3, [Norms::Ours, fused]),
        (FloatDType::F16, 2e-2, [fused, Norms::Ours]),
    ] {
        if !has(dtype) {
            continue;
        }
        let (want, _) = train::<B>(shape, dtype, Norms::Burns, Way::Burn);
        assert!(want[STEPS - 1] < 0.9 * want[0], "Burn's learns: {want:?}");
        for (norms, &way) in norms.into_iter().zip(ways()) {
            let (got, ran) = train::<B>(shape, dtype, norms, way);
            let mut expected = Counts::default();
            // Forward and backward.
            let passes = 2 * B::NORMS * STEPS as u64;
            match way {
                Way::Kernels => expected.kernels = passes,
                _ => expected.submission = passes,
            }
            assert_eq!(ran, expected, "{dtype:?}, {norms:?}, {way:?}");
            for (step, (got, want)) in got.iter().zip(&want).enumerate() {
                assert!(
                    (got - want).abs() <= tolerance * want,
                    "{dtype:?}, {norms:?}, {way:?}, step {step}: {got} for {want}"
                );
            }
        }
    }
}

#[test]
fn resnet() {
    agree::<ResNet>([2, 4, 6, 6]);
}

#[test]
fn convnext() {
    agree::<ConvNeXt>([2, 8, 6, 6]);
}

#[test]
fn transformer() {
    agree::<Transformer>([2, 1, 6, 16]);
}

#[test]
fn dit() {
    agree::<Dit>([2, 1, 6, 16]);
}

#[test]
fn unet() {
    agree::<UNet>([2, 8, 6, 6]);
}
