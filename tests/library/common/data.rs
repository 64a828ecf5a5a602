//! Seeded data for shapes, and the comparison with the reference.

pub use wgpu_norm_verify::Random;

use super::Subject;
use pollster::block_on;
use wgpu_norm::reference::{self, scaled_error};
use wgpu_norm::{
    BatchNormBackwardArgs, BatchNormOptions, DataFormat, Element, Error, GpuBatchNorm, Grads,
    ParamGrads, ParamOf, Statistics, Tuning,
};

pub fn to_f64<T: Element>(values: &[T]) -> Vec<f64> {
    values.iter().map(|v| v.to_f64()).collect()
}

/// A batch-norm problem with its own data.
#[derive(Clone)]
pub struct Case<T, P> {
    pub shape: Vec<usize>,
    pub options: BatchNormOptions,
    pub src: Vec<T>,
    pub diff_dst: Vec<T>,
    pub mean: Vec<P>,
    pub variance: Vec<P>,
    pub gamma: Option<Vec<P>>,
}

impl<T: Element, P: ParamOf<T>> Case<T, P> {
    /// Random src and diff_dst, their true statistics rounded to P, random gamma.
    pub fn random(shape: &[usize], options: BatchNormOptions, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let n = shape.iter().product();
        let src: Vec<T> = random.vec(n, 2.0, 0.5);
        let diff_dst: Vec<T> = random.vec(n, 1.0, 0.1);
        let axes = reference::channel_axes(shape.len(), options.data_format);
        let channels: usize = shape
            .iter()
            .zip(&axes)
            .filter(|(_, c)| **c)
            .map(|(d, _)| d)
            .product();
        let axis = axes.iter().position(|&c| c).unwrap();
        let inner: usize = shape[axis + 1..].iter().product();
        let (mut sum, mut squares) = (vec![0.0; channels], vec![0.0; channels]);
        for (i, value) in src.iter().enumerate() {
            sum[i / inner % channels] += value.to_f64();
        }
        let count = (n / channels.max(1)).max(1) as f64;
        for (i, value) in src.iter().enumerate() {
            let c = i / inner % channels;
            squares[c] += (value.to_f64() - sum[c] / count).powi(2);
        }
        let gamma = random.vec(channels, 1.0, 0.25);
        Self {
            shape: shape.to_vec(),
            options,
            src,
            diff_dst,
            mean: sum.iter().map(|s| P::from_f64(s / count)).collect(),
            variance: squares.iter().map(|s| P::from_f64(s / count)).collect(),
            gamma: Some(gamma),
        }
    }

    pub fn args(&self) -> BatchNormBackwardArgs<'_, T, P, P> {
        BatchNormBackwardArgs {
            shape: &self.shape,
            src: &self.src,
            diff_dst: &self.diff_dst,
            mean: &self.mean,
            variance: &self.variance,
            gamma: self.gamma.as_deref(),
            beta: None,
            mask: None,
        }
    }

    pub fn run(&self, subject: &Subject) -> Result<Grads<T, P>, Error> {
        let layer = GpuBatchNorm::new(&subject.gpu, self.options)?;
        block_on(layer.backward_with_statistics(self.args()))
    }

    pub fn reference(&self) -> reference::Gradients {
        let (src, diff_dst) = (to_f64(&self.src), to_f64(&self.diff_dst));
        let (mean, variance) = (to_f64(&self.mean), to_f64(&self.variance));
        let gamma = self.gamma.as_deref().map(to_f64);
        reference::BatchNorm {
            shape: &self.shape,
            channel_axes: &reference::channel_axes(self.shape.len(), self.options.data_format),
            src: &src,
            diff_dst: &diff_dst,
            mean: &mean,
            variance: &variance,
            gamma: gamma.as_deref(),
            epsilon: self.options.epsilon,
            statistics: self.options.statistics,
            param_grads: self.options.param_grads,
        }
        .backward()
        .unwrap()
    }

    /// Runs on the subject and compares with the reference.
    pub fn check(&self, subject: &Subject, what: &str) {
        self.check_against(subject, what, &self.reference());
    }

    pub fn check_against(&self, subject: &Subject, what: &str, want: &reference::Gradients) {
        let got = self
            .run(subject)
            .unwrap_or_else(|e| panic!("{what} on {}: {e}", subject.name));
        assert_close(
            &got,
            want,
            self.options.param_grads,
            &format!("{what} on {}", subject.name),
        );
    }
}

pub fn assert_close<T: Element, P: Element>(
    got: &Grads<T, P>,
    want: &reference::Gradients,
    param_grads: ParamGrads,
    what: &str,
) {
    let error = scaled_error(&got.diff_src, &want.diff_src, &want.diff_src_scale);
    assert!(
        error <= 1.0,
        "{what}: diff_src is off by {error} tolerances"
    );
    if param_grads != ParamGrads::Both {
        assert!(
            got.diff_gamma.is_none() && got.diff_beta.is_none(),
            "{what}"
        );
        return;
    }
    let diff_gamma = got.diff_gamma.as_ref().expect("asked for");
    let error = scaled_error(diff_gamma, &want.diff_gamma, &want.diff_gamma_scale);
    assert!(
        error <= 1.0,
        "{what}: diff_gamma is off by {error} tolerances"
    );
    let diff_beta = got.diff_beta.as_ref().expect("asked for");
    let error = scaled_error(diff_beta, &want.diff_beta, &want.diff_beta_scale);
    assert!(
        error <= 1.0,
        "{what}: diff_beta is off by {error} tolerances"
    );
}

/// Every combination of the choices that change what is computed.
pub fn all_choices() -> Vec<(Statistics, ParamGrads)> {
    let mut choices = Vec::new();
    for statistics in [Through::Batch, Through::Constant] {
        for param_grads in [ParamGrads::Both, ParamGrads::Neither, ParamGrads::Frozen] {
            choices.push((statistics, param_grads));
        }
    }
    choices
}

/// The shape N × C × spatial in a data format.
pub fn in_format(shape: &[usize], format: DataFormat) -> Vec<usize> {
    let mut shape = shape.to_vec();
    if format == DataFormat::Nxc {
        let channels = shape.remove(1);
        shape.push(channels);
    }
    shape
}

pub const FORMATS: [DataFormat; 2] = [DataFormat::Ncx, DataFormat::Nxc];

/// epsilon 1e-5 and the defaults, in a data format.
pub fn options_in(data_format: DataFormat) -> BatchNormOptions {
    BatchNormOptions {
        data_format,
        ..BatchNormOptions::new(1e-5)
    }
}

/// Sizes with which small tensors are divided like large ones, and those for both kinds of adapters.
pub fn sizes() -> [(&'static str, Tuning); 3] {
    let small = Tuning {
        channels_last_threads: 2,
        channels_last_vec4s: 3,
        channels_first_vec4s: 2,
        busy_workgroups: 1 << 20,
        tile: 64,
        walk_pages: 2,
        ..Tuning::SOFTWARE
    };
    [
        ("software", Tuning::SOFTWARE),
        ("gpu", Tuning::GPU),
        ("small", small),
    ]
}

/// Bits of a result, so that NaN equals itself and -0 is not 0.
pub fn bits<T: Element, P: Element>(grads: &Grads<T, P>) -> [Vec<u8>; 3] {
    let of = |values: &Option<Vec<P>>| match values {
        Some(values) => bytemuck::cast_slice(values).to_vec(),
        None => Vec::new(),
    };
    [
        bytemuck::cast_slice(&grads.diff_src).to_vec(),
        of(&grads.diff_gamma),
        of(&grads.diff_beta),
    ]
}
