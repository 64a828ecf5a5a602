//! The forward passes: hand-worked numbers, exact statistics, and that the gradients are their derivatives.

use super::*;

fn batch<'a>(shape: &'a [usize], axes: &'a [bool], src: Slice<'a>) -> BatchNormForward<'a> {
    BatchNormForward {
        shape,
        channel_axes: axes,
        src,
        gamma: None,
        beta: None,
        epsilon: EPSILON,
    }
}

fn layer<'a>(shape: &'a [usize], begin_norm_axis: usize, src: Slice<'a>) -> LayerNormForward<'a> {
    LayerNormForward {
        shape,
        begin_norm_axis,
        src,
        residual: None,
        gamma: None,
        beta: None,
        epsilon: EPSILON,
    }
}

fn rms<'a>(shape: &'a [usize], begin_norm_axis: usize, src: Slice<'a>) -> RmsNormForward<'a> {
    RmsNormForward {
        shape,
        begin_norm_axis,
        src,
        residual: None,
        gamma: None,
        epsilon: EPSILON,
    }
}

/// One row under layer norm.
fn row(src: Slice) -> Forward {
    layer(&[src.len()], 0, src).forward().unwrap()
}

fn rounded(values: Slice) -> Vec<f32> {
    values.iter().map(|&x| x as f32).collect()
}

fn exact(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| f64::from(x)).collect()
}

#[test]
fn hand_worked_numbers() {
    // Two channels along axis 1: 1, 3 and 10, 30. Variance + epsilon is 4 and 103.
    let got = BatchNormForward {
        gamma: Some(&[2.0, 1.0]),
        beta: Some(&[-1.0, 0.5]),
        epsilon: 3.0,
        ..batch(&[2, 2], &[false, true], &[1.0, 10.0, 3.0, 30.0])
    };
    let train = got.train().unwrap();
    let x_hat = 10.0 / 103f64.sqrt();
    assert_eq!(
        (train.mean, train.variance),
        (vec![2.0, 20.0], vec![1.0, 100.0])
    );
    let want = [-2.0, 0.5 - x_hat, 0.0, 0.5 + x_hat];
    assert!(largest(&train.dst, &want, &[1.0; 4]) < 1e-15);
    assert_eq!(train.mean_scale, [3.0, 30.0]);
    assert_eq!(train.variance_scale, [2.6, 260.0]);
    // |gamma|·(1.3·|x̂| + σ·r) + |beta| with x̂ = ±1/2, σ·r = 1/2.
    assert!((train.dst_scale[0] - (2.0 * (0.65 + 0.5) + 1.0)).abs() < 1e-15);
    assert!(train.sum.is_empty() && train.mean_square.is_empty());

    let infer = got.infer(&[0.0, 20.0], &[1.0, 22.0]).unwrap();
    assert_eq!(infer.dst, [0.0, -1.5, 2.0, 2.5]);
    assert_eq!(infer.dst_scale, [2.0, 2.5, 4.0, 2.5]);
    assert!(infer.mean.is_empty() && infer.variance.is_empty());

    // x = 1, 5 and 7, 7.
    let got = LayerNormForward {
        residual: Some(&[0.0, 3.0, 6.0, -1.0]),
        gamma: Some(&[1.0, 10.0]),
        beta: Some(&[0.0, 100.0]),
        epsilon: 12.0,
        ..layer(&[2, 1, 2], 1, &[1.0, 2.0, 1.0, 8.0])
    };
    let got = got.forward().unwrap();
    assert_eq!(got.sum, [1.0, 5.0, 7.0, 7.0]);
    assert_eq!((got.mean, got.variance), (vec![3.0, 7.0], vec![4.0, 0.0]));
    assert_eq!(got.dst, [-0.5, 105.0, 0.0, 100.0]);
    assert_eq!(got.sum_scale, got.sum);

    let got = RmsNormForward {
        residual: Some(&[2.0, 3.0]),
        gamma: Some(&[-1.0, 10.0]),
        epsilon: 12.5,
        ..rms(&[1, 2], 1, &[1.0, 1.0])
    };
    let got = got.forward().unwrap();
    assert_eq!((got.sum, got.mean_square), (vec![3.0, 4.0], vec![12.5]));
    assert!(largest(&got.dst, &[-0.6, 8.0], &[1.0; 2]) < 1e-15);
    assert!(largest(&got.dst_scale, &[0.6, 8.0], &[1.0; 2]) < 1e-15);
    assert!(got.mean.is_empty() && got.variance.is_empty());
}

