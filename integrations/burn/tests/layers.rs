//! Outputs and gradients of every layer, each way, against Burn's own layers in f64 on the CPU, and against wgpu-norm's
//! float64 reference, within its tolerance.

mod common;
mod exact;

use burn::module::{Module, Param, RunningState};
use burn::nn;
use burn::tensor::{Device, Distribution, FloatDType, Tensor, TensorData};
use burn_wgpu_norm::nn as ours;
use burn_wgpu_norm::{Counts, Way, counts};
use common::{Numbers, device, in_way, within};
use exact::Exact;

/// What is compared: the output, and the gradients of src, gamma and beta.
type Results = Vec<(&'static str, Vec<f64>)>;

/// How src reaches the layer.
#[derive(Clone, Copy, Debug)]
enum View {
    Whole,
    /// The first axis is cut out of a longer one, from an odd place on.
    Slice,
    /// The last two axes are swapped.
    Permuted,
}

struct Case {
    shape: Vec<usize>,
    view: View,
    dtype: FloatDType,
    src: Vec<f32>,
    diff_dst: Vec<f32>,
    gamma: Vec<f32>,
    beta: Vec<f32>,
    params: usize,
}

impl Case {
    fn new(shape: &[usize], params: usize, view: View, dtype: FloatDType) -> Self {
        let elements = shape.iter().product();
        let mut numbers = Numbers::new(elements as u64 + 7);
        // What 16 bits hold exactly, so that both sides begin with the same numbers.
        let mut exact = |count: usize| -> Vec<f32> {
            let numbers = (0..count).map(|_| (numbers.next() * 64.0).round() / 32.0);
            numbers.collect()
        };
        Self {
            shape: shape.to_vec(),
            view,
            dtype,
            src: exact(elements),
            diff_dst: exact(elements),
            gamma: exact(params).iter().map(|v| v + 2.5).collect(),
            beta: exact(params),
            params,
        }
    }

    fn tensor<const D: usize>(&self, values: &[f32], shape: &[usize], on: &Target) -> Tensor<D> {
        let data = TensorData::new(values.to_vec(), shape.to_vec());
        Tensor::<D>::from_data(data, &on.device).cast(on.dtype)
    }

    /// src, tracked, and the view of it that the layer is given.
    fn src(&self, on: &Target) -> (Tensor<4>, Tensor<4>) {
        let [n, c, h, w] = <[usize; 4]>::try_from(self.shape.clone()).unwrap();
        match self.view {
            View::Whole => {
                let src = self.tensor(&self.src, &self.shape, on).require_grad();
                (src.clone(), src)
            }
            View::Slice => {
                let plane = c * h * w;
                let mut values = vec![9.0; plane];
                values.extend(&self.src);
                values.extend(vec![9.0; plane]);
                let src: Tensor<4> = self.tensor(&values, &[n + 2, c, h, w], on).require_grad();
                let view = src.clone().slice([1..n + 1, 0..c, 0..h, 0..w]);
                (src, view)
            }
            View::Permuted => {
                let src: Tensor<4> = self.tensor(&self.src, &[n, c, w, h], on).require_grad();
                let view = src.clone().permute([0, 1, 3, 2]);
                (src, view)
            }
        }
    }

    fn results(&self, on: &Target, layer: impl Layer) -> Results {
        let param = |values: &[f32]| {
            let tensor: Tensor<1> = self.tensor(values, &[self.params], on);
            Param::from_tensor(tensor)
        };
        let (gamma, beta) = (param(&self.gamma), param(&self.beta));
        let (src, view) = self.src(on);
        let dst = layer.forward(gamma.clone(), beta.clone(), view);
        let diff_dst: Tensor<4> = self.tensor(&self.diff_dst, &self.shape, on);
        let grads = (dst.clone() * diff_dst).sum().backward();
        let mut results = vec![("dst", floats(dst.inner()))];
        results.push(("diff_src", floats(src.grad(&grads).unwrap())));
        results.extend(gamma.val().grad(&grads).map(|g| ("diff_gamma", floats(g))));
        results.extend(beta.val().grad(&grads).map(|g| ("diff_beta", floats(g))));
        results
    }
}

/// Where and in which type.
struct Target {
    device: Device,
    dtype: FloatDType,
}

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    let data = tensor.cast(FloatDType::F32).into_data();
    data.try_to_vec::<f32>()
        .unwrap()
        .into_iter()
        .map(f64::from)
        .collect()
}

/// A layer with given parameters, ours or Burn's.
trait Layer {
    fn forward(self, gamma: Param<Tensor<1>>, beta: Param<Tensor<1>>, src: Tensor<4>) -> Tensor<4>;
}

