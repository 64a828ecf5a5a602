//! Tensors of one layer that differ: some on an autodiff device and some not; of several element types; empty ones; and
//! a layer whose fields do not fit together. The layers must do as burn::nn does.

mod common;

use burn::module::Module;
use burn::nn;
use burn::tensor::activation::relu;
use burn::tensor::{Device, FloatDType, Tensor};
use burn_wgpu_norm::nn as ours;
use burn_wgpu_norm::{Way, counts};
use common::{device, has, in_way, spread, ways, within};
use std::panic::{AssertUnwindSafe, catch_unwind};

const SHAPE: [usize; 4] = [4, 6, 5, 3];

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    let data = tensor.cast(FloatDType::F32).into_data();
    let values = data.try_to_vec::<f32>().unwrap();
    values.into_iter().map(f64::from).collect()
}

/// The device with and without autodiff.
fn both() -> [Device; 2] {
    [device(), device().autodiff()]
}

/// The same numbers on a device, tracked where that can be.
fn on<const D: usize>(values: &Tensor<D>, device: &Device) -> Tensor<D> {
    let tensor = Tensor::from_data(values.to_data(), device);
    match device.is_autodiff() {
        true => tensor.require_grad(),
        false => tensor,
    }
}

/// The output, whether it is on an autodiff device, and the gradients of src and gamma, where they have any.
type Results = (Vec<f64>, bool, [Option<Vec<f64>>; 2]);

fn results<const P: usize>(src: &Tensor<4>, gamma: &Tensor<P>, dst: Tensor<4>) -> Results {
    let autodiff = dst.device().is_autodiff();
    let tracked = [src.is_require_grad(), gamma.is_require_grad()];
    let mut gradients = [None, None];
    if tracked.contains(&true) && autodiff {
        let grads = dst.clone().powi_scalar(3).sum().backward();
        let of_src = || src.grad(&grads).map(floats);
        let of_gamma = || gamma.grad(&grads).map(floats);
        gradients = [
            tracked[0].then(of_src).flatten(),
            tracked[1].then(of_gamma).flatten(),
        ];
    }
    (floats(dst.inner()), autodiff, gradients)
}

fn same(what: &str, got: Results, want: Results) {
    within(what, &got.0, &want.0, FloatDType::F32);
    assert_eq!(got.1, want.1, "{what}: autodiff");
    for (got, want) in got.2.iter().zip(&want.2) {
        assert_eq!(got.is_some(), want.is_some(), "{what}: gradients");
        if let (Some(got), Some(want)) = (got, want) {
            within(what, got, want, FloatDType::F32);
        }
    }
}

#[test]
fn layers_and_inputs_on_autodiff_devices_and_not() {
    let values = spread(SHAPE, 2, &device());
    macro_rules! check {
        ($layer:ident, $config:ident ( $($argument:expr),* ), $gamma:expr, $burn_runs:expr) => {
            for of_layer in both() {
                for of_src in both() {
                    let what = format!(
                        "{} autodiff {}, src {}",
                        stringify!($layer),
                        of_layer.is_autodiff(),
                        of_src.is_autodiff()
                    );
                    let mine = ours::$config::new($($argument),*).init(&of_layer);
                    let burns = nn::$layer::from(mine.clone());
                    let mut trained = false;
                    // Twice: the second time batch norm finds running statistics of the other kind.
                    for src in [&of_src, &device()].map(|device| on(&values, device)) {
                        let gamma = $gamma(&mine);
                        let before = counts();
                        let got = results(&src, &gamma, mine.forward(src.clone()));
                        let trains = src.device().is_autodiff();
                        let by_burn = !trains && (of_layer.is_autodiff() || trained) && $burn_runs;
                        assert_eq!(counts().burn - before.burn, u64::from(by_burn), "{what}");
                        trained |= trains;
                        let want = results(&src, &gamma, burns.forward(src.clone()));
                        same(&what, got, want);
                    }
                }
            }
        };
    }
    for &way in ways() {
        in_way(way, || {
            // With running statistics, Burn runs the pass if anything is on an autodiff device.
            check!(
                BatchNorm,
                BatchNormConfig(6),
                |l: &ours::BatchNorm| l.gamma.val(),
                true
            );
            check!(
                LayerNorm,
                LayerNormConfig(3),
                |l: &ours::LayerNorm| l.gamma.val(),
                false
            );
            check!(
                RmsNorm,
                RmsNormConfig(3),
                |l: &ours::RmsNorm| l.gamma.val(),
                false
            );
            let gamma = |l: &ours::GroupNorm| l.gamma.as_ref().unwrap().val();
            check!(GroupNorm, GroupNormConfig(2, 6), gamma, false);
            let gamma = |l: &ours::InstanceNorm| l.gamma.as_ref().unwrap().val();
            check!(InstanceNorm, InstanceNormConfig(6), gamma, false);
        });
    }
}

