// The type of sums, and of everything else between loading and storing.

alias real = f32;
alias real2 = vec2<f32>;
alias real4 = vec4<f32>;

// Compares bits: compilers may turn a comparison with 0 into a maximum, which turns NaN into 0.
fn at_most_zero(value: real4) -> vec4<bool> {
    let bits = bitcast<vec4<i32>>(value);
    return (bits == vec4(0)) | (bits <= vec4(-8388608)); // the bits of −infinity
}

// Says where a product has neither overflowed nor underflowed. Tests bits, as below: the exponent, less 1.
fn is_normal(value: real4) -> vec4<bool> {
    return (bitcast<vec4<u32>>(value) & vec4(0x7f800000u)) - vec4(0x00800000u) < vec4(0x7f000000u);
}

// Tests bits: compilers may assume that there is neither infinity nor NaN.
fn nan_unless_finite(value: real4) -> real4 {
    let bits = bitcast<vec4<u32>>(value);
    let infinity = vec4(0x7f800000u);
    // Not `select`, which GLSL before 4.50 lacks for integers.
    return bitcast<real4>(bits | (vec4<u32>((bits & infinity) == infinity) << vec4(22u)));
}
