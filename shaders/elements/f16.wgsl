// f16 in storage: four elements in two words, the first in the low half. Converted with integers,
// since pack2x16float may round otherwise than to nearest even.

fn decode_f16(words: vec2<u32>) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
}

fn encode_f16(value: vec4<f32>) -> vec2<u32> {
    let bits = bitcast<vec4<u32>>(value);
    let sign = (bits >> vec4(16u)) & vec4(0x8000u);
    let magnitude = bits & vec4(0x7fffffffu);

    // 2^-14 and above: move the exponent's bias, round away 13 bits, a carry runs into the exponent.
    let normal = (magnitude - vec4(0x38000000u) + vec4(0xfffu) + ((magnitude >> vec4(13u)) & vec4(1u))) >> vec4(13u);

    // Below: a multiple of 2^-24, the significand shifted by what the exponent lacks.
    let shift = min(vec4(126u) - min(magnitude >> vec4(23u), vec4(125u)), vec4(25u));
    let significand = (magnitude & vec4(0x7fffffu)) | vec4(0x800000u);
    let floor_part = significand >> shift;
    let rest = significand & ((vec4(1u) << shift) - vec4(1u));
    let half_way = vec4(1u) << (shift - vec4(1u));
    let up = (rest > half_way) | ((rest == half_way) & ((floor_part & vec4(1u)) == vec4(1u)));
    let subnormal = floor_part + select(vec4(0u), vec4(1u), up);

    var half = select(normal, subnormal, magnitude < vec4(0x38800000u));
    // 65520 and above, infinity included; then NaN, which keeps its upper bits and is made quiet.
    half = select(half, vec4(0x7c00u), magnitude >= vec4(0x477ff000u));
    half = select(half, vec4(0x7e00u) | ((magnitude >> vec4(13u)) & vec4(0x3ffu)), magnitude > vec4(0x7f800000u));
    half |= sign;
    return half.xz | (half.yw << vec2(16u));
}
