//! Outputs and gradients of every layer, each way, against Burn's own layers in f64 on the CPU, and against wgpu-norm's
//! float64 reference, within its tolerance.

mod common;
mod exact;

use burn::module::{Module, Param, RunningState};
use burn::nn;
use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use burn_wgpu_norm::nn as ours;
use burn_wgpu_norm::{Counts, Way, counts};
use common::{Numbers, device, in_way, spread, ways, within};
use exact::Exact;

/// The compared tensors: the output, and the gradients of src, gamma and beta.
type Results = Vec<(&'static str, Vec<f64>)>;

/// How src reaches the layer.
#[derive(Clone, Copy, Debug)]
enum View {
    Whole,
    /// The first axis is cut out of a longer one, from an odd place on.
    Slice,
    /// The last two axes are swapped.
    Permuted,
    /// The channels, axis 1, are last in memory, as Burn's convolutions write them.
    ChannelsLast,
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
        // Values that 16 bits hold exactly, so that both sides begin with the same numbers.
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

    /// src, tracked, and the view of it that is passed to the layer.
    fn src<const D: usize>(&self, on: &Target) -> (Tensor<D>, Tensor<D>) {
        let mut shape = self.shape.clone();
        match self.view {
            View::Whole => {
                let src = self.tensor(&self.src, &shape, on).require_grad();
                (src.clone(), src)
            }
            View::Slice => {
                let around = vec![9.0; shape[1..].iter().product()];
                let values = [&around, self.src.as_slice(), &around].concat();
                let inside = 1..shape[0] + 1;
                shape[0] += 2;
                let src: Tensor<D> = self.tensor(&values, &shape, on).require_grad();
                let view = src.clone().slice([inside]);
                (src, view)
            }
            View::Permuted => {
                shape.swap(D - 2, D - 1);
                let src: Tensor<D> = self.tensor(&self.src, &shape, on).require_grad();
                let view = src.clone().swap_dims(D - 2, D - 1);
                (src, view)
            }
            View::ChannelsLast => {
                shape[1..].rotate_left(1);
                let src: Tensor<D> = self.tensor(&self.src, &shape, on).require_grad();
                let swapped = |view: Tensor<D>, axis| view.swap_dims(axis, axis - 1);
                let view = (2..D).rev().fold(src.clone(), swapped);
                (src, view)
            }
        }
    }

    fn results<const D: usize>(&self, on: &Target, layer: impl Layer<D>) -> Results {
        let param = |values: &[f32]| {
            let tensor: Tensor<1> = self.tensor(values, &[self.params], on);
            Param::from_tensor(tensor)
        };
        let (gamma, beta) = (param(&self.gamma), param(&self.beta));
        let (src, view) = self.src(on);
        let dst = layer.forward(gamma.clone(), beta.clone(), view);
        let diff_dst: Tensor<D> = self.tensor(&self.diff_dst, &self.shape, on);
        let grads = (dst.clone() * diff_dst).sum().backward();
        let mut results = vec![("dst", floats(dst.inner()))];
        results.push(("diff_src", floats(src.grad(&grads).unwrap())));
        results.extend(gamma.val().grad(&grads).map(|g| ("diff_gamma", floats(g))));
        results.extend(beta.val().grad(&grads).map(|g| ("diff_beta", floats(g))));
        results
    }
}

/// The device and the element type.
struct Target {
    device: Device,
    dtype: FloatDType,
}

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    match FloatDType::from(tensor.dtype()) {
        FloatDType::F64 => tensor.into_data().try_to_vec().unwrap(),
        _ => {
            let data = tensor.cast(FloatDType::F32).into_data();
            let values = data.try_to_vec::<f32>().unwrap();
            values.into_iter().map(f64::from).collect()
        }
    }
}

/// A layer with given parameters, ours or Burn's.
trait Layer<const D: usize> {
    fn forward(self, gamma: Param<Tensor<1>>, beta: Param<Tensor<1>>, src: Tensor<D>) -> Tensor<D>;
}

impl<const D: usize, F> Layer<D> for F
where
    F: FnOnce(Param<Tensor<1>>, Param<Tensor<1>>, Tensor<D>) -> Tensor<D>,
{
    fn forward(self, gamma: Param<Tensor<1>>, beta: Param<Tensor<1>>, src: Tensor<D>) -> Tensor<D> {
        self(gamma, beta, src)
    }
}

