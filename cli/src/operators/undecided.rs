//! Elements of which rounding decides whether they pass relu, where a gradient finds the layer's output again. Results with
//! them and without them are right, and all between.

use crate::check::is_undecided;
use crate::memory;
use wgpu_norm::reference::{Forward, Gradients, SUM_ULPS};
use wgpu_norm::{Activation, DType, Error, ParamGrads, Statistics};

/// A layer by the reference, as a gradient takes it.
pub struct Layer<O, G> {
    /// Its output by given statistics.
    pub output: O,
    /// Its gradients by that of its output.
    pub gradients: G,
    /// Whether the gradient flows through mean and variance.
    pub statistics: Statistics,
    /// Whether gamma counts in diff_src.
    pub param_grads: ParamGrads,
}

/// What a layer's output by given statistics is computed from.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    pub src: &'a [f64],
    pub mean: &'a [f64],
    pub variance: &'a [f64],
    pub gamma: Option<&'a [f64]>,
    pub beta: Option<&'a [f64]>,
    pub epsilon: f64,
}

/// These elements.
pub struct Undecided {
    /// Of each element the size of diff_dst if it is one of these, else 0.
    diff_dst: Vec<f64>,
    count: usize,
    sums: DType,
}

/// What the reference is asked for, beside the tensors.
const OF_CHECK: &str = "the comparison with the reference, as large as src";

