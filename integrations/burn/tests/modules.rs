//! Records, inference, devices, threads and memory.

mod common;

use burn::backend::DispatchDevice;
use burn::module::Module;
use burn::nn;
use burn::store::ModuleRecord;
use burn::tensor::activation::relu;
use burn::tensor::{Device, FloatDType, Tensor};
use burn_wgpu_norm::nn as ours;
use burn_wgpu_norm::{Way, counts, way};
use common::{device, in_way, spread, ways, within};
use cubecl::MemoryScope;
use std::sync::atomic::{AtomicUsize, Ordering};

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    let data = tensor.cast(FloatDType::F32).into_data();
    let values = data.try_to_vec::<f32>().unwrap();
    values.into_iter().map(f64::from).collect()
}

/// Different numbers each time.
fn random(device: &Device) -> Tensor<4> {
    static SEED: AtomicUsize = AtomicUsize::new(0);
    spread([4, 6, 5, 3], SEED.fetch_add(1, Ordering::Relaxed), device)
}

/// A record is written by one layer and read by the other, in both directions; then both give the same output.
macro_rules! records {
    ($name:ident, $config:ident ( $($argument:expr),* ), $init:ident) => {
        #[test]
        fn $name() {
            let device = device();
            let src = random(&device);
            let train = random(&device.clone().autodiff());
            let training = device.clone().autodiff();
            for &way in ways() {
                in_way(way, || {
                    let burns = nn::$config::new($($argument),*).init(&training);
                    burns.forward(train.clone() * 2.0);
                    // Running statistics are in a record only after they were read: `valid` reads them.
                    let want = relu(burns.valid().forward(src.clone()));
                    let bytes = burns.clone().into_record().into_bytes().unwrap();
                    let mine = ours::$config::new($($argument),*).$init(&training);
                    let mine = mine.load_record(ModuleRecord::from_bytes(bytes).unwrap());
                    let got = relu(mine.valid().forward(src.clone()));
                    within("by Burn's record", &floats(got), &floats(want), FloatDType::F32);

                    mine.forward(train.clone() - 3.0);
                    let got = relu(mine.valid().forward(src.clone()));
                    let bytes = mine.clone().into_record().into_bytes().unwrap();
                    let burns = nn::$config::new($($argument),*).init(&training);
                    let burns = burns.load_record(ModuleRecord::from_bytes(bytes).unwrap());
                    let want = relu(burns.valid().forward(src.clone()));
                    within("by our record", &floats(got), &floats(want), FloatDType::F32);
                });
            }
        }
    };
}

records!(batch_norm_records, BatchNormConfig(6), init);
records!(batch_norm_with_relu_records, BatchNormConfig(6), init_relu);
records!(layer_norm_records, LayerNormConfig(3), init);
records!(rms_norm_records, RmsNormConfig(3), init);
records!(group_norm_records, GroupNormConfig(2, 6), init);
records!(instance_norm_records, InstanceNormConfig(6), init);

#[test]
fn layer_norm_2d_has_the_records_of_burns_layer_norm() {
    let device = device();
    let src = random(&device);
    let mut burns = nn::LayerNormConfig::new(6).init(&device);
    burns.gamma = burns.gamma.map(|_| spread([6], 5, &device));
    burns.beta = burns.beta.map(|beta| beta.map(|_| spread([6], 6, &device)));
    let bytes = burns.clone().into_record().into_bytes().unwrap();
    let mine = ours::LayerNorm2dConfig::new(6).init(&device);
    let mine = mine.load_record(ModuleRecord::from_bytes(bytes).unwrap());
    let run = |layer: &nn::LayerNorm| {
        let last = src.clone().permute([0, 2, 3, 1]);
        floats(layer.forward(last).permute([0, 3, 1, 2]))
    };
    in_way(Way::Kernels, || {
        let got = floats(mine.forward(src.clone()));
        within("by Burn's record", &got, &run(&burns), FloatDType::F32);
        let bytes = mine.into_record().into_bytes().unwrap();
        let other = nn::LayerNormConfig::new(6).init(&device);
        let other = other.load_record(ModuleRecord::from_bytes(bytes).unwrap());
        within("by our record", &run(&other), &got, FloatDType::F32);
    });
}

#[test]
fn adaptive_layers_have_no_parameters() {
    assert_eq!(ours::AdaLayerNormConfig::new(6).init().num_params(), 0);
    assert_eq!(ours::AdaGroupNormConfig::new(2, 6).init().num_params(), 0);
}

#[test]
fn running_statistics_are_burns() {
    let device = device().autodiff();
    in_way(Way::Kernels, || {
        let burns = nn::BatchNormConfig::new(6).with_momentum(0.3).init(&device);
        let mine = ours::BatchNormConfig::new(6)
            .with_momentum(0.3)
            .init(&device);
        for _ in 0..3 {
            let src = random(&device);
            burns.forward(src.clone());
            mine.forward(src);
        }
        for (mine, burns) in [
            (&mine.running_mean, &burns.running_mean),
            (&mine.running_var, &burns.running_var),
        ] {
            let (mine, burns) = (mine.value_sync(), burns.value_sync());
            within("running", &floats(mine), &floats(burns), FloatDType::F32);
        }
    });
}