/// Any set of channel axes, against sums that share no code with the reference.
#[test]
fn channels_of_any_axes() {
    let (src, gamma, beta) = (noise(120, 1.0), noise(20, 3.0), noise(20, 4.0));
    let got = BatchNormForward {
        gamma: Some(&gamma),
        beta: Some(&beta),
        ..batch(&SHAPE, &AXES, &src)
    };
    let train = got.train().unwrap();
    let (mean, variance) = mean_and_variance(&src, &channel);
    assert!(largest(&train.mean, &mean, &train.mean_scale) < 1e-15);
    assert!(largest(&train.variance, &variance, &train.variance_scale) < 1e-15);
    let x_hat = normalized(&src, &channel);
    let want = |i| gamma[channel(i)] * x_hat[i] + beta[channel(i)];
    let want: Vec<f64> = (0..120).map(want).collect();
    assert!(largest(&train.dst, &want, &train.dst_scale) < 1e-15);

    let infer = got.infer(&mean, &variance).unwrap();
    assert!(largest(&infer.dst, &want, &infer.dst_scale) < 1e-15);
}

#[test]
fn constant_rows_are_exact() {
    for x in [0.1, -1e300, 5e-324, 16_777_217.3] {
        for size in [1, 3, 10, 1000] {
            let got = row(&vec![x; size]);
            assert_eq!((got.mean[0], got.variance[0]), (x, 0.0));
            assert_eq!(got.variance_scale, [0.0]);
            assert_eq!(got.dst, vec![0.0; size]);
            // Nothing but beta is left in dst, so nothing else is in its scale.
            assert_eq!(got.dst_scale, vec![0.0; size]);
        }
    }
}

/// Integers, whose sums are exact in i128: mean/σ up to 1e6, and a first element 1e6 σ away.
#[test]
fn statistics_are_exact() {
    let size = 4099;
    let random = |i: i64| (i * 48_271 % 4_001) - 2_000; // σ = 1155
    let outlier = |i: i64| if i == 0 { 1_155_000_000 } else { random(i) };
    let offset = |i: i64| 1_155_000_000 + random(i);
    let far = |i: i64| 1_155_000_000_000 + random(i);
    for value in [&random as &dyn Fn(i64) -> i64, &outlier, &offset, &far] {
        let values: Vec<i128> = (0..size).map(|i| i128::from(value(i))).collect();
        let count = i128::from(size);
        let sum: i128 = values.iter().sum();
        let squares: i128 = values.iter().map(|x| x * x).sum();
        let mean = sum as f64 / count as f64;
        let variance = (count * squares - sum * sum) as f64 / (count * count) as f64;

        let src: Vec<f64> = values.iter().map(|&x| x as f64).collect();
        let got = row(&src);
        assert!(largest(&got.mean, &[mean], &got.mean_scale) < 2e-16);
        let error = (got.variance[0] / variance - 1.0).abs();
        assert!(error < 1e-15, "{error:e}");
        let x_hat = |x: i128| (count * x - sum) as f64 / count as f64 / (variance + EPSILON).sqrt();
        let want: Vec<f64> = values.iter().map(|&x| x_hat(x)).collect();
        // What is left is the rounding of the mean itself, 1e-16 of up to 1e9 σ.
        let allowed = 1e-14 + 2e-16 * mean.abs() / variance.sqrt();
        assert!(largest(&got.dst, &want, &got.dst_scale) < allowed);
    }
}

/// A forward pass, as far as its derivatives go.
pub(super) type Pass<'a> = &'a dyn Fn(Slice, Slice, Slice) -> Vec<f64>; // dst of src, gamma, beta

