// Four 16-bit elements as two words.
fn store_TENSOR(quad: u32, value: real4) {
    ARRAY[quad] = encode_DTYPE(value);
}

// The first `count` of four elements: the tensor ends there. Of an odd count's last word the upper
// half is padding that belongs to the tensor; it becomes 0.
fn store_part_TENSOR(quad: u32, value: real4, count: u32) {
    let words = encode_DTYPE(select(real4(), value, vec4(0u, 1u, 2u, 3u) < vec4(count)));
    if count > 0u { ARRAY[quad].x = words.x; }
    if count > 2u { ARRAY[quad].y = words.y; }
}
