//! The forward operators under the documents' own names: the float64 reference's numbers, small cases by hand that
//! distinguish directions of momentum and kinds of variance, the engine's plans, and errors.

mod directml;
mod ngraph;
mod onednn;
mod onnx;
mod pytorch;

use crate::common::data::{Random, close, computed, to_f64};
use crate::common::errors::says;
use crate::common::{Subject, subjects};
use half::{bf16, f16};
use pollster::block_on;
use wgpu_norm::operators::{
    directml as directml_ops, ngraph as ngraph_ops, onednn as onednn_ops, onnx as onnx_ops,
    pytorch as pytorch_ops,
};
use wgpu_norm::{
    Backward, Channels, DType, DTypes, DataFormat, Element, Error, Forward, Norm, Operation,
    ParamOf, Pass, RunningUpdate, RunningVariance, Tensor, Through,
};
use wgpu_norm_verify::reference::{Computed, compute, scaled_error};

/// Numbers by hand.
#[track_caller]
fn near(got: &[f32], want: &[f32], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (got, want) in got.iter().zip(want) {
        let near = (got - want).abs() <= 1e-5 * want.abs().max(1.0);
        assert!(near, "{what}: {got}, not {want}");
    }
}

fn taking<T: Element>() -> impl Iterator<Item = &'static Subject> {
    subjects().iter().filter(|subject| subject.takes::<T>())
}

/// A layer's tensors and the reference's results for them.
struct Layer<T, P> {
    shape: Vec<usize>,
    src: Vec<T>,
    gamma: Vec<P>,
    beta: Vec<P>,
    mean: Vec<P>,
    variance: Vec<P>,
}

const EPSILON: f32 = 1.0 / 1024.0;

impl<T: Element, P: ParamOf<T>> Layer<T, P> {
    fn random(shape: &[usize], params: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        Self {
            shape: shape.to_vec(),
            src: random.vec(shape.iter().product(), 2.0, 3.0),
            gamma: random.vec(params, 1.0, 0.5),
            beta: random.vec(params, 1.0, 0.0),
            mean: random.vec(params, 1.0, 3.0),
            variance: random.vec(params, 0.5, 1.0),
        }
    }

    /// The reference's results for these tensors, with or without gamma and beta, with these statistics and running
    /// statistics, or with others in their place.
    fn compute(
        &self,
        norm: Norm,
        pass: impl Into<Pass>,
        params: (bool, bool),
        others: &[(Tensor, &[f64])],
    ) -> Vec<Computed> {
        let types = (T::DTYPE, P::DTYPE);
        let operation = Operation::new(norm, pass, &self.shape, types)
            .with_epsilon(EPSILON.into())
            .with_params(params.0, params.1);
        let own = [&self.gamma, &self.beta, &self.mean, &self.variance].map(|own| to_f64(own));
        let [gamma, beta, mean, variance] = own.each_ref().map(|own| &**own);
        let src = to_f64(&self.src);
        let own = [
            (Tensor::Src, &*src),
            (Tensor::Gamma, gamma),
            (Tensor::Beta, beta),
            (Tensor::Mean, mean),
            (Tensor::Variance, variance),
            (Tensor::RunningMean, mean),
            (Tensor::RunningVariance, variance),
        ];
        compute(&operation, &[others, &own].concat()).unwrap()
    }
}

/// A tensor expanded to all sizes of src, the long way. A shorter shape lacks the first axes.
fn written_out<T: Element>(shape: &[usize], tensor: &[T], src: [usize; 3]) -> Vec<T> {
    let own = [&vec![1; 3 - shape.len()], shape].concat();
    let [a, b, c] = src;
    let mut all = Vec::new();
    for at in (0..a).flat_map(|i| (0..b).flat_map(move |j| (0..c).map(move |k| [i, j, k]))) {
        let at = own.iter().zip(at);
        let at: Vec<usize> = at
            .map(|(&size, at)| if size == 1 { 0 } else { at })
            .collect();
        all.push(tensor[(at[0] * own[1] + at[1]) * own[2] + at[2]]);
    }
    all
}

/// The forward pass in training, with running statistics.
fn training(weight: f64, variance: RunningVariance) -> Forward {
    Forward::default().with_running(RunningUpdate::new(weight, variance))
}

/// 1/√(variance + epsilon), which has half the relative error of the variance.
#[track_caller]
fn close_inverse<S: Element>(got: &[S], want: &[Computed], what: &str) {
    let variance = &computed(want, Tensor::Variance).values;
    let epsilon = f64::from(EPSILON);
    let r: Vec<f64> = variance
        .iter()
        .map(|v| 1.0 / (v + epsilon).sqrt())
        .collect();
    let scale: Vec<f64> = r.iter().map(|r| 1.3 * r + r).collect();
    let error = scaled_error(got, &r, &scale);
    assert!(error <= 1.0, "{what}: 1/σ is off by {error} tolerances");
}

