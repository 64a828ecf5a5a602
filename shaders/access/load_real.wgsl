// Four reals at once.
fn load_TENSOR(quad: u32) -> real4 {
    return ARRAY[quad];
}
