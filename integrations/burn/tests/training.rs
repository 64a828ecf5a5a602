//! A network that learns digits has the same losses with Burn's norms and with wgpu-norm's, in each way.

mod common;
#[path = "../examples/digits/train.rs"]
mod train;

use burn::module::Module;
use burn_wgpu_norm::{Way, counts};
use common::{device, in_way, ways};
use train::{burns, ours, train, weights};

const STEPS: usize = 50;

#[test]
fn losses_are_those_of_burns_own_norms() {
    let device = device().autodiff();
    let weights = weights(&device);
    let bytes = weights.into_bytes().unwrap();
    let record = || burn::store::ModuleRecord::from_bytes(bytes.clone()).unwrap();
    let (want, _) = in_way(Way::Burn, || {
        train(
            burns::Net::new(&device).load_record(record()),
            &device,
            STEPS,
        )
    });
    assert!(want[STEPS - 1] < want[0] / 3.0, "Burn's learns: {want:?}");
    for &way in ways() {
        let before = counts();
        let (got, _) = in_way(way, || {
            train(
                ours::Net::new(&device).load_record(record()),
                &device,
                STEPS,
            )
        });
        let after = counts();
        let ran = match way {
            Way::Kernels => after.kernels - before.kernels,
            _ => after.submission - before.submission,
        };
        // Three norms, forward and backward.
        assert_eq!(ran, 6 * STEPS as u64, "{way:?}");
        assert_eq!(after.burn, before.burn);
        for (step, (got, want)) in got.iter().zip(&want).enumerate() {
            assert!(
                (got - want).abs() <= 1e-3,
                "{way:?} step {step}: {got} for {want}"
            );
        }
    }
}