impl<F: FnOnce(Param<Tensor<1>>, Param<Tensor<1>>, Tensor<4>) -> Tensor<4>> Layer for F {
    fn forward(self, gamma: Param<Tensor<1>>, beta: Param<Tensor<1>>, src: Tensor<4>) -> Tensor<4> {
        self(gamma, beta, src)
    }
}

const EPSILON: f64 = 1e-5;

macro_rules! batch {
    ($nn:ident) => {
        |gamma: Param<Tensor<1>>, beta: Param<Tensor<1>>, src: Tensor<4>| {
            let channels = src.dims()[1];
            let config = $nn::BatchNormConfig::new(channels).with_epsilon(EPSILON);
            let mut layer = config.init(&src.device());
            (layer.gamma, layer.beta) = (gamma, beta);
            // Burn's own update takes no other type than src's.
            let running = |of: Tensor<1>| RunningState::new(of.cast(src.dtype()).detach());
            layer.running_mean = running(layer.running_mean.value());
            layer.running_var = running(layer.running_var.value());
            layer.forward(src)
        }
    };
}

macro_rules! layer {
    ($nn:ident) => {
        |gamma: Param<Tensor<1>>, beta: Param<Tensor<1>>, src: Tensor<4>| {
            let mut layer = $nn::LayerNormConfig::new(src.dims()[3]).init(&src.device());
            (layer.gamma, layer.beta) = (gamma, Some(beta));
            layer.forward(src)
        }
    };
}

macro_rules! layer_without_bias {
    ($nn:ident) => {
        |gamma: Param<Tensor<1>>, _: Param<Tensor<1>>, src: Tensor<4>| {
            let mut layer = $nn::LayerNormConfig::new(src.dims()[3])
                .with_bias(false)
                .init(&src.device());
            layer.gamma = gamma;
            layer.forward(src)
        }
    };
}

macro_rules! rms {
    ($nn:ident) => {
        |gamma: Param<Tensor<1>>, _: Param<Tensor<1>>, src: Tensor<4>| {
            let mut layer = $nn::RmsNormConfig::new(src.dims()[3]).init(&src.device());
            layer.gamma = gamma;
            layer.forward(src)
        }
    };
}

macro_rules! group {
    ($nn:ident, $groups:expr) => {
        |gamma: Param<Tensor<1>>, beta: Param<Tensor<1>>, src: Tensor<4>| {
            let mut layer = $nn::GroupNormConfig::new($groups, src.dims()[1]).init(&src.device());
            (layer.gamma, layer.beta) = (Some(gamma), Some(beta));
            layer.forward(src)
        }
    };
}

macro_rules! plain_instance {
    ($nn:ident) => {
        |_: Param<Tensor<1>>, _: Param<Tensor<1>>, src: Tensor<4>| {
            let config = $nn::InstanceNormConfig::new(src.dims()[1]);
            config.with_affine(false).init(&src.device()).forward(src)
        }
    };
}

/// Holds our layer to Burn's in f64 and to the reference, and counts that it ran the way that it was to.
fn check(
    case: &Case,
    ours: impl Layer + Copy,
    burns: impl Layer + Copy,
    reference: Option<fn(&Case) -> Exact>,
) {
    let exact = Target {
        device: Device::flex().autodiff(),
        dtype: FloatDType::F64,
    };
    let want = case.results(&exact, burns);
    let on = Target {
        device: device().autodiff(),
        dtype: case.dtype,
    };
    for way in [Way::Kernels, Way::Submission] {
        let (got, ran) = in_way(way, || {
            let before = counts();
            let got = case.results(&on, ours);
            let after = counts();
            (
                got,
                Counts {
                    kernels: after.kernels - before.kernels,
                    submission: after.submission - before.submission,
                    burn: after.burn - before.burn,
                },
            )
        });
        let (kernels, submission) = match way {
            Way::Kernels => (2, 0),
            _ => (0, 2),
        };
        assert_eq!(
            ran,
            Counts {
                kernels,
                submission,
                burn: 0
            },
            "{way:?}"
        );
        assert_eq!(got.len(), want.len());
        for ((name, got), (_, want)) in got.iter().zip(&want) {
            let what = format!(
                "{way:?} {:?} {:?} {:?} {name}",
                case.shape, case.view, case.dtype
            );
            within(&what, got, want, case.dtype);
        }
        if let Some(reference) = reference {
            let what = format!("{way:?} {:?} {:?}", case.shape, case.view);
            reference(case).check(&what, case, &got);
        }
    }
}

fn every_view(
    shapes: &[[usize; 4]],
    params: impl Fn(&[usize; 4]) -> usize,
    ours: impl Layer + Copy,
    burns: impl Layer + Copy,
    reference: fn(&Case) -> Exact,
) {
    for shape in shapes {
        for view in [View::Whole, View::Slice, View::Permuted] {
            let case = Case::new(shape, params(shape), view, FloatDType::F32);
            check(&case, ours, burns, Some(reference));
        }
    }
    if common::has_f16() {
        for shape in shapes {
            let case = Case::new(shape, params(shape), View::Slice, FloatDType::F16);
            check(&case, ours, burns, Some(reference));
        }
    }
}

