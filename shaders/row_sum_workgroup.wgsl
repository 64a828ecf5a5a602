// The sum over the invocations of a row, through workgroup memory.

var<workgroup> scratch: array<real2, workgroup_size>;

fn row_sum(local: u32, own: real2) -> real2 {
    if lanes == 1u { return own; }
    scratch[local] = own;
    workgroupBarrier();
    let lane = local % lanes;
    for (var stride = lanes / 2u; stride > 0u; stride /= 2u) {
        if lane < stride {
            scratch[local] += scratch[local + stride];
        }
        workgroupBarrier();
    }
    let sum = scratch[local - lane];
    workgroupBarrier(); // scratch is written again for the next row
    return sum;
}
