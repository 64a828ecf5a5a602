//! Parameters as a value, and their files.

use crate::common::errors::says;
use crate::common::{one, subjects};
use half::{bf16, f16};
use pollster::block_on;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use wgpu_norm::{
    BackwardArgs, BatchNormOptions, DataFormat, ForwardArgs, GpuBatchNorm, GpuRmsNorm,
    InferenceArgs, Parameters, RmsNormOptions, RunningStatistics, RunningUpdate, RunningVariance,
};

const UPDATE: RunningUpdate = RunningUpdate::new(0.25, RunningVariance::Unbiased);

/// A layer takes them as it takes the slices.
#[test]
fn they_are_the_slices() {
    let (shape, src) = (
        [2, 2, 2],
        [1.0, 2.0, -3.0, 5.0, 0.5, 1.5, 7.0, -1.0].map(bf16::from_f32),
    );
    for subject in subjects() {
        let layer =
            GpuBatchNorm::new(&subject.gpu, BatchNormOptions::new(DataFormat::Ncx)).unwrap();
        let mut parameters = Parameters::<f32>::new(2).with_running(UPDATE);
        parameters.gamma = Some(vec![2.0, -1.0]);
        let (gamma, beta) = (parameters.gamma.clone().unwrap(), [0.0_f32; 2]);
        let (mut mean, mut variance) = ([0.0; 2], [1.0; 2]);
        for batches in 1..3 {
            let args = ForwardArgs::new(&shape, &src).parameters(&mut parameters);
            let got = block_on(layer.forward(args)).unwrap();
            let running = RunningStatistics::new(&mut mean, &mut variance, UPDATE);
            let args = ForwardArgs::new(&shape, &src).gamma(&gamma).beta(&beta);
            let want = block_on(layer.forward(args.running(running))).unwrap();
            assert_eq!(got, want, "{}", subject.name);
            let running = parameters.running.as_ref().unwrap();
            assert_eq!(
                (&running.mean[..], &running.variance[..]),
                (&mean[..], &variance[..])
            );
            assert_eq!(running.batches, batches);
            let args = BackwardArgs::new(&shape, &src, &src, &got.saved);
            let grads = block_on(layer.backward(args.parameters(&parameters))).unwrap();
            let want = block_on(layer.backward(args.gamma(&gamma).beta(&beta))).unwrap();
            assert_eq!(grads, want, "{}", subject.name);
        }
        let args = InferenceArgs::by_parameters(&shape, &src, &parameters);
        let got = block_on(layer.infer(args)).unwrap();
        let statistics = wgpu_norm::SavedRef::moments(&mean, &variance);
        let args = InferenceArgs::new(&shape, &src, statistics)
            .gamma(&gamma)
            .beta(&beta);
        assert_eq!(
            got,
            block_on(layer.infer(args)).unwrap(),
            "{}",
            subject.name
        );

        let layer = GpuRmsNorm::new(&subject.gpu, RmsNormOptions::new(-1)).unwrap();
        let mut parameters = Parameters::<bf16>::new(2).without_beta();
        let args = ForwardArgs::new(&shape, &src).parameters(&mut parameters);
        let output = block_on(layer.forward(args)).unwrap();
        let args = BackwardArgs::new(&shape, &src, &src, &output.saved).parameters(&parameters);
        let grads = block_on(layer.backward(args)).unwrap();
        assert_eq!(grads.diff_gamma.map(|diff| diff.len()), Some(2));
    }
}

#[test]
fn without_running_statistics_there_is_no_inference() {
    let gpu = &subjects()[0].gpu;
    let layer = GpuBatchNorm::new(gpu, BatchNormOptions::new(DataFormat::Ncx)).unwrap();
    let parameters = Parameters::<f32>::new(2);
    let args = InferenceArgs::by_parameters(&[1, 2], &[1.0, 2.0], &parameters);
    says(
        &block_on(layer.infer(args)).unwrap_err(),
        &["mean", "no running statistics"],
    );
}

#[test]
fn a_file_has_pytorchs_names() {
    let mut first =
        Parameters::<f16>::new(3).with_running(RunningUpdate::new(0.1, RunningVariance::Unbiased));
    let running = first.running.as_mut().unwrap();
    (running.mean, running.batches) = (vec![0.1, 0.2, 1e9], 7);
    let second = Parameters::<f16>::new(2).without_beta();
    assert_eq!(first.tensors("a.bn.").unwrap()[0].0, "a.bn.weight");
    let tensors = first.tensors("a.bn").unwrap().into_iter();
    let tensors = tensors.chain(second.tensors("").unwrap());
    let bytes = safetensors::serialize(tensors, None).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut names = file.names();
    names.sort_unstable();
    let want = [
        "a.bn.bias",
        "a.bn.num_batches_tracked",
        "a.bn.running_mean",
        "a.bn.running_var",
        "a.bn.weight",
        "weight",
    ];
    assert_eq!(names, want);
    assert_eq!(Parameters::load(&file, "a.bn").unwrap(), first);
    assert_eq!(Parameters::load(&file, "").unwrap(), second);
    // In another type.
    let wide: Parameters<f32, f64> = Parameters::load(&file, "a.bn").unwrap();
    assert_eq!(wide.gamma.as_deref(), Some(&[1.0_f32; 3][..]));
    assert_eq!(wide.running.unwrap().mean[0], f64::from(0.1_f32));
}

#[test]
fn what_a_file_lacks_is_named() {
    let ones = [1.0_f32; 2].map(f32::to_le_bytes).concat();
    let load = |name: &str, dtype, shape: &[usize], bytes: &[u8]| {
        let view = TensorView::new(dtype, shape.to_vec(), bytes).unwrap();
        let bytes = safetensors::serialize([(name, view)], None).unwrap();
        Parameters::<f32>::load(&SafeTensors::deserialize(&bytes).unwrap(), "norm").unwrap_err()
    };
    let error = load("other.weight", Dtype::F32, &[2], &ones);
    says(&error, &["norm.weight", "other.weight"]);
    let error = load("norm.running_var", Dtype::F32, &[2], &ones);
    says(&error, &["norm.running_mean"]);
    let error = load("norm.weight", Dtype::I32, &[2], &ones);
    says(&error, &["norm.weight of floating-point numbers", "I32"]);
}

/// After a residual before the layer, the gradient is that of the sum: src alone would give wrong numbers.
#[test]
fn a_gradient_takes_the_sum_that_was_normalized() {
    let gpu = &one(false).gpu;
    let layer = GpuRmsNorm::new(gpu, RmsNormOptions::new(-1)).unwrap();
    let (src, residual) = ([1.0_f32, 1.0, 0.0, -1.0], [0.0, 0.5, 2.0, -1.0]);
    let args = ForwardArgs::new(&[2, 2], &src).residual_before(&residual);
    let output = block_on(layer.forward(args)).unwrap();
    let backward = |src: &[f32]| {
        block_on(layer.backward(BackwardArgs::new(&[2, 2], src, &[1.0; 4], &output.saved)))
    };
    let error = backward(&src).unwrap_err().to_string();
    let message = "src: expected the forward pass's `sum`, since a residual was added before the layer, got another tensor";
    assert_eq!(error, message);
    assert!(backward(&output.sum.unwrap()).is_ok());
}

#[test]
fn a_gamma_stored_less_one_begins_with_zeros() {
    let parameters = Parameters::<f32>::new(3).zero_centered();
    assert_eq!(parameters.gamma, Some(vec![0.0; 3]));
    assert_eq!(parameters.beta, Some(vec![0.0; 3]));
}
