// Not asked for.
fn store_TENSOR(quad: u32, value: real4) {}
fn store_part_TENSOR(quad: u32, value: real4, count: u32) {}
