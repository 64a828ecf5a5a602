// Storage in words of 64 bits: each holds two words of 32, the first in the low half.

fn split_long(long: u64) -> vec2<u32> {
    return vec2(u32(long), u32(long >> 32u));
}

fn join_long(words: vec2<u32>) -> u64 {
    return u64(words.x) | (u64(words.y) << 32u);
}

fn real_of_longs(longs: vec2<u64>) -> real4 {
    return bitcast<real4>(vec4(split_long(longs.x), split_long(longs.y)));
}

fn longs_of_real(value: real4) -> vec2<u64> {
    let words = bitcast<vec4<u32>>(value);
    return vec2(join_long(words.xy), join_long(words.zw));
}