const EPSILON: f64 = 1e-5;

macro_rules! batch {
    ($nn:ident, $d:expr) => {
        |gamma: Param<Tensor<1>>, beta: Param<Tensor<1>>, src: Tensor<$d>| {
            let channels = src.dims()[1];
            let config = $nn::BatchNormConfig::new(channels).with_epsilon(EPSILON);
            let mut layer = config.init(&src.device());
            (layer.gamma, layer.beta) = (gamma, beta);
            // Burn's own update accepts no type but src's.
            let running = |of: Tensor<1>| RunningState::new(of.cast(src.dtype()).detach());
            layer.running_mean = running(layer.running_mean.value());
            layer.running_var = running(layer.running_var.value());
            layer.forward(src)
        }
    };
}

macro_rules! layer {
    ($nn:ident, $d:expr) => {
        |gamma: Param<Tensor<1>>, beta: Param<Tensor<1>>, src: Tensor<$d>| {
            let mut layer = $nn::LayerNormConfig::new(src.dims()[$d - 1]).init(&src.device());
            (layer.gamma, layer.beta) = (gamma, Some(beta));
            layer.forward(src)
        }
    };
}

macro_rules! layer_without_bias {
    ($nn:ident, $d:expr) => {
        |gamma: Param<Tensor<1>>, _: Param<Tensor<1>>, src: Tensor<$d>| {
            let mut layer = $nn::LayerNormConfig::new(src.dims()[$d - 1])
                .with_bias(false)
                .init(&src.device());
            layer.gamma = gamma;
            layer.forward(src)
        }
    };
}

macro_rules! rms {
    ($nn:ident, $d:expr) => {
        |gamma: Param<Tensor<1>>, _: Param<Tensor<1>>, src: Tensor<$d>| {
            let mut layer = $nn::RmsNormConfig::new(src.dims()[$d - 1]).init(&src.device());
            layer.gamma = gamma;
            layer.forward(src)
        }
    };
}

macro_rules! group {
    ($nn:ident, $groups:expr, $d:expr) => {
        |gamma: Param<Tensor<1>>, beta: Param<Tensor<1>>, src: Tensor<$d>| {
            let mut layer = $nn::GroupNormConfig::new($groups, src.dims()[1]).init(&src.device());
            (layer.gamma, layer.beta) = (Some(gamma), Some(beta));
            layer.forward(src)
        }
    };
}

macro_rules! instance {
    ($nn:ident, $d:expr) => {
        |gamma: Param<Tensor<1>>, beta: Param<Tensor<1>>, src: Tensor<$d>| {
            let mut layer = $nn::InstanceNormConfig::new(src.dims()[1]).init(&src.device());
            (layer.gamma, layer.beta) = (Some(gamma), Some(beta));
            layer.forward(src)
        }
    };
}

macro_rules! plain_instance {
    ($nn:ident, $d:expr) => {
        |_: Param<Tensor<1>>, _: Param<Tensor<1>>, src: Tensor<$d>| {
            let config = $nn::InstanceNormConfig::new(src.dims()[1]);
            config.with_affine(false).init(&src.device()).forward(src)
        }
    };
}

macro_rules! layer_2d {
    ($d:expr) => {
        |gamma: Param<Tensor<1>>, beta: Param<Tensor<1>>, src: Tensor<$d>| {
            let mut layer = ours::LayerNorm2dConfig::new(src.dims()[1]).init(&src.device());
            (layer.gamma, layer.beta) = (gamma, Some(beta));
            layer.forward(src)
        }
    };
}

macro_rules! burns_layer_2d {
    ($d:expr) => {
        |gamma: Param<Tensor<1>>, beta: Param<Tensor<1>>, src: Tensor<$d>| {
            (layer!(nn, $d))(gamma, beta, src.swap_dims(1, $d - 1)).swap_dims(1, $d - 1)
        }
    };
}

macro_rules! ada_layer {
    ($d:expr) => {
        |scale: Param<Tensor<1>>, shift: Param<Tensor<1>>, src: Tensor<$d>| {
            let (samples, d_model) = (src.dims()[0], src.dims()[$d - 1]);
            let [scale, shift] = [scale, shift].map(|p| p.val().reshape([samples, d_model]));
            let layer = ours::AdaLayerNormConfig::new(d_model).init();
            layer.forward(src, scale, shift)
        }
    };
}

