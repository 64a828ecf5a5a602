// Not given: every element is 1.
fn load_TENSOR(quad: u32) -> real4 {
    return real4(1.0);
}