#[test]
fn what_follows_batch_norm_by_running_statistics() {
    let device = device();
    let training = device.clone().autodiff();
    let norm = ours::BatchNormConfig::new(6).init(&training);
    for &way in ways() {
        in_way(way, || {
            norm.forward(random(&training));
            let (src, residual) = (random(&device), random(&device));
            let burns = nn::BatchNorm::from(norm.valid());
            let with_relu = ours::BatchNormRelu::from(norm.valid());
            let want = relu(burns.forward(src.clone()));
            let got = with_relu.forward(src.clone());
            within("relu", &floats(got), &floats(want), FloatDType::F32);
            let with_both = ours::BatchNormAddRelu::from(norm.valid());
            let want = relu(burns.forward(src.clone()) + residual.clone());
            let got = with_both.forward(src, residual);
            within("residual", &floats(got), &floats(want), FloatDType::F32);
        });
    }
}

#[test]
fn a_frozen_batch_norm_takes_its_running_statistics() {
    let device = device().autodiff();
    in_way(Way::Kernels, || {
        let mine = ours::BatchNormConfig::new(6).init(&device).freeze();
        let burns = nn::BatchNorm::from(mine.clone());
        let src = random(&device).require_grad();
        let got = mine.forward(src.clone());
        let want = burns.forward(src.clone());
        within("dst", &floats(got.clone()), &floats(want), FloatDType::F32);
        let grads = got.sum().backward();
        assert!(src.grad(&grads).is_some());
    });
}

#[test]
fn elsewhere_burn_runs_its_own() {
    let cpu = Device::flex().autodiff();
    assert_eq!(way(&cpu), Way::Burn);
    in_way(Way::Kernels, || {
        let before = counts();
        let src = spread([4, 6, 5, 3], 4, &cpu);
        let mine = ours::BatchNormConfig::new(6).init(&cpu);
        let burns = nn::BatchNormConfig::new(6).init(&cpu);
        let got = floats(mine.forward(src.clone()));
        let want = floats(burns.forward(src));
        assert_eq!(got, want);
        let after = counts();
        assert_eq!(after.burn, before.burn + 1);
        assert_eq!(after.kernels, before.kernels);
    });
}

#[test]
fn gradient_checkpointing() {
    let plain = device().autodiff();
    let balanced = device().autodiff().gradient_checkpointing();
    let src = floats(random(&device()));
    let run = |device: &Device| {
        let src: Vec<f32> = src.iter().map(|&v| v as f32).collect();
        let data = burn::tensor::TensorData::new(src, [4, 6, 5, 3]);
        let src = Tensor::<4>::from_data(data, device).require_grad();
        let layer = ours::BatchNormConfig::new(6).init(device);
        let dst = layer.forward(src.clone() * 2.0 - 0.5);
        let grads = (dst.clone() * dst).exp().sum().backward();
        floats(src.grad(&grads).unwrap())
    };
    for &way in ways() {
        in_way(way, || {
            let what = format!("{way:?}");
            within(&what, &run(&balanced), &run(&plain), FloatDType::F32);
        });
    }
}

#[test]
fn threads_share_a_device() {
    let device = device().autodiff();
    let src: Vec<f32> = floats(random(&device)).iter().map(|&v| v as f32).collect();
    let run = || {
        let data = burn::tensor::TensorData::new(src.clone(), [4, 6, 5, 3]);
        let src = Tensor::<4>::from_data(data, &device).require_grad();
        let layer = ours::GroupNormConfig::new(2, 6).init(&device);
        let dst = layer.forward(src.clone() + 1.0);
        let grads = dst.powi_scalar(3).sum().backward();
        floats(src.grad(&grads).unwrap())
    };
    for &way in ways() {
        in_way(way, || {
            let want = run();
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..3)
                    .map(|_| scope.spawn(|| (0..20).all(|_| run() == want)))
                    .collect();
                for thread in threads {
                    assert!(thread.join().unwrap(), "{way:?}");
                }
            });
        });
    }
}

/// The number of bytes of the device's memory that are in use.
fn in_use(device: &Device) -> u64 {
    device.sync().unwrap();
    match device.as_dispatch().clone().inner() {
        DispatchDevice::Cube(device) => {
            let report = device.client().memory_report(MemoryScope::Device);
            report.usage().bytes_in_use
        }
        _ => panic!("{device:?}"),
    }
}

#[test]
fn nothing_is_held_after_a_step() {
    let device = device().autodiff();
    let layer = ours::BatchNormConfig::new(6).init(&device);
    let step = || {
        let src = random(&device).require_grad();
        let grads = layer.forward(src.clone()).powi_scalar(2).sum().backward();
        floats(src.grad(&grads).unwrap())
    };
    for &way in ways() {
        in_way(way, || {
            step();
            let before = in_use(&device);
            for _ in 0..20 {
                step();
            }
            let after = in_use(&device);
            // A tensor of src's size is 1440 bytes.
            assert!(
                after <= before + 1440,
                "{way:?}: {before}, then {after} bytes"
            );
        });
    }
}
