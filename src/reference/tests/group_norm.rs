//! Group norm, forward and gradient.

use super::forward::check_derivatives;
use super::*;
use crate::DataFormat::{Ncx, Nxc};

const CHANNELS: usize = 6;
const GROUPS: usize = 2;

/// Of a shape with 2 samples, 6 channels and 5 other elements.
fn group_of(format: DataFormat) -> impl Fn(usize) -> (usize, usize) {
    move |i| {
        let (sample, rest) = (i / 30, i % 30);
        let channel = match format {
            Ncx => rest / 5,
            Nxc => rest % 6,
        };
        (sample * GROUPS + channel / 3, channel)
    }
}

#[test]
fn gradients_are_the_derivatives_of_group_norm() {
    let (src, diff_dst) = (noise(60, 1.0), noise(60, 2.0));
    let (mut gamma, beta) = (noise(CHANNELS, 3.0), noise(CHANNELS, 4.0));
    gamma[1] = 0.0; // counts in its group all the same
    for (format, shape) in [(Ncx, [2, 6, 5]), (Nxc, [2, 5, 6])] {
        let of = |src: Slice, gamma: Slice, beta: Slice| {
            let layer = GroupNormForward {
                shape: &shape,
                data_format: format,
                groups: GROUPS,
                src,
                gamma: Some(gamma),
                beta: Some(beta),
                epsilon: EPSILON,
            };
            layer.forward().unwrap()
        };
        let at = of(&src, &gamma, &beta);
        // Statistics and output by their definition.
        let place = group_of(format);
        let (mean, variance) = mean_and_variance(&src, &|i| place(i).0);
        assert!(largest(&at.mean, &mean, &at.mean_scale) < 1e-14);
        assert!(largest(&at.variance, &variance, &at.variance_scale) < 1e-14);
        let x_hat = normalized(&src, &|i| place(i).0);
        let dst = (0..60).map(|i| gamma[place(i).1] * x_hat[i] + beta[place(i).1]);
        assert!(largest(&at.dst, &dst.collect::<Vec<_>>(), &at.dst_scale) < 1e-14);
        let got = GroupNorm {
            shape: &shape,
            data_format: format,
            groups: GROUPS,
            src: &src,
            diff_dst: &diff_dst,
            mean: &at.mean,
            variance: &at.variance,
            gamma: Some(&gamma),
            epsilon: EPSILON,
            param_grads: Both,
        };
        check_derivatives(
            &got.backward().unwrap(),
            &|src, gamma, beta| of(src, gamma, beta).dst,
            [&src, &diff_dst, &gamma, &beta],
        );
    }
}

/// With a group for each channel, a sample is a batch of its own.
#[test]
fn one_sample_of_instance_norm_is_batch_norm() {
    let (src, diff_dst, gamma) = (noise(30, 1.0), noise(30, 2.0), noise(CHANNELS, 3.0));
    let shape = [1, 6, 5];
    let (mean, variance) = mean_and_variance(&src, &|i| i / 5);
    let group = GroupNorm {
        shape: &shape,
        data_format: Ncx,
        groups: CHANNELS,
        src: &src,
        diff_dst: &diff_dst,
        mean: &mean,
        variance: &variance,
        gamma: Some(&gamma),
        epsilon: EPSILON,
        param_grads: Both,
    };
    let got = group.backward().unwrap();
    let axes = channel_axes(3, Ncx);
    let params = (&mean[..], &variance[..], Some(&gamma[..]));
    let want = batch_norm(
        (&shape, &axes),
        (&src, &diff_dst),
        params,
        EPSILON,
        Batch,
        Both,
    );
    let want = want.unwrap();
    assert!(largest(&got.diff_src, &want.diff_src, &want.diff_src_scale) < 1e-14);
    assert_eq!(got.diff_gamma, want.diff_gamma);
    assert_eq!(got.diff_beta, want.diff_beta);
}

#[test]
fn edges_and_errors_of_group_norm() {
    let forward = |shape: &[usize], groups| {
        let elements = shape.iter().product();
        let layer = GroupNormForward {
            shape,
            data_format: Ncx,
            groups,
            src: &noise(elements, 1.0),
            gamma: None,
            beta: None,
            epsilon: EPSILON,
        };
        layer.forward()
    };
    let empty = forward(&[2, 4, 0], 2).unwrap();
    assert_eq!((empty.mean, empty.variance), (vec![0.0; 4], vec![0.0; 4]));
    assert!(forward(&[0, 4, 3], 2).unwrap().mean.is_empty());
    assert_eq!(forward(&[2, 0, 3], 2).unwrap().mean, [0.0; 4]);
    assert_eq!(forward(&[1, 1], 1).unwrap().dst, [0.0]);
    for groups in [0, 3, 5] {
        let error = forward(&[2, 4, 3], groups).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Argument {
                    argument: "groups",
                    ..
                }
            ),
            "{error}"
        );
    }
    assert!(matches!(forward(&[4], 1), Err(Error::Rank { got: 1, .. })));
}
