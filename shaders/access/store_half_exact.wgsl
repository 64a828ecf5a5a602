// For a buffer that ends with its tensor: word by word.
fn store_TENSOR(quad: u32, value: real4) {
    store_part_TENSOR(quad, value, 4u);
}

// The first `count` of four elements: the tensor ends there. Of an odd count's last word the upper
// half is padding that belongs to the tensor; it becomes 0.
fn store_part_TENSOR(quad: u32, value: real4, count: u32) {
    let words = encode_DTYPE(select(real4(), value, vec4(0u, 1u, 2u, 3u) < vec4(count)));
    if count > 0u { ARRAY[2u * quad] = words.x; }
    if count > 2u { ARRAY[2u * quad + 1u] = words.y; }
}
