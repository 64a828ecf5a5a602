// Some of four elements: words of which both are.
fn store_some_TENSOR(quad: u32, value: real4, some: vec4<bool>) {
    let words = encode_DTYPE(value);
    if some.x && some.y { ARRAY[2u * quad] = words.x; }
    if some.z && some.w { ARRAY[2u * quad + 1u] = words.y; }
}