macro_rules! ada_group {
    ($groups:expr, $d:expr) => {
        |scale: Param<Tensor<1>>, shift: Param<Tensor<1>>, src: Tensor<$d>| {
            let (samples, channels) = (src.dims()[0], src.dims()[1]);
            let [scale, shift] = [scale, shift].map(|p| p.val().reshape([samples, channels]));
            let layer = ours::AdaGroupNormConfig::new($groups, channels).init();
            layer.forward(src, scale, shift)
        }
    };
}

/// By tensor operations alone: the statistics of samples in this shape over all but the first `$kept` axes, then the
/// parameters, which vary along the first axis and `$axis`.
macro_rules! burns_adaptive {
    ($d:expr, $rows:expr, $axis:expr) => {
        |scale: Param<Tensor<1>>, shift: Param<Tensor<1>>, src: Tensor<$d>| {
            let shape = src.dims();
            let mut params = [1; $d];
            (params[0], params[$axis]) = (shape[0], shape[$axis]);
            let rows = src.reshape([$rows(shape), -1]);
            let (variance, mean) = rows.clone().var_mean_bias(1);
            let dst = (rows - mean) / (variance + EPSILON).sqrt();
            let [scale, shift] = [scale, shift].map(|p| p.val().reshape(params));
            dst.reshape(shape) * (scale + 1.0) + shift
        }
    };
}

macro_rules! burns_ada_layer {
    ($d:expr) => {
        burns_adaptive!(
            $d,
            |shape: [usize; $d]| shape[..$d - 1].iter().product::<usize>() as i32,
            $d - 1
        )
    };
}

macro_rules! burns_ada_group {
    ($groups:expr, $d:expr) => {
        burns_adaptive!($d, |shape: [usize; $d]| (shape[0] * $groups) as i32, 1)
    };
}