impl Undecided {
    /// Those whose y, of which diff_dst is relu's gradient, is 0 but for roundings in sums of this type.
    pub fn find(
        activation: Activation,
        y: &Forward,
        diff_dst: &[f64],
        sums: DType,
    ) -> Result<Self, Error> {
        let mut count = 0;
        let mut sizes = memory::copied(OF_CHECK, diff_dst)?;
        let all = y.dst.iter().zip(&y.dst_scale);
        for (size, (&y, &scale)) in sizes.iter_mut().zip(all) {
            // Twice the tolerance, as y has one and the mean in it another.
            if activation == Activation::Relu && is_undecided(y, 2.0 * SUM_ULPS * scale, sums) {
                count += 1;
                *size = size.abs();
            } else {
                *size = 0.0;
            }
        }
        Ok(Self {
            diff_dst: sizes,
            count,
            sums,
        })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Widens the tolerance of gradients by what these elements change at most.
    pub fn allow<O, G>(
        &self,
        found: &mut Gradients,
        layer: &Layer<O, G>,
        inputs: &Inputs<'_>,
    ) -> Result<(), Error>
    where
        O: Fn(&Inputs<'_>) -> Result<Forward, Error>,
        G: Fn(&[f64]) -> Result<Gradients, Error>,
    {
        if self.count == 0 {
            return Ok(());
        }
        let of_params = (layer.gradients)(&self.diff_dst)?;
        self.widen(&mut found.diff_gamma_scale, &of_params.diff_gamma_scale);
        self.widen(&mut found.diff_beta_scale, &of_params.diff_beta_scale);
        self.widen(&mut found.diff_src_scale, &self.of_src(layer, inputs)?);
        Ok(())
    }

    /// Scales count in roundings: so many of them are a change as large as `by`. Where it is there it is rounded itself.
    fn widen(&self, scales: &mut [f64], by: &[f64]) {
        let roundings = SUM_ULPS * self.sums.unit_roundoff();
        for (scale, by) in scales.iter_mut().zip(by) {
            *scale += by / roundings + by;
        }
    }

    /// How much of each element of diff_src these elements may be. One of them is gamma · r · diff_dst of its own diff_src,
    /// and of that of the m elements that share its statistics a part of (1 + x̂ · x̂ of that one)/m.
    fn of_src<O, G>(&self, layer: &Layer<O, G>, inputs: &Inputs<'_>) -> Result<Vec<f64>, Error>
    where
        O: Fn(&Inputs<'_>) -> Result<Forward, Error>,
    {
        let zeros = memory::filled(OF_CHECK, inputs.mean.len(), 0.0)?;
        let counted = layer.param_grads != ParamGrads::Neither;
        let own = (layer.output)(&Inputs {
            src: &self.diff_dst,
            mean: &zeros,
            gamma: inputs.gamma.filter(|_| counted),
            beta: None,
            ..*inputs
        })?;
        let mut own = own.dst;
        own.iter_mut().for_each(|own| *own = own.abs());
        if layer.statistics == Statistics::Constant {
            return Ok(own);
        }
        let normalized = Inputs {
            gamma: None,
            beta: None,
            ..*inputs
        };
        let x_hat = (layer.output)(&normalized)?.dst;
        let groups = groups(layer, inputs)?;
        let mut sums = memory::filled(OF_CHECK, inputs.mean.len(), Sums::default())?;
        for ((own, x_hat), &group) in own.iter().zip(&x_hat).zip(&groups) {
            if let Some(sums) = sums.get_mut(group) {
                sums.elements += 1.0;
                sums.own += own;
                sums.own_x_hat += own * x_hat.abs();
            }
        }
        for ((own, x_hat), &group) in own.iter_mut().zip(&x_hat).zip(&groups) {
            if let Some(sums) = sums.get(group).filter(|sums| sums.own > 0.0) {
                *own += (sums.own + x_hat.abs() * sums.own_x_hat) / sums.elements;
            }
        }
        Ok(own)
    }
}

/// Over the elements that share statistics.
#[derive(Clone, Copy, Default)]
struct Sums {
    elements: f64,
    own: f64,
    own_x_hat: f64,
}

/// Which mean is each element's: 0 less a mean that is its index, over a deviation of 1.
fn groups<O, G>(layer: &Layer<O, G>, inputs: &Inputs<'_>) -> Result<Vec<usize>, Error>
where
    O: Fn(&Inputs<'_>) -> Result<Forward, Error>,
{
    let zeros = memory::filled(OF_CHECK, inputs.src.len(), 0.0)?;
    let ones = memory::filled(OF_CHECK, inputs.mean.len(), 1.0)?;
    let mut indices = memory::filled(OF_CHECK, inputs.mean.len(), 0.0)?;
    for (index, mean) in indices.iter_mut().enumerate() {
        *mean = -(index as f64);
    }
    let found = (layer.output)(&Inputs {
        src: &zeros,
        mean: &indices,
        variance: &ones,
        gamma: None,
        beta: None,
        epsilon: 0.0,
    })?;
    let mut groups = memory::filled(OF_CHECK, inputs.src.len(), 0)?;
    for (group, index) in groups.iter_mut().zip(found.dst) {
        *group = index as usize;
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use wgpu_norm::reference::{self, channel_axes, scaled_error};
    use wgpu_norm::{DataFormat, Error};

    const SHAPE: [usize; 3] = [50, 4, 8];
    const ELEMENTS: usize = 1600;

    /// Elements whose y is 0: two in one channel and sample, one in another channel, one in another sample.
    const THESE: [usize; 4] = [3, 5, 17, 35];

    fn wave(period: usize, shift: f64) -> Vec<f64> {
        let value = |i: usize| (i * 7 % period) as f64 / period as f64 - shift;
        (0..ELEMENTS).map(value).collect()
    }

    /// diff_dst with those of the elements that a set of bits names, and 0 for the others.
    fn with(bits: usize) -> Vec<f64> {
        let mut diff_dst = wave(101, 0.3);
        for (bit, &index) in THESE.iter().enumerate() {
            if let Some(diff) = diff_dst.get_mut(index).filter(|_| bits >> bit & 1 == 0) {
                *diff = 0.0;
            }
        }
        diff_dst
    }

    /// Whatever rounding decides is within the widened tolerance, which is hardly wider for other elements.
    fn assert_allowed<O, G>(layer: &Layer<O, G>, inputs: &Inputs<'_>)
    where
        O: Fn(&Inputs<'_>) -> Result<Forward, Error>,
        G: Fn(&[f64]) -> Result<Gradients, Error>,
    {
        let mut y = Forward {
            dst: vec![1.0; ELEMENTS],
            dst_scale: vec![1.0; ELEMENTS],
            ..Forward::default()
        };
        for &index in &THESE {
            *y.dst.get_mut(index).unwrap() = 1e-9;
        }
        let all = wave(101, 0.3);
        let undecided = Undecided::find(Activation::Relu, &y, &all, DType::F32).unwrap();
        assert_eq!(undecided.count(), THESE.len());
        let narrow = (layer.gradients)(&with(0)).unwrap();
        let mut wide = narrow.clone();
        undecided.allow(&mut wide, layer, inputs).unwrap();
        let mut beyond = 0;
        for bits in 0..1 << THESE.len() {
            let got = (layer.gradients)(&with(bits)).unwrap();
            let rounded =
                |values: &[f64]| -> Vec<f32> { values.iter().map(|&v| v as f32).collect() };
            let errors = |want: &Gradients| {
                [
                    scaled_error(
                        &rounded(&got.diff_src),
                        &want.diff_src,
                        &want.diff_src_scale,
                    ),
                    scaled_error(
                        &rounded(&got.diff_gamma),
                        &want.diff_gamma,
                        &want.diff_gamma_scale,
                    ),
                    scaled_error(
                        &rounded(&got.diff_beta),
                        &want.diff_beta,
                        &want.diff_beta_scale,
                    ),
                ]
            };
            let allowed = errors(&wide);
            assert!(
                allowed.iter().all(|&error| error <= 1.0),
                "{bits}: {allowed:?}"
            );
            beyond += usize::from(errors(&narrow).iter().all(|&error| error > 1.0));
        }
        // Without any of them there is nothing to allow for.
        assert_eq!(beyond, (1 << THESE.len()) - 1);
        let roundings = SUM_ULPS * DType::F32.unit_roundoff();
        let widened = wide.diff_src_scale.iter().zip(&narrow.diff_src_scale);
        let widened = widened.map(|(wide, narrow)| (wide - narrow) * roundings);
        for (index, by) in widened.enumerate() {
            let size = match THESE.contains(&index) {
                true => 10.0,
                false => 0.2,
            };
            assert!(by < size, "{index}: {by}");
        }
    }

    #[test]
    fn either_gradient_of_batch_norm_is_allowed() {
        let (src, gamma) = (wave(97, 0.5), [1.5, -0.5, 2.0, 1.0]);
        let (mean, variance) = ([0.01, -0.02, 0.0, 0.03], [0.09, 0.08, 0.07, 0.1]);
        let inputs = Inputs {
            src: &src,
            mean: &mean,
            variance: &variance,
            gamma: Some(&gamma),
            beta: None,
            epsilon: 1e-5,
        };
        let channel_axes = &*channel_axes(3, DataFormat::Ncx);
        for statistics in [Statistics::Batch, Statistics::Constant] {
            for param_grads in [ParamGrads::Both, ParamGrads::Neither] {
                let layer = Layer {
                    output: |of: &Inputs<'_>| {
                        reference::BatchNormForward {
                            shape: &SHAPE,
                            channel_axes,
                            src: of.src,
                            gamma: of.gamma,
                            beta: of.beta,
                            epsilon: of.epsilon,
                        }
                        .infer(of.mean, of.variance)
                    },
                    gradients: |diff_dst: &[f64]| {
                        reference::BatchNorm {
                            shape: &SHAPE,
                            channel_axes,
                            src: &src,
                            diff_dst,
                            mean: &mean,
                            variance: &variance,
                            gamma: Some(&gamma),
                            epsilon: 1e-5,
                            statistics,
                            param_grads,
                        }
                        .backward()
                    },
                    statistics,
                    param_grads,
                };
                assert_allowed(&layer, &inputs);
            }
        }
    }

    #[test]
    fn either_gradient_of_group_norm_is_allowed() {
        let (src, gamma) = (wave(97, 0.5), [1.5, -0.5, 2.0, 1.0]);
        let (mean, variance) = ([0.01; 50], [0.08; 50]);
        let inputs = Inputs {
            src: &src,
            mean: &mean,
            variance: &variance,
            gamma: Some(&gamma),
            beta: None,
            epsilon: 1e-5,
        };
        let layer = Layer {
            output: |of: &Inputs<'_>| {
                reference::GroupNormForward {
                    shape: &SHAPE,
                    data_format: DataFormat::Ncx,
                    groups: 1,
                    src: of.src,
                    gamma: of.gamma,
                    beta: of.beta,
                    epsilon: of.epsilon,
                }
                .infer(of.mean, of.variance)
            },
            gradients: |diff_dst: &[f64]| {
                reference::GroupNorm {
                    shape: &SHAPE,
                    data_format: DataFormat::Ncx,
                    groups: 1,
                    src: &src,
                    diff_dst,
                    mean: &mean,
                    variance: &variance,
                    gamma: Some(&gamma),
                    epsilon: 1e-5,
                    param_grads: ParamGrads::Both,
                }
                .backward()
            },
            statistics: Statistics::Batch,
            param_grads: ParamGrads::Both,
        };
        assert_allowed(&layer, &inputs);
    }
}
