// bf16 in storage: four elements in two words, the first in the low half. A bf16 is the upper half
// of an f32; encoding rounds to nearest even, and a NaN stays one.

fn decode_bf16(words: vec2<u32>) -> vec4<f32> {
    let low = words << vec2(16u);
    let high = words & vec2(0xffff0000u);
    return bitcast<vec4<f32>>(vec4(low.x, high.x, low.y, high.y));
}

fn encode_bf16(value: vec4<f32>) -> vec2<u32> {
    let bits = bitcast<vec4<u32>>(value);
    let rounded = bits + vec4(0x7fffu) + extractBits(bits, 16u, 1u);
    // A NaN could become infinite, or 0.
    let half = select(rounded, vec4(0x7fc00000u), (bits & vec4(0x7fffffffu)) > vec4(0x7f800000u));
    return (half.xz >> vec2(16u)) | (half.yw & vec2(0xffff0000u));
}
