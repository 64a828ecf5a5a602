// r = 1 / sqrt(variance + epsilon) of four channels. It is NaN where the variance is not finite:
// 1 / √∞ = 0 would make an overflow look like a result.

fn inverse_deviation(variance: real4, epsilon: real) -> real4 {
    return real4(1.0) / sqrt(nan_unless_finite(variance + real4(epsilon)));
}