#[test]
fn residuals_on_autodiff_devices_and_not() {
    let values = spread(SHAPE, 2, &device());
    in_way(Way::Kernels, || {
        for of_layer in both() {
            for of_src in both() {
                for of_residual in both() {
                    let devices = [&of_layer, &of_src, &of_residual];
                    let what = format!("autodiff {:?}", devices.map(Device::is_autodiff));
                    let mine = ours::BatchNormConfig::new(6).init_add_relu(&of_layer);
                    let burns = nn::BatchNorm::from(ours::BatchNorm::from(mine.clone()));
                    let (src, residual) = (on(&values, &of_src), on(&values, &of_residual));
                    let gamma = mine.gamma.val();
                    let got = mine.forward(src.clone(), residual.clone());
                    let want = relu(burns.forward(src.clone()) + residual);
                    same(
                        &what,
                        results(&src, &gamma, got),
                        results(&src, &gamma, want),
                    );
                }
            }
        }
    });
}

#[test]
fn scale_and_shift_on_autodiff_devices_and_not() {
    let values = spread(SHAPE, 2, &device());
    let params = spread([4, 6], 3, &device());
    let layer = ours::AdaLayerNormConfig::new(3).init();
    let group = ours::AdaGroupNormConfig::new(2, 6).init();
    // The three columns that layer norm takes of them.
    let run = |way, devices: [&Device; 3], group_norm: bool| {
        in_way(way, || {
            let [src, scale, shift] = devices;
            let src = on(&values, src);
            let [scale, shift] = [scale, shift].map(|device| on(&params, device));
            let dst = match group_norm {
                true => group.forward(src.clone(), scale.clone(), shift),
                false => {
                    let [scale, shift] = [&scale, &shift].map(|p| p.clone().narrow(1, 0, 3));
                    layer.forward(src.clone(), scale, shift)
                }
            };
            results(&src, &scale, dst)
        })
    };
    for of_src in both() {
        for of_scale in both() {
            for of_shift in both() {
                let devices = [&of_src, &of_scale, &of_shift];
                for group_norm in [false, true] {
                    let autodiff = devices.map(Device::is_autodiff);
                    let what = format!("autodiff {autodiff:?}, group norm {group_norm}");
                    let want = run(Way::Burn, devices, group_norm);
                    same(&what, run(Way::Kernels, devices, group_norm), want);
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "assert_shape!(scale, [batch_size, self.d_model]): axis 0 expected 4")]
fn a_scale_for_all_samples() {
    let device = device();
    let params = Tensor::<2>::ones([1, 3], &device);
    let layer = ours::AdaLayerNormConfig::new(3).init();
    layer.forward(Tensor::<4>::ones(SHAPE, &device), params.clone(), params);
}

#[test]
#[should_panic(expected = "num_groups: expected a divisor of num_channels (6), got 4")]
fn groups_that_do_not_divide_the_channels() {
    ours::AdaGroupNormConfig::new(4, 6).init();
}

/// Asserts that Burn's operations run a layer of ours, and that it ends like Burn's own layer.
fn burn_runs(mine: impl FnOnce() -> Vec<f64>, burns: impl FnOnce() -> Vec<f64>) {
    in_way(Way::Kernels, || {
        let before = counts();
        let mine = catch_unwind(AssertUnwindSafe(mine));
        let after = counts();
        assert_eq!(after.kernels, before.kernels);
        assert_eq!(after.burn, before.burn + 1);
        let burns = catch_unwind(AssertUnwindSafe(burns));
        assert_eq!(mine.is_err(), burns.is_err());
        if let (Ok(mine), Ok(burns)) = (mine, burns) {
            within("values", &mine, &burns, FloatDType::F16);
        }
    });
}

#[test]
fn a_residual_of_another_type() {
    if !has(FloatDType::F16) {
        return;
    }
    let device = device();
    let mine = ours::BatchNormConfig::new(6).init_add_relu(&device);
    let burns = nn::BatchNorm::from(ours::BatchNorm::from(mine.clone()));
    let src = Tensor::<4>::ones(SHAPE, &device).cast(FloatDType::F16);
    let residual = Tensor::<4>::ones(SHAPE, &device);
    burn_runs(
        || floats(mine.forward(src.clone(), residual.clone())),
        || floats(relu(burns.forward(src.clone()) + residual.clone())),
    );
}

#[test]
fn scale_and_shift_of_two_types() {
    if !has(FloatDType::F16) {
        return;
    }
    let device = device();
    let src = Tensor::<4>::ones(SHAPE, &device);
    let scale = Tensor::<2>::ones([4, 3], &device);
    let shift = scale.clone().cast(FloatDType::F16);
    let layer = ours::AdaLayerNormConfig::new(3).init();
    burn_runs(
        || floats(layer.forward(src.clone(), scale.clone(), shift.clone())),
        || {
            floats(
                src.clone() * scale.clone().reshape([4, 1, 1, 3])
                    + shift.clone().reshape([4, 1, 1, 3]),
            )
        },
    );
}

#[test]
fn parameters_of_two_types() {
    if !has(FloatDType::F16) {
        return;
    }
    let device = device();
    let mut mine = ours::LayerNormConfig::new(3).init(&device);
    mine.beta = mine
        .beta
        .map(|beta| beta.map(|beta| beta.cast(FloatDType::F16)));
    let burns = nn::LayerNorm::from(mine.clone());
    let src = Tensor::<4>::ones(SHAPE, &device);
    burn_runs(
        || floats(mine.forward(src.clone())),
        || floats(burns.forward(src.clone())),
    );
}

#[test]
fn empty_batches() {
    let device = device();
    let src = Tensor::<4>::ones([0, 6, 5, 3], &device);
    let layers = (
        ours::BatchNormConfig::new(6).init(&device),
        ours::LayerNormConfig::new(3).init(&device),
        ours::RmsNormConfig::new(3).init(&device),
        ours::GroupNormConfig::new(2, 6).init(&device),
    );
    let (batch, layer, rms, group) = layers.clone();
    let (mine, burns) = (batch.clone(), nn::BatchNorm::from(batch));
    burn_runs(
        || floats(mine.forward(src.clone())),
        || floats(burns.forward(src.clone())),
    );
    let (mine, burns) = (layer.clone(), nn::LayerNorm::from(layer));
    burn_runs(
        || floats(mine.forward(src.clone())),
        || floats(burns.forward(src.clone())),
    );
    let (mine, burns) = (rms.clone(), nn::RmsNorm::from(rms));
    burn_runs(
        || floats(mine.forward(src.clone())),
        || floats(burns.forward(src.clone())),
    );
    let (mine, burns) = (group.clone(), nn::GroupNorm::from(group));
    burn_runs(
        || floats(mine.forward(src.clone())),
        || floats(burns.forward(src.clone())),
    );
}

#[test]
fn empty_batches_of_layers_that_burn_lacks() {
    let device = device();
    let src = Tensor::<4>::ones([0, 6, 5, 3], &device);
    let layer = ours::LayerNorm2dConfig::new(6).init(&device);
    burn_runs(|| floats(layer.forward(src.clone())), Vec::new);
    let params = |size| Tensor::<2>::ones([0, size], &device);
    let layer = ours::AdaLayerNormConfig::new(3).init();
    let run = || floats(layer.forward(src.clone(), params(3), params(3)));
    burn_runs(run, Vec::new);
    let layer = ours::AdaGroupNormConfig::new(2, 6).init();
    let run = || floats(layer.forward(src.clone(), params(6), params(6)));
    burn_runs(run, Vec::new);
    let (src, params) = (
        Tensor::<3>::ones([2, 6, 0], &device),
        Tensor::ones([2, 6], &device),
    );
    let run = || floats(layer.forward(src.clone(), params.clone(), params.clone()));
    burn_runs(run, Vec::new);
}

#[test]
fn parameters_of_a_layer_that_is_not_affine() {
    let device = device();
    let src = spread(SHAPE, 3, &device);
    in_way(Way::Kernels, || {
        let mut group = ours::GroupNormConfig::new(2, 6).init(&device);
        group.gamma = group.gamma.map(|gamma| gamma.map(|gamma| gamma * 5.0));
        group.affine = false;
        let mut instance = ours::InstanceNormConfig::new(6).init(&device);
        (instance.gamma, instance.affine) = (group.gamma.clone(), false);
        let before = counts();
        let got = [
            floats(group.forward(src.clone())),
            floats(instance.forward(src.clone())),
        ];
        assert_eq!(counts().kernels, before.kernels + 2);
        let want = [
            floats(nn::GroupNorm::from(group).forward(src.clone())),
            floats(nn::InstanceNorm::from(instance).forward(src.clone())),
        ];
        within("group", &got[0], &want[0], FloatDType::F32);
        within("instance", &got[1], &want[1], FloatDType::F32);
    });
}

#[test]
#[should_panic(expected = "Affine is set to true, but gamma or beta is None")]
fn an_affine_layer_without_beta() {
    let device = device();
    let mut layer = ours::GroupNormConfig::new(2, 6).init(&device);
    layer.beta = None;
    layer.forward(Tensor::<4>::ones(SHAPE, &device));
}

#[test]
fn a_valid_layer_runs_by_kernels() {
    let norm = ours::BatchNormConfig::new(6).init(&device().autodiff());
    in_way(Way::Kernels, || {
        let before = counts();
        let dst = norm.valid().forward(Tensor::<4>::ones(SHAPE, &device()));
        assert_eq!(floats(dst).len(), SHAPE.iter().product::<usize>());
        assert_eq!(counts().kernels, before.kernels + 1);
    });
}
