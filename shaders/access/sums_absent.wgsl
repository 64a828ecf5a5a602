// Neither read nor written.
fn load_sum(index: u32) -> real {
    return real();
}
fn store_sum(index: u32, value: real) {}