const SHAPES: [[usize; 4]; 5] = [
    [4, 3, 5, 7],
    [8, 16, 9, 9],
    [2, 5, 1, 3],
    [3, 4, 8, 6],
    [1, 6, 33, 3],
];

#[test]
fn batch_norm() {
    let params = |shape: &[usize; 4]| shape[1];
    every_view(&SHAPES, params, batch!(ours), batch!(nn), exact::batch_norm);
}

#[test]
fn batch_norm_with_relu() {
    let ours = |gamma: Param<Tensor<1>>, beta: Param<Tensor<1>>, src: Tensor<4>| {
        let config = ours::BatchNormReluConfig::new(src.dims()[1]);
        let mut layer = config.with_epsilon(EPSILON).init(&src.device());
        (layer.norm.gamma, layer.norm.beta) = (gamma, beta);
        layer.forward(src)
    };
    let burns = |gamma: Param<Tensor<1>>, beta: Param<Tensor<1>>, src: Tensor<4>| {
        burn::tensor::activation::relu((batch!(nn))(gamma, beta, src))
    };
    // In f32 alone: what 16 bits round to 0 passes on one side and not on the other.
    for shape in SHAPES {
        let case = Case::new(&shape, shape[1], View::Permuted, FloatDType::F32);
        check(&case, ours, burns, None);
    }
}

#[test]
fn batch_norm_with_a_residual_and_relu() {
    let ours = |gamma: Param<Tensor<1>>, beta: Param<Tensor<1>>, src: Tensor<4>| {
        let config = ours::BatchNormAddReluConfig::new(src.dims()[1]);
        let mut layer = config.with_epsilon(EPSILON).init(&src.device());
        (layer.norm.gamma, layer.norm.beta) = (gamma, beta);
        layer.forward(src.clone(), src * 0.5)
    };
    let burns = |gamma: Param<Tensor<1>>, beta: Param<Tensor<1>>, src: Tensor<4>| {
        let dst = (batch!(nn))(gamma, beta, src.clone());
        burn::tensor::activation::relu(dst + src * 0.5)
    };
    for shape in SHAPES {
        for view in [View::Whole, View::Permuted] {
            let case = Case::new(&shape, shape[1], view, FloatDType::F32);
            check(&case, ours, burns, None);
        }
    }
}

#[test]
fn layer_norm() {
    let params = |shape: &[usize; 4]| shape[3];
    every_view(&SHAPES, params, layer!(ours), layer!(nn), exact::layer_norm);
}

#[test]
fn layer_norm_without_bias() {
    every_view(
        &SHAPES[..2],
        |shape| shape[3],
        layer_without_bias!(ours),
        layer_without_bias!(nn),
        exact::layer_norm_without_bias,
    );
}

#[test]
fn rms_norm() {
    let params = |shape: &[usize; 4]| shape[3];
    every_view(&SHAPES, params, rms!(ours), rms!(nn), exact::rms_norm);
}

#[test]
fn group_norm() {
    let shapes = [[4, 4, 5, 7], [8, 16, 9, 9], [3, 4, 8, 6]];
    let params = |shape: &[usize; 4]| shape[1];
    let reference = |case: &Case| exact::group_norm(case, 2, true);
    every_view(
        &shapes,
        params,
        group!(ours, 2),
        group!(nn, 2),
        reference,
    );
}

#[test]
fn instance_norm_without_parameters() {
    every_view(
        &SHAPES[..2],
        |shape| shape[1],
        plain_instance!(ours),
        plain_instance!(nn),
        |case| exact::group_norm(case, case.shape[1], false),
    );
}

#[test]
fn frozen_parameters_have_no_gradients() {
    let device = device().autodiff();
    let trained = ours::BatchNormConfig::new(3).init(&device);
    let frozen = ours::BatchNormConfig::new(3).init(&device).no_grad();
    let shape = [4, 3, 5, 5];
    let src = Tensor::<4>::random(shape, Distribution::Default, &device).require_grad();
    let diff = |layer: &ours::BatchNorm| {
        let dst = layer.forward(src.clone());
        let grads = dst.powi_scalar(3).sum().backward();
        let gamma = layer.gamma.grad(&grads);
        (floats(src.grad(&grads).unwrap()), gamma.is_some())
    };
    in_way(Way::Kernels, || {
        let (want, has_gamma) = diff(&trained);
        let (got, frozen_has) = diff(&frozen);
        assert!(has_gamma, "the trained layer's gamma");
        assert!(!frozen_has, "the frozen layer's gamma");
        within("diff_src", &got, &want, FloatDType::F32);
    });
}