#[track_caller]
fn is_length<V: std::fmt::Debug>(result: Result<V, Error>, tensor: &str, want: usize, is: usize) {
    match result {
        Err(Error::Length {
            tensor: named,
            expected,
            got,
            ..
        }) => assert_eq!((named, expected, got), (tensor, want, is)),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn is_argument<V: std::fmt::Debug>(result: Result<V, Error>, name: &str, parts: &[&str]) {
    let error = result.unwrap_err();
    assert!(
        matches!(error, Error::Argument { argument, .. } if argument == name),
        "{error:?}"
    );
    says(&error, parts);
}

/// Asserts that an operation equals one made by hand, and has a plan.
#[track_caller]
fn same(operation: Result<Operation, Error>, by_hand: Operation) {
    let operation = operation.unwrap();
    assert_eq!(operation, by_hand);
    let plan = operation.plan(subjects()[0].gpu.profile()).unwrap();
    assert_eq!(plan.operation(), &by_hand);
}

/// The size in bytes of a tensor's buffer, if a plan of the operation has the tensor.
fn size(operation: &Result<Operation, Error>, tensor: Tensor) -> Option<u64> {
    let plan = operation
        .as_ref()
        .unwrap()
        .plan(subjects()[0].gpu.profile());
    let buffers = plan.unwrap().buffers();
    let used = buffers.iter().find(|used| used.tensor == tensor)?;
    Some(used.bytes)
}

/// DirectML's document allows 0; no operator here does.
#[test]
fn epsilon_zero_is_refused_by_every_operator() {
    #[track_caller]
    fn refused(operation: Result<Operation, Error>) {
        let error = operation.unwrap_err();
        assert!(matches!(error, Error::Epsilon { got: 0.0, .. }), "{error}");
    }
    let shape = &[2, 3];
    let own = &[1, 3];
    let training = onednn_ops::BatchNormForwardTraining::new(0.0);
    refused(training.operation::<f32, f32>(shape, true));
    let inference = onednn_ops::BatchNormInference::new(0.0);
    refused(inference.operation::<f32, f32>(shape));
    let layer_norm = onednn_ops::LayerNorm {
        epsilon: 0.0,
        ..Default::default()
    };
    refused(layer_norm.operation::<f32, f32>(shape));
    let training = directml_ops::BatchNormalizationTraining::new(0.0);
    refused(training.operation::<f32>(shape, own, false));
    let inference = directml_ops::BatchNormalization::new(0.0);
    refused(inference.operation::<f32>(shape, own, own, own, own));
    let training = ngraph_ops::BatchNormTraining { epsilon: 0.0 };
    refused(training.operation::<f32>(shape));
    let inference = ngraph_ops::BatchNormInference { epsilon: 0.0 };
    refused(inference.operation::<f32>(shape));
    let batch_norm = pytorch_ops::NativeBatchNorm {
        eps: 0.0,
        ..Default::default()
    };
    for training in [true, false] {
        let batch_norm = pytorch_ops::NativeBatchNorm {
            training,
            ..batch_norm
        };
        refused(batch_norm.operation::<f32, f32>(shape, true, true, true));
    }
    let batch_norm = pytorch_ops::NativeBatchNormBackward {
        eps: 0.0,
        ..Default::default()
    };
    refused(batch_norm.operation::<f32, f32>(shape, true));
    let layer_norm = pytorch_ops::NativeLayerNorm { eps: 0.0 };
    refused(layer_norm.operation::<f32, f32>(shape, &[3], true, true));
    let layer_norm = pytorch_ops::NativeLayerNormBackward::default();
    refused(layer_norm.operation::<f32, f32>(shape, &[3], true, 0.0));
    let rms_norm = pytorch_ops::RmsNorm { eps: 0.0 };
    refused(rms_norm.operation::<f32, f32>(shape, &[3], true, true));
    let batch_norm = onnx_ops::BatchNormalization {
        epsilon: 0.0,
        ..Default::default()
    };
    for training_mode in [true, false] {
        let batch_norm = onnx_ops::BatchNormalization {
            training_mode,
            ..batch_norm
        };
        refused(batch_norm.operation::<f32, f32, f32>(shape));
    }
    let layer_norm = onnx_ops::LayerNormalization {
        epsilon: 0.0,
        ..Default::default()
    };
    refused(layer_norm.operation::<f32>(shape, &[3], None, true));
    let rms_norm = onnx_ops::RmsNormalization {
        epsilon: 0.0,
        ..Default::default()
    };
    refused(rms_norm.operation::<f32, f32>(shape, &[3]));
}

/// Futures can be sent to any executor's threads.
#[test]
fn futures_are_sent() {
    fn assert_send(_: impl Future + Send) {}
    let gpu = &subjects()[0].gpu;
    let inputs = pytorch_ops::NativeBatchNormInputs::<f16, f32> {
        shape: &[],
        input: &[],
        weight: None,
        bias: None,
        running_mean: Some(&mut []),
        running_var: Some(&mut []),
    };
    assert_send(pytorch_ops::NativeBatchNorm::default().forward(gpu, inputs));
    let inputs = onnx_ops::LayerNormalizationInputs::<f64> {
        shape: &[],
        x: &[],
        scale: onnx_ops::Parameter {
            shape: &[],
            tensor: &[],
        },
        b: None,
    };
    assert_send(onnx_ops::LayerNormalization::default().forward(gpu, inputs));
    let parameter = directml_ops::Parameter::<f16> {
        dimensions: &[],
        tensor: &[],
    };
    let inputs = directml_ops::BatchNormalizationInputs {
        input_dimensions: &[],
        input_tensor: &[],
        mean_tensor: parameter,
        variance_tensor: parameter,
        scale_tensor: parameter,
        bias_tensor: parameter,
    };
    assert_send(directml_ops::BatchNormalization::new(1e-5).forward(gpu, inputs));
}
