// Some of four elements, each by itself.
fn store_some_TENSOR(quad: u32, value: real4, some: vec4<bool>) {
    let first = 4u * quad;
    if some.x { ARRAY[first] = value.x; }
    if some.y { ARRAY[first + 1u] = value.y; }
    if some.z { ARRAY[first + 2u] = value.z; }
    if some.w { ARRAY[first + 3u] = value.w; }
}
