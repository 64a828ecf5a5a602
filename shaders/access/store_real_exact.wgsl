// For a buffer that ends with its tensor: element by element.
fn store_TENSOR(quad: u32, value: real4) {
    store_part_TENSOR(quad, value, 4u);
}

// The first `count` of four elements: the tensor ends there.
fn store_part_TENSOR(quad: u32, value: real4, count: u32) {
    let first = 4u * quad;
    if count > 0u { ARRAY[first] = value.x; }
    if count > 1u { ARRAY[first + 1u] = value.y; }
    if count > 2u { ARRAY[first + 2u] = value.z; }
    if count > 3u { ARRAY[first + 3u] = value.w; }
}
