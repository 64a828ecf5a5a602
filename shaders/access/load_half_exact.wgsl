// For a buffer that ends with its tensor: no word beyond `LENGTH` elements is touched.
fn load_TENSOR(quad: u32) -> real4 {
    let first = 2u * quad;
    let last = (max(uniforms.LENGTH, 1u) - 1u) / 2u;
    return decode_DTYPE(vec2(ARRAY[min(first, last)], ARRAY[min(first + 1u, last)]));
}
