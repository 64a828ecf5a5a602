// silu(y) = y · s with s = 1 / (1 + exp(−y)), and its gradient s · (1 + y · (1 − s)).
//
// Both are computed from t = exp(−|y| / 2), so that no intermediate value is subnormal where the result is not: below
// y = −88, exp(y) is subnormal and y · exp(y) is not.

#import near_zero

fn activation(y: real4) -> real4 {
    let t = exp(real4(-0.5) * abs(y));
    return select(y, (near_zero(y) * t) * t, y < real4()) / (real4(1.0) + t * t);
}

fn activation_gradient(y: real4, diff: real4) -> real4 {
    let t = exp(real4(-0.5) * abs(y));
    let larger = real4(1.0) / (real4(1.0) + t * t); // the larger of s and 1 − s
    let smaller = (t * t) * larger;
    let negative = y < real4();
    let slope = real4(1.0) + near_zero(y) * select(smaller, larger, negative);
    return select(diff * slope, ((diff * t) * slope) * t, negative) * larger;
}
