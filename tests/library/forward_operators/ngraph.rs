//! nGraph's operators.

use super::*;
use wgpu_norm::operators::ngraph::*;

fn check<T: ParamOf<T>>() {
    let layer = Layer::<T, T>::random(&[3, 5, 7], 5, 6);
    let norm = Norm::batch(DataFormat::Ncx);
    let want = |pass: Pass| layer.compute(norm.clone(), pass, (true, true), &[]);
    let (trained, inferred) = (want(Forward::default().into()), want(Pass::Inference));
    let epsilon = EPSILON.into();
    for subject in taking::<T>() {
        let what = format!("{} on {}", T::DTYPE, subject.name);
        let inputs = TrainingInputs {
            shape: &layer.shape,
            input: &layer.src,
            gamma: &layer.gamma,
            beta: &layer.beta,
        };
        let op = BatchNormTraining { epsilon };
        let got = block_on(op.forward(&subject.gpu, inputs)).unwrap();
        close(&got.normalized, &trained, Tensor::Dst, &what);
        close(&got.batch_mean, &trained, Tensor::Mean, &what);
        close(&got.batch_variance, &trained, Tensor::Variance, &what);
        let inputs = InferenceInputs {
            shape: &layer.shape,
            input: &layer.src,
            gamma: &layer.gamma,
            beta: &layer.beta,
            mean: &layer.mean,
            variance: &layer.variance,
        };
        let op = BatchNormInference { epsilon };
        let got = block_on(op.forward(&subject.gpu, inputs)).unwrap();
        close(&got, &inferred, Tensor::Dst, &what);
    }
}

#[test]
fn as_the_reference() {
    check::<f32>();
    check::<f16>();
    check::<f64>();
}

#[test]
fn plans_and_errors() {
    let gpu = &subjects()[0].gpu;
    let op = BatchNormTraining { epsilon: 1e-5 };
    let operation = op.operation::<f16>(&[2, 3, 4]);
    let size_of = |tensor| size(&operation, tensor);
    assert_eq!(size_of(Tensor::Src), Some(48));
    assert_eq!(
        (size_of(Tensor::Gamma), size_of(Tensor::Beta)),
        (Some(8), Some(8))
    );
    assert_eq!(
        (size_of(Tensor::RunningMean), size_of(Tensor::Mean)),
        (None, Some(8))
    );
    let inference = BatchNormInference { epsilon: 1e-5 };
    let operation = inference.operation::<f32>(&[2, 3, 4]);
    let size_of = |tensor| size(&operation, tensor);
    assert_eq!(
        (size_of(Tensor::Dst), size_of(Tensor::Variance)),
        (Some(96), Some(12))
    );
    let inputs = TrainingInputs {
        shape: &[2, 3],
        input: &[1.0_f32; 6],
        gamma: &[1.0; 3],
        beta: &[1.0; 2],
    };
    is_length(block_on(op.forward(gpu, inputs)), "beta", 3, 2);
    let zero = BatchNormInference { epsilon: 0.0 };
    let error = zero.operation::<f32>(&[2, 3]).unwrap_err();
    assert!(matches!(error, Error::Epsilon { got: 0.0, .. }), "{error}");
}
