// relu(y) = max(y, 0), and its gradient, which passes unless y is at most 0. Where y is NaN, both pass.

fn activation(y: real4) -> real4 {
    return select(y, real4(), at_most_zero(y));
}

fn activation_gradient(y: real4, diff: real4) -> real4 {
    return select(diff, real4(), at_most_zero(y));
}
