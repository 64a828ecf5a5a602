//! Runs burn-wgpu-norm's layers under Burn's WebGPU backend, and compares outputs and gradients with wgpu-norm's
//! float64 reference, within its tolerance.

use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};
use burn_wgpu_norm::nn::*;
use burn_wgpu_norm::{Way, counts, force, init_async, way};
use wasm_bindgen::prelude::*;
use wgpu_norm::{DType, DataFormat, Forward, Norm, Operation, Tensor as Role};
use wgpu_norm_verify::reference::{compute, scaled_error};

type Param1 = Param<Tensor<1>>;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = console)]
    fn log(line: &str);
}

/// A layer with given parameters.
type Layer = fn(Param1, Param1, Tensor<4>) -> Tensor<4>;

const SHAPE: [usize; 4] = [4, 6, 9, 10];
const GROUPS: usize = 3;

fn batch(gamma: Param1, beta: Param1, src: Tensor<4>) -> Tensor<4> {
    let mut layer = BatchNormConfig::new(SHAPE[1]).init(&src.device());
    (layer.gamma, layer.beta) = (gamma, beta);
    layer.forward(src)
}

fn group(gamma: Param1, beta: Param1, src: Tensor<4>) -> Tensor<4> {
    let mut layer = GroupNormConfig::new(GROUPS, SHAPE[1]).init(&src.device());
    (layer.gamma, layer.beta) = (Some(gamma), Some(beta));
    layer.forward(src)
}

fn instance(gamma: Param1, beta: Param1, src: Tensor<4>) -> Tensor<4> {
    let mut layer = InstanceNormConfig::new(SHAPE[1]).init(&src.device());
    (layer.gamma, layer.beta) = (Some(gamma), Some(beta));
    layer.forward(src)
}

fn layer(gamma: Param1, beta: Param1, src: Tensor<4>) -> Tensor<4> {
    let mut layer = LayerNormConfig::new(SHAPE[3]).init(&src.device());
    (layer.gamma, layer.beta) = (gamma, Some(beta));
    layer.forward(src)
}

fn rms(gamma: Param1, _: Param1, src: Tensor<4>) -> Tensor<4> {
    let mut layer = RmsNormConfig::new(SHAPE[3]).init(&src.device());
    layer.gamma = gamma;
    layer.forward(src)
}

/// Runs every layer each way. A panic is a failure.
#[wasm_bindgen]
pub async fn test() {
    console_error_panic_hook::set_once();
    let device = init_async().await.unwrap();
    assert_eq!(way(&device), Way::Kernels);
    let format = DataFormat::Ncx;
    let of_groups = |groups| Norm::group(groups, format);
    let layers: [(Norm, Layer); 5] = [
        (Norm::batch(format), batch),
        (of_groups(GROUPS), group),
        (of_groups(SHAPE[1]), instance),
        (Norm::layer(-1), layer),
        (Norm::rms(-1), rms),
    ];
    for (norm, layer) in &layers {
        for way in [Way::Kernels, Way::Submission] {
            force(Some(way));
            let before = counts();
            let results = run(&device, norm, *layer).await;
            let after = counts();
            let ran = match way {
                Way::Kernels => after.kernels - before.kernels,
                _ => after.submission - before.submission,
            };
            assert_eq!((ran, after.burn), (2, 0), "passes of {norm:?}");
            check(&format!("{norm:?}, {way:?}"), norm, &results);
        }
    }
    // Inference, by the running statistics of a new layer: mean 0 and variance 1.
    let src = Tensor::ones(SHAPE, &device);
    let dst = BatchNormConfig::new(SHAPE[1]).init(&device).forward(src);
    let right = |dst: &f32| (dst - 0.999995).abs() < 1e-6;
    assert!(
        floats::<4>(dst).await.iter().all(right),
        "batch norm's inference"
    );
}

/// Numbers that f32 holds exactly.
fn numbers(count: usize, seed: usize) -> Vec<f64> {
    let number = |i: usize| ((37 * i + 53 * seed + i / 101) % 101) as f64 / 32.0 - 1.5;
    (0..count).map(number).collect()
}

/// src, the gradient with respect to the output, gamma and beta.
fn inputs(norm: &Norm) -> [(Role, Vec<f64>); 4] {
    let elements = SHAPE.iter().product();
    let params = match norm {
        Norm::Layer { .. } | Norm::Rms { .. } => SHAPE[3],
        _ => SHAPE[1],
    };
    [
        (Role::Src, numbers(elements, 1)),
        (Role::DiffDst, numbers(elements, 2)),
        (Role::Gamma, numbers(params, 3)),
        (Role::Beta, numbers(params, 4)),
    ]
}

/// The output, and the gradients.
async fn run(device: &Device, norm: &Norm, layer: Layer) -> Vec<(Role, Vec<f32>)> {
    let device = device.clone().autodiff();
    let [src, diff_dst, gamma, beta] = inputs(norm).map(|(_, values)| values);
    let whole = |values| Tensor::<4>::from_data(TensorData::new(values, SHAPE), &device);
    let param = |values: Vec<f64>| {
        let data = TensorData::new(values.clone(), [values.len()]);
        Param::from_tensor(Tensor::<1>::from_data(data, &device))
    };
    let src = whole(src).require_grad();
    let (gamma, beta) = (param(gamma), param(beta));
    let dst = layer(gamma.clone(), beta.clone(), src.clone());
    let grads = (dst.clone() * whole(diff_dst)).sum().backward();
    let mut results = vec![
        (Role::Dst, floats(dst.inner()).await),
        (Role::DiffSrc, floats(src.grad(&grads).unwrap()).await),
    ];
    for (role, param) in [(Role::DiffGamma, gamma), (Role::DiffBeta, beta)] {
        if let Some(gradient) = param.val().grad(&grads) {
            results.push((role, floats(gradient).await));
        }
    }
    results
}

async fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    let data = tensor.into_data_async().await.unwrap();
    data.try_to_vec().unwrap()
}

fn check(what: &str, norm: &Norm, results: &[(Role, Vec<f32>)]) {
    let beta = !matches!(norm, Norm::Rms { .. });
    let forward = Operation::new(norm.clone(), Forward::default(), &SHAPE, DType::F64)
        .with_params(true, beta)
        .with_epsilon(1e-5);
    let inputs = inputs(norm);
    let mut tensors: Vec<_> = inputs
        .iter()
        .map(|(role, values)| (*role, &**values))
        .collect();
    let mut computed = compute(&forward, &tensors).unwrap();
    // The gradient uses the statistics that the forward pass left.
    let statistics = computed.clone();
    tensors.extend(statistics.iter().map(|of| (of.tensor, &*of.values)));
    let gradient = forward.gradient().unwrap();
    computed.extend(compute(&gradient, &tensors).unwrap());
    assert_eq!(results.len(), 3 + usize::from(beta));
    let errors = results.iter().map(|(role, got)| {
        let want = computed.iter().find(|of| of.tensor == *role).unwrap();
        let error = scaled_error(got, &want.values, &want.scale);
        assert!(error <= 1.0, "{what}: {}: {error} tolerances", role.name());
        error
    });
    let most = errors.fold(0.0, f64::max);
    log(&format!("right: {what}: at most {most:.2} tolerances"));
}
