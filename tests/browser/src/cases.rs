//! The cases: shapes by formats by types, each computed and compared.

use crate::data::Numbers;
use std::collections::BTreeSet;
use wasm_bindgen::prelude::wasm_bindgen;
use wgpu_norm::reference::{self, Gradients, channel_axes, scaled_error};
use wgpu_norm::{
    BatchNormArgs, BatchNormOptions, DataFormat, Element, Error, GpuBatchNorm, GpuContext,
    GpuLayerNorm, LayerNormArgs, LayerNormOptions, ParamGrads, ParamOf, Statistics,
};

const EPSILON: f64 = 1e-5;

const BATCH_NORM: [&[usize]; 9] = [
    &[64, 128],
    &[5, 3],
    &[2, 3, 5, 7],
    &[4, 64, 9, 9],
    &[3, 5, 64, 3],
    &[1, 8, 4096],
    &[20, 6, 640],
    &[16, 256, 2, 2],
    &[2, 31, 1],
];

const LAYER_NORM: [&[usize]; 6] = [
    &[16, 768],
    &[5, 1002],
    &[3, 5027],
    &[7, 3],
    &[64, 64],
    &[2, 9000],
];

/// The kernels that there are.
pub const KERNELS: [&str; 13] = [
    "apply_columns",
    "apply_rows",
    "apply_runs",
    "finish",
    "fused_columns",
    "fused_rows",
    "fused_runs",
    "join_rows",
    "pack_statistics",
    "pack_weights",
    "reduce_columns",
    "reduce_rows",
    "reduce_runs",
];

/// What came of the cases.
#[derive(Default)]
pub struct Outcome {
    pub cases: usize,
    pub kernels: BTreeSet<&'static str>,
    pub largest_error: f64,
    pub failures: Vec<String>,
}

