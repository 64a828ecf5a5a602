// silu(y) = y · s with s = 1 / (1 + exp(−y)), and its gradient s · (1 + y · (1 − s)).

fn activation(y: real4) -> real4 {
    return y / (real4(1.0) + exp(-y));
}

fn activation_gradient(y: real4, diff: real4) -> real4 {
    let s = real4(1.0) / (real4(1.0) + exp(-y));
    return diff * (s * (real4(1.0) + y * (real4(1.0) - s)));
}
