// GELU by a hyperbolic tangent: y · (1 + tanh(u)) / 2 with u = √(2/π) · (y + 0.044715 · y³), which is y · s with
// s = 1 / (1 + exp(−2 · u)), and its gradient s · (1 + y · (1 − s) · 2 · u′).
//
// Both are computed from t = exp(−|u|), as in silu.wgsl. Where |y| is above 15, t is 0.

#import near_zero

fn activation(y: real4) -> real4 {
    let t = exp(-abs(inner(y)));
    return select(y, (near_zero(y) * t) * t, y < real4()) / (real4(1.0) + t * t);
}

fn activation_gradient(y: real4, diff: real4) -> real4 {
    let t = exp(-abs(inner(y)));
    let larger = real4(1.0) / (real4(1.0) + t * t); // the larger of s and 1 − s
    let smaller = (t * t) * larger;
    let negative = y < real4();
    let near = near_zero(y);
    let steep = real4(1.5957691) * (real4(1.0) + real4(0.134145) * (near * near)); // 2 · u′
    let slope = real4(1.0) + (near * steep) * select(smaller, larger, negative);
    return select(diff * slope, ((diff * t) * slope) * t, negative) * larger;
}

fn inner(y: real4) -> real4 {
    let near = near_zero(y);
    return real4(0.79788456) * (near + real4(0.044715) * (near * near * near));
}
