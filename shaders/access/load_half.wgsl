// Four 16-bit elements of two words.
fn load_TENSOR(quad: u32) -> real4 {
    return decode_DTYPE(ARRAY[quad]);
}
