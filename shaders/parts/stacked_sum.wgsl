// Sums over the invocations of a workgroup that own the same columns, those whose indices are alike modulo
// `column_lanes`: a tree in an order that never changes. The number of them is a power of two.

var<workgroup> shared_sums: array<Sums, workgroup_size>;

// Every invocation calls it with its own share, and gets the sums of its columns.
fn stacked_sum(local: u32, own: Sums) -> Sums {
    if !stacked { return own; }
    shared_sums[local] = own;
    workgroupBarrier();
    for (var half = workgroup_size / 2u; half >= uniforms.column_lanes; half /= 2u) {
        if local < half {
            shared_sums[local] = merge(shared_sums[local], shared_sums[local + half]);
        }
        workgroupBarrier();
    }
    let total = shared_sums[lane_of(local, uniforms.column_lanes)];
    workgroupBarrier(); // they may be written again
    return total;
}
