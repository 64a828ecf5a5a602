// Four 16-bit elements as a 64-bit word.
fn store_TENSOR(quad: u32, value: real4) {
    ARRAY[quad] = join_long(encode_DTYPE(value));
}

// The first `count` of four elements: the tensor ends there. Of an odd count's last word the upper
// half is padding that belongs to the tensor; it becomes 0. What is behind that word stays.
fn store_part_TENSOR(quad: u32, value: real4, count: u32) {
    var words = encode_DTYPE(select(real4(), value, vec4(0u, 1u, 2u, 3u) < vec4(count)));
    if count < 3u { words.y = split_long(ARRAY[quad]).y; }
    if count > 0u { ARRAY[quad] = join_long(words); }
}
