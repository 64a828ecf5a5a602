// Four reals of two 64-bit words.
fn load_TENSOR(quad: u32) -> real4 {
    return real_of_longs(ARRAY[quad]);
}
