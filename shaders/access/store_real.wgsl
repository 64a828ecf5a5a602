// Four reals at once.
fn store_TENSOR(quad: u32, value: real4) {
    ARRAY[quad] = value;
}

// The first `count` of four elements: the tensor ends there.
fn store_part_TENSOR(quad: u32, value: real4, count: u32) {
    if count > 0u { ARRAY[quad].x = value.x; }
    if count > 1u { ARRAY[quad].y = value.y; }
    if count > 2u { ARRAY[quad].z = value.z; }
    if count > 3u { ARRAY[quad].w = value.w; }
}
