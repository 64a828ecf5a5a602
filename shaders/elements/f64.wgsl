// The type of sums, and of everything else between loading and storing.

alias real = f64;
alias real2 = vec2<f64>;
alias real4 = vec4<f64>;

fn at_most_zero(value: real4) -> vec4<bool> {
    return value <= real4();
}

fn is_normal(value: real4) -> vec4<bool> {
    let size = abs(value);
    return (size >= real4(2.2250738585072014e-308lf)) & (size <= real4(1.7976931348623157e308lf));
}

fn nan_unless_finite(value: real4) -> real4 {
    return select(value, sqrt(-value), value > real4(1.7976931348623157e308lf));
}
