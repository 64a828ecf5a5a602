//! The same by wgpu-norm's float64 reference, with the size of each result's terms, on which its tolerance is measured.

use crate::{Case, EPSILON, View};
use burn::tensor::{FloatDType, f16};
use wgpu_norm::reference::{self, Forward, Gradients, scaled_error};
use wgpu_norm::{DataFormat, ParamGrads, Statistics};

/// Of a layer whose src has the case's shape, however it reaches the layer.
pub struct Exact {
    forward: Forward,
    gradients: Gradients,
}

impl Exact {
    /// Holds results to these.
    pub fn check(&self, what: &str, case: &Case, results: &[(&'static str, Vec<f64>)]) {
        let Self { forward, gradients } = self;
        for (name, got) in results {
            let (want, scale) = match *name {
                "dst" => (forward.dst.clone(), forward.dst_scale.clone()),
                "diff_src" => (
                    behind(case, &gradients.diff_src),
                    behind(case, &gradients.diff_src_scale),
                ),
                "diff_gamma" => (
                    gradients.diff_gamma.clone(),
                    gradients.diff_gamma_scale.clone(),
                ),
                _ => (
                    gradients.diff_beta.clone(),
                    gradients.diff_beta_scale.clone(),
                ),
            };
            // Numbers of the type, so nothing is rounded here.
            let error = match case.dtype {
                FloatDType::F16 => {
                    let got: Vec<f16> = got.iter().map(|&value| f16::from_f64(value)).collect();
                    scaled_error(&got, &want, &scale)
                }
                FloatDType::F64 => scaled_error(got, &want, &scale),
                _ => {
                    let got: Vec<f32> = got.iter().map(|&value| value as f32).collect();
                    scaled_error(&got, &want, &scale)
                }
            };
            assert!(error <= 1.0, "{what} {name}: {error} tolerances");
        }
    }
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

/// src as the layer sees it.
fn seen(case: &Case) -> Vec<f64> {
    match case.view {
        View::Whole | View::Slice => wide(&case.src),
        View::Permuted => {
            let [rows, columns] = last_two(case);
            swapped(&wide(&case.src), columns, rows)
        }
    }
}

fn last_two(case: &Case) -> [usize; 2] {
    *case.shape.last_chunk().unwrap()
}

/// The gradient of what the view was made of.
fn behind(case: &Case, diff_src: &[f64]) -> Vec<f64> {
    match case.view {
        View::Whole => diff_src.to_vec(),
        View::Slice => {
            let around = vec![0.0; case.shape[1..].iter().product()];
            [&around, diff_src, &around].concat()
        }
        View::Permuted => {
            let [rows, columns] = last_two(case);
            swapped(diff_src, rows, columns)
        }
    }
}

/// Planes of so many rows and columns with both swapped.
fn swapped(values: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    let planes = values.chunks(rows * columns);
    let swapped = planes.flat_map(|plane| {
        (0..columns).flat_map(move |column| (0..rows).map(move |row| plane[row * columns + column]))
    });
    swapped.collect()
}

pub fn batch_norm(case: &Case) -> Exact {
    let (src, diff_dst) = (seen(case), wide(&case.diff_dst));
    let (gamma, beta) = (wide(&case.gamma), wide(&case.beta));
    let axes = reference::channel_axes(case.shape.len(), DataFormat::Ncx);
    let forward = reference::BatchNormForward {
        shape: &case.shape,
        channel_axes: &axes,
        src: &src,
        gamma: Some(&gamma),
        beta: Some(&beta),
        epsilon: EPSILON,
    };
    let forward = forward.train().unwrap();
    let gradients = reference::BatchNorm {
        shape: &case.shape,
        channel_axes: &axes,
        src: &src,
        diff_dst: &diff_dst,
        mean: &forward.mean,
        variance: &forward.variance,
        gamma: Some(&gamma),
        epsilon: EPSILON,
        statistics: Through::Batch,
        param_grads: ParamGrads::Both,
    };
    let gradients = gradients.backward().unwrap();
    Exact { forward, gradients }
}

pub fn layer_norm(case: &Case) -> Exact {
    layer_norm_of(case, Some(&wide(&case.beta)))
}

pub fn layer_norm_without_bias(case: &Case) -> Exact {
    layer_norm_of(case, None)
}

fn layer_norm_of(case: &Case, beta: Option<&[f64]>) -> Exact {
    let (src, diff_dst, gamma) = (seen(case), wide(&case.diff_dst), wide(&case.gamma));
    let forward = reference::LayerNormForward {
        shape: &case.shape,
        begin_norm_axis: case.shape.len() - 1,
        src: &src,
        residual: None,
        gamma: Some(&gamma),
        beta,
        epsilon: EPSILON,
    };
    let forward = forward.forward().unwrap();
    let gradients = reference::LayerNorm {
        shape: &case.shape,
        begin_norm_axis: case.shape.len() - 1,
        src: &src,
        diff_dst: &diff_dst,
        mean: &forward.mean,
        variance: &forward.variance,
        gamma: Some(&gamma),
        epsilon: EPSILON,
        param_grads: ParamGrads::Both,
    };
    let gradients = gradients.backward().unwrap();
    Exact { forward, gradients }
}

pub fn rms_norm(case: &Case) -> Exact {
    let (src, diff_dst, gamma) = (seen(case), wide(&case.diff_dst), wide(&case.gamma));
    let forward = reference::RmsNormForward {
        shape: &case.shape,
        begin_norm_axis: case.shape.len() - 1,
        src: &src,
        residual: None,
        gamma: Some(&gamma),
        epsilon: EPSILON,
    };
    let forward = forward.forward().unwrap();
    let gradients = reference::RmsNorm {
        shape: &case.shape,
        begin_norm_axis: case.shape.len() - 1,
        src: &src,
        diff_dst: &diff_dst,
        mean_square: &forward.mean_square,
        gamma: Some(&gamma),
        epsilon: EPSILON,
        param_grads: ParamGrads::Both,
    };
    let gradients = gradients.backward().unwrap();
    Exact { forward, gradients }
}

pub fn group_norm(case: &Case, groups: usize, affine: bool) -> Exact {
    let (src, diff_dst) = (seen(case), wide(&case.diff_dst));
    let (gamma, beta) = (wide(&case.gamma), wide(&case.beta));
    let gamma = affine.then_some(gamma.as_slice());
    let forward = reference::GroupNormForward {
        shape: &case.shape,
        data_format: DataFormat::Ncx,
        groups,
        src: &src,
        gamma,
        beta: affine.then_some(beta.as_slice()),
        epsilon: EPSILON,
    };
    let forward = forward.forward().unwrap();
    let gradients = reference::GroupNorm {
        shape: &case.shape,
        data_format: DataFormat::Ncx,
        groups,
        src: &src,
        diff_dst: &diff_dst,
        mean: &forward.mean,
        variance: &forward.variance,
        gamma,
        epsilon: EPSILON,
        param_grads: ParamGrads::Both,
    };
    let gradients = gradients.backward().unwrap();
    Exact { forward, gradients }
}
