//! Shared code of the tests.
#![allow(dead_code, reason = "not every program needs all of it")]

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
use burn_wgpu_norm::{Way, force};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The device of all tests of a program, with its handles registered.
pub fn device() -> Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    let _ = env_logger::builder().is_test(true).try_init();
    DEVICE
        .get_or_init(|| burn_wgpu_norm::init().expect("a wgpu device"))
        .clone()
}

/// Ways are forced and counted per process, so only one test at a time runs in one.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The ways that the device supports: both, if CubeCL compiles WGSL.
pub fn ways() -> &'static [Way] {
    let _turn = turn();
    force(Some(Way::Kernels));
    let way = burn_wgpu_norm::way(&device());
    force(None);
    match way {
        Way::Kernels => &[Way::Kernels, Way::Submission],
        Way::Submission => &[Way::Submission],
        Way::Burn => panic!("a device without a way"),
    }
}

/// Runs code one way, or the other if the device supports only that.
pub fn in_way<T>(way: Way, run: impl FnOnce() -> T) -> T {
    let _turn = turn();
    let device = device();
    device.sync().unwrap();
    force(Some(way));
    let result = run();
    device.sync().unwrap();
    force(None);
    result
}

/// Whether the device has an element type; in CI, a missing f16 is a failure.
pub fn has(dtype: FloatDType) -> bool {
    let has = device().supports_dtype(DType::from(dtype));
    if !has {
        let must = dtype == FloatDType::F16 && std::env::var_os("CI").is_some();
        assert!(!must, "a device without f16");
        eprintln!("skipped: {dtype:?}, which the device lacks");
    }
    has
}

/// Numbers between -1 and 1.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> f32 {
        let step = self.0.wrapping_mul(6364136223846793005);
        self.0 = step.wrapping_add(1442695040888963407);
        ((self.0 >> 40) as f32 / (1u64 << 24) as f32) * 2.0 - 1.0
    }
}

/// Numbers between -1 and 3, different for each seed. No few neighbours are all nearly equal: normalizing those would
/// amplify roundings, Burn's and ours.
pub fn spread<const D: usize>(shape: [usize; D], seed: usize, device: &Device) -> Tensor<D> {
    let elements = shape.iter().product();
    let number = |index: usize| ((37 * index + 53 * seed + index / 101) % 101) as f32 / 25.0 - 1.0;
    let values: Vec<f32> = (0..elements).map(number).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// Asserts that numbers are within rounding error for a type, relative to the largest expected number.
pub fn within(what: &str, got: &[f64], want: &[f64], dtype: FloatDType) {
    assert_eq!(got.len(), want.len(), "{what}");
    let unit = match dtype {
        FloatDType::F16 => 2f64.powi(-11),
        FloatDType::BF16 => 2f64.powi(-8),
        _ => 2f64.powi(-24),
    };
    let scale = want
        .iter()
        .fold(1e-3f64, |most, value| most.max(value.abs()));
    // Sums are in f32 whatever the type; a result is rounded a few times. This also holds for f64, as Burn computes RMS
    // norm's sums in f32 there.
    let tolerance = scale * (8.0 * unit + 64.0 * 2f64.powi(-24));
    for (index, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (got - want).abs();
        assert!(
            error <= tolerance,
            "{what} {index}: {got} for {want}, {error:e} above {tolerance:e}"
        );
    }
}