impl Outcome {
    fn add(&mut self, what: String, result: Result<(Vec<&'static str>, f64), Error>) {
        self.cases += 1;
        match result {
            Ok((kernels, error)) => {
                self.kernels.extend(kernels);
                self.largest_error = self.largest_error.max(error);
                // Not `error > 1.0`: NaN is no success.
                if !(error <= 1.0) {
                    self.failures
                        .push(format!("{what}: {error} of the tolerance"));
                }
            }
            Err(error) => self.failures.push(format!("{what}: {error}")),
        }
    }
}

pub async fn all(gpu: &GpuContext) -> Outcome {
    let mut outcome = Outcome::default();
    of_types::<f32, f32>(gpu, &mut outcome).await;
    of_types::<half::f16, f32>(gpu, &mut outcome).await;
    of_types::<half::f16, half::f16>(gpu, &mut outcome).await;
    of_types::<half::bf16, f32>(gpu, &mut outcome).await;
    outcome
}

#[wasm_bindgen]
extern "C" {
    /// Makes the next buffer one that WebGPU refuses.
    #[wasm_bindgen(js_namespace = window)]
    fn spoil_next_buffer();
}

/// Whether what goes wrong is an error, and the context is usable after it. Ends the device.
pub async fn errors(gpu: &GpuContext) -> Vec<(bool, String)> {
    let options = BatchNormOptions::new(EPSILON);
    let run = || batch_norm::<f32, f32>(gpu, &[2, 3, 5], options);
    spoil_next_buffer();
    let spoiled = run().await;
    let again = run().await;
    gpu.device().destroy();
    let ended = run().await;
    vec![
        (
            matches!(spoiled, Err(Error::Gpu { .. })),
            format!("with a buffer that WebGPU refuses: {spoiled:?}"),
        ),
        (
            again.is_ok(),
            format!("once more, with a good one: {again:?}"),
        ),
        (
            matches!(ended, Err(Error::DeviceLost { .. })),
            format!("on a device that has ended: {ended:?}"),
        ),
    ]
}

async fn of_types<T: Element, P: ParamOf<T>>(gpu: &GpuContext, outcome: &mut Outcome) {
    let types = format!("{} {}", T::DTYPE, P::DTYPE);
    for shape in BATCH_NORM {
        for data_format in [DataFormat::Ncx, DataFormat::Nxc] {
            for statistics in [Statistics::Batch, Statistics::Constant] {
                let options = BatchNormOptions {
                    data_format,
                    statistics,
                    ..BatchNormOptions::new(EPSILON)
                };
                let result = batch_norm::<T, P>(gpu, shape, options).await;
                outcome.add(
                    format!("batch norm {shape:?} {data_format} {statistics:?} {types}"),
                    result,
                );
            }
        }
    }
    for shape in LAYER_NORM {
        let result = layer_norm::<T, P>(gpu, shape).await;
        outcome.add(format!("layer norm {shape:?} {types}"), result);
    }
}

/// Numbers as type `T` has them, and as the reference takes them.
fn stored<T: Element>(numbers: Vec<f64>) -> (Vec<T>, Vec<f64>) {
    let stored: Vec<T> = numbers.into_iter().map(T::from_f64).collect();
    let exact = stored.iter().map(|x| x.to_f64()).collect();
    (stored, exact)
}

async fn batch_norm<T: Element, P: ParamOf<T>>(
    gpu: &GpuContext,
    shape: &[usize],
    options: BatchNormOptions,
) -> Result<(Vec<&'static str>, f64), Error> {
    let axes = channel_axes(shape.len(), options.data_format);
    let channels = shape
        .iter()
        .zip(&axes)
        .filter(|(_, channel)| **channel)
        .map(|(size, _)| size)
        .product();
    let count = shape.iter().product();
    let mut numbers = Numbers(7);
    let (src, exact_src) = stored::<T>(numbers.normal(count));
    let (diff_dst, exact_diff_dst) = stored::<T>(numbers.normal(count));
    let (mean, exact_mean) = stored::<P>(numbers.normal(channels));
    let (variance, exact_variance) = stored::<P>(numbers.positive(channels));
    let (gamma, exact_gamma) = stored::<P>(numbers.normal(channels));
    let layer = GpuBatchNorm::new(gpu, options)?;
    let kernels = layer.plan(shape, T::DTYPE, P::DTYPE, true)?.kernels();
    let args = BatchNormArgs {
        shape,
        src: &src,
        diff_dst: &diff_dst,
        mean: &mean,
        variance: &variance,
        gamma: Some(&gamma),
    };
    let got = layer.backward(args).await?;
    let want = reference::BatchNorm {
        shape,
        channel_axes: &axes,
        src: &exact_src,
        diff_dst: &exact_diff_dst,
        mean: &exact_mean,
        variance: &exact_variance,
        gamma: Some(&exact_gamma),
        epsilon: EPSILON,
        statistics: options.statistics,
        param_grads: ParamGrads::Both,
    };
    let error = largest_error(
        &got.diff_src,
        got.diff_gamma,
        got.diff_beta,
        &want.backward()?,
    );
    Ok((kernels, error))
}

async fn layer_norm<T: Element, P: ParamOf<T>>(
    gpu: &GpuContext,
    shape: &[usize],
) -> Result<(Vec<&'static str>, f64), Error> {
    let count: usize = shape.iter().product();
    let columns = shape.last().copied().unwrap_or(1);
    let rows = count / columns;
    let mut numbers = Numbers(11);
    let (src, exact_src) = stored::<T>(numbers.normal(count));
    let (diff_dst, exact_diff_dst) = stored::<T>(numbers.normal(count));
    let (mean, exact_mean) = stored::<P>(numbers.normal(rows));
    let (variance, exact_variance) = stored::<P>(numbers.positive(rows));
    let (gamma, exact_gamma) = stored::<P>(numbers.normal(columns));
    // Its values do not matter to the gradients.
    let (beta, _) = stored::<P>(vec![0.0; columns]);
    let options = LayerNormOptions {
        epsilon: EPSILON,
        ..LayerNormOptions::default()
    };
    let layer = GpuLayerNorm::new(gpu, options)?;
    let kernels = layer.plan(shape, T::DTYPE, P::DTYPE)?.kernels();
    let args = LayerNormArgs {
        shape,
        src: &src,
        diff_dst: &diff_dst,
        mean: &mean,
        variance: &variance,
        gamma: Some(&gamma),
        beta: Some(&beta),
    };
    let got = layer.backward(args).await?;
    let want = reference::LayerNorm {
        shape,
        begin_norm_axis: shape.len() - 1,
        src: &exact_src,
        diff_dst: &exact_diff_dst,
        mean: &exact_mean,
        variance: &exact_variance,
        gamma: Some(&exact_gamma),
        epsilon: EPSILON,
        param_grads: options.param_grads,
    };
    let error = largest_error(
        &got.diff_src,
        got.diff_gamma,
        got.diff_beta,
        &want.backward()?,
    );
    Ok((kernels, error))
}

/// The largest error of all gradients, in tolerances. A gradient that is absent is NaN.
fn largest_error<T: Element, P: Element>(
    diff_src: &[T],
    diff_gamma: Option<Vec<P>>,
    diff_beta: Option<Vec<P>>,
    want: &Gradients,
) -> f64 {
    let (Some(diff_gamma), Some(diff_beta)) = (diff_gamma, diff_beta) else {
        return f64::NAN;
    };
    let errors = [
        scaled_error(diff_src, &want.diff_src, &want.diff_src_scale),
        scaled_error(&diff_gamma, &want.diff_gamma, &want.diff_gamma_scale),
        scaled_error(&diff_beta, &want.diff_beta, &want.diff_beta_scale),
    ];
    errors.into_iter().fold(
        0.0,
        |largest, error| if error <= largest { largest } else { error },
    )
}
