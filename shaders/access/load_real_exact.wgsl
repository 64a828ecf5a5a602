// For a buffer that ends with its tensor: no element beyond `LENGTH` is touched.
fn load_TENSOR(quad: u32) -> real4 {
    let first = 4u * quad;
    let last = max(uniforms.LENGTH, 1u) - 1u;
    return real4(
        ARRAY[min(first, last)],
        ARRAY[min(first + 1u, last)],
        ARRAY[min(first + 2u, last)],
        ARRAY[min(first + 3u, last)],
    );
}
