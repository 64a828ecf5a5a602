// Rounds to f16 by integers: right on every adapter.

fn encode_f16(value: vec4<f32>) -> vec2<u32> {
    let bits = bitcast<vec4<u32>>(value);
    let sign = (bits >> vec4(16u)) & vec4(0x8000u);
    let magnitude = bits & vec4(0x7fffffffu);

    // Change the exponent's bias and round off 13 bits, to even. A carry goes on into the exponent, up to infinity.
    let even = (magnitude >> vec4(13u)) & vec4(1u);
    let normal = (magnitude - vec4(0x38000000u) + vec4(0xfffu) + even) >> vec4(13u);
    // Below 2^-14, f16's values are multiples of 2^-24, as f32's are from 0.5 on, so an addition rounds: to even
    // wherever this was tested, though WGSL does not promise it.
    let small = bitcast<vec4<u32>>(bitcast<vec4<f32>>(magnitude) + vec4(0.5)) - vec4(0x3f000000u);
    var half = select(min(normal, vec4(0x7c00u)), small, magnitude < vec4(0x38800000u));
    // NaN keeps its upper bits and is made quiet.
    half = select(half, vec4(0x7e00u) | ((magnitude >> vec4(13u)) & vec4(0x3ffu)), magnitude > vec4(0x7f800000u));
    half |= sign;
    return half.xz | (half.yw << vec2(16u));
}
