fn load_TENSOR(quad: u32) -> real4 {
    let longs = ARRAY[quad];
    return bitcast<real4>(vec4(split_long(longs.x), split_long(longs.y)));
}