/// Compares our layer with Burn's in f64 and with the reference, and checks that it ran in the right way.
fn check<const D: usize>(
    case: &Case,
    ours: impl Layer<D> + Copy,
    burns: impl Layer<D> + Copy,
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
    for &way in ways() {
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

fn every_view<const D: usize>(
    shapes: &[[usize; D]],
    params: impl Fn(&[usize; D]) -> usize,
    ours: impl Layer<D> + Copy,
    burns: impl Layer<D> + Copy,
    reference: fn(&Case) -> Exact,
) {
    for shape in shapes {
        for view in [View::Whole, View::Slice, View::Permuted, View::ChannelsLast] {
            let case = Case::new(shape, params(shape), view, FloatDType::F32);
            check(&case, ours, burns, Some(reference));
        }
    }
    for dtype in [FloatDType::F16, FloatDType::F64] {
        if common::has(dtype) {
            for shape in shapes {
                let case = Case::new(shape, params(shape), View::Slice, dtype);
                check(&case, ours, burns, Some(reference));
            }
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
    every_view(
        &SHAPES,
        params,
        batch!(ours, 4),
        batch!(nn, 4),
        exact::batch_norm,
    );
}

#[test]
fn batch_norm_with_relu() {
    let ours = |gamma: Param<Tensor<1>>, beta: Param<Tensor<1>>, src: Tensor<4>| {
        let config = ours::BatchNormConfig::new(src.dims()[1]).with_epsilon(EPSILON);
        let mut layer = config.init_relu(&src.device());
        (layer.gamma, layer.beta) = (gamma, beta);
        layer.forward(src)
    };
    let burns = |gamma: Param<Tensor<1>>, beta: Param<Tensor<1>>, src: Tensor<4>| {
        burn::tensor::activation::relu((batch!(nn, 4))(gamma, beta, src))
    };
    // Only in f32: values that 16 bits round to 0 pass on one side and not on the other.
    for shape in SHAPES {
        for view in [View::Permuted, View::ChannelsLast] {
            let case = Case::new(&shape, shape[1], view, FloatDType::F32);
            check(&case, ours, burns, None);
        }
    }
}

#[test]
fn batch_norm_with_a_residual_and_relu() {
    let ours = |gamma: Param<Tensor<1>>, beta: Param<Tensor<1>>, src: Tensor<4>| {
        let config = ours::BatchNormConfig::new(src.dims()[1]).with_epsilon(EPSILON);
        let mut layer = config.init_add_relu(&src.device());
        (layer.gamma, layer.beta) = (gamma, beta);
        layer.forward(src.clone(), src * 0.5)
    };
    let burns = |gamma: Param<Tensor<1>>, beta: Param<Tensor<1>>, src: Tensor<4>| {
        let dst = (batch!(nn, 4))(gamma, beta, src.clone());
        burn::tensor::activation::relu(dst + src * 0.5)
    };
    for shape in SHAPES {
        for view in [View::Whole, View::Permuted, View::ChannelsLast] {
            let case = Case::new(&shape, shape[1], view, FloatDType::F32);
            check(&case, ours, burns, None);
        }
    }
}

#[test]
fn layer_norm() {
    let params = |shape: &[usize; 4]| shape[3];
    every_view(
        &SHAPES,
        params,
        layer!(ours, 4),
        layer!(nn, 4),
        exact::layer_norm,
    );
}

#[test]
fn layer_norm_without_bias() {
    every_view(
        &SHAPES[..2],
        |shape| shape[3],
        layer_without_bias!(ours, 4),
        layer_without_bias!(nn, 4),
        exact::layer_norm_without_bias,
    );
}

#[test]
fn rms_norm() {
    let params = |shape: &[usize; 4]| shape[3];
    every_view(&SHAPES, params, rms!(ours, 4), rms!(nn, 4), exact::rms_norm);
}

#[test]
fn group_norm() {
    let shapes = [[4, 4, 5, 7], [8, 16, 9, 9], [3, 4, 8, 6]];
    let params = |shape: &[usize; 4]| shape[1];
    let reference = |case: &Case| exact::group_norm(case, 2, true);
    every_view(
        &shapes,
        params,
        group!(ours, 2, 4),
        group!(nn, 2, 4),
        reference,
    );
}

#[test]
fn instance_norm_without_parameters() {
    every_view(
        &SHAPES[..2],
        |shape| shape[1],
        plain_instance!(ours, 4),
        plain_instance!(nn, 4),
        |case| exact::group_norm(case, case.shape[1], false),
    );
}

#[test]
fn instance_norm() {
    every_view(
        &SHAPES[..2],
        |shape| shape[1],
        instance!(ours, 4),
        instance!(nn, 4),
        |case| exact::group_norm(case, case.shape[1], true),
    );
}

#[test]
fn layer_norm_2d() {
    let params = |shape: &[usize; 4]| shape[1];
    let (ours, burns) = (layer_2d!(4), burns_layer_2d!(4));
    every_view(&SHAPES, params, ours, burns, exact::layer_norm_2d);
}

#[test]
fn ada_layer_norm() {
    let params = |shape: &[usize; 4]| shape[0] * shape[3];
    let (ours, burns) = (ada_layer!(4), burns_ada_layer!(4));
    every_view(&SHAPES, params, ours, burns, exact::ada_layer_norm);
}

#[test]
fn ada_group_norm() {
    let shapes = [[4, 6, 5, 7], [3, 9, 11, 1], [1, 6, 33, 3], [5, 12, 8, 8]];
    let params = |shape: &[usize; 4]| shape[0] * shape[1];
    let reference = |case: &Case| exact::ada_group_norm(case, 3);
    let (ours, burns) = (ada_group!(3, 4), burns_ada_group!(3, 4));
    every_view(&shapes, params, ours, burns, reference);
}

#[test]
fn layers_that_burn_lacks_run_by_its_operations() {
    let on = |dtype| Target {
        device: device().autodiff(),
        dtype,
    };
    let check = |params: usize, ours: &dyn Fn(&Case, &Target) -> Results| {
        for dtype in [FloatDType::F32, FloatDType::F16] {
            if common::has(dtype) {
                let case = Case::new(&[4, 6, 5, 7], params, View::Permuted, dtype);
                let run = |way| in_way(way, || ours(&case, &on(dtype)));
                let before = counts();
                let by_burn = run(Way::Burn);
                assert_eq!(counts().burn, before.burn + 1);
                for ((name, got), (_, want)) in by_burn.iter().zip(&run(Way::Kernels)) {
                    within(&format!("{dtype:?} {name}"), got, want, dtype);
                }
            }
        }
    };
    check(6, &|case, on| case.results(on, layer_2d!(4)));
    check(4 * 7, &|case, on| case.results(on, ada_layer!(4)));
    check(4 * 6, &|case, on| case.results(on, ada_group!(3, 4)));
}

#[test]
fn other_ranks() {
    macro_rules! rank {
        ($d:literal, $shape:expr) => {{
            let shapes: [[usize; $d]; 1] = [$shape];
            let channels = |shape: &[usize; $d]| shape[1];
            let last = |shape: &[usize; $d]| shape[$d - 1];
            let groups = |case: &Case| exact::group_norm(case, 2, true);
            let instances = |case: &Case| exact::group_norm(case, case.shape[1], true);
            let (ours, burns) = (batch!(ours, $d), batch!(nn, $d));
            every_view(&shapes, channels, ours, burns, exact::batch_norm);
            let (ours, burns) = (layer!(ours, $d), layer!(nn, $d));
            every_view(&shapes, last, ours, burns, exact::layer_norm);
            let (ours, burns) = (rms!(ours, $d), rms!(nn, $d));
            every_view(&shapes, last, ours, burns, exact::rms_norm);
            let (ours, burns) = (group!(ours, 2, $d), group!(nn, 2, $d));
            every_view(&shapes, channels, ours, burns, groups);
            let (ours, burns) = (instance!(ours, $d), instance!(nn, $d));
            every_view(&shapes, channels, ours, burns, instances);
            let (ours, burns) = (layer_2d!($d), burns_layer_2d!($d));
            every_view(&shapes, channels, ours, burns, exact::layer_norm_2d);
            let of_samples = |shape: &[usize; $d]| shape[0] * shape[$d - 1];
            let (ours, burns) = (ada_layer!($d), burns_ada_layer!($d));
            every_view(&shapes, of_samples, ours, burns, exact::ada_layer_norm);
            let of_samples = |shape: &[usize; $d]| shape[0] * shape[1];
            let groups = |case: &Case| exact::ada_group_norm(case, 2);
            let (ours, burns) = (ada_group!(2, $d), burns_ada_group!(2, $d));
            every_view(&shapes, of_samples, ours, burns, groups);
        }};
    }
    rank!(3, [3, 4, 10]);
    rank!(5, [2, 4, 3, 5, 3]);
    // With two axes, an instance norm has one element per channel, whose gradient is only rounding; so only groups.
    let shapes = [[9, 12]];
    let (ours, burns) = (batch!(ours, 2), batch!(nn, 2));
    every_view(&shapes, |shape| shape[1], ours, burns, exact::batch_norm);
    let (ours, burns) = (layer!(ours, 2), layer!(nn, 2));
    every_view(&shapes, |shape| shape[1], ours, burns, exact::layer_norm);
    let (ours, burns) = (rms!(ours, 2), rms!(nn, 2));
    every_view(&shapes, |shape| shape[1], ours, burns, exact::rms_norm);
    let (ours, burns) = (group!(ours, 2, 2), group!(nn, 2, 2));
    let groups = |case: &Case| exact::group_norm(case, 2, true);
    every_view(&shapes, |shape| shape[1], ours, burns, groups);
    let (ours, burns) = (layer_2d!(2), burns_layer_2d!(2));
    every_view(&shapes, |shape| shape[1], ours, burns, exact::layer_norm_2d);
    // A parameter of a sample has one element here. If that is near the mean, the mean's rounding is more than the
    // reference allows, which takes the statistics as exact.
    for view in [View::Whole, View::Slice, View::Permuted] {
        let case = Case::new(&[9, 12], 9 * 12, view, FloatDType::F32);
        check(&case, ada_layer!(2), burns_ada_layer!(2), None);
        check(&case, ada_group!(2, 2), burns_ada_group!(2, 2), None);
    }
}

#[test]
fn frozen_parameters_have_no_gradients() {
    let device = device().autodiff();
    let trained = ours::BatchNormConfig::new(3).init(&device);
    let frozen = ours::BatchNormConfig::new(3).init(&device).no_grad();
    let shape = [4, 3, 5, 5];
    let src = spread(shape, 1, &device).require_grad();
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
