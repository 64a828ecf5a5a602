//! A device that the program creates itself.

use burn::tensor::{Device, DeviceKind, Tensor};
use burn_wgpu_norm::nn::RmsNormConfig;
use burn_wgpu_norm::{Way, counts, force, register};

#[test]
fn a_device_is_registered() {
    let options = Device::wgpu_options().device_kind(DeviceKind::DefaultDevice);
    let (device, setup) = options.init_with_setup().unwrap();
    let error = register(&Device::flex(), &setup).unwrap_err();
    assert!(error.to_string().contains("expected one of wgpu's"));
    register(&device, &setup).unwrap();
    force(Some(Way::Submission));
    let src = Tensor::<2>::ones([3, 8], &device);
    let dst = RmsNormConfig::new(8).init(&device).forward(src);
    assert_eq!(dst.into_data().try_to_vec::<f32>().unwrap().len(), 24);
    assert_eq!(counts().submission, 1);
}
