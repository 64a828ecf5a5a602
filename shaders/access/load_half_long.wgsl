// Four 16-bit elements of a 64-bit word.
fn load_TENSOR(quad: u32) -> real4 {
    return decode_DTYPE(split_long(ARRAY[quad]));
}
