// Some of four elements, the two of a word together: rows are made of such pairs.
fn store_some_TENSOR(quad: u32, value: real4, some: vec4<bool>) {
    let words = encode_DTYPE(value);
    if some.x { ARRAY[2u * quad] = words.x; }
    if some.z { ARRAY[2u * quad + 1u] = words.y; }
}
