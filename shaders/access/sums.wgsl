// The sums of all channels, one by one.
fn load_sum(index: u32) -> real {
    return sums[index];
}
fn store_sum(index: u32, value: real) {
    sums[index] = value;
}
