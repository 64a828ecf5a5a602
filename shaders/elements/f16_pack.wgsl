// Rounds to f16 by pack2x16float, where a probe has shown that it rounds to nearest even: WGSL leaves that open.

fn encode_f16(value: vec4<f32>) -> vec2<u32> {
    return vec2(pack2x16float(value.xy), pack2x16float(value.zw));
}
