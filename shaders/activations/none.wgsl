// A layer without an activation.

fn activation(y: real4) -> real4 {
    return y;
}

fn activation_gradient(y: real4, diff: real4) -> real4 {
    return diff;
}
