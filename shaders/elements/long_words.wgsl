// Storage in words of 64 bits: two of 32, the first in the low half.

fn split_long(long: u64) -> vec2<u32> {
    return vec2(u32(long), u32(long >> 32u));
}

fn join_long(words: vec2<u32>) -> u64 {
    return u64(words.x) | (u64(words.y) << 32u);
}