/// Central differences of Σ diff_dst·dst. An empty diff_beta means that there is no beta.
pub(super) fn check_derivatives(
    g: &Gradients,
    pass: Pass,
    [src, diff_dst, gamma, beta]: [Slice; 4],
) {
    let loss = |at: [Slice; 3]| -> f64 {
        let dst = pass(at[0], at[1], at[2]);
        dst.iter().zip(diff_dst).map(|(y, dy)| y * dy).sum()
    };
    let gradients = [
        (&g.diff_src, &g.diff_src_scale),
        (&g.diff_gamma, &g.diff_gamma_scale),
        (&g.diff_beta, &g.diff_beta_scale),
    ];
    for (argument, (got, scale)) in gradients.into_iter().enumerate() {
        let moved = |i: usize, by: f64| {
            let mut at = [src, gamma, beta];
            let mut values = at[argument].to_vec();
            values[i] += by;
            at[argument] = &values;
            loss(at)
        };
        let difference = |i| (moved(i, 1e-5) - moved(i, -1e-5)) / 2e-5;
        let want: Vec<f64> = (0..got.len()).map(difference).collect();
        // A difference is as rough as the whole sum, however small an element's own scale is.
        let scale = scale.iter().copied().fold(0.0, f64::max);
        let error = largest(got, &want, &vec![scale; got.len()]);
        assert!(error < 1e-9, "argument {argument}: {error:e}");
    }
}

#[test]
fn gradients_are_the_derivatives() {
    let (src, diff_dst) = (noise(120, 1.0), noise(120, 2.0));
    let (gamma, beta) = (noise(20, 3.0), noise(20, 4.0));
    let params = |mean, variance| -> Params<'_> { (mean, variance, Some(&gamma)) };

    let of = |src: Slice, gamma: Slice, beta: Slice| {
        let (gamma, beta) = (Some(gamma), Some(beta));
        #[rustfmt::skip]
        let got = BatchNormForward { gamma, beta, ..batch(&SHAPE, &AXES, src) };
        got.train().unwrap()
    };
    let at = of(&src, &gamma, &beta);
    let (shape, data) = ((&SHAPE[..], &AXES[..]), (&src[..], &diff_dst[..]));
    let got = batch_norm(
        shape,
        data,
        params(&at.mean, &at.variance),
        EPSILON,
        Batch,
        Both,
    );
    let got = got.unwrap();
    let arguments = [&src[..], &diff_dst, &gamma, &beta];
    check_derivatives(
        &got,
        &|src, gamma, beta| of(src, gamma, beta).dst,
        arguments,
    );

    // The same statistics as constants, which moving src does not move.
    let infer = |src: Slice, gamma: Slice, beta: Slice| {
        let (gamma, beta) = (Some(gamma), Some(beta));
        #[rustfmt::skip]
        let got = BatchNormForward { gamma, beta, ..batch(&SHAPE, &AXES, src) };
        got.infer(&at.mean, &at.variance).unwrap().dst
    };
    let got = batch_norm(
        shape,
        data,
        params(&at.mean, &at.variance),
        EPSILON,
        Constant,
        Both,
    );
    check_derivatives(&got.unwrap(), &infer, arguments);

    // Rows of 10. What src's gradient is, residual's is too.
    let residual = noise(120, 6.0);
    let x: Vec<f64> = src.iter().zip(&residual).map(|(a, b)| a + b).collect();
    let (gamma, beta) = (&gamma[..10], &beta[..10]);
    let of = |src: Slice, gamma: Slice, beta: Slice| {
        let (gamma, beta, residual) = (Some(gamma), Some(beta), Some(&residual[..]));
        #[rustfmt::skip]
        let got = LayerNormForward { residual, gamma, beta, ..layer(&SHAPE, 2, src) };
        got.forward().unwrap()
    };
    let at = of(&src, gamma, beta);
    let params = (&at.mean[..], &at.variance[..], Some(gamma));
    let got = layer_norm((&SHAPE, 2), (&x, &diff_dst), params, EPSILON).unwrap();
    let arguments = [&src, &diff_dst, gamma, beta];
    check_derivatives(
        &got,
        &|src, gamma, beta| of(src, gamma, beta).dst,
        arguments,
    );

    let of = |src: Slice, gamma: Slice, _: Slice| {
        let (gamma, residual) = (Some(gamma), Some(&residual[..]));
        #[rustfmt::skip]
        let got = RmsNormForward { residual, gamma, ..rms(&SHAPE, 2, src) };
        got.forward().unwrap()
    };
    let got = RmsNorm {
        shape: &SHAPE,
        begin_norm_axis: 2,
        src: &x,
        diff_dst: &diff_dst,
        mean_square: &of(&src, gamma, beta).mean_square,
        gamma: Some(gamma),
        epsilon: EPSILON,
        param_grads: Both,
    };
    let got = got.backward().unwrap();
    check_derivatives(
        &got,
        &|src, gamma, beta| of(src, gamma, beta).dst,
        arguments,
    );
}

