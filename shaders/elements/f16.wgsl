// f16 in storage: four elements in two words, the first in the low half. Converted with integers,
// since pack2x16float may round otherwise than to nearest even.

fn decode_f16(words: vec2<u32>) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
}

fn encode_f16(value: vec4<f32>) -> vec2<u32> {
    let bits = bitcast<vec4<u32>>(value);
    let sign = (bits >> vec4(16u)) & vec4(0x8000u);
    let magnitude = bits & vec4(0x7fffffffu);

    // Move the exponent's bias and round away 13 bits: a carry runs into the exponent. Below 2^-14 the
    // significand with its leading 1 is rounded to a multiple of 2^-24, by as many bits more as the exponent
    // lacks; from 25 on nothing is left.
    let exponent = magnitude >> vec4(23u);
    let biased = magnitude - (min(exponent, vec4(113u)) << vec4(23u)) + vec4(0x800000u);
    let lost = vec4(126u) - clamp(exponent, vec4(101u), vec4(113u));
    let below_half = (vec4(1u) << (lost - vec4(1u))) - vec4(1u);
    var half = (biased + below_half + ((biased >> lost) & vec4(1u))) >> lost;
    // 65520 and above, infinity included; then NaN, which keeps its upper bits and is made quiet.
    half = select(half, vec4(0x7c00u), magnitude >= vec4(0x477ff000u));
    half = select(half, vec4(0x7e00u) | ((magnitude >> vec4(13u)) & vec4(0x3ffu)), magnitude > vec4(0x7f800000u));
    half |= sign;
    return half.xz | (half.yw << vec2(16u));
}
