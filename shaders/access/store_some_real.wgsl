// Some of four elements.
fn store_some_TENSOR(quad: u32, value: real4, some: vec4<bool>) {
    if all(some) {
        ARRAY[quad] = value;
    } else {
        if some.x { ARRAY[quad].x = value.x; }
        if some.y { ARRAY[quad].y = value.y; }
        if some.z { ARRAY[quad].z = value.z; }
        if some.w { ARRAY[quad].w = value.w; }
    }
}