/// What a good kernel does with one row in f32: a shift, plain sums, dst from (x − shift) − δ.
fn row_in_f32(x: &[f32]) -> (f32, f32, Vec<f32>) {
    let count = x.len() as f32;
    let (shift, mut sum, mut squares) = (x[0], 0f32, 0f32);
    for d in x.iter().map(|x| x - shift) {
        sum += d;
        squares += d * d;
    }
    let delta = sum / count;
    let variance = (squares - sum * delta) / count;
    let r = 1.0 / (variance + EPSILON as f32).sqrt();
    let dst = x.iter().map(|x| ((x - shift) - delta) * r).collect();
    (shift + delta, variance, dst)
}

/// The error of a row in f32, in tolerances.
fn error_in_f32(want: &Forward, x: &[f32]) -> f64 {
    let (mean, variance, dst) = row_in_f32(x);
    let mean = scaled_error(&[mean], &want.mean, &want.mean_scale);
    let variance = scaled_error(&[variance], &want.variance, &want.variance_scale);
    let dst = scaled_error(&dst, &want.dst, &want.dst_scale);
    mean.max(variance).max(dst)
}

#[test]
fn scales_fit_f32() {
    for ratio in [0.0, 1.0, 1e3, 1e6] {
        let values = noise(1000, 1.0).into_iter();
        let values: Vec<f64> = values.map(|x| 8.0 * (x + ratio)).collect();
        let (x, residual) = (rounded(&values), rounded(&noise(1000, 2.0)));
        let want = row(&exact(&x));
        let error = error_in_f32(&want, &x);
        assert!(error < 0.5, "{ratio:e}: {error}");

        // A sum that f32 has to round: its scales allow for that, those of a stored x do not.
        let of_sum: Vec<f32> = x.iter().zip(&residual).map(|(a, b)| a + b).collect();
        let (src, residual) = (exact(&x), exact(&residual));
        let residual = Some(&residual[..]);
        #[rustfmt::skip]
        let want = LayerNormForward { residual, ..layer(&[1000], 0, &src) };
        let want = want.forward().unwrap();
        assert!(scaled_error(&of_sum, &want.sum, &want.sum_scale) < 0.02);
        let error = error_in_f32(&want, &of_sum);
        assert!(error < 1.0, "{ratio:e}: {error}");
        let error = error_in_f32(&row(&want.sum), &of_sum);
        assert!(ratio < 1e6 || error > 2.0, "{ratio:e}: {error}");
    }
}

#[test]
fn running_statistics() {
    let old = [1.0, -2.0];
    assert_eq!(
        running(&old, &[3.0, 2.0], 0.25, 4, false).unwrap(),
        [1.5, -1.0]
    );
    assert_eq!(
        running(&old, &[3.0, 6.0], 1.0, 4, true).unwrap(),
        [4.0, 8.0]
    );
    assert_eq!(running(&old, &[3.0, 6.0], 0.0, 4, true).unwrap(), old);
    assert_eq!(
        running(&old, &[3.0, 6.0], 0.5, 1, false).unwrap(),
        [2.0, 2.0]
    );
    for unbiased in [false, true] {
        assert_eq!(running(&old, &[9.0; 2], 1.0, 0, unbiased).unwrap(), old);
    }
    let error = running(&old, &old, 0.5, 1, true).unwrap_err();
    assert!(matches!(
        error,
        Error::Argument {
            argument: "count",
            ..
        }
    ));
    let error = running(&old, &[1.0], 0.5, 0, false).unwrap_err();
    assert!(matches!(
        error,
        Error::Length {
            tensor: "batch",
            ..
        }
    ));
}

