// f16 in storage: four elements in two words, the first in the low half. Another file
// encodes them: f16_integers, f16_pack or f16_cast.

fn decode_f16(words: vec2<u32>) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
}
