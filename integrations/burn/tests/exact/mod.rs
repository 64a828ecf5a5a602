//! The same results by wgpu-norm's float64 reference, with the size of each result's terms, which its tolerance is
//! relative to.

use crate::{Case, EPSILON, View};
use burn::tensor::{FloatDType, f16};
use wgpu_norm::{DType, DataFormat, Forward, Norm, Operation, Tensor};
use wgpu_norm_verify::reference::{Computed, compute, scaled_error};

/// The results of a layer whose src has the case's shape, however src reaches the layer.
pub struct Exact(Vec<Computed>);

impl Exact {
    /// Both passes of a layer.
    fn new(case: &Case, norm: Norm, gamma: bool, beta: bool) -> Self {
        let forward = Operation::new(norm, Forward::default(), &case.shape, DType::F64);
        Self::of(case, forward.with_params(gamma, beta))
    }

    /// Both passes of a norm over axes of src in this shape, whose gamma is stored less 1.
    fn adaptive(case: &Case, axes: Norm, shape: &[usize]) -> Self {
        let forward = Operation::new(axes, Forward::default(), shape, DType::F64);
        Self::of(case, forward.with_zero_centered_gamma(true))
    }

    /// A forward pass and its gradient.
    fn of(case: &Case, forward: Operation) -> Self {
        let forward = forward.with_epsilon(EPSILON);
        let (src, diff_dst) = (seen(case), wide(&case.diff_dst));
        let (gamma, beta) = (wide(&case.gamma), wide(&case.beta));
        let mut tensors = vec![
            (Tensor::Src, &*src),
            (Tensor::DiffDst, &diff_dst),
            (Tensor::Gamma, &gamma),
            (Tensor::Beta, &beta),
        ];
        let mut computed = compute(&forward, &tensors).unwrap();
        // The gradient uses the statistics that the forward pass left.
        let statistics = computed.clone();
        tensors.extend(statistics.iter().map(|of| (of.tensor, &*of.values)));
        let gradient = forward.gradient().unwrap();
        computed.extend(compute(&gradient, &tensors).unwrap());
        Self(computed)
    }

    /// Compares results with these.
    pub fn check(&self, what: &str, case: &Case, results: &[(&'static str, Vec<f64>)]) {
        for (name, got) in results {
            let computed = self.0.iter().find(|of| of.tensor.name() == *name);
            let Computed { values, scale, .. } = computed.unwrap();
            let (want, scale) = match *name {
                "diff_src" => (behind(case, values), behind(case, scale)),
                _ => (values.clone(), scale.clone()),
            };
            // The numbers already have the type, so nothing is rounded here.
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
        View::Permuted | View::ChannelsLast => {
            let [rows, columns] = plane(case);
            swapped(&wide(&case.src), columns, rows)
        }
    }
}

/// The axes that a view swaps: the last two, or the channels and all behind them.
fn plane(case: &Case) -> [usize; 2] {
    if let View::ChannelsLast = case.view {
        [case.shape[1], case.shape[2..].iter().product()]
    } else {
        *case.shape.last_chunk().unwrap()
    }
}

/// The gradient of the tensor behind the view.
fn behind(case: &Case, diff_src: &[f64]) -> Vec<f64> {
    match case.view {
        View::Whole => diff_src.to_vec(),
        View::Slice => {
            let around = vec![0.0; case.shape[1..].iter().product()];
            [&around, diff_src, &around].concat()
        }
        View::Permuted | View::ChannelsLast => {
            let [rows, columns] = plane(case);
            swapped(diff_src, rows, columns)
        }
    }
}

/// Planes of this many rows and columns, transposed.
fn swapped(values: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    let planes = values.chunks(rows * columns);
    let swapped = planes.flat_map(|plane| {
        (0..columns).flat_map(move |column| (0..rows).map(move |row| plane[row * columns + column]))
    });
    swapped.collect()
}

pub fn batch_norm(case: &Case) -> Exact {
    Exact::new(case, Norm::batch(DataFormat::Ncx), true, true)
}

pub fn layer_norm(case: &Case) -> Exact {
    Exact::new(case, Norm::layer(-1), true, true)
}

pub fn layer_norm_without_bias(case: &Case) -> Exact {
    Exact::new(case, Norm::layer(-1), true, false)
}

pub fn rms_norm(case: &Case) -> Exact {
    Exact::new(case, Norm::rms(-1), true, false)
}

pub fn group_norm(case: &Case, groups: usize, affine: bool) -> Exact {
    let format = DataFormat::Ncx;
    Exact::new(case, Norm::group(groups, format), affine, affine)
}

fn over(axes: &[i64], param_axes: &[i64]) -> Norm {
    Norm::axes(axes, param_axes)
}

pub fn layer_norm_2d(case: &Case) -> Exact {
    Exact::new(case, over(&[1], &[1]), true, true)
}

pub fn ada_layer_norm(case: &Case) -> Exact {
    Exact::adaptive(case, over(&[-1], &[0, -1]), &case.shape)
}

pub fn ada_group_norm(case: &Case, groups: usize) -> Exact {
    let [samples, channels] = *case.shape.first_chunk().unwrap();
    let inner = case.shape[2..].iter().product();
    let shape = [samples, groups, channels / groups, inner];
    Exact::adaptive(case, over(&[2, 3], &[0, 1, 2]), &shape)
}
