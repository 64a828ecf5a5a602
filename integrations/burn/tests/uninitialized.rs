//! A program without any setup, like most: every layer runs by wgpu-norm's kernels, with Burn's values.

use burn::nn;
use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use burn_wgpu_norm::nn as ours;
use burn_wgpu_norm::{Way, counts, way};

mod common;
use common::{Numbers, within};

const SHAPE: [usize; 4] = [4, 6, 9, 8];

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    let data = tensor.cast(FloatDType::F32).into_data();
    let values = data.try_to_vec::<f32>().unwrap();
    values.into_iter().map(f64::from).collect()
}

/// The output and the gradient of src.
fn results(device: &Device, dtype: FloatDType, layer: impl Fn(Tensor<4>) -> Tensor<4>) -> Vec<f64> {
    let mut numbers = Numbers::new(3);
    let values: Vec<f32> = (0..SHAPE.iter().product())
        .map(|_| numbers.next())
        .collect();
    let src = Tensor::<4>::from_data(TensorData::new(values, SHAPE), device);
    let src = src.cast(dtype).require_grad();
    let dst = layer(src.clone());
    let grads = dst.clone().powi_scalar(3).sum().backward();
    [floats(dst.inner()), floats(src.grad(&grads).unwrap())].concat()
}

#[test]
fn every_layer_runs_by_kernels() {
    let device = Device::default().autodiff();
    let exact = Device::flex().autodiff();
    if cfg!(any(feature = "vulkan", feature = "metal")) {
        // There Burn's compiler does not accept WGSL, and no context can submit.
        assert_eq!(way(&device), Way::Burn);
        return;
    }
    assert_eq!(way(&device), Way::Kernels);
    macro_rules! check {
        ($config:ident ( $($argument:expr),* )) => {
            let before = counts();
            let mine = ours::$config::new($($argument),*).init(&device);
            let got = results(&device, FloatDType::F32, |src| mine.forward(src));
            let burns = nn::$config::new($($argument),*).init(&exact);
            let want = results(&exact, FloatDType::F32, |src| burns.forward(src));
            within(stringify!($config), &got, &want, FloatDType::F32);
            let after = counts();
            assert_eq!((after.kernels, after.burn), (before.kernels + 2, before.burn));
        };
    }
    check!(BatchNormConfig(6));
    check!(LayerNormConfig(8));
    check!(RmsNormConfig(8));
    check!(GroupNormConfig(2, 6));
    check!(InstanceNormConfig(6));

    // Inference, too, without autodiff.
    let plain = Device::default();
    let src = Tensor::<4>::ones(SHAPE, &plain);
    let before = counts();
    let norm = ours::BatchNormConfig::new(6).init(&plain);
    let rms = ours::RmsNormConfig::new(8).init(&plain);
    let dst = rms.forward(norm.forward(src.clone()));
    within("inference", &floats(dst), &floats(src), FloatDType::F16);
    assert_eq!(counts().kernels, before.kernels + 2);
}
