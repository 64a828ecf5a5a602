fn store_TENSOR(quad: u32, value: real4) {
    let words = bitcast<vec4<u32>>(value);
    ARRAY[quad] = vec2(join_long(words.xy), join_long(words.zw));
}

// The first `count` of four elements: the tensor ends there. What is behind them stays.
fn store_part_TENSOR(quad: u32, value: real4, count: u32) {
    let behind = vec4(0u, 1u, 2u, 3u) >= vec4(count);
    let longs = ARRAY[quad];
    let words = vec4(split_long(longs.x), split_long(longs.y));
    let all = select(bitcast<vec4<u32>>(value), words, behind);
    if count > 0u { ARRAY[quad] = vec2(join_long(all.xy), join_long(all.zw)); }
}
