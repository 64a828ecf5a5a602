// Four reals as two 64-bit words.
fn store_TENSOR(quad: u32, value: real4) {
    ARRAY[quad] = longs_of_real(value);
}

// The first `count` of four elements: the tensor ends there. What is behind them stays.
fn store_part_TENSOR(quad: u32, value: real4, count: u32) {
    let behind = vec4(0u, 1u, 2u, 3u) >= vec4(count);
    let all = select(bitcast<vec4<u32>>(value), bitcast<vec4<u32>>(real_of_longs(ARRAY[quad])), behind);
    if count > 0u { ARRAY[quad] = vec2(join_long(all.xy), join_long(all.zw)); }
}
