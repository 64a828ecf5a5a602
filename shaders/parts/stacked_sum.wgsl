// Sums over the invocations of a workgroup that own the same columns, those whose indices are alike modulo
// `column_lanes`: a tree in an order that never changes. The number of them is a power of two.

var<workgroup> sums: array<real4, workgroup_size>;
var<workgroup> sums_xhat: array<real4, workgroup_size>;

struct Sums {
    sum: real4,
    sum_xhat: real4,
}

// Every invocation calls it with its own share, and gets the sums of its columns.
fn stacked_sum(local: u32, own: real4, own_xhat: real4) -> Sums {
    if !stacked { return Sums(own, own_xhat); }
    sums[local] = own;
    sums_xhat[local] = own_xhat;
    workgroupBarrier();
    for (var half = workgroup_size / 2u; half >= uniforms.column_lanes; half /= 2u) {
        if local < half {
            sums[local] += sums[local + half];
            sums_xhat[local] += sums_xhat[local + half];
        }
        workgroupBarrier();
    }
    let column = lane_of(local, uniforms.column_lanes);
    let total = Sums(sums[column], sums_xhat[column]);
    workgroupBarrier(); // they may be written again
    return total;
}
