// Rounds to f16 by a conversion, where a probe has shown that it rounds to nearest even: WGSL leaves that open.
// Packing what fits is exact.

fn encode_f16(value: vec4<f32>) -> vec2<u32> {
    let rounded = vec4<f32>(vec4<f16>(value));
    return vec2(pack2x16float(rounded.xy), pack2x16float(rounded.zw));
}
