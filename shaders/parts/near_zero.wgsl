// y, or beyond ±256, where an activation's exponentials are 0, the nearer of the two: 0 · ∞ would be NaN. NaN stays
// NaN. Compares bits: compilers may turn another comparison into a minimum, as in `clamp`, which loses NaN.

fn near_zero(y: real4) -> real4 {
    return select(y, real4(256.0) * sign(y), at_most_zero(real4(256.0) - abs(y)));
}