#[test]
fn edges_and_errors_of_forward() {
    const INF: f64 = f64::INFINITY;
    // No element: statistics are 0.
    let got = batch(&[0, 2, usize::MAX], &[false, true, false], &[]);
    let got = got.train().unwrap();
    assert_eq!(
        (&got.mean[..], &got.variance[..]),
        (&[0.0; 2][..], &[0.0; 2][..])
    );
    assert!(got.dst.is_empty());
    assert_eq!(layer(&[2, 0], 1, &[]).forward().unwrap().variance, [0.0; 2]);
    assert_eq!(
        rms(&[2, 0], 1, &[]).forward().unwrap().mean_square,
        [0.0; 2]
    );
    assert!(layer(&[0, 3], 1, &[]).forward().unwrap().mean.is_empty());

    // What is not finite gives what the formula gives, in its own row alone.
    for infinite in [[INF, 1.0, 0.0, 2.0], [1.0, INF, 0.0, 2.0]] {
        let got = layer(&[2, 2], 1, &infinite).forward().unwrap();
        assert_eq!((got.mean[0], got.mean[1], got.variance[1]), (INF, 1.0, 1.0));
        assert!(got.variance[0].is_nan() && got.dst[0].is_nan() && got.dst[3].is_finite());
    }
    #[rustfmt::skip]
    let negative = LayerNormForward { epsilon: -9.0, ..layer(&[2], 0, &[0.0, 2.0]) };
    assert!(negative.forward().unwrap().dst[0].is_nan());

    let culprit = |result: Result<Forward, Error>| match result {
        Err(Error::Length { tensor, .. } | Error::Rank { tensor, .. }) => tensor,
        Err(Error::SizeOverflow { what, .. } | Error::HostMemory { what, .. }) => what,
        Err(Error::Argument { argument, .. }) => argument,
        other => panic!("{other:?}"),
    };
    let short: Option<Slice> = Some(&[1.0]);
    let (two, axes) = ([1.0, 2.0], [true]);
    assert_eq!(culprit(batch(&[], &[], &[]).train()), "src");
    assert_eq!(culprit(batch(&[1; 9], &[true; 9], &[1.0]).train()), "src");
    assert_eq!(
        culprit(batch(&[usize::MAX, 3], &[true; 2], &[]).train()),
        "src"
    );
    assert_eq!(culprit(batch(&[2], &[], &two).train()), "channel_axes");
    assert_eq!(culprit(batch(&[2], &axes, &[1.0]).train()), "src");
    let many = batch(&[0, usize::MAX], &[false, true], &[]);
    assert_eq!(culprit(many.train()), OF_CHANNELS);
    let good = batch(&[2], &axes, &two);
    assert_eq!(culprit(good.infer(&[1.0], &two)), "mean");
    assert_eq!(culprit(good.infer(&two, &[1.0])), "variance");
    assert_eq!(
        culprit(
            BatchNormForward {
                gamma: short,
                ..good
            }
            .train()
        ),
        "gamma"
    );
    assert_eq!(
        culprit(
            BatchNormForward {
                beta: short,
                ..good
            }
            .infer(&two, &two)
        ),
        "beta"
    );

    let good = layer(&[2], 0, &two);
    assert_eq!(culprit(layer(&[2], 1, &two).forward()), "begin_norm_axis");
    assert_eq!(
        culprit(layer(&[2], usize::MAX, &two).forward()),
        "begin_norm_axis"
    );
    assert_eq!(culprit(layer(&[3], 0, &two).forward()), "src");
    assert_eq!(
        culprit(layer(&[usize::MAX, 0], 1, &[]).forward()),
        OF_CHANNELS
    );
    assert_eq!(
        culprit(
            LayerNormForward {
                residual: short,
                ..good
            }
            .forward()
        ),
        "residual"
    );
    assert_eq!(
        culprit(
            LayerNormForward {
                gamma: short,
                ..good
            }
            .forward()
        ),
        "gamma"
    );
    assert_eq!(
        culprit(
            LayerNormForward {
                beta: short,
                ..good
            }
            .forward()
        ),
        "beta"
    );

    let good = rms(&[2], 0, &two);
    assert_eq!(culprit(rms(&[2], 1, &two).forward()), "begin_norm_axis");
    assert_eq!(culprit(rms(&[3], 0, &two).forward()), "src");
    assert_eq!(
        culprit(rms(&[usize::MAX, 0], 1, &[]).forward()),
        OF_CHANNELS
    );
    assert_eq!(
        culprit(
            RmsNormForward {
                residual: short,
                ..good
            }
            .forward()
        ),
        "residual"
    );
    assert_eq!(
        culprit(
            RmsNormForward {
                gamma: short,
                ..good
            }
            .forward()
        ),
        "gamma"
    );
}
