//! Layers print like Burn's; configs and layers convert to Burn's.

use burn::nn::{self, norm};
use burn::tensor::{Device, Tensor};
use burn_wgpu_norm::nn as ours;

#[test]
fn layers_print_as_burns() {
    let device = Device::flex();
    macro_rules! check {
        ($config:ident ( $($argument:expr),* )) => {
            let mine = ours::$config::new($($argument),*).init(&device);
            let burns = nn::$config::new($($argument),*).init(&device);
            assert_eq!(mine.to_string(), burns.to_string());
            assert!(mine.to_string().contains("epsilon"), "{mine}");
        };
    }
    check!(BatchNormConfig(6));
    check!(LayerNormConfig(3));
    check!(RmsNormConfig(3));
    check!(GroupNormConfig(2, 6));
    check!(InstanceNormConfig(6));
    macro_rules! check_but_name {
        ($mine:expr, $name:literal, $burns:expr, $burns_name:literal) => {
            let text = $mine.to_string();
            let text = text.replacen($name, $burns_name, 1);
            assert_eq!(text, $burns.to_string());
        };
    }
    let mine = ours::BatchNormConfig::new(6).init_relu(&device);
    let burns = nn::BatchNormConfig::new(6).init(&device);
    check_but_name!(mine, "BatchNormRelu", burns, "BatchNorm");
    let mine = ours::LayerNorm2dConfig::new(3).init(&device);
    let burns = nn::LayerNormConfig::new(3).init(&device);
    check_but_name!(mine, "LayerNorm2d", burns, "LayerNorm");
}

#[test]
fn a_normalization_turns_into_burns() {
    let device = Device::flex();
    let configs = [
        ours::NormalizationConfig::Identity,
        ours::BatchNormConfig::new(1).into(),
        ours::GroupNormConfig::new(2, 2).into(),
        ours::InstanceNormConfig::new(1).into(),
        ours::LayerNormConfig::new(1).with_epsilon(0.5).into(),
        ours::RmsNormConfig::new(1).into(),
    ];
    for config in configs {
        let config = config.with_num_features(4);
        let burns = norm::NormalizationConfig::from(config.clone());
        assert_eq!(config.num_features(), burns.num_features());
        let mine = config.init(&device);
        assert_eq!(mine.num_features(), config.num_features());
        // An identity, and layers with as many channels as the last axis is long.
        let src = Tensor::<3>::from_floats(
            [[
                [0.5, 2.0, -1.0, 3.0],
                [1.0, -4.0, 0.0, 2.5],
                [3.0, 1.0, 1.5, 0.0],
                [7.0, -2.0, 1.0, 0.5],
            ]],
            &device,
        );
        let want = burns.init(&device).forward(src.clone()).into_data();
        let turned = norm::Normalization::from(mine.clone());
        assert_eq!(mine.forward(src.clone()).into_data(), want, "{config}");
        assert_eq!(turned.forward(src).into_data(), want, "{config}");
    }
}
